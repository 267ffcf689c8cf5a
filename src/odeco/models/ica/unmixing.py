"""The start of independent component analysis, and a fitted unmixing: from rows to sources and
back.

**The start** is whitening, then third and fourth cumulants of whitened rows. Let z = U s, with U
orthogonal and independent sources s of variance 1. The third cumulant of z is Σ κ₃ᵢ uᵢ⊗³ and the
fourth is E[z⊗⁴] minus that of a Gaussian, Σ κ₄ᵢ uᵢ⊗⁴, where κ are skewness and excess kurtosis. So
both have the columns of U as orthonormal components, and a source that is invisible in one of them
is often visible in the other. All components are found together in both, by gradient ascent on Σ
κ₃²/12 + κ₄²/48, the leading terms of the negentropy of the sources (Comon 1994).

**A fitted unmixing** (`Unmixing`) has the likelihood of rows, and draws samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, ClassVar

import numpy as np

from odeco._util.arguments import unit_exponent
from odeco._util.state import State, array_field, require
from odeco._util.threads import map_blocks, one_blas_thread
from odeco._util.types import FloatArray, IndexArray
from odeco.cp.small import orthogonal_iteration
from odeco.cp.whitening import Whitener
from odeco.models.engine.moments import SecondMoment
from odeco.models.engine.rows import blocks_of
from odeco.models.ica.likelihood import N_BINS, draw_sources, log_densities

#: Number of rows of a block: their sources stay in the cache.
BLOCK = 4096

#: A direction with less than this share of the largest variance, of columns scaled to variance 1,
#: is rounding error.
_MIN_VARIANCE = 1e-10

#: Number of factors of one column that are multiplied: two in a covariance, and two more in its
#: determinants and inverses.
_FACTORS = 4


def second_moment(data: Any) -> SecondMoment:
    """Return the moment of all rows, by blocks in their order."""
    return reduce(add, map_blocks(SecondMoment.of_block, blocks_of(data, BLOCK), parallel=True))


def unit_exponents(rows: FloatArray, *, by_column: bool) -> IndexArray:
    """Return exponents e such that the squares of columns over 2^e neither overflow nor underflow;
    0 where possible.

    Without `by_column`, all columns have the same exponent: for the leading directions of the
    covariance, which depend on the units of the columns.
    """
    sizes = np.maximum(rows.max(axis=0), -rows.min(axis=0))
    if not by_column:
        sizes[:] = sizes.max()
    return np.array([unit_exponent(float(size), _FACTORS, rows.dtype) for size in sizes], np.int64)


def scaled(rows: FloatArray, exponents: IndexArray) -> FloatArray:
    """Return the columns of rows over 2^e, which is exact."""
    if exponents.any():
        return np.ldexp(rows, -exponents)
    return rows


def log_volume(forward: FloatArray, exponents: IndexArray) -> float:
    """Return the log-determinant of a whitener (d x m) of scaled rows, as a map of rows that are
    not scaled.
    """
    if forward.shape[0] == forward.shape[1]:
        return float(np.linalg.slogdet(forward)[1] - exponents.sum() * np.log(2))
    common = int(exponents.min())
    inner = np.ldexp(forward, common - exponents[:, None])
    return float(np.linalg.slogdet(inner.T @ inner)[1] / 2 - common * forward.shape[1] * np.log(2))


def whiten(
    covariance: FloatArray, n_directions: int | None, *, standardized: bool = False
) -> Whitener:
    """Return the whitener of the leading directions of the covariance, or of all directions in
    which rows vary.

    All directions are found in columns of variance 1, so that the units of columns do not matter.
    The leading directions do depend on the units. These are left as they are, as in scikit-learn,
    unless `standardized`.
    """
    rank, scale = _rank_and_scale(covariance)
    if n_directions is not None and n_directions > rank:
        raise ValueError(
            "`n_components` must be at most the number of directions in which rows vary. Got "
            f"{n_directions}, and rows vary in {rank}. Lower n_components, or pass None."
        )
    if n_directions is None or standardized or n_directions == rank == len(covariance):
        inner = Whitener.from_moment(covariance / np.outer(scale, scale), n_directions or rank)
        return Whitener(inner.forward / scale[:, None], inner.backward * scale[:, None])
    try:
        return Whitener.from_moment(covariance, n_directions)
    except ValueError:
        raise ValueError(
            f"Columns must have similar scales for {n_directions} leading directions to be found "
            f"beside the strongest. Their standard deviations are from {scale.min():.3g} to "
            f"{scale.max():.3g}. Pass standardize=True."
        ) from None


def _rank_and_scale(covariance: FloatArray) -> tuple[int, FloatArray]:
    variances = np.diagonal(covariance)
    scale = np.sqrt(np.where(variances > 0, variances, 1.0))
    values = np.linalg.eigvalsh(covariance / np.outer(scale, scale))
    rank = int(np.sum(values > _MIN_VARIANCE * max(values[-1], 0.0)))
    if rank == 0:
        raise ValueError(
            "Rows must vary for sources to be found. All rows are equal. Pass other rows."
        )
    return rank, scale


def cumulant_start(
    columns: FloatArray, weights: FloatArray | None = None, *, seed: int
) -> FloatArray:
    """Return an orthogonal k x k unmixing matrix of whitened rows (k x n, one row per column) with
    these weights.

    The ascent starts at the eigenvectors of a random slice of both cumulants, which are never
    formed. More starts found nothing better.
    """
    counted = columns if weights is None else columns * weights
    n_rows = columns.shape[1] if weights is None else float(weights.sum())
    k = len(columns)

    def cumulants(vectors: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the images of vectors under both cumulants, from one product, which takes most of
        the time.
        """
        products = vectors.T @ columns
        powers = products * products
        of_third = counted @ powers.T / n_rows
        powers *= products
        return of_third, counted @ powers.T / n_rows - 3 * vectors

    with one_blas_thread():
        first, second = np.random.default_rng(seed).standard_normal((2, k))
        weighted = columns * (first @ columns + (second @ columns) ** 2)
        slices = weighted @ counted.T / n_rows
        slices -= (second @ second) * np.eye(k) + 2 * np.outer(second, second)
        start = np.linalg.eigh(slices)[1]
        return ascend(cumulants, lambda _: (12.0, 48.0), start)[0].T


