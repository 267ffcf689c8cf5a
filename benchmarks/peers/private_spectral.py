"""Private spectral topics from the literature, as a baseline: noise on the second moment and on the
whitened third one.

DeCarolis, Ram, Esmaeili, Wang and Huang, *An end-to-end differentially private latent Dirichlet
allocation using a spectral algorithm*, ICML 2020, arXiv:1805.10341. The method of moments for
latent Dirichlet allocation (Anandkumar et al. 2014) with noise at some of its steps; here at two of
them, after which everything is post-processing:

    M₂ = E[pairs] − α₀/(α₀+1) m mᵀ,
    M₃ = E[triples] − α₀/(α₀+2) (E[pairs] ⊗ m, three ways) + 2 α₀²/((α₀+1)(α₀+2)) m ⊗ m ⊗ m

for the mean m of word frequencies. The orthogonal components of M₃ in the coordinates that whiten
M₂, mapped back, are the topics, projected to probabilities.

Sensitivities, where one of n documents is emptied: its frequencies, pairs and triples are arrays of
norm at most 1 (a document of repeated words is scaled down to that). So m, E[pairs] and E[triples]
have norms of at most 1 and move by at most 1/n, hence m mᵀ by 2/n, each of the three placements by
2/n, and m ⊗ m ⊗ m by 3/n. A whitening map of norm w stretches the third moment by at most w³, which
the noisy M₂ determines.

In favour of the method: both releases have half of μ² and exact accounting; the better of several
α₀ is taken after the fact; exact word frequencies, 5 % of each topic, keep words from being
impossible.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.sparse.linalg import eigsh

import odeco
from odeco._util.types import FloatArray
from odeco.privacy import gdp_mu
from odeco.tensors import symmetrize
from peers.private_moments import BoundedMoments

#: Sums α₀ of Dirichlet parameters that are tried.
CONCENTRATIONS = (0.1, 0.5, 2.0)
#: Every topic gets this share of the frequencies of all words.
_BACKGROUND = 0.05
#: Directions of M₂ count with at least this multiple of the largest eigenvalue of noise: else
#: whitening is undefined.
_LEAST = 0.1


def learn_spectrally(
    counts: Any, k: int, *, epsilon: float, delta: float, seed: int, concentration: float
) -> tuple[FloatArray, FloatArray]:
    """Return topics and Dirichlet parameters; neighbours empty one document."""
    rng, held = np.random.default_rng(seed), BoundedMoments(counts)
    n, n_words, alpha = held.n_documents, held.n_words, concentration
    half = gdp_mu(epsilon, delta) / math.sqrt(2)
    mean = held.words(1.0)[:-1]
    pairs = _unpacked(held.pairs(1.0), n_words)
    of_pairs, of_means = alpha / (alpha + 2), 2 * alpha**2 / ((alpha + 1) * (alpha + 2))

    deviation = (1 + 2 * alpha / (alpha + 1)) / (n * half)
    noise = rng.standard_normal((n_words, n_words), dtype=np.float32)
    # Entries on and below the diagonal are released, those below times √2: in the matrix their
    # noise is 1/√2 of that.
    second = pairs - alpha / (alpha + 1) * np.outer(mean, mean) + deviation / 2 * (noise + noise.T)
    start = rng.standard_normal(n_words)
    values, vectors = eigsh(second, k=k, which="LA", v0=start, tol=1e-3)
    values = np.maximum(values, _LEAST * deviation * math.sqrt(2 * n_words))
    whitener, back = vectors / np.sqrt(values), vectors * np.sqrt(values)

    inside, middle = whitener.T @ pairs @ whitener, whitener.T @ mean
    third = held.triples(1.0, whitener) + of_means * np.einsum("a,b,c->abc", middle, middle, middle)
    third -= of_pairs * 3 * symmetrize(np.einsum("ab,c->abc", inside, middle))
    stretch = float(values.min()) ** -1.5
    deviation = stretch * (1 + 6 * of_pairs + 3 * of_means) / (n * half)
    noisy = symmetrize(third + deviation * rng.standard_normal(third.shape))
    found = odeco.decompose(noisy / np.abs(noisy).max(), k, method="power", rng=seed)
    topics = (back @ found.vectors).T
    topics *= np.where(topics.sum(axis=1, keepdims=True) < 0, -1.0, 1.0)
    positive = np.stack([_on_simplex(each / max(float(each.sum()), 1e-12)) for each in topics])
    return (1 - _BACKGROUND) * positive + _BACKGROUND * mean / mean.sum(), np.full(
        len(positive), alpha / k
    )


def _unpacked(packed: FloatArray, n_words: int) -> FloatArray:
    """Return the symmetric matrix whose entries on and below the diagonal are given, those below
    times √2.
    """
    lower = np.tril_indices(n_words)
    matrix = np.zeros((n_words, n_words))
    matrix[lower] = np.where(lower[0] == lower[1], packed, packed * math.sqrt(0.5))
    return matrix + np.tril(matrix, -1).T


def _on_simplex(vector: FloatArray) -> FloatArray:
    """Return the nearest vector of probabilities."""
    falling = np.sort(vector)[::-1]
    excess = (np.cumsum(falling) - 1) / np.arange(1, vector.size + 1)
    return np.asarray(np.maximum(vector - excess[np.flatnonzero(falling > excess)[-1]], 0.0))
