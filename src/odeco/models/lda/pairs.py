"""Starting topics of a private model, from noisy pairs of the most frequent words: M ≈ H Hᵀ with H ≥ 0.

If the pairs show more topics than were requested, `add_further_topics` returns a generative model with all of them.
Topics that mix others depend on where a run happens to end: under other noise, other topics are mixed. Documents drawn
from the estimated topics alone do not show that, so documents are drawn from all topics that the pairs show. All of
this is post-processing of released numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from odeco._util.state import State, array_field
from odeco._util.threads import map_blocks
from odeco._util.types import FloatArray, IndexArray
from odeco.models.lda.deconvolve import GenerativeModel
from odeco.models.lda.gibbs_kernels import compiled

#: The number of starts of the factorisation, and of sweeps over the words from each; the closest result is taken.
_N_STARTS, _N_SWEEPS = 3, 40

#: A starting topic has this share of its frequent words from the frequencies of all.
_BACKGROUND = 0.1

#: This is added to the weight of every pair on a factor, so that nothing is divided by zero.
_RIDGE = 1e-3

#: The largest eigenvalue of noise is this many units of its fluctuation above the edge with a chance of 1 in 1,000
#: (Tracy and Widom).
_EDGE_QUANTILE = 3.3


@dataclass(frozen=True, eq=False)
class NoisyPairs(State):
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

    words: IndexArray = array_field("pair_words", kind="i", low=0)
    matrix: FloatArray = array_field("pair_words", "pair_words")
    deviation: float = array_field(low=0)

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
        """Return the number of directions that are clear of noise: the number of topics that the pairs show."""
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
        The released pairs of the chosen words; the diagonal is not used.
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


#: Steps of expectation and maximisation, for the topics found that a further topic consists of.
_N_FURTHER_ROUNDS = 50


def add_further_topics(model: GenerativeModel, pairs: NoisyPairs | None, rng: np.random.Generator) -> GenerativeModel:
    """Return a model with all topics that the pairs show, or the same model if they show no more than it has.

    Parameters
    ----------
    model : GenerativeModel
        The topics that were found.
    pairs : NoisyPairs or None
        The released pairs of the most frequent words, if there are any.
    rng : Generator
        Draws where the factorisation of the pairs begins.

    Notes
    -----
    The pairs, without the directions that may be noise, are factorised again. Each factor is a topic among the frequent
    words, and its squared mass its share. Its other words are those of the mixture of topics that is nearest to it in
    likelihood.
    """
    n_topics = 0 if pairs is None else min(pairs.n_clear(), pairs.words.size)
    if pairs is None or n_topics <= model.topics.shape[0]:
        return model
    factors = factorise(pairs.without_noise(), n_topics, rng)
    masses = factors.sum(axis=0)
    frequent = (factors / masses).T
    topics = _mixtures(frequent, model.topics[:, pairs.words]) @ model.topics
    topics[:, pairs.words] = frequent * topics[:, pairs.words].sum(axis=1, keepdims=True)
    topics /= topics.sum(axis=1, keepdims=True)
    return GenerativeModel(
        topics, model.alpha.sum() * masses**2 / np.sum(masses**2), model.lengths, model.length_probabilities
    )


def _mixtures(wanted: FloatArray, topics: FloatArray) -> FloatArray:
    """Return the weights, rows that sum to one, with which topics make up each wanted one."""
    topics = topics / topics.sum(axis=1, keepdims=True)
    weights = np.full((wanted.shape[0], topics.shape[0]), 1 / topics.shape[0])
    for _ in range(_N_FURTHER_ROUNDS):
        weights *= (wanted / np.maximum(weights @ topics, np.finfo(float).tiny)) @ topics.T
    return weights
