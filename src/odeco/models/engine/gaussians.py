"""Gaussians: densities, sufficient statistics and samples, for mixtures and as emissions of hidden Markov models.

`Gaussians` is a mixture with the E and M step of EM (Dempster, Laird and Rubin 1977). Covariances are one variance per
component (k), one per feature (k x d), or matrices (k x d x d).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add
from typing import Any, Literal

import numpy as np
from scipy.linalg import lapack

from odeco._util.state import Rule, Sizes, State, array, array_field, require
from odeco._util.types import FloatArray, IndexArray
from odeco.models.engine.fit import Statistics
from odeco.models.engine.rows import Correlated, Independent, condition, parts_of, split, weigh, with_weights

CovarianceType = Literal["spherical", "diag", "full"]

COVARIANCE_TYPES: tuple[CovarianceType, ...] = ("spherical", "diag", "full")

#: Numbers in a file are at most this large, so that their squares can be added up.
_LARGEST_IN_FILE = 1e150

#: A component with less than this share of one row keeps its mean and covariance: nothing is known about it.
_MIN_COUNT = 1e-6


def weights_rule(k: str) -> Rule:
    """Require probabilities that sum to one."""
    numbers = array(k, low=0, high=1)

    def check(value: Any, where: str, sizes: Sizes) -> None:
        numbers(value, where, sizes)
        require(abs(float(value.sum()) - 1) < 1e-6, f"`{where}` must sum to one")

    return check


def bounded(*shape: str) -> Rule:
    """Require numbers whose squares can be added up."""
    return array(*shape, low=-_LARGEST_IN_FILE, high=_LARGEST_IN_FILE)


def covariances_rule(k: str, d: str) -> Rule:
    """Require variances above zero, or positive definite covariance matrices."""

    def check(value: Any, where: str, sizes: Sizes) -> None:
        n_axes = value.ndim if isinstance(value, np.ndarray) else 0
        require(1 <= n_axes <= 3, f"`{where}` must have one to three axes")
        low = float(np.finfo(np.float64).tiny) if n_axes < 3 else -_LARGEST_IN_FILE
        array(*(k, d, d)[:n_axes], low=low, high=_LARGEST_IN_FILE)(value, where, sizes)
        if n_axes == 3:
            require(bool(np.allclose(value, value.transpose(0, 2, 1))), f"`{where}` must be symmetric")
            try:
                np.linalg.cholesky(value)
            except np.linalg.LinAlgError:
                raise ValueError(f"`{where}` must be positive definite") from None

    return check


def _check_seconds(value: Any, where: str, sizes: Sizes) -> None:
    n_axes = value.ndim if isinstance(value, np.ndarray) else 1
    array(*("k", "n_features", "n_features")[: max(1, min(n_axes, 3))])(value, where, sizes)


@dataclass(frozen=True, eq=False)
class Gaussians(State):
    """A mixture of k Gaussians in d dimensions.

    Attributes
    ----------
    weights : array, k
        The probability of each component.
    means : array, k x d
        The means.
    covariances : array
        One variance for each component (k), one for each feature (k x d), or covariance matrices (k x d x d).
    """

    weights: FloatArray = array_field("k", rule=weights_rule("k"))
    means: FloatArray = array_field("k", "n_features", rule=bounded("k", "n_features"))
    covariances: FloatArray = array_field("k", rule=covariances_rule("k", "n_features"))

    @property
    def covariance_type(self) -> CovarianceType:
        """The kind of the covariances."""
        return COVARIANCE_TYPES[self.covariances.ndim - 1]

    @property
    def n_parameters(self) -> int:
        """Number of free parameters."""
        k, d = self.means.shape
        return int(k * (d + (1, d, d * (d + 1) // 2)[self.covariances.ndim - 1]) + k - 1)

    @cached_property
    def origin(self) -> FloatArray:
        """The mean of the mixture. It is subtracted from rows, as squares of large numbers lose digits."""
        return np.asarray(self.weights @ self.means)

    @cached_property
    def _offsets(self) -> FloatArray:
        return np.asarray(self.means - self.origin)

    @cached_property
    def _factors(self) -> FloatArray:
        """The inverses of the Cholesky factors of full covariances, transposed: (x − μ)ᵀ times one has covariance I."""
        return inverse_factors(self.covariances)

    @cached_property
    def _constants(self) -> FloatArray:
        """The logarithms of the weights times the densities at the means."""
        factors = self._factors if self.covariances.ndim == 3 else None
        with np.errstate(divide="ignore"):  # a component of weight zero has density zero everywhere
            return log_peaks(np.log(self.weights), self.covariances, factors, self.means.shape[1])

    @property
    def variances(self) -> FloatArray:
        """The variance of each feature in each component (k x d)."""
        k, d = self.means.shape
        own = np.einsum("kii->ki", self.covariances) if self.covariances.ndim == 3 else self.covariances.reshape(k, -1)
        return np.broadcast_to(own, (k, d))

    @property
    def spread(self) -> FloatArray:
        """The standard deviation of each feature within components, averaged over components."""
        return np.asarray(np.sqrt(self.weights @ self.variances))

    @property
    def standardized_means(self) -> FloatArray:
        """The distance of each mean from the mean of the mixture, in standard deviations within components."""
        return np.asarray((self.means - self.origin) / self.spread)

    def log_joint(self, centred: FloatArray, squares: FloatArray) -> FloatArray:
        """Return log(w_h N(x | h)) for each row x, from which the origin was subtracted, and each component h.

        `squares` are the squared norms of these rows; only spherical components use them.
        """
        factors = self._factors if self.covariances.ndim == 3 else None
        return log_densities(centred, squares, self._offsets, self.covariances, factors, self._constants)

    def posterior(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the responsibility of each component for each row, and the log-density of each row."""
        centred = rows - self.origin
        squares = squared_norms(centred)
        if np.isnan(squares).any():
            parts = [self._condition(centred[part]).log_densities for part in parts_of(rows, len(self.weights))]
            return normalize(np.concatenate(parts))
        return normalize(self.log_joint(centred, squares))

    def e_step(self, block: FloatArray, weights: FloatArray | None = None) -> GaussianStatistics:
        """Return the sufficient statistics of a block of rows."""
        centred = block - self.origin
        squares = squared_norms(centred)
        if np.isnan(squares).any():
            parts = map(with_weights(centred, weights).__getitem__, parts_of(centred, len(self.weights)))
            return reduce(add, (self._e_step(*split(part)) for part in parts))
        n, log_likelihood, shares = weigh(*normalize(self.log_joint(centred, squares)), weights)
        sums = weighted_sums(centred, squares, shares, self.covariances.ndim)
        return GaussianStatistics(n, log_likelihood, *sums, self.origin)

    def _e_step(self, centred: FloatArray, weights: FloatArray | None) -> GaussianStatistics:
        """Return the expected statistics of rows with missing values."""
        given = self._condition(centred)
        n, log_likelihood, shares = weigh(*normalize(given.log_densities), weights)
        return GaussianStatistics(n, log_likelihood, *given.sums(shares), self.origin)

    def _condition(self, centred: FloatArray) -> Independent | Correlated:
        factors = self._factors if self.covariances.ndim == 3 else None
        with np.errstate(divide="ignore"):  # a component of weight zero has density zero everywhere
            log_weights = np.log(self.weights)
        return condition(centred, log_weights, self._offsets, self.covariances, factors)

    def m_step(self, statistics: GaussianStatistics, floor: float | FloatArray) -> Gaussians:
        """Return the Gaussians of the largest likelihood.

        `floor` is added to every variance, so that none is zero: one number, or one for each feature.
        """
        counts, d = statistics.counts, self.means.shape[1]
        known = counts > _MIN_COUNT
        totals = np.where(known, counts, 1.0)
        offsets = statistics.firsts / totals[:, None]
        if self.covariances.ndim == 1:
            covariances = np.maximum(statistics.seconds / totals - np.sum(offsets**2, axis=1), 0.0) / d + floor
        elif self.covariances.ndim == 2:
            covariances = np.maximum(statistics.seconds / totals[:, None] - offsets**2, 0.0) + floor
        else:
            covariances = statistics.seconds / totals[:, None, None] - offsets[:, :, None] * offsets[:, None, :]
            covariances = (covariances + covariances.transpose(0, 2, 1)) / 2 + floor * np.eye(d)
        return Gaussians(
            counts / counts.sum(),
            np.where(known[:, None], statistics.origin + offsets, self.means),
            np.where(known.reshape(-1, *(1,) * (covariances.ndim - 1)), covariances, self.covariances),
        )

    def rescaled(self, scale: FloatArray) -> Gaussians:
        """Return the mixture of rows whose columns are multiplied by `scale`; spheres become axis-aligned."""
        if self.covariances.ndim == 3:
            covariances = self.covariances * np.outer(scale, scale)
        else:
            covariances = self.covariances.reshape(len(self.weights), -1) * scale**2
        return Gaussians(self.weights, self.means * scale, covariances)

    def draw(self, n_rows: int, random: Any) -> tuple[FloatArray, IndexArray]:
        """Draw rows, and return them with the component of each; `random` is a generator of NumPy, new or old."""
        # Weights may sum to one and a rounding error, which NumPy refuses.
        numbers = random.multinomial(n_rows, self.weights / self.weights.sum())
        labels = np.repeat(np.arange(len(self.weights)), numbers)
        return draw_rows(labels, self.means, self.covariances, random), labels


