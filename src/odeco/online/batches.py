"""When a batch of rows is complete, and what follows: after a number of rows, when the solver says so, or by passes.

A solver that reads rows once (`StreamSolver`) says how many it wants next; `Doubling` is the base of those that replace
their vectors whenever the number of rows has doubled. For other solvers a policy decides: `FreshRows` or `Passes`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import repeat
from typing import TYPE_CHECKING, Any, ClassVar

from odeco._util.state import State, array_field, require
from odeco.errors import StreamEndedError
from odeco.power.solver import Solver, SolverState
from odeco.power.tracking import Tracker
from odeco.tensors.components import Components, no_components

if TYPE_CHECKING:
    from odeco.online.run import Run


#: Rows between two replacements of the vectors are cut into this many segments.
N_SEGMENTS = 16

#: The fewest rows that are searched before the end of a stream, per column, per component and in all.
_ROWS_PER_COLUMN, _ROWS_PER_COMPONENT, _FEWEST_ROWS = 10, 50, 1000

#: A component is clear if rows that did not find it give it a weight of this many standard errors.
CLEAR = 3.0


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


@dataclass(frozen=True, eq=False)
class Place(State):
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

    row: int = array_field(kind="i", low=0, default=0)
    n_refined: int = array_field(kind="i", low=0, default=0)
    length: int | None = array_field(kind="i", low=1, default=None)
    ended: bool = array_field(kind="b", default=False)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        require(self.length is None or self.row <= self.length, "its place must lie within a pass")


# Solvers that read rows once ------------------------------------------------------------------------------------------


def first_search(dimension: int, n_components: int | None) -> int:
    """Return the number of rows of the first search, if memory allows it."""
    k = 1 if n_components is None else n_components
    return max(_ROWS_PER_COLUMN * dimension, _ROWS_PER_COMPONENT * k, _FEWEST_ROWS)


def segment_end(n_rows: int, replaced_at: int) -> int:
    """Return the count of rows at which the segment that holds the next row ends."""
    place = (n_rows - replaced_at) * N_SEGMENTS // replaced_at + 1
    return replaced_at + -(-place * replaced_at // N_SEGMENTS)


class StreamSolver(SolverState):
    """A solver that reads rows once, without end, and states the number of rows that it wants next."""

    done: ClassVar[bool] = False  # more rows always improve the estimate
    n_queries: ClassVar[int | None] = None  # there is no end
    n_replies: ClassVar[int] = 0  # to count towards
    description: ClassVar[str] = "segments of rows"

    dimension: int
    n_rows: int

    @property
    @abstractmethod
    def components(self) -> Components:
        """The components, if there are any yet."""

    @property
    @abstractmethod
    def n_rows_wanted(self) -> int:
        """The number of rows of the next reply."""

    @property
    @abstractmethod
    def next_segments(self) -> list[int]:
        """The numbers of rows of all replies to the current query."""

    @abstractmethod
    def so_far(self, reply: Any, n_rows: int) -> Any:
        """Return the best estimate from all rows, given those since the last reply, which may be none."""

    @property
    def is_ready(self) -> bool:
        """Whether components are found."""
        return bool(self.components.n_components)


def check_n_rows(n_rows: int | None) -> int:
    """Return the number of rows of a reply; raise if it is not given."""
    if n_rows is None:
        raise TypeError("A solver for one pass must know the number of rows of a reply. Pass n_rows.")
    return n_rows


class Doubling(StreamSolver):
    """A solver that finds components, and replaces their vectors whenever the number of rows has doubled.

    Until they are found, `replaced_at` is the number of rows at which it searches for them.
    """

    order: int
    replaced_at: int
    tracking: Tracker | None

    @property
    def n_rows_wanted(self) -> int:
        """Rows until the next search, or of the segment that begins with the next row."""
        end = self.replaced_at if self.tracking is None else segment_end(self.n_rows, self.replaced_at)
        return end - self.n_rows

    @property
    def next_segments(self) -> list[int]:
        """The sizes of the segments that have the current query."""
        if self.tracking is None:
            return [self.n_rows_wanted]
        sizes, n_rows = list[int](), self.n_rows
        while n_rows < 2 * self.replaced_at:
            sizes.append(segment_end(n_rows, self.replaced_at) - n_rows)
            n_rows += sizes[-1]
        return sizes

    @property
    def components(self) -> Components:
        """The components at the last replacement; none before they are found."""
        return no_components(self.dimension, self.order) if self.tracking is None else self.tracking.components


# Policies -------------------------------------------------------------------------------------------------------------


class Batches(ABC):
    """A policy: when a batch is complete, and what follows. By default every row is read once."""

    @abstractmethod
    def room(self, run: Run) -> int | None:
        """Return the number of rows that the current batch still takes; None for all rows of the pass."""

    @abstractmethod
    def sizes(self, run: Run, n_rows: int) -> Iterable[int]:
        """Return the sizes of batches, out of `n_rows` rows, for which the query of a run is known."""

    def segments(self, run: Run, n_rows: int) -> list[tuple[int, int, int]]:
        """Return these batches: their first row, and the first and last of their rows that are still to be read."""
        row = self.next_row(run)
        found, start = list[tuple[int, int, int]](), row - run.total.n_rows
        for size in self.sizes(run, n_rows):
            if start >= n_rows:
                break
            found.append((start, max(start, row), min(start + size, n_rows)))
            start += size
        return found

    def following(self, state: Solver) -> Solver:
        """Return the solver for the next batch, given the one that has got the mean of a batch."""
        return state

    @abstractmethod
    def end_pass(self, run: Run) -> None:
        """Continue after the end of the data."""

    def is_complete(self, run: Run) -> bool:
        """Tell whether the run needs no more rows."""
        return run.place.ended

    def next_row(self, run: Run) -> int:
        """Return the next row of the data."""
        return run.n_rows

    @abstractmethod
    def progress(self, run: Run) -> Progress:
        """Return the progress of a run."""


@dataclass(frozen=True)
class FreshRows(Batches):
    """A batch is `batch_size` rows that are read once: for streams, and for Algorithm 2.

    Once all components are found, the rows that follow refine them, and the weight of the past fades by `forgetting`;
    for Algorithm 2 on data that are pulled the run ends instead (`stops_when_found`). The components found count as the
    rows of one batch. In a private run they do not, since components that were chosen for their weight in noisy means
    owe some of it to the noise; nor are these refined together.
    """

    batch_size: int
    forgetting: float = 1.0
    stops_when_found: bool = False
    private: bool = False

    def room(self, run: Run) -> int:
        """Return the number of rows that the current batch still takes."""
        return self.batch_size - run.total.n_rows

    def sizes(self, run: Run, n_rows: int) -> list[int]:  # noqa: ARG002 - one batch
        """Return that of the current batch: the next query depends on its mean."""
        return [self.batch_size]

    def following(self, state: Solver) -> Solver:
        """Return the same solver or, once it is done, the one that refines its components."""
        if not state.done:
            return state
        n_rows = 0 if self.private else self.batch_size
        return Tracker.after(state, n_rows=n_rows, forgetting=self.forgetting, orthogonal=self.private)

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

    def progress(self, run: Run) -> Progress:
        """Return the progress; rows that a private run paid for without getting a mean do not count."""
        state = run.state
        if state.n_queries is None:
            return Progress(state.status, 1.0, run.n_rows, 0)
        used = (state.n_replies + 1) * self.batch_size - self.room(run)
        wanted = state.n_queries * self.batch_size
        return Progress(state.status, used / wanted, run.n_rows, wanted - used)


@dataclass(frozen=True)
class OnePass(Batches):
    """A batch is a segment of rows that are read once; the solver says how long it is, by the count of rows."""

    def room(self, run: Run) -> int:
        """Return the number of rows that the current segment still takes."""
        return _stream_solver(run).n_rows_wanted - run.total.n_rows

    def sizes(self, run: Run, n_rows: int) -> list[int]:  # noqa: ARG002 - the solver knows
        """Return those of all segments that have the current query."""
        return _stream_solver(run).next_segments

    def end_pass(self, run: Run) -> None:
        """Note the end of the data."""
        if not run.n_rows:
            raise StreamEndedError("Data must have at least one row. Got none. Pass rows.")
        run.go_on_at(Place(run.place.row, ended=True))

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
class Passes(Batches):
    """A batch is a pass over data that can be read again, or a segment of a pass.

    The solver makes its query in the first pass; the others, `n_passes` in all, refine the components. Vectors change
    only at the end of a pass, so that all its segments have images of the same vectors.
    """

    n_passes: int

    def room(self, run: Run) -> int | None:
        """Return the rows that the current segment still takes; None while a query needs a whole pass."""
        height = self._height(run)
        return None if height is None else height - run.total.n_rows

    def _height(self, run: Run) -> int | None:
        """Return the number of rows of a segment; None for the whole pass."""
        if run.state.n_queries is not None or run.place.length is None:
            return None
        return math.ceil(run.place.length / N_SEGMENTS)

    def sizes(self, run: Run, n_rows: int) -> Iterable[int]:
        """Return the rest of the pass as one batch or, since vectors stay the same in a pass that refines, several."""
        return repeat(self._height(run) or n_rows)

    def end_pass(self, run: Run) -> None:
        """Close the batch, and continue with the next query, or with a pass that refines."""
        if run.total.n_rows:
            run.close()
        state, refining = run.state, isinstance(run.state, Tracker)
        place = Place(0, run.place.n_refined + refining, length=run.place.row)
        if isinstance(state, Tracker):
            state = state.end_pass()
        run.require_signal(state, run.notes)
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
