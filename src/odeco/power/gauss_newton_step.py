"""A Gauss-Newton step of all components towards the least-squares fit, from one image of each.

For points xᵢ with signs sᵢ and their Gram matrix G, powers taken entry by entry, the Gauss-Newton matrix of
½‖T − Σ sᵢ xᵢ⊗ᵖ‖² is p times

    H(Δ) = Δ SGᵖ⁻¹S + (p−1) X ((SGᵖ⁻²S) ∘ ΔᵀX).

For steps Δ orthogonal to all xᵢ the second term is zero, and a k x k system is all there is to solve. Steps in the span
of the xᵢ are k² numbers. Few are solved for directly; more are found by n conjugate gradient iterations, so that a step
costs O(d k² + n k³).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray

#: The largest number of conjugate gradient iterations, and the relative residual at which they stop: what is left is
#: corrected by the next Gauss-Newton step.
_MAX_ITERATIONS, _TOLERANCE = 60, 1e-3

#: Damping is at least this, so that the matrix can be inverted.
_MIN_DAMPING = 1e-12

#: Up to this number of components the system in their span is solved directly, which is then faster.
_MAX_DIRECT = 10


def gauss_newton_step(
    points: FloatArray,
    signs: FloatArray,
    descent: FloatArray,
    order: int,
    *,
    damping: float,
    tolerance: float | None = None,
) -> FloatArray:
    """Return the step Δ with H(Δ) = descent, with Levenberg's and Marquardt's damping of the first term of H.

    With a tolerance, conjugate gradients end at this relative residual. Without one, the step is solved for directly
    where that is faster.
    """
    with one_blas_thread():  # results must not depend on the number of threads
        gram: FloatArray = points.T @ points
        inner = (signs[:, None] * signs) * gram ** (order - 1)
        outer = (signs[:, None] * signs) * gram ** (order - 2) * (order - 1)
        # Powers of a Gram matrix are positive semidefinite, and the damping makes them definite.
        damped = inner + max(damping, _MIN_DAMPING) * np.diag(np.diagonal(inner))
        inverse = np.linalg.inv(damped).astype(np.float64, copy=False)
        basis, root = np.linalg.qr(points)
        inside = basis.T @ descent
        across = (descent - basis @ inside) @ inverse

        def product(step: FloatArray) -> FloatArray:
            result: FloatArray = step @ damped + root @ (outer * (step.T @ root))
            return result

        if tolerance is None and points.shape[1] <= _MAX_DIRECT:
            mixed = np.einsum("aj,ji,bi->aibj", root, outer, root)
            matrix = np.einsum("ab,ij->aibj", np.eye(inside.shape[0]), damped) + mixed
            along = np.linalg.solve(matrix.reshape(inside.size, inside.size), inside.ravel()).reshape(inside.shape)
        else:
            goal = tolerance or _TOLERANCE
            along = conjugate_gradients(product, inside, lambda residual: residual @ inverse, tolerance=goal)
        step: FloatArray = across + basis @ along
    return step


def conjugate_gradients(
    product: Callable[[FloatArray], FloatArray],
    target: FloatArray,
    precondition: Callable[[FloatArray], FloatArray],
    *,
    tolerance: float = _TOLERANCE,
) -> FloatArray:
    """Solve H(Δ) = target, with the inverse of the first term of H as preconditioner."""
    solution = np.zeros_like(target)
    residual = target.copy()
    preconditioned = precondition(residual)
    direction = preconditioned.copy()
    strength = float(np.vdot(residual, preconditioned))
    goal = tolerance**2 * strength
    for _ in range(_MAX_ITERATIONS):
        if strength <= goal or strength <= 0:
            break
        image = product(direction)
        length = strength / float(np.vdot(direction, image))
        solution += length * direction
        residual -= length * image
        preconditioned = precondition(residual)
        previous, strength = strength, float(np.vdot(residual, preconditioned))
        direction = preconditioned + (strength / previous) * direction
    return solution
