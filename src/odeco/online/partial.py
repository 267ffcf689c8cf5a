"""`partial_sum`: the part of a query that one machine computes, for engines that odeco does not know, such as Spark."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from odeco._util.arguments import check_count
from odeco._util.types import FloatArray
from odeco.io.coerce import as_source
from odeco.online.sums import RowSum


class PartialSum(NamedTuple):
    """A sum over rows.

    Attributes
    ----------
    n_rows : int
        The number of rows.
    total : array, d x L
        Σ x (xᵀu)ᵖ⁻¹ over rows x, for every column u of the query.
    """

    n_rows: int
    total: FloatArray

    def __add__(self, other: Any) -> PartialSum:
        """Return the sum over the rows of both."""
        return PartialSum(self.n_rows + other.n_rows, self.total + other.total)

    @property
    def mean(self) -> FloatArray:
        """The image of the query: the reply of the moment of all rows."""
        return self.total / self.n_rows


def partial_sum(block: Any, query: Any, *, order: int = 3) -> PartialSum:
    """Return the sum over some rows that a query needs; sums over all rows, added up, give T(I, u, …, u).

    Parameters
    ----------
    block : array, CSR matrix, Arrow table or iterable of these
        Rows; see `odeco.io.as_source`.
    query : array, d x L
        The vectors u, as columns: what an oracle gets in `_image`.
    order : int
        The order p of the moment.

    Returns
    -------
    PartialSum
        The number of rows, and Σ x (xᵀu)ᵖ⁻¹.

    Notes
    -----
    Within a call rows are added in the fixed tree of `odeco.online.sums`. Which partial sums are added, and in which
    order, is the engine's choice: results are bit-identical if both stay the same.

    Examples
    --------
    >>> import numpy as np
    >>> import odeco
    >>> rows, query = np.array([[1.0, 5.0], [2.0, 1.0]]), np.eye(2)[:, :1]
    >>> together = odeco.partial_sum(rows[:1], query) + odeco.partial_sum(rows[1:], query)
    >>> together.n_rows, together.total.ravel()
    (2, array([9., 9.]))
    """
    order = check_count("order", order, 2)
    vectors = np.asarray(query, np.float64)
    if vectors.ndim != 2 or not np.isfinite(vectors).all():
        raise ValueError(
            f"`query` must be a finite d x L array of vectors as columns. Got shape {vectors.shape}. Pass what "
            "`_image` got."
        )
    total = RowSum("image", vectors, order)
    for rows in as_source(block, n_features=vectors.shape[0]):
        total.update(rows)
    return PartialSum(total.n_rows, total.total())
