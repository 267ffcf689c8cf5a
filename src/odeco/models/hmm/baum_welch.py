"""A hidden Markov model and the Baum-Welch algorithm: EM on whole sequences, with SQUAREM
extrapolation.

**Recursions.** Rows of all sequences stand one after the other, and `begins` says which of them
begin a sequence. Messages are scaled to sum to one (Rabiner 1989, section V), so nothing underflows
and only one logarithm per row is needed. No probability of a model is zero, not even of a
transition that is forbidden, so no sum is. `table[index[t]]` holds the likelihood of row t in each
state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np
from numba import njit

from odeco._util.state import State, array_field, part_field
from odeco._util.threads import map_blocks
from odeco._util.types import BoolArray, FloatArray, IndexArray
from odeco.models.engine.em import EMResult, squarem
from odeco.models.engine.fit import Statistics
from odeco.models.engine.rows import times
from odeco.models.hmm.emissions import (
    MIN_PROBABILITY,
    Categorical,
    Emissions,
    Gaussian,
    Poisson,
    distributions,
    perturbed_copies,
    squared_roots,
)

#: Compiles a loop that no array operation expresses: once, kept on disk, and run without the
#: interpreter lock.
compiled = njit(
    cache=True, nogil=True, fastmath={"reassoc", "contract", "arcp", "nsz"}, error_model="numpy"
)


@compiled
def add_product(weights: FloatArray, matrix: FloatArray, total: FloatArray) -> None:
    """Add weights @ matrix to a vector."""
    for i in range(weights.shape[0]):
        weight = weights[i]
        row = matrix[np.uint64(i)]
        for j in range(total.shape[0]):
            total[j] += weight * row[j]


@compiled
def add_outer(weights: FloatArray, row: FloatArray, total: FloatArray) -> None:
    """Add the outer product of two vectors to a matrix."""
    for i in range(weights.shape[0]):
        weight = weights[i]
        changed = total[np.uint64(i)]
        for j in range(row.shape[0]):
            changed[j] += weight * row[j]


@compiled
def forward(
    initial: FloatArray,
    transitions: FloatArray,
    table: FloatArray,
    index: IndexArray,
    begins: BoolArray,
    carry: FloatArray,
    filtered: FloatArray,
    scales: FloatArray,
) -> None:
    """Fill `filtered`, P(state | rows so far), and `scales`, the likelihood of each row given those
    before it.

    `carry` is the distribution of the state before the first row, for a first row that does not
    begin a sequence.
    """
    n_states = initial.shape[0]
    before = carry.copy()
    now = np.empty(n_states)
    for t in range(index.shape[0]):
        row = table[np.uint64(index[t])]
        if begins[t]:
            for j in range(n_states):
                now[j] = initial[j] * row[j]
        else:
            now[:] = 0.0
            add_product(before, transitions, now)
            for j in range(n_states):
                now[j] *= row[j]
        total = 0.0
        for j in range(n_states):
            total += now[j]
        scales[t] = total
        alpha = filtered[np.uint64(t)]
        for j in range(n_states):
            before[j] = now[j] / total
            alpha[j] = before[j]


@compiled
def backward(
    transitions: FloatArray,
    transposed: FloatArray,
    table: FloatArray,
    index: IndexArray,
    begins: BoolArray,
    filtered: FloatArray,
    scales: FloatArray,
    weights: FloatArray,
    carry: FloatArray,
    initial_counts: FloatArray,
    transition_counts: FloatArray,
    posterior: FloatArray,
    target: IndexArray,
) -> None:
    """Add up the posterior of states and of transitions, given whole sequences.

    Parameters
    ----------
    transitions, transposed : arrays, k x k
        The transition matrix, and its transpose.
    initial_counts, transition_counts : arrays, k and k x k
        To these the expected numbers of sequences that begin in each state, and of transitions, are
        added.
    posterior : array, any number of rows x k
        To row target[t], P(state of row t | its sequence) is added.
    weights : array
        The weight of each row, which is that of its sequence: all sums are linear in the message
        from the last row.
    carry : array
        The distribution of the state before the first row, if that row does not begin a sequence.
    """
    n_rows, n_states = index.shape[0], initial_counts.shape[0]
    beta = np.full(n_states, weights[n_rows - 1])
    ahead = np.empty(n_states)
    pairs = np.zeros((n_states, n_states))
    for t in range(n_rows - 1, -1, -1):
        alpha = filtered[np.uint64(t)]
        gamma = posterior[np.uint64(target[t])]
        for j in range(n_states):
            gamma[j] += alpha[j] * beta[j]
        if begins[t]:
            for j in range(n_states):
                initial_counts[j] += alpha[j] * beta[j]
            beta[:] = weights[t - 1]
            continue
        row = table[np.uint64(index[t])]
        scale = 1.0 / scales[t]
        for j in range(n_states):
            ahead[j] = row[j] * beta[j] * scale
        previous = filtered[np.uint64(t - 1)] if t > 0 else carry
        beta[:] = 0.0
        add_product(ahead, transposed, beta)
        add_outer(previous, ahead, pairs)
    for i in range(n_states):
        for j in range(n_states):
            transition_counts[i, j] += pairs[i, j] * transitions[i, j]


@compiled
def argmax_of_sum(one: FloatArray, other: FloatArray) -> Any:
    """Return the first index at which the sum of two vectors is largest."""
    best = 0
    for i in range(1, one.shape[0]):
        if one[i] + other[i] > one[best] + other[best]:
            best = i
    return best


@compiled
def viterbi(
    log_initial: FloatArray,
    log_transposed: FloatArray,
    log_table: FloatArray,
    index: IndexArray,
    begins: BoolArray,
    path: IndexArray,
) -> Any:
    """Fill the most probable path of every sequence, and return the log-probability of paths and
    rows together.

    `log_transposed` is the logarithm of the transposed transition matrix.
    """
    n_rows, n_states = index.shape[0], log_initial.shape[0]
    # For a row that begins a sequence, the first entry is the last state of the sequence before it.
    came_from = np.empty((n_rows, n_states), np.int32)
    best, now, zeros = np.zeros(n_states), np.empty(n_states), np.zeros(n_states)
    total = 0.0
    for t in range(n_rows):
        row = log_table[np.uint64(index[t])]
        if begins[t]:
            state = argmax_of_sum(best, zeros)
            came_from[t, 0] = state
            total += best[state]
            for j in range(n_states):
                now[j] = log_initial[j] + row[j]
        else:
            for j in range(n_states):
                arriving = log_transposed[np.uint64(j)]
                state = argmax_of_sum(best, arriving)
                came_from[t, j] = state
                now[j] = best[state] + arriving[state] + row[j]
        for j in range(n_states):
            best[j] = now[j]
    state = argmax_of_sum(best, zeros)
    total += best[state]
    for t in range(n_rows - 1, -1, -1):
        path[t] = state
        state = came_from[t, 0 if begins[t] else state]
    return total


@compiled
def sample_path(
    initial: FloatArray, transitions: FloatArray, uniform: FloatArray, path: IndexArray
) -> None:
    """Fill the states of one sequence by inverting cumulative distributions at uniform numbers."""
    n_states = initial.shape[0]
    for t in range(uniform.shape[0]):
        row = initial if t == 0 else transitions[path[t - 1]]
        state = 0
        while state < n_states - 1 and row[state] <= uniform[t]:
            state += 1
        path[t] = state


#: Whole sequences are processed together until a block has this number of rows.
_BLOCK = 2**15

#: Pseudo-count of every transition and every initial state, so that no probability is zero.
_TRANSITION_PRIOR = 1e-3


@dataclass(frozen=True, eq=False)
class HMMStatistics(Statistics):
    """Sufficient statistics of sequences.

    Attributes
    ----------
    n : float
        Number of rows.
    log_likelihood : float
        The log-likelihood of the rows, given the rows before them.
    initial : array, k
        Expected number of sequences that begin in each state.
    transitions : array, k x k
        Expected number of transitions between each two states.
    emissions : array, k x n_statistics
        Sufficient statistics of the emissions.
    """

    initial: FloatArray = array_field("k", low=0)
    transitions: FloatArray = array_field("k", "k", low=0)
    emissions: FloatArray = array_field("k", None)


@dataclass(frozen=True, eq=False)
class HMM(State):
    """A hidden Markov model.

    Attributes
    ----------
    initial : array, k
        The distribution of the first state of a sequence.
    transitions : array, k x k
        The transition matrix: row i is the distribution of the state after state i.
    emissions : Categorical, Gaussian or Poisson
        The distribution of a row in each state.
    shares : array, k, or None
        The expected share of the rows that each state has; None for a model that was not fitted to
        rows.
    """

    initial: FloatArray = array_field("k", rule=distributions("k"))
    transitions: FloatArray = array_field("k", "k", rule=distributions("k", "k"))
    emissions: Emissions = part_field(Categorical, Gaussian, Poisson)
    shares: FloatArray | None = array_field("k", low=0, high=1 + 1e-9, default=None)

    @property
    def n_states(self) -> int:
        """Number k of states."""
        return self.initial.size

    @property
    def n_parameters(self) -> int:
        """Number of free parameters."""
        k = self.n_states
        return (k - 1) + k * (k - 1) - int(self.forbidden.sum()) + self.emissions.n_parameters

    @property
    def forbidden(self) -> BoolArray:
        """Which transitions are forbidden: those with the smallest probability, which EM gives to
        no other.
        """
        return np.asarray(self.transitions <= MIN_PROBABILITY)

    def with_mask(self, mask: BoolArray) -> HMM:
        """Return the model without the transitions that a mask (k x k) does not allow."""
        kept = np.where(mask, self.transitions, 0.0)
        return replace(
            self, transitions=np.maximum(kept / kept.sum(axis=1, keepdims=True), MIN_PROBABILITY)
        )

    @property
    def stationary(self) -> FloatArray:
        """The stationary distribution: the share of each state in a long sequence."""
        k = self.n_states
        system = np.vstack([self.transitions.T - np.eye(k), np.ones(k)])
        shares = np.maximum(np.linalg.lstsq(system, np.append(np.zeros(k), 1.0), rcond=None)[0], 0)
        return np.asarray(shares / shares.sum())

    @property
    def row_shares(self) -> FloatArray:
        """The share of the rows that each state has; of a model without rows, that of a long
        sequence.
        """
        return self.stationary if self.shares is None else self.shares

    def most_frequent_first(self) -> HMM:
        """Return the same model with its states in the order of their shares of the rows.

        If transitions are forbidden, states keep their places, to which the mask refers.
        """
        return (
            self
            if self.forbidden.any()
            else self.permuted(np.argsort(-self.row_shares, kind="stable"))
        )

    def split(self, rng: np.random.Generator) -> HMM:
        """Return a model with two slightly different states for each."""
        transitions = perturbed_copies(np.repeat(self.transitions, 2, axis=1), rng)
        return HMM(np.repeat(self.initial, 2) / 2, transitions, self.emissions.split(rng))

    def to_vector(self) -> FloatArray:
        """Return the model as a vector for extrapolation; probabilities as square roots, which lie
        on a sphere.
        """
        return np.concatenate([np.sqrt(self.transitions).ravel(), self.emissions.to_vector()])

    def from_vector(self, vector: FloatArray) -> HMM:
        """Return the model that `to_vector` would return as this vector, with the initial
        distribution of this one.
        """
        size = self.transitions.size
        transitions = squared_roots(vector[:size].reshape(self.transitions.shape))
        return HMM(self.initial, transitions, self.emissions.from_vector(vector[size:]))

    def e_step(
        self, rows: Any, begins: BoolArray, weights: FloatArray | None = None
    ) -> HMMStatistics:
        """Return the sufficient statistics of whole sequences; blocks of sequences run in
        threads.
        """
        blocks = list(_blocks(begins))
        parts = map_blocks(
            lambda block: self.e_step_block(
                rows[block],
                begins[block],
                self.initial,
                None if weights is None else weights[block],
            )[0],
            blocks,
            parallel=len(blocks) > 1,
        )
        return reduce(add, parts)

    def e_step_block(
        self, rows: Any, begins: BoolArray, carry: FloatArray, weights: FloatArray | None = None
    ) -> tuple[HMMStatistics, FloatArray]:
        """Return the statistics of consecutive rows, and the filtered state of the last of them.

        `carry` is the filtered state of the row before the first, for a first row that does not
        begin a sequence. `weights` are those of rows, the same for all rows of a sequence.
        """
        table, index, log_factors = self.emissions.likelihoods(rows)
        filtered, scales = self._forward(table, index, begins, carry)
        posterior, n = (
            np.zeros_like(table),
            float(len(begins) if weights is None else weights.sum()),
        )
        initial, transitions = self._backward(
            table, index, begins, filtered, scales, carry, posterior, index, weights
        )
        likelihood = times(np.log(scales), weights).sum()
        likelihood += 0.0 if log_factors is None else times(log_factors, weights).sum()
        emissions = self.emissions.statistics(rows, posterior)
        return HMMStatistics(n, float(likelihood), initial, transitions, emissions), filtered[
            -1
        ].copy()

    def m_step(self, statistics: HMMStatistics) -> HMM:
        """Return the likeliest model for sufficient statistics."""
        initial = statistics.initial + _TRANSITION_PRIOR
        transitions = statistics.transitions + _TRANSITION_PRIOR
        entered = initial + transitions.sum(axis=0)  # every row begins a sequence, or follows a row
        return HMM(
            initial / initial.sum(),
            transitions / transitions.sum(axis=1, keepdims=True),
            self.emissions.m_step(statistics.emissions),
            entered / entered.sum(),
        )

    def log_likelihoods(self, rows: Any, begins: BoolArray) -> FloatArray:
        """Return the log-likelihood of each row given those before it in its sequence."""
        table, index, log_factors = self.emissions.likelihoods(rows)
        scales = self._forward(table, index, begins, self.initial)[1]
        return np.log(scales) if log_factors is None else np.log(scales) + log_factors

    def filtered(self, rows: Any, begins: BoolArray) -> FloatArray:
        """Return the distribution of the state of each row given its sequence up to this row, n x
        k.
        """
        table, index, _ = self.emissions.likelihoods(rows)
        return self._forward(table, index, begins, self.initial)[0]

    def posterior(self, rows: Any, begins: BoolArray) -> FloatArray:
        """Return the distribution of the state of each row given its whole sequence, n x k."""
        table, index, _ = self.emissions.likelihoods(rows)
        filtered, scales = self._forward(table, index, begins, self.initial)
        posterior = np.zeros_like(filtered)
        self._backward(
            table, index, begins, filtered, scales, self.initial, posterior, np.arange(len(begins))
        )
        return np.asarray(posterior / posterior.sum(axis=1, keepdims=True))

    def viterbi(self, rows: Any, begins: BoolArray) -> tuple[IndexArray, float]:
        """Return the most probable path of each sequence, and the log-probability of paths and rows
        together.
        """
        log_table, index = self.emissions.log_likelihoods(rows)
        path = np.empty(len(begins), np.int64)
        log_initial, log_transposed = np.log(self.initial), np.log(self.transitions.T)
        total = viterbi(
            _writable(log_initial),
            _writable(log_transposed),
            _writable(log_table),
            index,
            begins,
            path,
        )
        return path, float(total)

    def sample(self, n_rows: int, rng: np.random.Generator) -> tuple[Any, IndexArray]:
        """Draw one sequence, and its states."""
        path = np.empty(n_rows, np.int64)
        sample_path(
            np.cumsum(self.initial), np.cumsum(self.transitions, axis=1), rng.random(n_rows), path
        )
        return self.emissions.sample(path, rng), path

    def _forward(
        self, table: FloatArray, index: IndexArray, begins: BoolArray, carry: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the filtered states of all rows, and the likelihood of each row given those before
        it.
        """
        filtered, scales = np.empty((len(begins), self.n_states)), np.empty(len(begins))
        initial, transitions = _writable(self.initial), _writable(self.transitions)
        forward(initial, transitions, table, index, begins, _writable(carry), filtered, scales)
        return filtered, scales

    def _backward(
        self,
        table: FloatArray,
        index: IndexArray,
        begins: BoolArray,
        filtered: FloatArray,
        scales: FloatArray,
        carry: FloatArray,
        posterior: FloatArray,
        target: IndexArray,
        weights: FloatArray | None = None,
    ) -> tuple[FloatArray, FloatArray]:
        """Return expected initial states and transitions, and add the posterior of row t to
        posterior[target[t]].
        """
        initial, transitions = np.zeros_like(self.initial), np.zeros_like(self.transitions)
        matrices = (_writable(self.transitions), _writable(self.transitions.T))
        carry, own = (
            _writable(carry),
            np.ones(len(begins)) if weights is None else _writable(weights),
        )
        backward(
            *matrices,
            table,
            index,
            begins,
            filtered,
            scales,
            own,
            carry,
            initial,
            transitions,
            posterior,
            target,
        )
        return initial, transitions


