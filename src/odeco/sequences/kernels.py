"""The compiled recursions along sequences: forward, backward, the best path, a walk.

What a state makes of a row is a row of a table with one column for each state, and every row of the data says which row
of the table is its own. For symbols the table has a row for each symbol, so that nothing is stored for each row of the
data; for other emissions each row has one of its own. Messages are divided by their sums, so nothing underflows and no
logarithm is taken but one for each row. No probability of a model is zero, so no sum is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from odeco._types import BoolArray, FloatArray, IndexArray

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
