"""`as_source`: a source of rows from arrays, files, tables, iterables and callables.

The kind of a file follows from its suffix; several files are read as one source.
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import issparse

from odeco._util.arguments import check_count
from odeco.errors import SourceError
from odeco.io.arrays import (
    AdaptedSource,
    ArraySource,
    IterableSource,
    SlicedSource,
    SparseSource,
    is_one_shot,
)
from odeco.io.arrow import ArrowFile, arrow_stream
from odeco.io.errors import source_error
from odeco.io.npy import NpyFile, NpzFile, WavFile
from odeco.io.rows import join_rows
from odeco.io.source import ALL, BatchSource, Block, FileSource, Selection, Source, skip_first
from odeco.io.tables import kind_of
from odeco.io.text_rows import CsvFile
from odeco.io.urls import UrlPath, as_path

_TABLES = (".csv", ".tsv")

SUFFIXES = (".npy", ".npz", ".parquet", ".arrow", ".feather", ".wav", *_TABLES)


def as_source(
    data: Any,
    *,
    batch_rows: int | None = None,
    n_features: int | None = None,
    columns: Sequence[str] | str | None = None,
    drop: Sequence[str] | str | None = None,
    nulls_are_nan: bool = False,
) -> BatchSource:
    """Return `data` as a source of blocks of rows, without reading more of it than is needed for
    the width.

    Parameters
    ----------
    data : array, matrix, path, table, iterable or callable
        One of

        * a two-dimensional NumPy array, memory-mapped or not; a CSR matrix;
        * the path of a file: ``.npy``, ``.npz`` with a CSR matrix, ``.parquet``, ``.arrow``,
          ``.feather``, ``.wav``, ``.csv`` or ``.tsv``, also with ``.gz`` after it; of a directory
          of such files, or a pattern such as ``day-*.npy``, which are read in the order of their
          names; or a list of such paths, read in the order given. Folders in a directory are read
          if Hive has named them, as ``day=1``; these keys are not columns. A path may be an URL,
          such as ``s3://bucket/rows.parquet``, see `odeco.io.urls`;
        * anything with ``__arrow_c_stream__``, such as a table of pyarrow, a DataFrame of polars or
          a relation of DuckDB; a LazyFrame of polars; a pyarrow dataset;
        * a two-dimensional object that supports ``data[start:stop]``, such as a dataset of h5py or
          zarr; a table of pandas;
        * an iterable of two-dimensional arrays or CSR matrices, or a callable that returns a fresh
          one;
        * a `BatchSource`, or an object with its ``n_features`` and ``__iter__``.
    batch_rows : int, optional
        Largest number of rows in a block. By default a dense block has about 4 MB, a sparse one
        about a million stored numbers; at least one row either way.
    n_features : int, optional
        The number of columns that the rows must have.
    columns, drop : sequence of str, optional
        The names of the columns to read, in this order, or of those to leave out; for CSV, Parquet
        and Arrow files and for tables. A column that is not read may hold anything, not only
        numbers. The index that pandas and R write (a first column without a name) is read only if
        it is one of `columns`.
    nulls_are_nan : bool
        Whether missing values are read as NaN: NaN, nulls, and cells of text that are empty or hold
        NA, N/A, null, none or a dot. By default they are errors.

    Returns
    -------
    BatchSource
        It yields float32 and float64 as they are; float16 becomes float32, integers and bools
        become float64. CSR comes as `scipy.sparse.csr_array`. Blocks may be views of the data: do
        not write to them. In Arrow data, a column of lists, all of one length, is that many columns
        of numbers, named ``name[0]``, ``name[1]``, …

    Raises
    ------
    SourceError
        Now or while reading: if rows hold NaN (unless `nulls_are_nan`) or infinity, differ in width
        or are not numbers; if a file is damaged or cut short; if there are no rows. The blocks
        before the row at fault were yielded by then.
    TypeError
        If `data` is of a kind that cannot be read.

    Notes
    -----
    An iterator (``iter(data) is data``) can be read once: its source has ``repeatable`` False, and
    a second pass raises. Duplicate entries of a CSR row are left as they are and mean their sum.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.io import as_source
    >>> source = as_source(np.ones((5, 2)), batch_rows=2)
    >>> source.n_features, source.n_rows, [block.shape for block in source]
    (2, 5, [(2, 2), (2, 2), (1, 2)])
    """
    batch_rows = None if batch_rows is None else check_count("batch_rows", batch_rows)
    n_features = None if n_features is None else check_count("n_features", n_features)
    source = _coerce(data, batch_rows, Selection.of(columns, drop), nulls_are_nan)
    for each in getattr(source, "_files", [source]) if nulls_are_nan else []:
        each.nulls_are_nan = True
    if n_features not in (None, source.n_features):
        raise source.fault("width", 0, n_features=n_features, given=source.n_features)
    return source


def _coerce(data: Any, batch_rows: int | None, selection: Selection, nulls_are_nan: bool) -> Source:
    if isinstance(data, str | os.PathLike | UrlPath):
        return open_files(files_of(as_path(data)), batch_rows, selection)
    if (
        isinstance(data, list | tuple)
        and data
        and all(isinstance(path, str | os.PathLike | UrlPath) for path in data)
    ):
        return open_files([as_path(path) for path in data], batch_rows, selection)
    if _has_arrow_stream(data):
        return arrow_stream(data, batch_rows, selection, nulls_are_nan=nulls_are_nan)
    data = data if selection.is_all else selection.of_table(data)
    if isinstance(data, Source) and batch_rows is None:
        return data
    for accepts, make in _KINDS:
        if accepts(data):
            return make(data, batch_rows)
    raise TypeError(
        "`data` must be a 2-D array, a CSR matrix, the path of a file or directory, a list of "
        "paths, an Arrow table or stream, an iterable of 2-D arrays, or a callable that returns "
        f"a fresh iterator of them. Got {type(data).__name__}. Convert it with numpy.asarray."
    )


def _has_arrow_stream(data: Any) -> bool:
    """Tell whether rows are read from a stream of Arrow data; found out without importing
    pyarrow.
    """
    if hasattr(data, "iloc"):  # through Arrow, pandas gives its index as one more column
        return False
    is_dataset = type(data).__module__.startswith("pyarrow") and hasattr(data, "get_fragments")
    return is_dataset or hasattr(data, "__arrow_c_stream__") or hasattr(data, "collect_batches")


def _iterable(data: Any, batch_rows: int | None) -> Source:
    if not hasattr(data, "__iter__"):  # a callable
        return IterableSource(data, "the stream", batch_rows)
    return IterableSource(
        lambda: iter(data), "the stream", batch_rows, repeatable=not is_one_shot(data)
    )


def _has_two_axes(data: Any) -> bool:
    shape = getattr(data, "shape", None)
    return isinstance(shape, tuple) and len(shape) == 2


#: Kinds of data and the sources that read them; the first kind that accepts the data is taken.
_KINDS: tuple[tuple[Callable[[Any], bool], Callable[[Any, int | None], Source]], ...] = (
    (lambda data: isinstance(data, np.ndarray), ArraySource),
    (issparse, SparseSource),
    (lambda data: hasattr(data, "n_features") and hasattr(data, "__iter__"), AdaptedSource),
    (lambda data: hasattr(data, "iloc") and _has_two_axes(data), SlicedSource),
    (lambda data: hasattr(data, "__getitem__") and _has_two_axes(data), SlicedSource),
    (
        lambda data: (
            hasattr(data, "__iter__") and not isinstance(data, bytes | bytearray | dict | set)
        ),
        _iterable,
    ),
    (callable, _iterable),
)


def in_memory(data: Any, *, nulls_are_nan: bool = False) -> Any:
    """Return data for an estimator that reads them at once: files, queries and lists of one length
    as arrays.

    Anything else is returned as it is; a file has no names then, as an array has none.
    """
    if isinstance(data, str | os.PathLike | UrlPath):
        return join_rows(list(as_source(data, nulls_are_nan=nulls_are_nan)))
    if hasattr(data, "collect_batches"):  # a LazyFrame of polars
        data = data.collect()
    elif hasattr(data, "to_arrow_reader"):  # a relation of DuckDB
        data = data.to_arrow_table()
    if hasattr(data, "iloc"):  # pandas has no such lists, and a series has one type
        return data
    schema = getattr(data, "schema", {})
    types = (
        [field.type for field in schema]
        if hasattr(data, "num_columns")
        else getattr(data, "dtypes", ())
    )
    # Lists whose type states their length: of pyarrow, of polars.
    has_lists = any(hasattr(each, "list_size") or type(each).__name__ == "Array" for each in types)
    return join_rows(list(as_source(data, nulls_are_nan=nulls_are_nan))) if has_lists else data


def files_of(path: Path) -> list[Path]:
    """Return the path itself; for a directory, the data files in it; for a pattern, the files that
    match it.
    """
    if not path.is_dir():
        found = [] if path.exists() else sorted(_matching(path))
        return found or [path]
    paths = sorted(_files_below(path))
    if not paths:
        raise SourceError(
            f"The directory {path.name} must hold files of the kinds {', '.join(SUFFIXES)}. It "
            "holds none. Check the path.",
            path=path,
        )
    return paths


def _files_below(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder, and of the folders in it that have one value of a key:
    ``day=1``, as Hive names it.

    Names that begin with a dot or an underscore are hidden files and metadata.
    """
    for entry in folder.iterdir():
        if entry.name.startswith((".", "_")):
            continue
        if "=" in entry.name and entry.is_dir():
            yield from _files_below(entry)
        else:
            yield entry


