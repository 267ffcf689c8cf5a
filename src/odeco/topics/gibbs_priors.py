"""The Dirichlet priors are learnt from counts, by Minka's fixed point on histograms of counts.

With h[n] groups that hold n of something, the sum over groups of digamma(n + a) - digamma(a) is the sum over j of
t[j] / (a + j), where t[j] is the number of groups that hold more than j. So a step takes one division for each entry
of t.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma

from odeco._types import FloatArray

#: No prior is learnt to be smaller, since a topic that no document uses would otherwise be lost for good.
_SMALLEST_PRIOR = 1e-4
#: Word counts up to this share a histogram. The few that are larger are terms of their own.
_CAP = 4096


def exceedances(histogram: NDArray[Any]) -> FloatArray:
    """Return t[..., j], the number of groups that hold more than j, from h[..., n], the number that hold n."""
    reversed_sums = np.cumsum(histogram[..., ::-1], axis=-1, dtype=np.float64)[..., ::-1]
    return np.ascontiguousarray(reversed_sums[..., 1:])


def learn_alpha(
    alpha: FloatArray, topic_exceedances: FloatArray, length_exceedances: FloatArray, n_iterations: int
) -> FloatArray:
    """Return the prior of a document's topics, moved towards the most likely one.

    Parameters
    ----------
    alpha : ndarray of shape (k,)
        Where to start.
    topic_exceedances : ndarray of shape (k, longest)
        For each topic, how many documents have more than j tokens of it.
    length_exceedances : ndarray of shape (longest,)
        How many documents have more than j tokens.
    n_iterations : int
        How many steps.
    """
    steps = np.arange(topic_exceedances.shape[1])
    lengths = np.arange(len(length_exceedances))
    for _ in range(n_iterations):
        gain = np.einsum("kj,kj->k", topic_exceedances, 1 / (alpha[:, None] + steps))
        alpha = np.maximum(alpha * gain / np.sum(length_exceedances / (alpha.sum() + lengths)), _SMALLEST_PRIOR)
    return alpha


def learn_eta(eta: float, word_counts: NDArray[Any], n_features: int, n_iterations: int) -> float:
    """Return the prior of a topic's words (one number for all), moved towards the most likely one.

    Parameters
    ----------
    eta : float
        Where to start.
    word_counts : ndarray of shape (words, k)
        How many tokens of a word have a topic. Words that never occur may be left out.
    n_features : int
        Size of the vocabulary, with the words left out.
    n_iterations : int
        How many steps.
    """
    totals = word_counts.sum(axis=0, dtype=np.float64)
    if not totals.any():
        return eta
    flat = np.minimum(word_counts, _CAP).astype(np.int64).ravel()
    tail = exceedances(np.bincount(flat, minlength=2))
    steps = np.arange(len(tail))
    large = word_counts[word_counts > _CAP].astype(np.float64)
    for _ in range(n_iterations):
        gain = np.sum(tail / (eta + steps)) + np.sum(digamma(large + eta) - digamma(_CAP + eta))
        loss = n_features * np.sum(digamma(totals + n_features * eta) - digamma(n_features * eta))
        eta = max(float(eta * gain / loss), _SMALLEST_PRIOR)
    return eta
