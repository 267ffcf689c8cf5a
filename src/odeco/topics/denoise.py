"""Frequencies of words are read off noisy sums: what the noise has hidden is filled in with what is usual.

All of this is post-processing of released numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from odeco._types import FloatArray

#: The prior of a frequency lives on so many points, and is fitted in so many rounds.
_N_POINTS, _N_ROUNDS = 60, 200
#: The lowest point is this share of the noise: nothing below can be told from zero.
_LOWEST = 0.02
#: Between rounds so much of the prior of a point goes to each of its neighbours, so that it stays smooth.
_SPREAD = 0.05


@dataclass(frozen=True, eq=False)
class NoisySums:
    """Sums over documents, one for each word, with the standard deviation of the noise in each."""

    values: FloatArray
    deviations: FloatArray

    def joined(self, other: NoisySums) -> NoisySums:
        """Return the mean of both by inverse variances; this one is known up to a factor, which the totals set."""
        factor = max(float(other.values.sum()), _TINY) / max(float(self.values.sum()), _TINY)
        own, further = (factor * self.deviations) ** -2.0, other.deviations**-2.0
        values = (factor * self.values * own + other.values * further) / (own + further)
        return NoisySums(values, (own + further) ** -0.5)


_TINY = 1e-9


def word_frequencies(sums: NoisySums) -> tuple[FloatArray, FloatArray]:
    """Return the frequencies of the words, which sum to one, and their standard deviations.

    They are the posterior means of non-negative numbers seen through Gaussian noise. The prior, which all words share,
    is fitted to the numbers themselves: nonparametric maximum likelihood on a grid of logarithms (empirical Bayes).
    """
    lowest = _LOWEST * float(np.median(sums.deviations))
    points = np.geomspace(lowest, max(1.05 * float(sums.values.max()), 10 * lowest), _N_POINTS)
    distances = ((sums.values[:, None] - points) / sums.deviations[:, None]) ** 2
    likelihood = np.exp(-0.5 * (distances - distances.min(axis=1, keepdims=True)))
    prior = np.full(_N_POINTS, 1 / _N_POINTS)
    for _ in range(_N_ROUNDS):
        prior *= likelihood.T @ (1 / (likelihood @ prior))
        prior = np.convolve(np.pad(prior, 1, mode="edge"), [_SPREAD, 1 - 2 * _SPREAD, _SPREAD], mode="valid")
        prior /= prior.sum()
    posterior = likelihood * prior
    posterior /= posterior.sum(axis=1, keepdims=True)
    means = posterior @ points
    variances = np.maximum(posterior @ points**2 - means**2, 0.0)
    return means / means.sum(), np.sqrt(variances) / means.sum()
