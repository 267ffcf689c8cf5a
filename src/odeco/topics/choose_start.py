"""Whether topics start from public documents or from private pairs of words: whichever predicts unseen pairs better.

Few public documents, or documents about something else, start topics worse than noisy pairs do. Which is better is read
off the pairs that were released, so it costs nothing: with a further draw z of the same noise, M + z and M − z have
noise that is independent of each other. Both starts are fitted to the first and judged by the second.
"""

from __future__ import annotations

import numpy as np

from odeco._types import FloatArray
from odeco.topics.factorise_pairs import NoisyPairs, factorise

#: The diagonal, which is not known, is filled with what the fit says of it, in so many rounds.
_N_ROUNDS = 8


def public_is_better(pairs: NoisyPairs, topics: FloatArray, frequencies: FloatArray, rng: np.random.Generator) -> bool:
    """Return whether public topics predict the private pairs better than a factorisation of these does.

    Parameters
    ----------
    pairs : NoisyPairs
        The private pairs as they were released.
    topics : array, k x V
        Topics of public documents.
    frequencies : array
        Of the words, as private documents have them.
    rng : Generator
        Draws the noise that parts the pairs in two, and where the factorisation begins.
    """
    upper = np.triu(rng.standard_normal(pairs.matrix.shape), 1) * pairs.deviation
    noise = upper + upper.T
    seen, unseen = pairs.matrix + noise, pairs.matrix - noise
    # Frequent words count less often in the features of a document than in its words: topics are brought to the
    # frequencies of the features.
    own = topics[:, pairs.words] * (frequencies / np.maximum(topics.mean(axis=0), 1e-12))[pairs.words]
    factors = factorise(seen, topics.shape[0], rng)
    return _error(unseen, _fitted(seen, own.T)) < _error(unseen, factors @ factors.T)


def _fitted(matrix: FloatArray, topics: FloatArray) -> FloatArray:
    """Return the A C Aᵀ that is nearest to a matrix off its diagonal."""
    basis = np.linalg.qr(topics)[0]
    filled, fitted = matrix, matrix
    for _ in range(_N_ROUNDS):
        fitted = basis @ (basis.T @ filled @ basis) @ basis.T
        filled = matrix + np.diag(np.diag(fitted))
    return fitted


def _error(matrix: FloatArray, fitted: FloatArray) -> float:
    gaps = matrix - fitted
    return float(np.sum(gaps**2) - np.sum(np.diag(gaps) ** 2))
