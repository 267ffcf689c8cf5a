"""Private word counts answer questions to which no document, or no user, adds more than 1.

The features of a document are the roots of its counts. All that is asked is a sum over units (documents, or users with
all of their documents) of an array that is made of one unit's features and of public numbers, and has Euclidean norm 1
or is 0. So one bound holds for every question, and a document cannot say more by being long.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from scipy import sparse

from odeco._util.arguments import check_choice
from odeco._util.threads import map_blocks
from odeco._util.types import FloatArray, IndexArray
from odeco.privacy.holders.document_kernels import add_pairs, add_responsibilities
from odeco.privacy.holders.protocol import ROUNDOFF
from odeco.privacy.holders.records import row_weights

NeighbourRelation = Literal["replace", "add_remove"]

#: The bins of the histogram of lengths begin here: from 1 to 4,096 words, about three to an octave.
LENGTH_EDGES: IndexArray = np.unique(np.round(np.geomspace(1, 4096, 37)).astype(np.int64))

#: Rounds in which the shares of topics in a document are found.
N_ROUNDS = 30

#: A document with more words than this counts as empty, because sums of its powers would not be exact.
_MOST_WORDS = 2.0**40

#: Units are added up in this many lanes, whatever the number of threads.
_LANES = 4


class BoundedCounts:
    """Sums over n documents, or users, to each of which none adds an array of norm above 1.

    Parameters
    ----------
    counts : array or CSR array, documents x words
        Word counts. A document with a count that is negative, not whole or not finite counts as empty, without a
        message.
    groups : array of labels, optional
        Whose each document is; this is public. The unit of privacy is then the user.
    neighbour_relation : {"replace", "add_remove"}
        What a neighbour may do to one document (or to all of one user): exchange it for any other, or empty it. The
        number of documents is public either way.

    Notes
    -----
    **Sensitivity.** A unit adds an array u without negative entries and of norm 1, or 0, to a sum. u is a function of
    the unit's own documents and of the arguments of the question, which are public or were released before. Emptying
    the unit moves the sum by |u| ≤ 1. Replacing it, so that it adds v instead, moves the sum by |u − v|, and
    |u − v|² = |u|² + |v|² − 2⟨u, v⟩ ≤ 2, since ⟨u, v⟩ ≥ 0: that is √2, not 2. Documents of a user are first added up,
    and the sum, which has no negative entry, is divided by its norm: a user adds no more than a document does.

    **Rounding.** The norm of m numbers is computed with a relative error of at most m + 8 units of roundoff; m is at
    most the size of the answer. In whatever order they are added up, n units of norm 1 give a sum that errs by at most
    n + 8 units of roundoff times n. Twice the sum of both is part of the sensitivity that is declared: two neighbours
    may round in opposite directions.
    """

    def __init__(self, counts: Any, *, groups: Any = None, neighbour_relation: NeighbourRelation = "replace") -> None:
        check_choice("neighbour_relation", neighbour_relation, ("replace", "add_remove"))
        self.neighbour_relation = neighbour_relation
        clean = _without_bad_documents(counts)
        self.n_documents, self.n_words = (int(size) for size in clean.shape)
        _, self.n_units = row_weights(groups, self.n_documents)
        self.of_users = groups is not None
        self._set_units(clean, groups)

    def _set_units(self, clean: Any, groups: Any) -> None:
        """Put the documents of each unit next to each other, and number the different words of each unit."""
        if groups is None:
            self._unit_documents = np.arange(self.n_documents + 1)
        else:
            unit = np.unique(np.asarray(groups), return_inverse=True)[1]
            clean = clean[np.argsort(unit, kind="stable")]
            self._unit_documents = np.append(0, np.cumsum(np.bincount(unit, minlength=self.n_units)))
        self._entries, self._words, self._counts = clean.indptr.astype(np.int64), clean.indices, clean.data
        if groups is None:
            self._unit_slots, self._slot_words = self._entries, self._words
            self._slots = np.arange(self._words.size) - np.repeat(self._entries[:-1], np.diff(self._entries))
            return
        entries_of_unit = self._entries[self._unit_documents]
        owner = np.repeat(np.arange(self.n_units), np.diff(entries_of_unit))
        keys, position = np.unique(owner * self.n_words + self._words, return_inverse=True)
        self._slot_words = keys % self.n_words
        self._unit_slots = np.searchsorted(keys, np.arange(self.n_units + 1) * self.n_words)
        self._slots = position - self._unit_slots[owner]

    @property
    def neighbours(self) -> str:
        """The neighbour relation in words."""
        act = "replaced by any other" if self.neighbour_relation == "replace" else "emptied, or the reverse"
        whom, public = (
            ("all documents of one user", "whose each is") if self.of_users else ("one document", "their number")
        )
        return f"{whom}, {act}; {public} and the vocabulary are public"

    def sensitivity(self, size: int) -> float:
        """Return how far a neighbour can move an answer of so many numbers: 1, or √2 if units are replaced."""
        factor = math.sqrt(2) if self.neighbour_relation == "replace" else 1.0
        return factor + 2 * ROUNDOFF * (size + 8 + self.n_units * (self.n_units + 8))

    def lengths(self) -> FloatArray:
        """Return how many units have so many words, in the bins of `LENGTH_EDGES`; empty documents are in none."""
        sizes = np.add.reduceat(np.append(self._counts, 0.0), self._entries[:-1]) if self.n_documents else np.zeros(0)
        used = np.diff(self._entries) > 0
        bins = np.searchsorted(LENGTH_EDGES, sizes[used], side="right") - 1
        unit = np.repeat(np.arange(self.n_units), np.diff(self._unit_documents))[used]
        keys, repeated = np.unique(unit * LENGTH_EDGES.size + bins, return_counts=True)
        unit, bins = np.divmod(keys, LENGTH_EDGES.size)
        norms = np.sqrt(np.bincount(unit, repeated.astype(np.float64) ** 2, self.n_units))
        totals: FloatArray = np.zeros(LENGTH_EDGES.size)
        np.add.at(totals, bins, repeated / norms[unit])
        return totals

    def words(self) -> FloatArray:
        """Return the sum of the features, V numbers: those of a unit have norm 1."""
        alone = np.ones((self.n_words, 1), dtype=np.float32)
        return self.responsibilities(alone, np.ones(self.n_words), 1.0, n_rounds=0)[:, 0]

    def pairs(self, words: IndexArray) -> FloatArray:
        """Return the products of the features of two of these words in one document, v(v−1)/2 numbers."""
        places = np.full(self.n_words, -1)
        places[words] = np.arange(words.size)

        def add(first: int, last: int, total: FloatArray) -> None:
            unit_of_documents, entries = self._unit_documents, self._entries
            shape = (self._slots, self._unit_slots, self._slot_words, places)
            add_pairs(first, last, unit_of_documents, entries, self._counts, *shape, total)

        matrix = self._in_lanes(add, (words.size, words.size))
        return matrix[np.triu_indices(words.size, 1)]

    def responsibilities(
        self, topics: Any, scales: FloatArray, smoothing: float, *, n_rounds: int = N_ROUNDS
    ) -> FloatArray:
        """Return the scaled features of the words, dealt to topics as the other words of the document have it.

        Parameters
        ----------
        topics : array, V x k
            The chance of every word in every topic, all of them positive; public.
        scales : array
            By how much the feature of each word is multiplied; public.
        smoothing : float
            A document has this many words of every topic beside its own.
        n_rounds : int
            In so many rounds the shares of topics in a document are found.

        Returns
        -------
        array, V x k
        """
        table, small = np.ascontiguousarray(topics, dtype=np.float32), np.float32(smoothing)

        def add(first: int, last: int, total: FloatArray) -> None:
            documents = (self._unit_documents, self._entries, self._words, self._counts)
            slots = (self._slots, self._unit_slots, self._slot_words)
            add_responsibilities(first, last, *documents, *slots, table, scales, small, n_rounds, total)

        return self._in_lanes(add, table.shape)

    def _in_lanes(self, add: Callable[[int, int, FloatArray], None], shape: tuple[int, ...]) -> FloatArray:
        """Return the sum over lanes of units, each of which is filled in by `add`; they are added in their order."""
        borders = [round(lane * self.n_units / _LANES) for lane in range(_LANES + 1)]

        def lane_total(number: int) -> FloatArray:
            total = np.zeros(shape)
            add(borders[number], borders[number + 1], total)
            return total

        total: FloatArray = np.sum(list(map_blocks(lane_total, range(_LANES), parallel=True)), axis=0)
        return total


@np.errstate(all="ignore")  # a warning about the data would be an answer without noise
def _without_bad_documents(counts: Any) -> Any:
    """Return counts as a CSR array of float64, in which documents that cannot be counted are empty."""
    is_array = isinstance(counts, np.ndarray) or bool(sparse.issparse(counts))
    if not is_array or counts.ndim != 2 or counts.shape[1] == 0:
        raise TypeError(
            "Private counts must be a NumPy array or a CSR array, documents x words. "
            f"Got {type(counts).__name__}. Convert them."
        )
    if counts.dtype.kind not in "iubf":
        raise TypeError(f"Word counts must be numbers. Got {counts.dtype}. Count words with a vectoriser first.")
    clean: Any = sparse.csr_array(counts, copy=True).astype(np.float64)
    clean.sum_duplicates()
    owner = np.repeat(np.arange(clean.shape[0]), np.diff(clean.indptr))
    whole = np.isfinite(clean.data) & (clean.data >= 0) & (clean.data == np.floor(clean.data))
    bad = np.bincount(owner, ~whole, minlength=clean.shape[0]) > 0
    lengths = np.bincount(owner, np.where(whole, clean.data, 0.0), minlength=clean.shape[0])
    bad |= ~(lengths <= _MOST_WORDS)
    clean.data[bad[owner]] = 0.0
    clean.eliminate_zeros()
    return clean
