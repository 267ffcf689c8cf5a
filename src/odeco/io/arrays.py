"""Rows in memory: arrays, CSR matrices, objects that can be sliced, iterables, and sources of the
user's own class.
"""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odeco._util.arguments import as_numpy, check_count
from odeco.io.errors import source_error
from odeco.io.rows import is_sparse, row_slice
from odeco.io.source import (
    BLOCK_BYTES,
    BLOCK_STORED,
    Source,
    Stamp,
    names_of,
    rows_per_block,
    split,
    working_type,
)

#: Bytes of a mapped file that may stay in memory before its pages are given back.
RESIDENT_BYTES = 4 * BLOCK_BYTES

#: Rows in a fingerprint: of an array, and of an object whose rows may have to be fetched and
#: unpacked.
_MAX_ROWS = 1024
_MAX_FETCHED_ROWS = 16


class ArraySource(Source):
    """The rows of a NumPy array. Of a memory-mapped array, little more than a block is in memory at
    a time.
    """

    name = "the array"

    def __init__(self, array: NDArray[Any], batch_rows: int | None) -> None:
        if isinstance(array, np.ma.MaskedArray):
            raise self.fault("masked")
        if array.ndim != 2:
            raise self.fault("shape", shape=array.shape)
        working_type(array.dtype, self.name, None)
        self.n_rows, self.n_features = array.shape
        self._check_not_empty()
        # Slicing a memmap is slow; a plain array reads the same pages.
        self._array = np.asarray(array)
        self._map = _mapping(array)
        if isinstance(array, np.memmap) and array.mode == "r" and array.filename is not None:
            path = Path(array.filename)
            if path.exists():  # an array may outlive the name of its file
                self.path = path
                self.stamp = Stamp.of(path)
        self._rows = rows_per_block(self.n_features, array.itemsize, batch_rows)

    def fingerprint(self) -> str:
        """Return kind, shape, number type, and a checksum of evenly spaced rows."""
        rows = _spaced_rows(len(self._array), self._array[0].nbytes)
        return self._describe(
            "array", self._array.dtype, _checksum(*(self._array[row] for row in rows))
        )

    def _blocks(self, row: int) -> Iterator[NDArray[Any]]:
        touched = 0
        for start in range(row, len(self._array), self._rows):
            block = self._array[start : start + self._rows]
            touched += block.nbytes
            yield block
            if self._map is not None and touched >= RESIDENT_BYTES:
                self._map.madvise(mmap.MADV_DONTNEED)
                touched = 0


