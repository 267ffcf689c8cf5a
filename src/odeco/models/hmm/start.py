"""Rows of numbers as symbols: each is called by the cell that it lies in.

Moments of three consecutive rows tell states apart only if there are at most as many as features, and if their means
differ. The moments of cells do it for any number of features, and for states that differ in their spread only.

Counts of three consecutive symbols, and the hidden Markov model that they say.

Given the state of the middle one of three consecutive symbols, the three are independent: they are three views of that
state. With A_h, B_h, C_h the distributions of the symbol before, of the symbol itself and of the symbol after, given
that the middle state is h, `engine.three_views` finds the states, and B_h is what state h emits. The pairs of
consecutive symbols are then Bᵀ J B with J_gh the probability of a move from g to h, which gives the moves.

More states than are wanted, merged pair by pair until the wanted number is left.

Baum-Welch steps cannot move a state from where two share the work of one to where one does the work of two: the
likelihood falls on the way. With spare states nothing has to move. Each part of the work finds a state of its own, and
what is too much is then seen: two states that emit alike, are entered alike and are left alike.

**What a merger costs.** Take the expected counts and sums as if states had been seen. The log-likelihood of a state is
then that of what it emits, of the states that it goes to and of those that it comes from; counts n of states have
Σ n log(n / Σ n). Merged states have the sums of both, and what is lost is never below zero. As states are not seen,
this ranks mergers only; of those that rank first, the one that leaves the highest likelihood is taken.

Where Baum-Welch steps begin: at several models, from different parts of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from odeco._util.threads import map_blocks, one_blas_thread
from odeco._util.types import BoolArray, FloatArray, IndexArray
from odeco.models.engine.three_views import classes_of_three_views
from odeco.models.hmm.baum_welch import Chain, Expected, climbed
from odeco.models.hmm.emissions import Gaussians, Symbols, likelihoods_of_counts

#: How many cells there are for each state, and at least how many rows for each cell.
_CELLS_A_STATE, _ROWS_A_CELL = 8, 10

#: Cells are found on at most this many rows, by so many rounds of means.
_MOST_ROWS, _N_ROUNDS = 2**13, 8

_CODE_BLOCK = 2**13


def cells_of(rows: FloatArray, n_states: int, *, seed: int) -> tuple[IndexArray, int]:
    """Return the cell of every row, and how many cells there are.

    Rows must be in units in which features count alike. Cells are those of the means of nearby rows, which begin at
    rows drawn at random.
    """
    rng = np.random.default_rng(seed)
    drawn = np.sort(rng.choice(len(rows), min(len(rows), _MOST_ROWS), replace=False))
    sample = rows[drawn]
    n_cells = min(_CELLS_A_STATE * n_states, max(len(rows) // _ROWS_A_CELL, n_states))
    places = np.unique(rng.permutation(sample)[:n_cells], axis=0)
    for _ in range(_N_ROUNDS):
        nearest = _nearest(sample, places)
        counts = np.bincount(nearest, minlength=len(places))
        sums = np.zeros_like(places)
        np.add.at(sums, nearest, sample)
        places = sums[counts > 0] / counts[counts > 0, None]
    return _nearest(rows, places), len(places)


def _nearest(rows: FloatArray, places: FloatArray) -> IndexArray:
    squares = np.sum(places**2, axis=1)

    def part(begin: int) -> IndexArray:
        return np.asarray(np.argmin(squares - 2 * (rows[begin : begin + _CODE_BLOCK] @ places.T), axis=1))

    starts = range(0, len(rows), _CODE_BLOCK)
    return np.concatenate(list(map_blocks(part, starts, parallel=len(starts) > 1)))


#: Tables with at most this many cells are counted as dense arrays.
_MOST_DENSE = 2**22

#: Cells that are worked on at a time.
_BLOCK = 2**14

#: Where moves say little about the next state, weak directions of pairs are mostly noise: they are amplified no more
#: than if they had this share of the strongest.
_LEAST_SHARE = 1e-2

#: Share of the frequencies of all symbols in what the moments say that a state emits, so that steps can change it all.
_MIXED_IN = 0.01

#: The least probability of a move, as a share of what all moves have on average.
_LEAST_MOVE = 0.01

#: What a symbol that does not occur counts as, so that frequencies can be divided by.
_LEAST_FREQUENCY = 1e-12


@dataclass(frozen=True, eq=False)
class Triples:
    """How often each triple of consecutive symbols occurs.

    Attributes
    ----------
    symbols : three arrays
        The first, second and third symbol of every triple that occurs.
    shares : array
        The share of each of them; they sum to one.
    n_symbols : int
        Number V of symbols.
    n_triples : int
        Number of triples that were counted.
    """

    symbols: tuple[IndexArray, IndexArray, IndexArray]
    shares: FloatArray
    n_symbols: int
    n_triples: int

    @classmethod
    def of(cls, rows: IndexArray, begins: BoolArray, n_symbols: int) -> Triples:
        """Count the triples of all sequences; none goes from one sequence to the next."""
        whole = ~(begins[1:-1] | begins[2:])
        keys = ((rows[:-2] * n_symbols + rows[1:-1]) * n_symbols + rows[2:])[whole]
        if n_symbols**3 <= _MOST_DENSE:
            table = np.bincount(keys, minlength=1)
            cells = np.flatnonzero(table)
            counts = table[cells]
        else:
            cells, counts = np.unique(keys, return_counts=True)
        symbols = (cells // n_symbols**2, cells // n_symbols % n_symbols, cells % n_symbols)
        return cls(symbols, counts / max(keys.size, 1), n_symbols, keys.size)

    @classmethod
    def of_table(cls, table: FloatArray) -> Triples:
        """Return the triples of a dense table, V x V x V, of numbers that are not negative."""
        symbols = np.nonzero(table > 0)
        shares = table[symbols]
        first, second, third = (each.astype(np.int64) for each in symbols)
        return cls((first, second, third), shares / shares.sum(), len(table), shares.size)

    def frequencies(self, place: int) -> FloatArray:
        """Return how frequent each symbol is as the first, second or third of a triple; above zero."""
        counted = np.bincount(self.symbols[place], self.shares, minlength=self.n_symbols)
        return counted.astype(np.float64) + _LEAST_FREQUENCY

    def pairs(self, first: int, second: int) -> Any:
        """Return the table of two of the three symbols, V x V and sparse."""
        shape = (self.n_symbols, self.n_symbols)
        places = (self.symbols[first], self.symbols[second])
        return sparse.csr_array(sparse.coo_array((self.shares, places), shape))

    def moment(self, one: FloatArray, two: FloatArray, three: FloatArray) -> FloatArray:
        """Return the mean of one[a] ⊗ two[b] ⊗ three[c] over all triples (a, b, c)."""
        k = one.shape[1]
        first, second, third = self.symbols

        def part(begin: int) -> FloatArray:
            cells = slice(begin, begin + _BLOCK)
            left = one[first[cells]] * self.shares[cells, None]
            right = two[second[cells]][:, :, None] * three[third[cells]][:, None, :]
            product: FloatArray = left.T @ right.reshape(-1, k * k)
            return product

        starts = range(0, self.shares.size, _BLOCK)
        total = np.zeros((k, k * k))
        for each in map_blocks(part, starts, parallel=len(starts) > 1):
            total += each
        return total.reshape(k, k, k)


def chain_of_triples(
    triples: Triples, n_states: int, *, seed: int, least_share: float = _LEAST_SHARE
) -> tuple[Chain, float]:
    """Return the hidden Markov model that triples of symbols say, and the share of the moment that it explains.

    The number of states must be at most that of symbols which occur. Weak directions of pairs are amplified no more
    than if they had the least share of the strongest.
    """
    first, second, third = (triples.frequencies(place) for place in range(3))
    pairs = (triples.pairs(0, 1), triples.pairs(1, 2), triples.pairs(0, 2))
    found = classes_of_three_views(
        pairs, (first, second, third), triples.moment, n_states, seed=seed, least_share=least_share
    )
    before, _, after = found.detectors
    weights = before[triples.symbols[0]] * after[triples.symbols[2]] * triples.shares[:, None]
    seen = sparse.csr_array(
        (np.ones(triples.shares.size), triples.symbols[1], np.arange(triples.shares.size + 1)),
        (triples.shares.size, triples.n_symbols),
    )
    middle = second / second.sum()
    emitted = (1 - _MIXED_IN) * nearest_distributions(np.asarray(seen.T @ weights).T) + _MIXED_IN * middle
    with one_blas_thread():
        roots = np.sqrt(middle)
        inverse = np.linalg.pinv(emitted / roots).T / roots
        moves = inverse @ (pairs[1] @ inverse.T)
    moves = np.maximum(moves, _LEAST_MOVE / n_states**2)
    shares = moves.sum(axis=1)
    return Chain(shares / shares.sum(), moves / shares[:, None], Symbols(emitted)), found.explained


def nearest_distributions(rows: FloatArray) -> FloatArray:
    """Return the distribution that is nearest to each row, after each was divided by its sum if that is above zero."""
    sums = rows.sum(axis=1, keepdims=True)
    rows = np.where(sums > 0, rows / np.where(sums > 0, sums, 1.0), rows)
    falling = -np.sort(-rows, axis=1)
    excess = np.cumsum(falling, axis=1) - 1
    count = np.arange(1, rows.shape[1] + 1)
    kept = np.maximum((falling * count > excess).sum(axis=1), 1)
    level = excess[np.arange(len(rows)), kept - 1] / kept
    return np.asarray(np.maximum(rows - level[:, None], 0))


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


#: A start is made of at most so many consecutive symbols for each state, or vectors, which say more about states; but
#: always of so many rows, as states that last long are seldom left.
_SYMBOLS_A_STATE, _VECTORS_A_STATE, _ALWAYS = 2500, 1000, 2**13

#: Where moves say little about the next state, weak directions of pairs are mostly noise: a start amplifies them no
#: more than if they had this share of the strongest. Which share is best depends on the model; each start has another.
_LEAST_SHARES = (1e-2, 1e-1)

#: There are so many states for each that is wanted, and so many steps before any are merged.
_SPARE, _STEPS_WITH_SPARE = 2, 6

#: How often states are doubled and merged again: of vectors less often, as it takes more of the time of all steps.
_N_DOUBLED = {"symbols": 2, "vectors": 1}

#: Steps on the cells of rows before the rows themselves are looked at.
_STEPS_ON_CELLS = 6


def starts(rows: Any, begins: BoolArray, n_symbols: int, n_states: int, *, full: bool, seed: int) -> Iterator[Chain]:
    """Yield the models at which steps begin; `n_symbols` is 0 for vectors."""
    parts = _parts(rows, begins, n_states, len(_LEAST_SHARES))
    for number, (least_share, (part, here)) in enumerate(zip(_LEAST_SHARES, parts, strict=True)):
        told: Any = {"least_share": least_share, "seed": seed + number}
        if n_symbols:
            chain = chain_of_symbols(part, here, n_symbols, n_states, **told)
        else:
            chain = chain_of_vectors(part, here, n_states, full=full, **told)
        yield reduced(chain, part, here, n_states)


def starts_around(chain: Chain, rows: Any, begins: BoolArray, *, seed: int) -> Iterator[Chain]:
    """Yield a model, and what it becomes if every state is doubled and as many are merged again.

    Where one state does the work of two and two share that of one, this mends it; and if not, little is lost.
    """
    yield chain
    rng = np.random.default_rng([seed, 1])
    for part, here in _parts(rows, begins, chain.start.size, _N_DOUBLED["vectors" if np.ndim(rows) > 1 else "symbols"]):
        yield reduced(chain.doubled(rng), part, here, chain.start.size)


def reduced(chain: Chain, rows: Any, begins: BoolArray, n_states: int) -> Chain:
    """Return a model with so many states, from one with as many or more."""
    if chain.start.size == n_states:
        return chain
    chain = climbed(chain, rows, begins, n_steps=_STEPS_WITH_SPARE, tolerance=0.0).model
    return merged_to(chain, rows, begins, n_states)


def _parts(rows: Any, begins: BoolArray, n_states: int, number: int) -> Iterator[tuple[Any, BoolArray]]:
    """Yield so many parts of consecutive rows, from the first to the last, and which rows begin a sequence."""
    a_state = _VECTORS_A_STATE if np.ndim(rows) > 1 else _SYMBOLS_A_STATE
    size = min(max(a_state * n_states, _ALWAYS), len(rows))
    for place in range(number):
        first = place * (len(rows) - size) // max(number - 1, 1)
        here = begins[first : first + size].copy()
        here[0] = True
        yield rows[first : first + size], here


def chain_of_symbols(
    rows: IndexArray, begins: BoolArray, n_symbols: int, n_states: int, *, least_share: float, seed: int
) -> Chain:
    """Return a model of symbols with spare states, as far as there are symbols for them."""
    triples = Triples.of(rows, begins, n_symbols)
    occurring = min(np.unique(each).size for each in triples.symbols)
    if 1 < n_states <= occurring:
        return chain_of_triples(triples, min(_SPARE * n_states, occurring), seed=seed, least_share=least_share)[0]
    rng = np.random.default_rng(seed)
    frequencies = (np.bincount(rows, minlength=n_symbols) + 1.0) / (len(rows) + n_symbols)
    emitted = frequencies * rng.uniform(0.5, 1.5, (n_states, n_symbols))
    return Chain(*_random_moves(n_states, rng), Symbols(emitted / emitted.sum(axis=1, keepdims=True)))


def chain_of_vectors(
    rows: FloatArray, begins: BoolArray, n_states: int, *, full: bool, least_share: float, seed: int
) -> Chain:
    """Return a model of vectors: their cells are learnt as symbols, and say what state each row is in."""
    emissions = Gaussians.around(rows, n_states, full=full)
    scaled = (rows - emissions.centre) / np.sqrt(emissions.spread)
    cells, n_cells = cells_of(scaled, n_states, seed=seed)
    chain = chain_of_symbols(cells, begins, n_cells, n_states, least_share=least_share, seed=seed)
    chain = climbed(chain, cells, begins, n_steps=_STEPS_ON_CELLS, tolerance=0.0).model
    emitted = emissions.emitted(rows, chain.posterior(cells, begins))
    return Chain(chain.start, chain.transitions, emissions.maximised(emitted))


def _random_moves(n_states: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    moves = rng.uniform(0.5, 1.5, (n_states, n_states)) + n_states * np.eye(n_states)
    return np.full(n_states, 1 / n_states), moves / moves.sum(axis=1, keepdims=True)
