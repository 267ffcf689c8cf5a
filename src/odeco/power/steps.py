"""The steps that iterates take: power iteration of a block of unit vectors, and Gauss-Newton steps
of components.

A power step replaces a vector by its normalised image. A Gauss-Newton step moves all components
together towards the least-squares fit, from one image of each. For points xᵢ with signs sᵢ and
their Gram matrix G, powers taken entry by entry, the Gauss-Newton matrix of ½‖T − Σ sᵢ xᵢ⊗ᵖ‖² is p
times

    H(Δ) = Δ SGᵖ⁻¹S + (p−1) X ((SGᵖ⁻²S) ∘ ΔᵀX).

For steps Δ orthogonal to all xᵢ the second term is zero, and a k x k system is all there is to
solve. Steps in the span of the xᵢ are k² numbers. Few are solved for directly; more are found by n
conjugate gradient iterations, so that a step costs O(d k² + n k³).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray

#: The largest number of conjugate gradient iterations, and the relative residual at which they
#: stop: what is left is corrected by the next Gauss-Newton step.
_MAX_ITERATIONS = 60
_TOLERANCE = 1e-3

#: Damping is at least this, so that the matrix can be inverted.
_MIN_DAMPING = 1e-12

#: Up to this number of components the system in their span is solved directly, which is then
#: faster.
_MAX_DIRECT = 10


def uniform_starts(
    generator: np.random.Generator, parts: tuple[int, ...], n_starts: int
) -> FloatArray:
    """Draw unit vectors uniformly on the sphere, each part on its own and all parts of equal
    length.
    """
    block = generator.standard_normal((sum(parts), n_starts))
    return normalise(block, parts, block)


def normalise(block: FloatArray, parts: tuple[int, ...], fallback: FloatArray) -> FloatArray:
    """Scale every column to unit length, each of its parts to 1/√(number of parts).

    A part that is zero has no direction, and is replaced by that of `fallback`.
    """
    result = np.empty_like(block)
    start = 0
    for size in parts:
        rows = slice(start, start + size)
        part = block[rows]
        scaled = result[rows]
        largest = np.maximum(part.max(axis=0), -part.min(axis=0))
        # Dividing by the largest first keeps squares from under- and overflowing.
        np.divide(part, np.where(largest > 0, largest, 1.0), out=scaled)
        scaled[:, largest == 0] = fallback[rows][:, largest == 0]
        scaled /= column_norms(scaled) * math.sqrt(len(parts))
        start += size
    return result


def column_norms(block: FloatArray) -> FloatArray:
    """Return the length of every column."""
    squares: FloatArray = np.einsum("il,il->l", block, block)
    return np.sqrt(squares)


def choose_shifts(
    signs: FloatArray,
    shifts: FloatArray,
    before: FloatArray,
    values: FloatArray,
    *,
    order: int,
    n_images: int,
    may_shift: bool,
    rounding: float,
) -> tuple[FloatArray, FloatArray]:
    """Return the sign and the shift of each iterate: SS-HOPM (Kolda and Mayo 2011), with shifts
    only where needed.

    At an odd order an iterate and its negative have opposite values, so maximisation is enough. At
    an even order an iterate whose first value is negative minimises. The value of a maximising
    iterate never falls once its shift exceeds (p−1) times the largest value, so after finitely many
    doublings nothing can cycle. Where no shift is needed it stays 0, and convergence stays
    quadratic.

    Parameters
    ----------
    signs, shifts : arrays of L numbers
        For each iterate: whether it maximises (+1) or minimises (−1), and its shift so far.
    before, values : arrays of L numbers
        Its last value and its present one.
    order, n_images : int
        The order of the tensor, and the number of images of these iterates so far, the present one
        included.
    may_shift : bool
        Whether shifts may be raised at all.
    rounding : float
        The relative rounding error of the images.
    """
    if order % 2 == 0 and n_images == 1:
        return np.where(values < 0, -1.0, 1.0), shifts
    worse = signs * values < signs * before - 10 * rounding * np.abs(before)
    if may_shift and n_images > 1 and worse.any():
        return signs, np.where(worse, np.maximum(2 * shifts, np.abs(before)), shifts)
    return signs, shifts


def power_step(
    iterates: FloatArray,
    images: FloatArray,
    signs: FloatArray,
    shifts: FloatArray,
    parts: tuple[int, ...],
) -> FloatArray:
    """Return the normalised image of every iterate (Algorithm 1, line 4), plus its shift where it
    has one.
    """
    direction = images
    if shifts.any() or np.any(signs < 0):
        direction = signs * images + shifts * iterates
    return normalise(direction, parts, iterates)


def gauss_newton_step(
    points: FloatArray,
    signs: FloatArray,
    descent: FloatArray,
    order: int,
    *,
    damping: float,
    tolerance: float | None = None,
) -> FloatArray:
    """Return the step Δ with H(Δ) = descent, with Levenberg's and Marquardt's damping of the first
    term of H.

    With a tolerance, conjugate gradients end at this relative residual. Without one, the step is
    solved for directly where that is faster.
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
            along = np.linalg.solve(
                matrix.reshape(inside.size, inside.size), inside.ravel()
            ).reshape(inside.shape)
        else:
            goal = tolerance or _TOLERANCE
            along = conjugate_gradients(
                product, inside, lambda residual: residual @ inverse, tolerance=goal
            )
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
        previous = strength
        strength = float(np.vdot(residual, preconditioned))
        direction = preconditioned + (strength / previous) * direction
    return solution
