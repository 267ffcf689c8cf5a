"""The paper's Algorithm 3: noise on every image of every candidate."""

from __future__ import annotations

from dataclasses import replace
from typing import final

import numpy as np

from odeco.privacy import (
    DataHolder,
    Found,
    MechanismPlan,
    Releaser,
    angles_of,
    highest_of,
    noise_multiplier,
    paper_noise_multiplier,
)
from odeco.private.mechanisms._iterations import LOOP_ARGUMENTS, private_oracle, smallest_weight
from odeco.private.mechanisms._mechanism import Mechanism, Setting
from odeco.search import run


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
        """Say what would be released; the noise is that of exact calibration for the median candidate."""
        search = setting.search
        n_releases = search.n_components * search.n_restarts * (search.n_iterations + 1)
        candidates = setting.random_units(search.n_restarts)
        single = np.median(
            [setting.sensitivities.image(candidates[:, [column]]) for column in range(search.n_restarts)]
        )
        noise = noise_multiplier(setting.epsilon, setting.delta, n_releases) * float(single)
        return MechanismPlan(self.name, n_releases, noise, smallest_weight(setting, noise))

    def run(
        self,
        holder: DataHolder,
        setting: Setting,
        planned: MechanismPlan,
        releaser: Releaser,
        generator: np.random.Generator,
    ) -> Found:
        """Run Algorithm 3; its line 2 is the paper's calibration."""
        calibrate = paper_noise_multiplier if setting.calibration == "paper" else noise_multiplier
        multiplier = calibrate(setting.epsilon, setting.delta, planned.n_releases)
        oracle = private_oracle(holder, releaser, multiplier, release="separate")
        components = run(oracle, replace(setting.search, weigh="value"), rng=generator).components
        columns = np.split(components.vectors, components.n_components, axis=1)
        errors = multiplier * np.array([holder.value_sensitivity(column) for column in columns])
        image_errors = multiplier * np.array([holder.sensitivity(column) for column in columns])
        floors = errors * highest_of(setting.search.n_restarts)
        return Found(components, errors, angles_of(image_errors, components), floors)
