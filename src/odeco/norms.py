"""Norms of symmetric tensors, and how evenly components are spread over the coordinates."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from odeco._arguments import as_generator
from odeco._types import RngLike
from odeco.components import Components
from odeco.oracle import Oracle
from odeco.search import Plan, run
from odeco.tensors import as_oracle


def operator_norm(
    tensor: Any, *, n_restarts: int = 100, n_iterations: int = 500, tol: float = 1e-10, rng: RngLike = None
) -> float:
    """Return the largest |T(u, …, u)| over unit vectors u: the operator norm of a symmetric tensor.

    Finding the operator norm is hard in general. The number that is returned is the best of `n_restarts` local
    searches, so it is a lower bound. At even orders a search climbs if its start has a positive value, and descends if
    not.

    Parameters
    ----------
    tensor : array or Oracle
        A symmetric tensor.
    n_restarts, n_iterations : int
        The number of starts, which are uniform on the sphere, and the largest number of steps for each.
    tol : float
        A search stops once its relative residual is at most this.
    rng : None, int or numpy.random.Generator
        Draws the starts.

    Notes
    -----
    This is the shifted power method (SS-HOPM). The shift of a search is raised only when its value gets worse.

    References
    ----------
    Kolda and Mayo, *Shifted power method for computing tensor eigenpairs*, 2011, arXiv:1007.1267.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> round(odeco.operator_norm(odeco.Components([1.0, -3.0], np.eye(4)[:, :2], order=4), rng=0), 12)
    3.0
    """
    oracle = as_oracle(tensor)
    plan = Plan(1, n_restarts, n_iterations, max(tol, 8 * oracle.rounding))
    return abs(run(oracle, plan, rng=rng).found[0].weight)


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
