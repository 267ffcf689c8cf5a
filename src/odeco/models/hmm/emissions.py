"""Emissions of a hidden Markov model: `Categorical` (symbols), `Gaussian` (vectors) and `Poisson`
(counts).

All have the same methods, so that the recursions, Baum-Welch and the stream work with any: the
likelihood of each row in each state, the sufficient statistics of rows, the M step, and the
coordinates that SQUAREM extrapolates in.

A likelihood is looked up in a table with one column per state: row t of the data has row index[t]
of the table. For symbols the table has one row per symbol, so that nothing is stored per row of the
data; vectors have one row each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add
from typing import Any, TypeAlias

import numpy as np
from scipy.special import gammaln

from odeco._util.state import Rule, Sizes, State, array, array_field, require, usable_array
from odeco._util.types import FloatArray, IndexArray
from odeco.models.emissions.covariances import KINDS, covariances_rule, kind_of
from odeco.models.emissions.normal import draw_rows, weighted_sums
from odeco.models.emissions.parts import squared_norms
from odeco.models.engine.rows import column_moments, column_ranges, condition, has_missing, parts_of

#: The smallest square root of a probability after an extrapolation.
_MIN_ROOT = 1e-5

#: The smallest probability in a file. No EM iteration leaves a smaller one, and products of three
#: do not underflow.
MIN_PROBABILITY = 1e-60

#: Pseudo-count of every symbol in every state, so that no probability is zero.
_SYMBOL_PRIOR = 1e-3

#: Every state has this number of prior rows with the mean counts of all rows, so that no rate is
#: zero.
_COUNT_PRIOR = 1e-3

#: Every state has this number of prior rows with the variance of all rows, so that no state shrinks
#: to a point.
_PRIOR_ROWS = 0.1

#: Rows are clipped to this number of standard deviations of all rows, so that likelihoods do not
#: underflow to zero.
_MAX_SCALED = 1e100

#: The smallest variance, as a share of the variance of all rows.
_MIN_VARIANCE = 1e-6


def distributions(*shape: str | None, low: float = MIN_PROBABILITY) -> Rule:
    """Require an array whose last axis holds probabilities that sum to one."""
    probabilities = array(*shape, low=low, high=1 + 1e-6)

    def check(value: Any, where: str, sizes: Sizes) -> None:
        probabilities(value, where, sizes)
        require(not value.size or np.allclose(value.sum(axis=-1), 1), f"`{where}` must sum to one")

    return check


def squared_roots(roots: FloatArray) -> FloatArray:
    """Return distributions, one per row, from the square roots of their probabilities, which need
    not be valid.
    """
    squares = np.maximum(roots, _MIN_ROOT) ** 2
    return np.asarray(squares / squares.sum(axis=1, keepdims=True))


def multinomial_log_likelihoods(counts: FloatArray) -> FloatArray:
    """Return Σ n log(n / Σ n), the largest log-likelihood of counts n, for each row of counts."""
    tiny = np.finfo(np.float64).tiny
    totals = counts.sum(axis=1)
    return np.asarray((counts * np.log(counts + tiny)).sum(axis=1) - totals * np.log(totals + tiny))


def perturbed_copies(distributions: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return each distribution twice in a row, with every probability multiplied by a random
    factor.
    """
    copies = np.repeat(distributions, 2, axis=0)
    changed = copies * rng.uniform(0.2, 1.8, copies.shape)
    return np.asarray(changed / changed.sum(axis=1, keepdims=True))


