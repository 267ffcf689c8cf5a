"""A few slabs show the span of the components; the core in it shows the components."""

from __future__ import annotations

import math
from functools import partial
from typing import final

import numpy as np

from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray
from odeco.cp.small import core_width, leading_directions
from odeco.online.range_finder import DEFAULT_ROUNDS
from odeco.privacy.found import Found, found_in_core
from odeco.privacy.plan import MechanismPlan
from odeco.private.mechanisms.common import best_shares, cosine_in_core, release_core
from odeco.private.mechanisms.mechanism import Mechanism, Setting, Task


@final
class Core(Mechanism):
    """Find the span of the components by a few slabs T(I, W, W), then release the core in it; decompose that for free.

    The slab of any W lies in the span of the components, and contains each, v, with the weight λ|Wᵀv|². So W is random
    at first, and then the leading left singular vectors of the slab before.

    Privacy: one release for each slab, and one for the core; each gets a share of μ².

    Notes
    -----
    `CoreSearch` asks for the images T(I, w, w) of single columns, which is all that a stream can afford.
    Here all pairs of columns cost no more than these: the sensitivity of a slab is that of one image for records, and
    there are no signs to lose, whereas two columns (v₁ ± v₂)/√2 have the same image.
    """

    name = "core"
    summary = "A few slabs T(I, W, W) are released to find the span of the components, and then the small core in it."

    @staticmethod
    def widths(dimension: int, n_components: int) -> tuple[int, ...]:
        """Return how many directions each slab asks about, and the core.

        The first are random, and the more there are the better their signal, at a cost of d m²/2 numbers: twice as many
        as in a `CoreSearch`. The later ones only have to hold the components.
        """
        width = core_width(dimension, n_components)
        return (min(dimension, 2 * width), *(width,) * DEFAULT_ROUNDS)

    def plan(self, setting: Setting) -> MechanismPlan:
        """Share the budget among the slabs and the core.

        A slab has the signal λ|Wᵀv|² for a component v: λm/d for m random directions, λc² inside a span that has the
        cosine c with v. A signal of θ times the noise in a d x N matrix gives the leading left singular vectors the
        squared cosine 1 − d(N + θ²)/(θ²(θ² + d)) with v (Benaych-Georges and Nadakuditi 2012). |Wᵀv|² varies by √(2/m)
        of itself, and all k components must pass: the start is taken one such deviation below the mean.
        """
        d = setting.dimension
        widths = self.widths(d, setting.search.n_components)
        bases = [setting.random_basis(width) for width in widths]
        noises = [setting.sensitivities.slab(basis) / setting.mu for basis in bases[:-1]]
        core = setting.sensitivities.core(bases[-1]) / setting.mu

        def reached(weight: float, shares: FloatArray) -> float:
            square = widths[0] / d * (1 - math.sqrt(2 / max(widths[0], 8)))
            for i, noise in enumerate(noises):
                height, n_pairs = (weight * square / noise) ** 2 * shares[i], widths[i] * (widths[i] + 1) / 2
                missing = d * (n_pairs + height) / (height * (height + d))
                square = max(widths[i + 1] / d, 1 - missing)  # a random span has as much
            return math.sqrt(square) * cosine_in_core(weight, core / math.sqrt(shares[-1]), widths[-1])

        return best_shares(self.name, reached, len(widths), noises[0])

    def run(self, task: Task) -> Found:
        """Release the slabs, each in the leading directions of the one before, and then the core."""
        holder, d = task.holder, task.holder.dimension
        first, *later = self.widths(d, task.n_components)
        with one_blas_thread():
            basis = np.linalg.qr(task.generator.standard_normal((d, first)))[0]
        for number, width in enumerate(later):
            asked = basis
            n_pairs = asked.shape[1] * (asked.shape[1] + 1) // 2
            slab, scale = task.releaser.release(
                f"slab of {asked.shape[1]} directions, {d} x {n_pairs} numbers",
                partial(holder.slab, asked),
                size=d * n_pairs,
                sensitivity=holder.slab_sensitivity(asked),
                noise_multiplier=1 / task.mu(number),
            )
            basis = leading_directions(slab, width)
        found, core_scale = release_core(task, basis)
        # To first order the span misses component i by the noise of the last slab times what the pseudo-inverse of its
        # signal, λᵢ (Wᵀvᵢ) ⊗ (Wᵀvᵢ), makes of it.
        inside: FloatArray = asked.T @ found.vectors
        gram = np.outer(found.weights, found.weights) * (inside.T @ inside) ** 2
        outside = scale * np.sqrt(d * np.diagonal(np.linalg.pinv(gram)))
        return found_in_core(found, core_scale, basis.shape[1], outside)
