"""The plan of a mechanism that adds noise to every iteration of the power method."""

from __future__ import annotations

import math

from scipy.special import ndtri

from odeco.privacy import MechanismPlan, noise_multiplier
from odeco.private.mechanisms._mechanism import FOUND, Setting

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
