"""The moment of rows held in memory."""

from __future__ import annotations

from typing import Any, Literal, final

import numpy as np

from odeco._arguments import MINIMUM_ORDER, check_choice, check_count, check_norm_bound
from odeco._types import FloatArray
from odeco.oracle import SensitiveOracle
from odeco.privacy import _sensitivity
from odeco.rows import RowSum, as_rows

Neighbours = Literal["add or remove", "replace"]


@final
class SampleMoment(SensitiveOracle):
    """The moment (1/n) Σ x⊗ᵖ of n rows, which costs two matrix products an image and no memory for a tensor.

    Parameters
    ----------
    rows : array or CSR array, n x d
        float32 or float64. Not copied.
    order : int
        The order p of the moment.
    norm_bound : float, optional
        The largest Euclidean norm of a row that counts in full: longer rows are scaled down to it. Without it the
        oracle answers, but declares no sensitivity.
    neighbour_relation : {"replace", "add or remove"}
        What a neighbour may do to one row; the number n of rows is public either way.

    Notes
    -----
    Neighbours differ in one row x of norm at most B. T(I, u, …, u) is a mean over rows, so adding or removing x moves
    the answers to a block by the norm of the d x L matrix x (xᵀU)ᵖ⁻¹ over n; see `record_image` of privacy for
    its largest value.

    What is declared holds for exact arithmetic, and a row that is not finite raises an error that names it. So the
    oracle is not `silent`, and `odeco.privacy.PrivateOracle` refuses it: hold rows that are to be protected in
    `odeco.privacy.RecordLevel`, which clips with care, declares its rounding errors and says nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.moments import SampleMoment
    >>> moment = SampleMoment(np.array([[1.0, 0.0], [0.0, 2.0]]))
    >>> moment.image([[1.0], [1.0]]).ravel()
    array([0.5, 4. ])
    """

    def __init__(
        self,
        rows: Any,
        order: int = 3,
        *,
        norm_bound: float | None = None,
        neighbour_relation: Neighbours = "replace",
    ) -> None:
        checked = as_rows(rows)
        check_choice("neighbour_relation", neighbour_relation, ("replace", "add or remove"))
        self.rows = checked if norm_bound is None else clip_rows(checked, check_norm_bound(norm_bound))
        self.norm_bound, self.neighbour_relation = norm_bound, neighbour_relation
        self.n_rows, self.dimension = (int(size) for size in checked.shape)
        self.order = check_count("order", order, MINIMUM_ORDER)
        self.rounding = float(np.finfo(checked.dtype).eps)

    @property
    def neighbours(self) -> str:  # type: ignore[override]
        """The neighbour relation in words."""
        return f"{self.neighbour_relation} one row of norm at most {self.norm_bound}, the number of rows public"

    def _image(self, block: FloatArray) -> FloatArray:
        total = RowSum("image", block, self.order)
        total.update(self.rows)
        return total.mean()

    def _sensitivity(self, block: FloatArray) -> float:
        replace = self.neighbour_relation == "replace"
        return _sensitivity.record_image(block, self._bound(), self.n_rows, order=self.order, replace=replace)

    def _value_sensitivity(self, block: FloatArray) -> float:
        replace = self.neighbour_relation == "replace"
        return _sensitivity.record_value(block, self._bound(), self.n_rows, order=self.order, replace=replace)

    def _bound(self) -> float:
        return check_norm_bound(self.norm_bound)


def clip_rows(rows: Any, norm_bound: float) -> Any:
    """Return rows with those beyond the bound scaled down to it."""
    squares = rows.multiply(rows).sum(axis=1) if not isinstance(rows, np.ndarray) else np.einsum("ij,ij->i", rows, rows)
    norms = np.sqrt(np.asarray(squares, dtype=np.float64))
    factors = np.minimum(1.0, norm_bound / np.maximum(norms, np.finfo(np.float64).tiny))
    if isinstance(rows, np.ndarray):
        return rows * factors[:, None].astype(rows.dtype)
    clipped = rows.copy()
    clipped.data *= np.repeat(factors, np.diff(rows.indptr)).astype(rows.dtype)
    return clipped
