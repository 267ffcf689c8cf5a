"""What a state makes of a row: a symbol (`symbols`), or a vector of normal distribution (`vectors`).

Both kinds answer the same questions, so that the recursions, the steps and the stream know nothing of either: how
likely each row is in each state, what rows add to the sums that a step needs, and which emissions these sums say.
"""

from __future__ import annotations

from typing import Any, Protocol, Self

import numpy as np

from odeco._types import FloatArray, IndexArray

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
