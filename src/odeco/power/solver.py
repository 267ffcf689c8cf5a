"""What all solvers have in common, so that an oracle, a stream or a file need not know which solver it serves."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from odeco._util.state import State
from odeco._util.types import FloatArray
from odeco.cp.rank import RankEvidence
from odeco.tensors.components import Components


class Solver(Protocol):
    """The immutable state of an algorithm that learns a tensor from the replies of an oracle, one query at a time.

    Make the `query` with the vectors `probes`, pass the reply to `advance`, which returns the next state, until `done`.
    """

    #: Whether probes may converge to the same vector, so that a private release may merge those that have.
    probes_converge: ClassVar[bool]

    #: Whether the components were read off the last reply, whose rows they then stand for. If not, as where they were
    #: found in the span of earlier replies, the first image of a tracker replaces them.
    found_in_reply: ClassVar[bool]

    @property
    def order(self) -> int:
        """The order of the tensor or moment."""

    @property
    def query(self) -> Literal["image", "value", "core", "entries", "pairs", "rows"]:
        """What is needed next: T(I, u, …, u), T(u, …, u), T(Q, …, Q), all entries, or the rows themselves."""

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
    def confirmed(self) -> NDArray[np.bool_] | None:
        """Which components rows confirm that did not find them; None if all, or if none were held out."""

    @property
    def status(self) -> str:
        """What the next reply is for, for a progress display."""

    @property
    def description(self) -> str:
        """What its queries consist of, for an error message."""

    def advance(self, reply: Any, n_rows: int | None = None) -> Self:
        """Return the state after the reply to `query`, which is a mean over `n_rows` rows if the data are rows."""

    def standard_errors(self) -> tuple[FloatArray, FloatArray] | None:
        """Return the standard errors of weights and of angles in radians, or None if they are unknown."""

    def noise_ratio(self, n_rows: int) -> float | None:
        """Return the noise in `components` over that in one reply, a mean over `n_rows` rows; None if not averaged."""


class SolverState(State):
    """Base of solvers, with what most of them have in common: they hold out no rows and average nothing."""

    probes_converge: ClassVar[bool] = False
    found_in_reply: ClassVar[bool] = False
    rank_evidence: RankEvidence | None = None
    confirmed: NDArray[np.bool_] | None = None

    def standard_errors(self) -> tuple[FloatArray, FloatArray] | None:
        """Return None: they are unknown."""
        return None

    def noise_ratio(self, n_rows: int) -> float | None:  # noqa: ARG002 - a tracker needs it
        """Return None: components are not averaged."""
        return None
