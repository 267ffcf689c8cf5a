"""More states than are wanted, merged pair by pair until the wanted number is left.

Baum-Welch steps cannot move a state from where two share the work of one to where one does the work of two: the
likelihood falls on the way. With spare states nothing has to move. Each part of the work finds a state of its own, and
what is too much is then seen: two states that emit alike, are entered alike and are left alike.

**What a merger costs.** With the expected counts of moves and symbols as if they had been seen, the log-likelihood of a
state is that of its counts n under their own shares, Σ n log(n / Σ n): of its symbols, of the states that it goes to and
of those that it comes from. Merged states have the sum of their counts, and what is lost is never below zero. As states
are not seen, this ranks mergers only; of those that rank first, the one that leaves the highest likelihood is taken.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odeco._types import BoolArray, FloatArray, IndexArray
from odeco.sequences.chain import Chain, Expected

#: States are merged in at most this many rounds; of so many pairs a merger the likelihood is looked at.
_MOST_ROUNDS, _PAIRS_A_MERGER = 10, 5


def merged_to(chain: Chain, rows: Any, begins: BoolArray, n_states: int) -> Chain:
    """Return a model of symbols with so many states, of one with more, by mergers and a step after each round."""
    per_round = -(-(chain.start.size - n_states) // _MOST_ROUNDS)
    while chain.start.size > n_states:
        expected = chain.expected(rows, begins)
        n_mergers = min(per_round, chain.start.size - n_states)
        order = np.argsort(merger_costs(expected), axis=None, kind="stable")[: _PAIRS_A_MERGER * n_mergers]
        pairs = np.column_stack(np.unravel_index(order, (chain.start.size,) * 2))
        found = [
            chain.maximised(merged(expected, _labels(chain.start.size, pair[None])))
            .log_likelihoods(rows, begins)
            .mean()
            for pair in pairs
        ]
        chosen = _apart(pairs[np.argsort(-np.array(found), kind="stable")])[:n_mergers]
        chain = chain.maximised(merged(expected, _labels(chain.start.size, chosen)))
        chain = chain.maximised(chain.expected(rows, begins))
    return chain


def merger_costs(expected: Expected) -> FloatArray:
    """Return what the merger of two states costs, k x k; infinite but above the diagonal, so that a pair counts once."""
    k = len(expected.moved)
    costs = np.full((k, k), np.inf)
    first, second = np.triu_indices(k, 1)
    costs[first, second] = 0
    for counts in (expected.emitted, expected.moved, expected.moved.T):
        alone = _log_likelihoods(counts)
        costs[first, second] += alone[first] + alone[second] - _log_likelihoods(counts[first] + counts[second])
    return costs


def merged(expected: Expected, labels: IndexArray) -> Expected:
    """Return the counts of states after those with the same label were merged."""
    member = np.equal.outer(np.unique(labels), labels).astype(np.float64)
    return Expected(
        member @ expected.started,
        member @ expected.moved @ member.T,
        member @ expected.emitted,
        expected.log_likelihood,
        expected.n_rows,
    )


def _log_likelihoods(counts: FloatArray) -> FloatArray:
    """Return Σ n log(n / Σ n) for every row of counts n."""
    tiny = np.finfo(np.float64).tiny
    totals = counts.sum(axis=1)
    likelihoods: FloatArray = (counts * np.log(counts + tiny)).sum(axis=1) - totals * np.log(totals + tiny)
    return likelihoods


def _apart(pairs: IndexArray) -> IndexArray:
    """Return the pairs of which no state is in one before."""
    used: set[int] = set()
    kept = []
    for one, other in pairs.tolist():
        if not used & {one, other}:
            kept.append((one, other))
            used |= {one, other}
    return np.array(kept)


def _labels(n_states: int, pairs: IndexArray) -> IndexArray:
    """Return a label for every state, the same for the two of a pair."""
    labels = np.arange(n_states)
    labels[pairs[:, 1]] = pairs[:, 0]
    return labels