def _matching(pattern: Path) -> Iterator[Path]:
    """Yield the files that match a pattern; none if it is not a pattern."""
    if isinstance(pattern, UrlPath):
        yield from pattern.matching()
        return
    parts = pattern.parts
    fixed = next((place for place, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    if fixed < len(parts):
        yield from Path(*parts[:fixed]).glob(str(Path(*parts[fixed:])))


def check_suffixes(paths: Sequence[Path]) -> None:
    """Raise if the suffix of a file is unknown, or if it is not a regular file."""
    for path in paths:
        packed = path.suffix.lower() == ".gz"
        if kind_of(path) not in (_TABLES if packed else SUFFIXES):
            path.stat()
            raise SourceError(
                f"The name of a data file must end in one of {', '.join(SUFFIXES)}, or in "
                f"{' or '.join(_TABLES)} and .gz. Got {path.name}. Rename, unpack or convert it; "
                "in a directory, move it elsewhere or pass the list of the files to read.",
                path=path,
            )
        if path.exists() and not path.is_file():  # reading a pipe or a device might never end
            raise source_error("damaged", path.name, path, reason="it is not a regular file")


def open_files(paths: Sequence[Path], batch_rows: int | None, selection: Selection = ALL) -> Source:
    """Return the rows of some files, one file after the other. Every header is read now, before a
    long run.
    """
    check_suffixes(paths)

    def open_file(path: Path) -> FileSource:
        suffix = kind_of(path)
        if suffix in _TABLES:
            return CsvFile(path, batch_rows, selection)
        if suffix in (".parquet", ".arrow", ".feather"):
            return ArrowFile(path, batch_rows, selection)
        if suffix == ".wav":
            return WavFile(path, batch_rows)
        selection.places(None, path.name, path)  # the columns of the others have no names
        return NpyFile(path, batch_rows) if suffix == ".npy" else NpzFile(path, batch_rows)

    files = [open_file(path) for path in paths]
    source = files[0] if len(files) == 1 else FilesSource(files)
    if source.n_rows == 0:
        raise source.fault("empty", what=f"0 rows and {source.n_features:,} columns")
    return source


class FilesSource(Source):
    """The rows of several files, one file after the other. Errors name the file and the row within
    it.
    """

    def __init__(self, files: list[FileSource]) -> None:
        for file in files[1:]:
            check_alike(files[0], file)
        self.name = f"the {len(files):,} files"
        self.n_features = files[0].n_features
        self.columns = files[0].columns
        self.sparse = files[0].sparse
        dtype = np.result_type(*(file.dtype for file in files))
        for file in files:
            file.dtype = dtype
        known = [file.n_rows for file in files if file.n_rows is not None]
        self.n_rows = sum(known) if len(known) == len(files) else None
        self._files = files

    def fingerprint(self) -> str:
        """Return kind, shape, number of files, and a checksum of their fingerprints."""
        together = "\n".join(file.fingerprint() for file in self._files)
        return self._describe(
            "files", len(self._files), hashlib.sha256(together.encode()).hexdigest()[:16]
        )

    def _blocks(self, row: int) -> Iterator[Any]:
        left = row
        for file in self._files:
            if file.n_rows is None:
                # The number of rows is unknown until the file is read, and so is whether `row` lies
                # in it.
                left = yield from skip_first(file, left)
            elif left < file.n_rows:
                yield from file.iterate_from(left)
                left = 0
            else:
                left -= file.n_rows
        if left:
            raise self.fault("short", row - left, wanted=row)

    def _checked(self, blocks: Iterator[Any], row: int) -> Iterator[Block]:  # noqa: ARG002 - every file has checked its own
        return blocks


def pieces_of(source: Any, start: int, stop: int) -> list[tuple[Source, int, int]] | None:
    """Return the files that hold the rows from `start` to `stop`, and where in them; None if the
    rows are not in files.

    A file can be sent to another process, which opens it there and raises if it has changed.
    """
    files = getattr(source, "_files", [source])  # of several files, for a private run or not
    pieces: list[tuple[Source, int, int]] = []
    first = 0
    for file in files:
        if not isinstance(file, FileSource) or file.n_rows is None:
            return None
        begins = max(start, first) - first
        ends = min(stop, first + file.n_rows) - first
        if begins < ends:
            pieces.append((file, begins, ends))
        first += file.n_rows
    return pieces


def check_alike(first: FileSource, other: FileSource) -> None:
    """Raise if two files cannot be read as one, by their headers only."""
    if first.n_features != other.n_features:
        what = "width"
        has = [f"{first.n_features:,} columns", f"{other.n_features:,}"]
    elif first.sparse != other.sparse:
        what = "kind"
        has = ["sparse rows" if file.sparse else "dense rows" for file in (first, other)]
    elif first.columns is not None and other.columns is not None and first.columns != other.columns:
        place = next(
            i
            for i, names in enumerate(zip(first.columns, other.columns, strict=True))
            if len(set(names)) > 1
        )
        what = "their columns"
        has = [f"{first.columns[place]!r} in column {place}", f"{other.columns[place]!r}"]
    else:
        return
    raise SourceError(
        f"Files that are read together must agree in {what}. {first.name} has {has[0]}, but "
        f"{other.name} has {has[1]}. Leave one out or make them alike.",
        path=other.path,
    )
