"""What every stream method has: a plan, made of the arguments that it takes, and states that learn.

A plan is a frozen dataclass whose fields are the arguments that the method uses, so that unused and
missing arguments follow from the fields. Each stage of a method is a state of its own: it has a
`query`, `advance` returns the state after the reply, which may be of another class, and `estimate`
is what it has learnt so far.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

from odeco._util.arguments import check_n_components
from odeco._util.state import State, given_field
from odeco._util.types import FloatArray
from odeco.cp.rank import RankEvidence
from odeco.online.queries import Query
from odeco.power.tracking import Tracker
from odeco.privacy.found import Found
from odeco.tensors.components import Components, no_components

if TYPE_CHECKING:
    from odeco.online.private import RowGuarantee


class Reply(NamedTuple):
    """The reply to a query.

    Attributes
    ----------
    value : array
        The mean over the batch, or the rows that were kept.
    n_rows : int
        The number of rows of the batch.
    noise : float
        The standard deviation of the noise in each number.
    """

    value: Any
    n_rows: int
    noise: float = 0.0


class Estimate(NamedTuple):
    """What a solver has learnt so far.

    Attributes
    ----------
    components : Components
        The components; there may be none.
    errors : tuple of arrays or None
        The standard errors of weights and of angles, if they are known.
    misfits : array or None
        The angle by which each vector may be off because the moment is not a sum of such
        components.
    evidence : RankEvidence or None
        The evidence for the number of components, if that was not given.
    noise : Found or None
        What the noise of a private run says about the components.
    """

    components: Components
    errors: tuple[FloatArray, FloatArray] | None = None
    misfits: FloatArray | None = None
    evidence: RankEvidence | None = None
    noise: Found | None = None

    @classmethod
    def of(cls, tracker: Tracker) -> Estimate:
        """Return the components of a tracker and their errors."""
        errors = tracker.standard_errors()
        misfits = None if errors is None else tracker.misfit_errors()
        return cls(tracker.components, errors, misfits, tracker.rank_evidence)


class Where(NamedTuple):
    """What is known of the rows before the first is used; all of it is public.

    Attributes
    ----------
    dimension : int
        The number of columns; 0 while it is not known.
    seed : int
        Draws the starts.
    pulled, repeatable : bool
        Whether the run reads the rows itself, and whether it can read them again.
    """

    dimension: int = 0
    seed: int = 0
    pulled: bool = False
    repeatable: bool = False


#: Before the first row.
UNKNOWN = Where()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A method with the arguments that it takes, as fields. `bound` says for which rows.

    Attributes
    ----------
    n_components : int or "auto"
        The number k of components; ``"auto"`` selects it automatically.
    order : int
        The order p of the moment.
    where : Where
        What is known of the rows.
    """

    n_components: int | Literal["auto"]
    order: int = 3
    where: Where = UNKNOWN

    #: The name of the method, and whether it is among those that are tried if the user leaves the
    #: choice.
    name: ClassVar[str]
    automatic: ClassVar[bool] = True
    private: ClassVar[bool] = False
    #: Whether the number of components can be selected.
    counts: ClassVar[bool] = False
    #: The power of two that all means are divided by; None if it is chosen at the first mean.
    unit: ClassVar[int | None] = None
    #: Whether components depend on the units of columns, so that one column may outweigh all
    #: others.
    depends_on_units: ClassVar[bool] = True
    #: The states that a file of such a run may have.
    states: ClassVar[tuple[type[Solver], ...]] = ()

    def __post_init__(self) -> None:
        if self.n_components == "auto" and not self.counts:
            raise ValueError(
                "n_components='auto' takes method='core', which can hold out rows. Got "
                f"method={self.name!r}. Pass n_components as an int, or leave out the method."
            )

    @classmethod
    def arguments(cls) -> set[str]:
        """Return the names of the arguments that this method takes."""
        return {each.name for each in fields(cls)} - {"where"}

    @classmethod
    def unused(cls, given: Mapping[str, Any]) -> list[str]:
        """Return the arguments that this method does not take."""
        return [name for name in given if name not in cls.arguments()]

    @classmethod
    def missing(cls, given: Mapping[str, Any]) -> list[str]:
        """Return the arguments that this method needs and that are not given."""
        return [
            each.name for each in fields(cls) if each.default is MISSING and each.name not in given
        ]

    @classmethod
    def missing_error(cls, given: Mapping[str, Any], name: str) -> ValueError:
        """Return the error for arguments that are missing, if the user asked for the method
        `name`.
        """
        return ValueError(f'`{cls.missing(given)[0]}` must be given for method="{name}". Got None.')

    @property
    def k(self) -> int | None:
        """The number of components; None if it is selected automatically."""
        if isinstance(self.n_components, str):
            return None
        return self.n_components

    @property
    def guarantee(self) -> RowGuarantee | None:
        """The guarantee for every row; None in an open run."""
        return None

    @property
    def centred(self) -> bool:
        """Whether the mean of the rows is subtracted first."""
        return False

    @property
    def n_batches(self) -> int | None:
        """The number of batches until there are components; None if it is not known before the
        first rows.
        """
        return None

    @property
    def nothing(self) -> Estimate:
        """The estimate before there are components."""
        return Estimate(no_components(self.where.dimension, self.order))

    def objection(self, where: Where) -> str | None:  # noqa: ARG002 - some methods need it
        """Return why this method is not taken for such rows if the user leaves the choice; None if
        it is.
        """
        return None

    @property
    def reason(self) -> str:
        """Why this method is taken, if none before it had an objection."""
        return "the whole moment is added up at order 3, and at order 4 where it must be"

    def check_k(self, k: int, dimension: int) -> None:
        """Raise if rows with so many columns cannot have k components."""
        check_n_components(k, dimension)

    def bound(self, where: Where) -> Self:
        """Return the plan for such rows."""
        if self.k is not None:
            self.check_k(self.k, where.dimension)
        return replace(self, where=where)

    def start(self) -> Solver:
        """Return the state before the first query."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Solver(State):
    """The immutable state of a stage of a method."""

    plan: Any = given_field()

    #: What the next reply is for, for a progress display.
    stage: ClassVar[str] = "refining"
    #: Whether data are read again and again, so that a batch may be a pass.
    in_passes: ClassVar[bool] = False

    @property
    def status(self) -> str:
        """What the next reply is for, for a progress display."""
        return self.stage

    @cached_property
    def query(self) -> Query:
        """What is needed next."""
        raise NotImplementedError

    @property
    def done(self) -> bool:
        """Whether no more rows are needed."""
        return False

    @property
    def evidence(self) -> RankEvidence | None:
        """The evidence for the number of components that passes refine, if that was not given."""
        return None

    def advance(self, reply: Reply) -> Solver:
        """Return the state after the reply to `query`."""
        raise NotImplementedError

    def estimate(self, reply: Reply | None) -> Estimate:  # noqa: ARG002 - some states need it
        """Return the best estimate, given the reply from the rows of an incomplete batch, if there
        are any.
        """
        estimate: Estimate = self.plan.nothing
        return estimate

    def progress(self, n_rows: int, n_in_batch: int) -> tuple[int, int | None]:  # noqa: ARG002 - some states need it
        """Return the number of rows that were used, and of those that are needed for a first
        result.
        """
        return n_rows, 0

    def next_pass(self, length: int) -> Solver:  # noqa: ARG002 - some states need it
        """Return the state after a pass of `length` rows."""
        return self

    def check_ended(self, n_rows: int) -> None:
        """Raise if data may not end here."""