@dataclass(frozen=True, eq=False)
class Categorical(State):
    """Symbols, which are whole numbers from 0 to V − 1; V stands for a missing one.

    Attributes
    ----------
    probabilities : array, k x V
        The distribution of symbols in each state.
    """

    probabilities: FloatArray = array_field("k", "symbols", rule=distributions("k", "symbols"))

    @property
    def n_statistics(self) -> int:
        """Number of sufficient statistics per state."""
        return int(self.probabilities.shape[1])

    @property
    def n_parameters(self) -> int:
        """Number of free parameters."""
        return int(self.probabilities.size - len(self.probabilities))

    def likelihoods(self, rows: IndexArray) -> tuple[FloatArray, IndexArray, None]:
        """Return a table of likelihoods, the index of each row in it, and the logarithms of omitted
        factors.

        The last row of the table is that of a missing symbol, which says nothing about the state.
        """
        # By rows: the recursions read one at a time, and of another layout they would be compiled
        # once more.
        return (
            np.array(
                np.vstack([self.probabilities.T, np.ones(len(self.probabilities))]), order="C"
            ),
            rows,
            None,
        )

    def log_likelihoods(self, rows: IndexArray) -> tuple[FloatArray, IndexArray]:
        """Return a table of log-likelihoods, and the index of each row in it."""
        return np.vstack([np.log(self.probabilities.T), np.zeros(len(self.probabilities))]), rows

    def statistics(self, rows: IndexArray, posterior: FloatArray) -> FloatArray:  # noqa: ARG002 - posterior is by symbol
        """Return sufficient statistics, k x n_statistics; `posterior` is summed over each row of
        the table.
        """
        return posterior[: self.n_statistics].T

    def m_step(self, statistics: FloatArray) -> Categorical:
        """Return the likeliest emissions for sufficient statistics."""
        counts = statistics + _SYMBOL_PRIOR
        return Categorical(counts / counts.sum(axis=1, keepdims=True))

    def max_log_likelihoods(self, statistics: FloatArray) -> FloatArray:
        """Return the log-likelihood of the rows behind each row of statistics in the state that
        suits them best.
        """
        return multinomial_log_likelihoods(statistics)

    def to_vector(self) -> FloatArray:
        """Return the emissions as a vector for extrapolation: the square roots of probabilities."""
        return np.sqrt(self.probabilities).ravel()

    def from_vector(self, vector: FloatArray) -> Categorical:
        """Return the emissions that `to_vector` would return as this vector."""
        return Categorical(squared_roots(vector.reshape(self.probabilities.shape)))

    def split(self, rng: np.random.Generator) -> Categorical:
        """Return two slightly different states for each, one after the other."""
        return Categorical(perturbed_copies(self.probabilities, rng))

    def sample(self, states: IndexArray, rng: np.random.Generator) -> IndexArray:
        """Draw one row for each state of a path."""
        rows = np.empty(states.size, np.int64)
        for state, probabilities in enumerate(self.probabilities):
            own = np.flatnonzero(states == state)
            rows[own] = rng.choice(
                probabilities.size, own.size, p=probabilities / probabilities.sum()
            )
        return rows


