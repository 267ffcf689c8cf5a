"""When a batch of rows is closed, and what follows: the two ways in which a search is fed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from odeco.online.progress import Progress, stream_ended_error
from odeco.power.protocol import Asker

if TYPE_CHECKING:
    from odeco.online.run import Run


#: Where rows of a pass judge each other, a stretch has at least so many rows, and this share of those before it: of few
#: rows there are stretches enough, and of many not too many.
FEWEST_IN_STRETCH, STRETCH_SHARE = 16, 256

#: A pass that refines is cut into so many stretches, whose spread gives the standard errors.
N_STRETCHES = 16


@dataclass(frozen=True)
class Place:
    """Where a run stands in the data that it reads.

    Attributes
    ----------
    row : int
        Rows read of the current pass.
    n_refined : int
        Passes that have refined what was found.
    length : int or None
        Rows of a pass, once they are known.
    ended : bool
        Whether the data that can be read once have been read to their end.
    """

    row: int = 0
    n_refined: int = 0
    length: int | None = None
    ended: bool = False


class Batches(Protocol):
    """A policy: when a batch is closed, and what follows."""

    def room(self, run: Run) -> int | None:
        """Return how many rows the current batch still takes; None if it takes all of the pass."""

    def stretches(self, run: Run, n_rows: int) -> list[tuple[int, int, int]]:
        """Return what rows of `n_rows` the question of a run can be asked about now: those of one or more batches.

        Each batch is given by its first row, and by where those of its rows begin and end that are still to be read.
        """

    def following(self, state: Asker) -> Asker:
        """Return who asks after a batch was closed, given the search that took in its answer."""

    def end_pass(self, run: Run) -> None:
        """Say that the data have been read to their end."""

    def is_complete(self, run: Run) -> bool:
        """Tell whether the run wants no more rows."""

    def next_row(self, run: Run) -> int:
        """Return the row of the data that comes next."""

    def progress(self, run: Run) -> Progress:
        """Return how far the run is."""


@dataclass(frozen=True)
class FreshRows:
    """A batch is closed after `batch_size` rows, which are never seen again: for streams, and for Algorithm 2.

    Once all components are found, the rows that follow refine them, with a memory that fades by `forgetting`; or, for
    Algorithm 2 on data that are pulled, no more rows are wanted (`stops_when_found`). What was found counts as the rows
    of a batch if its answer is worth as much as those that follow (`found_counts`); in a private run it does not, since
    components that were chosen for their weight among noisy answers owe some of it to the noise. Nor are these refined
    together (`orthogonal`).
    """

    batch_size: int
    forgetting: float = 1.0
    stops_when_found: bool = False
    found_counts: bool = True
    orthogonal: bool = False

    def room(self, run: Run) -> int:
        """Return how many rows the current batch still takes."""
        return self.batch_size - run.total.n_rows

    def stretches(self, run: Run, n_rows: int) -> list[tuple[int, int, int]]:
        """Return the current batch: the next question depends on its answer."""
        row = self.next_row(run)
        return [(row - run.total.n_rows, row, min(row + self.room(run), n_rows))]

    def following(self, state: Asker) -> Asker:
        """Return the search itself, or, once it is done, what goes on learning."""
        n_rows = self.batch_size if self.found_counts else 0
        if not state.done:
            return state
        return state.tracked(n_rows=n_rows, forgetting=self.forgetting, orthogonal=self.orthogonal)

    def end_pass(self, run: Run) -> None:
        """Raise if the search has not got all its batches."""
        state = run.state
        if state.n_questions is not None:
            plan = f"{state.plan_in_words} of {self.batch_size:,} rows"
            raise stream_ended_error(run.n_rows // self.batch_size, state.n_questions, plan, run.components)
        run.go_on_at(Place(run.place.row, ended=True))

    def is_complete(self, run: Run) -> bool:
        """Tell whether the data have ended, or all is found and that is enough."""
        return run.place.ended or (self.stops_when_found and run.state.n_questions is None)

    def next_row(self, run: Run) -> int:
        """Return the number of rows taken in: each is read once."""
        return run.n_rows

    def progress(self, run: Run) -> Progress:
        """Return how far the run is; rows that a private run paid for without getting an answer do not count."""
        state = run.state
        if state.n_questions is None:
            return Progress(state.doing, 1.0, run.n_rows, 0)
        used = (state.n_answered + 1) * self.batch_size - self.room(run)
        wanted = state.n_questions * self.batch_size
        return Progress(state.doing, used / wanted, run.n_rows, wanted - used)


def stretch_height(start: int) -> int:
    """Return how many rows a stretch has that begins at a row, where rows of a pass judge each other."""
    return max(FEWEST_IN_STRETCH, start // STRETCH_SHARE)


@dataclass(frozen=True)
class Passes:
    """A batch is a pass over data that can be read again; passes that refine are cut into stretches.

    The search asks `n_questions` questions, a pass each; then `n_polish` passes refine what was found. Vectors move
    only at the end of such a pass, so that all its stretches have images of the same vectors. A search that has some
    rows judge what others find (`in_stretches`) gets an answer for each stretch, of which later ones are longer.
    """

    n_questions: int
    n_polish: int
    in_stretches: bool = False

    def room(self, run: Run) -> int | None:
        """Return the rows that the current stretch still takes; None while the search asks about a pass as a whole."""
        height = self._height(run, run.place.row - run.total.n_rows)
        return None if height is None else height - run.total.n_rows

    def _height(self, run: Run, start: int) -> int | None:
        """Return how many rows the stretch has that begins at a row; None if it is the pass."""
        if run.state.n_questions is not None:
            return stretch_height(start) if self.in_stretches else None
        return None if run.place.length is None else math.ceil(run.place.length / N_STRETCHES)

    def stretches(self, run: Run, n_rows: int) -> list[tuple[int, int, int]]:
        """Return the rest of the pass: as one batch, or, since vectors hold still while a pass refines, as several."""
        row = self.next_row(run)
        found, start = list[tuple[int, int, int]](), row - run.total.n_rows
        while start < n_rows:
            height = self._height(run, start)
            end = n_rows if height is None else min(start + height, n_rows)
            found.append((start, max(start, row), end))
            start = end
        return found

    def following(self, state: Asker) -> Asker:
        """Return the search itself: what follows is decided at the end of a pass."""
        return state

    def end_pass(self, run: Run) -> None:
        """Close the batch, and go on with the next question, or with a pass that refines."""
        if run.total.n_rows:
            run.close()
        refining = run.state.n_questions is None
        place = Place(0, run.place.n_refined + refining, length=run.place.row)
        state = run.state.settled()
        run.require_signal(state)
        if (refining or state.done) and place.n_refined < self.n_polish:
            state = state.tracked(holding=True)
        run.go_on_with(state, place=place)

    def is_complete(self, run: Run) -> bool:
        """Tell whether all passes are made."""
        return run.place.n_refined >= self.n_polish if self.n_polish else run.state.done

    def next_row(self, run: Run) -> int:
        """Return the row of the current pass."""
        return run.place.row

    def progress(self, run: Run) -> Progress:
        """Return which pass it is, and the share of all rows of all passes."""
        state, n_passes, length = run.state, self.n_questions + self.n_polish, run.place.length
        n_done = self.n_questions + run.place.n_refined if state.n_questions is None else state.n_answered
        stage = f"{state.doing}, pass {n_done + 1} of {n_passes}"
        if length is None:
            return Progress(stage, n_done / n_passes, run.n_rows, None)
        return Progress(stage, run.n_rows / (n_passes * length), run.n_rows, n_passes * length - run.n_rows)
