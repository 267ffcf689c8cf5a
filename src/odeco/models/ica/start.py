"""The start of independent component analysis: whitening, then third and fourth cumulants of whitened rows.

Let z = U s, with U orthogonal and independent sources s of variance 1. The third cumulant of z is Σ κ₃ᵢ uᵢ⊗³ and the
fourth is E[z⊗⁴] minus that of a Gaussian, Σ κ₄ᵢ uᵢ⊗⁴, where κ are skewness and excess kurtosis. So both have the
columns of U as orthonormal components, and a source that is invisible in one of them is often visible in the other. All
components are found together in both, by gradient ascent on Σ κ₃²/12 + κ₄²/48, the leading terms of the negentropy of
the sources (Comon 1994).
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any, final

import numpy as np

from odeco._util.arguments import unit_exponent
from odeco._util.threads import map_blocks, one_blas_thread
from odeco._util.types import FloatArray, IndexArray
from odeco.cp.small import orthogonal_iteration
from odeco.cp.whitening import Whitener
from odeco.models.engine.gaussians import blocks_of
from odeco.models.engine.moments import SecondMoment
from odeco.tensors.oracle import Oracle

#: Number of rows of a block: their sources stay in the cache.
BLOCK = 4096


#: A direction with less than this share of the largest variance, of columns scaled to variance 1, is rounding error.
_MIN_VARIANCE = 1e-10


#: Number of factors of one column that are multiplied: two in a covariance, and two more in its determinants and
#: inverses.
_FACTORS = 4


def second_moment(data: Any) -> SecondMoment:
    """Return the moment of all rows, by blocks in their order."""
    return reduce(add, map_blocks(SecondMoment.of_block, blocks_of(data, BLOCK), parallel=True))


def unit_exponents(rows: FloatArray, *, by_column: bool) -> IndexArray:
    """Return exponents e such that the squares of columns over 2^e neither overflow nor underflow; 0 where possible.

    Without `by_column`, all columns have the same exponent: for the leading directions of the covariance, which depend
    on the units of the columns.
    """
    sizes = np.maximum(rows.max(axis=0), -rows.min(axis=0))
    if not by_column:
        sizes[:] = sizes.max()
    return np.array([unit_exponent(float(size), _FACTORS, rows.dtype) for size in sizes], np.int64)


def scaled(rows: FloatArray, exponents: IndexArray) -> FloatArray:
    """Return the columns of rows over 2^e, which is exact."""
    return np.ldexp(rows, -exponents) if exponents.any() else rows


def log_volume(forward: FloatArray, exponents: IndexArray) -> float:
    """Return the log-determinant of a whitener (d x m) of scaled rows, as a map of rows that are not scaled."""
    if forward.shape[0] == forward.shape[1]:
        return float(np.linalg.slogdet(forward)[1] - exponents.sum() * np.log(2))
    common = int(exponents.min())
    inner = np.ldexp(forward, common - exponents[:, None])
    return float(np.linalg.slogdet(inner.T @ inner)[1] / 2 - common * forward.shape[1] * np.log(2))


def whiten(covariance: FloatArray, n_directions: int | None, *, standardized: bool = False) -> Whitener:
    """Return the whitener of the leading directions of the covariance, or of all directions in which rows vary.

    All directions are found in columns of variance 1, so that the units of columns do not matter. The leading
    directions do depend on the units. These are left as they are, as in scikit-learn, unless `standardized`.
    """
    rank, scale = _rank_and_scale(covariance)
    if n_directions is not None and n_directions > rank:
        raise ValueError(
            f"`n_components` must be at most the number of directions in which rows vary. Got {n_directions}, and rows "
            f"vary in {rank}. Lower n_components, or pass None."
        )
    if n_directions is None or standardized or n_directions == rank == len(covariance):
        inner = Whitener.from_moment(covariance / np.outer(scale, scale), n_directions or rank)
        return Whitener(inner.forward / scale[:, None], inner.backward * scale[:, None])
    try:
        return Whitener.from_moment(covariance, n_directions)
    except ValueError:
        raise ValueError(
            f"Columns must have similar scales for {n_directions} leading directions to be found beside the strongest. "
            f"Their standard deviations are from {scale.min():.3g} to {scale.max():.3g}. Pass standardize=True."
        ) from None


def _rank_and_scale(covariance: FloatArray) -> tuple[int, FloatArray]:
    variances = np.diagonal(covariance)
    scale = np.sqrt(np.where(variances > 0, variances, 1.0))
    values = np.linalg.eigvalsh(covariance / np.outer(scale, scale))
    rank = int(np.sum(values > _MIN_VARIANCE * max(values[-1], 0.0)))
    if rank == 0:
        raise ValueError("Rows must vary for sources to be found. All rows are equal. Pass other rows.")
    return rank, scale


@final
class WhitenedCumulant(Oracle):
    """The third or fourth cumulant of rows with mean zero and covariance I, never formed.

    Parameters
    ----------
    columns : array, k x n
        One row of the data per column.
    order : int
        3 or 4.
    weights : array, optional
        The weight of each row.
    """

    def __init__(self, columns: FloatArray, order: int, weights: FloatArray | None = None) -> None:
        self.columns, self.order, self.dimension = columns, order, len(columns)
        self.n_rows = columns.shape[1] if weights is None else float(weights.sum())
        self.counted = columns if weights is None else columns * weights

    def _image(self, block: FloatArray) -> FloatArray:
        products = block.T @ self.columns
        power = products * products if self.order == 3 else products * products * products
        image: FloatArray = self.counted @ power.T / self.n_rows
        return image if self.order == 3 else image - 3 * np.sum(block**2, axis=0) * block

    def _slice(self, direction: FloatArray) -> FloatArray:
        products = direction @ self.columns
        scaled = self.columns * (products if self.order == 3 else products * products)
        matrix: FloatArray = scaled @ self.counted.T / self.n_rows
        if self.order == 4:
            matrix -= (direction @ direction) * np.eye(self.dimension) + 2 * np.outer(direction, direction)
        return matrix


def cumulant_start(columns: FloatArray, weights: FloatArray | None = None, *, seed: int) -> FloatArray:
    """Return an orthogonal k x k unmixing matrix of whitened rows (k x n, one row per column) with these weights.

    The ascent starts at the eigenvectors of a random slice of both cumulants. More starts found nothing better.
    """
    third, fourth = WhitenedCumulant(columns, 3, weights), WhitenedCumulant(columns, 4, weights)
    rng = np.random.default_rng(seed)

    def gradient(vectors: FloatArray) -> tuple[FloatArray, float]:
        """Return the gradient, and the logarithm of the objective: its gain counts relative to its size."""
        products = vectors.T @ columns  # both images from one product, which takes most of the time
        powers = products * products
        of_third = third.counted @ powers.T / third.n_rows
        powers *= products
        of_fourth = third.counted @ powers.T / third.n_rows - 3 * vectors
        skewness, kurtosis = np.sum(of_third * vectors, axis=0), np.sum(of_fourth * vectors, axis=0)
        negentropy = float(np.sum(skewness**2) / 12 + np.sum(kurtosis**2) / 48)
        return of_third * (skewness / 2) + of_fourth * (kurtosis / 6), float(np.log(max(negentropy, 1e-300)))

    with one_blas_thread():
        directions = rng.standard_normal((2, len(columns)))
        slices = third.slice(directions[0]) + fourth.slice(directions[1])
        return orthogonal_iteration(gradient, np.linalg.eigh(slices)[1])[0].T
