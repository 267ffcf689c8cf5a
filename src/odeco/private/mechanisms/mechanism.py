"""The interface of private mechanisms: a name, what it accepts, a plan from public numbers, and a
run.

A plan says how much noise there would be, and the *smallest signal*: the weight λ that every one of
k components must have to be found with cosine 0.9, for components in general position (no
coordinate stands out) and no noise but that of privacy. Every formula comes from one picture. Noise
of standard deviation s on each coordinate of an image has length s√d, so an image whose signal is
λc², c the cosine of the query with the component, has the cosine λc²/√(λ²c⁴ + s²d) with it. The
formulas predict; nothing private depends on them. Tests compare them with runs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from odeco._util.types import FloatArray
from odeco.power.power_method import PowerSolver, Schedule
from odeco.privacy.calibration import gdp_mu, noise_multiplier, paper_noise_multiplier
from odeco.privacy.found import Found
from odeco.privacy.holders.protocol import DataHolder
from odeco.privacy.plan import MechanismPlan
from odeco.privacy.release import Releaser
from odeco.privacy.sensitivity import EntrySensitivities, RecordSensitivities

Calibration = Literal["exact", "paper"]

#: The cosine from which on a component counts as found.
FOUND = 0.9


@dataclass(frozen=True)
class Setting:
    """The public numbers that a plan is made from."""

    dimension: int
    order: int
    search: Schedule  # the paper's k, L and R
    epsilon: float
    delta: float
    sensitivities: EntrySensitivities | RecordSensitivities  # without rounding errors
    calibration: Calibration = "exact"
    share: float = 1.0  # of μ²; the rest chooses the bound on norms

    @cached_property
    def mu(self) -> float:
        """The budget of the mechanism as the μ of one Gaussian mechanism."""
        return math.sqrt(self.share) * gdp_mu(self.epsilon, self.delta)

    def noise_multiplier(self, n_releases: int) -> float:
        """Return the z of `n_releases` releases that have the whole budget of the mechanism."""
        calibrate = paper_noise_multiplier if self.calibration == "paper" else noise_multiplier
        return calibrate(self.epsilon, self.delta, n_releases) / math.sqrt(self.share)

    def random_units(self, n_vectors: int) -> FloatArray:
        """Return random unit vectors, the same every time: queries in general position."""
        block = np.random.default_rng(0).standard_normal((self.dimension, n_vectors))
        units: FloatArray = block / np.linalg.norm(block, axis=0)
        return units

    def random_basis(self, width: int) -> FloatArray:
        """Return random orthonormal vectors, the same every time."""
        return np.linalg.qr(np.random.default_rng(0).standard_normal((self.dimension, width)))[0]


@dataclass(frozen=True, eq=False)
class Task:
    """The arguments of a run: data holder, public numbers, plan, releaser, and the generator of the
    starts.
    """

    holder: DataHolder
    setting: Setting
    planned: MechanismPlan
    releaser: Releaser
    generator: np.random.Generator

    @property
    def n_components(self) -> int:
        """The number of components to find."""
        return self.setting.search.n_components

    def mu(self, release: int) -> float:
        """Return the μ of a release that has a share of the budget, by its place in the plan."""
        return self.setting.mu * math.sqrt(self.planned.shares[release])

    def follow(self, solver: PowerSolver) -> None:
        """Report what the solver is doing, after an answer of a private oracle: post-processing of
        its answers.
        """
        self.releaser.callback(solver.status)


class Mechanism(ABC):
    """One way to find components within a budget.

    A mechanism asks a `DataHolder` through a `Releaser`, which pays and adds noise. Everything else
    that it does is arithmetic on noisy answers and public numbers, hence post-processing. It never
    looks at the data to decide how often to query, whether to stop, or which message to give.

    Attributes
    ----------
    name : str
        What `decompose_privately` calls it.
    summary : str
        One sentence on what it releases, for help texts and the documentation.
    uses : frozenset of str
        Which of the arguments `n_restarts`, `n_iterations` and `calibration` it uses. The others
        are refused.
    any_order : bool
        Whether it takes tensors of every order; otherwise it takes order 3 only.
    needs_second_moment : bool
        Whether it asks for the second moment, which rows have and tensors do not.
    entry_neighbours : {"distinct", "literal"}
        The default neighbour relation for tensors.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    uses: ClassVar[frozenset[str]] = frozenset()
    any_order: ClassVar[bool] = False
    needs_second_moment: ClassVar[bool] = False
    entry_neighbours: ClassVar[Literal["distinct", "literal"]] = "distinct"

    def refusal(self, setting: Setting) -> str:
        """Say why it cannot be used in this setting; the text is empty if it can."""
        k = setting.search.n_components
        d = setting.dimension
        if setting.order != 3 and not self.any_order:
            return f"mechanism={self.name!r} takes tensors of order 3. Got order {setting.order}."
        if k > d:
            return (
                f"mechanism={self.name!r} finds at most as many components as columns. Got {k} "
                f"for {d}."
            )
        if setting.sensitivities.moment is None and self.needs_second_moment:
            return f"mechanism={self.name!r} needs the second moment of rows. Got a tensor."
        return ""

    @abstractmethod
    def plan(self, setting: Setting) -> MechanismPlan:
        """Say what would be released, with how much noise, and what would still be found."""

    @abstractmethod
    def run(self, task: Task) -> Found:
        """Make the planned releases and find components in them."""
