"""The former private mechanism of topics, as a baseline: moments of words over the full vocabulary,
and no refinement.

Four releases: a histogram of how concentrated documents are, from which the bound b on what one
adds follows; the frequencies of the words; all pairs of words; triples in the span of the leading
pairs. A document with counts c and l words adds its frequencies c/l, its ordered pairs and its
triples, each divided by their number, of norm at most q, q² and q³ with q = |c| / (l (l−1)
(l−2))^(1/3); one with q above b counts (b/q)³ times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import nnls
from scipy.sparse.linalg import eigsh

from odeco._util.types import FloatArray
from odeco.io.rows import row_slice
from odeco.models.lda.counts import FEWEST_WORDS, CountChunk, count_chunks, multiply, triple_core
from odeco.models.lda.fitting import CONCENTRATIONS
from odeco.models.lda.spectral import ReducedMoments, SpectralTopics, topics_for
from odeco.privacy import Ledger, gdp_mu
from odeco.privacy.holders.protocol import ROUNDOFF
from odeco.privacy.noise import SecureNoise
from odeco.privacy.release import Releaser
from odeco.tensors import symmetrize

#: The bins of the histogram of q end here: from 2⁻⁶ to 1, eight to an octave.
HISTOGRAM_EDGES: FloatArray = 2.0 ** (np.arange(-48, 1) / 8)
#: A multiplication in a sparse matrix product takes as long as this many in a dense one.
_SPARSE_COST = 400.0
#: At most this many numbers of documents are made dense at a time.
_DENSE_SIZE = 2**22


class BoundedMoments:
    """Moments of words over n documents, none of which adds more than a bound; neighbours empty one
    document.
    """

    def __init__(self, counts: Any) -> None:
        clean: Any = sparse.csr_array(counts).astype(np.float64)
        self.n_documents, self.n_words = (int(size) for size in clean.shape)
        lengths = np.asarray(clean.sum(axis=1), dtype=np.float64)
        squares = np.asarray(clean.multiply(clean).sum(axis=1), dtype=np.float64)
        usable = lengths >= FEWEST_WORDS
        length = np.where(usable, lengths, FEWEST_WORDS)
        self._q = np.where(
            usable, np.sqrt(squares) / np.cbrt(length * (length - 1) * (length - 2)), 0.0
        )
        self._counts = clean

    def histogram(self) -> FloatArray:
        """Return which share of the units has its q in each bin of `HISTOGRAM_EDGES`; empty
        documents are in none.
        """
        usable = self._q > 0
        bins = np.clip(
            np.searchsorted(HISTOGRAM_EDGES, self._q[usable]), 0, HISTOGRAM_EDGES.size - 1
        )
        totals = np.bincount(bins, minlength=HISTOGRAM_EDGES.size)
        return totals / self.n_documents

    def histogram_sensitivity(self) -> float:
        """Return the sensitivity of the histogram: a document adds an array with a single 1, of
        norm R = 1.
        """
        return self._sensitivity(1.0, 1.0)

    def words(self, bound: float) -> FloatArray:
        """Return the first moment, and after it the mean weight of a document, or of a user, times
        `bound`.
        """
        total = np.zeros(self.n_words + 1)
        for chunk, weights in self._chunks(bound):
            total[chunk.words] += chunk.columns @ (weights / chunk.lengths)
            total[-1] += bound * weights.sum()
        return total / self.n_documents

    def words_sensitivity(self, bound: float) -> float:
        """Return the sensitivity of `words`, √2 b/n, whether a document is replaced or emptied.

        A document of weight w ≤ 1 adds an array of norm at most b w^(2/3) (it has w = 1, or w =
        (b/q)³ and norm at most q w), and w b. Two documents are therefore apart by at most b √((w −
        w')² + w^(4/3) + w'^(4/3)). The function under the root is convex in w and in w', hence
        largest at a corner of the square: it is 2 at (1, 0) and (1, 1). The mean over a user's
        documents keeps the bound, as w^(2/3) is concave.
        """
        return self._sensitivity(math.sqrt(2) * bound, 1.0, factor=1.0)

    def pairs(self, bound: float) -> FloatArray:
        """Return the second moment, its entries on and below the diagonal, those below times √2 to
        keep its norm.
        """
        matrix = np.zeros((self.n_words, self.n_words))
        for chunk, weights in self._chunks(bound):
            amounts = weights * chunk.pair / chunk.lengths  # every document counts once
            _add_gram(matrix, chunk, np.sqrt(amounts))
            matrix[chunk.words, chunk.words] -= chunk.columns @ amounts
        lower = np.tril_indices(self.n_words)
        packed: FloatArray = matrix[lower]
        packed[lower[0] != lower[1]] *= math.sqrt(2)
        return packed / self.n_documents

    def pairs_sensitivity(self, bound: float) -> float:
        """Return the sensitivity of `pairs`: a document adds a symmetric matrix of norm at most
        b².
        """
        return self._sensitivity(bound**2, 2.0)

    def triples(self, bound: float, basis: FloatArray) -> FloatArray:
        """Return the third moment in an orthonormal basis, m x m x m numbers."""
        width = basis.shape[1]
        total = np.zeros((width,) * 3)
        for chunk, weights in self._chunks(bound):
            weighted = replace(chunk, triple=weights * chunk.triple / chunk.lengths)
            inside = multiply(chunk.rows, basis)
            total += triple_core(weighted, inside, basis)
        return total / self.n_documents

    def triples_sensitivity(self, bound: float, basis: FloatArray) -> float:
        """Return the sensitivity of `triples`.

        A document adds an array of norm at most b³, in coordinates that stretch it by at most the
        cube of the norm of the basis.
        """
        norm = max(1.0, float(np.linalg.norm(basis, 2)))
        return self._sensitivity((bound * norm) ** 3, 6 * basis.shape[1] ** 1.5)

    def _sensitivity(self, radius: float, gain: float, *, factor: float | None = None) -> float:
        factor = 1.0 if factor is None else factor
        depth = self.n_documents + 3 * self.n_words + 64
        return factor * radius / self.n_documents + 2 * depth * ROUNDOFF * radius * gain

    def _chunks(self, bound: float) -> Iterator[tuple[CountChunk, FloatArray]]:
        """Yield chunks of usable documents, each with the weights of its documents."""
        usable = self._q > 0
        ratio = bound / np.where(usable, self._q, 1.0)
        weights = np.minimum(1.0, ratio**3)
        start = 0
        for chunk in count_chunks(self._counts):
            stop = start + chunk.n_documents
            yield chunk, weights[start:stop][usable[start:stop]]
            start = stop


def _add_gram(matrix: FloatArray, chunk: CountChunk, factors: FloatArray) -> None:
    """Add Σ f² c cᵀ over the documents of a chunk, by the sparse product or the dense one,
    whichever is less work.
    """
    scaled = sparse.csr_array(sparse.diags_array(factors) @ chunk.rows)
    if (
        float(np.sum(np.diff(scaled.indptr).astype(float) ** 2)) * _SPARSE_COST
        < scaled.shape[0] * matrix.size
    ):
        product = sparse.csr_array(scaled.T @ scaled)
        owner = np.repeat(np.arange(product.shape[0]), np.diff(product.indptr))
        matrix[owner, product.indices] += product.data
        return
    height = max(1, _DENSE_SIZE // scaled.shape[1])
    for start in range(0, scaled.shape[0], height):
        rows = row_slice(scaled, start, min(start + height, scaled.shape[0])).toarray()
        matrix += rows.T @ rows


#: Each of the four releases gets this share of μ².
SHARES = {"histogram": 0.01, "words": 0.10, "pairs": 0.54, "triples": 0.35}
#: The bound is chosen such that this share of the documents counts in full.
_COUNTED_IN_FULL = 0.5
#: Every topic gets this share of the frequencies of all words: no word is impossible because noise
#: has hidden it.
_BACKGROUND = 0.05
#: Every topic has at least this share of the documents.
_LEAST_SHARE = 1e-3
#: The words that do not stand clear of the noise have together at least this share of all words.
_LEAST_LEFT = 0.01
#: The largest eigenvalue of noise is this many units of its fluctuation above the edge with a
#: chance of 1 in 1,000 (Tracy and Widom).
_EDGE_QUANTILE = 3.3


def learn_by_moments(
    counts: Any, n_components: int, *, epsilon: float, delta: float, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Return the topics and the Dirichlet parameters that follow from the four releases."""
    held = BoundedMoments(counts)
    releaser = Releaser(Ledger(gdp_mu(epsilon, delta)), SecureNoise())
    bound = _release_bound(held, releaser)
    frequencies, weight = _release_words(held, releaser, bound)
    pairs, deviation = _release_pairs(held, releaser, bound)
    eigenvalues, directions = _leading(pairs, min(n_components + 10, held.n_words - 1), seed)
    edge = 2 * deviation * math.sqrt(held.n_words)
    level = edge + _EDGE_QUANTILE * deviation * held.n_words ** (-1 / 6)
    n_clear = min(n_components, int(np.sum(eigenvalues > level)))
    basis = directions[:, :n_clear]
    strengths = (eigenvalues[:n_clear] + np.sqrt(eigenvalues[:n_clear] ** 2 - edge**2)) / 2
    triples = (
        np.zeros((0, 0, 0)) if n_clear == 0 else _release_triples(held, releaser, bound, basis)
    )
    reduced = ReducedMoments(
        directions=np.eye(n_clear),
        eigenvalues=eigenvalues / weight,
        eigenvalue_errors=np.full(eigenvalues.size, math.sqrt(2) * deviation / weight),
        noise_level=level / weight,
        clear=np.arange(max(n_components, eigenvalues.size)) < n_clear,
        first=basis.T @ frequencies,
        pairs=np.diag(strengths) / weight,
        triples=triples / weight,
    )
    moments = _NoisyMoments(frequencies, basis * (strengths / weight))
    topics = _filled_up(_best_topics(reduced, moments, seed), n_components, frequencies)
    return topics.topic_word, topics.alpha


@dataclass(frozen=True, eq=False)
class _NoisyMoments:
    """What un-whitening asks of the moments, answered from what was released."""

    frequencies: FloatArray
    image: FloatArray

    def first_moment(self) -> FloatArray:
        return self.frequencies

    def pair_image_of(self, coordinates: FloatArray) -> FloatArray:
        image: FloatArray = (self.image @ coordinates).T
        return image


def _best_topics(reduced: ReducedMoments, moments: _NoisyMoments, seed: int) -> SpectralTopics:
    """Return the topics for the candidate concentration whose components explain most."""
    if reduced.first.size == 0:  # nothing stands clear of the noise
        nothing = np.zeros(0)
        return SpectralTopics(
            np.zeros((0, moments.frequencies.size)),
            nothing,
            nothing,
            nothing,
            nothing,
            0.0,
            np.zeros((0, 0)),
        )
    found = [topics_for(each, reduced, moments, seed=seed) for each in CONCENTRATIONS]
    return max(found, key=lambda topics: topics.explained)


def _release_bound(held: BoundedMoments, releaser: Releaser) -> float:
    """Return the bound on what a document adds, read off a noisy histogram."""
    histogram, _ = releaser.release(
        f"histogram of the concentration of documents, {HISTOGRAM_EDGES.size} bins",
        held.histogram,
        size=HISTOGRAM_EDGES.size,
        sensitivity=held.histogram_sensitivity(),
        noise_multiplier=_multiplier(releaser, "histogram"),
    )
    reached = np.cumsum(histogram) >= _COUNTED_IN_FULL * histogram.sum()
    return float(HISTOGRAM_EDGES[int(np.argmax(reached))] if reached.any() else HISTOGRAM_EDGES[-1])


def _release_words(
    held: BoundedMoments, releaser: Releaser, bound: float
) -> tuple[FloatArray, float]:
    """Return the frequencies of the words, and the mean weight of a document."""
    words, scale = releaser.release(
        f"frequencies of {held.n_words} words, and the weight of all documents",
        lambda: held.words(bound),
        size=held.n_words + 1,
        sensitivity=held.words_sensitivity(bound),
        noise_multiplier=_multiplier(releaser, "words"),
    )
    weight = max(float(words[-1]), scale) / bound
    # Words that do not stand clear of the noise share what the others leave, evenly: the sum is
    # known to be the weight. The threshold is about the largest of as many draws of noise as there
    # are words.
    clear = words[:-1] > math.sqrt(2 * math.log(held.n_words)) * scale
    left = max(weight - float(words[:-1][clear].sum()), _LEAST_LEFT * weight)
    frequencies = np.where(clear, words[:-1], left / max(1, int(np.sum(~clear))))
    return frequencies / frequencies.sum(), weight


def _release_pairs(
    held: BoundedMoments, releaser: Releaser, bound: float
) -> tuple[FloatArray, float]:
    """Return the noisy moment of pairs, and the standard deviation of the noise off its
    diagonal.
    """
    n_words = held.n_words
    lower = np.tril_indices(n_words)
    packed, scale = releaser.release(
        f"pairs of words, {lower[0].size} distinct entries",
        lambda: held.pairs(bound),
        size=lower[0].size,
        sensitivity=held.pairs_sensitivity(bound),
        noise_multiplier=_multiplier(releaser, "pairs"),
    )
    packed[lower[0] != lower[1]] *= math.sqrt(0.5)
    matrix = np.empty((n_words, n_words))
    matrix[lower] = packed
    matrix.T[lower] = packed
    return matrix, scale * math.sqrt(0.5)


def _release_triples(
    held: BoundedMoments, releaser: Releaser, bound: float, basis: FloatArray
) -> FloatArray:
    """Return the noisy moment of triples in a basis, m x m x m numbers."""
    width = basis.shape[1]
    core, _ = releaser.release(
        f"triples of words in {width} directions, {width}^3 numbers",
        lambda: held.triples(bound, basis),
        size=width**3,
        sensitivity=held.triples_sensitivity(bound, basis),
        noise_multiplier=_multiplier(releaser, "triples"),
    )
    return symmetrize(core).astype(np.float64)


def _multiplier(releaser: Releaser, name: str) -> float:
    """Return the noise multiplier that spends the share of a release."""
    return 1 / (releaser.ledger.mu_limit * math.sqrt(SHARES[name]))


def _leading(matrix: FloatArray, width: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Return the largest eigenvalues and their eigenvectors, largest first."""
    if 4 * width > matrix.shape[0]:
        values, vectors = np.linalg.eigh(matrix)
    else:
        start = np.random.default_rng(seed).standard_normal((matrix.shape[0],))
        # Eigenvalues in the bulk of the noise lie so close that finding them exactly would take for
        # ever.
        values, vectors = eigsh(matrix, k=width, which="LA", v0=start, tol=1e-4)
    first = np.argsort(values)[::-1][:width]
    return values[first], vectors[:, first]


def _filled_up(
    topics: SpectralTopics, n_components: int, frequencies: FloatArray
) -> SpectralTopics:
    """Mix a little of the frequencies of all words into every topic, and add the topics that were
    not found.

    The frequencies are the mean of all topics, each with its share. Non-negative least squares says
    which part of them the topics found explain; what is left of the frequencies stands for all
    topics that were not found.
    """
    topic_word = (1 - _BACKGROUND) * topics.topic_word + _BACKGROUND * frequencies
    n_missing = n_components - topics.topic_word.shape[0]
    if n_missing == 0:
        return replace(topics, topic_word=topic_word)
    shares = nnls(topics.topic_word.T, frequencies)[0] if topics.alpha.size else np.zeros(0)
    shares /= max(1.0, float(shares.sum()))
    rest = np.maximum(frequencies - shares @ topics.topic_word, 0.0) + _BACKGROUND * frequencies
    shares = np.maximum(
        np.append(shares, np.full(n_missing, (1 - shares.sum()) / n_missing)), _LEAST_SHARE
    )
    concentration = float(topics.alpha.sum()) if topics.alpha.size else 1.0
    nothing = np.full(n_missing, np.nan)
    return replace(
        topics,
        topic_word=np.concatenate([topic_word, np.tile(rest / rest.sum(), (n_missing, 1))]),
        alpha=concentration * shares / shares.sum(),
        negative_mass=np.append(topics.negative_mass, nothing),
        weights=np.append(topics.weights, nothing),
        residuals=np.append(topics.residuals, nothing),
    )
