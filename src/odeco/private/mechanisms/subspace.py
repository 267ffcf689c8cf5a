"""The second moment shows the span of the components; the core in it shows the components."""

from __future__ import annotations

import math
from typing import cast, final

import numpy as np

from odeco._util.types import FloatArray
from odeco.privacy.found import Found, found_in_core
from odeco.privacy.holders.records import RecordLevel
from odeco.privacy.plan import MechanismPlan
from odeco.private.mechanisms.common import best_shares, cosine_in_core, release_core
from odeco.private.mechanisms.mechanism import Mechanism, Setting, Task


@final
class Subspace(Mechanism):
    """Release the second moment, then the core in the span of its leading eigenvectors; decompose the core for free.

    Right only if the components span the leading directions of (1/n) Σ x xᵀ, as in single-topic and mixture models
    whose noise is small or round.

    Privacy: two releases, each with a share of μ². The d (d + 1) / 2 distinct entries are released with √2 in front of
    those off the diagonal, which makes their norm that of the whole matrix.
    """

    name = "subspace"
    summary = "The second moment of the rows is released to find the span of the components, then the small core in it."
    needs_second_moment = True

    def plan(self, setting: Setting) -> MechanismPlan:
        """Share the budget between the second moment and the core.

        The noise of a coordinate of M v is that of the second moment over √2, so the cosine of the span with v is √(1 −
        1/θ²), θ = √2 λ/(s√d) (a spiked Wigner matrix), λ in the scale of the second moment.
        """
        d, k = setting.dimension, setting.search.n_components
        moment = float(setting.sensitivities.moment or 0.0) / setting.mu
        core = setting.sensitivities.core(setting.random_basis(k)) / setting.mu

        def reached(weight: float, shares: FloatArray) -> float:
            height = math.sqrt(2) * weight / (moment / math.sqrt(shares[0]) * math.sqrt(d))
            cosine = math.sqrt(max(0.0, 1 - 1 / height**2))
            return cosine * cosine_in_core(weight, core / math.sqrt(shares[1]), k)

        remark = "right only if the components span the leading directions of the second moment"
        return best_shares(self.name, reached, 2, moment, remark)

    def run(self, task: Task) -> Found:
        """Release the second moment, and the core in its leading directions."""
        rows = cast("RecordLevel", task.holder)  # `refusal` lets nothing else pass
        d, k = rows.dimension, task.n_components
        lower = np.tril_indices(d)
        units = np.where(lower[0] == lower[1], 1.0, math.sqrt(0.5))
        packed, scale = task.releaser.release(
            f"second moment, {units.size} distinct entries",
            lambda: rows.second_moment()[lower] / units,
            size=units.size,
            sensitivity=rows.second_moment_sensitivity(),
            noise_multiplier=1 / task.mu(0),
        )
        moment = np.zeros((d, d))
        moment[lower] = moment.T[lower] = packed * units
        eigenvalues, eigenvectors = np.linalg.eigh(moment)
        basis = eigenvectors[:, -k:]
        found, core_scale = release_core(task, basis)
        inside = basis.T @ found.vectors / np.maximum(eigenvalues[-k:], scale)[:, None]
        outside = scale * math.sqrt(d / 2) * np.linalg.norm(inside, axis=0)
        return found_in_core(found, core_scale, k, outside)