@dataclass(frozen=True, eq=False)
class GaussianStatistics(Statistics):
    """Sums over rows x with responsibilities r_h, after an origin was subtracted from the rows.

    A sum of two statistics has the origin of the second, which in a stream is nearer to the rows to come.

    Attributes
    ----------
    counts : array, k
        Σ r_h.
    firsts : array, k x d
        Σ r_h x.
    seconds : array
        Σ r_h |x|² (k), Σ r_h x² for each feature (k x d) or Σ r_h x xᵀ (k x d x d), as the covariances are.
    origin : array, d
        The origin.
    """

    counts: FloatArray = array_field("k", low=0)
    firsts: FloatArray = array_field("k", "n_features", rule=bounded("k", "n_features"))
    seconds: FloatArray = array_field("k", rule=_check_seconds)
    origin: FloatArray = array_field("n_features", rule=bounded("n_features"))

    def __add__(self, other: GaussianStatistics) -> GaussianStatistics:
        own = self if self.origin is other.origin else self.seen_from(other.origin)
        return replace(Statistics.__add__(own, other), origin=other.origin)

    def scaled(self, factor: float) -> GaussianStatistics:
        """Return the statistics, multiplied by a factor."""
        return replace(super().scaled(factor), origin=self.origin)

    def seen_from(self, origin: FloatArray) -> GaussianStatistics:
        """Return the same sums with another origin."""
        shift = origin - self.origin
        counts, firsts = self.counts, self.firsts - self.counts[:, None] * shift
        if self.seconds.ndim == 1:
            seconds = self.seconds - 2 * self.firsts @ shift + counts * (shift @ shift)
        elif self.seconds.ndim == 2:
            seconds = self.seconds - 2 * self.firsts * shift + counts[:, None] * shift**2
        else:
            cross = self.firsts[:, :, None] * shift
            seconds = self.seconds - cross - cross.transpose(0, 2, 1) + counts[:, None, None] * np.outer(shift, shift)
        return replace(self, firsts=firsts, seconds=seconds, origin=origin)


