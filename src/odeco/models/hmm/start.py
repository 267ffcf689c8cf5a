"""Starts of Baum-Welch from the moments of three consecutive rows (Anandkumar et al. 2014, section
3.3).

Given the state of the middle one of three consecutive symbols, the three are independent: they are
three views of that state. Let A_h, B_h and C_h be the distributions of the symbol before, of the
symbol itself and of the symbol after, given that the middle state is h. `engine.moments` finds the
states, and B_h is the emission distribution of state h. The pairs of consecutive symbols are then
Bᵀ J B with J_gh the joint probability of state g and next state h, which gives the transitions.

Vectors are first quantised: each is replaced by the index of its nearest centre. Moments of the
vectors themselves would separate at most as many states as there are features, and only states with
different means. Moments of the indices work for any number of features, and for states that differ
only in their variances.

**Split and merge** is EM with spare states, which are then merged in pairs (Ueda, Nakano,
Ghahramani and Hinton 2000).

Baum-Welch cannot get from a model in which two states share the role of one while another has the
role of two to a better one: the likelihood falls on the way. With spare states each role finds a
state of its own, and the superfluous states then show: two states with the same emissions,
predecessors and successors.

**Cost of a merger.** Take the expected counts and statistics as if states had been observed. The
log-likelihood of a state is then that of its emissions, of its successors and of its predecessors,
where counts n of states have Σ n log(n / Σ n). A merged state has the statistics of both, and the
loss is never negative. Since states are not observed, this only ranks mergers; among those that
rank first, the one that leaves the highest likelihood is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from odeco._util.stages import LOG
from odeco._util.threads import map_blocks, one_blas_thread
from odeco._util.types import BoolArray, FloatArray, IndexArray
from odeco.models.engine.moments import classes_of_three_views
from odeco.models.engine.rows import column_moments, filled, has_missing, times
from odeco.models.hmm.baum_welch import HMM, HMMStatistics, baum_welch
from odeco.models.hmm.emissions import Categorical, Gaussian, Poisson, multinomial_log_likelihoods

#: A start uses at most this number of consecutive symbols per state, or of vectors, which tell more
#: about states; but never fewer than `_MIN_PART` rows, since long-lasting states are seldom left.
_SYMBOLS_PER_STATE, _VECTORS_PER_STATE, _MIN_PART = 2500, 1000, 2**13

#: Baum-Welch iterations with spare states before any are merged.
_SPARE_ITER = 6

#: How often the states are split and merged again. For vectors less often, as it takes a larger
#: part of the whole time.
_N_SPLITS = {"symbols": 2, "vectors": 1}

#: States are merged in at most this number of rounds. For each merger the likelihood of this number
#: of pairs is tried.
_MAX_ROUNDS, _PAIRS_PER_MERGER = 10, 4

#: At most this number of partial orders of states is compared with a mask of transitions. A state
#: that is left less often than the second number says nothing about its successors.
_MOST_ORDERS, _LEAST_LEAVING = 1000, 1e-3


def split_merge_starts(
    hmm: HMM, rows: Any, begins: BoolArray, weights: FloatArray | None = None, *, seed: int
) -> Iterator[HMM]:
    """Yield a model, and models of the same size that splitting and merging its states gives."""
    yield hmm
    rng = np.random.default_rng([seed, 1])
    n_splits = _N_SPLITS["vectors" if np.ndim(rows) > 1 else "symbols"]
    for part, part_begins, own in consecutive_parts(rows, begins, weights, hmm.n_states, n_splits):
        yield reduce_states(hmm.split(rng), part, part_begins, hmm.n_states, own)


def consecutive_parts(
    rows: Any, begins: BoolArray, weights: FloatArray | None, n_states: int, number: int
) -> Iterator[tuple[Any, BoolArray, FloatArray | None]]:
    """Yield this number of parts of consecutive rows, spread over all rows: rows, which begin a
    sequence, weights.
    """
    per_state = _VECTORS_PER_STATE if np.ndim(rows) > 1 else _SYMBOLS_PER_STATE
    size = min(max(per_state * n_states, _MIN_PART), len(rows))
    for part in range(number):
        first = part * (len(rows) - size) // max(number - 1, 1)
        own = slice(first, first + size)
        part_begins = begins[own].copy()
        part_begins[0] = True
        yield rows[own], part_begins, None if weights is None else weights[own]


def reduce_states(
    hmm: HMM, rows: Any, begins: BoolArray, n_states: int, weights: FloatArray | None = None
) -> HMM:
    """Return a model with `n_states` states, from one with at least that number, by EM and
    mergers.
    """
    if hmm.n_states == n_states:
        return hmm
    hmm = baum_welch(hmm, rows, begins, weights, max_iter=_SPARE_ITER, tol=0.0).params
    return merge_states(hmm, rows, begins, n_states, weights)


def merge_states(
    hmm: HMM, rows: Any, begins: BoolArray, n_states: int, weights: FloatArray | None = None
) -> HMM:
    """Return a model with `n_states` states from one with more, by mergers and an EM iteration
    after each round.
    """
    per_round = -(-(hmm.n_states - n_states) // _MAX_ROUNDS)
    while hmm.n_states > n_states:
        LOG.debug("merging %d states", hmm.n_states)
        statistics = hmm.e_step(rows, begins, weights)
        n_mergers = min(per_round, hmm.n_states - n_states)
        pairs, costs = merge_costs(hmm, statistics)
        pairs = pairs[np.argsort(costs, kind="stable")[: _PAIRS_PER_MERGER * n_mergers]]
        merged = (
            hmm.m_step(merge_statistics(statistics, _labels(hmm.n_states, pair[None])))
            for pair in pairs
        )
        scores = [
            np.average(each.log_likelihoods(rows, begins), weights=weights) for each in merged
        ]
        chosen = _disjoint(pairs[np.argsort(-np.array(scores), kind="stable")])[:n_mergers]
        hmm = hmm.m_step(merge_statistics(statistics, _labels(hmm.n_states, chosen)))
        hmm = hmm.m_step(hmm.e_step(rows, begins, weights))
    return hmm


def in_place(hmm: HMM, mask: BoolArray) -> HMM:
    """Return the model without transitions that a mask does not allow, its states in the places
    that suit it best.

    Those are the places in which the most of the transition matrix stays, where the transitions
    from a state to others count as much as those to itself. One place after the other gets a state,
    and the best partial orders go on: all of them for few states.
    """
    k, leaving = hmm.n_states, hmm.transitions * (1 - np.eye(hmm.n_states))
    weights = leaving / np.maximum(leaving.sum(axis=1, keepdims=True), _LEAST_LEAVING) + np.diag(
        hmm.transitions.diagonal()
    )
    orders, stays = np.zeros((1, 0), dtype=np.int64), np.zeros(1)
    for place in range(k):
        before, after = mask[:place, place], mask[place, :place]
        stays = stays[:, None] + mask[place, place] * weights.diagonal()
        stays = (
            stays
            + np.einsum("bqs,q->bs", weights[orders], before)
            + np.einsum("bqs,q->bs", weights.T[orders], after)
        )
        np.put_along_axis(stays, orders, -np.inf, axis=1)  # those states have a place
        best = np.argsort(-stays, axis=None, kind="stable")[
            : min(_MOST_ORDERS, len(orders) * (k - place))
        ]
        orders, stays = np.column_stack([orders[best // k], best % k]), stays.ravel()[best]
    return hmm.permuted(orders[0]).with_mask(mask)


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


#: In directions where the next state is nearly independent of this one, pairs are mostly noise.
#: They are amplified no more than a direction with this share of the strongest would be. The best
#: share depends on the model, so each start has another.
_MIN_SHARES = (1e-2, 1e-1)

#: A start has this number of states for each that is wanted, before states are merged.
_SPARE_FACTOR = 2

#: Baum-Welch iterations on quantised rows before Gaussians are fitted.
_QUANTISED_ITER = 6

#: Number of centres per state, and the smallest number of rows per centre.
_CENTRES_PER_STATE, _ROWS_PER_CENTRE = 8, 10

#: Centres are found on at most this number of rows, by this number of k-means iterations.
_KMEANS_ROWS, _KMEANS_ITER = 2**13, 8

#: Rows that are assigned to centres at a time.
_ASSIGN_BLOCK = 2**13

#: Tables with at most this number of entries are counted as dense arrays.
_MAX_DENSE = 2**22

#: Distinct triples that are processed at a time.
_TRIPLE_BLOCK = 2**14

#: Weight of the overall symbol frequencies in the emissions of a start, so that EM can still change
#: every probability.
_MIXED_IN = 0.01

#: The smallest joint probability of two consecutive states in a start, as a share of the average.
_MIN_TRANSITION = 0.01

#: The frequency of a symbol that does not occur, so that it can be divided by.
_MIN_FREQUENCY = 1e-12

#: Makes emissions of vectors or counts, which are the same in all states, from rows, a number of
#: states and weights.
EmissionsOf = Callable[[FloatArray, int, FloatArray | None], Gaussian | Poisson]


def spectral_starts(
    rows: Any,
    begins: BoolArray,
    n_symbols: int,
    n_states: int,
    weights: FloatArray | None = None,
    *,
    emissions: EmissionsOf,
    seed: int,
) -> Iterator[HMM]:
    """Yield the starts of Baum-Welch; `n_symbols` is 0 for vectors and counts, of which `emissions`
    makes states.
    """
    parts = consecutive_parts(rows, begins, weights, n_states, len(_MIN_SHARES))
    for number, (min_share, (part, part_begins, own)) in enumerate(
        zip(_MIN_SHARES, parts, strict=True)
    ):
        how: Any = {"min_share": min_share, "seed": seed + number}
        if n_symbols:
            hmm = start_of_symbols(part, part_begins, n_symbols, n_states, own, **how)
        else:
            # A column may be missing in all of a part.
            common = (
                emissions(rows, n_states, weights)
                if has_missing(part)
                else emissions(part, n_states, own)
            )
            hmm = start_of_vectors(part, part_begins, common, own, **how)
        yield reduce_states(hmm, part, part_begins, n_states, own)


def start_of_symbols(
    rows: IndexArray,
    begins: BoolArray,
    n_symbols: int,
    n_states: int,
    weights: FloatArray | None = None,
    *,
    min_share: float,
    seed: int,
) -> HMM:
    """Return a model of symbols with spare states, as far as there are symbols for them; else a
    random model.
    """
    triples = Triples.of_rows(rows, begins, n_symbols, weights)
    n_occurring = min(np.unique(each).size for each in triples.symbols)
    if 1 < n_states <= n_occurring:
        return hmm_of_triples(
            triples, min(_SPARE_FACTOR * n_states, n_occurring), seed=seed, min_share=min_share
        )[0]
    rng = np.random.default_rng(seed)
    counts = np.bincount(rows, weights, minlength=n_symbols)
    frequencies = (counts[:n_symbols] + 1.0) / (counts.sum() + n_symbols)
    emissions = frequencies * rng.uniform(0.5, 1.5, (n_states, n_symbols))
    transitions = rng.uniform(0.5, 1.5, (n_states, n_states)) + n_states * np.eye(n_states)
    return HMM(
        np.full(n_states, 1 / n_states),
        transitions / transitions.sum(axis=1, keepdims=True),
        Categorical(emissions / emissions.sum(axis=1, keepdims=True)),
    )


def start_of_vectors(
    rows: FloatArray,
    begins: BoolArray,
    emissions: Gaussian | Poisson,
    weights: FloatArray | None = None,
    *,
    min_share: float,
    seed: int,
) -> HMM:
    """Return a model of vectors: a model of quantised rows gives the posterior with which emissions
    are fitted.
    """
    n_states = len(emissions.means)
    symbols, n_symbols = quantise(emissions.coordinates(rows), n_states, seed=seed)
    hmm = start_of_symbols(
        symbols, begins, n_symbols, n_states, weights, min_share=min_share, seed=seed
    )
    hmm = baum_welch(hmm, symbols, begins, weights, max_iter=_QUANTISED_ITER, tol=0.0).params
    emissions = emissions.permuted(np.zeros(hmm.n_states, np.int64))  # all states are the same yet
    statistics = emissions.statistics(rows, times(hmm.posterior(symbols, begins), weights))
    return HMM(hmm.initial, hmm.transitions, emissions.m_step(statistics))


def quantise(rows: FloatArray, n_states: int, *, seed: int) -> tuple[IndexArray, int]:
    """Return the index of the nearest centre of each row, and the number of centres (k-means from
    random rows).

    The distance of a row with missing values is that of its observed columns. Centres fill in for
    them. A row without observed columns has the index of a missing symbol.
    """
    rng = np.random.default_rng(seed)
    drawn = np.sort(rng.choice(len(rows), min(len(rows), _KMEANS_ROWS), replace=False))
    sample = rows[drawn]
    n_centres = min(_CENTRES_PER_STATE * n_states, max(len(rows) // _ROWS_PER_CENTRE, n_states))
    centres = np.unique(
        filled(rng.permutation(sample)[:n_centres], column_moments(sample)[0]), axis=0
    )
    for _ in range(_KMEANS_ITER):
        nearest = _nearest(sample, centres)
        occupied = np.bincount(nearest, minlength=len(centres)) > 0
        known, nearest = filled(sample, centres[nearest]), np.cumsum(occupied)[nearest] - 1
        counts, sums = np.bincount(nearest), np.zeros_like(centres[occupied])
        np.add.at(sums, nearest, known)
        centres = sums / counts[:, None]
    symbols = _nearest(rows, centres)
    symbols[np.isnan(rows).all(axis=1)] = len(centres)
    return symbols, len(centres)


def _nearest(rows: FloatArray, centres: FloatArray) -> IndexArray:
    squares = np.sum(centres**2, axis=1)

    def of_block(first: int) -> IndexArray:
        block = rows[first : first + _ASSIGN_BLOCK]
        if has_missing(block):
            observed = (~np.isnan(block)).astype(np.float64)
            return np.asarray(
                np.argmin(observed @ (centres**2).T - 2 * (filled(block, 0.0) @ centres.T), axis=1)
            )
        return np.asarray(np.argmin(squares - 2 * (block @ centres.T), axis=1))

    firsts = range(0, len(rows), _ASSIGN_BLOCK)
    return np.concatenate(list(map_blocks(of_block, firsts, parallel=len(firsts) > 1)))


@dataclass(frozen=True, eq=False)
class Triples:
    """Frequencies of triples of consecutive symbols.

    Attributes
    ----------
    symbols : three arrays
        The first, second and third symbol of every triple that occurs.
    frequencies : array
        The relative frequency of each of them.
    n_symbols : int
        Number V of symbols.
    n_triples : int
        Number of triples that were counted.
    """

    symbols: tuple[IndexArray, IndexArray, IndexArray]
    frequencies: FloatArray
    n_symbols: int
    n_triples: int

    @classmethod
    def of_rows(
        cls, rows: IndexArray, begins: BoolArray, n_symbols: int, weights: FloatArray | None = None
    ) -> Triples:
        """Count the triples within sequences."""
        missing = rows == n_symbols
        within = ~(begins[1:-1] | begins[2:] | missing[:-2] | missing[1:-1] | missing[2:])
        keys = ((rows[:-2] * n_symbols + rows[1:-1]) * n_symbols + rows[2:])[within]
        own = None if weights is None else weights[2:][within]
        if n_symbols**3 <= _MAX_DENSE:
            table = np.bincount(keys, own, minlength=1)
            occurring = np.flatnonzero(table)
            counts = table[occurring]
        elif own is None:
            occurring, counts = np.unique(keys, return_counts=True)
        else:
            occurring, places = np.unique(keys, return_inverse=True)
            counts = np.bincount(places, own)
        symbols = (
            occurring // n_symbols**2,
            occurring // n_symbols % n_symbols,
            occurring % n_symbols,
        )
        n = keys.size if own is None else own.sum()
        return cls(symbols, counts / (n if keys.size else 1), n_symbols, keys.size)

    @classmethod
    def of_table(cls, table: FloatArray) -> Triples:
        """Return the triples of a dense table of non-negative numbers, V x V x V."""
        symbols = np.nonzero(table > 0)
        frequencies = table[symbols]
        first, second, third = (each.astype(np.int64) for each in symbols)
        return cls(
            (first, second, third), frequencies / frequencies.sum(), len(table), frequencies.size
        )

    def marginal(self, position: int) -> FloatArray:
        """Return the frequency of each symbol at a position of triples; above zero."""
        counted = np.bincount(self.symbols[position], self.frequencies, minlength=self.n_symbols)
        return counted.astype(np.float64) + _MIN_FREQUENCY

    def pairs(self, first: int, second: int) -> Any:
        """Return the joint frequencies of the symbols at two positions, V x V and sparse."""
        shape = (self.n_symbols, self.n_symbols)
        indices = (self.symbols[first], self.symbols[second])
        return sparse.csr_array(sparse.coo_array((self.frequencies, indices), shape))

    def moment(self, one: FloatArray, two: FloatArray, three: FloatArray) -> FloatArray:
        """Return the mean of one[a] ⊗ two[b] ⊗ three[c] over all triples (a, b, c)."""
        k = one.shape[1]
        first, second, third = self.symbols

        def of_block(at: int) -> FloatArray:
            block = slice(at, at + _TRIPLE_BLOCK)
            left = one[first[block]] * self.frequencies[block, None]
            right = two[second[block]][:, :, None] * three[third[block]][:, None, :]
            return np.asarray(left.T @ right.reshape(-1, k * k))

        firsts = range(0, self.frequencies.size, _TRIPLE_BLOCK)
        total = np.zeros((k, k * k))
        for each in map_blocks(of_block, firsts, parallel=len(firsts) > 1):
            total += each
        return total.reshape(k, k, k)


def hmm_of_triples(
    triples: Triples, n_states: int, *, seed: int, min_share: float = _MIN_SHARES[0]
) -> tuple[HMM, float]:
    """Return the hidden Markov model with these triples, and the share of the third moment that it
    explains.

    The number of states must be at most the number of symbols that occur. Weak directions of pairs
    are amplified no more than a direction with `min_share` of the strongest would be.
    """
    marginals = (triples.marginal(0), triples.marginal(1), triples.marginal(2))
    pairs = (triples.pairs(0, 1), triples.pairs(1, 2), triples.pairs(0, 2))
    found = classes_of_three_views(
        pairs, marginals, triples.moment, n_states, seed=seed, least_share=min_share
    )
    before, _, after = found.detectors
    weights = before[triples.symbols[0]] * after[triples.symbols[2]] * triples.frequencies[:, None]
    n_distinct = triples.frequencies.size
    middle_symbols = sparse.csr_array(
        (np.ones(n_distinct), triples.symbols[1], np.arange(n_distinct + 1)),
        (n_distinct, triples.n_symbols),
    )
    middle = marginals[1] / marginals[1].sum()
    emissions = project_to_simplex(np.asarray(middle_symbols.T @ weights).T)
    emissions = (1 - _MIXED_IN) * emissions + _MIXED_IN * middle
    with one_blas_thread():
        roots = np.sqrt(middle)
        inverse = np.linalg.pinv(emissions / roots).T / roots
        joint = inverse @ (pairs[1] @ inverse.T)
    joint = np.maximum(joint, _MIN_TRANSITION / n_states**2)
    marginal = joint.sum(axis=1)
    return HMM(
        marginal / marginal.sum(), joint / marginal[:, None], Categorical(emissions)
    ), found.explained


def project_to_simplex(rows: FloatArray) -> FloatArray:
    """Return the nearest distribution to each row, after division by its sum if that is
    positive.
    """
    sums = rows.sum(axis=1, keepdims=True)
    rows = np.where(sums > 0, rows / np.where(sums > 0, sums, 1.0), rows)
    falling = -np.sort(-rows, axis=1)
    excess = np.cumsum(falling, axis=1) - 1
    count = np.arange(1, rows.shape[1] + 1)
    n_positive = np.maximum((falling * count > excess).sum(axis=1), 1)
    level = excess[np.arange(len(rows)), n_positive - 1] / n_positive
    return np.asarray(np.maximum(rows - level[:, None], 0))
