"""Norms of symmetric tensors, and how evenly components are spread over the coordinates."""

from __future__ import annotations

import itertools
import math

import numpy as np

from odeco._util.arguments import as_generator
from odeco._util.types import RngLike
from odeco.tensors.components import Components
from odeco.tensors.oracle import Oracle


def squared_norm(oracle: Oracle, *, rng: RngLike = None, n_probes: int = 32) -> float:
    """Return the sum of the squares of all entries: exactly where the oracle knows it, else an unbiased estimate.

    The mean of ‖T(I, g₁, …, gₚ₋₁)‖² over independent standard normal vectors is the squared norm, and by polarisation
    T(I, g₁, …, gₚ₋₁) is a signed sum of images of ±g₁ ± … ± gₚ₋₁.
    """
    known = oracle.squared_norm()
    if known is not None:
        return known
    n_others = oracle.order - 1
    probes = as_generator(rng).standard_normal((n_others, oracle.dimension, n_probes))
    total = np.zeros((oracle.dimension, n_probes))
    for signs in itertools.product((1.0, -1.0), repeat=n_others - 1):  # the opposite signs would give the same term
        total += math.prod(signs) * oracle.image(np.tensordot((1.0, *signs), probes, axes=1))
    total /= 2 ** (n_others - 1) * math.factorial(n_others)
    return float(np.mean(np.sum(total**2, axis=0)))


def incoherence(components: Components) -> float:
    """Return μ₀ = (d/k) maxᵢ ‖Vᵀeᵢ‖²: 1 if the components are spread evenly over coordinates, d/k at worst.

    The paper defines it in Assumption 4.1. The noise of its private algorithm is proportional to it.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> odeco.incoherence(odeco.Components([1.0], np.full((4, 1), 0.5)))
    1.0
    >>> odeco.incoherence(odeco.Components([1.0], np.eye(4)[:, :1]))
    4.0
    """
    largest_row = float(np.max(np.sum(components.vectors**2, axis=1)))
    return components.dimension / components.n_components * largest_row
