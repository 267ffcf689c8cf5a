"""Rows in memory, or in an array-like object that lies elsewhere and can be sliced."""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odeco.io import errors as _errors
from odeco.io.columns import names_of
from odeco.io.iterables import as_matrix
from odeco.io.rows import row_slice
from odeco.io.source import (
    BLOCK_BYTES,
    BLOCK_STORED,
    Source,
    Stamp,
    check_not_empty,
    describe,
    rows_per_block,
    split,
    working_type,
)

#: Pages of a mapped file that may stay in memory before they are given back.
RESIDENT_BYTES = 4 * BLOCK_BYTES

#: So many rows go into a fingerprint where a row is quickly read, and where it may have to be fetched and unpacked.
_MOST_ROWS, _FEW_ROWS = 1024, 16


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
        if isinstance(array, np.memmap) and array.mode == "r" and array.filename is not None:
            path = Path(array.filename)
            if path.exists():  # an array may outlive the name of its file
                self.path, self.stamp = path, Stamp.of(path)
        self._rows = rows_per_block(self.n_features, array.itemsize, batch_rows)

    def fingerprint(self) -> str:
        """Return kind, shape, number type, and a checksum of evenly spaced rows."""
        rows = _spaced_rows(len(self._array), self._array[0].nbytes)
        return describe(self, "array", self._array.dtype, _checksum(*(self._array[row] for row in rows)))

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
            raise _errors.not_csr("the sparse matrix", None, matrix.format.upper())
        if matrix.ndim != 2:
            raise _errors.bad_shape(self.name, None, matrix.shape)
        working_type(matrix.dtype, self.name, None)
        self.n_rows, self.n_features = matrix.shape
        check_not_empty(self)
        if matrix.indptr[0] != 0:
            raise _errors.bad_pointers(self.name, None, 0)
        self._matrix, self._batch_rows = matrix, batch_rows

    def fingerprint(self) -> str:
        """Return kind, shape, number type, number of stored numbers, and a checksum of evenly spaced rows."""
        matrix, parts = self._matrix, []
        for row in _spaced_rows(matrix.shape[0], matrix.data.nbytes // matrix.shape[0]):
            places = slice(*matrix.indptr[row : row + 2])
            parts += [matrix.indices[places], matrix.data[places]]
        checksum = _checksum(*parts)
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
        if hasattr(data, "iloc"):
            self.columns = names_of(data)
        itemsize = getattr(getattr(data, "dtype", None), "itemsize", 8)
        self._rows = rows_per_block(self.n_features, itemsize, batch_rows)

    def fingerprint(self) -> str:
        """Return kind, shape, number type, and a checksum of a few rows: each may lie in a chunk of its own."""
        rows = _spaced_rows(self.n_rows or 0, 1, most=_FEW_ROWS)
        parts = [as_matrix(self._sliced[row : row + 1], self.name, row) for row in rows]
        return describe(self, type(self._data).__name__, getattr(self._data, "dtype", "?"), _checksum(*parts))

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


def _spaced_rows(n_rows: int, row_bytes: int, most: int = _MOST_ROWS) -> list[int]:
    """Return the first, the last and evenly spaced rows between them: up to `most`, and of some megabytes together."""
    count = min(n_rows, max(2, min(most, BLOCK_BYTES // max(1, row_bytes))))
    return sorted({int(place) for place in np.linspace(0, n_rows - 1, count)})


def _checksum(*parts: NDArray[Any]) -> str:
    value = 0
    for part in parts:
        value = zlib.crc32(np.ascontiguousarray(part).tobytes(), value)
    return f"{value:08x}"
