"""Compiled loops over private documents: the contribution of each unit to a sum, scaled to
Euclidean norm 1.

A unit is a document, or all documents of a user. Its contribution is a function of its own
documents and of public arguments: every number is computed by the same instructions whatever the
other units hold. `units` is a `Units` of `odeco.privacy.holders.documents`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from odeco._util.types import FloatArray

#: Sums may be reordered, which makes them several times faster; infinity and NaN keep their
#: meaning, because the code checks whether a norm is finite.
_compiled = njit(
    cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"}
)


@_compiled
def find_shares(
    words: NDArray[Any],
    counts: FloatArray,
    topics: NDArray[np.float32],
    smoothing: np.float32,
    n_rounds: int,
    shares: NDArray[np.float32],
    added: NDArray[np.float32],
) -> None:
    """Fill in the shares of topics in one document: rounds of expectation and maximisation.

    `topics` has a row for each word, `added` is room for as many numbers as there are topics.
    """
    k = shares.shape[0]
    shares[:] = np.float32(1) / np.float32(k)
    for _ in range(n_rounds):
        added[:] = 0
        for place in range(words.shape[0]):
            row = topics[np.uint64(words[place])]
            chance = np.float32(0)
            for topic in range(k):
                chance += shares[topic] * row[topic]
            ratio = np.float32(counts[place]) / chance
            for topic in range(k):
                added[topic] += ratio * row[topic]
        total = np.float32(0)
        for topic in range(k):
            added[topic] = added[topic] * shares[topic] + smoothing
            total += added[topic]
        for topic in range(k):
            shares[topic] = added[topic] / total


@_compiled
def add_responsibilities(  # noqa: C901 - the hot loop, in one piece
    first: int,
    last: int,
    units: Any,
    topics: NDArray[np.float32],
    scales: FloatArray,
    smoothing: np.float32,
    n_rounds: int,
    total: FloatArray,
) -> None:
    """Add the contributions of the units `first`, …, `last` − 1 to `total`, words x topics.

    A word of a document adds s √count, divided among the topics according to the document's *other*
    words. The documents of a unit have equal weights and are added up, and the sum is divided by
    its norm.
    """
    unit_documents, document_entries, words, counts, slots, unit_slots, slot_words = units
    k = topics.shape[1]
    most = 1
    for unit in range(first, last):
        most = max(most, unit_slots[unit + 1] - unit_slots[unit])
    own = np.empty((most, k))
    shares = np.empty(k, np.float32)
    added = np.empty(k, np.float32)
    for unit in range(first, last):
        n_slots = unit_slots[unit + 1] - unit_slots[unit]
        own[:n_slots] = 0.0
        for document in range(unit_documents[unit], unit_documents[unit + 1]):
            start = document_entries[document]
            stop = document_entries[document + 1]
            length = 0.0
            square = 0.0
            for place in range(start, stop):
                length += counts[place]
                square += counts[place] * scales[np.uint64(words[place])] ** 2
            find_shares(
                words[start:stop], counts[start:stop], topics, smoothing, n_rounds, shares, added
            )
            for place in range(start, stop):
                word = np.uint64(words[place])
                row = topics[word]
                chance = np.float32(0)
                for topic in range(k):
                    chance += shares[topic] * row[topic]
                without = np.float32(0)
                for topic in range(k):
                    rest = (
                        shares[topic] * (length + k * smoothing)
                        - counts[place] * shares[topic] * row[topic] / chance
                    )
                    added[topic] = max(np.float32(rest), np.float32(0.1) * smoothing)
                    without += added[topic]
                amount = scales[word] * np.sqrt(counts[place] / square) / without
                slot = np.uint64(slots[place])
                for topic in range(k):
                    own[slot, topic] += amount * added[topic]
        norm = 0.0
        for row_number in range(n_slots):
            for topic in range(k):
                norm += own[row_number, topic] ** 2
        if not (norm > 0.0 and norm < np.inf):
            continue
        weight = 1.0 / np.sqrt(norm)
        for row_number in range(n_slots):
            row_of_total = total[np.uint64(slot_words[unit_slots[unit] + row_number])]
            for topic in range(k):
                row_of_total[topic] += weight * own[row_number, topic]


@_compiled
def add_pairs(  # noqa: C901 - the hot loop, in one piece
    first: int, last: int, units: Any, places: NDArray[np.int64], total: FloatArray
) -> None:
    """Add √count √count' of the pairs of chosen words in each document to the upper triangle of
    `total`.

    `places` says where a word stands among the chosen ones, or −1. The pairs of each document are
    weighed to norm 1, those of a unit added up, and the sum is divided by its norm.
    """
    unit_documents, document_entries, _, counts, slots, unit_slots, slot_words = units
    most = 1
    for unit in range(first, last):
        most = max(most, unit_slots[unit + 1] - unit_slots[unit])
    most = min(most, total.shape[0])
    rank_of_slot = np.empty(0, np.int64)
    own = np.empty((most, most))
    places_of_ranks = np.empty(most, np.int64)
    ranks = np.empty(most, np.int64)
    roots = np.empty(most)
    for unit in range(first, last):
        n_slots = unit_slots[unit + 1] - unit_slots[unit]
        if rank_of_slot.size < n_slots:
            rank_of_slot = np.empty(n_slots, np.int64)
        n_ranks = 0
        for slot in range(n_slots):
            place = places[np.uint64(slot_words[unit_slots[unit] + slot])]
            rank_of_slot[slot] = -1
            if place >= 0:
                rank_of_slot[slot] = n_ranks
                places_of_ranks[n_ranks] = place
                n_ranks += 1
        own[:n_ranks, :n_ranks] = 0.0
        for document in range(unit_documents[unit], unit_documents[unit + 1]):
            n_here = 0
            squares = 0.0
            fourths = 0.0
            for entry in range(document_entries[document], document_entries[document + 1]):
                rank = rank_of_slot[np.uint64(slots[entry])]
                if rank >= 0:
                    ranks[n_here] = rank
                    roots[n_here] = np.sqrt(counts[entry])
                    squares += counts[entry]
                    fourths += counts[entry] ** 2
                    n_here += 1
            norm = np.sqrt(max(squares**2 - fourths, 0.0) / 2)
            if n_here < 2 or not norm > 0.0:
                continue
            for i in range(n_here):
                for j in range(i):
                    low = min(ranks[i], ranks[j])
                    high = max(ranks[i], ranks[j])
                    own[low, high] += roots[i] * roots[j] / norm
        norm = 0.0
        for i in range(n_ranks):
            for j in range(i + 1, n_ranks):
                norm += own[i, j] ** 2
        if not (norm > 0.0 and norm < np.inf):
            continue
        weight = 1.0 / np.sqrt(norm)
        for i in range(n_ranks):
            for j in range(i + 1, n_ranks):
                low = places_of_ranks[i]
                high = places_of_ranks[j]
                if low > high:
                    low, high = high, low
                total[low, high] += weight * own[i, j]
