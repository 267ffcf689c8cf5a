"""Algorithm 3 with all candidates of an iteration released together."""

from __future__ import annotations

from dataclasses import replace
from typing import final

import numpy as np

from odeco.privacy import (
    MERGE_COSINE,
    DataHolder,
    Found,
    MechanismPlan,
    Releaser,
    angles_of,
    highest_of,
    noise_multiplier,
)
from odeco.private.mechanisms._iterations import LOOP_ARGUMENTS, private_oracle, smallest_weight
from odeco.private.mechanisms._mechanism import Mechanism, Setting
from odeco.search import Search, run


@final
class Joint(Mechanism):
    """Algorithm 3 with each block of images as one release, near-duplicates asked once, weights read off the image.

    k R releases.

    Privacy: each costs 1/z² for the joint sensitivity of what is asked, so together they are √(k R)/z-GDP.
    """

    name = "joint"
    summary = "All candidates of an iteration are one release, and the weight is read off the last image."
    uses = LOOP_ARGUMENTS
    any_order = True

    def plan(self, setting: Setting) -> MechanismPlan:
        """Say what would be released; the noise is that of candidates in general position."""
        n_releases = setting.search.n_components * setting.search.n_iterations
        candidates = setting.random_units(setting.search.n_restarts)
        multiplier = noise_multiplier(setting.epsilon, setting.delta, n_releases)
        noise = multiplier * setting.sensitivities.image(candidates)
        return MechanismPlan(self.name, n_releases, noise, smallest_weight(setting, noise))

    def run(
        self,
        holder: DataHolder,
        setting: Setting,
        planned: MechanismPlan,
        releaser: Releaser,
        generator: np.random.Generator,
    ) -> Found:
        """Run the power method on blocks of images, and note the noise in the image that each weight is read off."""
        multiplier = noise_multiplier(setting.epsilon, setting.delta, planned.n_releases)
        oracle = private_oracle(holder, releaser, multiplier, release="joint", merge=MERGE_COSINE)
        scales: list[float] = []

        def note_scale(search: Search) -> None:
            if len(search.found) > len(scales):
                scales.append(float(oracle.last_scales[0]))

        search = run(oracle, replace(setting.search, weigh="reuse"), rng=generator, callback=note_scale)
        components, errors = search.components, np.array(scales)  # ⟨u, noise⟩ has the deviation of one coordinate
        floors = errors * highest_of(setting.search.n_restarts)
        return Found(components, errors, angles_of(errors, components), floors)
