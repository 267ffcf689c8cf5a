"""Split and merge: EM with spare states, which are then merged in pairs (Ueda, Nakano, Ghahramani and Hinton 2000).

Baum-Welch cannot get from a model in which two states share the role of one while another has the role of two to a
better one: the likelihood falls on the way. With spare states each role finds a state of its own, and the superfluous
states then show: two states with the same emissions, predecessors and successors.

**Cost of a merger.** Take the expected counts and statistics as if states had been observed. The log-likelihood of a
state is then that of its emissions, of its successors and of its predecessors, where counts n of states have
Σ n log(n / Σ n). A merged state has the statistics of both, and the loss is never negative. Since states are not
observed, this only ranks mergers; among those that rank first, the one that leaves the highest likelihood is taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from odeco._util.types import BoolArray, FloatArray, IndexArray
from odeco.models.hmm.baum_welch import HMM, HMMStatistics, baum_welch
from odeco.models.hmm.emissions import multinomial_log_likelihoods

#: A start uses at most this number of consecutive symbols per state, or of vectors, which tell more about states; but
#: never fewer than `_MIN_PART` rows, since long-lasting states are seldom left.
_SYMBOLS_PER_STATE, _VECTORS_PER_STATE, _MIN_PART = 2500, 1000, 2**13

#: Baum-Welch iterations with spare states before any are merged.
_SPARE_ITER = 6

#: How often the states are split and merged again. For vectors less often, as it takes a larger part of the whole time.
_N_SPLITS = {"symbols": 2, "vectors": 1}

#: States are merged in at most this number of rounds. For each merger the likelihood of this number of pairs is tried.
_MAX_ROUNDS, _PAIRS_PER_MERGER = 10, 4


def split_merge_starts(hmm: HMM, rows: Any, begins: BoolArray, *, seed: int) -> Iterator[HMM]:
    """Yield a model, and models of the same size that splitting and merging its states gives."""
    yield hmm
    rng = np.random.default_rng([seed, 1])
    n_splits = _N_SPLITS["vectors" if np.ndim(rows) > 1 else "symbols"]
    for part, part_begins in consecutive_parts(rows, begins, hmm.n_states, n_splits):
        yield reduce_states(hmm.split(rng), part, part_begins, hmm.n_states)


def consecutive_parts(rows: Any, begins: BoolArray, n_states: int, number: int) -> Iterator[tuple[Any, BoolArray]]:
    """Yield this number of parts of consecutive rows, spread over all rows, and which rows begin a sequence."""
    per_state = _VECTORS_PER_STATE if np.ndim(rows) > 1 else _SYMBOLS_PER_STATE
    size = min(max(per_state * n_states, _MIN_PART), len(rows))
    for part in range(number):
        first = part * (len(rows) - size) // max(number - 1, 1)
        part_begins = begins[first : first + size].copy()
        part_begins[0] = True
        yield rows[first : first + size], part_begins


def reduce_states(hmm: HMM, rows: Any, begins: BoolArray, n_states: int) -> HMM:
    """Return a model with `n_states` states, from one with at least that number, by EM and mergers."""
    if hmm.n_states == n_states:
        return hmm
    hmm = baum_welch(hmm, rows, begins, max_iter=_SPARE_ITER, tol=0.0).params
    return merge_states(hmm, rows, begins, n_states)


def merge_states(hmm: HMM, rows: Any, begins: BoolArray, n_states: int) -> HMM:
    """Return a model with `n_states` states from one with more, by mergers and an EM iteration after each round."""
    per_round = -(-(hmm.n_states - n_states) // _MAX_ROUNDS)
    while hmm.n_states > n_states:
        statistics = hmm.e_step(rows, begins)
        n_mergers = min(per_round, hmm.n_states - n_states)
        pairs, costs = merge_costs(hmm, statistics)
        pairs = pairs[np.argsort(costs, kind="stable")[: _PAIRS_PER_MERGER * n_mergers]]
        scores = [
            hmm.m_step(merge_statistics(statistics, _labels(hmm.n_states, pair[None])))
            .log_likelihoods(rows, begins)
            .mean()
            for pair in pairs
        ]
        chosen = _disjoint(pairs[np.argsort(-np.array(scores), kind="stable")])[:n_mergers]
        hmm = hmm.m_step(merge_statistics(statistics, _labels(hmm.n_states, chosen)))
        hmm = hmm.m_step(hmm.e_step(rows, begins))
    return hmm


def merge_costs(hmm: HMM, statistics: HMMStatistics) -> tuple[IndexArray, FloatArray]:
    """Return all pairs of states, and the cost of merging each pair."""
    first, second = np.triu_indices(len(statistics.transitions), 1)
    costs = np.zeros(first.size)
    for sums, log_likelihoods in (
        (statistics.emissions, hmm.emissions.max_log_likelihoods),
        (statistics.transitions, multinomial_log_likelihoods),
        (statistics.transitions.T, multinomial_log_likelihoods),
    ):
        alone = log_likelihoods(sums)
        costs += alone[first] + alone[second] - log_likelihoods(sums[first] + sums[second])
    return np.column_stack([first, second]), costs


def merge_statistics(statistics: HMMStatistics, labels: IndexArray) -> HMMStatistics:
    """Return the statistics after states with the same label were merged."""
    member = np.equal.outer(np.unique(labels), labels).astype(np.float64)
    return replace(
        statistics,
        initial=member @ statistics.initial,
        transitions=member @ statistics.transitions @ member.T,
        emissions=member @ statistics.emissions,
    )


def _disjoint(pairs: IndexArray) -> IndexArray:
    """Return the pairs that share no state with an earlier one that is returned."""
    used: set[int] = set()
    kept = []
    for one, other in pairs.tolist():
        if not used & {one, other}:
            kept.append((one, other))
            used |= {one, other}
    return np.array(kept)


def _labels(n_states: int, pairs: IndexArray) -> IndexArray:
    """Return a label for each state, equal for the two states of a pair."""
    labels = np.arange(n_states)
    labels[pairs[:, 1]] = pairs[:, 0]
    return labels
