"""What the mechanisms share that add noise to every iteration of the power method."""

from __future__ import annotations

import math
from typing import Literal

from scipy.special import ndtri

from odeco.privacy import DataHolder, PrivateOracle, Releaser
from odeco.private.mechanisms._mechanism import FOUND, Setting

#: The arguments that say how often such a mechanism asks.
LOOP_ARGUMENTS = frozenset({"n_restarts", "n_iterations"})


def private_oracle(
    holder: DataHolder,
    releaser: Releaser,
    noise_multiplier: float,
    *,
    release: Literal["joint", "separate"],
    merge: float | None = None,
) -> PrivateOracle:
    """Return an oracle that pays with the ledger of the releaser and answers with its noise."""
    return PrivateOracle(
        holder,
        releaser.ledger,
        noise_multiplier=noise_multiplier,
        release=release,
        merge=merge,
        noise=releaser.noise,
        data=releaser.data,
    )


def smallest_weight(setting: Setting, noise: float) -> float:
    """Return the weight from which on the power method climbs out of the noise, and reaches the cosine wanted.

    From c the next cosine is λc²/(s√d), larger than c if λ > s√d/c. Noise throws the dice anew in every iteration, so
    that c is the largest of some LR/2 draws of |N(0, 1)|/√d, in the median g/√d: λ > s d/g. (At order p the signal is
    λ c^(p−1).) To stay at the cosine `FOUND` is a condition too, the weaker one unless d is small.
    """
    d, p = setting.dimension, setting.order
    draws = max(1.0, setting.search.n_restarts * setting.search.n_iterations / 2)
    largest = min(float(ndtri((1 + 0.5 ** (1 / draws)) / 2)), 0.9 * math.sqrt(d))
    start = noise * math.sqrt(d) / (largest / math.sqrt(d)) ** (p - 2)
    end = noise * math.sqrt(d) * FOUND / (math.sqrt(1 - FOUND**2) * FOUND ** (p - 1))
    return max(start, end)
