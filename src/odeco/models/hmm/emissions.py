"""What a state makes of a row: a symbol (`symbols`), or a vector of normal distribution (`vectors`).

Both kinds answer the same questions, so that the recursions, the steps and the stream know nothing of either: how
likely each row is in each state, what rows add to the sums that a step needs, and which emissions these sums say.

Emissions that are symbols.

Emissions that are vectors of normal distribution.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Protocol, Self

import numpy as np

from odeco._util.types import FloatArray, IndexArray

#: The least root of a probability.
_LEAST_ROOT = 1e-5


class Emissions(Protocol):
    """What states emit."""

    @property
    def n_sums(self) -> int:
        """How many sums a step needs for each state."""

    def likelihoods(self, rows: Any) -> tuple[FloatArray, IndexArray, FloatArray | None]:
        """Return a table of likelihoods, the row of it that each row has, and logarithms of factors taken out."""

    def log_likelihoods(self, rows: Any) -> tuple[FloatArray, IndexArray]:
        """Return a table of logarithms of likelihoods, and the row of it that each row has."""

    def emitted(self, rows: Any, occupied: FloatArray) -> FloatArray:
        """Return the sums of rows, k x n_sums; `occupied` are the states of the rows of the table."""

    def maximised(self, emitted: FloatArray) -> Self:
        """Return the emissions that make rows with such sums most likely."""

    def likelihoods_alone(self, emitted: FloatArray) -> FloatArray:
        """Return, for every row of sums, the log-likelihood of its rows in the best state for them, up to a constant.

        The constant is a multiple of their number, so that it cancels where the rows of two states are put together.
        """

    def coordinates(self) -> FloatArray:
        """Return the emissions as a vector, each part in units of its own size."""

    def at(self, coordinates: FloatArray) -> Self:
        """Return the emissions with these coordinates."""

    def doubled(self, rng: np.random.Generator) -> Self:
        """Return every state twice, one after the other, each a little different."""

    def ordered(self, order: IndexArray) -> Self:
        """Return the emissions of the states in another order."""

    def sample(self, states: IndexArray, rng: np.random.Generator) -> Any:
        """Draw a row for every state."""


def squared_shares(roots: FloatArray) -> FloatArray:
    """Return distributions, one a row, from the roots of their probabilities, which may be off by anything."""
    shares = np.maximum(roots, _LEAST_ROOT) ** 2
    probabilities: FloatArray = shares / shares.sum(axis=1, keepdims=True)
    return probabilities


def likelihoods_of_counts(counts: FloatArray) -> FloatArray:
    """Return Σ n log(n / Σ n), the log-likelihood of counts n under their own shares, for every row of counts."""
    tiny = np.finfo(np.float64).tiny
    totals = counts.sum(axis=1)
    likelihoods: FloatArray = (counts * np.log(counts + tiny)).sum(axis=1) - totals * np.log(totals + tiny)
    return likelihoods


def twice(distributions: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return every distribution twice, one after the other, with each probability changed by a random factor."""
    copies = np.repeat(distributions, 2, axis=0)
    changed = copies * rng.uniform(0.2, 1.8, copies.shape)
    probabilities: FloatArray = changed / changed.sum(axis=1, keepdims=True)
    return probabilities


#: How often every symbol counts in every state before any row is seen: no probability is zero.
_SYMBOL_PRIOR = 1e-3


@dataclass(frozen=True, eq=False)
class Symbols:
    """Whole numbers from 0 to V − 1; `probabilities` is k x V."""

    probabilities: FloatArray

    @property
    def n_sums(self) -> int:
        """How many sums a step needs for each state."""
        return int(self.probabilities.shape[1])

    def likelihoods(self, rows: IndexArray) -> tuple[FloatArray, IndexArray, None]:
        """Return a table of likelihoods, the row of it that each row has, and logarithms of factors taken out."""
        return np.array(self.probabilities.T, order="C"), rows, None

    def log_likelihoods(self, rows: IndexArray) -> tuple[FloatArray, IndexArray]:
        """Return a table of logarithms of likelihoods, and the row of it that each row has."""
        return np.log(self.probabilities.T), rows

    def emitted(self, rows: IndexArray, occupied: FloatArray) -> FloatArray:  # noqa: ARG002 - occupied is by symbols
        """Return the sums of rows, k x anything; `occupied` are the states of the rows of the table."""
        return occupied.T

    def maximised(self, emitted: FloatArray) -> Symbols:
        """Return the emissions that make rows with such sums most likely."""
        counts = emitted + _SYMBOL_PRIOR
        return Symbols(counts / counts.sum(axis=1, keepdims=True))

    def likelihoods_alone(self, emitted: FloatArray) -> FloatArray:
        """Return, for every row of sums, the log-likelihood of its rows in the best state for them."""
        return likelihoods_of_counts(emitted)

    def coordinates(self) -> FloatArray:
        """Return the emissions as a vector, each part in units of its own size."""
        return np.sqrt(self.probabilities).ravel()

    def at(self, coordinates: FloatArray) -> Symbols:
        """Return the emissions with these coordinates."""
        return Symbols(squared_shares(coordinates.reshape(self.probabilities.shape)))

    def doubled(self, rng: np.random.Generator) -> Symbols:
        """Return every state twice, one after the other, each a little different."""
        return Symbols(twice(self.probabilities, rng))

    def ordered(self, order: IndexArray) -> Symbols:
        """Return the emissions of the states in another order."""
        return Symbols(self.probabilities[order])

    def sample(self, states: IndexArray, rng: np.random.Generator) -> IndexArray:
        """Draw a row for every state."""
        drawn = np.empty(states.size, np.int64)
        for state, probabilities in enumerate(self.probabilities):
            mine = np.flatnonzero(states == state)
            drawn[mine] = rng.choice(probabilities.size, mine.size, p=probabilities / probabilities.sum())
        return drawn


