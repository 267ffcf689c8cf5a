"""The shifted symmetric higher-order power method with a fixed shift (Kolda and Mayo 2011)."""

from __future__ import annotations

from typing import Any

import numpy as np

from odeco._util.arguments import as_generator, check_count
from odeco._util.types import FloatArray, RngLike
from odeco.power.iteration import normalise, uniform_starts
from odeco.tensors.components import Components
from odeco.tensors.dense import as_oracle


def ss_hopm(
    tensor: Any,
    *,
    shift: float,
    n_restarts: int = 100,
    n_iterations: int = 1000,
    tol: float = 1e-12,
    rng: RngLike = None,
) -> Components:
    """Return the distinct eigenpairs that the iteration u ← ±(T(I,u,…,u) + αu), normalised, reaches from random starts.

    A positive shift α finds local maxima of T(u,…,u) on the sphere, and a negative one finds local minima. Every start
    converges if |α| exceeds (p−1) times the operator norm, but convergence is slow then.

    Parameters
    ----------
    tensor : array or Oracle
        A symmetric tensor.
    shift : float
        The shift α.
    n_restarts, n_iterations : int
        The number of starts, which are uniform on the sphere, and the largest number of steps.
    tol : float
        The iteration stops once the relative residual of every start is at most this.
    rng : None, int or numpy.random.Generator
        Draws the starts.

    References
    ----------
    Kolda and Mayo, *Shifted power method for computing tensor eigenpairs*, 2011, arXiv:1007.1267.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> from odeco.reproduction.baselines import ss_hopm
    >>> tensor = odeco.Components([2.0, 1.0], np.eye(3)[:, :2])
    >>> ss_hopm(tensor, shift=4.0, rng=0).weights[:2].round(6)
    array([2., 1.])
    """
    oracle = as_oracle(tensor)
    check_count("n_restarts", n_restarts)
    block = uniform_starts(as_generator(rng), (oracle.dimension,), n_restarts)
    sign = 1.0 if shift >= 0 else -1.0
    for _ in range(check_count("n_iterations", n_iterations)):
        image = oracle.image(block)
        values = np.sum(block * image, axis=0)
        if np.all(np.linalg.norm(image - values * block, axis=0) <= tol * np.abs(values)):
            break
        block = normalise(sign * (image + shift * block), (oracle.dimension,), block)
    return _distinct(oracle.value(block), block, oracle.order)


def _distinct(values: FloatArray, block: FloatArray, order: int) -> Components:
    """Return one of each group of candidates that point the same way, the largest absolute value first."""
    kept: list[int] = []
    for candidate in np.argsort(-np.abs(values), kind="stable"):
        if np.all(np.abs(block[:, kept].T @ block[:, candidate]) < 1 - 1e-6):
            kept.append(int(candidate))
    return Components(values[kept], block[:, kept], order)
