"""Input perturbation: every entry is released once, and all the rest is free."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import final

import numpy as np

from odeco._types import FloatArray
from odeco.components import Components
from odeco.privacy import Found, MechanismPlan, angles_of, noise_ceiling, unpack
from odeco.private.mechanisms._cores import decompose_core, leading_directions
from odeco.private.mechanisms._mechanism import Mechanism, Setting, Task
from odeco.search import Plan, Search, core_width, step
from odeco.tensors import DenseTensor

#: A noisy tensor of this dimension takes half a gigabyte; above it "auto" does not consider input perturbation.
MOST_DIMENSION = 400
#: Components are found to the cosine 0.9 from so many times s√d on, s the noise of a coordinate of the image. To first
#: order tan = 1/x gives 2.06; terms of higher order make it 2.5 (measured for d = 50 to 300, see the tests).
_ACCURACY = 2.5
#: The unfolding begins to show the components from so many times s d^(3/4) on.
_START = 0.75
#: Random starts that are tried beside the informed ones.
_RANDOM_STARTS = 12


@final
class Input(Mechanism):
    """Release every distinct entry once, with noise; then decompose at leisure.

    Privacy: one Gaussian mechanism of μ. Each entry is released in its own public unit (`DataHolder.entry_units`).
    """

    name = "input"
    summary = "Every distinct entry is released once, and the noisy tensor is then decomposed at leisure."

    def plan(self, setting: Setting) -> MechanismPlan:
        """Say what would be found: the noise is there once, so it must be small enough to start, and to end, well."""
        noise, d = setting.sensitivities.entries / setting.mu, setting.dimension
        signal = noise * max(_ACCURACY * math.sqrt(d), _START * d**0.75)
        remark = "" if d <= MOST_DIMENSION else f"takes {8 * d**3 / 2**30:.1f} GiB"
        return MechanismPlan(self.name, 1, noise, signal, remark=remark)

    def run(self, task: Task) -> Found:
        """Release all entries and decompose them."""
        holder, d, units = task.holder, task.holder.dimension, task.holder.packed_units()
        packed, scale = task.releaser.release(
            f"all {units.size} distinct entries",
            holder.packed,
            size=units.size,
            sensitivity=holder.packed_sensitivity(),
            noise_multiplier=1 / task.setting.mu,
        )
        components = _decompose_noisy(DenseTensor(unpack(packed * units, d)), task.n_components, task.generator)
        errors = scale * _value_errors(holder.entry_units, components.vectors)
        # A coordinate of E(I, v, v) is Σ 2 E_ijk v_j v_k over j < k, up to terms with equal indices.
        coordinate = scale * math.sqrt(2) * holder.entry_units[0]
        return Found(components, errors, angles_of(coordinate, components), errors * noise_ceiling(3, d))


def _value_errors(units: tuple[float, float, float], vectors: FloatArray) -> FloatArray:
    """Return the standard deviation of E(v, v, v) for independent noise E of these units on the distinct entries.

    An entry counts as often as it stands in the array, m = 6, 3 or 1 times, so the variance is Σ m² unit² Π v² over
    distinct entries. The three sums are symmetric functions of v², which power sums give (Newton's identities).
    """
    one, two, three = (np.sum(vectors**power, axis=0) for power in (2, 4, 6))
    sums = ((one**3 - 3 * one * two + 2 * three) / 6, one * two - three, three)
    terms = [(m * unit) ** 2 * total for m, unit, total in zip((6, 3, 1), units, sums, strict=True)]
    deviations: FloatArray = np.sqrt(np.sum(terms, axis=0))
    return deviations


def _decompose_noisy(tensor: DenseTensor, n_components: int, generator: np.random.Generator) -> Components:
    """Decompose a tensor deep in noise: Algorithm 1, with informed starts beside random ones.

    From a random start the power method needs a weight of order d times the noise of an entry. The leading left
    singular vectors of the d x d² unfolding lean towards the components from d^(3/4) on (Montanari and Richard 2014,
    arXiv 1411.1076), so Algorithm 1 inside their span gives starts for Algorithm 1 on the whole tensor.
    """
    d = tensor.dimension
    unfolding: FloatArray = tensor.entries.reshape(d, -1).astype(np.float64)
    basis = leading_directions(unfolding, core_width(d, n_components))
    core: FloatArray = unfolding.reshape(d, d, d)
    for _ in range(3):  # the last axis is contracted and becomes the first
        core = np.moveaxis(core @ basis, -1, 0)
    starts = basis @ decompose_core(core, n_components, generator).vectors
    plan = Plan(n_components, n_components + _RANDOM_STARTS, 40, tolerance=1e-6)
    search = Search.start(plan, parts=tensor.parts, rng=generator)
    while not search.done:
        if search.iteration == 0:
            search = replace(search, candidates=np.hstack([starts, search.candidates[:, n_components:]]))
        search = step(tensor, search)
    return search.components
