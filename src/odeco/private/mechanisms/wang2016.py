"""The paper's Algorithm 3: noise on every image of every candidate."""

from __future__ import annotations

from dataclasses import replace
from typing import final

import numpy as np

from odeco.power.solver import run
from odeco.privacy.calibration import noise_multiplier, paper_noise_multiplier
from odeco.privacy.found import Found, found_in_images
from odeco.privacy.oracle import PrivateOracle
from odeco.privacy.plan import MechanismPlan
from odeco.private.mechanisms.common import LOOP_ARGUMENTS, plan_iterations
from odeco.private.mechanisms.mechanism import Mechanism, Setting, Task


@final
class Wang2016(Mechanism):
    """Algorithm 3: noise on every image of every candidate, and on the values of the last ones.

    k L R images and k L values are releases of their own: K = k L (R + 1).

    Privacy: each costs 1/z², so together they are √K/z-GDP (`PrivateOracle`); deflation, normalisation and the choice
    of the best are post-processing.
    """

    name = "wang2016"
    summary = "Every image and every value of every candidate is a release of its own: Algorithm 3 to the letter."
    uses = LOOP_ARGUMENTS | {"calibration"}
    any_order = True
    entry_neighbours = "literal"

    def plan(self, setting: Setting) -> MechanismPlan:
        """Plan with exact calibration, and the sensitivity of the median candidate."""
        search = setting.search
        candidates = setting.random_units(search.n_restarts)
        single = np.median(
            [setting.sensitivities.image(candidates[:, [column]]) for column in range(search.n_restarts)]
        )
        n_releases = search.n_components * search.n_restarts * (search.n_iterations + 1)
        return plan_iterations(self.name, setting, n_releases, float(single))

    def run(self, task: Task) -> Found:
        """Run Algorithm 3; the paper's calibration is its line 2."""
        holder, setting, ledger, noise = task.holder, task.setting, task.releaser.ledger, task.releaser.noise
        calibrate = paper_noise_multiplier if setting.calibration == "paper" else noise_multiplier
        z = calibrate(setting.epsilon, setting.delta, task.planned.n_releases)
        oracle = PrivateOracle(holder, ledger, noise_multiplier=z, release="separate", noise=noise)
        components = run(
            oracle, replace(setting.search, weigh="value"), rng=task.generator, callback=task.follow
        ).components
        columns = np.split(components.vectors, components.n_components, axis=1)
        errors = z * np.array([holder.value_sensitivity(column) for column in columns])
        image_errors = z * np.array([holder.sensitivity(column) for column in columns])
        return found_in_images(components, errors, image_errors, setting.search.n_restarts)
