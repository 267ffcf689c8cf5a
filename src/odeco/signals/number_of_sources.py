"""How many sources there are: those that are clearly not Gaussian, in rows that they were not learnt from.

Gaussian directions can be turned into each other without a trace, so no method finds them; noise is of that kind. Any
direction that was chosen to look least Gaussian does so a little, in the rows that it was chosen by. In other rows it
is a fair test: with y standardised, the means of y e^(−y²/2) and of e^(−y²/2), less their parts along 1, y and y², are
asymptotically independent Gaussians if y is one. Both functions are bounded, so that this holds for few rows as well.
"""

from __future__ import annotations

import math

import numpy as np

from odeco._types import FloatArray

#: All sources together are taken for non-Gaussian by mistake with at most this chance.
_SIGNIFICANCE = 0.01
#: Variances of the two functions, less their parts along 1, y and y²: E[y²e^(−y²)] − 1/8 and E[e^(−y²)] − 1/2 − 1/16.
_ODD, _EVEN = 1 / (3 * math.sqrt(3)) - 1 / 8, 1 / math.sqrt(3) - 1 / 2 - 1 / 16


def chance_of_gaussian(sources: FloatArray) -> FloatArray:
    """Return for each source (k x n) the chance that n values of a Gaussian look less like one."""
    centred = sources - sources.mean(axis=1, keepdims=True)
    deviation = centred.std(axis=1, keepdims=True)
    y = centred / np.where(deviation > 0, deviation, 1.0)
    bell = np.exp(-y * y / 2)
    # The parts along y and y² have a mean of exactly zero after standardising, so only the constant is subtracted.
    odd, even = np.mean(y * bell, axis=1), np.mean(bell, axis=1) - 1 / math.sqrt(2)
    chances: FloatArray = np.exp(-sources.shape[1] * (odd**2 / _ODD + even**2 / _EVEN) / 2)
    return chances


def count_sources(sources: FloatArray) -> int:
    """Return how many sources are clearly not Gaussian, at least 1; their rows must not be those they were learnt from.

    The j-th least Gaussian of k is compared with j + 1 (Holm 1979), which spares nothing if most of them are.
    """
    chances = np.sort(chance_of_gaussian(sources))
    limits = _SIGNIFICANCE / np.arange(len(chances), 0, -1)
    clear = chances <= limits
    return max(1, int(np.argmin(clear)) if not clear.all() else len(chances))
