"""Private word counts answer questions about their moments, to which no document adds more than a bound.

A document with counts c and l words adds its frequencies c/l to the first moment, its ordered pairs of distinct
positions to the second, and its triples to the third, each divided by their number. All three are arrays without
negative entries, of norm at most |c|/l, |c|²/l(l−1) and |c|³/l(l−1)(l−2). With

    q = |c| / (l (l−1) (l−2))^(1/3),

these norms are at most q, q² and q³. A document that repeats one word over and over has q near 1, but few documents
do: one of l different words has q of about 1/√l. So a document with q above a bound b is counted less, (b/q)³ times.
Then none adds more than b, b² and b³, whatever it says, and the noise is that much smaller.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from scipy import sparse

from odeco._arguments import check_choice
from odeco._types import FloatArray
from odeco.privacy import ROUNDOFF, row_weights
from odeco.rows import row_slice
from odeco.topics.counts import FEWEST_WORDS, CountChunk, count_chunks, multiply, triple_core

#: The bins of the histogram of q end here: from 2⁻⁶ to 1, eight to an octave.
HISTOGRAM_EDGES: FloatArray = 2.0 ** (np.arange(-48, 1) / 8)
#: A document with more words than this counts as empty, because sums of its powers would not be exact.
_MOST_WORDS = 2.0**40
#: A multiplication in a sparse matrix product takes as long as this many in a dense one.
_SPARSE_COST = 400.0
#: At most this many numbers of documents are made dense at a time.
_DENSE_SIZE = 2**22


class BoundedCounts:
    """Moments of words over n documents, none of which adds more than a bound.

    With users, the moments are means over users, and each user adds the mean over the user's documents.

    Parameters
    ----------
    counts : array or CSR array, documents x words
        Word counts. A document with a count that is negative, not whole or not finite counts as empty, without a
        message.
    groups : array of labels, optional
        Whose each document is; this is public. The unit of privacy is then the user.
    neighbour_relation : {"replace", "add or remove"}
        What a neighbour may do to one document (or to all of one user): exchange it for any other, or empty it. The
        number of documents is public either way.

    Notes
    -----
    **Sensitivity.** A document adds an array u without negative entries and of norm at most R = bᵖ to a sum that is
    divided by n. Emptying it moves the sum by |u| ≤ R. Replacing it, so that it adds v instead, moves the sum by
    |u − v|, and |u − v|² = |u|² + |v|² − 2⟨u, v⟩ ≤ 2R², since ⟨u, v⟩ ≥ 0: that is √2 R, not 2 R. With users, u is the
    mean over the documents of one user, which has no negative entry either, and norm at most R. A linear map that
    stretches nothing, as to the coordinates in an orthonormal basis, keeps all this. The bound b must be public, or
    released before.

    **Rounding.** In whatever order they are added up, n terms of size at most R g each give a mean that errs by at most
    n + 3 V + 64 units of roundoff times R g, where g is what absolute values can add: 2 for pairs (the diagonal is
    subtracted), 6 m^(3/2) for triples in m directions. Twice that is part of the sensitivity that is declared.
    """

    def __init__(
        self,
        counts: Any,
        *,
        groups: Any = None,
        neighbour_relation: Literal["replace", "add or remove"] = "replace",
    ) -> None:
        check_choice("neighbour_relation", neighbour_relation, ("replace", "add or remove"))
        self.neighbour_relation = neighbour_relation
        clean = _without_bad_documents(counts)
        self.n_documents, self.n_words = (int(size) for size in clean.shape)
        self._shares, self.n_units = row_weights(groups, self.n_documents)
        self.of_users = groups is not None
        lengths = np.asarray(clean.sum(axis=1), dtype=np.float64)
        squares = np.asarray(clean.multiply(clean).sum(axis=1), dtype=np.float64)
        usable = lengths >= FEWEST_WORDS
        length = np.where(usable, lengths, FEWEST_WORDS)
        self._q = np.where(usable, np.sqrt(squares) / np.cbrt(length * (length - 1) * (length - 2)), 0.0)
        self._counts = clean

    @property
    def neighbours(self) -> str:
        """The neighbour relation in words."""
        act = "replaced by any other" if self.neighbour_relation == "replace" else "emptied, or the reverse"
        whom, public = (
            ("all documents of one user", "whose each is") if self.of_users else ("one document", "their number")
        )
        return f"{whom}, {act}; {public} and the vocabulary are public"

    def histogram(self) -> FloatArray:
        """Return which share of the units has its q in each bin of `HISTOGRAM_EDGES`; empty documents are in none."""
        usable = self._q > 0
        bins = np.clip(np.searchsorted(HISTOGRAM_EDGES, self._q[usable]), 0, HISTOGRAM_EDGES.size - 1)
        totals = np.bincount(bins, self._shares[usable], HISTOGRAM_EDGES.size)
        return totals / self.n_units

    def histogram_sensitivity(self) -> float:
        """Return the sensitivity of the histogram: a document adds an array with a single 1, of norm R = 1."""
        return self._sensitivity(1.0, 1.0)

    def words(self, bound: float) -> FloatArray:
        """Return the first moment, and after it the mean weight of a document, or of a user, times `bound`."""
        total = np.zeros(self.n_words + 1)
        for chunk, weights in self._chunks(bound):
            total[chunk.words] += chunk.columns @ (weights * chunk.single)
            total[-1] += bound * weights.sum()
        return total / self.n_units

    def words_sensitivity(self, bound: float) -> float:
        """Return the sensitivity of `words`, √2 b/n, whether a document is replaced or emptied.

        A document of weight w ≤ 1 adds an array of norm at most b w^(2/3) (it has w = 1, or w = (b/q)³ and norm at most
        q w), and w b. Two documents are therefore apart by at most b √((w − w')² + w^(4/3) + w'^(4/3)). The function
        under the root is convex in w and in w', hence largest at a corner of the square: it is 2 at (1, 0) and (1, 1).
        The mean over a user's documents keeps the bound, as w^(2/3) is concave.
        """
        return self._sensitivity(math.sqrt(2) * bound, 1.0, factor=1.0)

    def pairs(self, bound: float) -> FloatArray:
        """Return the second moment, its entries on and below the diagonal, those below times √2 to keep its norm."""
        matrix = np.zeros((self.n_words, self.n_words))
        for chunk, weights in self._chunks(bound):
            amounts = weights * chunk.pair
            _add_gram(matrix, chunk, np.sqrt(amounts))
            matrix[chunk.words, chunk.words] -= chunk.columns @ amounts
        lower = np.tril_indices(self.n_words)
        packed: FloatArray = matrix[lower]
        packed[lower[0] != lower[1]] *= math.sqrt(2)
        return packed / self.n_units

    def pairs_sensitivity(self, bound: float) -> float:
        """Return the sensitivity of `pairs`: a document adds a symmetric matrix of norm at most b²."""
        return self._sensitivity(bound**2, 2.0)

    def triples(self, bound: float, basis: FloatArray) -> FloatArray:
        """Return the third moment in an orthonormal basis, m x m x m numbers."""
        width = basis.shape[1]
        total = np.zeros((width,) * 3)
        for chunk, weights in self._chunks(bound):
            weighted = replace(chunk, triple=weights * chunk.triple)
            inside = multiply(chunk.rows, basis, parallel=True)
            total += triple_core(weighted, inside, basis, parallel=True)
        return total / self.n_units

    def triples_sensitivity(self, bound: float, basis: FloatArray) -> float:
        """Return the sensitivity of `triples`.

        A document adds an array of norm at most b³, in coordinates that stretch it by at most the cube of the norm of
        the basis.
        """
        norm = max(1.0, float(np.linalg.norm(basis, 2)))
        return self._sensitivity((bound * norm) ** 3, 6 * basis.shape[1] ** 1.5)

    def _sensitivity(self, radius: float, gain: float, *, factor: float | None = None) -> float:
        if factor is None:
            factor = math.sqrt(2) if self.neighbour_relation == "replace" else 1.0
        depth = self.n_documents + 3 * self.n_words + 64
        return factor * radius / self.n_units + 2 * depth * ROUNDOFF * radius * gain

    def _chunks(self, bound: float) -> Iterator[tuple[CountChunk, FloatArray]]:
        """Yield chunks of usable documents, each with the weights of its documents."""
        usable = self._q > 0
        ratio = bound / np.where(usable, self._q, 1.0)
        weights = self._shares * np.minimum(1.0, ratio**3)
        start = 0
        for chunk in count_chunks(self._counts):
            stop = start + chunk.n_documents
            yield chunk, weights[start:stop][usable[start:stop]]
            start = stop


def _add_gram(matrix: FloatArray, chunk: CountChunk, factors: FloatArray) -> None:
    """Add Σ f² c cᵀ over the documents of a chunk, by the sparse product or the dense one, whichever is less work."""
    scaled = sparse.csr_array(sparse.diags_array(factors) @ chunk.rows)
    if float(np.sum(np.diff(scaled.indptr).astype(float) ** 2)) * _SPARSE_COST < scaled.shape[0] * matrix.size:
        product = sparse.csr_array(scaled.T @ scaled)
        owner = np.repeat(np.arange(product.shape[0]), np.diff(product.indptr))
        matrix[owner, product.indices] += product.data
        return
    height = max(1, _DENSE_SIZE // scaled.shape[1])
    for start in range(0, scaled.shape[0], height):
        rows = row_slice(scaled, start, min(start + height, scaled.shape[0])).toarray()
        matrix += rows.T @ rows


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
