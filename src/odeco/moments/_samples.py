"""The moment of rows held in memory."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from odeco._arguments import MINIMUM_ORDER, check_count
from odeco._types import FloatArray
from odeco.oracle import Oracle
from odeco.rows import RowSum, as_rows


@final
class SampleMoment(Oracle):
    """The moment (1/n) Σ x⊗ᵖ of n rows, which costs two matrix products an image and no memory for a tensor.

    Parameters
    ----------
    rows : array or CSR array, n x d
        float32 or float64. Not copied.
    order : int
        The order p of the moment.

    Notes
    -----
    A row that is not finite raises an error that names it, so its answers cannot be made private. Hold rows that are to
    be protected in `odeco.privacy.RecordLevel`.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.moments import SampleMoment
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
        total = RowSum("image", block, self.order)
        total.update(self.rows)
        return total.mean()