def _writable(array: FloatArray) -> FloatArray:
    """Return a writable copy: a loop would be compiled once more for read-only arrays, such as
    memory maps.
    """
    return np.array(array, order="C")


def _blocks(begins: BoolArray) -> Iterator[slice]:
    """Yield blocks of whole sequences of about `_BLOCK` rows; a longer sequence is a block of its
    own.
    """
    first, last = 0, len(begins)
    starts = np.flatnonzero(begins)
    while first < last:
        later = starts[np.searchsorted(starts, first + _BLOCK) :][:1]
        end = int(later[0]) if later.size else last
        yield slice(first, end)
        first = end


#: EM with SQUAREM extrapolation of hidden Markov models.
squarem_hmm = partial(
    squarem, to_vector=HMM.to_vector, from_vector=lambda vector, hmm: hmm.from_vector(vector)
)


def baum_welch(
    hmm: HMM,
    rows: Any,
    begins: BoolArray,
    weights: FloatArray | None = None,
    *,
    max_iter: int,
    tol: float,
) -> EMResult[HMM]:
    """Run Baum-Welch from a model until an iteration raises the mean log-likelihood of a row by
    less than `tol`.
    """

    def step(at: HMM) -> tuple[HMM, float]:
        statistics = at.e_step(rows, begins, weights)
        return at.m_step(statistics), statistics.log_likelihood / statistics.n

    return squarem_hmm(step, hmm, max_iter=max_iter, tol=tol)
