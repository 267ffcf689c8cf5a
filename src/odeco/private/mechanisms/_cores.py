"""What the mechanisms share that find the span of the components first, and then a small core in it."""

from __future__ import annotations

import math
from functools import partial

from odeco._types import FloatArray
from odeco.components import Components
from odeco.cores import decompose_core
from odeco.private.mechanisms._mechanism import Task


def release_core(task: Task, basis: FloatArray) -> tuple[Components, float]:
    """Release T(Q, …, Q), the last of the plan; return its components in d dimensions, and the scale of the noise."""
    holder, width, order = task.holder, basis.shape[1], task.holder.order
    core, scale = task.releaser.release(
        f"core of {width}^{order} numbers",
        partial(holder.core, basis),
        size=width**order,
        sensitivity=holder.core_sensitivity(basis),
        noise_multiplier=1 / task.mu(-1),
    )
    inside = decompose_core(core, task.n_components, task.generator)
    return Components(inside.weights, basis @ inside.vectors, order), scale


def cosine_in_core(weight: float, noise: float, width: int) -> float:
    """Return the cosine reached inside a core with noise of this size at every unit vector.

    Noise alone reaches 1.66 √m times its size somewhere, which the weight must exceed; it then turns a
    component by noise √(m/3) across it.
    """
    across, highest = noise * math.sqrt(width / 3), 2 * noise * math.sqrt(width)
    return min(1.0, weight / highest) * weight / math.hypot(weight, across)