#: How many rows with the variance of all rows every state has before any row is seen: no state shrinks to a point.
_ROW_PRIOR = 0.1

#: No variance is below this share of the variance of all rows.
_LEAST_VARIANCE = 1e-6


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Vectors with a mean and a covariance in each state.

    Attributes
    ----------
    means : array, k x d
        The means.
    covariances : array, k x d x d or k x d x 1
        The covariances, or the variances of features that are independent within a state.
    centre, spread : array
        Mean and variance of all features, over all rows: sums are taken of rows less the centre, so that they do not
        cancel, and the spread is what variances are compared with.
    """

    means: FloatArray
    covariances: FloatArray
    centre: FloatArray
    spread: FloatArray

    @classmethod
    def around(cls, rows: FloatArray, n_states: int, *, full: bool) -> Gaussians:
        """Return states that all have the distribution of the rows."""
        centre = rows.mean(axis=0)
        spread = rows.var(axis=0)
        largest = spread.max(initial=0.0)
        spread = np.maximum(spread, 1e-12 * largest if largest > 0 else 1.0)
        variances = np.diag(spread) if full else spread[:, None]
        return cls(np.tile(centre, (n_states, 1)), np.tile(variances, (n_states, 1, 1)), centre, spread)

    @property
    def full(self) -> bool:
        """Whether features may depend on each other within a state."""
        return bool(self.covariances.shape[2] > 1)

    @property
    def n_sums(self) -> int:
        """How many sums a step needs for each state."""
        d = self.means.shape[1]
        return int(1 + d + (d * d if self.full else d))

    def likelihoods(self, rows: FloatArray) -> tuple[FloatArray, IndexArray, FloatArray]:
        """Return a table of likelihoods, the row of it that each row has, and logarithms of factors taken out."""
        logarithms, index = self.log_likelihoods(rows)
        largest = reduce(np.maximum, logarithms.T)  # state by state: along short rows NumPy takes three times as long
        return np.exp(logarithms - largest[:, None]), index, largest

    def log_likelihoods(self, rows: FloatArray) -> tuple[FloatArray, IndexArray]:
        """Return a table of logarithms of likelihoods, and the row of it that each row has."""
        return self._log_densities(rows), np.arange(len(rows))

    def emitted(self, rows: FloatArray, occupied: FloatArray) -> FloatArray:
        """Return the sums of rows, k x anything; `occupied` are the states of the rows of the table."""
        rows = rows - self.centre
        totals, firsts = occupied.sum(axis=0)[:, None], occupied.T @ rows
        if not self.full:
            return np.hstack([totals, firsts, occupied.T @ rows**2])
        seconds = [((rows * share[:, None]).T @ rows).ravel() for share in occupied.T]
        return np.hstack([totals, firsts, np.array(seconds)])

    def maximised(self, emitted: FloatArray) -> Gaussians:
        """Return the emissions that make rows with such sums most likely."""
        d = self.means.shape[1]
        totals, firsts, seconds = emitted[:, :1], emitted[:, 1 : 1 + d], emitted[:, 1 + d :]
        rows = np.maximum(totals, np.finfo(np.float64).tiny)
        means = firsts / rows
        prior = _ROW_PRIOR * (np.diag(self.spread) if self.full else self.spread[:, None])
        if self.full:
            around = seconds.reshape(-1, d, d) - means[:, :, None] * firsts[:, None, :]
        else:
            around = (seconds - means * firsts)[:, :, None]
        covariances = (around + prior) / (totals + _ROW_PRIOR)[:, :, None]
        return replace(self, means=means + self.centre, covariances=self._floored(covariances))

    def likelihoods_alone(self, emitted: FloatArray) -> FloatArray:
        """Return, for every row of sums, the log-likelihood of its rows in the best state for them, up to a constant.

        That of n rows with their own mean and covariance Σ is −n/2 log |Σ|, less a constant times n.
        """
        covariances = self.maximised(emitted).covariances
        if self.full:
            determinants = np.linalg.slogdet(covariances / np.sqrt(np.outer(self.spread, self.spread)))[1]
        else:
            determinants = np.log(covariances[:, :, 0] / self.spread).sum(axis=1)
        likelihoods: FloatArray = -emitted[:, 0] / 2 * determinants
        return likelihoods

    def coordinates(self) -> FloatArray:
        """Return the emissions as a vector, each part in units of its own size."""
        scale = np.sqrt(self.spread)
        means = (self.means - self.centre) / scale
        if not self.full:
            return np.concatenate([means.ravel(), np.log(self.covariances[:, :, 0] / self.spread).ravel()])
        lower = np.linalg.cholesky(self.covariances / np.outer(scale, scale))
        rows, columns = np.tril_indices(scale.size, -1)
        diagonals = np.log(np.diagonal(lower, axis1=1, axis2=2))
        return np.concatenate([means.ravel(), diagonals.ravel(), lower[:, rows, columns].ravel()])

    def at(self, coordinates: FloatArray) -> Gaussians:
        """Return the emissions with these coordinates."""
        k, d = self.means.shape
        scale = np.sqrt(self.spread)
        means = coordinates[: k * d].reshape(k, d) * scale + self.centre
        logarithms = np.clip(coordinates[k * d : 2 * k * d].reshape(k, d), -300, 300)
        if not self.full:
            covariances = (np.exp(logarithms) * self.spread)[:, :, None]
        else:
            lower = np.zeros((k, d, d))
            lower[:, np.arange(d), np.arange(d)] = np.exp(logarithms)
            rows, columns = np.tril_indices(d, -1)
            lower[:, rows, columns] = coordinates[2 * k * d :].reshape(k, -1)
            covariances = (lower @ lower.transpose(0, 2, 1)) * np.outer(scale, scale)
        return replace(self, means=means, covariances=self._floored(covariances))

    def doubled(self, rng: np.random.Generator) -> Gaussians:
        """Return every state twice, one after the other, half a standard deviation to either side of its mean."""
        k, d = self.means.shape
        variances = np.diagonal(self.covariances, axis1=1, axis2=2) if self.full else self.covariances[:, :, 0]
        aside = rng.standard_normal((k, d)) * np.sqrt(variances) / 2
        means = np.stack([self.means + aside, self.means - aside], axis=1).reshape(2 * k, d)
        return replace(self, means=means, covariances=np.repeat(self.covariances, 2, axis=0))

    def ordered(self, order: IndexArray) -> Gaussians:
        """Return the emissions of the states in another order."""
        return replace(self, means=self.means[order], covariances=self.covariances[order])

    def sample(self, states: IndexArray, rng: np.random.Generator) -> FloatArray:
        """Draw a row for every state."""
        normal = rng.standard_normal((states.size, self.means.shape[1]))
        if not self.full:
            drawn: FloatArray = self.means[states] + normal * np.sqrt(self.covariances[states, :, 0])
            return drawn
        for state, lower in enumerate(np.linalg.cholesky(self.covariances)):
            mine = states == state
            normal[mine] = normal[mine] @ lower.T + self.means[state]
        return normal

    def _log_densities(self, rows: FloatArray) -> FloatArray:
        """Return the logarithm of the density of every row in every state, n x k."""
        scale = np.sqrt(self.spread)
        rows, means = (rows - self.centre) / scale, (self.means - self.centre) / scale
        constant = rows.shape[1] * np.log(2 * np.pi) + np.log(self.spread).sum()
        if not self.full:
            precisions = (self.spread[:, None] / self.covariances)[:, :, 0]
            distances = (rows**2) @ precisions.T - 2 * (rows @ (means * precisions).T)
            distances += np.sum(means**2 * precisions, axis=1)
            densities: FloatArray = -0.5 * (np.maximum(distances, 0) + constant - np.log(precisions).sum(axis=1))
            return densities
        densities = np.empty((len(rows), len(means)))
        for state, lower in enumerate(np.linalg.cholesky(self.covariances / np.outer(scale, scale))):
            away = np.linalg.solve(lower, (rows - means[state]).T)
            determinant = 2 * np.log(np.diag(lower)).sum()
            densities[:, state] = -0.5 * (np.sum(away**2, axis=0) + constant + determinant)
        return densities

    def _floored(self, covariances: FloatArray) -> FloatArray:
        """Return covariances of which no direction has less than the least variance."""
        if not self.full:
            return np.maximum(covariances, _LEAST_VARIANCE * self.spread[:, None])
        scale = np.sqrt(self.spread)
        values, vectors = np.linalg.eigh(covariances / np.outer(scale, scale))
        low = values[:, 0] < _LEAST_VARIANCE
        if low.any():
            raised = vectors[low] * np.maximum(values[low], _LEAST_VARIANCE)[:, None, :]
            covariances = covariances.copy()
            covariances[low] = (raised @ vectors[low].transpose(0, 2, 1)) * np.outer(scale, scale)
        return covariances
