"""The rows that a stream keeps and searches: dense, CSR, or quantized to 16 bits per number.

Rows are kept as they are while a quarter of the memory allowed holds them. If they do not show all components, the rows
are noise for the most part, and rounding them to 1/32,767 of the largest number of each row changes nothing that can be
learnt from them: quantized rows take a quarter of the memory, and are expanded a chunk at a time.

In passes, the rows that are kept are evenly spaced over a pass. The numbers 0, 1, 2, … with their bits read backwards
are spread evenly over [0, 2³²) (van der Corput's sequence), so the rows below any threshold are spread evenly over a
pass of unknown length. A smaller threshold selects a part of what a larger one does: when too many rows are kept, the
threshold is lowered, and rows above it are dropped. Which are kept in the end depends on the number of rows only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from odeco._util.arguments import largest, times_power_of_two
from odeco._util.state import State, array_field, require
from odeco._util.types import FloatArray, IndexArray
from odeco.io.rows import as_rows, is_sparse, join_rows, row_slice, stored_numbers
from odeco.online.tree import ALL_ROWS, in_unit

#: The largest number of rows that are kept as they are: beyond it the unfolding, of m² d operations, takes too long.
_MOST_ROWS = 2**15

#: Rows of a chunk.
_CHUNK_ROWS = 2048

#: The largest code of a number.
LARGEST_CODE = 2**15 - 1


def block_share(memory: int) -> int:
    """Return the bytes that a block may take: a quarter of the memory, for a search needs as much again twice."""
    return memory // 4


def most_block_rows(dimension: int, row_bytes: float, memory: int) -> int:
    """Return how many rows of a size a block may have.

    A search forms a d x d matrix of numbers of 8 bytes, or, where that is too large, an m x m matrix of 4 bytes.
    """
    share = block_share(memory)
    most = min(_MOST_ROWS, int(share / row_bytes))
    if 8 * dimension**2 > share:
        most = min(most, math.isqrt(share // 4))
    return max(1, most)


def most_quantized_rows(dimension: int, memory: int) -> int:
    """Return how many quantized rows a block may have; 0 if d x d matrices take too much memory for searching them.

    While they are joined with more rows, three such blocks may exist: the last, the next and that of a snapshot.
    """
    share = block_share(memory)
    return share // (2 * dimension) if 32 * dimension**2 <= share else 0


@dataclass(frozen=True, eq=False)
class QuantizedRows:
    """Dense rows as whole numbers of 16 bits times one scale per row; slices and masks select rows without a copy."""

    codes: NDArray[np.int16]
    scales: FloatArray
    mask: NDArray[np.bool_] | None = None

    @classmethod
    def of(cls, rows: Any) -> QuantizedRows:
        """Return rows, which are rounded unless they are quantized already."""
        if isinstance(rows, QuantizedRows):
            return rows
        codes, scales = np.empty(rows.shape, np.int16), np.empty(rows.shape[0], rows.dtype)
        for start in range(0, rows.shape[0], _CHUNK_ROWS):
            part = slice(start, start + _CHUNK_ROWS)
            scales[part] = np.abs(rows[part]).max(axis=1, initial=0.0) / LARGEST_CODE
            codes[part] = np.rint(rows[part] / np.where(scales[part] > 0, scales[part], 1.0)[:, None])
        return cls(codes, scales)

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and of columns."""
        n_rows = self.codes.shape[0] if self.mask is None else int(self.mask.sum())
        return n_rows, self.codes.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the rows before they were rounded."""
        return self.scales.dtype

    def __getitem__(self, which: Any) -> QuantizedRows:
        if not isinstance(which, slice):
            return QuantizedRows(self.codes, self.scales, which)
        return QuantizedRows(self.codes[which], self.scales[which], None if self.mask is None else self.mask[which])

    def chunks(self) -> Iterator[NDArray[np.float32]]:
        """Yield the rows as arrays in single precision."""
        for start in range(0, len(self.codes), _CHUNK_ROWS):
            part = self[start : start + _CHUNK_ROWS]
            which: Any = slice(None) if part.mask is None else part.mask
            yield part.codes[which].astype(np.float32) * part.scales[which, None].astype(np.float32)


def join_kept(pieces: list[Any]) -> Any:
    """Return pieces of one kind as one; those that follow quantized rows are quantized."""
    if len(pieces) == 1 or not isinstance(pieces[0], QuantizedRows):
        return join_rows(pieces)
    rounded = [QuantizedRows.of(piece) for piece in pieces]
    codes, scales = ([getattr(piece, name) for piece in rounded] for name in ("codes", "scales"))
    return QuantizedRows(np.concatenate(codes), np.concatenate(scales))


def largest_number(rows: Any) -> float:
    """Return the largest absolute value in rows of any kind."""
    return LARGEST_CODE * largest(rows.scales) if isinstance(rows, QuantizedRows) else largest(stored_numbers(rows))


def over_power_of_two(rows: Any, exponent: int) -> Any:
    """Return rows of any kind over 2^exponent."""
    if isinstance(rows, QuantizedRows):
        return replace(rows, scales=times_power_of_two(rows.scales, -exponent))
    return in_unit(rows, exponent)


def row_chunks(rows: Any) -> Iterator[Any]:
    """Yield rows of any kind as arrays or CSR arrays of at most `_CHUNK_ROWS` rows."""
    if isinstance(rows, QuantizedRows):
        yield from rows.chunks()
        return
    n_rows = int(rows.shape[0])
    for start in range(0, n_rows, _CHUNK_ROWS):
        yield row_slice(rows, start, min(start + _CHUNK_ROWS, n_rows))


@dataclass(frozen=True, eq=False)
class RowBlock(State):
    """Rows that are kept: dense, CSR or quantized.

    Attributes
    ----------
    dense : array, m x d, or None
        Dense rows.
    data, indices, indptr : arrays or None
        CSR rows.
    codes, scales : arrays or None
        Quantized rows.
    """

    dimension: int = array_field(kind="i", low=1)
    dense: FloatArray | None = array_field(None, "d", kind="rows", default=None)
    data: FloatArray | None = array_field(None, kind="rows", default=None)
    indices: IndexArray | None = array_field(None, kind="i", low=0, default=None)
    indptr: IndexArray | None = array_field(None, kind="i", low=0, default=None)
    codes: NDArray[np.int16] | None = array_field(None, "d", kind="i", default=None)
    scales: FloatArray | None = array_field(None, kind="rows", low=0, high=1e300, default=None)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        kinds = ((self.dense,), (self.data, self.indices, self.indptr), (self.codes, self.scales))
        given = [[part is not None for part in kind] for kind in kinds]
        require(sum(map(any, given)) == sum(map(all, given)) == 1, "rows must be dense, CSR or quantized")
        if self.codes is not None and self.scales is not None:
            require(len(self.codes) == len(self.scales), "quantized rows must have one scale each")
        rows = self.rows
        require(rows.shape[1] == self.dimension, "rows must be as wide as all")
        if not isinstance(rows, QuantizedRows):
            require(bool(np.all(np.isfinite(rows.data if is_sparse(rows) else rows))), "rows must be finite")

    @classmethod
    def of(cls, rows: Any) -> RowBlock:
        """Return rows as a block."""
        if isinstance(rows, QuantizedRows):
            return cls(rows.shape[1], codes=rows.codes, scales=rows.scales)
        if is_sparse(rows):
            return cls(int(rows.shape[1]), None, rows.data, rows.indices, rows.indptr)
        return cls(int(rows.shape[1]), rows)

    def grown(self, rows: Any) -> RowBlock:
        """Return the block with rows that follow."""
        return RowBlock.of(join_kept([self.rows, rows]))

    @property
    def rows(self) -> Any:
        """The rows as an array, a CSR array or `QuantizedRows`."""
        if self.codes is not None and self.scales is not None:
            return QuantizedRows(self.codes, self.scales)
        if self.dense is not None:
            return self.dense
        stored: Any = (self.data, self.indices, self.indptr)
        return as_rows(sparse.csr_array(stored, shape=(self.n_rows, self.dimension)), self.dimension)

    @property
    def quantized(self) -> bool:
        """Whether the rows are quantized."""
        return self.codes is not None

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        for part in (self.dense, self.codes):
            if part is not None:
                return len(part)
        return len(self.indptr if self.indptr is not None else ()) - 1

    @property
    def n_bytes(self) -> int:
        """The memory that the rows take."""
        parts = (self.dense, self.data, self.indices, self.indptr, self.codes, self.scales)
        return sum(part.nbytes for part in parts if part is not None)

    @property
    def row_bytes(self) -> float:
        """The mean size of a row."""
        return self.n_bytes / max(1, self.n_rows)


# Which rows are kept --------------------------------------------------------------------------------------------------


class RowLimit(NamedTuple):
    """The most that is kept of a pass.

    Attributes
    ----------
    n_rows, n_bytes : int
        The most rows, and bytes of rows, that are kept as they are.
    n_quantized : int
        The most rows if dense rows beyond that are quantized; 0 if they are not.
    """

    n_rows: int
    n_bytes: int
    n_quantized: int = 0

    def quantizes(self, n_rows: int, rows: Any) -> bool:
        """Tell whether of `n_rows` rows of a kind more can be kept if they are quantized."""
        if is_sparse(rows) or not self.n_quantized:
            return False
        row_bytes: int = rows.dtype.itemsize * rows.shape[1]
        return n_rows > min(self.n_rows, self.n_bytes // row_bytes)

    def most(self, *, sparse: bool) -> int:
        """Return the most rows of a kind that may be kept."""
        return self.n_rows if sparse else max(self.n_rows, self.n_quantized)

    def allows(self, pieces: tuple[Any, ...]) -> bool:
        """Tell whether pieces of rows, all of one kind, are within the limit; a single row always is."""
        blocks = [RowBlock.of(piece) for piece in pieces]
        n_rows = sum(block.n_rows for block in blocks)
        if n_rows <= 1 or blocks[0].quantized:
            return n_rows <= max(1, self.n_quantized)
        return n_rows <= self.n_rows and sum(block.n_bytes for block in blocks) <= self.n_bytes


_SWAPS = ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF), (16, 0x0000FFFF))


def selected(start: int, stop: int, threshold: int) -> IndexArray:
    """Return the numbers of the rows from `start` to `stop` that a threshold selects."""
    places = np.arange(start, stop, dtype=np.int64)
    return places[below(places, threshold)]


def below(places: IndexArray, threshold: int) -> NDArray[np.bool_]:
    """Tell which of these rows a threshold selects."""
    if threshold >= ALL_ROWS:
        return np.ones(len(places), dtype=np.bool_)
    reversed_bits = (places & 0xFFFFFFFF).astype(np.uint64)
    for shift, mask in _SWAPS:
        low, high = np.uint64(shift), np.uint64(mask)
        reversed_bits = ((reversed_bits >> low) & high) | ((reversed_bits & high) << low)
    chosen: NDArray[np.bool_] = reversed_bits < threshold
    return chosen


def lowered(threshold: int) -> int:
    """Return the next threshold: 7/8, 6/8, 5/8 and 4/8 of all rows, then 7/16, …."""
    return max(1, threshold - (1 << max(0, (threshold - 1).bit_length() - 3)))


def first_threshold(n_rows: int, most: int) -> int:
    """Return a threshold that selects at least what is kept of `n_rows` rows in the end, and little more."""
    threshold = ALL_ROWS
    while n_rows * threshold / ALL_ROWS - 64 > most:
        threshold = lowered(threshold)
    return threshold
