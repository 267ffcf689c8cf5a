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
from typing import Any, TypeAlias

import numpy as np

from odeco._util.state import Rule, Sizes, State, array, array_field, require, usable_array
from odeco._util.types import FloatArray, IndexArray
from odeco.models.emissions.covariances import KINDS, covariances_rule
from odeco.models.emissions.normal import GaussianPart, draw_rows
from odeco.models.emissions.poisson import PoissonPart
from odeco.models.engine.rows import column_moments, column_ranges

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
        covariances = kind.of_matrix(np.diag(variances), n_states)
        return cls(np.tile(origin, (n_states, 1)), covariances, origin, variances)

    @cached_property
    def part(self) -> GaussianPart:
        """The same states for rows less the origin, divided by their deviations."""
        means = (self.means - self.origin) / self._scale
        return GaussianPart(means, self.covariances / self._units)

    @property
    def full(self) -> bool:
        """Whether features may be correlated within a state."""
        return self.covariances.ndim > 2

    @cached_property
    def _scale(self) -> FloatArray:
        """The standard deviation of each feature over all rows."""
        return np.sqrt(self.total_variances)

    @property
    def _units(self) -> FloatArray:
        """What covariances are divided by for rows that are divided by `_scale`."""
        return np.outer(self._scale, self._scale) if self.full else self.total_variances

    def _of_part(self, part: GaussianPart) -> Gaussian:
        """Return the states that `part` has."""
        means = part.means * self._scale + self.origin
        return replace(self, means=means, covariances=part.covariances * self._units)

    @property
    def variances(self) -> FloatArray:
        """The variance of each feature in each state, k x d."""
        return self.part.variances * self.total_variances

    @property
    def n_statistics(self) -> int:
        """Number of sufficient statistics per state."""
        return self.part.n_sums

    @property
    def n_parameters(self) -> int:
        """Number of free parameters."""
        return len(self.means) * self.part.n_parameters

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
        volumes = ~np.isnan(rows) @ np.log(self._scale)
        table = self.part.log_densities(self.coordinates(rows))
        return table - volumes[:, None], np.arange(len(rows))

    def statistics(self, rows: FloatArray, posterior: FloatArray) -> FloatArray:
        """Return sufficient statistics, k x n_statistics: sums of 1, x and x² or xxᵀ."""
        return self.part.sums(self.coordinates(rows), posterior).T

    def m_step(self, statistics: FloatArray) -> Gaussian:
        """Return the likeliest emissions for sufficient statistics, and further rows of each state
        with its own mean and the variances of all rows.
        """
        part = self.part
        seen, firsts, _ = np.split(statistics, [part.n_seen, part.n_seen + part.width], axis=1)
        means = firsts / np.maximum(seen, np.finfo(np.float64).tiny)
        k, d = means.shape
        further = GaussianPart(means, part.kind.of_matrix(np.eye(d), k))
        sums = statistics.T + _PRIOR_ROWS * further.expected_sums()
        return self._of_part(further.m_step(sums, np.full(d, _MIN_VARIANCE)))

    def max_log_likelihoods(self, statistics: FloatArray) -> FloatArray:
        """Return the log-likelihood of the rows behind each row of statistics in the state that
        suits them best.

        That of n rows with their own mean and covariance is n times the log-density at the mean, up
        to a constant times n, which is left out: it cancels when the rows of two states are put
        together.
        """
        seen = statistics[:, : self.part.n_seen].mean(axis=1)
        return np.asarray(seen * self.m_step(statistics).part.log_peaks)

    def to_vector(self) -> FloatArray:
        """Return the emissions as a vector for extrapolation: means, and log-variances or Cholesky
        factors.
        """
        kind: Any = self.part.kind
        return np.concatenate([self.part.means.ravel(), kind.to_vector(self.part.covariances)])

    def from_vector(self, vector: FloatArray) -> Gaussian:
        """Return the emissions that `to_vector` would return as this vector."""
        k, d = self.means.shape
        kind: Any = self.part.kind
        covariances = kind.from_vector(vector[k * d :], k, d)
        raised = kind.raise_to(covariances, _MIN_VARIANCE)
        return self._of_part(GaussianPart(vector[: k * d].reshape(k, d), raised))

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

    @cached_property
    def part(self) -> PoissonPart:
        """The rates as a part of a mixture has them."""
        return PoissonPart(self.means)

    @property
    def n_statistics(self) -> int:
        """Number of sufficient statistics per state."""
        return self.part.n_sums

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
        return self.part.log_densities(rows), np.arange(len(rows))

    def statistics(self, rows: FloatArray, posterior: FloatArray) -> FloatArray:
        """Return sufficient statistics, k x n_statistics: sums of x, and of 1."""
        return self.part.sums(rows, posterior).T

    def m_step(self, statistics: FloatArray) -> Poisson:
        """Return the likeliest emissions for sufficient statistics."""
        prior = _COUNT_PRIOR * np.append(self.origin, np.ones_like(self.origin))
        like = PoissonPart(np.tile(self.origin, (len(statistics), 1)))
        made = like.m_step((statistics + prior).T, np.zeros(0))
        return replace(self, means=made.rates)

    def max_log_likelihoods(self, statistics: FloatArray) -> FloatArray:
        """Return the log-likelihood of the rows behind each row of statistics in the state that
        suits them best.

        That of n rows with sums S is Σ S log(S/n), up to terms that are the same if the rows of two
        states are put together.
        """
        return np.asarray(
            (statistics[:, : self.origin.size] * np.log(self.m_step(statistics).means)).sum(axis=1)
        )

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