def ascend(
    cumulants: Callable[[FloatArray], tuple[FloatArray, FloatArray]],
    variances: Callable[[FloatArray], tuple[Any, Any]],
    vectors: FloatArray,
) -> tuple[FloatArray, float]:
    """Return orthonormal vectors that raise Σ κ₃²/v₃ + κ₄²/v₄, and its logarithm: its gain counts
    relative to its size.

    `cumulants` returns the images of vectors under both cumulants, and `variances` v₃ and v₄.
    """

    def gradient(vectors: FloatArray) -> tuple[FloatArray, float]:
        of_third, of_fourth = cumulants(vectors)
        third = np.sum(of_third * vectors, axis=0)
        fourth = np.sum(of_fourth * vectors, axis=0)
        of_thirds, of_fourths = variances(vectors)
        objective = float(np.sum(third**2 / of_thirds) + np.sum(fourth**2 / of_fourths))
        directions = 3 * of_third * (third / of_thirds) + 4 * of_fourth * (fourth / of_fourths)
        return directions, float(np.log(max(objective, 1e-300)))

    return orthogonal_iteration(gradient, vectors)


#: No double-precision number has a larger exponent.
_MAX_EXPONENT = 1100

#: Scaled rows are at most about 1e77, so that products of four of their numbers do not overflow. In
#: a file, numbers must be at most this.
RANGE: dict[str, Any] = {"low": -1e160, "high": 1e160}

#: A variance below this share of the sum of all variances is rounding error.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Sources(State):
    """What ICA has learnt: an unmixing matrix, or the mixing matrix of more sources than
    columns.
    """

    mark: ClassVar[str]  # the field by which a file is recognised

    @classmethod
    def from_arrays(cls, arrays: Any, prefix: str, sizes: Any = None, parts: Any = None) -> Any:
        """Return the sources that a file holds, of either kind."""
        if cls is not Sources:
            return super().from_arrays(arrays, prefix, sizes, parts)
        kinds = [kind for kind in cls.__subclasses__() if f"{prefix}.{kind.mark}" in arrays]
        require(len(kinds) == 1, "it must hold an unmixing matrix or a mixing matrix")
        return kinds[0].from_arrays(arrays, prefix, sizes, parts)

    @property
    def correlations(self) -> FloatArray:
        """The correlation of each column with each source, d x k."""
        own: Any = self  # of either kind
        deviations = np.sqrt(np.diagonal(own.covariance))
        return np.asarray(own.scaled_mixing / np.where(deviations > 0, deviations, 1.0)[:, None])

    @property
    def signs(self) -> FloatArray:
        """The signs that make the largest mixing weight of each source positive."""
        mixing: FloatArray = self.mixing  # type: ignore[attr-defined]
        largest = mixing[np.argmax(np.abs(mixing), axis=0), np.arange(mixing.shape[1])]
        return np.where(largest < 0, -1.0, 1.0)


