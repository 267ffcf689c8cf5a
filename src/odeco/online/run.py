"""A run: a solver, the sum over rows that its query needs, and the policy that says when a batch is complete.

A solver makes one query at a time. A run adds up what the query needs over the rows that it gets, pulled or pushed.
When its policy says that the batch is complete, the mean over the batch goes to the solver, which then has its next
query. `BatchMean` makes the plain mean; in a private run `odeco.online.private.NoisyMean` adds noise.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from odeco._util.scale import SMALLEST_USABLE, largest, put_back, times_power_of_two, unit_exponent
from odeco._util.types import FloatArray
from odeco.cp.rank import RankEvidence, no_signal_error
from odeco.decompose.result import PrivateStreamDecomposition, StreamDecomposition
from odeco.errors import BadRowError, RankError, StreamEndedError
from odeco.io.rows import row_slice
from odeco.online.block import KeptRows, largest_number, over_power_of_two
from odeco.online.drift import DriftSolver
from odeco.online.entries import N_SEGMENTS, EntriesSolver, MomentSolver, StreamSolver
from odeco.online.fourth_moment import FourthComponents
from odeco.online.fourth_solver import FourthMomentSolver
from odeco.online.one_pass import OnePassSolver
from odeco.online.range_finder import CoreSolver
from odeco.online.sums import Held, Part, RowSum
from odeco.power.power_method import PowerSolver
from odeco.power.solver import Solver
from odeco.power.tracking import Tracker
from odeco.tensors.components import Components

AnyStreamDecomposition = StreamDecomposition | PrivateStreamDecomposition

#: The names of the solvers in files.
KINDS: dict[str, type[Solver]] = {
    "power": PowerSolver,
    "core": CoreSolver,
    "one pass": OnePassSolver,
    "drift": DriftSolver,
    "moment": MomentSolver,
    "fourth moment": FourthMomentSolver,
    "entries": EntriesSolver,
    "tracking": Tracker,
}

_NAMES = {kind: name for name, kind in KINDS.items()}


@dataclass(frozen=True)
class Progress:
    """The progress of a run.

    Attributes
    ----------
    stage : str
        The current step: ``"component 2 of 3"``, ``"finding the span"``, ``"core"``, ``"refining"``.
    fraction : float
        The share of the rows that the solver needs; 1 once it refines.
    n_rows : int
        Rows used so far.
    n_rows_needed : int or None
        Rows that are still needed for a first result; None if the length of a pass is unknown.
    """

    stage: str
    fraction: float
    n_rows: int
    n_rows_needed: int | None

    def ahead(self, n_rows: int) -> Progress:
        """Return the progress with `n_rows` rows that workers have added up and the run has not taken yet."""
        if not n_rows:
            return self
        needed = None if self.n_rows_needed is None else max(0, self.n_rows_needed - n_rows)
        share = self.fraction
        if needed is not None and self.n_rows_needed:
            share += (1 - share) * min(1.0, n_rows / self.n_rows_needed)
        return replace(self, n_rows=self.n_rows + n_rows, n_rows_needed=needed, fraction=share)


# When a batch is complete ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """The position of a run in the data that it reads.

    Attributes
    ----------
    row : int
        Rows read in the current pass.
    n_refined : int
        Passes that have refined the components.
    length : int or None
        Rows of a pass, once known.
    ended : bool
        Whether data that can be read once have been read to their end.
    """

    row: int = 0
    n_refined: int = 0
    length: int | None = None
    ended: bool = False


class Batches(Protocol):
    """A policy: when a batch is complete, and what follows."""

    def room(self, run: Run) -> int | None:
        """Return the number of rows that the current batch still takes; None for all rows of the pass."""

    def segments(self, run: Run, n_rows: int) -> list[tuple[int, int, int]]:
        """Return the rows, out of `n_rows`, for which the question of a run is known: one or more batches.

        Each batch is given by its first row, and by the first and last of its rows that are still to be read.
        """

    def following(self, state: Solver) -> Solver:
        """Return the solver for the next batch, given the one that has got the mean of a batch."""

    def end_pass(self, run: Run) -> None:
        """Continue after the end of the data."""

    def is_complete(self, run: Run) -> bool:
        """Tell whether the run needs no more rows."""

    def next_row(self, run: Run) -> int:
        """Return the next row of the data."""

    def progress(self, run: Run) -> Progress:
        """Return the progress of a run."""


@dataclass(frozen=True)
class FreshRows:
    """A batch is `batch_size` rows that are read once: for streams, and for Algorithm 2.

    Once all components are found, the rows that follow refine them, and the weight of the past fades by `forgetting`;
    for Algorithm 2 on data that are pulled the run ends instead (`stops_when_found`). The components found count as the
    rows of one batch if their mean is as good as those that follow (`found_counts`); in a private run it is not, since
    components that were chosen for their weight in noisy means owe some of it to the noise. Nor are these refined
    together (`orthogonal`).
    """

    batch_size: int
    forgetting: float = 1.0
    stops_when_found: bool = False
    found_counts: bool = True
    orthogonal: bool = False

    def room(self, run: Run) -> int:
        """Return the number of rows that the current batch still takes."""
        return self.batch_size - run.total.n_rows

    def segments(self, run: Run, n_rows: int) -> list[tuple[int, int, int]]:
        """Return the current batch: the next question depends on its mean."""
        row = self.next_row(run)
        return [(row - run.total.n_rows, row, min(row + self.room(run), n_rows))]

    def following(self, state: Solver) -> Solver:
        """Return the same solver or, once it is done, the one that refines its components."""
        n_rows = self.batch_size if self.found_counts else 0
        if not state.done:
            return state
        return Tracker.after(state, n_rows=n_rows, forgetting=self.forgetting, orthogonal=self.orthogonal)

    def end_pass(self, run: Run) -> None:
        """Raise if the solver needs more batches."""
        state = run.state
        if state.n_queries is not None:
            found = run.components
            k = found.n_components
            so_far = "No component was found."
            if k:
                so_far = f"{k} component{'' if k == 1 else 's'} {'was' if k == 1 else 'were'} found; "
                so_far += f"{'it is' if k == 1 else 'they are'} in `error.found`."
            raise StreamEndedError(
                f"The stream ended after {run.n_rows // self.batch_size:,} of the {state.n_queries:,} batches this "
                f"plan needs ({state.description} of {self.batch_size:,} rows). {so_far} "
                "Pass more rows, or a smaller batch_size.",
                found if k else None,
            )
        run.go_on_at(Place(run.place.row, ended=True))

    def is_complete(self, run: Run) -> bool:
        """Tell whether the data have ended, or all components are found and that is enough."""
        return run.place.ended or (self.stops_when_found and run.state.n_queries is None)

    def next_row(self, run: Run) -> int:
        """Return the number of rows used: each is read once."""
        return run.n_rows

    def progress(self, run: Run) -> Progress:
        """Return the progress; rows that a private run paid for without getting a mean do not count."""
        state = run.state
        if state.n_queries is None:
            return Progress(state.status, 1.0, run.n_rows, 0)
        used = (state.n_replies + 1) * self.batch_size - self.room(run)
        wanted = state.n_queries * self.batch_size
        return Progress(state.status, used / wanted, run.n_rows, wanted - used)


@dataclass(frozen=True)
class OnePass:
    """A batch is a segment of rows that are read once; the solver says how long it is, by the count of rows."""

    def room(self, run: Run) -> int:
        """Return the number of rows that the current segment still takes."""
        return _stream_solver(run).n_rows_wanted - run.total.n_rows

    def segments(self, run: Run, n_rows: int) -> list[tuple[int, int, int]]:
        """Return all segments that have the current question."""
        row = self.next_row(run)
        found, start = list[tuple[int, int, int]](), row - run.total.n_rows
        for size in _stream_solver(run).next_segments:
            if start < n_rows:
                found.append((start, max(start, row), min(start + size, n_rows)))
            start += size
        return found

    def following(self, state: Solver) -> Solver:
        """Return the same solver: it goes on by itself."""
        return state

    def end_pass(self, run: Run) -> None:
        """Note the end of the data."""
        if not run.n_rows:
            raise StreamEndedError("Data must have at least one row. Got none. Pass rows.")
        run.go_on_at(Place(run.place.row, ended=True))

    def is_complete(self, run: Run) -> bool:
        """Tell whether the data have ended."""
        return run.place.ended

    def next_row(self, run: Run) -> int:
        """Return the number of rows used: each is read once."""
        return run.n_rows

    def progress(self, run: Run) -> Progress:
        """Return the progress towards the next search, or say that components are refined."""
        status, needed = run.state.status, self.room(run)
        if _stream_solver(run).is_ready:
            return Progress(status, 1.0, run.n_rows, 0)
        return Progress(status, run.n_rows / (run.n_rows + needed), run.n_rows, needed)


def _stream_solver(run: Run) -> StreamSolver:
    if not isinstance(run.state, StreamSolver):
        raise RuntimeError("Only a solver for one pass states the number of rows that it wants.")
    return run.state


@dataclass(frozen=True)
class Passes:
    """A batch is a pass over data that can be read again, or a segment of a pass.

    The solver asks its question in the first pass; the others, `n_passes` in all, refine the components. Vectors change
    only at the end of a pass, so that all its segments have images of the same vectors.
    """

    n_passes: int

    def room(self, run: Run) -> int | None:
        """Return the rows that the current segment still takes; None while a question needs a whole pass."""
        height = self._height(run)
        return None if height is None else height - run.total.n_rows

    def _height(self, run: Run) -> int | None:
        """Return the number of rows of a segment; None for the whole pass."""
        if run.state.n_queries is not None or run.place.length is None:
            return None
        return math.ceil(run.place.length / N_SEGMENTS)

    def segments(self, run: Run, n_rows: int) -> list[tuple[int, int, int]]:
        """Return the rest of the pass as one batch or, since vectors stay the same in a pass that refines, several."""
        row = self.next_row(run)
        found, start = list[tuple[int, int, int]](), row - run.total.n_rows
        height = self._height(run)
        while start < n_rows:
            end = n_rows if height is None else min(start + height, n_rows)
            found.append((start, max(start, row), end))
            start = end
        return found

    def following(self, state: Solver) -> Solver:
        """Return the same solver: what follows is decided at the end of a pass."""
        return state

    def end_pass(self, run: Run) -> None:
        """Close the batch, and continue with the next question, or with a pass that refines."""
        if run.total.n_rows:
            run.close()
        refining = run.state.n_queries is None
        place = Place(0, run.place.n_refined + refining, length=run.place.row)
        state = run.state.end_pass()
        run.require_signal(state)
        if (refining or state.done) and place.n_refined + 1 < self.n_passes:
            state = Tracker.after(state, per_pass=True)
        run.go_on_with(state, place=place)

    def is_complete(self, run: Run) -> bool:
        """Tell whether all passes are made."""
        return run.place.n_refined + 1 >= self.n_passes and (self.n_passes > 1 or run.state.done)

    def next_row(self, run: Run) -> int:
        """Return the row of the current pass."""
        return run.place.row

    def progress(self, run: Run) -> Progress:
        """Return the number of the pass, and the share of all rows of all passes."""
        state, n_passes, length = run.state, self.n_passes, run.place.length
        n_done = 1 + run.place.n_refined if state.n_queries is None else 0
        stage = f"{state.status}, pass {n_done + 1} of {n_passes}"
        if length is None:
            return Progress(stage, n_done / n_passes, run.n_rows, None)
        return Progress(stage, run.n_rows / (n_passes * length), run.n_rows, n_passes * length - run.n_rows)


# The mean over a batch ------------------------------------------------------------------------------------------------


class BatchMean:
    """Makes the reply to a question from the sum over the rows of a batch: the plain mean.

    What is carried from one batch to the next are its *notes*, a value that the run keeps: a run that goes back to an
    earlier snapshot takes the notes with it. Here the note is the exponent of the unit of all means, a power of two,
    chosen at the first mean and 0 at ordinary sizes: a solver squares means, and those of very small or very large rows
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
        exponent: int | None = run.notes
        if exponent is None and size > 0:
            exponent = unit_exponent(size, 2, mean.dtype)
        return times_power_of_two(mean, -(exponent or 0)), exponent

    def _in_unit(self, rows: Any, run: Run) -> tuple[Any, Any]:
        """Return rows that were kept in the unit whose p-th power is that of means."""
        exponent, size = run.notes, largest_number(rows)
        if exponent is None and size > 0:
            single = np.dtype(np.float32)  # in which the span of a block is searched
            exponent = run.state.order * unit_exponent(size, 2 * run.state.order, single)
        shift = (exponent or 0) // run.state.order
        return over_power_of_two(rows, shift) if shift else rows, exponent

    def notes_after(self, run: Run, release: Any, after: Solver) -> Any:  # noqa: ARG002 - the exponent is all
        """Return the notes for `after`, the solver that has got the reply."""
        return release

    def components(self, found: Components, notes: Any) -> Components:
        """Return components of a solver with their weights in the unit of the rows."""
        return Components(put_back(found.weights, notes or 0, "weights"), found.vectors, found.order)

    def evidence(self, evidence: RankEvidence, notes: Any) -> RankEvidence:
        """Return the evidence for a rank with its weights in the unit of the rows."""
        return replace(
            evidence,
            weights=put_back(evidence.weights, notes or 0, "weights"),
            noise_levels=put_back(evidence.noise_levels, notes or 0, "noise levels"),
        )

    def result(self, found: StreamDecomposition, run: Run, notes: Any) -> AnyStreamDecomposition:  # noqa: ARG002 - private runs need it
        """Return the result for the user: here, with weights in the unit of the rows."""
        if not notes:
            return found
        errors = found.weight_errors
        return replace(
            found,
            components=self.components(found.components, notes),
            weight_errors=None if errors is None else put_back(errors, notes, "errors of the weights"),
            rank_evidence=None if found.rank_evidence is None else self.evidence(found.rank_evidence, notes),
        )

    def notes_to_arrays(self, notes: Any) -> dict[str, Any]:
        """Return the notes as named arrays."""
        return {} if notes is None else {"exponent": np.array(notes)}

    def notes_from_arrays(self, arrays: dict[str, Any], state: Solver) -> Any:  # noqa: ARG002 - the exponent is all
        """Return the notes that `notes_to_arrays` wrote."""
        return int(arrays["exponent"]) if "exponent" in arrays else None


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


