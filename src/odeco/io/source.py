"""Sources of rows: their protocol, their base class, which checks every block, and the choice of
columns by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias, final, runtime_checkable

import numpy as np
from scipy.sparse import csr_array

from odeco._util.arguments import check_count, check_unmasked
from odeco._util.types import DataArray
from odeco.errors import SourceError
from odeco.io.errors import as_subject, source_error
from odeco.io.rows import csr_fault, csr_view, first_fault, is_sparse, row_slice
from odeco.io.urls import UrlPath

#: A block of rows as algorithms read it: float32 or float64, dense or CSR. Read-only by convention:
#: it may be a view of the user's data.
Block: TypeAlias = "DataArray | csr_array[Any, Any]"


#: A dense block has about this many bytes, and a sparse block about this many stored numbers.
BLOCK_BYTES = 4 << 20
BLOCK_STORED = 1 << 20

#: An error lists at most this many names of columns.
_MAX_LISTED = 20


@runtime_checkable
class BatchSource(Protocol):
    """Rows that can be read block by block, always in the same order.

    `as_source` makes one from arrays, files, tables and iterables. A class of your own needs
    `n_features` and ``__iter__`` only: `as_source` adds the rest and checks every block.
    """

    @property
    def n_features(self) -> int:
        """Number of columns."""

    @property
    def n_rows(self) -> int | None:
        """Number of rows, or None if it is unknown before a full pass."""

    @property
    def repeatable(self) -> bool:
        """Whether a second pass gives the same rows again."""

    def __iter__(self) -> Iterator[Block]:
        """Start a fresh pass."""

    def iterate_from(self, row: int) -> Iterator[Block]:
        """Start a fresh pass at `row`, counted from 0, by seeking where that is possible."""

    def fingerprint(self) -> str:
        """Return a short string that very probably changes if the rows do; cheap, so not a checksum
        of them.
        """


class Stamp(NamedTuple):
    """The inode, the size and the modification time of a file, which show that it was changed."""

    number: int
    size: int
    changed: int

    @classmethod
    def of(cls, path: Path) -> Stamp:
        """Read the stamp of a file."""
        status = path.stat()
        return cls(status.st_ino, status.st_size, status.st_mtime_ns)


class Source(ABC):
    """Base of the sources in odeco: every block that `_blocks` yields is checked before it is
    handed out.

    A file that is mapped into memory and then cut short would end the process, and one that is
    rewritten between two passes would give a result on mixed data. So its stamp is compared before
    every block and at the end of a pass.
    """

    name: str
    path: Path | None = None
    n_features: int
    n_rows: int | None = None
    repeatable: bool = True
    #: The names of the columns, if they have names.
    columns: tuple[str, ...] | None = None
    #: Whether the fingerprint tells these rows from others; otherwise the rows themselves have to
    #: be compared.
    identified: bool = True
    #: Whether a missing value (NaN, a null, an empty cell) is read as NaN; otherwise it is an
    #: error.
    nulls_are_nan: bool = False
    #: The file as it was when it was opened, if the rows come from one file.
    stamp: Stamp | None = None
    #: What reading may raise when a file is damaged.
    _faults: tuple[type[Exception], ...] = ()
    #: The kind of the source, and what else its fingerprint has besides its shape and its file.
    _facts: tuple[Any, ...] = ("rows",)

    def __iter__(self) -> Iterator[Block]:
        return self.iterate_from(0)

    @final
    def iterate_from(self, row: int) -> Iterator[Block]:
        """Start a fresh pass at `row`, counted from 0, by seeking where that is possible."""
        row = check_count("row", row, 0)
        if self.n_rows is not None and row > self.n_rows:
            raise self.fault("short", self.n_rows, wanted=row)
        return self._checked(self._blocks(row), row)

    def fault(self, kind: str, row: int | None = None, **facts: Any) -> SourceError:
        """Return an error about these rows; see `source_error`."""
        return source_error(kind, self.name, self.path, row, **facts)

    def fingerprint(self) -> str:
        """Return a short string that very probably changes if the rows do; cheap, so not a checksum
        of them.

        It has the kind of the source, its shape, further facts, and the name, size and modification
        time of the file.
        """
        return self._describe(*self._facts)

    def _describe(self, kind: str, *more: object) -> str:
        rows = "?" if self.n_rows is None else self.n_rows
        parts = [kind, f"{rows}x{self.n_features}", *more]
        if self.path is not None:
            status = self.path.stat()
            parts += [self.path.name, status.st_size, status.st_mtime_ns]
        return ":".join(str(part) for part in parts)

    def _check_not_empty(self) -> None:
        """Raise if there are no columns, or if it is known that there are no rows."""
        if self.n_features <= 0 or (self.n_rows is not None and self.n_rows <= 0):
            rows = "an unknown number of" if self.n_rows is None else f"{self.n_rows:,}"
            raise self.fault("empty", what=f"{rows} rows and {self.n_features:,} columns")

    def _after(self, blocks: Iterable[Any], row: int) -> Iterator[Any]:
        """Yield what follows the first `row` rows; raise if there are fewer."""
        left = yield from skip_first(blocks, row)
        if left:
            raise self.fault("short", row - left, wanted=row)

    @abstractmethod
    def _blocks(self, row: int) -> Iterator[Any]:
        """Yield blocks of rows from `row` on, of any number type, not yet checked."""

    def _checked(self, blocks: Iterator[Any], row: int) -> Iterator[Block]:
        start = row
        in_store = isinstance(self.path, UrlPath)
        self._check_unchanged(row)
        while True:
            if not in_store:  # where nothing is mapped, and every look is a request
                self._check_unchanged(row)
            try:
                block = next(blocks, None)
            except SourceError:
                raise
            except self._faults as error:
                broken_off = in_store and isinstance(error, OSError)
                raise self.fault(
                    "broken off" if broken_off else "damaged later", row, reason=error
                ) from error
            if block is None or not in_store:
                self._check_unchanged(row)  # opening and mapping took time
            if block is None:
                break
            checked = as_block(block, self, row)
            row += checked.shape[0]
            yield checked
        if start == row == 0:
            raise self.fault("empty", what="no rows")
        if self.n_rows is not None and row != self.n_rows:
            raise self.fault("changed length", row, announced=self.n_rows)

    def _check_unchanged(self, row: int) -> None:
        """Raise if the file is not as it was when it was opened."""
        if self.path is None or self.stamp is None:
            return
        try:
            now = Stamp.of(self.path)
        except OSError as error:
            raise self._changed(row, "It was removed") from error
        if now != self.stamp:
            raise self._changed(
                row, "Its size changed" if now.size != self.stamp.size else "It was written to"
            )

    def _changed(self, row: int, what: str) -> SourceError:
        return SourceError(
            f"{self.name} must not change while it is read. {what} since it was opened. Nothing "
            f"after row {row:,} of it was used; begin again, on a copy that nobody writes to.",
            path=self.path,
            row=row,
        )


class FileSource(Source):
    """The base of the readers of files."""

    path: Path
    sparse: ClassVar[bool] = False
    #: The type of the numbers that are read; that of all files, if several are read together.
    dtype: np.dtype[Any] = np.dtype(np.float64)

    def __init__(self, path: Path) -> None:
        self.name = _name_of(path)
        self.path = path
        self.stamp = Stamp.of(
            path
        )  # before anything is read, so that a change at any time after that is noticed

    def _check_not_empty(self) -> None:
        """Raise if there are no columns. A file without rows may be one of several, so `open_files`
        counts them.
        """
        if self.n_features <= 0:
            super()._check_not_empty()

    @contextmanager
    def _opening(self) -> Iterator[None]:
        """Turn what a damaged file raises into an error that names it."""
        try:
            yield
        except SourceError:
            raise
        except self._faults as error:
            raise self.fault("damaged", reason=error) from error


def _name_of(path: Path) -> str:
    """Return the name of a file, with the folders that Hive has named: all files in them may have
    the same name.
    """
    *folders, _ = (f"{path}" if isinstance(path, UrlPath) else path.as_posix()).split("/")
    return "/".join([*(each for each in folders if "=" in each), path.name])


def as_block(block: Any, source: Source, first_row: int) -> Block:
    """Return a block as float32 or float64; raise an error that names the first row that is not
    valid.
    """
    if block.ndim != 2:
        raise source.fault("shape", first_row, shape=block.shape)
    if block.shape[1] != source.n_features:
        raise source.fault("width", first_row, n_features=source.n_features, given=block.shape[1])
    dtype = working_type(block.dtype, source.name, source.path)
    if isinstance(source, FileSource):
        dtype = source.dtype
    rows: Any = block
    if is_sparse(block):
        fault = csr_fault(block)
        if fault is not None:
            raise source.fault(
                fault.kind, first_row + fault.row, index=fault.index, largest=source.n_features - 1
            )
        if not (isinstance(block, csr_array) and block.dtype == dtype):
            rows = csr_view(
                block.data.astype(dtype, copy=False), block.indices, block.indptr, source.n_features
            )
    else:
        rows = block.astype(dtype, copy=False)
    found = first_fault(rows, missing=source.nulls_are_nan)
    if found is not None:
        place, column, what = found
        name = column if source.columns is None else repr(source.columns[column])
        raise source.fault("not finite", first_row + place, what=f"{what} in column {name}")
    checked: Block = rows
    return checked


def working_type(dtype: np.dtype[Any], name: str, path: Path | None) -> np.dtype[Any]:
    """Return float32 or float64, whichever holds numbers of this type, or raise if neither does."""
    if dtype.kind == "f" and dtype.itemsize <= 8:
        return np.dtype(np.float64 if dtype.itemsize == 8 else np.float32)
    if dtype.kind in "iub":
        return np.dtype(np.float64)
    raise source_error("type", name, path, what=dtype)


def rows_per_block(n_features: int, itemsize: int, batch_rows: int | None) -> int:
    """Return the number of dense rows in a block: `batch_rows` if given, else about 4 MB."""
    return batch_rows or max(1, BLOCK_BYTES // max(1, n_features * itemsize))


def split(block: Any, rows: int) -> Iterator[Any]:
    """Yield a block in pieces of at most `rows` rows, as views; nothing if it has no rows."""
    n_rows = block.shape[0]
    if 0 < n_rows <= rows:
        yield block
        return
    for start in range(0, n_rows, rows):
        yield row_slice(block, start, min(start + rows, n_rows))


def skip_first(blocks: Iterable[Any], n: int) -> Generator[Any, None, int]:
    """Yield what follows the first `n` rows; return how many of these are still to be skipped after
    the last block.
    """
    for block in blocks:
        n_rows = block.shape[0]
        if n < n_rows:
            yield row_slice(block, n, n_rows) if n else block
        n = max(0, n - n_rows)
    return n


def is_on_cluster(data: Any) -> bool:
    """Tell whether rows belong to Dask, without importing it; `odeco.online.dask` reads those."""
    module = type(data).__module__
    return module.partition(".")[0] == "dask" or module.startswith("odeco.online.dask.")


def names_of(data: Any) -> tuple[str, ...] | None:
    """Return the names of the columns of a table of pandas, polars, pyarrow or Dask; None if it has
    no names.

    pandas names columns without a name 0, 1, 2, …
    """
    for found in (
        getattr(data, "columns", None),
        getattr(getattr(data, "schema", None), "names", None),
    ):
        if found is None or callable(found):
            continue
        labels = list(found)
        if labels == list(range(len(labels))):
            return None
        if all(isinstance(label, str | int | float | tuple) for label in labels):
            return tuple(map(str, labels))
    return None


def check_cells(data: Any) -> None:
    """Raise if an array is masked, if two columns of a table have one name, or if a column holds
    lists or records.
    """
    check_unmasked(data, "array X")
    names = getattr(data, "column_names", getattr(data, "columns", ()))
    repeated = [name for name, number in Counter(map(str, names)).items() if number > 1]
    if repeated:
        raise ValueError(
            "The columns of a table must have different names. More than one is called "
            f"{repeated[0]!r}. Rename them."
        )
    for column, kind in nested_columns(data):
        raise TypeError(
            f"The columns of a table must hold single values. Column {column!r} holds {kind}. "
            f"{NESTED_REMEDY}"
        )


def check_numbers(data: Any) -> None:
    """Raise if a column of a table, or an array, holds texts or times; no cell is quoted."""
    columns: list[tuple[str, Any]] = [("The array", data)]
    if hasattr(data, "items") and hasattr(data, "columns"):  # pandas, whose names may be numbers
        columns = [(f"Column {name!r}", cells) for name, cells in data.items()]
    elif names_of(data) is not None:
        columns = [(f"Column {name!r}", data[name]) for name in names_of(data) or ()]
    for where, column in columns:
        cells = np.asarray(column)
        kind = cells.dtype.kind
        has_texts = kind in "US" or (kind == "O" and any(isinstance(x, str) for x in cells.flat))
        if has_texts or kind in "Mm":
            what = "texts" if has_texts else "times"
            raise TypeError(
                f"Rows must be numbers. {where} holds {what}. Convert them, or leave them out."
            )


#: What to do about a column that holds lists or records.
NESTED_REMEDY = "Write its parts as columns of their own, or leave it out."


def nested_columns(data: Any) -> Iterator[tuple[Any, object]]:
    """Yield the name and the type of each column of a pandas, polars or pyarrow table that holds
    lists or records.
    """
    if hasattr(data, "schema") and hasattr(data, "num_columns"):  # pyarrow
        yield from ((field.name, field.type) for field in data.schema if field.type.num_fields)
    elif hasattr(data, "columns") and hasattr(data, "dtypes"):
        for place, (name, dtype) in enumerate(zip(data.columns, data.dtypes, strict=True)):
            if hasattr(dtype, "is_nested"):  # polars
                yield from [(name, dtype)] if dtype.is_nested() else []
            elif dtype.kind == "O" and hasattr(
                data, "iloc"
            ):  # pandas, whose cells may be any objects
                cells = (
                    cell
                    for cell in data.iloc[:, place]
                    if isinstance(cell, list | tuple | dict | np.ndarray)
                )
                yield from ((name, f"a {type(cell).__name__}") for cell in cells)


@dataclass(frozen=True)
class Selection:
    """Which columns of a table are read: those of `columns` in this order, or all but those of
    `drop`.
    """

    columns: tuple[str, ...] | None = None
    drop: tuple[str, ...] | None = None

    @classmethod
    def of(cls, columns: Sequence[str] | str | None, drop: Sequence[str] | str | None) -> Selection:
        """Return the selection for the arguments of a user; a single name need not be in a list."""
        if columns is not None and drop is not None:
            raise ValueError(
                f"`columns` and `drop` must not be given together. Got {columns!r} and {drop!r}. "
                "Pass the one that is shorter."
            )
        return cls(_as_names("columns", columns), _as_names("drop", drop))

    @property
    def is_all(self) -> bool:
        """Whether every column is read."""
        return self.columns is None and self.drop is None

    def places(self, names: Sequence[str] | None, name: str, path: Path | None) -> list[int] | None:
        """Return the positions of the columns that are read; None for all of them.

        The index that pandas and R write is read only if it is chosen.
        """
        if self.is_all:
            columns = columns_beside_index(names or ())
            return columns if len(columns) < len(names or ()) else None
        if names is None:
            raise SourceError(
                "Columns are chosen by their names, as CSV, Parquet, Arrow files and tables have "
                f"them. {as_subject(name)} has none. Leave `columns` and `drop` out, or write the "
                "rows with names.",
                path=path,
            )
        for wanted in (*(self.columns or ()), *(self.drop or ())):
            if names.count(wanted) != 1:
                close = get_close_matches(wanted, names, 1)
                listed = ", ".join(names[:_MAX_LISTED]) + (
                    ", …" if len(names) > _MAX_LISTED else ""
                )
                hint = (
                    f"Did you mean {close[0]!r}?"
                    if close and close[0] != wanted
                    else f"It has: {listed}."
                )
                if f"/{wanted}=" in f"/{name}":  # a key of a Hive folder
                    hint = (
                        f"It is in a folder of {wanted!r}, which is not a column. Leave it out, "
                        "or pass "
                    )
                    hint += "polars.scan_parquet(folder, hive_partitioning=True)."
                raise SourceError(
                    f"{as_subject(name)} must have one column {wanted!r}. It has "
                    f"{names.count(wanted) or 'none'}. {hint}",
                    path=path,
                )
        if self.columns is not None:
            return [names.index(wanted) for wanted in self.columns]
        kept = [
            place for place in columns_beside_index(names) if names[place] not in (self.drop or ())
        ]
        if not kept:
            raise source_error(
                "empty", name, path, what="no other columns than those that are dropped"
            )
        return kept

    def of_table(self, data: Any) -> Any:
        """Return a table, in memory or on a cluster, with the columns that are read."""
        names = names_of(data) if hasattr(data, "iloc") or hasattr(data, "select") else None
        places = self.places(names, f"the {type(data).__name__}", None)
        if names is None or places is None:
            return data
        return (
            data.iloc[:, places]
            if hasattr(data, "iloc")
            else data.select([names[place] for place in places])
        )


#: Every column is read.
ALL = Selection()


def columns_beside_index(names: Sequence[str]) -> list[int]:
    """Return the positions of all columns but the index of a table: in text files that pandas and R
    write, a first column without a name; in Parquet files, one that pandas has named.
    """
    begins = 1 if len(names) > 1 and names[0] == "" else 0
    return [
        place
        for place in range(begins, len(names))
        if not names[place].startswith("__index_level_")
    ]


def chosen_columns(
    data: Any, columns: Sequence[str] | str | None, drop: Sequence[str] | str | None
) -> Any:
    """Return a table with the chosen columns; any data unchanged if no columns are chosen."""
    selection = Selection.of(columns, drop)
    return data if selection.is_all else selection.of_table(data)


def _as_names(argument: str, given: Sequence[str] | str | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    names = (given,) if isinstance(given, str) else tuple(given)
    if (
        not names
        or not all(isinstance(name, str) for name in names)
        or len(set(names)) < len(names)
    ):
        raise ValueError(
            f"`{argument}` must be one or more names of columns, each once. Got {given!r}. Pass a "
            "list of texts."
        )
    return names
