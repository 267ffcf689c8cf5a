"""The best fit: all components of a tensor moved together to the least-squares optimum, through images alone.

With xᵢ = |λᵢ|^(1/p) vᵢ and the signs sᵢ of the weights, the misfit is ½‖T − Σ sᵢ xᵢ⊗ᵖ‖². Its gradient takes one image
of the k vectors. Its Gauss-Newton matrix takes none (`odeco.power.joint_step`). So a step costs one image and
O(d k² + n k³) besides.

How far noise moved a fit: standard errors of weights and vectors from the Gauss-Newton matrix.

If the noise has the same variance at every unit vector, a least-squares fit has the covariance σ² H⁻¹ for small noise.
Its part across the span of the components has a closed form. Its part in the span takes k² unknowns: they are solved
for exactly up to a number of components; beyond it, what one component's error does to the others is neglected there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray
from odeco.power.joint_step import joint_step
from odeco.tensors.components import Components
from odeco.tensors.oracle import Oracle

#: Steps until the fit gives up. Near the optimum of a good fit every step gains as many digits as the last one had.
_MOST_STEPS = 60

#: The damping: where it begins, by how much it grows after a step that failed, and shrinks after one that did not.
_FIRST_DAMPING, _MORE, _LESS = 1e-3, 8.0, 0.1

_MOST_DAMPING = 1e6

#: A step that lowers the misfit by less than this share of what it is for each entry is negligible: it moves the fit
#: by a thousandth of its standard errors.
NEGLIGIBLE = 1e-6


@dataclass(frozen=True, eq=False)
class Fit:
    """Components at a least-squares optimum.

    Attributes
    ----------
    components : Components
        Weights and vectors, in the order of the start.
    explained : float
        2⟨T, C⟩ − ‖C‖²: what the components take off the squared norm of the tensor.
    residuals : array
        ‖T(I, v, …, v) − C(I, v, …, v)‖ for every component: how far it is from a stationary point.
    history : tuple of float
        Length of every step over that of the components.
    """

    components: Components
    explained: float
    residuals: FloatArray
    history: tuple[float, ...]


def refine(
    oracle: Oracle,
    start: Components,
    *,
    whole: float | None = None,
    share: float = NEGLIGIBLE,
    tolerance: float = 1e-10,
    most_steps: int = _MOST_STEPS,
) -> Fit:
    """Move components to the nearest least-squares optimum of an exact tensor.

    Levenberg's and Marquardt's damping makes every step lower the misfit: one that fails is tried again, shorter.

    Parameters
    ----------
    oracle, start
        The tensor, and where to start.
    whole : float, optional
        The squared norm of the tensor. If it is given, the fit also ends when a step lowers the misfit by less than
        `share` of what it is for each of the entries: a step that is a small part of the standard errors.
    tolerance : float
        The fit ends when a step is shorter than this share of the components.
    most_steps : int
        The most steps that are taken; as many may fail.
    """
    order, (signs, points) = start.order, as_points(start)
    end = descend(
        points,
        oracle.image,
        lambda points, images: _gain(points, signs, images, order),
        lambda points, images, damping: _step(points, signs, images, order, damping),
        negligible=share / math.comb(oracle.dimension + order - 1, order),
        rounding=oracle.rounding,
        whole=whole,
        tolerance=tolerance,
        most_steps=most_steps,
    )
    lengths = np.linalg.norm(end.points, axis=0)
    components = Components(signs * lengths**order, end.points / lengths, order)
    misfit = end.images / lengths ** (order - 1) - components.image(components.vectors)
    return Fit(components, end.gain, np.linalg.norm(misfit, axis=0), end.history)


class Descent(NamedTuple):
    """Where damped steps ended: points, their images, what they gain, and the lengths of the steps."""

    points: FloatArray
    images: FloatArray
    gain: float
    history: tuple[float, ...]


def descend(
    points: FloatArray,
    ask: Callable[[FloatArray], FloatArray],
    gain_of: Callable[[FloatArray, FloatArray], float],
    step_of: Callable[[FloatArray, FloatArray, float], FloatArray],
    *,
    negligible: float,
    rounding: float,
    whole: float | None,
    tolerance: float = 1e-10,
    most_steps: int = _MOST_STEPS,
) -> Descent:
    """Take damped steps until one is negligible: shorter than the tolerance, or with too small a share of the misfit.

    A step that fails is tried again with more damping.
    """
    images = ask(points)
    gain = gain_of(points, images)
    damping, history, converged = _FIRST_DAMPING, list[float](), points.shape[1] == 0
    for _ in range(2 * most_steps):
        if converged or len(history) == most_steps or damping > _MOST_DAMPING:
            break
        step = step_of(points, images, damping)
        length = float(np.linalg.norm(step) / np.linalg.norm(points))
        tried_images = ask(points + step)
        tried_gain = gain_of(points + step, tried_images)
        won = tried_gain - gain
        # Gains that differ by less than their rounding errors do not tell which is better: the shorter step is.
        doubtful = 16 * rounding * abs(gain)
        too_little = 0.0 if whole is None else negligible * max(0.0, whole - gain)
        converged = length <= tolerance or doubtful < won <= too_little
        if won >= -doubtful:
            points, images, gain = points + step, tried_images, tried_gain
            damping *= _LESS
            history.append(length)
        else:
            damping *= _MORE
    return Descent(points, images, gain, tuple(history))


def as_points(components: Components) -> tuple[FloatArray, FloatArray]:
    """Return signs, and vectors scaled by the p-th root of their weight; at odd orders the vector takes the sign."""
    weights, vectors = components.weights, components.vectors
    signs = np.where(weights < 0, -1.0, 1.0)
    if components.order % 2:
        vectors, signs = vectors * signs, np.ones_like(signs)
    return signs, vectors * np.abs(weights) ** (1 / components.order)


def _gain(points: FloatArray, signs: FloatArray, images: FloatArray, order: int) -> float:
    """Return 2⟨T, C⟩ − ‖C‖², which is ‖T‖² less the squared misfit."""
    with one_blas_thread():
        gram: FloatArray = points.T @ points
    return float(2 * signs @ np.einsum("il,il->l", points, images) - signs @ gram**order @ signs)


def _step(points: FloatArray, signs: FloatArray, images: FloatArray, order: int, damping: float) -> FloatArray:
    """Return the damped Gauss-Newton step."""
    with one_blas_thread():
        gram: FloatArray = points.T @ points
        descent: FloatArray = signs * images - points @ ((signs[:, None] * signs) * gram ** (order - 1))
    return joint_step(points, signs, descent, order, damping=damping)


#: Up to this many components the system in their span is solved exactly: it has k² unknowns.
_MOST_EXACT = 24


def standard_errors(components: Components, deviation: float) -> tuple[FloatArray, FloatArray]:
    """Return the standard errors of weights and of vectors, the latter as angles in radians, at most π/2.

    `deviation` is the standard deviation of the noise at a unit vector.
    """
    order, k, dimension = components.order, components.n_components, components.dimension
    if k == 0:
        return np.zeros(0), np.zeros(0)
    signs, points = as_points(components)
    lengths = np.linalg.norm(points, axis=0)
    with one_blas_thread():
        gram: FloatArray = points.T @ points
        pairs = signs[:, None] * signs
        inner = order * pairs * gram ** (order - 1)
        outer = order * (order - 1) * pairs * gram ** (order - 2)
        across = np.diagonal(np.linalg.pinv(inner, hermitian=True))
        n_inside = min(k, dimension)
        if k <= _MOST_EXACT:
            basis, root = np.linalg.qr(points)
            n_inside = basis.shape[1]
            matrix = np.einsum("ab,ij->aibj", np.eye(n_inside), inner) + np.einsum("aj,ji,bi->aibj", root, outer, root)
            size = n_inside * k
            covariance = np.linalg.pinv(matrix.reshape(size, size), hermitian=True).reshape(n_inside, k, n_inside, k)
            blocks = np.einsum("aibi->iab", covariance)
            units = root / lengths
            along = np.einsum("ai,iab,bi->i", units, blocks, units)
            beside = np.einsum("iaa->i", blocks) - along
        else:  # H has the own second term of each component, which counts (p − 1) times along it
            along = across / order
            beside = (n_inside - 1) * across
    turned = np.maximum(beside + (dimension - n_inside) * across, 0.0)
    angles = np.minimum(deviation * np.sqrt(turned) / lengths, math.pi / 2)
    weights: FloatArray = deviation * np.sqrt(np.maximum(along, 0.0)) * order * lengths ** (order - 1)
    return weights, angles
