"""The best fit: all components of a tensor moved together to the least-squares optimum, through images alone.

With xᵢ = |λᵢ|^(1/p) vᵢ and the signs sᵢ of the weights, the misfit is ½‖T − Σ sᵢ xᵢ⊗ᵖ‖². Its gradient takes one image
of the k vectors. Its Gauss-Newton matrix takes none (`odeco.search.joint_step`). So a step costs one image and
O(d k² + n k³) besides.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from odeco._threads import one_blas_thread
from odeco._types import FloatArray
from odeco.components import Components
from odeco.oracle import Oracle
from odeco.search import joint_step

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
