"""How a mechanism shares out its budget among releases that do not need the same.

What the mechanisms share that find the span of the components first, and then a small core in it.

The plan of a mechanism that adds noise to every iteration of the power method.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy  # its submodules are imported when they are used: optimize takes longer than all of odeco
from scipy.special import ndtri

from odeco._util.types import FloatArray
from odeco.cp.small import decompose_core
from odeco.privacy.calibration import noise_multiplier
from odeco.privacy.plan import MechanismPlan
from odeco.private.mechanisms.mechanism import FOUND, Setting, Task
from odeco.tensors.components import Components

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


def release_core(task: Task, basis: FloatArray) -> tuple[Components, float]:
    """Release T(Q, …, Q), the last of the plan; return its components in d dimensions, and the scale of the noise."""
    holder, width, order = task.holder, basis.shape[1], task.holder.order
    core, scale = task.releaser.release(
        f"core of {width}^{order} numbers",
        partial(holder.core, basis),
        size=width**order,
        sensitivity=holder.core_sensitivity(basis),
        noise_multiplier=1 / task.mu(-1),
    )
    inside = decompose_core(core, task.n_components, task.generator)
    return Components(inside.weights, basis @ inside.vectors, order), scale


def cosine_in_core(weight: float, noise: float, width: int) -> float:
    """Return the cosine reached inside a core with noise of this size at every unit vector.

    Noise alone reaches 1.66 √m times its size somewhere, which the weight must exceed; it then turns a
    component by noise √(m/3) across it.
    """
    across, highest = noise * math.sqrt(width / 3), 2 * noise * math.sqrt(width)
    return min(1.0, weight / highest) * weight / math.hypot(weight, across)


#: The arguments that say how often such a mechanism asks.
LOOP_ARGUMENTS = frozenset({"n_restarts", "n_iterations"})


def plan_iterations(mechanism: str, setting: Setting, n_releases: int, sensitivity: float) -> MechanismPlan:
    """Return the plan for so many releases of images, each of this sensitivity.

    The smallest signal is that from which on the power method climbs out of the noise, and reaches the cosine wanted.
    From c the next cosine is λc²/(s√d), larger than c if λ > s√d/c. Noise throws the dice anew in every iteration, so
    that c is the largest of some LR/2 draws of |N(0, 1)|/√d, in the median g/√d: λ > s d/g. (At order p the signal is
    λ c^(p−1).) To stay at the cosine `FOUND` is a condition too, the weaker one unless d is small.
    """
    d, p, search = setting.dimension, setting.order, setting.search
    noise = noise_multiplier(setting.epsilon, setting.delta, n_releases) * sensitivity
    draws = max(1.0, search.n_restarts * search.n_iterations / 2)
    largest = min(float(ndtri((1 + 0.5 ** (1 / draws)) / 2)), 0.9 * math.sqrt(d))
    start = noise * math.sqrt(d) / (largest / math.sqrt(d)) ** (p - 2)
    end = noise * math.sqrt(d) * FOUND / (math.sqrt(1 - FOUND**2) * FOUND ** (p - 1))
    return MechanismPlan(mechanism, n_releases, noise, max(start, end))