def inverse_factors(covariances: FloatArray) -> FloatArray:
    """Return the inverses of the Cholesky factors of covariance matrices, transposed."""
    return np.stack([lapack.dtrtri(each, lower=1)[0].T for each in np.linalg.cholesky(covariances)])


def log_peaks(log_weights: Any, covariances: FloatArray, factors: FloatArray | None, d: int) -> FloatArray:
    """Return the logarithms of the weights times the densities at the means; `factors` are those of matrices."""
    if covariances.ndim == 1:
        halves = 0.5 * d * np.log(covariances)
    elif factors is None:
        halves = 0.5 * np.log(covariances).sum(axis=1)
    else:
        halves = -np.log(np.einsum("kii->ki", factors)).sum(axis=1)
    return np.asarray(log_weights - halves - 0.5 * d * math.log(2 * math.pi))


def log_densities(
    rows: FloatArray,
    squares: FloatArray | None,
    means: FloatArray,
    covariances: FloatArray,
    factors: FloatArray | None,
    peaks: FloatArray,
) -> FloatArray:
    """Return the log-density of each row under each component, n x k.

    Rows and means should be near zero, as squares of large numbers lose digits. `squares` are the squared norms of
    rows, which only one variance per component needs; `factors` are `inverse_factors` of matrices; `peaks` are the
    log-densities at the means.
    """
    if covariances.ndim == 1 and squares is not None:
        densities: FloatArray = rows @ (means / covariances[:, None]).T
        densities -= np.multiply.outer(squares, 0.5 / covariances)
        densities += peaks - 0.5 * np.sum(means**2, axis=1) / covariances
    elif factors is None:
        densities = rows @ (means / covariances).T
        densities -= (rows * rows) @ (0.5 / covariances).T
        densities += peaks - 0.5 * np.sum(means**2 / covariances, axis=1)
    else:
        densities = np.empty((len(rows), len(means)))
        for component, (factor, mean) in enumerate(zip(factors, means, strict=True)):
            white = (rows - mean) @ factor
            densities[:, component] = np.einsum("ij,ij->i", white, white)
        densities *= -0.5
        densities += peaks
    return densities


def weighted_sums(
    rows: FloatArray, squares: FloatArray | None, shares: FloatArray, n_axes: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return Σ r_h, Σ r_h x and Σ r_h x² for responsibilities r (n x k), for covariances with this number of axes."""
    if n_axes == 1 and squares is not None:
        seconds: FloatArray = squares @ shares
    elif n_axes == 2:
        seconds = shares.T @ (rows * rows)
    else:
        seconds = np.stack([(rows * share[:, None]).T @ rows for share in shares.T])
    return shares.sum(axis=0), shares.T @ rows, seconds


def draw_rows(labels: IndexArray, means: FloatArray, covariances: FloatArray, random: Any) -> FloatArray:
    """Draw a row from the component of each label; `random` is a generator of NumPy, new or old."""
    noise: FloatArray = random.standard_normal((len(labels), means.shape[1]))
    if covariances.ndim == 3:
        for component, root in enumerate(np.linalg.cholesky(covariances)):
            noise[labels == component] = noise[labels == component] @ root.T
    else:
        noise *= np.sqrt(covariances)[labels].reshape(len(labels), -1)
    return means[labels] + noise


def normalize(joint: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the exponentials of rows of logarithms, divided by their sum, and the logarithm of that; in place."""
    largest = joint.max(axis=1)
    joint -= largest[:, None]
    np.exp(joint, out=joint)
    totals = joint.sum(axis=1)
    joint /= totals[:, None]
    return joint, largest + np.log(totals)


def squared_norms(rows: FloatArray) -> FloatArray:
    """Return the squared norm of each row."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows))
