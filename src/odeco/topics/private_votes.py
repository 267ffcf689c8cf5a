"""The votes of private documents for their words: who votes for what, and what one voter can change.

Every unit (a document, or all documents of one user) gives its different words one vote together: each of s words
counts 1/√s, so that what a unit adds has Euclidean norm 1 (Gopi et al., *Differentially private set union*, 2020).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtri

from odeco._arguments import check_choice, check_count
from odeco._types import FloatArray
from odeco.privacy import grid_of, row_weights
from odeco.topics.vocabulary import STOP_WORDS, CountedWords, Words

#: Votes are whole multiples of this or of the grid of the noise: sums of fewer than 2³³ of them are exact.
_SMALLEST_VOTE = 2.0**-20
#: This much is added to quantiles of the normal distribution, whose relative errors are far smaller.
_MARGIN = 1e-9


class Votes:
    """The votes of private documents for their words; see `choose_vocabulary_privately` for parameters and proof.

    Attributes
    ----------
    unit : {"document", "user"}
        Who votes.
    n_units : int
        How many of them there are; public.
    neighbours : str
        The neighbour relation in words.
    sensitivity : float
        Largest Euclidean change of the votes for the words that two neighbours share: 1 if a unit is emptied, √2 if it
        is replaced, as what it adds has norm at most 1 and no negative entry.
    """

    def __init__(
        self,
        counted: CountedWords,
        *,
        groups: Any = None,
        words_per_unit: int = 1000,
        stop_words: Iterable[str] = STOP_WORDS,
        neighbour_relation: Literal["replace", "add or remove"] = "replace",
    ) -> None:
        check_choice("neighbour_relation", neighbour_relation, ("replace", "add or remove"))
        self._most = check_count("words_per_unit", words_per_unit)
        _, self.n_units = row_weights(groups, int(counted.counts.shape[0]))
        self.unit = "document" if groups is None else "user"
        replaced = neighbour_relation == "replace"
        self.sensitivity = math.sqrt(2) if replaced else 1.0
        whom, public = (
            ("one document", "their number") if groups is None else ("all documents of one user", "whose each is")
        )
        act = "replaced by any other" if replaced else "emptied, or the reverse"
        self.neighbours = f"{whom}, {act}; public: {public}"
        self._words = counted.words
        self._held = _words_of_units(counted, groups, frozenset(stop_words))

    def threshold(self, scale: float, delta: float) -> float:
        """Return what noisy votes must reach, so that words of one unit alone pass with probability at most `delta`.

        s words with 1/√s votes each all stay below T with probability Φ((T − 1/√s)/σ)ˢ, which is 1 − δ' for
        T = 1/√s + σ Φ⁻¹((1 − δ')^(1/s)). The largest of these is taken. A unit that shares some of its words with
        others has fewer words alone, with no more votes.
        """
        n_words = np.arange(1, self._most + 1)
        tails = -np.expm1(math.log1p(-delta) / n_words)
        needed = 1 / np.sqrt(n_words) + scale * (1 + _MARGIN) * -ndtri(tails)
        return float(needed.max()) + 2 * _step(scale)

    def votes(self, scale: float) -> tuple[Words, FloatArray]:
        """Return the words that have votes, and how many, in multiples of the grid of noise of this scale."""
        held = _at_most(self._held, self._words, self._most)
        sizes, step = np.diff(held.indptr), _step(scale)
        each = np.floor(1 / np.sqrt(np.maximum(sizes, 1)) / step) * step
        totals: FloatArray = np.bincount(held.indices, np.repeat(each, sizes), held.shape[1]).astype(np.float64)
        there = np.flatnonzero(totals > 0)
        return self._words[there], totals[there]


def _step(scale: float) -> float:
    return max(grid_of(scale), _SMALLEST_VOTE)


@np.errstate(all="ignore")  # a warning about the data would be an answer without noise
def _words_of_units(counted: CountedWords, groups: Any, stop_words: frozenset[str]) -> Any:
    """Return which unit holds which word, as a CSR array of ones; a count that is no positive number is none."""
    counts = sparse.csr_array(counted.counts, copy=True)
    counts.sum_duplicates()
    usable = ~np.isin(np.char.lower(counted.words), sorted(stop_words))
    counts.data = ((counts.data > 0) & usable[counts.indices]).astype(np.int64)
    counts.eliminate_zeros()
    if groups is not None:
        owner = np.unique(np.asarray(groups), return_inverse=True)[1]
        joining = sparse.csr_array((np.ones(owner.size, dtype=np.int64), (owner, np.arange(owner.size))))
        counts = sparse.csr_array(joining @ counts)
        counts.data = np.ones_like(counts.data)
    counts.sort_indices()
    return counts


def _at_most(held: Any, words: Words, most: int) -> Any:
    """Return the same with at most so many words of each unit, chosen by hashes of its own words."""
    sizes = np.diff(held.indptr)
    long = np.flatnonzero(sizes > most)
    if long.size == 0:
        return held
    hashes = _hashes(words)
    entries = np.flatnonzero(np.repeat(sizes > most, sizes))
    own = hashes[held.indices[entries]]
    starts = np.concatenate([[0], np.cumsum(sizes[long])[:-1]])
    keys = np.add.reduceat(own, starts)  # modulo 2⁶⁴
    unit = np.repeat(np.arange(long.size), sizes[long])
    order = np.lexsort((_mixed(own ^ keys[unit]), unit))
    rank = np.arange(entries.size) - starts[unit]  # the entries of a unit stay together
    kept = np.ones(held.indices.size, dtype=bool)
    kept[entries[order[rank >= most]]] = False
    ends = np.concatenate([[0], np.cumsum(np.minimum(sizes, most))])
    return sparse.csr_array((held.data[kept], held.indices[kept], ends), shape=held.shape)


def _hashes(words: Words) -> NDArray[np.uint64]:
    digests = (
        hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest() for word in words.tolist()
    )
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return numbers in which every bit depends on all bits of the given ones (the finaliser of MurmurHash3)."""
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        values = (values ^ (values >> np.uint64(33))) * np.uint64(factor)
    return values ^ (values >> np.uint64(33))
