"""A search and the rows it is fed: what pulling and pushing share.

A search asks one question at a time. A run adds up what the question needs over rows; when its policy (`Batches`) says
that the batch is full, the answer goes to the search, which has its next question. Who makes an answer of a sum is an
`Answerer`: the plain mean, or one with noise that is paid for.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from odeco._util.scale import SMALLEST_USABLE, largest, put_back, times_power_of_two, unit_exponent
from odeco._util.types import FloatArray
from odeco.cp.rank import RankEvidence, no_signal_error
from odeco.decompose.result import PrivateStreamDecomposition, StreamDecomposition
from odeco.errors import BadRowError, RankError
from odeco.io.rows import row_slice
from odeco.online.batches import Batches, Place
from odeco.online.entries import EntriesSearch
from odeco.online.progress import Progress
from odeco.online.range_finder import CoreSearch
from odeco.online.sums import Held, RowSum
from odeco.online.tree import Part
from odeco.online.unknown_rank import CountingSearch
from odeco.power.protocol import Asker
from odeco.power.solver import Search
from odeco.power.tracking import Tracking
from odeco.tensors.components import Components

AnyStreamDecomposition = StreamDecomposition | PrivateStreamDecomposition

#: The names of the searches in files.
KINDS: dict[str, type[Asker]] = {
    "power": Search,
    "core": CoreSearch,
    "counting": CountingSearch,
    "entries": EntriesSearch,
    "tracking": Tracking,
}

_NAMES = {kind: name for name, kind in KINDS.items()}


class Answerer:
    """Makes an answer of the sum over the rows of a batch: the plain mean, unless a subclass knows better.

    What it wants to remember from one batch to the next are its *notes*, a value that the run keeps for it: so a run
    that goes back to where it was before an interrupt takes the notes with it. Here the note is the exponent of the
    unit that answers are given in, a power of two, chosen at the first answer and 1 at ordinary sizes: a search squares
    what it is told, and means over very small or very large rows have squares that double precision cannot hold.
    """

    def sum_for(self, state: Asker) -> RowSum:
        """Return the empty sum for the question of a search."""
        if state.question == "value" or state.question == "slice":
            raise RuntimeError("A search that is fed rows asks for images, for cores or for entries, nothing else.")
        return RowSum(state.question, state.candidates, state.order)

    #: The norm that rows are cut to before they are added up; None if they are taken as they are.
    norm_bound: float | None = None

    def admitted(self, rows: Any, notes: Any) -> tuple[Any, Any]:
        """Return rows as they are added up, and the notes after them."""
        return rows, notes

    def noting(self, notes: Any, *, dense: bool) -> Any:  # noqa: ARG002 - the sum notices a change of kind
        """Return the notes after rows, dense or CSR, that somebody else has admitted and added up."""
        return notes

    def answer(self, run: Run) -> tuple[FloatArray, Any]:
        """Return the answer to the question of a run, from the sum over its batch; and what `noted` needs of it."""
        mean: FloatArray = run.total.finish()
        size = largest(mean)
        if 0 < size < SMALLEST_USABLE:
            raise BadRowError(
                "Rows must be large enough for their powers to be told from zero. The largest number in the mean over "
                f"the batch is {size:.3g}. Nothing of this batch was used; multiply all rows by a constant."
            )
        exponent: int | None = run.notes
        if exponent is None and size > 0:
            exponent = unit_exponent(size, 2, mean.dtype)
        return times_power_of_two(mean, -(exponent or 0)), exponent

    def noted(self, run: Run, release: Any, after: Asker) -> Any:  # noqa: ARG002 - the unit is all
        """Return the notes for the search `after` the one of the run, which has taken in the answer."""
        return release

    def components(self, found: Components, notes: Any) -> Components:
        """Return components of a search with their weights in the unit of the rows."""
        return Components(put_back(found.weights, notes or 0, "weights"), found.vectors, found.order)

    def judged(self, evidence: RankEvidence, notes: Any) -> RankEvidence:
        """Return the evidence for a rank with its weights in the unit of the rows."""
        return replace(
            evidence,
            weights=put_back(evidence.weights, notes or 0, "weights"),
            noise_levels=put_back(evidence.noise_levels, notes or 0, "noise levels"),
        )

    def described(self, found: StreamDecomposition, run: Run) -> AnyStreamDecomposition:
        """Return a result with what the answerer knows about it: here, with weights in the unit of the rows."""
        if not run.notes:
            return found
        errors = found.weight_errors
        return replace(
            found,
            components=self.components(found.components, run.notes),
            weight_errors=None if errors is None else put_back(errors, run.notes, "errors of the weights"),
            rank_evidence=None if found.rank_evidence is None else self.judged(found.rank_evidence, run.notes),
        )

    def notes_to_arrays(self, notes: Any) -> dict[str, Any]:
        """Return the notes as named arrays."""
        return {} if notes is None else {"exponent": np.array(notes)}

    def notes_from_arrays(self, arrays: dict[str, Any], state: Asker) -> Any:  # noqa: ARG002 - the unit is all
        """Return the notes that `notes_to_arrays` described."""
        return int(arrays["exponent"]) if "exponent" in arrays else None


@dataclass(frozen=True, eq=False)
class Standing:
    """Where a run stands. It is replaced as a whole, in one step, so that an interrupt never finds half of it.

    Attributes
    ----------
    state : Asker
        Who asks.
    total : RowSum
        What the current question has got so far.
    n_closed : int
        Rows of the questions that are answered.
    place : Place
        Where the run stands in its data.
    notes : Any
        What the answerer remembers.
    """

    state: Asker
    total: RowSum
    n_closed: int = 0
    place: Place = field(default_factory=Place)
    notes: Any = None


class Mark(NamedTuple):
    """A moment of a run to which it can go back."""

    standing: Standing
    held: Held


class Run:
    """A search, the sum over rows that its question needs, when a batch is full, and who makes an answer of it."""

    def __init__(self, state: Asker, batches: Batches, answerer: Answerer | None = None, *, n_closed: int = 0) -> None:
        self.batches = batches
        self.answerer = Answerer() if answerer is None else answerer
        self._now = Standing(state, self.answerer.sum_for(state), n_closed)

    @property
    def state(self) -> Asker:
        """Who asks."""
        return self._now.state

    @property
    def total(self) -> RowSum:
        """What the current question has got so far."""
        return self._now.total

    @property
    def n_closed(self) -> int:
        """Rows of the questions that are answered."""
        return self._now.n_closed

    @property
    def place(self) -> Place:
        """Where the run stands in its data."""
        return self._now.place

    @property
    def notes(self) -> Any:
        """What the answerer remembers."""
        return self._now.notes

    @property
    def components(self) -> Components:
        """The components found so far; there may be none."""
        return self.answerer.components(self.state.components, self.notes)

    @property
    def n_rows(self) -> int:
        """Rows taken in altogether."""
        return self.n_closed + self.total.n_rows

    @property
    def is_complete(self) -> bool:
        """Whether the run wants no more rows."""
        return self.batches.is_complete(self)

    @property
    def progress(self) -> Progress:
        """How far the run is."""
        return self.batches.progress(self)

    def push(self, rows: Any) -> None:
        """Take in rows, closing batches as they fill up, until all rows are used or no more are wanted."""
        start, n_rows = 0, int(rows.shape[0])
        while start < n_rows and not self.is_complete:
            room = self.batches.room(self)
            stop = n_rows if room is None else min(n_rows, start + room)
            now = self._now
            admitted, notes = self.answerer.admitted(row_slice(rows, start, stop), now.notes)
            now.total.update(admitted)
            self._now = replace(now, place=replace(now.place, row=now.place.row + stop - start), notes=notes)
            start = stop
            if self.batches.room(self) == 0:
                self.close()

    def take(self, part: Part, *, dense: bool) -> None:
        """Take in the sum over the rows that follow, of which no more may be there than the batch has room for."""
        now = self._now
        notes = self.answerer.noting(now.notes, dense=dense)
        now.total.append(part)
        self._now = replace(now, place=replace(now.place, row=now.place.row + part.n_rows), notes=notes)
        if self.batches.room(self) == 0:
            self.close()

    def begin_batch_again(self) -> None:
        """Go back to the first row of the batch: for rows that cannot go on where it was left."""
        row = self.place.row - self.total.n_rows
        self.go_on_with(self.state, place=replace(self.place, row=row))

    def close(self) -> None:
        """Answer the current question from the rows of its batch, and go on with what follows."""
        now = self._now
        n_rows = now.total.n_rows
        answer, release = self.answerer.answer(self)
        try:
            after = now.state.advance(answer, n_rows)
        except RankError as error:
            error.found = self.answerer.components(error.found, release)
            raise
        notes = self.answerer.noted(self, release, after)
        self.go_on_with(self.batches.following(after), n_closed=now.n_closed + n_rows, notes=notes)

    def require_signal(self, state: Asker) -> None:
        """Raise if the number of components was judged, and there are none."""
        if state.rank_evidence is not None and state.rank_evidence.rank == 0:
            evidence = self.answerer.judged(state.rank_evidence, self.notes)
            raise no_signal_error(evidence.weights, evidence.noise_levels, state.components)

    def end_pass(self) -> None:
        """Say that the data have been read to their end."""
        self.batches.end_pass(self)

    def go_on_with(self, state: Asker, **changes: Any) -> None:
        """Go on with another search and an empty sum for its question; rows that were in the old one are let go of."""
        self._now = replace(self._now, state=state, total=self.answerer.sum_for(state), **changes)

    def go_on_at(self, place: Place) -> None:
        """Go on at another place."""
        self._now = replace(self._now, place=place)

    def mark(self) -> Mark:
        """Return this moment, to `go_back` to; until `forget_mark` the arrays that it needs are not written over."""
        held = self.total.held
        self.total.kept = held.levels
        return Mark(self._now, held)

    def go_back(self, mark: Mark) -> None:
        """Go back to a moment: afterwards nothing that came since has happened."""
        mark.standing.total.held = mark.held
        self._now = mark.standing

    def forget_mark(self, mark: Mark) -> None:
        """Let the arrays of a moment be used again."""
        mark.standing.total.kept = ()

    def result(self) -> AnyStreamDecomposition:
        """Return what has been found so far, largest weight first, with standard errors where there are some."""
        self.require_signal(self.state)
        found, errors = self.state.components, self.state.standard_errors()
        first = found.largest_first()
        described = StreamDecomposition(
            components=found.sorted_by_weight(),
            weight_errors=None if errors is None else errors[0][first],
            angle_errors=None if errors is None else errors[1][first],
            n_rows=self.n_rows,
            rank_evidence=self.state.rank_evidence,
        )
        return self.answerer.described(described, self)

    def to_arrays(self, *, keep_sum: bool = True) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return everything as a JSON header and named arrays.

        Without the sum, rows of the unfinished batch count as not taken.
        """
        header, arrays = self.state.to_arrays()
        named = {f"state_{key}": value for key, value in arrays.items()}
        total = self.total if keep_sum else self.answerer.sum_for(self.state)
        named |= {f"sum_{key}": value for key, value in total.to_arrays().items()}
        named |= {f"notes_{key}": value for key, value in self.answerer.notes_to_arrays(self.notes).items()}
        name = _NAMES[type(self.state)]
        run = {"state": name, "state_header": header, "dimension": self.total.block.shape[0]}
        return {**run, "n_rows": self.n_closed + total.n_rows, "place": asdict(self.place)}, named

    @classmethod
    def from_arrays(
        cls, header: dict[str, Any], arrays: dict[str, Any], batches: Batches, answerer: Answerer | None = None
    ) -> Run:
        """Return the run that `to_arrays` described."""
        state = KINDS[header["state"]].from_arrays(header["state_header"], _without("state_", arrays))
        run = cls(state, batches, answerer)
        run.total.restore(_without("sum_", arrays))
        notes = run.answerer.notes_from_arrays(_without("notes_", arrays), state)
        n_closed = header["n_rows"] - run.total.n_rows
        run._now = replace(run._now, n_closed=n_closed, place=Place(**header["place"]), notes=notes)
        return run


def _without(prefix: str, arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the arrays whose names begin with `prefix`, by the rest of their names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