@dataclass(frozen=True, eq=False)
class Gaussian(State):
    """Vectors with a Gaussian distribution in each state.

    Attributes
    ----------
    means : array, k x d
        The mean of each state.
    covariances : array, k x d or k x d x d
        The variances of features that are independent within a state, or the covariance of each
        state.
    origin, total_variances : array
        Mean and variance of each feature over all rows. Statistics are sums over rows minus the
        origin, so that they do not cancel. The prior and the floor of variances are shares of the
        total variances.
    """

    means: FloatArray = array_field("k", "n_features", rule=usable_array("k", "n_features"))
    covariances: FloatArray = array_field("k", rule=covariances_rule("k", "n_features"))
    origin: FloatArray = array_field(rule=usable_array("n_features"))
    total_variances: FloatArray = array_field("n_features", low=np.finfo(np.float64).tiny)

    @classmethod
    def of_rows(
        cls, rows: FloatArray, n_states: int, weights: FloatArray | None = None, *, full: bool
    ) -> Gaussian:
        """Return states that all have the distribution of the rows."""
        origin, variances = column_moments(rows, weights)
        largest = variances.max(initial=0.0)
        # A column that does not vary has no unit: any positive variance will do.
        varies = (column_ranges(rows) > 0) & (variances > 1 / np.finfo(np.float64).max)
        variances = np.where(varies, variances, 1e-12 * largest if largest > 0 else 1.0)
        # One feature has nothing to be correlated with.
        kind: Any = KINDS["full" if full and len(variances) > 1 else "diag"]
        covariance = kind.of_variances(variances)
        return cls(
            np.tile(origin, (n_states, 1)), np.stack([covariance] * n_states), origin, variances
        )

    @cached_property
    def kind(self) -> Any:
        """The kind of the covariances: `Diagonal` or `Full`."""
        return kind_of(self.covariances)

    @property
    def full(self) -> bool:
        """Whether features may be correlated within a state."""
        return bool(self.kind.name == "full")

    @cached_property
    def _scale(self) -> FloatArray:
        """The standard deviation of each feature over all rows."""
        return np.sqrt(self.total_variances)

    @cached_property
    def _units(self) -> FloatArray:
        """What covariances are divided by for rows that are divided by `_scale`."""
        return np.outer(self._scale, self._scale) if self.full else self.total_variances

    @cached_property
    def _factors(self) -> FloatArray | None:
        factors: FloatArray | None = self.kind.factors(self.covariances)
        return factors

    @property
    def variances(self) -> FloatArray:
        """The variance of each feature in each state, k x d."""
        return np.asarray(self.kind.variances(self.covariances, self.means.shape[1]))

    @property
    def n_statistics(self) -> int:
        """Number of sufficient statistics per state."""
        d = self.means.shape[1]
        return int(1 + d + self.kind.n_sums(d))

    @property
    def n_parameters(self) -> int:
        """Number of free parameters."""
        k, d = self.means.shape
        return int(k * (d + self.kind.n_parameters(d)))

    def likelihoods(self, rows: FloatArray) -> tuple[FloatArray, IndexArray, FloatArray]:
        """Return a table of likelihoods, the index of each row in it, and the logarithms of omitted
        factors.
        """
        return without_largest(*self.log_likelihoods(rows))

    def coordinates(self, rows: FloatArray) -> FloatArray:
        """Return rows such that all columns have one scale."""
        return np.asarray((rows - self.origin) / self._scale)

    def log_likelihoods(self, rows: FloatArray) -> tuple[FloatArray, IndexArray]:
        """Return a table of log-likelihoods, and the index of each row in it."""
        rows, means = (rows - self.origin) / self._scale, (self.means - self.origin) / self._scale
        largest = np.abs(rows).max(initial=0.0)
        if not largest <= _MAX_SCALED:  # or NaN
            rows = np.clip(rows, -_MAX_SCALED, _MAX_SCALED)
        covariances = self.covariances / self._units
        factors = self.kind.factors(covariances)
        # The density of scaled rows, divided by the product of the scales.
        if np.isnan(largest):
            volumes = ~np.isnan(rows) @ np.log(self._scale)
            parts = [
                condition(rows[part], 0.0, means, covariances, factors)
                for part in parts_of(rows, len(means))
            ]
            table = np.concatenate([part.log_densities for part in parts])
            return table - volumes[:, None], np.arange(len(rows))
        peaks = self.kind.log_peaks(-np.log(self._scale).sum(), covariances, factors, rows.shape[1])
        table = self.kind.log_densities(
            rows, squared_norms(rows), means, covariances, factors, peaks
        )
        return table, np.arange(len(rows))

    def statistics(self, rows: FloatArray, posterior: FloatArray) -> FloatArray:
        """Return sufficient statistics, k x n_statistics: sums of 1, x and x² or xxᵀ, for x seen
        from the origin.
        """
        rows = rows - self.origin
        if has_missing(rows):
            given = (np.zeros(1), self.means - self.origin, self.covariances, self._factors)
            parts = parts_of(rows, len(self.means))
            sums = [condition(rows[part], *given).sums(posterior[part]) for part in parts]
            counts, firsts, seconds = (reduce(add, each) for each in zip(*sums, strict=True))
        else:
            counts, firsts, seconds = weighted_sums(rows, squared_norms(rows), posterior, self.kind)
        return np.hstack([counts[:, None], firsts, seconds.reshape(len(counts), -1)])

    def m_step(self, statistics: FloatArray) -> Gaussian:
        """Return the likeliest emissions for sufficient statistics."""
        d = self.means.shape[1]
        counts, firsts, seconds = (
            statistics[:, :1],
            statistics[:, 1 : 1 + d],
            statistics[:, 1 + d :],
        )
        means = firsts / np.maximum(counts, np.finfo(np.float64).tiny)
        covariances = self.kind.with_prior(
            seconds, firsts, counts, means, self.total_variances, _PRIOR_ROWS
        )
        return replace(self, means=means + self.origin, covariances=self._floored(covariances))

    def max_log_likelihoods(self, statistics: FloatArray) -> FloatArray:
        """Return the log-likelihood of the rows behind each row of statistics in the state that
        suits them best.

        That of n rows with their own mean and covariance Σ is −n/2 log |Σ|, up to a constant times
        n, which is left out: it cancels when the rows of two states are put together.
        """
        covariances = self.m_step(statistics).covariances / self._units
        return np.asarray(-statistics[:, 0] / 2 * self.kind.log_determinants(covariances))

    def to_vector(self) -> FloatArray:
        """Return the emissions as a vector for extrapolation: means, and log-variances or Cholesky
        factors.
        """
        means = (self.means - self.origin) / self._scale
        return np.concatenate([means.ravel(), self.kind.to_vector(self.covariances / self._units)])

    def from_vector(self, vector: FloatArray) -> Gaussian:
        """Return the emissions that `to_vector` would return as this vector."""
        k, d = self.means.shape
        means = vector[: k * d].reshape(k, d) * self._scale + self.origin
        covariances = self.kind.from_vector(vector[k * d :], k, d)
        return replace(self, means=means, covariances=self._floored(covariances * self._units))

    def split(self, rng: np.random.Generator) -> Gaussian:
        """Return two states for each, one after the other, half a standard deviation to either side
        of its mean.
        """
        k, d = self.means.shape
        offsets = rng.standard_normal((k, d)) * np.sqrt(self.variances) / 2
        means = np.stack([self.means + offsets, self.means - offsets], axis=1).reshape(2 * k, d)
        return replace(self, means=means, covariances=np.repeat(self.covariances, 2, axis=0))

    def sample(self, states: IndexArray, rng: np.random.Generator) -> FloatArray:
        """Draw one row for each state of a path."""
        return draw_rows(states, self.means, self.covariances, rng)

    def _floored(self, covariances: FloatArray) -> FloatArray:
        """Return covariances with at least the smallest variance in every direction."""
        return np.asarray(self.kind.raise_to(covariances, self._units, _MIN_VARIANCE))


