"""A hidden Markov model, and what it says about sequences: expected counts, states, likelihoods.

Rows of all sequences stand one after the other, and a flag says which of them begin a sequence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from odeco._threads import map_blocks
from odeco._types import BoolArray, FloatArray, IndexArray
from odeco.sequences.emissions import Emissions, squared_shares, twice
from odeco.sequences.kernels import backward, best_path, forward, walk

#: Sequences are worked on together until they have this many rows.
_GROUP = 2**15
#: How often every move counts before any is seen: no probability is zero.
_MOVE_PRIOR = 1e-3


@dataclass(frozen=True, eq=False)
class Expected:
    """Sums over rows that a likelihood step needs, and that of several parts add up.

    Attributes
    ----------
    started : array, k
        Expected number of sequences that begin in each state.
    moved : array, k x k
        Expected number of moves from one state to another.
    emitted : array, k x anything
        What the emissions need.
    log_likelihood : float
        The log-likelihood of the rows, those before a first row that begins no sequence given.
    n_rows : int
        How many rows there are.
    """

    started: FloatArray
    moved: FloatArray
    emitted: FloatArray
    log_likelihood: float
    n_rows: int

    def __add__(self, other: Expected) -> Expected:
        return Expected(
            self.started + other.started,
            self.moved + other.moved,
            self.emitted + other.emitted,
            self.log_likelihood + other.log_likelihood,
            self.n_rows + other.n_rows,
        )


@dataclass(frozen=True, eq=False)
class Chain:
    """A hidden Markov model.

    Attributes
    ----------
    start : array, k
        The distribution of the first state of a sequence.
    transitions : array, k x k
        The distribution of the next state, for each state.
    emissions : Emissions
        What states emit.
    """

    start: FloatArray
    transitions: FloatArray
    emissions: Emissions

    @property
    def shares(self) -> FloatArray:
        """How much of a long sequence each state has."""
        k = self.start.size
        system = np.vstack([self.transitions.T - np.eye(k), np.ones(k)])
        shares = np.maximum(np.linalg.lstsq(system, np.append(np.zeros(k), 1.0), rcond=None)[0], 0)
        stationary: FloatArray = shares / shares.sum()
        return stationary

    def maximised(self, expected: Expected) -> Chain:
        """Return the model that makes the expected counts most likely."""
        start, moves = expected.started + _MOVE_PRIOR, expected.moved + _MOVE_PRIOR
        return Chain(
            start / start.sum(),
            moves / moves.sum(axis=1, keepdims=True),
            self.emissions.maximised(expected.emitted),
        )

    def coordinates(self) -> FloatArray:
        """Return the model as a vector; probabilities by their roots, which lie on a sphere."""
        return np.concatenate([np.sqrt(self.transitions).ravel(), self.emissions.coordinates()])

    def at(self, coordinates: FloatArray) -> Chain:
        """Return the model with these coordinates, and the start of this one."""
        size = self.transitions.size
        moves = squared_shares(coordinates[:size].reshape(self.transitions.shape))
        return Chain(self.start, moves, self.emissions.at(coordinates[size:]))

    def doubled(self, rng: np.random.Generator) -> Chain:
        """Return a model with two states for each, which differ a little."""
        moves = twice(np.repeat(self.transitions, 2, axis=1), rng)
        return Chain(np.repeat(self.start, 2) / 2, moves, self.emissions.doubled(rng))

    def ordered(self) -> Chain:
        """Return the same model, with its most frequent state first."""
        order = np.argsort(-self.shares, kind="stable")
        return Chain(self.start[order], self.transitions[np.ix_(order, order)], self.emissions.ordered(order))

    # ---- what it says about sequences ------------------------------------------------------------------------------

    def expected(self, rows: Any, begins: BoolArray) -> Expected:
        """Return the sums that a likelihood step needs, over whole sequences: groups of them in threads."""
        groups = list(_groups(begins))
        work = map_blocks(
            lambda part: self.expected_of_block(rows[part], begins[part], self.start)[0],
            groups,
            parallel=len(groups) > 1,
        )
        total = next(work)
        for each in work:
            total = total + each
        return total

    def expected_of_block(self, rows: Any, begins: BoolArray, entering: FloatArray) -> tuple[Expected, FloatArray]:
        """Return the sums over some rows, and the states of the last; `entering` are those of the row before them."""
        table, index, factors = self.emissions.likelihoods(rows)
        filtered, scales = self._filtered(table, index, begins, entering)
        occupied = np.zeros_like(table)
        started, moved = self._smoothed(table, index, begins, filtered, scales, entering, occupied, index)
        likelihood = float(np.log(scales).sum() + (0.0 if factors is None else factors.sum()))
        emitted = self.emissions.emitted(rows, occupied)
        return Expected(started, moved, emitted, likelihood, len(begins)), filtered[-1].copy()

    def log_likelihoods(self, rows: Any, begins: BoolArray) -> FloatArray:
        """Return the log-likelihood of every row given those before it in its sequence."""
        table, index, factors = self.emissions.likelihoods(rows)
        scales = self._filtered(table, index, begins, self.start)[1]
        return np.log(scales) if factors is None else np.log(scales) + factors

    def posterior(self, rows: Any, begins: BoolArray) -> FloatArray:
        """Return the distribution of the state of every row given its whole sequence, n x k."""
        table, index, _ = self.emissions.likelihoods(rows)
        filtered, scales = self._filtered(table, index, begins, self.start)
        occupied = np.zeros_like(filtered)
        self._smoothed(table, index, begins, filtered, scales, self.start, occupied, np.arange(len(begins)))
        states: FloatArray = occupied / occupied.sum(axis=1, keepdims=True)
        return states

    def path(self, rows: Any, begins: BoolArray) -> tuple[IndexArray, float]:
        """Return the most probable states of every sequence, and the logarithm of their probability with the rows."""
        table, index = self.emissions.log_likelihoods(rows)
        path = np.empty(len(begins), np.int64)
        start, onward = np.log(self.start), np.log(self.transitions.T)
        total = best_path(_own(start), _own(onward), _own(table), index, begins, path)
        return path, float(total)

    def sample(self, n_rows: int, rng: np.random.Generator) -> tuple[Any, IndexArray]:
        """Draw one sequence, and its states."""
        path = np.empty(n_rows, np.int64)
        walk(np.cumsum(self.start), np.cumsum(self.transitions, axis=1), rng.random(n_rows), path)
        return self.emissions.sample(path, rng), path

    def _filtered(
        self, table: FloatArray, index: IndexArray, begins: BoolArray, entering: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the states of every row given the rows so far, and the probability of the row given those before."""
        filtered, scales = np.empty((len(begins), self.start.size)), np.empty(len(begins))
        forward(_own(self.start), _own(self.transitions), table, index, begins, _own(entering), filtered, scales)
        return filtered, scales

    def _smoothed(
        self,
        table: FloatArray,
        index: IndexArray,
        begins: BoolArray,
        filtered: FloatArray,
        scales: FloatArray,
        entering: FloatArray,
        occupied: FloatArray,
        place: IndexArray,
    ) -> tuple[FloatArray, FloatArray]:
        """Return starts and moves, and add the states of every row to its place in `occupied`."""
        started, moved = np.zeros_like(self.start), np.zeros_like(self.transitions)
        moves = (_own(self.transitions), _own(self.transitions.T))
        backward(*moves, table, index, begins, filtered, scales, _own(entering), started, moved, occupied, place)
        return started, moved


def _own(array: FloatArray) -> FloatArray:
    """Return a copy that may be written to: a loop is compiled anew for arrays that may not, such as mapped ones."""
    return np.array(array, order="C")


def _groups(begins: BoolArray) -> Iterator[slice]:
    """Yield stretches of whole sequences with about as many rows as a group has; a long sequence is one of its own."""
    first, last = 0, len(begins)
    places = np.flatnonzero(begins)
    while first < last:
        later = places[np.searchsorted(places, first + _GROUP) :][:1]
        end = int(later[0]) if later.size else last
        yield slice(first, end)
        first = end
