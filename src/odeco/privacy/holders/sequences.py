"""Private sequences of symbols, and the one sum that may be released of them: counts of triples.

**Sensitivity.** A sequence adds its counts of three consecutive symbols, a table of V³ numbers,
divided by their Euclidean norm: a table without negative entries and of norm 1. A sequence without
three symbols, or with a number that is not a symbol, is blank and adds zeros. So |u| ≤ 1, and ⟨u,
v⟩ ≥ 0 for any two sequences. `odeco.privacy.sums` derives the sensitivity from that: √2 if a
sequence is replaced, 1 if it is blanked. The length of a sequence is private: any two sequences,
long or short, are neighbours. The number of sequences and the number of symbols are public.

The sequences of a user add the mean of their tables (`unit_weights`): whose each is, and so how
many a user has, is public.

A sequence counts as often as its norm says: somewhat less if it repeats itself. That is the price
of a bound that needs no number from the user.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from odeco._util.types import FloatArray, IndexArray
from odeco.privacy.holders.protocol import unit_weights
from odeco.privacy.sums import Query


@dataclass(frozen=True, eq=False)
class PrivateSequences:
    """Sequences of symbols from which nothing may be learnt except through noise.

    Attributes
    ----------
    rows : array
        The symbols of all sequences. Numbers that are not symbols are allowed, and make their
        sequence blank.
    lengths : array of int
        The length of each sequence, which may be 0. It is private; the number of sequences is
        public.
    n_symbols : int
        Number V of symbols; it is public.
    groups : array of labels, optional
        Which user each sequence belongs to; public.
    """

    rows: Any
    lengths: IndexArray
    n_symbols: int
    groups: Any = None

    @cached_property
    def _weights(self) -> tuple[FloatArray, int]:
        return unit_weights(self.groups, self.n_terms)

    @property
    def n_records(self) -> int:
        """Number of sequences, or of users; it is public."""
        return self._weights[1]

    @property
    def n_terms(self) -> int:
        """Number of sequences."""
        return int(self.lengths.size)

    def query(self) -> Query:
        """Return the query of `triples`, to which a sequence adds an array of norm 1 at most."""
        v = self.n_symbols
        return Query(
            f"triples of {v} symbols, {v**3} numbers", self.triples, v**3, bound=1.0, signed=False
        )

    def triples(self) -> FloatArray:
        """Return the sum of the triple counts of all sequences, each divided by its norm, V³
        numbers.
        """
        v = self.n_symbols
        sequence = np.repeat(np.arange(self.n_terms), self.lengths)
        usable = (self.rows >= 0) & (self.rows < v) & (self.rows == np.floor(self.rows))
        blank = np.bincount(sequence[~usable], minlength=self.n_terms) > 0
        symbols = np.where(usable, self.rows, 0).astype(np.int64)
        within = (sequence[:-2] == sequence[2:]) & ~blank[sequence[2:]]
        keys = ((symbols[:-2] * v + symbols[1:-1]) * v + symbols[2:])[within]
        cells, counts = np.unique(sequence[2:][within] * v**3 + keys, return_counts=True)
        owners = cells // v**3
        squares = np.bincount(owners, counts.astype(np.float64) ** 2, minlength=self.n_terms)
        shares = counts * self._weights[0][owners] / np.sqrt(squares[owners])
        return np.bincount(cells % v**3, shares, minlength=v**3).astype(np.float64)
