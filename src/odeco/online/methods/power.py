"""Algorithm 2 of Wang and Anandkumar (2016): fresh rows for every iteration of the power method.

Each reply is the mean over the next batch (`odeco.power.PowerSolver`), so that memory is linear in
d. The weight is read off the last image, which saves the last query of the paper. Rows that follow
refine the components.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from odeco._util.state import part_field, require
from odeco.errors import StreamEndedError
from odeco.online.methods.open import OpenPlan
from odeco.online.methods.refine import Refine
from odeco.online.queries import Images, Query
from odeco.online.solver import Estimate, Plan, Reply, Solver
from odeco.power.power_method import PowerSolver, Schedule
from odeco.power.tracking import Tracker
from odeco.tensors.components import Components


@dataclass(frozen=True, kw_only=True)
class PowerPlan(Plan):
    """What both kinds of Algorithm 2 take.

    Attributes
    ----------
    batch_size : int
        The number of rows of a batch, the paper's n.
    n_restarts, n_iterations : int or None
        The paper's L and R; by default those of `Schedule.default`.
    forgetting : float
        What the weight of the past is multiplied by before each batch that refines.
    """

    batch_size: int
    n_restarts: int | None = None
    n_iterations: int | None = None
    forgetting: float = 1.0

    name = "power"
    automatic = False

    @property
    def n_batches(self) -> int | None:
        """The number of batches until there are components."""
        if self.n_iterations is None:
            return None
        return (self.k or 0) * self.n_iterations

    def power_solver(self) -> PowerSolver:
        """Return the power method before the first query."""
        d = self.where.dimension
        schedule = Schedule.default(
            d,
            self.k or 0,
            n_restarts=self.n_restarts,
            n_iterations=self.n_iterations,
            weight_from="last_image",
        )
        return PowerSolver.start(schedule, order=self.order, parts=(d,), seed=self.where.seed)


@dataclass(frozen=True, kw_only=True)
class Power(PowerPlan, OpenPlan):
    """Algorithm 2 without privacy. The components found count as the rows of one batch."""

    def start(self) -> Solver:
        """Return the state before the first query."""
        return Iterate(self, self.power_solver())

    def refined(self, found: Components) -> Solver:
        """Return the state that refines what was found."""
        ordered = found.sorted_by_weight()
        return Refine(
            self, Tracker.start(ordered, n_rows=self.batch_size, forgetting=self.forgetting)
        )


@dataclass(frozen=True, eq=False)
class Iterate(Solver):
    """The power method, one batch for each iteration.

    Attributes
    ----------
    power : PowerSolver
        The iterates, and the components found before.
    """

    power: PowerSolver = part_field(PowerSolver)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        begun = self.plan.power_solver()
        own = (self.power.schedule, self.power.order, self.power.parts, self.power.seed)
        require(
            own == (begun.schedule, begun.order, begun.parts, begun.seed),
            "it must be that of its plan",
        )
        require(self.power.stage == "iterate", "it must look for a component")

    @property
    def status(self) -> str:
        """What the next reply is for."""
        return self.power.status

    @cached_property
    def query(self) -> Query:
        """Images of the iterates."""
        return Images(self.power.probes, self.plan.order, (self.plan.batch_size,))

    def advance(self, reply: Reply) -> Solver:
        """Return the state after the images over a batch."""
        after = self.power.advance(reply.value)
        if not after.done:
            return replace(self, power=after)
        refined: Solver = self.plan.refined(after.components)
        return refined

    def estimate(self, reply: Reply | None) -> Estimate:  # noqa: ARG002 - only complete batches count
        """Return the components found so far."""
        return Estimate(self.power.components)

    def progress(self, n_rows: int, n_in_batch: int) -> tuple[int, int | None]:  # noqa: ARG002 - some were not used
        """Return the number of rows that were used, and of those that are needed for all
        components.

        Rows that a private run paid for without getting a mean do not count.
        """
        used = self.power.n_replies * self.plan.batch_size + n_in_batch
        return used, self.power.n_queries * self.plan.batch_size - used

    def check_ended(self, n_rows: int) -> None:
        """Raise: more batches are needed."""
        size = self.plan.batch_size
        found = self.power.components
        k = found.n_components
        so_far = "No component was found."
        if k == 1:
            so_far = "1 component was found; it is in `error.found`."
        elif k:
            so_far = f"{k} components were found; they are in `error.found`."
        raise StreamEndedError(
            f"The stream ended after {n_rows // size:,} of the {self.power.n_queries:,} batches "
            f"this plan needs ({self.power.description} of {size:,} rows). {so_far} Pass more "
            "rows, or a smaller batch_size.",
            found if k else None,
        )


Power.states = (Iterate, Refine)