@dataclass(frozen=True, eq=False)
class Poisson(State):
    """Counts: in each state every column has a Poisson distribution, and columns are independent.

    Attributes
    ----------
    means : array, k x d
        The rate of each column in each state.
    origin : array
        The mean of each column over all rows. Rates are drawn towards it by the weight of a
        thousandth of a row, so that none is zero.
    """

    means: FloatArray = array_field("k", "n_features", rule=usable_array("k", "n_features", low=0))
    origin: FloatArray = array_field(rule=usable_array("n_features", low=0))

    @classmethod
    def of_rows(cls, rows: FloatArray, n_states: int, weights: FloatArray | None = None) -> Poisson:
        """Return states that all have the rates of the rows."""
        n = len(rows) if weights is None else weights.sum()
        # A column of zeros has no rate: any small one will do.
        origin = np.maximum(column_moments(rows, weights)[0], 1 / (n + 1))
        return cls(np.tile(origin, (n_states, 1)), origin)

    @property
    def variances(self) -> FloatArray:
        """The variance of each column in each state, which is its rate."""
        return self.means

    @property
    def total_variances(self) -> FloatArray:
        """The variance of each column if no state differed."""
        return self.origin

    @property
    def n_statistics(self) -> int:
        """Number of sufficient statistics per state."""
        return int(1 + self.means.shape[1])

    @property
    def n_parameters(self) -> int:
        """Number of free parameters."""
        return int(self.means.size)

    def coordinates(self, rows: FloatArray) -> FloatArray:
        """Return rows such that the noise within states is about one in every column: 2√x has that
        variance.
        """
        return np.asarray(2 * np.sqrt(rows))

    def likelihoods(self, rows: FloatArray) -> tuple[FloatArray, IndexArray, FloatArray]:
        """Return a table of likelihoods, the index of each row in it, and the logarithms of omitted
        factors.
        """
        return without_largest(*self.log_likelihoods(rows))

    def log_likelihoods(self, rows: FloatArray) -> tuple[FloatArray, IndexArray]:
        """Return a table of log-likelihoods, and the index of each row in it."""
        expected = self.means.sum(axis=1)
        if has_missing(rows):  # whose factor is 1
            expected = ~np.isnan(rows) @ self.means.T
            rows = np.where(np.isnan(rows), 0.0, rows)
        table = rows @ np.log(self.means).T - expected - gammaln(rows + 1).sum(axis=1)[:, None]
        return np.asarray(table), np.arange(len(rows))

    def statistics(self, rows: FloatArray, posterior: FloatArray) -> FloatArray:
        """Return sufficient statistics, k x n_statistics: sums of 1 and x."""
        if has_missing(rows):  # in their place is the rate of the state
            missing = np.isnan(rows)
            sums = posterior.T @ np.where(missing, 0.0, rows) + (posterior.T @ missing) * self.means
        else:
            sums = posterior.T @ rows
        return np.hstack([posterior.sum(axis=0)[:, None], sums])

    def m_step(self, statistics: FloatArray) -> Poisson:
        """Return the likeliest emissions for sufficient statistics."""
        sums, counts = (
            statistics[:, 1:] + _COUNT_PRIOR * self.origin,
            statistics[:, :1] + _COUNT_PRIOR,
        )
        return replace(self, means=sums / counts)

    def max_log_likelihoods(self, statistics: FloatArray) -> FloatArray:
        """Return the log-likelihood of the rows behind each row of statistics in the state that
        suits them best.

        That of n rows with sums S is Σ S log(S/n), up to terms that are the same if the rows of two
        states are put together.
        """
        return np.asarray((statistics[:, 1:] * np.log(self.m_step(statistics).means)).sum(axis=1))

    def to_vector(self) -> FloatArray:
        """Return the emissions as a vector for extrapolation: logarithms of rates."""
        return np.log(self.means).ravel()

    def from_vector(self, vector: FloatArray) -> Poisson:
        """Return the emissions that `to_vector` would return as this vector."""
        return replace(self, means=np.exp(np.clip(vector.reshape(self.means.shape), -300, 300)))

    def split(self, rng: np.random.Generator) -> Poisson:
        """Return two states for each, one after the other, half a standard deviation to either side
        of its rate.
        """
        k, d = self.means.shape
        factors = np.exp(rng.standard_normal((k, d)) / (2 * np.sqrt(np.maximum(self.means, 1.0))))
        return replace(
            self,
            means=np.stack([self.means * factors, self.means / factors], axis=1).reshape(2 * k, d),
        )

    def sample(self, states: IndexArray, rng: np.random.Generator) -> FloatArray:
        """Draw one row for each state of a path."""
        return rng.poisson(self.means[states]).astype(np.float64)


def without_largest(
    logarithms: FloatArray, index: IndexArray
) -> tuple[FloatArray, IndexArray, FloatArray]:
    """Return the exponentials of a table of logarithms, in which each row has a 1, its index, and
    what was omitted.
    """
    largest = reduce(
        np.maximum, logarithms.T
    )  # state by state: along short rows NumPy takes three times as long
    return np.exp(logarithms - largest[:, None]), index, largest


Emissions: TypeAlias = Categorical | Gaussian | Poisson
