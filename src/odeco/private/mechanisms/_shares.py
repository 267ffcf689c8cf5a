"""How a mechanism shares out its budget among releases that do not need the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy  # its submodules are imported when they are used: optimize takes longer than all of odeco

from odeco._types import FloatArray
from odeco.privacy import MechanismPlan
from odeco.private.mechanisms._mechanism import FOUND

#: No release gets less of μ², so that weights too are found to some accuracy.
LEAST_SHARE = 0.1


def best_shares(
    mechanism: str, reached: Callable[[float, FloatArray], float], n_releases: int, noise: float, remark: str = ""
) -> MechanismPlan:
    """Return the plan whose shares of μ² make the smallest signal smallest.

    `reached` returns the cosine that is reached for a weight, given the shares; `noise` is the standard deviation of
    the noise in the first release if that had all of the budget.
    """

    def smallest(shares: FloatArray) -> float:
        low, high = noise * 1e-6, noise * 1e-6
        while reached(high, shares) < FOUND:
            low, high = high, 4 * high
        return float(scipy.optimize.brentq(lambda weight: reached(weight, shares) - FOUND, low, high, xtol=1e-6 * low))

    def shares_of(logits: FloatArray) -> FloatArray:
        exponents = np.exp(np.append(logits, 0.0))
        shares: FloatArray = LEAST_SHARE + (1 - n_releases * LEAST_SHARE) * exponents / exponents.sum()
        return shares

    def loss(logits: FloatArray) -> float:
        return math.log(smallest(shares_of(logits)))

    equal = smallest(np.full(n_releases, 1 / n_releases))
    corners = np.vstack([np.zeros(n_releases - 1), np.eye(n_releases - 1)])
    options: Any = {"xatol": 0.02, "fatol": 1e-4, "maxiter": 400, "initial_simplex": corners}
    best = scipy.optimize.minimize(loss, corners[0], method="Nelder-Mead", options=options)
    # Shares are rounded down to a grid, so that their sum never exceeds 1 and plans read well.
    shares = np.floor(shares_of(best.x) * 1000) / 1000
    signal = smallest(shares)
    first = noise / math.sqrt(float(shares[0]))
    return MechanismPlan(mechanism, n_releases, first, signal, tuple(map(float, shares)), equal / signal, remark)
