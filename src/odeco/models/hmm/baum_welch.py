"""The compiled recursions along sequences: forward, backward, the best path, a walk.

What a state makes of a row is a row of a table with one column for each state, and every row of the data says which row
of the table is its own. For symbols the table has a row for each symbol, so that nothing is stored for each row of the
data; for other emissions each row has one of its own. Messages are divided by their sums, so nothing underflows and no
logarithm is taken but one for each row. No probability of a model is zero, so no sum is.

A hidden Markov model, and what it says about sequences: expected counts, states, likelihoods.

Rows of all sequences stand one after the other, and a flag says which of them begin a sequence.

Baum-Welch steps on whole sequences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numba import njit

from odeco._util.threads import map_blocks
from odeco._util.types import BoolArray, FloatArray, IndexArray
from odeco.models.engine.em import Climbed, Step, best_of, climb_ahead
from odeco.models.hmm.emissions import Emissions, squared_shares, twice

#: Compiles a loop that no array operation expresses: once, kept on disk, and run without the interpreter lock.
compiled = njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "arcp", "nsz"}, error_model="numpy")


@compiled
def add_product(weights: FloatArray, rows: FloatArray, total: FloatArray) -> None:
    """Add the rows of a matrix to a vector, each with its weight."""
    for i in range(weights.shape[0]):
        weight = weights[i]
        row = rows[np.uint64(i)]
        for j in range(total.shape[0]):
            total[j] += weight * row[j]


@compiled
def add_outer(weights: FloatArray, row: FloatArray, total: FloatArray) -> None:
    """Add a row to each row of a matrix, each with its weight."""
    for i in range(weights.shape[0]):
        weight = weights[i]
        taken = total[np.uint64(i)]
        for j in range(row.shape[0]):
            taken[j] += weight * row[j]


@compiled
def forward(
    start: FloatArray,
    transitions: FloatArray,
    table: FloatArray,
    index: IndexArray,
    begins: BoolArray,
    entering: FloatArray,
    filtered: FloatArray,
    scales: FloatArray,
) -> None:
    """Fill P(state | rows so far) for every row, and the probability of the row given those before it.

    Rows that begin a sequence come from `start`; a first row that does not comes from the states `entering`, which are
    those of the row before it.
    """
    n_states = start.shape[0]
    before = entering.copy()
    now = np.empty(n_states)
    for t in range(index.shape[0]):
        row = table[np.uint64(index[t])]
        if begins[t]:
            for j in range(n_states):
                now[j] = start[j] * row[j]
        else:
            now[:] = 0.0
            add_product(before, transitions, now)
            for j in range(n_states):
                now[j] *= row[j]
        total = 0.0
        for j in range(n_states):
            total += now[j]
        scales[t] = total
        kept = filtered[np.uint64(t)]
        for j in range(n_states):
            before[j] = now[j] / total
            kept[j] = before[j]


@compiled
def backward(
    transitions: FloatArray,
    onward: FloatArray,
    table: FloatArray,
    index: IndexArray,
    begins: BoolArray,
    filtered: FloatArray,
    scales: FloatArray,
    entering: FloatArray,
    started: FloatArray,
    moved: FloatArray,
    occupied: FloatArray,
    place: IndexArray,
) -> None:
    """Add up what the states of all rows are given whole sequences.

    Parameters
    ----------
    transitions, onward : arrays, k x k
        The probability of the next state for each state, and the same with rows and columns exchanged.
    started, moved : arrays, k and k x k
        Take the expected number of sequences that begin in a state, and of moves from one state to another.
    occupied : array, anything x k
        Row place[t] takes P(state of row t | its sequence).
    entering : array
        The states of the row before the first, if that row does not begin a sequence.
    """
    n_rows, n_states = index.shape[0], started.shape[0]
    later = np.ones(n_states)
    ahead = np.empty(n_states)
    pairs = np.zeros((n_states, n_states))
    for t in range(n_rows - 1, -1, -1):
        here = filtered[np.uint64(t)]
        seen = occupied[np.uint64(place[t])]
        for j in range(n_states):
            seen[j] += here[j] * later[j]
        if begins[t]:
            for j in range(n_states):
                started[j] += here[j] * later[j]
            later[:] = 1.0
            continue
        row = table[np.uint64(index[t])]
        scale = 1.0 / scales[t]
        for j in range(n_states):
            ahead[j] = row[j] * later[j] * scale
        previous = filtered[np.uint64(t - 1)] if t > 0 else entering
        later[:] = 0.0
        add_product(ahead, onward, later)
        add_outer(previous, ahead, pairs)
    for i in range(n_states):
        for j in range(n_states):
            moved[i, j] += pairs[i, j] * transitions[i, j]


@compiled
def largest_sum(one: FloatArray, other: FloatArray) -> Any:
    """Return the first place at which the sum of two vectors is largest."""
    place = 0
    for i in range(1, one.shape[0]):
        if one[i] + other[i] > one[place] + other[place]:
            place = i
    return place


@compiled
def best_path(
    log_start: FloatArray,
    log_onward: FloatArray,
    log_table: FloatArray,
    index: IndexArray,
    begins: BoolArray,
    path: IndexArray,
) -> Any:
    """Fill the most probable states of every sequence, and return the logarithm of their probability with the rows.

    `log_onward` has a row for each state that is moved to.
    """
    n_rows, n_states = index.shape[0], log_start.shape[0]
    # Of a row that begins a sequence, the first number is the state in which the sequence before it ends.
    came_from = np.empty((n_rows, n_states), np.int32)
    best, now, nothing = np.zeros(n_states), np.empty(n_states), np.zeros(n_states)
    total = 0.0
    for t in range(n_rows):
        row = log_table[np.uint64(index[t])]
        if begins[t]:
            state = largest_sum(best, nothing)
            came_from[t, 0] = state
            total += best[state]
            for j in range(n_states):
                now[j] = log_start[j] + row[j]
        else:
            for j in range(n_states):
                arriving = log_onward[np.uint64(j)]
                state = largest_sum(best, arriving)
                came_from[t, j] = state
                now[j] = best[state] + arriving[state] + row[j]
        for j in range(n_states):
            best[j] = now[j]
    state = largest_sum(best, nothing)
    total += best[state]
    for t in range(n_rows - 1, -1, -1):
        path[t] = state
        state = came_from[t, 0 if begins[t] else state]
    return total


@compiled
def walk(start: FloatArray, transitions: FloatArray, uniform: FloatArray, path: IndexArray) -> None:
    """Fill the states of one sequence: of cumulated probabilities, the first that passes a uniform number."""
    n_states = start.shape[0]
    for t in range(uniform.shape[0]):
        row = start if t == 0 else transitions[path[t - 1]]
        state = 0
        while state < n_states - 1 and row[state] <= uniform[t]:
            state += 1
        path[t] = state


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


#: Looks ahead along the steps so far.
_climb = partial(climb_ahead, coordinates=Chain.coordinates, model_at=lambda coordinates, model: model.at(coordinates))


def climbed(chain: Chain, rows: Any, begins: BoolArray, *, n_steps: int, tolerance: float) -> Climbed[Chain]:
    """Take Baum-Welch steps from a model; the tolerance is of the mean log-likelihood of a row."""
    return _climb(_step_on(rows, begins), chain, n_steps=n_steps, tolerance=tolerance)


def climbed_from_best(
    chains: Iterable[Chain], rows: Any, begins: BoolArray, *, n_trial_steps: int, n_steps: int, tolerance: float
) -> Climbed[Chain]:
    """Take a few steps from every model, and the rest from where the likelihood is highest then."""
    return best_of(
        chains,
        _step_on(rows, begins),
        n_trial_steps=min(n_trial_steps, n_steps),
        n_steps=n_steps,
        tolerance=tolerance,
        climber=_climb,
    )


def _step_on(rows: Any, begins: BoolArray) -> Step[Chain]:
    def step(model: Chain) -> tuple[Chain, float]:
        expected = model.expected(rows, begins)
        return model.maximised(expected), expected.log_likelihood / expected.n_rows

    return step
