"""Gaussians: densities, sufficient statistics and samples, for mixtures and as emissions of hidden
Markov models.

`Gaussians` is a mixture with the E and M step of EM (Dempster, Laird and Rubin 1977). What depends
on the kind of the covariances is in `odeco.models.emissions.covariances`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add
from typing import Any

import numpy as np

from odeco._util.state import Rule, Sizes, State, array, array_field, require
from odeco._util.types import FloatArray, IndexArray
from odeco.models.emissions.covariances import (
    LARGEST_IN_FILE,
    CovarianceType,
    Kind,
    check_seconds,
    covariances_rule,
    kind_of,
)
from odeco.models.engine.fit import Statistics
from odeco.models.engine.rows import (
    Correlated,
    Independent,
    condition,
    parts_of,
    split,
    weigh,
    with_weights,
)

#: The squares of rows at this number of standard deviations are finite, in the units of the
#: narrowest component too.
_FARTHEST = 1e100

#: A component with less than this share of one row keeps its mean and covariance: nothing is known
#: about it.
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
    return array(*shape, low=-LARGEST_IN_FILE, high=LARGEST_IN_FILE)


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
        One variance for each component (k), one for each feature (k x d), or covariance matrices (k
        x d x d).
    """

    weights: FloatArray = array_field("k", rule=weights_rule("k"))
    means: FloatArray = array_field("k", "n_features", rule=bounded("k", "n_features"))
    covariances: FloatArray = array_field("k", rule=covariances_rule("k", "n_features"))

    @cached_property
    def kind(self) -> Kind:
        """The kind of the covariances."""
        return kind_of(self.covariances)

    @property
    def covariance_type(self) -> CovarianceType:
        """The name of the kind of the covariances."""
        return self.kind.name

    @property
    def n_parameters(self) -> int:
        """Number of free parameters."""
        k, d = (int(size) for size in self.means.shape)
        return k * (1 + d + self.kind.n_parameters(d)) - 1

    @cached_property
    def origin(self) -> FloatArray:
        """The mean of the mixture. It is subtracted from rows, as squares of large numbers lose
        digits.
        """
        return np.asarray(self.weights @ self.means)

    @cached_property
    def _offsets(self) -> FloatArray:
        return np.asarray(self.means - self.origin)

    @cached_property
    def _factors(self) -> FloatArray | None:
        return self.kind.factors(self.covariances)

    @cached_property
    def _log_weights(self) -> FloatArray:
        with np.errstate(divide="ignore"):  # a component of weight zero has density zero everywhere
            return np.asarray(np.log(self.weights))

    @cached_property
    def _constants(self) -> FloatArray:
        """The logarithms of the weights times the densities at the means."""
        return self.kind.log_peaks(
            self._log_weights, self.covariances, self._factors, self.means.shape[1]
        )

    @property
    def variances(self) -> FloatArray:
        """The variance of each feature in each component (k x d)."""
        return self.kind.variances(self.covariances, self.means.shape[1])

    @property
    def spread(self) -> FloatArray:
        """The standard deviation of each feature within components, averaged over components."""
        return np.asarray(np.sqrt(self.weights @ self.variances))

    @property
    def standardized_means(self) -> FloatArray:
        """The distance of each mean from the mean of the mixture, in standard deviations within
        components.
        """
        return np.asarray((self.means - self.origin) / self.spread)

    def log_joint(self, centred: FloatArray, squares: FloatArray) -> FloatArray:
        """Return log(w_h N(x | h)) for each row x, from which the origin was subtracted, and each
        component h.

        `squares` are the squared norms of these rows; only spherical components use them.
        """
        given = (self._offsets, self.covariances, self._factors, self._constants)
        return self.kind.log_densities(centred, squares, *given)

    def posterior(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the responsibility of each component for each row, and the log-density of each
        row.

        Rows beyond `_FARTHEST` deviations count as if they were there: their squares would
        overflow.
        """
        limit = _FARTHEST * float(self.spread.max())
        centred = np.clip(rows - self.origin, -limit, limit)
        squares = squared_norms(centred)
        if np.isnan(squares).any():
            parts = [
                self._condition(centred[part]).log_densities
                for part in parts_of(rows, len(self.weights))
            ]
            return normalize(np.concatenate(parts))
        return normalize(self.log_joint(centred, squares))

    def e_step(self, block: FloatArray, weights: FloatArray | None = None) -> GaussianStatistics:
        """Return the sufficient statistics of a block of rows."""
        centred = block - self.origin
        squares = squared_norms(centred)
        if np.isnan(squares).any():
            parts = map(
                with_weights(centred, weights).__getitem__, parts_of(centred, len(self.weights))
            )
            return reduce(add, (self._e_step(*split(part)) for part in parts))
        n, log_likelihood, shares = weigh(*normalize(self.log_joint(centred, squares)), weights)
        sums = weighted_sums(centred, squares, shares, self.kind)
        return GaussianStatistics(n, log_likelihood, *sums, self.origin)

    def _e_step(self, centred: FloatArray, weights: FloatArray | None) -> GaussianStatistics:
        """Return the expected statistics of rows with missing values."""
        given = self._condition(centred)
        n, log_likelihood, shares = weigh(*normalize(given.log_densities), weights)
        return GaussianStatistics(n, log_likelihood, *given.sums(shares), self.origin)

    def _condition(self, centred: FloatArray) -> Independent | Correlated:
        return condition(centred, self._log_weights, self._offsets, self.covariances, self._factors)

    def m_step(self, statistics: GaussianStatistics, floor: float | FloatArray) -> Gaussians:
        """Return the Gaussians of the largest likelihood.

        `floor` is added to every variance, so that none is zero: one number, or one for each
        feature.
        """
        counts = statistics.counts
        known = counts > _MIN_COUNT
        totals = np.where(known, counts, 1.0)
        offsets = statistics.firsts / totals[:, None]
        covariances = self.kind.m_step(statistics.seconds, totals, offsets, floor)
        return Gaussians(
            counts / counts.sum(),
            np.where(known[:, None], statistics.origin + offsets, self.means),
            np.where(self.kind.per_component(known), covariances, self.covariances),
        )

    def rescaled(self, scale: FloatArray) -> Gaussians:
        """Return the mixture of rows whose columns are multiplied by `scale`; spheres become
        axis-aligned.
        """
        return Gaussians(
            self.weights, self.means * scale, self.kind.rescale(self.covariances, scale)
        )

    def draw(self, n_rows: int, random: Any) -> tuple[FloatArray, IndexArray]:
        """Draw rows, and return them with the component of each; `random` is a generator of NumPy,
        new or old.
        """
        labels = draw_labels(self.weights, n_rows, random)
        return draw_rows(labels, self.means, self.covariances, random), labels


@dataclass(frozen=True, eq=False)
class GaussianStatistics(Statistics):
    """Sums over rows x with responsibilities r_h, after an origin was subtracted from the rows.

    A sum of two statistics has the origin of the second, which in a stream is nearer to the rows to
    come.

    Attributes
    ----------
    counts : array, k
        Σ r_h.
    firsts : array, k x d
        Σ r_h x.
    seconds : array
        Σ r_h |x|² (k), Σ r_h x² for each feature (k x d) or Σ r_h x xᵀ (k x d x d), as the
        covariances are.
    origin : array, d
        The origin.
    """

    counts: FloatArray = array_field("k", low=0)
    firsts: FloatArray = array_field("k", "n_features", rule=bounded("k", "n_features"))
    seconds: FloatArray = array_field("k", rule=check_seconds)
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
        firsts = self.firsts - self.counts[:, None] * shift
        seconds = kind_of(self.seconds).moved(self.seconds, self.firsts, self.counts, shift)
        return replace(self, firsts=firsts, seconds=seconds, origin=origin)


def weighted_sums(
    rows: FloatArray, squares: FloatArray, shares: FloatArray, kind: Kind
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return Σ r_h, Σ r_h x and Σ r_h x² for responsibilities r (n x k), for covariances of a
    kind.
    """
    return shares.sum(axis=0), shares.T @ rows, kind.second_sums(rows, squares, shares)


def draw_labels(weights: FloatArray, n_rows: int, random: Any) -> IndexArray:
    """Draw the component of each of some rows; those of one component are together."""
    # Weights may sum to one and a rounding error, which NumPy refuses.
    numbers = random.multinomial(n_rows, weights / weights.sum())
    return np.repeat(np.arange(weights.size), numbers)


def draw_rows(
    labels: IndexArray, means: FloatArray, covariances: FloatArray, random: Any
) -> FloatArray:
    """Draw a row from the component of each label; `random` is a generator of NumPy, new or old."""
    noise: FloatArray = random.standard_normal((len(labels), means.shape[1]))
    kind_of(covariances).shape_noise(noise, labels, covariances)
    return means[labels] + noise


def normalize(joint: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the exponentials of logarithms, divided by their sums along the last axis, and the
    logarithms of these; in place.
    """
    largest = joint.max(axis=-1)
    joint -= largest[..., None]
    np.exp(joint, out=joint)
    totals = joint.sum(axis=-1)
    joint /= totals[..., None]
    return joint, largest + np.log(totals)


def squared_norms(rows: FloatArray) -> FloatArray:
    """Return the squared norm of each row."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows))
