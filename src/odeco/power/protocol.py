"""What every search has in common, so that whoever answers need not know which one asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

from odeco._util.schema import Schema
from odeco._util.types import FloatArray
from odeco.cp.rank import RankEvidence
from odeco.tensors.components import Components

if TYPE_CHECKING:
    from odeco.power.tracking import Tracking


class Asker(Protocol):
    """A search that asks one question at a time: a value that `advance` replaces by the next.

    `Search` is the paper's loop, `Together` finds all at once, `CoreSearch` is the range finder with its core, and
    `Tracking` is what goes on learning. Ask
    `question` about `candidates`, hand the answer to `advance`, until `done`.
    """

    #: Whether candidates may meet, so that those that have met can be asked about as one.
    candidates_meet: ClassVar[bool]
    #: What `to_arrays` gives and `from_arrays` takes.
    SCHEMA: ClassVar[Schema]

    @property
    def order(self) -> int:
        """The order of the tensor or moment."""

    @property
    def question(self) -> Literal["image", "value", "slice", "core", "entries"]:
        """What to ask about `candidates` next."""

    @property
    def candidates(self) -> FloatArray:
        """The block to ask about next, d x L."""

    @property
    def components(self) -> Components:
        """The components found so far; there may be none."""

    @property
    def done(self) -> bool:
        """Whether there is nothing more to ask."""

    @property
    def n_questions(self) -> int | None:
        """How many questions it asks in all; None if it goes on for ever."""

    @property
    def n_answered(self) -> int:
        """How many of them are answered."""

    @property
    def rank_evidence(self) -> RankEvidence | None:
        """Why there are so many components, if their number was not given and is judged."""

    @property
    def doing(self) -> str:
        """What the next answer is for, in words."""

    @property
    def plan_in_words(self) -> str:
        """What its questions consist of."""

    def advance(self, answer: FloatArray, n_rows: int | None = None) -> Self:
        """Take in the answer to `question`, averaged over `n_rows` rows where it is a mean over rows."""

    def tracked(
        self, *, n_rows: int = 0, forgetting: float = 1.0, holding: bool = False, orthogonal: bool = False
    ) -> Tracking:
        """Return what was found, as something that goes on learning; see `Tracking.start`."""

    def settled(self) -> Self:
        """Return the search with whatever it holds back until the end of a pass taken in."""

    def standard_errors(self) -> tuple[FloatArray, FloatArray] | None:
        """Return the standard errors of weights and of angles in radians, or None if there is no telling."""

    def averaging(self, n_rows: int) -> float | None:
        """Return the noise in `components` over that in one answer, a mean over `n_rows` rows; None if not averaged."""

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the search as a JSON header and named arrays."""

    @classmethod
    def from_arrays(cls, header: dict[str, Any], arrays: dict[str, Any]) -> Self:
        """Return the search that `to_arrays` described."""


class Finder:
    """What `Search` and `CoreSearch` share: they end, hold nothing back, and read components off single answers."""

    #: Nothing: the number of components is given.
    rank_evidence: RankEvidence | None = None

    def settled(self) -> Self:
        """Return it as it is: nothing is held back."""
        return self

    def standard_errors(self) -> None:
        """Return None: single answers do not tell how they spread."""

    def averaging(self, n_rows: int) -> None:
        """Return None: components are read off single answers."""
