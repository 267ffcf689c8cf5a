"""Algorithm 3 with all candidates of an iteration released together."""

from __future__ import annotations

from dataclasses import replace
from typing import final

import numpy as np

from odeco.power.solver import Search, run
from odeco.privacy.calibration import noise_multiplier
from odeco.privacy.found import Found, found_in_images
from odeco.privacy.oracle import MERGE_COSINE, PrivateOracle
from odeco.privacy.plan import MechanismPlan
from odeco.private.mechanisms.common import LOOP_ARGUMENTS, plan_iterations
from odeco.private.mechanisms.mechanism import Mechanism, Setting, Task


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
        """Plan with the sensitivity of a block of candidates in general position."""
        together = setting.sensitivities.image(setting.random_units(setting.search.n_restarts))
        return plan_iterations(self.name, setting, setting.search.n_components * setting.search.n_iterations, together)

    def run(self, task: Task) -> Found:
        """Run the power method on blocks of images, and note the noise in the image that each weight is read off."""
        setting, ledger, noise = task.setting, task.releaser.ledger, task.releaser.noise
        z = noise_multiplier(setting.epsilon, setting.delta, task.planned.n_releases)
        oracle = PrivateOracle(task.holder, ledger, noise_multiplier=z, merge=MERGE_COSINE, noise=noise)
        scales: list[float] = []

        def note_scale(search: Search) -> None:
            task.follow(search)
            if len(search.found) > len(scales):
                scales.append(float(oracle.last_scales[0]))

        search = run(oracle, replace(setting.search, weigh="reuse"), rng=task.generator, callback=note_scale)
        errors = np.array(scales)  # ⟨u, noise⟩ has the standard deviation of one coordinate
        return found_in_images(search.components, errors, errors, setting.search.n_restarts)
