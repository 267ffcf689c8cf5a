"""The compiled recursions along sequences: forward, backward, Viterbi, and the path of a sample.

Rows of all sequences stand one after the other, and `begins` says which of them begin a sequence. Messages are scaled
to sum to one (Rabiner 1989, section V), so nothing underflows and only one logarithm per row is needed. No probability
of a model is zero, so no sum is. `table[index[t]]` holds the likelihood of row t in each state.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from odeco._util.types import BoolArray, FloatArray, IndexArray

#: Compiles a loop that no array operation expresses: once, kept on disk, and run without the interpreter lock.
compiled = njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "arcp", "nsz"}, error_model="numpy")


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
    """Fill `filtered`, P(state | rows so far), and `scales`, the likelihood of each row given those before it.

    `carry` is the distribution of the state before the first row, for a first row that does not begin a sequence.
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
        To these the expected numbers of sequences that begin in each state, and of transitions, are added.
    posterior : array, any number of rows x k
        To row target[t], P(state of row t | its sequence) is added.
    carry : array
        The distribution of the state before the first row, if that row does not begin a sequence.
    """
    n_rows, n_states = index.shape[0], initial_counts.shape[0]
    beta = np.ones(n_states)
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
            beta[:] = 1.0
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
    """Fill the most probable path of every sequence, and return the log-probability of paths and rows together.

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
def sample_path(initial: FloatArray, transitions: FloatArray, uniform: FloatArray, path: IndexArray) -> None:
    """Fill the states of one sequence by inverting cumulative distributions at uniform numbers."""
    n_states = initial.shape[0]
    for t in range(uniform.shape[0]):
        row = initial if t == 0 else transitions[path[t - 1]]
        state = 0
        while state < n_states - 1 and row[state] <= uniform[t]:
            state += 1
        path[t] = state
