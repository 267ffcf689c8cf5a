"""The step that moves all components together towards the least-squares fit, from one image of each.

For points xᵢ with signs sᵢ and their Gram matrix G, powers taken entry by entry, the Gauss-Newton matrix of
½‖T − Σ sᵢ xᵢ⊗ᵖ‖² is p times

    H(Δ) = Δ SGᵖ⁻¹S + (p−1) X ((SGᵖ⁻²S) ∘ ΔᵀX).

For steps Δ orthogonal to all xᵢ the second term is zero, and a k x k system is all there is to solve. Steps in the span
of the xᵢ are k² numbers, found by conjugate gradients. So a step costs O(d k² + n k³).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray
from odeco.tensors.components import Components

#: Conjugate gradients stop here: the step is then as good as exact for everything that the next step corrects anyway.
_MOST_INNER_STEPS = 60

_INNER_TOLERANCE = 1e-3

#: Components that have met by mistake must not throw each other out: their part of the step is damped by this share.
_SIGHT_DAMPING = 1e-3

#: A sight is not corrected by a next step, so it is solved for to more digits.
_SIGHT_TOLERANCE = 1e-8


#: Damping is never less than this, so that a matrix can be inverted.
_LEAST_DAMPING = 1e-12


def joint_step(
    points: FloatArray,
    signs: FloatArray,
    descent: FloatArray,
    order: int,
    *,
    damping: float,
    tolerance: float = _INNER_TOLERANCE,
) -> FloatArray:
    """Return the step Δ with H(Δ) = descent, with Levenberg's and Marquardt's damping of the first term of H."""
    with one_blas_thread():  # the bits of a decomposition depend on the number of threads
        gram: FloatArray = points.T @ points
        inner = (signs[:, None] * signs) * gram ** (order - 1)
        outer = (signs[:, None] * signs) * gram ** (order - 2) * (order - 1)
        # Powers of a Gram matrix are positive semidefinite, and the damping makes them definite.
        damped = inner + max(damping, _LEAST_DAMPING) * np.diag(np.diagonal(inner))
        inverse = np.linalg.inv(damped).astype(np.float64, copy=False)
        basis, root = np.linalg.qr(points)
        inside = basis.T @ descent
        across = (descent - basis @ inside) @ inverse

        def product(step: FloatArray) -> FloatArray:
            result: FloatArray = step @ damped + root @ (outer * (step.T @ root))
            return result

        along = conjugate_gradients(product, inside, lambda residual: residual @ inverse, tolerance=tolerance)
        step: FloatArray = across + basis @ along
    return step


def sights(components: Components, images: FloatArray) -> FloatArray:
    """Return what images of the vectors of nearly right components say about each right one: a vector λ v.

    What the images differ by from those of the components is what the errors of all components make of it together, to
    first order: with zⱼ = λⱼ δⱼ and unit vectors for points, it is H(Z), in which no weight occurs. Along vⱼ, z counts
    p times in the weight. For orthogonal components the sight is the image less the parts of the others.
    """
    vectors, weights, order = components.vectors, components.weights, components.order
    misfit = images - components.image(vectors)
    signs = np.ones_like(weights)
    moved = joint_step(vectors, signs, misfit, order, damping=_SIGHT_DAMPING, tolerance=_SIGHT_TOLERANCE)
    along = np.sum(moved * vectors, axis=0)
    seen: FloatArray = moved + vectors * (weights + (order - 1) * along)
    return seen


def conjugate_gradients(
    product: Callable[[FloatArray], FloatArray],
    target: FloatArray,
    precondition: Callable[[FloatArray], FloatArray],
    *,
    tolerance: float = _INNER_TOLERANCE,
) -> FloatArray:
    """Solve H(Δ) = target, with the inverse of the first term of H as preconditioner."""
    solution = np.zeros_like(target)
    residual = target.copy()
    preconditioned = precondition(residual)
    direction = preconditioned.copy()
    strength = float(np.vdot(residual, preconditioned))
    goal = tolerance**2 * strength
    for _ in range(_MOST_INNER_STEPS):
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
