"""The operator norm of a symmetric tensor, by the power method."""

from __future__ import annotations

from typing import Any

from odeco._util.types import RngLike
from odeco.power.power_method import Schedule, run
from odeco.tensors.dense import as_oracle


def operator_norm(
    tensor: Any,
    *,
    n_restarts: int = 100,
    n_iterations: int = 500,
    tol: float = 1e-10,
    rng: RngLike = None,
) -> float:
    """Return the largest |T(u, …, u)| over unit vectors u: the operator norm of a symmetric tensor.

    Finding the operator norm is hard in general. The number that is returned is the best of
    `n_restarts` local optima, so it is a lower bound. At even orders a restart whose first value is
    positive maximises, and one whose first value is negative minimises.

    Parameters
    ----------
    tensor : array or Oracle
        A symmetric tensor.
    n_restarts, n_iterations : int
        The number of starts, which are uniform on the sphere, and the largest number of iterations
        for each.
    tol : float
        Iteration stops once all relative residuals are at most this.
    rng : None, int or numpy.random.Generator
        Draws the starts.

    Notes
    -----
    This is the shifted power method (SS-HOPM). A shift is raised only when the value gets worse.

    References
    ----------
    Kolda and Mayo, *Shifted power method for computing tensor eigenpairs*, 2011, arXiv:1007.1267.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> round(
    ...     odeco.operator_norm(odeco.Components([1.0, -3.0], np.eye(4)[:, :2], order=4), rng=0), 12
    ... )
    3.0
    """
    oracle = as_oracle(tensor)
    schedule = Schedule(1, n_restarts, n_iterations, max(tol, 8 * oracle.rounding))
    return abs(run(oracle, schedule, rng=rng).found[0].weight)
