"""The whole fourth moment or cumulant in one pass, also with more components than columns.

`odeco.online.fourth_solver` adds it up and decomposes it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from odeco._util.arguments import check_count
from odeco._util.state import given_field, part_field, require
from odeco.cp.subspace_power import largest_rank
from odeco.online.fourth_solver import FourthMomentSolver, whole_bytes
from odeco.online.methods.open import DEFAULT_MEMORY, OpenPlan
from odeco.online.queries import Query
from odeco.online.solver import Estimate, Reply, Solver, Where


@dataclass(frozen=True, kw_only=True)
class FourthMoment(OpenPlan):
    """The whole fourth moment.

    Attributes
    ----------
    memory : float
        The memory that the run may take, in megabytes.
    """

    memory: float = DEFAULT_MEMORY

    name = "entries"
    counts = True
    unit = 0  # it has a unit of its own
    depends_on_units = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.order != 4:
            raise ValueError(
                f"method='entries' takes moments of order 3 or 4. Got order {self.order}. Take "
                "method='core'."
            )

    @property
    def takes_cumulants(self) -> bool:
        """Whether the method decomposes cumulants of this order: at order 3 by
        `odeco.online.methods.entries`.
        """
        return self.order in (3, 4)

    @property
    def reason(self) -> str:
        """Why this method is taken, if none before it had an objection."""
        if self.moment == "cumulant":
            return "a cumulant takes the whole fourth moment"
        if self.k is not None:
            return "more components than columns take the whole fourth moment"
        return (
            "the whole fourth moment fits into the memory allowed, and shows the number of "
            "components"
        )

    def objection(self, where: Where) -> str | None:
        """Return why this method is not taken for such rows if the user leaves the choice; None if
        it is.
        """
        d = where.dimension
        fits = whole_bytes(d) <= self.n_bytes if self.k is None else self.k > d
        if self.moment == "cumulant" or fits:
            return None
        return super().reason

    @property
    def n_bytes(self) -> int:
        """The memory allowed, in bytes."""
        return max(1, int(self.memory * 1e6))

    def check_k(self, k: int, dimension: int) -> None:
        """Raise if there are more components than a fourth moment can tell apart."""
        what = f" for the fourth moment of {dimension} columns: more cannot be told apart"
        check_count("n_components", k, 1, max(dimension, largest_rank(dimension, 4)), what)

    def start(self) -> Solver:
        """Return the state before the first query."""
        return AddUp(self, self.begun())

    def begun(self) -> FourthMomentSolver:
        """Return the sums before the first row."""
        cumulant = self.moment == "cumulant"
        return FourthMomentSolver.start(
            self.where.dimension,
            self.k,
            seed=self.where.seed,
            memory=self.n_bytes,
            cumulant=cumulant,
        )


@dataclass(frozen=True, eq=False)
class AddUp(Solver):
    """The sums of groups of rows; decomposed whenever a result is wanted.

    Attributes
    ----------
    sums : FourthMomentSolver
        The sums.
    """

    plan: FourthMoment = given_field()

    sums: FourthMomentSolver = part_field(FourthMomentSolver)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        begun = self.plan.begun()
        fixed = ("dimension", "seed", "cumulant", "width", "n_components")
        same = all(getattr(self.sums, name) == getattr(begun, name) for name in fixed)
        require(same, "its sums must be those of its plan")

    @property
    def status(self) -> str:
        """What the next reply is for."""
        return self.sums.status

    @cached_property
    def query(self) -> Query:
        """Rows for the coordinates, or sums over groups of rows."""
        return self.sums.query

    def advance(self, reply: Reply) -> AddUp:
        """Return the state after the first rows, or after sums over a segment."""
        return replace(self, sums=self.sums.advance(reply.value, reply.n_rows))

    def estimate(self, reply: Reply | None) -> Estimate:
        """Return the components of the moment of all rows."""
        sums = self.sums if reply is None else self.sums.advance(reply.value, reply.n_rows)
        if sums.frame is None:
            return self.plan.nothing
        found = sums.decomposed()
        return Estimate(found.components, found.errors, None, found.rank_evidence)

    def progress(self, n_rows: int, n_in_batch: int) -> tuple[int, int | None]:
        """Return the number of rows that were used, and of those that are needed for the
        coordinates.
        """
        return n_rows, self.sums.n_rows_wanted - n_in_batch if self.sums.frame is None else 0


FourthMoment.states = (AddUp,)
