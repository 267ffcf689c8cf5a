"""Mechanisms that add noise to every iteration of the power method: Algorithm 3, and the same with
joint releases.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import final

import numpy as np
from scipy.special import ndtri

from odeco.power.power_method import PowerSolver, run
from odeco.privacy.found import Found, found_in_images
from odeco.privacy.oracle import MERGE_COSINE, PrivateOracle
from odeco.privacy.plan import MechanismPlan
from odeco.private.mechanisms.mechanism import FOUND, Mechanism, Setting, Task

#: The arguments that set the number of releases.
LOOP_ARGUMENTS = frozenset({"n_restarts", "n_iterations"})


@final
class Wang2016(Mechanism):
    """Algorithm 3: noise on every image of every candidate, and on the values of the last ones.

    k L R images and k L values are releases of their own: K = k L (R + 1).

    Privacy: each costs 1/z², so together they are √K/z-GDP (`PrivateOracle`); deflation,
    normalisation and the choice of the best are post-processing.
    """

    name = "wang2016"
    summary = (
        "Every image and every value of every candidate is a release of its own: Algorithm 3 to "
        "the letter."
    )
    uses = LOOP_ARGUMENTS | {"calibration"}
    any_order = True
    entry_neighbours = "literal"

    def plan(self, setting: Setting) -> MechanismPlan:
        """Plan with exact calibration, and the sensitivity of the median candidate."""
        search = setting.search
        candidates = setting.random_units(search.n_restarts)
        single = np.median(
            [
                setting.sensitivities.image(candidates[:, [column]])
                for column in range(search.n_restarts)
            ]
        )
        n_releases = search.n_components * search.n_restarts * (search.n_iterations + 1)
        return plan_iterations(self.name, setting, n_releases, float(single))

    def run(self, task: Task) -> Found:
        """Run Algorithm 3; the paper's calibration is its line 2."""
        holder = task.holder
        setting = task.setting
        ledger = task.releaser.ledger
        noise = task.releaser.noise
        z = setting.noise_multiplier(task.planned.n_releases)
        oracle = PrivateOracle(holder, ledger, noise_multiplier=z, release="separate", noise=noise)
        components = run(
            oracle,
            replace(setting.search, weight_from="value"),
            rng=task.generator,
            callback=task.follow,
        ).components
        columns = np.split(components.vectors, components.n_components, axis=1)
        errors = z * np.array([holder.value_sensitivity(column) for column in columns])
        image_errors = z * np.array([holder.sensitivity(column) for column in columns])
        return found_in_images(components, errors, image_errors, setting.search.n_restarts)


@final
class Joint(Mechanism):
    """Algorithm 3 with each block of images as one release, near-duplicates merged, weights read
    off the image.

    k R releases.

    Privacy: each costs 1/z² for the joint sensitivity of the query, so together they are √(k
    R)/z-GDP.
    """

    name = "joint"
    summary = (
        "All candidates of an iteration are one release, and the weight is read off the last image."
    )
    uses = LOOP_ARGUMENTS
    any_order = True

    def plan(self, setting: Setting) -> MechanismPlan:
        """Plan with the sensitivity of a block of candidates in general position."""
        together = setting.sensitivities.image(setting.random_units(setting.search.n_restarts))
        return plan_iterations(
            self.name, setting, setting.search.n_components * setting.search.n_iterations, together
        )

    def run(self, task: Task) -> Found:
        """Run the power method on blocks of images, and note the noise in the image that each
        weight is read off.
        """
        setting = task.setting
        ledger = task.releaser.ledger
        noise = task.releaser.noise
        z = setting.noise_multiplier(task.planned.n_releases)
        oracle = PrivateOracle(
            task.holder, ledger, noise_multiplier=z, merge=MERGE_COSINE, noise=noise
        )
        scales: list[float] = []

        def note_scale(search: PowerSolver) -> None:
            task.follow(search)
            if len(search.found) > len(scales):
                scales.append(float(oracle.last_scales[0]))

        search = run(
            oracle,
            replace(setting.search, weight_from="last_image"),
            rng=task.generator,
            callback=note_scale,
        )
        errors = np.array(scales)  # ⟨u, noise⟩ has the standard deviation of one coordinate
        return found_in_images(search.components, errors, errors, setting.search.n_restarts)


def plan_iterations(
    mechanism: str, setting: Setting, n_releases: int, sensitivity: float
) -> MechanismPlan:
    """Return the plan for `n_releases` releases of images, each of this sensitivity.

    The smallest signal is that from which on the power method rises above the noise and reaches the
    cosine `FOUND`. From c the next cosine is λc²/(s√d), larger than c if λ > s√d/c. Noise draws a
    new direction in every iteration, so that c is the largest of some LR/2 draws of |N(0, 1)|/√d,
    in the median g/√d: λ > s d/g. (At order p the signal is λ c^(p−1).) To stay at the cosine
    `FOUND` is a condition too, the weaker one unless d is small.
    """
    d = setting.dimension
    p = setting.order
    search = setting.search
    noise = math.sqrt(n_releases) / setting.mu * sensitivity
    draws = max(1.0, search.n_restarts * search.n_iterations / 2)
    largest = min(float(ndtri((1 + 0.5 ** (1 / draws)) / 2)), 0.9 * math.sqrt(d))
    start = noise * math.sqrt(d) / (largest / math.sqrt(d)) ** (p - 2)
    end = noise * math.sqrt(d) * FOUND / (math.sqrt(1 - FOUND**2) * FOUND ** (p - 1))
    return MechanismPlan(mechanism, n_releases, noise, max(start, end))
