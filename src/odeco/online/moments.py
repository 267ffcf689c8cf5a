"""Moments of rows as oracles: of rows in memory, of a stream, where every query reads fresh rows,
and in parts.

`partial_sum` is the part of a query that one machine computes, for engines that odeco does not
know, such as Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from typing import Any, Literal, NamedTuple, final

import numpy as np

from odeco._util.arguments import MINIMUM_ORDER, check_count
from odeco._util.types import FloatArray
from odeco.errors import StreamEndedError
from odeco.io.coerce import as_source
from odeco.io.rows import as_rows, row_slice
from odeco.online.queries import Core, Entries, Images
from odeco.online.sums import Sum
from odeco.tensors.oracle import Oracle


@final
class SampleMoment(Oracle):
    """The moment (1/n) Σ x⊗ᵖ of n rows, which costs two matrix products an image and no memory for
    a tensor.

    Parameters
    ----------
    rows : array or CSR array, n x d
        float32 or float64. Not copied.
    order : int
        The order p of the moment.

    Notes
    -----
    A row that is not finite raises an error that names it, so its replies cannot be made private.
    Hold rows that are to be protected in `odeco.privacy.RecordLevel`.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.online.moments import SampleMoment
    >>> moment = SampleMoment(np.array([[1.0, 0.0], [0.0, 2.0]]))
    >>> moment.image([[1.0], [1.0]]).ravel()
    array([0.5, 4. ])
    """

    def __init__(self, rows: Any, order: int = 3) -> None:
        self.rows = as_rows(rows)
        self.n_rows, self.dimension = (int(size) for size in self.rows.shape)
        self.order = check_count("order", order, MINIMUM_ORDER)
        self.rounding = float(np.finfo(self.rows.dtype).eps)

    def _image(self, block: FloatArray) -> FloatArray:
        return Images(block, self.order).mean_over(self.rows)


@final
class StreamMoment(Oracle):
    """The moment E[x⊗ᵖ] of rows that arrive: every image reads the next `batch_size` rows and
    averages over them.

    Parameters
    ----------
    batches : iterable of arrays
        Rows, dense or CSR, in blocks of any size.
    dimension : int
        The number of columns.
    batch_size : int
        Rows to read for every query: the paper's n.
    order : int
        The order p of the moment.

    Notes
    -----
    Not exact: the same query gets another reply the next time, so the number of queries is fixed.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.online.moments import StreamMoment
    >>> moment = StreamMoment(iter([np.ones((3, 2)), 2 * np.ones((5, 2))]), 2, batch_size=4)
    >>> moment.image([[1.0], [0.0]]).ravel(), moment.image([[1.0], [0.0]]).ravel()
    (array([2.75, 2.75]), array([8., 8.]))
    """

    exact = False

    def __init__(
        self, batches: Iterable[Any], dimension: int, *, batch_size: int, order: int = 3
    ) -> None:
        self.dimension = check_count("dimension", dimension)
        self.batch_size = check_count("batch_size", batch_size)
        self.order = check_count("order", order, MINIMUM_ORDER)
        self.n_rows_read = 0
        self._batches: Iterator[Any] = iter(batches)
        self._left: Any = None

    def _image(self, block: FloatArray) -> FloatArray:
        query = Images(block, self.order)
        total = query.empty()
        while total.n_rows < self.batch_size:
            rows = self._next_rows(self.batch_size - total.n_rows)
            self.n_rows_read += int(rows.shape[0])
            total = total.with_rows(query, rows)
        return total.value(query)

    def _next_rows(self, most: int) -> Any:
        while self._left is None or self._left.shape[0] == 0:
            block = next(self._batches, None)
            if block is None:
                raise StreamEndedError(
                    f"A query needs {self.batch_size:,} rows. The stream ended after "
                    f"{self.n_rows_read:,} in all. Pass more rows, or a smaller batch_size."
                )
            self._left = as_rows(block, self.dimension)
        stop = min(most, self._left.shape[0])
        rows = row_slice(self._left, 0, stop)
        self._left = row_slice(self._left, stop, self._left.shape[0])
        return rows


class RowSum:
    """The sum over rows that one query needs; rows may arrive in pieces of any size.

    Parameters
    ----------
    question : {"image", "core", "entries"}
        ``"image"``: Σ x (xᵀu)ᵖ⁻¹ for every column u of `block`. ``"core"``: Σ (Qᵀx)⊗ᵖ for the basis
        Q = `block`. ``"entries"``: the distinct entries of Σ x ⊗ x ⊗ x (i ≥ j ≥ k in the order of
        i, then j, then k).
    block : array, d x L or d x m
        The candidates or the basis; d x 0 for entries.
    order : int
        The order p of the moment.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.online.moments import RowSum
    >>> total = RowSum("image", np.eye(2)[:, :1], order=3)
    >>> total.update([[1.0, 5.0]])
    >>> total.update([[2.0, 1.0], [0.0, 7.0]])
    >>> total.n_rows, total.total().ravel()
    (3, array([9., 9.]))
    """

    def __init__(
        self, question: Literal["image", "core", "entries"], block: FloatArray, order: int
    ) -> None:
        self._query = {"image": Images, "core": Core, "entries": Entries}[question](block, order)
        self._sum: Any = (
            self._query.empty()
        )  # is replaced as a whole, so that an update is all or nothing

    @property
    def n_rows(self) -> int:
        """Rows taken in so far."""
        return int(self._sum.n_rows)

    def update(self, rows: Any) -> None:
        """Add rows, a dense or CSR array. If one of them is not finite, none is used."""
        self._sum = self._sum.with_rows(self._query, as_rows(rows, self._query.dimension))

    def total(self) -> FloatArray:
        """Return the sum over all rows so far."""
        return np.asarray(self._sum.total(self._query))

    def mean(self) -> FloatArray:
        """Return the sum divided by the number of rows: the reply to the query."""
        return np.asarray(self._sum.value(self._query))

    def __add__(self, other: RowSum) -> RowSum:
        """Return the sum over the rows of both, for partitions that were read apart."""
        both = copy(self)
        both._sum = Sum(self.n_rows + other.n_rows, (self.total() + other.total(),), ())
        return both


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
    """Return the sum over some rows that a query needs; sums over all rows, added up, give T(I, u,
    …, u).

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
    Within a call rows are added in the fixed tree of `odeco.online.tree`. Which partial sums are
    added, and in which order, is the engine's choice: results are bit-identical if both stay the
    same.

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
            "`query` must be a finite d x L array of vectors as columns. Got shape "
            f"{vectors.shape}. Pass what `_image` got."
        )
    images = Images(vectors, order)
    total: Any = images.empty()
    for rows in as_source(block, n_features=vectors.shape[0]):
        total = total.with_rows(images, rows)
    return PartialSum(total.n_rows, total.total(images))
