"""Input perturbation: every entry is released once, and the rest costs no budget."""

from __future__ import annotations

import math
from typing import final

from odeco.cp.small import decompose_noisy
from odeco.privacy.found import Found, found_in_entries
from odeco.privacy.holders.protocol import unpack
from odeco.privacy.plan import MechanismPlan
from odeco.private.mechanisms.mechanism import Mechanism, Setting, Task
from odeco.tensors.dense import DenseTensor

#: A noisy tensor of this dimension takes half a gigabyte; above it "auto" does not consider input perturbation.
MOST_DIMENSION = 400

#: Components are found to the cosine 0.9 from this many times s√d on; s is the noise of a coordinate of the image. To
#: first order tan = 1/x gives 2.06; terms of higher order make it 2.5 (measured for d = 50 to 300, see the tests).
_ACCURACY = 2.5

#: The unfolding begins to show the components from this many times s d^(3/4) on.
_START = 0.75


@final
class Input(Mechanism):
    """Release every distinct entry once, with noise; then decompose the noisy tensor.

    Privacy: one Gaussian mechanism of μ. Each entry is released in its own public unit (`DataHolder.entry_units`).
    """

    name = "input"
    summary = "Every distinct entry is released once, and the noisy tensor is then decomposed at no further cost."

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
        components = decompose_noisy(DenseTensor(unpack(packed * units, d)), task.n_components, task.generator)
        return found_in_entries(components, scale, holder.entry_units)
