"""More states than are wanted, merged pair by pair until the wanted number is left.

Baum-Welch steps cannot move a state from where two share the work of one to where one does the work of two: the
likelihood falls on the way. With spare states nothing has to move. Each part of the work finds a state of its own, and
what is too much is then seen: two states that emit alike, are entered alike and are left alike.

**What a merger costs.** Take the expected counts and sums as if states had been seen. The log-likelihood of a state is
then that of what it emits, of the states that it goes to and of those that it comes from; counts n of states have
Σ n log(n / Σ n). Merged states have the sums of both, and what is lost is never below zero. As states are not seen,
this ranks mergers only; of those that rank first, the one that leaves the highest likelihood is taken.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odeco._types import BoolArray, FloatArray, IndexArray
from odeco.sequences.chain import Chain, Expected
from odeco.sequences.emissions import likelihoods_of_counts

#: States are merged in at most this many rounds; of so many pairs a merger the likelihood is looked at.
_MOST_ROUNDS, _PAIRS_A_MERGER = 10, 4


def merged_to(chain: Chain, rows: Any, begins: BoolArray, n_states: int) -> Chain:
    """Return a model with so many states from one with more, by mergers and a step after each round."""
    per_round = -(-(chain.start.size - n_states) // _MOST_ROUNDS)
    while chain.start.size > n_states:
        expected = chain.expected(rows, begins)
        n_mergers = min(per_round, chain.start.size - n_states)
        pairs, costs = merger_costs(chain, expected)
        pairs = pairs[np.argsort(costs, kind="stable")[: _PAIRS_A_MERGER * n_mergers]]
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


def merger_costs(chain: Chain, expected: Expected) -> tuple[IndexArray, FloatArray]:
    """Return all pairs of states, and what the merger of each costs."""
    first, second = np.triu_indices(len(expected.moved), 1)
    costs = np.zeros(first.size)
    for sums, likelihoods in (
        (expected.emitted, chain.emissions.likelihoods_alone),
        (expected.moved, likelihoods_of_counts),
        (expected.moved.T, likelihoods_of_counts),
    ):
        alone = likelihoods(sums)
        costs += alone[first] + alone[second] - likelihoods(sums[first] + sums[second])
    return np.column_stack([first, second]), costs


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
