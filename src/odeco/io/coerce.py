"""`as_source`: a source of rows from arrays, files, tables, iterables and callables."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import issparse

from odeco._util.arguments import check_count
from odeco.io import errors as _errors
from odeco.io.arrays import AdaptedSource, ArraySource, IterableSource, SlicedSource, SparseSource, is_one_shot
from odeco.io.arrow import arrow_stream, is_arrow_data
from odeco.io.files import files_of, open_files
from odeco.io.source import BatchSource, Selection, Source


def as_source(
    data: Any,
    *,
    batch_rows: int | None = None,
    n_features: int | None = None,
    columns: Sequence[str] | str | None = None,
    drop: Sequence[str] | str | None = None,
) -> BatchSource:
    """Return `data` as a source of blocks of rows, without reading more of it than is needed for the width.

    Parameters
    ----------
    data : array, matrix, path, table, iterable or callable
        One of

        * a two-dimensional NumPy array, memory-mapped or not; a CSR matrix;
        * the path of a file: ``.npy``, ``.npz`` with a CSR matrix, ``.parquet``, ``.arrow``, ``.feather``,
          svmlight (``.svm``, ``.svmlight``, ``.libsvm``), ``.csv`` or ``.tsv``; of a directory of such files, or a
          pattern such as ``day-*.npy``, which are read in the order of their names; or a list of such paths, read in
          the order given;
        * anything with ``__arrow_c_stream__``, such as a table of pyarrow or polars; a pyarrow dataset;
        * a two-dimensional object that supports ``data[start:stop]``, such as a dataset of h5py or zarr; a table of
          pandas;
        * an iterable of two-dimensional arrays or CSR matrices, or a callable that returns a fresh one;
        * a `BatchSource`, or an object with its ``n_features`` and ``__iter__``.
    batch_rows : int, optional
        Largest number of rows in a block. By default a dense block has about 4 MB, a sparse one about a million stored
        numbers; at least one row either way.
    n_features : int, optional
        The number of columns that the rows must have. A svmlight file does not state its width: by default it is the
        largest index in the file.
    columns, drop : sequence of str, optional
        The names of the columns to read, in this order, or of those to leave out; for CSV, Parquet and Arrow files and
        for tables. A column that is not read may hold anything, not only numbers.

    Returns
    -------
    BatchSource
        It yields float32 and float64 as they are; float16 becomes float32, integers and bools become float64. CSR
        comes as `scipy.sparse.csr_array`. Blocks may be views of the data: do not write to them.

    Raises
    ------
    SourceError
        Now or while reading: if rows hold NaN or infinity, differ in width or are not numbers; if a file is damaged
        or cut short; if there are no rows. The blocks before the row at fault were yielded by then.
    TypeError
        If `data` is of a kind that cannot be read.

    Notes
    -----
    An iterator (``iter(data) is data``) can be read once: its source has ``repeatable`` False, and a second pass
    raises. Duplicate entries of a CSR row are left as they are and mean their sum.

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
    source = _coerce(data, batch_rows, n_features, Selection.of(columns, drop))
    if n_features not in (None, source.n_features):
        raise _errors.wrong_width(source.name, source.path, 0, n_features or 0, source.n_features)
    return source


def _coerce(data: Any, batch_rows: int | None, n_features: int | None, selection: Selection) -> Source:
    if isinstance(data, str | os.PathLike):
        return open_files(files_of(Path(data)), batch_rows, n_features, selection)
    if isinstance(data, list | tuple) and data and all(isinstance(path, str | os.PathLike) for path in data):
        return open_files([Path(path) for path in data], batch_rows, n_features, selection)
    data = data if selection.is_all else selection.of_table(data)
    if isinstance(data, Source) and batch_rows is None:
        return data
    for accepts, make in _KINDS:
        if accepts(data):
            return make(data, batch_rows)
    raise TypeError(
        "`data` must be a 2-D array, a CSR matrix, the path of a file or directory, a list of paths, an Arrow table or "
        "stream, an iterable of 2-D arrays, or a callable that returns a fresh iterator of them. "
        f"Got {type(data).__name__}. Convert it with numpy.asarray."
    )


def _array(data: Any, batch_rows: int | None) -> Source:
    if isinstance(data, np.ma.MaskedArray):
        raise _errors.masked_values()
    return ArraySource(data, batch_rows)


def _iterable(data: Any, batch_rows: int | None) -> Source:
    return IterableSource(lambda: iter(data), "the stream", batch_rows, repeatable=not is_one_shot(data))


def _callable(data: Any, batch_rows: int | None) -> Source:
    return IterableSource(data, "the stream", batch_rows)


def _has_two_axes(data: Any) -> bool:
    shape = getattr(data, "shape", None)
    return isinstance(shape, tuple) and len(shape) == 2


#: Kinds of data and the sources that read them; the first kind that accepts the data is taken.
_KINDS: tuple[tuple[Callable[[Any], bool], Callable[[Any, int | None], Source]], ...] = (
    (lambda data: isinstance(data, np.ndarray), _array),
    (issparse, SparseSource),
    (lambda data: hasattr(data, "n_features") and hasattr(data, "__iter__"), AdaptedSource),
    # Before Arrow: through Arrow, pandas gives its index as one more column.
    (lambda data: hasattr(data, "iloc") and _has_two_axes(data), SlicedSource),
    (is_arrow_data, arrow_stream),
    (lambda data: hasattr(data, "__getitem__") and _has_two_axes(data), SlicedSource),
    (lambda data: hasattr(data, "__iter__") and not isinstance(data, bytes | bytearray | dict | set), _iterable),
    (callable, _callable),
)
