"""The rows that a stream keeps and searches, dense or CSR, and how many: a quarter of the memory
allowed holds them.

In passes, the rows that are kept are evenly spaced over a pass. The numbers 0, 1, 2, … with their
bits read backwards are spread evenly over [0, 2³²) (van der Corput's sequence), so the rows below
any threshold are spread evenly over a pass of unknown length. A smaller threshold selects a part of
what a larger one does: when too many rows are kept, the threshold is lowered, and rows above it are
dropped. Which are kept in the end depends on the number of rows only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from odeco._util.state import State, array_field, require
from odeco._util.types import FloatArray, IndexArray
from odeco.io.rows import as_rows, is_sparse, join_rows, row_slice, stored_numbers
from odeco.online.tree import ALL_ROWS

#: The largest number of rows that are searched: beyond it the unfolding, of m² d operations, takes
#: too long.
_MOST_ROWS = 2**15

#: Rows of a chunk.
_CHUNK_ROWS = 2048


def block_share(memory: int) -> int:
    """Return the bytes that a block may take: a quarter of the memory, for a search needs as much
    again twice.
    """
    return memory // 4


def most_block_rows(dimension: int, row_bytes: float, memory: int) -> int:
    """Return how many rows of a size a block may have.

    A search forms a d x d matrix of numbers of 8 bytes, or, where that is too large, an m x m
    matrix of 4 bytes.
    """
    share = block_share(memory)
    most = min(_MOST_ROWS, int(share / row_bytes))
    if 8 * dimension**2 > share:
        most = min(most, math.isqrt(share // 4))
    return max(1, most)


def row_chunks(rows: Any) -> Iterator[Any]:
    """Yield rows as arrays or CSR arrays of at most `_CHUNK_ROWS` rows."""
    n_rows = int(rows.shape[0])
    for start in range(0, n_rows, _CHUNK_ROWS):
        yield row_slice(rows, start, min(start + _CHUNK_ROWS, n_rows))


@dataclass(frozen=True, eq=False)
class RowBlock(State):
    """Rows that are kept, dense or CSR.

    Attributes
    ----------
    dense : array, m x d, or None
        Dense rows.
    data, indices, indptr : arrays or None
        CSR rows.
    """

    dimension: int = array_field(kind="i", low=1)
    dense: FloatArray | None = array_field(None, "d", kind="rows", default=None)
    data: FloatArray | None = array_field(None, kind="rows", default=None)
    indices: IndexArray | None = array_field(None, kind="i", low=0, default=None)
    indptr: IndexArray | None = array_field(None, kind="i", low=0, default=None)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        parts_of_csr = [part is not None for part in (self.data, self.indices, self.indptr)]
        one_kind = all(parts_of_csr) if self.dense is None else not any(parts_of_csr)
        require(one_kind, "rows must be dense or CSR")
        rows = self.rows
        require(rows.shape[1] == self.dimension, "rows must be as wide as all")
        require(bool(np.all(np.isfinite(stored_numbers(rows)))), "rows must be finite")

    @classmethod
    def of(cls, rows: Any) -> RowBlock:
        """Return rows as a block."""
        if is_sparse(rows):
            block = cls(int(rows.shape[1]), None, rows.data, rows.indices, rows.indptr)
        else:
            block = cls(int(rows.shape[1]), rows)
        vars(block)["rows"] = rows  # whose structure is not checked again
        return block

    def grown(self, rows: Any) -> RowBlock:
        """Return the block with rows that follow."""
        return RowBlock.of(join_rows([self.rows, rows]))

    @cached_property
    def rows(self) -> Any:
        """The rows as an array or a CSR array."""
        if self.dense is not None:
            return self.dense
        stored: Any = (self.data, self.indices, self.indptr)
        return as_rows(
            sparse.csr_array(stored, shape=(self.n_rows, self.dimension)), self.dimension
        )

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        if self.dense is not None:
            return len(self.dense)
        if self.indptr is None:
            return 0
        return len(self.indptr) - 1

    @property
    def n_bytes(self) -> int:
        """The memory that the rows take."""
        parts = (self.dense, self.data, self.indices, self.indptr)
        return sum(part.nbytes for part in parts if part is not None)

    @property
    def row_bytes(self) -> float:
        """The mean size of a row."""
        return self.n_bytes / max(1, self.n_rows)


# Which rows are kept ------------------------------------------------------------------------------


class RowLimit(NamedTuple):
    """The most that is kept of a pass.

    Attributes
    ----------
    n_rows, n_bytes : int
        The most rows, and bytes of rows.
    """

    n_rows: int
    n_bytes: int

    def allows(self, blocks: tuple[RowBlock, ...]) -> bool:
        """Tell whether rows are within the limit; a single row always is."""
        n_rows = sum(block.n_rows for block in blocks)
        n_bytes = sum(block.n_bytes for block in blocks)
        return n_rows <= 1 or (n_rows <= self.n_rows and n_bytes <= self.n_bytes)


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
        low = np.uint64(shift)
        high = np.uint64(mask)
        reversed_bits = ((reversed_bits >> low) & high) | ((reversed_bits & high) << low)
    chosen: NDArray[np.bool_] = reversed_bits < threshold
    return chosen


def lowered(threshold: int) -> int:
    """Return the next threshold: 7/8, 6/8, 5/8 and 4/8 of all rows, then 7/16, …."""
    return max(1, threshold - (1 << max(0, (threshold - 1).bit_length() - 3)))


def first_threshold(n_rows: int, most: int) -> int:
    """Return a threshold that selects at least what is kept of `n_rows` rows in the end, and little
    more.
    """
    threshold = ALL_ROWS
    while n_rows * threshold / ALL_ROWS - 64 > most:
        threshold = lowered(threshold)
    return threshold
