"""Documents are drawn from topics: what is learnt from these costs nothing, as no real document is asked.

Starting topics are read off the noisy pairs of the most frequent words: M ≈ H Hᵀ without negative numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from odeco._util.threads import map_blocks
from odeco._util.types import FloatArray, IndexArray
from odeco.models.lda.gibbs_kernels import compiled


@dataclass(frozen=True, eq=False)
class TopicLaw:
    """How documents come about: latent Dirichlet allocation, with a distribution of lengths.

    Attributes
    ----------
    topics : array, k x V
        The topics.
    alpha : array
        Dirichlet parameters of the shares of topics in a document.
    lengths, chances : arrays
        The numbers of words that a document may have, and how likely each is.
    """

    topics: FloatArray
    alpha: FloatArray
    lengths: IndexArray
    chances: FloatArray

    @property
    def mean_length(self) -> float:
        """Expected number of words in a document."""
        return float(self.lengths @ self.chances)


@dataclass(frozen=True, eq=False)
class SimulatedTokens:
    """Words one by one: in which document each is, which word, and of which topic; and how long the documents are.

    `repeats` says how often the word stands in its document.
    """

    documents: IndexArray
    words: IndexArray
    topics: IndexArray
    lengths: IndexArray
    repeats: IndexArray
    n_words: int

    @property
    def weights(self) -> FloatArray:
        """What each word adds to the features of its document: √count/√length, shared by its repeats."""
        weights: FloatArray = 1 / np.sqrt(self.repeats * self.lengths[self.documents])
        return weights

    def counts(self) -> Any:
        """Return the word counts of the documents as a CSR array."""
        shape = (self.lengths.size, self.n_words)
        ones = np.ones(self.words.size)
        counts: Any = sparse.coo_array((ones, (self.documents, self.words)), shape=shape).tocsr()
        return counts


def simulate(law: TopicLaw, n_documents: int, rng: np.random.Generator) -> SimulatedTokens:
    """Draw documents."""
    k, n_words = law.topics.shape
    proportions = rng.dirichlet(np.maximum(law.alpha, 1e-3), n_documents)
    lengths = rng.choice(law.lengths, n_documents, p=law.chances)
    documents = np.repeat(np.arange(n_documents), lengths)
    borders = np.cumsum(proportions, axis=1)[:, :-1] + np.arange(n_documents)[:, None]
    topics = np.searchsorted(borders.ravel(), documents + rng.random(documents.size), side="right")
    topics = np.clip(topics - documents * (k - 1), 0, k - 1)
    heights = np.cumsum(law.topics, axis=1)
    heights = heights / heights[:, -1:] + np.arange(k)[:, None]
    words = np.searchsorted(heights.ravel(), topics + rng.random(documents.size), side="right") - topics * n_words
    words = np.minimum(words, n_words - 1)
    _, place, repeats = np.unique(documents * n_words + words, return_inverse=True, return_counts=True)
    return SimulatedTokens(documents, words, topics, lengths, repeats[place], n_words)


#: The factorisation is begun so often, and each time goes over the words so many times; the closest is taken.
_N_STARTS, _N_SWEEPS = 3, 40

#: A starting topic has this share of its frequent words from the frequencies of all.
_BACKGROUND = 0.1

#: Every pair has this much weight on a factor beside what the others say, so that nothing is divided by zero.
_RIDGE = 1e-3

#: The largest eigenvalue of noise is this many units of its fluctuation above the edge with a chance of 1 in 1,000
#: (Tracy and Widom).
_EDGE_QUANTILE = 3.3


@dataclass(frozen=True, eq=False)
class NoisyPairs:
    """Pairs of the most frequent words as they were released.

    Attributes
    ----------
    words : array of v indices
        The words.
    matrix : array, v x v
        The sums of the products of their features; the diagonal is zero.
    deviation : float
        Standard deviation of the noise of a pair.
    """

    words: IndexArray
    matrix: FloatArray
    deviation: float

    @property
    def noise_level(self) -> float:
        """The largest eigenvalue that noise alone would show."""
        n_words = self.words.size
        return self.deviation * float(2 * n_words**0.5 + _EDGE_QUANTILE * n_words ** (-1 / 6))

    def eigenvalues(self) -> FloatArray:
        """Return the eigenvalues, largest first."""
        values: Any = np.linalg.eigvalsh(self.matrix)[::-1]
        return np.asarray(values)

    def n_clear(self) -> int:
        """Return how many directions stand clear of noise: the number of topics that the pairs show."""
        return int(np.sum(self.eigenvalues() > self.noise_level))

    def without_noise(self) -> FloatArray:
        """Return the matrix with the directions that stand clear of noise, and no others."""
        values, vectors = np.linalg.eigh(self.matrix)
        kept = np.abs(values) > self.noise_level
        clear: FloatArray = (vectors[:, kept] * values[kept]) @ vectors[:, kept].T
        return clear


def matrix_of_pairs(pairs: FloatArray, n_words: int) -> FloatArray:
    """Return the symmetric matrix with these numbers above its diagonal, which is zero."""
    matrix = np.zeros((n_words, n_words))
    matrix[np.triu_indices(n_words, 1)] = pairs
    return matrix + matrix.T


def starting_topics(
    matrix: FloatArray, words: IndexArray, frequencies: FloatArray, n_components: int, rng: np.random.Generator
) -> FloatArray:
    """Return k topics over all words, k x V: among the chosen words as the factors say, else as the frequencies do.

    Parameters
    ----------
    matrix : array, v x v
        What pairs of the chosen words were released as; the diagonal is not looked at.
    words : array of v indices
        The chosen words.
    frequencies : array
        Of all words; they sum to one.
    n_components : int
        Number k of topics.
    rng : Generator
        Draws where the factorisation begins.
    """
    factors = factorise(matrix, n_components, rng)
    topics = np.tile(frequencies, (n_components, 1))
    own = (factors / factors.sum(axis=0)).T * frequencies[words].sum()
    topics[:, words] = (1 - _BACKGROUND) * own + _BACKGROUND * frequencies[words]
    topics /= topics.sum(axis=1, keepdims=True)
    return topics


def factorise(matrix: FloatArray, n_components: int, rng: np.random.Generator) -> FloatArray:
    """Return the H without negative numbers, v x k, for which H Hᵀ is near to a matrix off its diagonal."""
    n_words = matrix.shape[0]
    size = math.sqrt(max(float(matrix.sum()), 1.0) / matrix.size / n_components)
    begun = [np.abs(rng.standard_normal((n_words, n_components))) * size for _ in range(_N_STARTS)]
    errors = list(map_blocks(lambda factors: _factorise(matrix, factors, _N_SWEEPS, _RIDGE), begun, parallel=True))
    factors: FloatArray = begun[int(np.argmin(errors))] + 1e-12
    return factors


@compiled
def _factorise(  # noqa: C901 - the hot loop, in one piece
    matrix: FloatArray, factors: FloatArray, n_sweeps: int, ridge: float
) -> float:
    """Lower |M − H Hᵀ|² off the diagonal over H ≥ 0 in place, a row at a time, and return it."""
    n_words, k = factors.shape
    gram = factors.T @ factors
    wanted = np.empty(k)
    for _ in range(n_sweeps):
        for word in range(n_words):
            row = factors[word]
            for a in range(k):
                for b in range(k):
                    gram[a, b] -= row[a] * row[b]
            wanted[:] = 0.0
            for other in range(n_words):
                if other != word:
                    for a in range(k):
                        wanted[a] += matrix[word, other] * factors[other, a]
            for _ in range(3):
                for a in range(k):
                    left = wanted[a]
                    for b in range(k):
                        if b != a:
                            left -= gram[a, b] * row[b]
                    row[a] = max(left / (gram[a, a] + ridge), 0.0)
            for a in range(k):
                for b in range(k):
                    gram[a, b] += row[a] * row[b]
    error = 0.0
    for word in range(n_words):
        for other in range(word):
            left = matrix[word, other]
            for a in range(k):
                left -= factors[word, a] * factors[other, a]
            error += left * left
    return error
