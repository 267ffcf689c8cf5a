"""The start of independent component analysis: third and fourth cumulants of whitened rows.

Let z = U s, with U orthogonal and independent sources s of variance 1. The third cumulant of z is Σ κ₃ᵢ uᵢ⊗³ and the
fourth is E[z⊗⁴] minus that of a Gaussian, Σ κ₄ᵢ uᵢ⊗⁴, where κ are skewness and excess kurtosis. So both have the
columns of U as orthonormal components, and a source that is invisible in one of them is often visible in the other. All
components are found together in both, by gradient ascent on Σ κ₃²/12 + κ₄²/48, the leading terms of the negentropy of
the sources (Comon 1994).
"""

from __future__ import annotations

from typing import final

import numpy as np

from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray
from odeco.cp.small import orthogonal_iteration
from odeco.tensors.oracle import Oracle


@final
class WhitenedCumulant(Oracle):
    """The third or fourth cumulant of rows with mean zero and covariance I, never formed.

    Parameters
    ----------
    columns : array, k x n
        One row of the data per column.
    order : int
        3 or 4.
    """

    def __init__(self, columns: FloatArray, order: int) -> None:
        self.columns, self.order = columns, order
        self.dimension, self.n_rows = columns.shape

    def _image(self, block: FloatArray) -> FloatArray:
        products = block.T @ self.columns
        power = products * products if self.order == 3 else products * products * products
        image: FloatArray = self.columns @ power.T / self.n_rows
        return image if self.order == 3 else image - 3 * np.sum(block**2, axis=0) * block

    def _slice(self, direction: FloatArray) -> FloatArray:
        products = direction @ self.columns
        weighted = self.columns * (products if self.order == 3 else products * products)
        matrix: FloatArray = weighted @ self.columns.T / self.n_rows
        if self.order == 4:
            matrix -= (direction @ direction) * np.eye(self.dimension) + 2 * np.outer(direction, direction)
        return matrix


def cumulant_start(columns: FloatArray, *, seed: int) -> FloatArray:
    """Return an orthogonal k x k unmixing matrix of whitened rows (k x n, one row per column).

    The ascent starts at the eigenvectors of a random slice of both cumulants. More starts found nothing better.
    """
    third, fourth = WhitenedCumulant(columns, 3), WhitenedCumulant(columns, 4)
    rng = np.random.default_rng(seed)

    def gradient(vectors: FloatArray) -> tuple[FloatArray, float]:
        """Return the gradient, and the logarithm of the objective: its gain counts relative to its size."""
        products = vectors.T @ columns  # both images from one product, which takes most of the time
        powers = products * products
        of_third = columns @ powers.T / third.n_rows
        powers *= products
        of_fourth = columns @ powers.T / third.n_rows - 3 * vectors
        skewness, kurtosis = np.sum(of_third * vectors, axis=0), np.sum(of_fourth * vectors, axis=0)
        negentropy = float(np.sum(skewness**2) / 12 + np.sum(kurtosis**2) / 48)
        return of_third * (skewness / 2) + of_fourth * (kurtosis / 6), float(np.log(max(negentropy, 1e-300)))

    with one_blas_thread():
        directions = rng.standard_normal((2, len(columns)))
        slices = third.slice(directions[0]) + fourth.slice(directions[1])
        return orthogonal_iteration(gradient, np.linalg.eigh(slices)[1])[0].T
