"""Counts of three consecutive symbols, and the hidden Markov model that they say.

Given the state of the middle one of three consecutive symbols, the three are independent: they are three views of that
state. With A_h, B_h, C_h the distributions of the symbol before, of the symbol itself and of the symbol after, given
that the middle state is h, `odeco.latent.three_views` finds the states, and B_h is what state h emits. The pairs of
consecutive symbols are then Bᵀ J B with J_gh the probability of a move from g to h, which gives the moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from odeco._threads import map_blocks, one_blas_thread
from odeco._types import BoolArray, FloatArray, IndexArray
from odeco.latent.three_views import classes_of_three_views
from odeco.sequences.chain import Chain
from odeco.sequences.symbols import Symbols

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
