"""A run: a solver, the sum over rows that its query needs, and a policy that says when a batch is complete.

A solver makes one query at a time. A run adds up what the query needs over the rows that it gets, pulled or pushed.
When its policy says that the batch is complete (`odeco.online.batches`), the mean over the batch goes to the solver,
which then has its next query. `BatchMean` makes the plain mean; in a private run `odeco.online.private.NoisyMean` adds
noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from odeco._util.arguments import SMALLEST_USABLE, largest, put_back, times_power_of_two, unit_exponent
from odeco._util.state import State, array_field, part_field
from odeco._util.types import FloatArray
from odeco.cp.rank import RankEvidence, no_signal_error
from odeco.decompose.result import PrivateStreamDecomposition, StreamDecomposition
from odeco.errors import BadRowError, RankError, StreamEndedError
from odeco.io.rows import row_slice
from odeco.online.batches import Batches, Place, Progress
from odeco.online.block import largest_number, over_power_of_two
from odeco.online.entries import EntriesSolver, MomentSolver, StreamSolver
from odeco.online.fourth_moment import FourthComponents
from odeco.online.fourth_solver import FourthMomentSolver
from odeco.online.one_pass import DriftSolver, OnePassSolver
from odeco.online.range_finder import CoreSolver
from odeco.online.sums import Held, KeptRows, RowSum, SavedSum
from odeco.online.tree import Part
from odeco.power.power_method import PowerSolver
from odeco.power.solver import Solver
from odeco.power.tracking import Tracker
from odeco.tensors.components import Components

if TYPE_CHECKING:
    from odeco.online.weights import WeightSum

AnyStreamDecomposition = StreamDecomposition | PrivateStreamDecomposition

#: The solvers of streams, one of which a file holds.
SOLVERS: tuple[type[State], ...] = (
    PowerSolver,
    CoreSolver,
    OnePassSolver,
    DriftSolver,
    MomentSolver,
    FourthMomentSolver,
    EntriesSolver,
    Tracker,
)


# The mean over a batch ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Unit(State):
    """The unit of all means of a run: a power of two."""

    exponent: int = array_field(kind="i", low=-2000, high=2000)


class BatchMean:
    """Makes the reply to a question from the sum over the rows of a batch: the plain mean.

    What is carried from one batch to the next are its *notes*, a value that the run keeps: a run that goes back to an
    earlier snapshot takes the notes with it. Here the note is the unit of all means, which is chosen at the
    first mean and 1 at ordinary sizes: a solver squares means, and those of very small or very large rows
    have squares that double precision cannot hold.
    """

    #: The norm to which rows are clipped before they are added up; None if they are not clipped.
    norm_bound: float | None = None

    def sum_for(self, state: Solver) -> RowSum:
        """Return the empty sum for the question of a solver."""
        if state.query == "value":
            raise RuntimeError("The question of a stream must be an image, a core, entries or rows.")
        if state.query == "rows":
            limit = state.row_limit if isinstance(state, OnePassSolver) else None
            return KeptRows(state.probes, state.order, limit)
        return RowSum(state.query, state.probes, state.order)

    def prepare(self, rows: Any, notes: Any) -> tuple[Any, Any]:
        """Return rows as they are added up, and the notes after them."""
        return rows, notes

    def notes_after_part(self, notes: Any, *, dense: bool) -> Any:  # noqa: ARG002 - the sum notices a change of kind
        """Return the notes after rows, dense or CSR, that a worker has prepared and added up."""
        return notes

    def reply(self, run: Run, *, keep: bool = False) -> tuple[Any, Any]:
        """Return the reply to the question of a run, from the sum over its batch; and what `notes_after` needs.

        With `keep`, the sum is kept, because the batch goes on.
        """
        if isinstance(run.state, FourthMomentSolver):  # it has a unit of its own
            return run.total.rows() if isinstance(run.total, KeptRows) else run.total.mean(), None
        if isinstance(run.total, KeptRows):
            return self._in_unit(run.total.rows(), run)
        mean: FloatArray = run.total.mean() if keep else run.total.finish()
        size = largest(mean)
        if 0 < size < SMALLEST_USABLE:
            raise BadRowError(
                "Rows must be large enough for their powers not to vanish. The largest number in the mean over the "
                f"batch is {size:.3g}. Nothing of this batch was used; multiply all rows by a constant."
            )
        unit: Unit | None = run.notes
        if unit is None and size > 0:
            unit = Unit(unit_exponent(size, 2, mean.dtype))
        return times_power_of_two(mean, -_exponent(unit)), unit

    def _in_unit(self, rows: Any, run: Run) -> tuple[Any, Any]:
        """Return rows that were kept in the unit whose p-th power is that of means."""
        unit, size = run.notes, largest_number(rows)
        if unit is None and size > 0:
            single = np.dtype(np.float32)  # in which the span of a block is searched
            unit = Unit(run.state.order * unit_exponent(size, 2 * run.state.order, single))
        shift = _exponent(unit) // run.state.order
        return over_power_of_two(rows, shift) if shift else rows, unit

    def notes_after(self, run: Run, release: Any, after: Solver) -> Any:  # noqa: ARG002 - the unit is all
        """Return the notes for `after`, the solver that has got the reply."""
        return release

    def components(self, found: Components, notes: Any) -> Components:
        """Return components of a solver with their weights in the unit of the rows."""
        return Components(put_back(found.weights, _exponent(notes), "weights"), found.vectors, found.order)

    def evidence(self, evidence: RankEvidence, notes: Any) -> RankEvidence:
        """Return the evidence for a rank with its weights in the unit of the rows."""
        return replace(
            evidence,
            weights=put_back(evidence.weights, _exponent(notes), "weights"),
            noise_levels=put_back(evidence.noise_levels, _exponent(notes), "noise levels"),
        )

    def result(self, found: StreamDecomposition, run: Run, notes: Any) -> AnyStreamDecomposition:  # noqa: ARG002 - private runs need it
        """Return the result for the user: here, with weights in the unit of the rows."""
        if not _exponent(notes):
            return found
        errors = found.weight_errors
        return replace(
            found,
            components=self.components(found.components, notes),
            weight_errors=None if errors is None else put_back(errors, _exponent(notes), "errors of the weights"),
            rank_evidence=None if found.rank_evidence is None else self.evidence(found.rank_evidence, notes),
        )


def _exponent(unit: Unit | None) -> int:
    """Return the exponent of the unit; 0 while it is not known."""
    return 0 if unit is None else unit.exponent


#: What to do where an odd moment shows nothing.
_SYMMETRIC = (
    " Rows that are symmetric about zero have no odd moments: order=4 with moment='cumulant' finds their sources."
)


# The run --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RunState:
    """The state of a run. It is replaced as a whole, in one step, so that an interrupt never leaves half of it.

    Attributes
    ----------
    state : Solver
        The solver.
    total : RowSum
        The sum for its current question.
    n_closed : int
        Rows of complete batches.
    place : Place
        The position in the data.
    notes : Any
        What is carried from batch to batch.
    """

    state: Solver
    total: RowSum
    n_closed: int = 0
    place: Place = field(default_factory=Place)
    notes: Any = None


@dataclass(frozen=True, eq=False)
class SavedRun(State):
    """A run as it is saved; see `RunState`. The reader of a file says of which type the notes are."""

    solver: Solver = part_field(*SOLVERS)
    sum: SavedSum = part_field(SavedSum)
    n_closed: int = array_field(kind="i", low=0)
    place: Place = part_field(Place)
    notes: Any = part_field(default=None)

    @property
    def dimension(self) -> int:
        """The number of columns."""
        return int(self.solver.probes.shape[0])


class Weights(Protocol):
    """The weights of rows."""

    def up_to(self, n_rows: int) -> WeightSum:
        """Return the sums of the weights of the first rows."""


class Snapshot(NamedTuple):
    """A moment of a run to which it can go back."""

    now: RunState
    held: Held
    weights: Weights | None


class Run:
    """A solver, the sum over rows that its question needs, when a batch is complete, and how its mean is made."""

    def __init__(self, state: Solver, batches: Batches, mean: BatchMean | None = None, *, n_closed: int = 0) -> None:
        self.batches = batches
        self.mean = BatchMean() if mean is None else mean
        self._now = RunState(state, self.mean.sum_for(state), n_closed)
        #: The weights of rows, if they have any; rows are multiplied by their roots before they are pushed.
        self.weights: Weights | None = None
        # The last estimate of one pass, by the number of rows.
        self._estimate: tuple[int, Solver | FourthComponents, Any] | None = None

    @property
    def state(self) -> Solver:
        """The solver."""
        return self._now.state

    @property
    def total(self) -> RowSum:
        """The sum for the current question."""
        return self._now.total

    @property
    def n_closed(self) -> int:
        """Rows of complete batches."""
        return self._now.n_closed

    @property
    def place(self) -> Place:
        """The position in the data."""
        return self._now.place

    @property
    def notes(self) -> Any:
        """What is carried from batch to batch."""
        return self._now.notes

    @property
    def components(self) -> Components:
        """The components found so far; there may be none."""
        return self._in_units_of_rows(self.state.components, self.notes)

    def _in_units_of_rows(self, found: Components, notes: Any) -> Components:
        """Return components of the solver as those of the rows, which may have weights."""
        found, weights = self.mean.components(found, notes), self._weight_sum
        return found if weights is None or not found.n_components else weights.components(found)

    def weigh(self, weights: Weights) -> None:
        """Take rows, which are multiplied by roots of weights, as weighted ones."""
        self.weights, now = weights, self._now
        if isinstance(now.state, OnePassSolver) and not now.state.weighted:
            self._now = replace(now, state=replace(now.state, weighted=True))

    @property
    def _weight_sum(self) -> WeightSum | None:
        """The sums of the weights of all rows so far, each counted once; None if they have none."""
        return None if self.weights is None else self.weights.up_to(self.place.length or self.n_rows)

    @property
    def n_rows(self) -> int:
        """Rows used in all."""
        return self.n_closed + self.total.n_rows

    @property
    def is_complete(self) -> bool:
        """Whether the run needs no more rows."""
        return self.batches.is_complete(self)

    @property
    def progress(self) -> Progress:
        """The progress of the run."""
        return self.batches.progress(self)

    def push(self, rows: Any, report: Callable[[Progress], object] | None = None) -> None:
        """Add rows until all are used or no more are needed; batches that are complete are closed and reported."""
        start, n_rows = 0, int(rows.shape[0])
        while start < n_rows and not self.is_complete:
            if self.batches.room(self) == 0:  # a second interrupt came while the first was handled
                self.close()
            room = self.batches.room(self)
            stop = n_rows if room is None else min(n_rows, start + room)
            now = self._now
            prepared, notes = self.mean.prepare(row_slice(rows, start, stop), now.notes)
            now.total.update(prepared)
            self._now = replace(now, place=replace(now.place, row=now.place.row + stop - start), notes=notes)
            start = stop
            if self.batches.room(self) == 0:
                self.close()
                if report is not None:
                    report(self.progress)

    def take(self, part: Part, *, dense: bool) -> None:
        """Add the sum over the rows that follow, at most as many as the batch has room for."""
        now = self._now
        notes = self.mean.notes_after_part(now.notes, dense=dense)
        now.total.append(part)
        self._now = replace(now, place=replace(now.place, row=now.place.row + part.n_rows), notes=notes)
        if self.batches.room(self) == 0:
            self.close()

    def begin_batch_again(self) -> None:
        """Go back to the first row of the batch: for rows that cannot continue in the middle of it."""
        row = self.place.row - self.total.n_rows
        self.go_on_with(self.state, place=replace(self.place, row=row))

    def close(self) -> None:
        """Give the mean over the batch to the solver, and continue with what follows."""
        now = self._now
        n_rows = now.total.n_rows
        reply, release = self.mean.reply(self)
        try:
            after = now.state.advance(reply, n_rows)
        except RankError as error:
            error.found = self._in_units_of_rows(error.found, release)
            raise
        notes = self.mean.notes_after(self, release, after)
        self.go_on_with(self.batches.following(after), n_closed=now.n_closed + n_rows, notes=notes)

    def require_signal(self, state: Solver | FourthComponents, notes: Any = None) -> None:
        """Raise if the rank was selected automatically, and is 0."""
        if state.rank_evidence is not None and state.rank_evidence.rank == 0:
            evidence = self.mean.evidence(state.rank_evidence, self.notes if notes is None else notes)
            weights = self._weight_sum
            evidence = evidence if weights is None else weights.evidence(evidence)
            advice = "" if self.state.order % 2 == 0 else _SYMMETRIC
            raise no_signal_error(evidence.weights, evidence.noise_levels, state.components, advice)

    def go_on_with(self, state: Solver, **changes: Any) -> None:
        """Continue with another solver and an empty sum for its question; rows in the old sum are dropped."""
        self._now = replace(self._now, state=state, total=self.mean.sum_for(state), **changes)

    def go_on_at(self, place: Place) -> None:
        """Continue at another position."""
        self._now = replace(self._now, place=place)

    def snapshot(self) -> Snapshot:
        """Return this moment, to `go_back` to; until `release_snapshot` its arrays are not written over."""
        held = self.total.held
        self.total.kept = held.levels
        return Snapshot(self._now, held, self.weights)

    def go_back(self, snapshot: Snapshot) -> None:
        """Go back to a moment, as if nothing had happened since."""
        snapshot.now.total.held = snapshot.held
        self._now, self.weights = snapshot.now, snapshot.weights

    def release_snapshot(self, snapshot: Snapshot) -> None:
        """Allow the arrays of a moment to be written over."""
        snapshot.now.total.kept = ()

    def result(self) -> AnyStreamDecomposition:
        """Return the components found so far, largest weight first, with standard errors if they are known.

        A solver for one pass takes the rows of the unfinished segment into account; others only complete batches.
        """
        state, notes = self._so_far()
        self.require_signal(state, notes)
        found, errors = state.components, state.standard_errors()
        if not found.n_components:
            raise StreamEndedError(
                f"There must be components. None is found after {self.n_rows:,} rows. Pass more rows."
            )
        first = found.largest_first()
        result = StreamDecomposition(
            components=found.sorted_by_weight(),
            weight_errors=None if errors is None else errors[0][first],
            angle_errors=None if errors is None else errors[1][first],
            n_rows=self.n_rows,
            rank_evidence=state.rank_evidence,
        )
        finished, weights = self.mean.result(result, self, notes), self._weight_sum
        if weights is None or not isinstance(finished, StreamDecomposition):  # private rows have no weights
            return finished
        return weights.result(finished)

    def _so_far(self) -> tuple[Solver | FourthComponents, Any]:
        """Return the solver with the best estimate from all rows, and the notes that go with it."""
        now = self._now
        if not isinstance(now.state, StreamSolver):
            return now.state, now.notes
        if self._estimate is None or self._estimate[0] != self.n_rows:
            reply, notes = self.mean.reply(self, keep=True) if now.total.n_rows else (None, now.notes)
            self._estimate = (self.n_rows, now.state.so_far(reply, now.total.n_rows), notes)
        return self._estimate[1:]

    def saved(self, *, keep_sum: bool = True) -> SavedRun:
        """Return the run, to be saved. Without the sum, rows of the unfinished batch count as not used."""
        total = self.total if keep_sum else self.mean.sum_for(self.state)
        return SavedRun(self.state, total.saved, self.n_closed, self.place, self.notes)

    @classmethod
    def resumed(cls, saved: SavedRun, batches: Batches, mean: BatchMean | None = None) -> Run:
        """Return a run that was saved."""
        run = cls(saved.solver, batches, mean)
        run.total.restore(saved.sum)
        run._now = replace(run._now, n_closed=saved.n_closed, place=saved.place, notes=saved.notes)
        return run
