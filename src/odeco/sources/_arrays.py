"""Rows in memory, or in an array-like object that lies elsewhere and can be sliced."""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odeco.rows import row_slice
from odeco.sources import _errors
from odeco.sources._cutting import split
from odeco.sources._iterables import as_matrix
from odeco.sources._source import (
    BLOCK_BYTES,
    BLOCK_STORED,
    Source,
    check_not_empty,
    describe,
    rows_per_block,
    working_type,
)

#: Pages of a mapped file that may stay in memory before they are given back.
RESIDENT_BYTES = 4 * BLOCK_BYTES


class ArraySource(Source):
    """The rows of a NumPy array; of a memory-mapped one, little more than a block is in memory at a time."""

    name = "the array"

    def __init__(self, array: NDArray[Any], batch_rows: int | None) -> None:
        if array.ndim != 2:
            raise _errors.bad_shape(self.name, None, array.shape)
        working_type(array.dtype, self.name, None)
        self.n_rows, self.n_features = array.shape
        check_not_empty(self)
        # memmap's own slicing is slow, and a plain array looks at the same pages.
        self._array = np.asarray(array)
        self._map = _mapping(array)
        self._rows = rows_per_block(self.n_features, array.itemsize, batch_rows)

    def fingerprint(self) -> str:
        """Return kind, shape, number type, and a checksum of the first and last row."""
        return describe(self, "array", self._array.dtype, _checksum(self._array[0], self._array[-1]))

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

    def __init__(self, matrix: Any, batch_rows: int | None) -> None:
        if matrix.format != "csr":
            raise _errors.not_csr("the sparse matrix", None, matrix.format.upper())
        if matrix.ndim != 2:
            raise _errors.bad_shape(self.name, None, matrix.shape)
        working_type(matrix.dtype, self.name, None)
        self.n_rows, self.n_features = matrix.shape
        check_not_empty(self)
        self._matrix, self._batch_rows = matrix, batch_rows

    def fingerprint(self) -> str:
        """Return kind, shape, number type, number of stored numbers, and a checksum of the first and last row."""
        last = row_slice(self._matrix, self._matrix.shape[0] - 1, self._matrix.shape[0])
        first = row_slice(self._matrix, 0, 1)
        checksum = _checksum(first.indices, first.data, last.indices, last.data)
        return describe(self, "csr", self._matrix.dtype, self._matrix.indptr[-1], checksum)

    def _blocks(self, row: int) -> Iterator[Any]:
        n_rows = self._matrix.shape[0]
        while row < n_rows:
            stop = row + rows_within(self._matrix.indptr[row:], self._batch_rows)
            falling = np.flatnonzero(np.diff(self._matrix.indptr[row : stop + 1]) < 0)
            if falling.size:
                raise _errors.bad_pointers(self.name, None, row + int(falling[0]))
            yield row_slice(self._matrix, row, stop)
            row = stop


class SlicedSource(Source):
    """The rows of anything two-dimensional that answers ``data[start:stop]``: h5py, zarr, torch, … and of pandas."""

    def __init__(self, data: Any, batch_rows: int | None) -> None:
        self.name = f"the {type(data).__name__}"
        self.n_rows, self.n_features = (int(size) for size in data.shape)
        check_not_empty(self)
        self._data = data
        self._sliced = getattr(data, "iloc", data)  # what pandas slices by position
        itemsize = getattr(getattr(data, "dtype", None), "itemsize", 8)
        self._rows = rows_per_block(self.n_features, itemsize, batch_rows)

    def fingerprint(self) -> str:
        """Return kind, shape and number type."""
        return describe(self, type(self._data).__name__, getattr(self._data, "dtype", "?"))

    def _blocks(self, row: int) -> Iterator[Any]:
        # A chunk in the file is decompressed as a whole, so it is read as a whole: else once for every block in it.
        chunks = getattr(self._data, "chunks", None)
        height = chunks[0] if chunks and isinstance(chunks[0], int) else 1
        step = max(1, self._rows // height) * height
        n_rows = int(self._data.shape[0])
        while row < n_rows:
            stop = min(row + step - row % step, n_rows)
            yield from split(as_matrix(self._sliced[row:stop], self.name, row), self._rows)
            row = stop


def rows_within(pointers: NDArray[Any], batch_rows: int | None) -> int:
    """Return how many rows of a CSR matrix make a block, given its row pointers from the block's start on."""
    available = len(pointers) - 1
    if batch_rows is not None:
        return min(batch_rows, available)
    rows = int(np.searchsorted(pointers, int(pointers[0]) + BLOCK_STORED, side="right")) - 1
    # Rows without entries cost memory too.
    return min(max(1, rows), BLOCK_STORED, available)


def _mapping(array: NDArray[Any]) -> mmap.mmap | None:
    """Return the mapping under an array, if its pages may be given back at any time without loss."""
    if not (isinstance(array, np.memmap) and hasattr(mmap, "MADV_DONTNEED")):
        return None
    if array.mode == "c":  # private pages: the user's changes are nowhere else
        return None
    base: Any = array
    while base is not None and not isinstance(base, mmap.mmap):
        base = getattr(base, "base", None)
    return base


def _checksum(*parts: NDArray[Any]) -> str:
    value = 0
    for part in parts:
        value = zlib.crc32(np.ascontiguousarray(part).tobytes(), value)
    return f"{value:08x}"
