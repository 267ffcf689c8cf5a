"""What a solver asks of the rows of a batch: a sum over them, or the rows themselves."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from odeco._util.types import DataArray, FloatArray
from odeco.online import tree
from odeco.online.block import RowLimit
from odeco.online.fourth_moment import (
    N_GROUPS,
    n_entries,
    n_pairs,
    sum_entries,
    sum_products,
    width_of,
)
from odeco.online.sums import Kept, Sum


@dataclass(frozen=True, eq=False)
class Query:
    """A sum over the rows of a batch.

    Attributes
    ----------
    block : array, d x L
        The vectors that rows are multiplied with.
    order : int
        The order p of the moment.
    sizes : iterable of int
        The numbers of rows of this batch, and of those that follow with the same query. Empty if
        the batch is the rest of the pass.
    limit : RowLimit or None
        Where the rows themselves are asked for, the most that are kept; None for all.
    """

    block: FloatArray
    order: int
    sizes: Iterable[int] = ()
    limit: RowLimit | None = None

    #: Whether rows are asked for, and not a sum over them.
    keeps_rows: ClassVar[bool] = False
    #: Whether the image of each column of the block is added up by itself.
    by_column: ClassVar[bool] = False
    #: Whether the sum is multiplied by 2ᵖ if rows are by 2; not if it has lower moments.
    homogeneous: ClassVar[bool] = True

    def __post_init__(self) -> None:
        # The bits of products, and of sensitivities, depend on the layout of the block.
        object.__setattr__(self, "block", np.ascontiguousarray(self.block))

    @property
    def dimension(self) -> int:
        """The number of columns of the rows."""
        return int(self.block.shape[0])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the sum."""
        return tuple(self.block.shape)

    @cached_property
    def _single(self) -> DataArray:
        return self.block.astype(np.float32)

    def block_of(self, dtype: np.dtype[Any]) -> DataArray:
        """Return the block in the precision of rows."""
        if dtype == np.float32:
            return self._single
        return self.block

    @property
    def in_words(self) -> str:
        """What is asked for, for the reader of a ledger."""
        raise NotImplementedError

    def empty(self) -> Sum | Kept:
        """Return the sum over no rows."""
        return Sum(0, (), ())

    def over(self, chunk: Any) -> DataArray:
        """Return the sum over the rows of a chunk."""
        raise NotImplementedError

    def mean_over(self, rows: Any) -> FloatArray:
        """Return the mean over rows, dense or CSR: the reply to this query."""
        return self.empty().with_rows(self, rows).value(self)


class Images(Query):
    """The sum of x (xᵀu)ᵖ⁻¹ for every column u of the block."""

    by_column = True

    @property
    def in_words(self) -> str:
        """What is asked for, for the reader of a ledger."""
        return f"image of {self.block.shape[1]} candidates together"

    def over(self, chunk: Any) -> DataArray:
        """Return Xᵀ (X U)ᵖ⁻¹ for the rows X of a chunk."""
        return tree.image(chunk, self.block_of(chunk.dtype), self.order)


class Core(Query):
    """The sum of (Qᵀx) ⊗ … ⊗ (Qᵀx) for the basis Q, the block."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the sum."""
        return (self.block.shape[1],) * self.order

    @property
    def in_words(self) -> str:
        """What is asked for, for the reader of a ledger."""
        return f"core of {self.block.shape[1]}^{self.order} numbers"

    def over(self, chunk: Any) -> DataArray:
        """Return the sum over the rows of a chunk."""
        return tree.core(chunk, self.block_of(chunk.dtype), self.order)


class Entries(Query):
    """The distinct entries of the sum of x ⊗ x ⊗ x, i ≥ j ≥ k in the order of i, then j, then k;
    without vectors.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the sum."""
        return (math.comb(self.dimension + 2, 3),)

    @property
    def in_words(self) -> str:
        """What is asked for, for the reader of a ledger."""
        return f"all {math.prod(self.shape)} distinct entries"

    def over(self, chunk: Any) -> DataArray:
        """Return the sum over the rows of a chunk."""
        return tree.entries(chunk)


class FourthEntries(Query):
    """All moments up to the fourth, in the frame that is the block, over groups of rows."""

    homogeneous = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the sum."""
        return (N_GROUPS, n_entries(self.dimension))

    def over(self, chunk: Any) -> DataArray:
        """Return the sums over the groups of a chunk."""
        return sum_entries(chunk, self.block)


class FourthProducts(Query):
    """Products of these moments with a matrix; the block has the frame and the matrix."""

    homogeneous = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the sum."""
        return (N_GROUPS, n_pairs(self.dimension), width_of(self.block) + self.dimension + 1)

    def over(self, chunk: Any) -> DataArray:
        """Return the sums over the groups of a chunk."""
        return sum_products(chunk, self.block)


class Rows(Query):
    """The rows themselves: all, or within the limit rows that are evenly spaced over the batch."""

    keeps_rows = True

    def empty(self) -> Kept:
        """Return no rows."""
        return Kept(0, ())


def no_vectors(dimension: int) -> FloatArray:
    """Return the block of a query that has no vectors."""
    return np.empty((dimension, 0))
