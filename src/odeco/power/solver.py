"""What all solvers have in common, so that an oracle, a stream or a file need not know which solver it serves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

from odeco._util.schema import Sizes
from odeco._util.types import FloatArray
from odeco.cp.rank import RankEvidence
from odeco.tensors.components import Components

if TYPE_CHECKING:
    from odeco.power.tracking import Tracker


class Solver(Protocol):
    """The immutable state of an algorithm that learns a tensor from the replies of an oracle, one query at a time.

    Make the `query` with the vectors `probes`, pass the reply to `advance`, which returns the next state, until `done`.
    """

    #: Whether probes may converge to the same vector, so that a private release may merge those that have.
    probes_converge: ClassVar[bool]

    @property
    def order(self) -> int:
        """The order of the tensor or moment."""

    @property
    def query(self) -> Literal["image", "value", "core", "entries"]:
        """Which product of the tensor is needed next: T(I, u, …, u), T(u, …, u), T(Q, …, Q) or all entries."""

    @property
    def probes(self) -> FloatArray:
        """The vectors of the next query, as the columns of a d x L array."""

    @property
    def components(self) -> Components:
        """The components found so far; there may be none."""

    @property
    def done(self) -> bool:
        """Whether no further reply is needed."""

    @property
    def n_queries(self) -> int | None:
        """The number of queries in all; None if there is no end."""

    @property
    def n_replies(self) -> int:
        """The number of replies so far."""

    @property
    def rank_evidence(self) -> RankEvidence | None:
        """The evidence for the number of components, if that was not given."""

    @property
    def status(self) -> str:
        """What the next reply is for, for a progress display."""

    @property
    def description(self) -> str:
        """What its queries consist of, for an error message."""

    def advance(self, reply: FloatArray, n_rows: int | None = None) -> Self:
        """Return the state after the reply to `query`, which is a mean over `n_rows` rows if the data are rows."""

    def tracker(
        self, *, n_rows: int = 0, forgetting: float = 1.0, per_pass: bool = False, orthogonal: bool = False
    ) -> Tracker:
        """Return a solver that goes on refining the components found; see `Tracker.start`."""

    def end_pass(self) -> Self:
        """Return the state after the end of a pass over the data."""

    def standard_errors(self) -> tuple[FloatArray, FloatArray] | None:
        """Return the standard errors of weights and of angles in radians, or None if they are unknown."""

    def noise_ratio(self, n_rows: int) -> float | None:
        """Return the noise in `components` over that in one reply, a mean over `n_rows` rows; None if not averaged."""

    def to_arrays(self, prefix: str) -> dict[str, Any]:
        """Return the state as named arrays; see `odeco._util.state.State`."""

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], prefix: str, sizes: Sizes | None = None) -> Self:
        """Return the state that `to_arrays` wrote."""
