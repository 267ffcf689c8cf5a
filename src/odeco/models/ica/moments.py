"""Mean and covariance of rows, added up block by block; and the directions in which rows vary.

Where sources lie: the third and the fourth cumulant of whitened rows have them as orthonormal components.

Let z = U s, with U orthogonal and independent sources s of variance 1. The third cumulant of z is Σ κ₃ᵢ uᵢ⊗³ and the
fourth is E[z⊗⁴] less that of a Gaussian, Σ κ₄ᵢ uᵢ⊗⁴, where κ are skewness and excess kurtosis. A source that one does
not see is often seen by the other. So all components climb in both together, by the gradient of Σ κ₃²/12 + κ₄²/48, the
leading terms of how much each source differs from a Gaussian (its negentropy; Comon 1994).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np

from odeco._util.scale import unit_exponent
from odeco._util.threads import map_blocks, one_blas_thread
from odeco._util.types import FloatArray, IndexArray
from odeco.cp.small import climb_together
from odeco.cp.whitening import Whitener
from odeco.tensors.oracle import Oracle

#: Rows of a block: their sources stay in the cache.
BLOCK = 4096

#: A direction with less than this share of the largest variance, of columns scaled to variance 1, is rounding error.
_LEAST_VARIANCE = 1e-10

#: A covariance multiplies two numbers of a column, and its determinants and inverses as many again.
_FACTORS = 4


@dataclass(frozen=True, eq=False)
class SecondMoment:
    """The mean of n rows, and the sum of (x − mean)(x − mean)ᵀ over them."""

    n_rows: int
    mean: FloatArray
    scatter: FloatArray

    @classmethod
    def of(cls, block: FloatArray) -> SecondMoment:
        """Return the moment of one block."""
        mean = block.mean(axis=0)
        centred = block - mean
        return cls(len(block), mean, centred.T @ centred)

    @classmethod
    def of_all(cls, rows: FloatArray) -> SecondMoment:
        """Return the moment of all rows, by blocks in their order."""
        moments = map_blocks(cls.of, blocks_of(rows), parallel=True)
        total = next(moments)
        for each in moments:
            total = total + each
        return total

    def __add__(self, other: SecondMoment) -> SecondMoment:
        n_rows, apart = self.n_rows + other.n_rows, other.mean - self.mean
        mean = self.mean + apart * (other.n_rows / n_rows)
        between = np.outer(apart, apart) * (self.n_rows * other.n_rows / n_rows)
        return SecondMoment(n_rows, mean, self.scatter + other.scatter + between)

    @property
    def covariance(self) -> FloatArray:
        """The covariance, divided by n."""
        covariance: FloatArray = self.scatter / self.n_rows
        return covariance


def units_of(rows: FloatArray, *, apart: bool) -> IndexArray:
    """Return exponents e for the columns, such that squares of rows over 2^e are of ordinary size; 0 where they are.

    `apart` says whether each column has a unit of its own. Where only the strongest directions are looked for, all
    columns must have the same, as other units would make other directions the strongest.
    """
    sizes = np.maximum(rows.max(axis=0), -rows.min(axis=0))
    if not apart:
        sizes[:] = sizes.max()
    return np.array([unit_exponent(float(size), _FACTORS, rows.dtype) for size in sizes], np.int64)


def in_units(rows: FloatArray, exponents: IndexArray) -> FloatArray:
    """Return the columns of rows over 2^e, which changes no digit."""
    return np.ldexp(rows, -exponents) if exponents.any() else rows


def log_volume(forward: FloatArray, exponents: IndexArray) -> float:
    """Return the logarithm of what a whitener, d x m, does to volumes, for rows that are not in units."""
    if forward.shape[0] == forward.shape[1]:
        return float(np.linalg.slogdet(forward)[1] - exponents.sum() * np.log(2))
    common = int(exponents.min())
    inner = np.ldexp(forward, common - exponents[:, None])
    return float(np.linalg.slogdet(inner.T @ inner)[1] / 2 - common * forward.shape[1] * np.log(2))


def blocks_of(rows: FloatArray) -> Iterator[FloatArray]:
    """Yield blocks of rows."""
    for first in range(0, len(rows), BLOCK):
        yield rows[first : first + BLOCK]


def whitener_of(covariance: FloatArray, n_directions: int | None) -> Whitener:
    """Return the whitener of the strongest directions of the covariance, or of all that vary.

    All directions are found in columns of variance 1, so that the units of columns do not matter. Which directions are
    the strongest does depend on the units; as in scikit-learn they are left as they are.
    """
    rank, scale = _rank_and_scale(covariance)
    if n_directions is None or n_directions == rank == len(covariance):
        inner = Whitener.from_moment(covariance / np.outer(scale, scale), rank)
        return Whitener(inner.forward / scale[:, None], inner.backward * scale[:, None])
    if n_directions > rank:
        raise ValueError(
            f"`n_components` must be at most the number of directions in which rows vary. Got {n_directions}, and rows "
            f"vary in {rank}. Lower n_components, or pass None."
        )
    return Whitener.from_moment(covariance, n_directions)


def _rank_and_scale(covariance: FloatArray) -> tuple[int, FloatArray]:
    variances = np.diagonal(covariance)
    scale = np.sqrt(np.where(variances > 0, variances, 1.0))
    values = np.linalg.eigvalsh(covariance / np.outer(scale, scale))
    rank = int(np.sum(values > _LEAST_VARIANCE * max(values[-1], 0.0)))
    if rank == 0:
        raise ValueError("Rows must vary for sources to be found. All rows are equal. Pass other rows.")
    return rank, scale


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

    They begin at the eigenvectors of a random slice of both cumulants. More starts found nothing better.
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