class SparseSource(Source):
    """The rows of a CSR matrix in memory, in blocks of about a million stored numbers."""

    name = "the CSR matrix"
    sparse = True

    def __init__(self, matrix: Any, batch_rows: int | None) -> None:
        if matrix.format != "csr":
            raise source_error("not CSR", "the sparse matrix", what=matrix.format.upper())
        if matrix.ndim != 2:
            raise self.fault("shape", shape=matrix.shape)
        working_type(matrix.dtype, self.name, None)
        self.n_rows, self.n_features = matrix.shape
        self._check_not_empty()
        if matrix.indptr[0] != 0:
            raise self.fault("pointers", 0)
        self._matrix = matrix
        self._batch_rows = batch_rows

    def fingerprint(self) -> str:
        """Return kind, shape, number type, number of stored numbers, and a checksum of evenly
        spaced rows.
        """
        matrix = self._matrix
        parts = []
        for row in _spaced_rows(matrix.shape[0], matrix.data.nbytes // matrix.shape[0]):
            places = slice(*matrix.indptr[row : row + 2])
            parts += [matrix.indices[places], matrix.data[places]]
        return self._describe("csr", matrix.dtype, matrix.indptr[-1], _checksum(*parts))

    def _blocks(self, row: int) -> Iterator[Any]:
        n_rows = self._matrix.shape[0]
        while row < n_rows:
            stop = row + rows_within(self._matrix.indptr[row:], self._batch_rows)
            falling = np.flatnonzero(np.diff(self._matrix.indptr[row : stop + 1]) < 0)
            if falling.size:
                raise self.fault("pointers", row + int(falling[0]))
            yield row_slice(self._matrix, row, stop)
            row = stop


class SlicedSource(Source):
    """The rows of a pandas table, or of a 2-D object that supports ``data[start:stop]`` (h5py,
    zarr, torch).
    """

    def __init__(self, data: Any, batch_rows: int | None) -> None:
        self.name = f"the {type(data).__name__}"
        self.n_rows, self.n_features = (int(size) for size in data.shape)
        self._check_not_empty()
        self._data = data
        self._sliced = getattr(data, "iloc", data)  # what pandas slices by position
        if hasattr(data, "iloc"):
            self.columns = names_of(data)
        if hasattr(data, "iloc") and hasattr(data, "dtypes"):
            for column, dtype in zip(data.columns, data.dtypes, strict=True):
                if dtype.kind not in "iufb":
                    raise self.fault("column", column=column, what=dtype)
        dtypes = getattr(data, "dtypes", ()) if hasattr(data, "iloc") else ()
        self._has_na = any(
            not isinstance(dtype, np.dtype) for dtype in dtypes
        )  # types of pandas with a null of their own
        itemsize = getattr(getattr(data, "dtype", None), "itemsize", 8)
        self._rows = rows_per_block(self.n_features, itemsize, batch_rows)

    def _cut(self, start: int, stop: int) -> Any:
        by_axes = hasattr(self._data, "__array_namespace__")  # where every axis is named
        rows = self._sliced[start:stop, :] if by_axes else self._sliced[start:stop]
        return as_matrix(
            rows.to_numpy(np.float64, na_value=np.nan) if self._has_na else rows, self.name, start
        )

    def fingerprint(self) -> str:
        """Return kind, shape, number type, and a checksum of a few rows: each may be in a different
        chunk.
        """
        rows = _spaced_rows(self.n_rows or 0, 1, most=_MAX_FETCHED_ROWS)
        parts = [self._cut(row, row + 1) for row in rows]
        return self._describe(
            type(self._data).__name__, getattr(self._data, "dtype", "?"), _checksum(*parts)
        )

    def _blocks(self, row: int) -> Iterator[Any]:
        # Whole chunks are read: a chunk is decompressed as a whole, and would be so again for every
        # block in it.
        chunks = getattr(self._data, "chunks", None)
        height = chunks[0] if chunks and isinstance(chunks[0], int) else 1
        step = max(1, self._rows // height) * height
        n_rows = int(self._data.shape[0])
        while row < n_rows:
            stop = min(row + step - row % step, n_rows)
            yield from split(self._cut(row, stop), self._rows)
            row = stop


def rows_within(pointers: NDArray[Any], batch_rows: int | None) -> int:
    """Return the number of rows in the next block of a CSR matrix, given its row pointers from that
    block on.
    """
    available = len(pointers) - 1
    if batch_rows is not None:
        return min(batch_rows, available)
    rows = int(np.searchsorted(pointers, int(pointers[0]) + BLOCK_STORED, side="right")) - 1
    # Rows without entries cost memory too.
    return min(max(1, rows), BLOCK_STORED, available)


def _mapping(array: NDArray[Any]) -> mmap.mmap | None:
    """Return the memory map of an array if its pages can be given back without loss, else None."""
    # Copy on write: the user's changes are in these pages only.
    if not (isinstance(array, np.memmap) and hasattr(mmap, "MADV_DONTNEED")) or array.mode == "c":
        return None
    base: Any = array
    while base is not None and not isinstance(base, mmap.mmap):
        base = getattr(base, "base", None)
    return base


def _spaced_rows(n_rows: int, row_bytes: int, most: int = _MAX_ROWS) -> list[int]:
    """Return evenly spaced rows, the first and the last among them: at most `most`, of a few
    megabytes in all.
    """
    count = min(n_rows, max(2, min(most, BLOCK_BYTES // max(1, row_bytes))))
    return sorted({int(place) for place in np.linspace(0, n_rows - 1, count)})


def _checksum(*parts: NDArray[Any]) -> str:
    value = 0
    for part in parts:
        value = zlib.crc32(np.ascontiguousarray(part).tobytes(), value)
    return f"{value:08x}"


class IterableSource(Source):
    """The rows of an iterable of two-dimensional arrays.

    Parameters
    ----------
    start : callable
        Starts an iteration. It is called at once, because the first block gives the width; the
        first pass continues that iteration, so that nothing is computed twice and nothing of a
        one-shot iterator is lost.
    name : str
        The name of the source in errors.
    batch_rows : int or None
        Largest number of rows in a block; larger ones are split, smaller ones are not joined.
    repeatable : bool
        Whether `start` may be called again.
    n_rows : int, optional
        Number of rows, if known.
    """

    identified = False
    _facts = ("stream",)

    def __init__(
        self,
        start: Callable[[], Iterable[Any]],
        name: str,
        batch_rows: int | None,
        *,
        repeatable: bool = True,
        n_rows: int | None = None,
    ) -> None:
        self.name = name
        self.repeatable = repeatable
        self.n_rows = n_rows
        self._start = start
        self._batch_rows = batch_rows
        self._iterator: Iterator[Any] = iter(start())
        self._first: Any = None
        for block in self._iterator:
            self._first = as_matrix(block, name, 0)
            if self._first.shape[0]:
                break
        if self._first is None or not self._first.shape[0]:
            raise self.fault("empty", what="no rows")
        self.n_features = int(self._first.shape[1])
        self._is_sparse = is_sparse(self._first)
        self._check_not_empty()
        self._rows_of_a_pass = n_rows

    def _blocks(self, row: int) -> Iterator[Any]:
        if self._first is not None:
            first = self._first
            self._first = None
            return self._after(self._pieces(first, self._iterator), row)
        if not self.repeatable:
            raise self.fault("already read")
        iterator = iter(self._start())
        if iterator is self._iterator:
            self.repeatable = False
            raise self.fault("already read")
        self._iterator = iterator
        return self._after(self._pieces(None, iterator), row)

    def _pieces(self, first: Any, iterator: Iterator[Any]) -> Iterator[Any]:
        row = 0
        for piece in _split_all(
            chain(() if first is None else (first,), iterator), self.name, 0, self._batch_rows
        ):
            if is_sparse(piece) != self._is_sparse:
                raise self.fault("mixed", row)
            row += piece.shape[0]
            yield piece
        if self._rows_of_a_pass not in (None, row):
            raise self.fault("changed length", row, announced=self._rows_of_a_pass)
        self._rows_of_a_pass = row


class AdaptedSource(Source):
    """The rows of a source of the user's own class, checked; or of one of ours, in smaller
    blocks.
    """

    def __init__(self, source: Any, batch_rows: int | None) -> None:
        if isinstance(source, Source):
            self.name = source.name
            self.path = source.path
        else:
            self.name = f"the {type(source).__name__}"
        self.n_features = check_count("n_features", source.n_features, 0)
        self.n_rows = getattr(source, "n_rows", None)
        self.columns = getattr(source, "columns", None)
        self.repeatable = getattr(source, "repeatable", not is_one_shot(source))
        self._check_not_empty()
        self._source = source
        self._batch_rows = batch_rows
        self._read = False
        self.identified = (
            source.identified if isinstance(source, Source) else self._own_fingerprint is not None
        )

    def fingerprint(self) -> str:
        """Return the fingerprint of the source itself, or else its kind and shape."""
        own = self._own_fingerprint
        return str(own()) if own is not None else self._describe(type(self._source).__name__)

    @property
    def _own_fingerprint(self) -> Callable[[], str] | None:
        own = getattr(self._source, "fingerprint", None)
        return own if callable(own) else None

    def _blocks(self, row: int) -> Iterator[Any]:
        if self._read and not self.repeatable:
            raise self.fault("already read")
        self._read = True
        seek = getattr(self._source, "iterate_from", None)
        if callable(seek):
            return _split_all(seek(row), self.name, row, self._batch_rows)
        return self._after(_split_all(self._source, self.name, 0, self._batch_rows), row)


def is_one_shot(data: Any) -> bool:
    """Tell whether an object is its own iterator and so can be read once only."""
    # Only an iterator has __next__; for anything else, iter() might already start something.
    return hasattr(data, "__next__") and iter(data) is data


def as_matrix(block: Any, name: str, row: int) -> Any:
    """Return a block of a user's object as a two-dimensional array or CSR matrix, without a
    copy.
    """
    where = f"the block at row {row:,} of {name}"
    if is_sparse(block):
        if block.format != "csr":
            raise source_error("not CSR", where, what=block.format.upper())
        return block
    if isinstance(block, np.ma.MaskedArray):
        raise source_error("masked", "the array")
    try:
        array = as_numpy(block)
    except ValueError as error:  # rows of different lengths
        raise source_error("type", where, what=type(block).__name__) from error
    if array.ndim != 2:
        raise source_error("shape", where, None, row, shape=array.shape)
    return array


def _split_all(blocks: Iterable[Any], name: str, row: int, batch_rows: int | None) -> Iterator[Any]:
    """Yield blocks of a user's object, of which the first begins at `row`, in pieces of at most
    `batch_rows` rows.
    """
    for given in blocks:
        block = as_matrix(given, name, row)
        row += block.shape[0]
        height = rows_per_block(block.shape[1], block.dtype.itemsize, batch_rows)
        if batch_rows is None and is_sparse(block):
            height = block.shape[0] or 1
        yield from split(block, height)
