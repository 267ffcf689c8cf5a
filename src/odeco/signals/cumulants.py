"""Where sources lie: the third and the fourth cumulant of whitened rows have them as orthonormal components.

Let z = U s, with U orthogonal and independent sources s of variance 1. The third cumulant of z is Σ κ₃ᵢ uᵢ⊗³ and the
fourth is E[z⊗⁴] less that of a Gaussian, Σ κ₄ᵢ uᵢ⊗⁴, where κ are skewness and excess kurtosis. A source that one does
not see is often seen by the other. So all components climb in both together, by the gradient of Σ κ₃²/12 + κ₄²/48, the
leading terms of how much each source differs from a Gaussian (its negentropy; Comon 1994).
"""

from __future__ import annotations

from typing import final

import numpy as np

from odeco._threads import one_blas_thread
from odeco._types import FloatArray
from odeco.cores import climb_together
from odeco.oracle import Oracle


@final
class WhitenedCumulant(Oracle):
    """The third or fourth cumulant of rows with mean zero and covariance I, never formed.

    Parameters
    ----------
    columns : array, k x n
        One row of the data a column.
    order : int
        3 or 4.
    """

    def __init__(self, columns: FloatArray, order: int) -> None:
        self.columns, self.order = columns, order
        self.dimension, self.n_rows = columns.shape

    def _image(self, block: FloatArray) -> FloatArray:
        seen = block.T @ self.columns
        power = seen * seen if self.order == 3 else seen * seen * seen
        image: FloatArray = self.columns @ power.T / self.n_rows
        return image if self.order == 3 else image - 3 * np.sum(block**2, axis=0) * block

    def _slice(self, direction: FloatArray) -> FloatArray:
        seen = direction @ self.columns
        weighted = self.columns * (seen if self.order == 3 else seen * seen)
        matrix: FloatArray = weighted @ self.columns.T / self.n_rows
        if self.order == 4:
            matrix -= (direction @ direction) * np.eye(self.dimension) + 2 * np.outer(direction, direction)
        return matrix


def find_sources(columns: FloatArray, *, seed: int) -> FloatArray:
    """Return an orthogonal k x k matrix whose rows unmix whitened rows (k x n, one a column).

    They begin at the eigenvectors of a random slice of both cumulants. More starts than one find nothing better.
    """
    third, fourth = WhitenedCumulant(columns, 3), WhitenedCumulant(columns, 4)
    rng = np.random.default_rng(seed)

    def ask(vectors: FloatArray) -> tuple[FloatArray, float]:
        seen = vectors.T @ columns  # both images from one product: this is where the time goes
        squares = seen * seen
        of_third = columns @ squares.T / third.n_rows
        squares *= seen
        of_fourth = columns @ squares.T / third.n_rows - 3 * vectors
        skewness, kurtosis = np.sum(of_third * vectors, axis=0), np.sum(of_fourth * vectors, axis=0)
        differs = float(np.sum(skewness**2) / 12 + np.sum(kurtosis**2) / 48)
        # The logarithm, because a gain counts relative to what is there.
        return of_third * (skewness / 2) + of_fourth * (kurtosis / 6), float(np.log(max(differs, 1e-300)))

    with one_blas_thread():
        directions = rng.standard_normal((2, len(columns)))
        slices = third.slice(directions[0]) + fourth.slice(directions[1])
        return climb_together(ask, np.linalg.eigh(slices)[1])[0].T
