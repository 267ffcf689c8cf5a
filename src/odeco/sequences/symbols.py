"""Emissions that are symbols."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from odeco._types import FloatArray, IndexArray
from odeco.sequences.emissions import likelihoods_of_counts, squared_shares, twice

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
