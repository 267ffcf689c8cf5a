"""Compiled loops of the Gibbs sampler: draw first topics, and sweep over the documents of a lane.

Tables have one row of single-precision numbers for each word, padded with zeros to a multiple of
eight topics. The only long loop, a product and a sum over a row, is then a handful of vector
instructions. Counts are whole numbers below 2^24, which single precision represents exactly.
Unsigned indices and views of rows are there for speed: with signed indices, which may count from
the end, the compiler does not see that a row is contiguous, and the loop is 5 times slower.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

from odeco._util.types import FloatArray

Table: TypeAlias = NDArray[np.float32]


#: Rows of tables are padded to a multiple of this many topics.
WIDTH = 8

#: Every word must occur fewer times than this, so that its counts stay exact.
LARGEST_COUNT = 2**24

#: Compiles a loop that no array operation expresses: once, kept on disk, and run without the
#: interpreter lock.
compiled = njit(cache=True, nogil=True, fastmath=True, error_model="numpy")


@compiled
def random_unit(state: np.uint64) -> tuple[Any, Any]:
    """Advance a splitmix64 state and return it with a number in [0, 1) of 24 bits."""
    state += np.uint64(0x9E3779B97F4A7C15)
    mixed = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return state, np.float32(np.int32(mixed >> np.uint64(40))) * np.float32(1.0 / 16777216.0)


@compiled
def search(weight: Table, row: Table, eta: np.float32, n_topics: int, level: np.float32) -> Any:
    """Return the first topic at which the running sum of weight[k] (row[k] + eta) passes the
    level.
    """
    running = np.float32(0)
    found = np.uint64(0)
    for k in range(n_topics):
        step = weight[k] * (row[k] + eta)
        running += step
        # Rounding may leave the level above the whole sum; the last topic with any chance is then
        # returned.
        if step > 0:
            found = np.uint64(k)
        if running > level:
            break
    return found


@compiled
def fold_in(
    words: NDArray[np.int32], table: Table, alpha: Table, n_steps: int, share: Table
) -> None:
    """Find a document's expected topic counts: share[k] = alpha[k] + sum over its tokens of P(k |
    word, share).
    """
    width = alpha.shape[0]
    gathered = np.empty(width, np.float32)
    share[:] = alpha
    for _ in range(n_steps):
        gathered[:] = alpha
        for word in words:
            row = table[np.uint64(word)]
            total = np.float32(0)
            for k in range(width):
                total += share[k] * row[k]
            scale = np.float32(1) / total
            for k in range(width):
                gathered[k] += share[k] * row[k] * scale
        share[:] = gathered


@compiled
def draw_topics(
    starts: NDArray[np.int64],
    words: NDArray[np.int32],
    topics: NDArray[np.uint16],
    table: Table,
    alpha: Table,
    n_topics: int,
    n_steps: int,
    seed: np.uint64,
) -> None:
    """Draw a topic for each token of the documents, given topics, as rows of words, that stay."""
    width = alpha.shape[0]
    share = np.empty(width, np.float32)
    state = seed
    for document in range(len(starts) - 1):
        fold_in(words[starts[document] : starts[document + 1]], table, alpha, n_steps, share)
        for token in range(starts[document], starts[document + 1]):
            row = table[np.uint64(words[token])]
            total = np.float32(0)
            for k in range(width):
                total += share[k] * row[k]
            state, unit = random_unit(state)
            topics[token] = search(share, row, np.float32(0), n_topics, unit * total)


@compiled
def count_topics(words: NDArray[np.int32], topics: NDArray[np.uint16], table: Table) -> None:
    """Add all tokens to the word-topic table."""
    for token in range(len(words)):
        table[np.uint64(words[token]), np.uint64(topics[token])] += np.float32(1)


@compiled
def sweep_documents(  # noqa: C901 - the hot loop, in one piece
    starts: NDArray[np.int64],
    words: NDArray[np.int32],
    topics: NDArray[np.uint16],
    table: Table,
    totals: FloatArray,
    alpha: Table,
    eta: np.float32,
    eta_total: float,
    n_topics: int,
    seed: np.uint64,
    expected: Table,
    histogram: NDArray[np.int64],
) -> None:
    """Draw the topic of each token of the documents anew, given the topics of all other tokens.

    This is one sweep of collapsed Gibbs sampling: P(topic k) is proportional to (n_dk +
    alpha_k)(n_wk + eta)/(n_k + V eta), the token itself not counted. ``table`` and ``totals``
    change with every draw. If ``expected`` has rows, these probabilities are added to it.
    ``histogram[k, n]`` counts documents with n > 0 tokens of topic k.

    Most tokens keep their topic. So all probabilities are summed with the token still counted,
    which needs no store before the vector loads; only the term of its own topic is corrected; and
    the search for a new topic runs only when the draw falls outside of it.
    """
    one = np.float32(1)
    width = alpha.shape[0]
    averaging = expected.shape[0] > 0
    in_document = np.empty(width, np.float32)
    inverse = np.empty(width, np.float32)
    weight = np.empty(width, np.float32)  # (n_dk + alpha_k) / (n_k + V eta)
    state = seed
    for k in range(width):
        inverse[k] = np.float32(1.0 / (totals[k] + eta_total))
    for document in range(len(starts) - 1):
        in_document[:] = 0
        for token in range(starts[document], starts[document + 1]):
            in_document[np.uint64(topics[token])] += one
        for k in range(width):
            weight[k] = (in_document[k] + alpha[k]) * inverse[k]
        for token in range(starts[document], starts[document + 1]):
            word = np.uint64(words[token])
            old = np.uint64(topics[token])
            row = table[word]
            total = np.float32(0)
            for k in range(width):
                total += weight[k] * (row[k] + eta)
            count = row[old] + eta
            counted = weight[old] * count
            kept = (
                (in_document[old] - one + alpha[old])
                * (count - one)
                / np.float32(totals[old] - 1.0 + eta_total)
            )
            others = max(total - counted, np.float32(0))
            state, unit = random_unit(state)
            if averaging:
                scale = one / (others + kept)
                target = expected[word]
                for k in range(width):
                    target[k] += weight[k] * (row[k] + eta) * scale
                target[old] += (kept - counted) * scale
            level = unit * (others + kept) - kept
            if level >= 0:
                weight[old] = 0
                new = search(weight, row, eta, n_topics, level)
                topics[token] = new
                in_document[old] -= one
                row[old] -= one
                totals[old] -= 1.0
                in_document[new] += one
                row[new] += one
                totals[new] += 1.0
                inverse[old] = np.float32(1.0 / (totals[old] + eta_total))
                inverse[new] = np.float32(1.0 / (totals[new] + eta_total))
                weight[old] = (in_document[old] + alpha[old]) * inverse[old]
                weight[new] = (in_document[new] + alpha[new]) * inverse[new]
        for k in range(n_topics):
            present = np.int64(in_document[k])
            if present > 0:
                histogram[k, present] += 1