@dataclass(frozen=True, eq=False)
class Unmixing(Sources):
    """The unmixing matrix of rows that are scaled by powers of two: column j is divided by
    2^exponents[j].

    Attributes
    ----------
    exponents : array
        The exponents; 0 for columns of ordinary size.
    mean, covariance : array
        Mean and covariance of the scaled rows.
    unmixing : array, k x d
        The unmixing matrix of the scaled rows, one row per source.
    whitening : array, m x d
        The map of the scaled rows to the directions in which sources were searched.
    information : array
        Fisher information of each source: 1 for a Gaussian, and more for all others.
    counts : array, k x 200
        The histogram of each source.
    """

    mark: ClassVar[str] = "unmixing"

    exponents: IndexArray = array_field(
        "n_features", kind="i", low=-_MAX_EXPONENT, high=_MAX_EXPONENT
    )
    mean: FloatArray = array_field("n_features", **RANGE)
    covariance: FloatArray = array_field("n_features", "n_features", **RANGE)
    unmixing: FloatArray = array_field("k", "n_features", **RANGE)
    whitening: FloatArray = array_field("m", "n_features", **RANGE)
    information: FloatArray = array_field("k")
    counts: FloatArray = array_field("k", "bins", low=0)

    def check(self) -> None:
        """Require complete histograms, and sources with a positive definite covariance."""
        complete = self.counts.shape[1] == N_BINS and bool(np.all(self.counts.sum(axis=1) > 0))
        require(complete, f"its histograms must have {N_BINS} bins, and rows in them")
        require(np.allclose(self.covariance, self.covariance.T), "its covariance must be symmetric")
        with np.errstate(over="ignore", invalid="ignore"):
            own = self.unmixing @ self.covariance @ self.unmixing.T
        positive = bool(np.isfinite(own).all()) and bool(np.all(np.linalg.eigvalsh(own) > 0))
        require(positive, "its sources must have a positive definite covariance")

    def check_finite(self) -> None:
        """Raise if the unmixing matrix of rows that are not scaled is too large for double
        precision.
        """
        with np.errstate(over="ignore"):
            finite = np.isfinite(self.components).all(axis=0)
        if not finite.all():
            raise ValueError(
                "Rows must vary by more than about 1e-300, so that the unmixing matrix is "
                f"finite. Column {int(np.argmin(finite))} varies less. Multiply all rows by a "
                "constant."
            )

    @property
    def components(self) -> FloatArray:
        """The unmixing matrix of rows that are not scaled, k x d."""
        return scaled(self.unmixing, self.exponents)

    @property
    def mixing(self) -> FloatArray:
        """The mixing matrix of rows that are not scaled, d x k."""
        return scaled(self.scaled_mixing.T, -self.exponents).T

    @property
    def scaled_mixing(self) -> FloatArray:
        """The d x k regression of scaled rows on sources: the inverse of the unmixing matrix if
        there are d sources.
        """
        return mixing_of(self.unmixing, self.covariance)

    def sources(self, rows: FloatArray) -> FloatArray:
        """Return the sources of rows, n x k."""
        return np.asarray((scaled(rows, self.exponents) - self.mean) @ self.unmixing.T)

    def mix(self, sources: FloatArray) -> FloatArray:
        """Return the rows that sources (n x k) are mixed to."""
        return scaled(sources @ self.scaled_mixing.T + self.mean, -self.exponents)

    def log_likelihoods(self, rows: FloatArray) -> FloatArray:
        """Return the log-likelihood of each row: sources have their histograms, and the remainder
        is Gaussian.
        """
        centred = scaled(rows, self.exponents) - self.mean
        whitener = whiten(self.covariance, None).forward
        white = centred @ whitener
        sources = centred @ self.unmixing.T
        inner = np.linalg.cholesky(self.unmixing @ self.covariance @ self.unmixing.T)
        own = np.linalg.solve(inner, sources.T)
        # The density of a Gaussian, in which the factors of the sources are replaced by their own
        # densities.
        scale = log_volume(whitener, self.exponents) + np.sum(np.log(np.diagonal(inner)))
        constant = scale - (white.shape[1] - len(own)) * np.log(2 * np.pi) / 2
        gaussian = (np.sum(own**2, axis=0) - np.sum(white**2, axis=1)) / 2
        return np.asarray(constant + gaussian + log_densities(self.counts, sources.T).sum(axis=0))

    def sample(self, n_rows: int, rng: np.random.RandomState) -> tuple[FloatArray, FloatArray]:
        """Draw rows, n x d, and return the sources that they were mixed from; the remainder is
        Gaussian.
        """
        sources = draw_sources(self.counts, n_rows, rng).T
        mixing = self.scaled_mixing
        remainder = self.covariance - mixing @ self.unmixing @ self.covariance
        values, vectors = np.linalg.eigh((remainder + remainder.T) / 2)
        variances = np.where(values > _ROUNDING * np.trace(self.covariance), values, 0.0)
        noise = rng.standard_normal((n_rows, len(values))) * np.sqrt(variances)
        return scaled(sources @ mixing.T + noise @ vectors.T + self.mean, -self.exponents), sources


def mixing_of(unmixing: FloatArray, covariance: FloatArray) -> FloatArray:
    """Return Cov(x, s) Cov(s)⁻¹ for s = W x."""
    across = unmixing @ covariance
    return np.linalg.solve(across @ unmixing.T, across).T.astype(np.float64, copy=False)


def with_positive_mixing(
    unmixing: FloatArray, covariance: FloatArray, exponents: IndexArray
) -> FloatArray:
    """Return the unmixing matrix with signs that make the largest mixing weight of each source
    positive.
    """
    mixing = np.ldexp(mixing_of(unmixing, covariance), exponents[:, None])
    largest = mixing[np.argmax(np.abs(mixing), axis=0), np.arange(len(unmixing))]
    return np.asarray(unmixing * np.where(largest < 0, -1.0, 1.0)[:, None])
