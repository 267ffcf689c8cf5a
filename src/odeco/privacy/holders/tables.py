"""The holder of a private table whose columns have public levels: counts of two levels together,
with a proved bound on what one row adds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from odeco._util.types import FloatArray, IndexArray
from odeco.privacy.sums import Query, sum_over_blocks

#: Rows that are worked on at a time. Counts of so few rows are exact in single precision.
_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class Levels:
    """The layout of indicators and of tables of counts: one place for every level of every column,
    such as every answer to every question.

    Attributes
    ----------
    sizes : array
        The number of levels of each column.
    """

    sizes: IndexArray

    @property
    def n_columns(self) -> int:
        """The number of columns."""
        return self.sizes.size

    @property
    def offsets(self) -> IndexArray:
        """The place of the first level of each column."""
        ends: IndexArray = np.cumsum(self.sizes)
        return ends - self.sizes

    @property
    def owners(self) -> IndexArray:
        """The column of each level."""
        return np.repeat(np.arange(self.n_columns), self.sizes)

    @property
    def n_levels(self) -> int:
        """The number of levels of all columns together."""
        return int(self.sizes.sum())

    @property
    def n_free(self) -> int:
        """The number of probabilities that are free: those of a column sum to one."""
        return int(np.sum(self.sizes - 1))

    def indicators(self, codes: IndexArray, dtype: Any = np.uint8) -> Any:
        """Return a 1 for each level that a row has; a missing cell, coded below 0, has none."""
        marked = np.zeros((len(codes), self.n_levels), dtype=dtype)
        rows, columns = np.nonzero(codes >= 0)
        marked[rows, self.offsets[columns] + codes[rows, columns]] = 1
        return marked

    def sum_by_column(self, numbers: FloatArray) -> FloatArray:
        """Return the sum over the levels of each column; levels are along the first axis."""
        return np.add.reduceat(numbers, self.offsets, axis=0)

    def all_pairs(self) -> IndexArray:
        """Return all pairs of different columns, each once."""
        first, second = np.triu_indices(self.n_columns, 1)
        return np.column_stack([first, second])

    def places(self, pairs: IndexArray) -> tuple[IndexArray, IndexArray]:
        """Return where the tables of some pairs of columns are in a matrix of all levels, one table
        after the other. The table of a column with itself is on the diagonal: its counts.
        """
        rows = []
        columns = []
        for first, second in pairs.tolist():
            own = self.offsets[first] + np.arange(self.sizes[first])
            other = self.offsets[second] + np.arange(self.sizes[second])
            if first != second:
                own, other = np.repeat(own, other.size), np.tile(other, own.size)
            rows.append(own)
            columns.append(other)
        return np.concatenate(rows), np.concatenate(columns)


@dataclass(frozen=True, eq=False)
class HeldTable:
    """The codes of a private table, and the counts of its rows that may be released.

    Attributes
    ----------
    codes : array, rows x columns
        The level of each cell, counted from 0 within its column. A cell with any other code says
        nothing. In a blank row, no cell says anything.
    levels : Levels
        How many levels each column has; public.

    Notes
    -----
    Let x be the indicators of a row: one for each level of each column. At most one indicator of a
    column is 1. The row adds x_a x_b to the table of two columns, for all levels a of the one and b
    of the other. That is 1 where both cells have these levels and 0 elsewhere, so at most one 1. To
    the counts of a column it adds x_a, again at most one 1. A query of m tables and counts gets at
    most m ones from a row: a norm of at most √m, which a row without gaps has. All pairs of J
    columns are m = J (J − 1)/2.

    No number is negative, so two rows have an inner product of at least 0, and a row that is
    replaced moves the answer by at most √2 times the norm (`neighbour_factor`): √(2m), attained by
    two rows that differ in every column. A row that is blanked moves it by the norm itself.

    Which tables are asked for must be public, or follow from earlier releases.

    Every count is a whole number of at most n < 2⁵³ and is added up without any rounding error.
    """

    codes: IndexArray
    levels: Levels

    @property
    def n_records(self) -> int:
        """The number of rows, which is public."""
        return len(self.codes)

    def _indicators(self, codes: IndexArray) -> FloatArray:
        """Return the indicators of some rows, in single precision."""
        levels = self.levels
        known = (codes >= 0) & (codes < levels.sizes)
        marked: FloatArray = levels.indicators(np.where(known, codes, -1), np.float32)
        return marked

    def _blocks(self) -> list[IndexArray]:
        starts = range(0, self.n_records, _BLOCK)
        return [self.codes[start : start + _BLOCK] for start in starts]

    def tables(self, pairs: IndexArray) -> Query:
        """Return the query of the tables of some pairs of columns; that of a column with itself is
        the counts of its levels.
        """
        levels = self.levels
        rows, columns = levels.places(pairs)

        def work(codes: IndexArray) -> FloatArray:
            marked = self._indicators(codes)
            product = marked.T @ marked
            return product.astype(np.float64)

        def answer() -> FloatArray:
            return sum_over_blocks(work, self._blocks())[rows, columns]

        n_alone = int(np.sum(pairs[:, 0] == pairs[:, 1]))
        what = (
            f"{len(pairs) - n_alone} tables of two columns and {n_alone} of one, {rows.size} counts"
        )
        bound = math.sqrt(len(pairs))
        return Query(what, answer, rows.size, bound=bound, signed=False, exact=True)