class Snapshot(NamedTuple):
    """A moment of a run to which it can go back."""

    now: RunState
    held: Held


class Run:
    """A solver, the sum over rows that its question needs, when a batch is complete, and how its mean is made."""

    def __init__(self, state: Solver, batches: Batches, mean: BatchMean | None = None, *, n_closed: int = 0) -> None:
        self.batches = batches
        self.mean = BatchMean() if mean is None else mean
        self._now = RunState(state, self.mean.sum_for(state), n_closed)
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
        return self.mean.components(self.state.components, self.notes)

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

    def push(self, rows: Any) -> None:
        """Add rows, closing batches when they are complete, until all rows are used or no more are needed."""
        start, n_rows = 0, int(rows.shape[0])
        while start < n_rows and not self.is_complete:
            room = self.batches.room(self)
            stop = n_rows if room is None else min(n_rows, start + room)
            now = self._now
            prepared, notes = self.mean.prepare(row_slice(rows, start, stop), now.notes)
            now.total.update(prepared)
            self._now = replace(now, place=replace(now.place, row=now.place.row + stop - start), notes=notes)
            start = stop
            if self.batches.room(self) == 0:
                self.close()

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
            error.found = self.mean.components(error.found, release)
            raise
        notes = self.mean.notes_after(self, release, after)
        self.go_on_with(self.batches.following(after), n_closed=now.n_closed + n_rows, notes=notes)

    def require_signal(self, state: Solver | FourthComponents, notes: Any = None) -> None:
        """Raise if the rank was selected automatically, and is 0."""
        if state.rank_evidence is not None and state.rank_evidence.rank == 0:
            evidence = self.mean.evidence(state.rank_evidence, self.notes if notes is None else notes)
            raise no_signal_error(evidence.weights, evidence.noise_levels, state.components)

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
        return Snapshot(self._now, held)

    def go_back(self, snapshot: Snapshot) -> None:
        """Go back to a moment, as if nothing had happened since."""
        snapshot.now.total.held = snapshot.held
        self._now = snapshot.now

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
        return self.mean.result(result, self, notes)

    def _so_far(self) -> tuple[Solver | FourthComponents, Any]:
        """Return the solver with the best estimate from all rows, and the notes that go with it."""
        now = self._now
        if not isinstance(now.state, StreamSolver):
            return now.state, now.notes
        if self._estimate is None or self._estimate[0] != self.n_rows:
            reply, notes = self.mean.reply(self, keep=True) if now.total.n_rows else (None, now.notes)
            self._estimate = (self.n_rows, now.state.so_far(reply, now.total.n_rows), notes)
        return self._estimate[1:]

    def to_arrays(self, *, keep_sum: bool = True) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return everything as a JSON header and named arrays.

        Without the sum, rows of the unfinished batch count as not used.
        """
        named: dict[str, Any] = self.state.to_arrays("state")
        total = self.total if keep_sum else self.mean.sum_for(self.state)
        named |= {f"sum_{key}": value for key, value in total.to_arrays().items()}
        named |= {f"notes_{key}": value for key, value in self.mean.notes_to_arrays(self.notes).items()}
        name = _NAMES[type(self.state)]
        run = {"state": name, "dimension": self.total.block.shape[0]}
        return {**run, "n_rows": self.n_closed + total.n_rows, "place": asdict(self.place)}, named

    @classmethod
    def from_arrays(
        cls, header: dict[str, Any], arrays: dict[str, Any], batches: Batches, mean: BatchMean | None = None
    ) -> Run:
        """Return the run that `to_arrays` wrote."""
        state = KINDS[header["state"]].from_arrays(arrays, "state")
        run = cls(state, batches, mean)
        run.total.restore(_without("sum_", arrays))
        notes = run.mean.notes_from_arrays(_without("notes_", arrays), state)
        n_closed = header["n_rows"] - run.total.n_rows
        run._now = replace(run._now, n_closed=n_closed, place=Place(**header["place"]), notes=notes)
        return run


def _without(prefix: str, arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the arrays whose names begin with `prefix`, without the prefix."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
