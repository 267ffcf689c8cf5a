"""A run: a solver, the sum over rows that its query needs, and a policy that says when a batch is complete.

A solver makes one query at a time. A run adds up what the query needs over the rows that it gets, pulled or pushed.
When its policy says that the batch is complete (`odeco.online.batches`), the mean over the batch goes to the solver,
which then has its next query. `BatchMean` makes the plain mean; in a private run `odeco.online.private.NoisyMean` adds
noise.

A run also looks at some rows of every block, to warn of a column that outweighs all others, and of a mean that does
(`ColumnSquares`).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from odeco._util.arguments import SMALLEST_USABLE, largest, put_back, times_power_of_two, unit_exponent
from odeco._util.state import State, array_field
from odeco._util.types import FloatArray
from odeco.cp.rank import RankEvidence, no_signal_error
from odeco.decompose.result import PrivateStreamDecomposition, StreamDecomposition
from odeco.errors import BadRowError, DominantColumnWarning, MisfitWarning, RankError, StreamEndedError
from odeco.io.rows import is_sparse, row_slice, stored_numbers
from odeco.online.batches import Batches, Place, Progress, StreamSolver
from odeco.online.block import largest_number, over_power_of_two
from odeco.online.fourth_moment import FourthComponents
from odeco.online.fourth_solver import FourthMomentSolver
from odeco.online.one_pass import OnePassSolver
from odeco.online.sums import Held, KeptRows, RowSum
from odeco.online.tree import Part
from odeco.power.solver import Solver
from odeco.power.tracking import Tracker
from odeco.tensors.components import Components

if TYPE_CHECKING:
    from odeco.online.weights import PushedWeights, WeightedSource

AnyStreamDecomposition = StreamDecomposition | PrivateStreamDecomposition

Weights: TypeAlias = "PushedWeights | WeightedSource"


# The mean over a batch ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Unit(State):
    """The unit of all means of a run: a power of two."""

    exponent: int = array_field(kind="i", low=-2000, high=2000)


class BatchMean:
    """Makes the reply to a query from the sum over the rows of a batch: the plain mean.

    The run keeps its *notes* from one batch to the next; a run that goes back to an earlier snapshot has the notes of
    that moment again. Here they are the unit of all means, which is chosen at the first mean and 1 at ordinary sizes: a
    solver squares means, and those of very small or very large rows have squares that double precision cannot hold.
    """

    #: The norm to which rows are clipped before they are added up; None if they are not clipped.
    norm_bound: float | None = None

    def sum_for(self, state: Solver) -> RowSum:
        """Return the empty sum for the query of a solver."""
        if state.query == "value":
            raise RuntimeError("The query of a stream must be an image, a core, entries or rows.")
        if state.query == "rows":
            limit = state.row_limit if isinstance(state, OnePassSolver) else None
            return KeptRows(state.probes, state.order, limit)
        return RowSum(state.query, state.probes, state.order)

    def prepare(self, rows: Any) -> Any:
        """Return rows as they are added up."""
        return rows

    def notes_after_rows(self, notes: Any, *, dense: bool) -> Any:  # noqa: ARG002 - the sum notices a change of kind
        """Return the notes after rows, dense or CSR, that are added up here or by a worker."""
        return notes

    def reply(self, run: Run, *, keep: bool = False) -> tuple[Any, Any]:
        """Return the reply to the query of a run, from the sum over its batch; and what `notes_after` needs.

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
        return times_power_of_two(mean, -self.exponent(unit)), unit

    def _in_unit(self, rows: Any, run: Run) -> tuple[Any, Any]:
        """Return rows that were kept in the unit whose p-th power is that of means."""
        unit, size = run.notes, largest_number(rows)
        if unit is None and size > 0:
            single = np.dtype(np.float32)  # in which the span of a block is searched
            unit = Unit(run.state.order * unit_exponent(size, 2 * run.state.order, single))
        shift = self.exponent(unit) // run.state.order
        return over_power_of_two(rows, shift) if shift else rows, unit

    def notes_after(self, run: Run, release: Any, after: Solver) -> Any:  # noqa: ARG002 - the unit is all
        """Return the notes for `after`, the solver that has got the reply."""
        return release

    def exponent(self, notes: Any) -> int:
        """Return the exponent of the unit of all means; 0 while it is not known."""
        return 0 if notes is None else int(notes.exponent)

    def result(self, found: StreamDecomposition, run: Run) -> AnyStreamDecomposition:  # noqa: ARG002 - private runs need it
        """Return the result for the user."""
        return found


class Scale(NamedTuple):
    """How the weights of a solver become those of the rows: times a power of two, and over the mean weight of a row.

    Without weights of rows `mean` is 1; `error` is its standard error, as a share of it.
    """

    exponent: int
    mean: float = 1.0
    error: float = 0.0

    def weights(self, numbers: FloatArray, what: str = "weights") -> FloatArray:
        """Return weights, or what is measured as they are."""
        return np.asarray(put_back(numbers, self.exponent, what) / self.mean)

    def components(self, found: Components) -> Components:
        """Return components of a solver as those of the rows."""
        return Components(self.weights(found.weights), found.vectors, found.order)

    def evidence(self, evidence: RankEvidence) -> RankEvidence:
        """Return the evidence for a rank in the same way."""
        noise_levels = self.weights(evidence.noise_levels, "noise levels")
        return replace(evidence, weights=self.weights(evidence.weights), noise_levels=noise_levels)


# The run --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RunState:
    """The state of a run. It is replaced as a whole, in one step, so that an interrupt never leaves half of it.

    Its fields are properties of `Run`.
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
    weights: Weights | None


class Run:
    """A solver, the sum over rows that its query needs, when a batch is complete, and how its mean is made."""

    def __init__(self, state: Solver, batches: Batches, mean: BatchMean | None = None, **position: Any) -> None:
        """Begin with an empty sum; `position` are fields of `RunState`, for a run that does not begin with row 0."""
        self.batches = batches
        self.mean = BatchMean() if mean is None else mean
        self._now = RunState(state, self.mean.sum_for(state), **position)
        #: The weights of rows, if they have any; rows are multiplied by their roots before they are pushed.
        self.weights: Weights | None = None
        #: The squares of each column, in rows that were pushed; none are kept of rows of a private run.
        self.squares = ColumnSquares()
        # The last estimate of one pass, by the number of rows.
        self._estimate: tuple[int, Solver | FourthComponents, Any] | None = None

    @property
    def state(self) -> Solver:
        """The solver."""
        return self._now.state

    @property
    def total(self) -> RowSum:
        """The sum for the current query."""
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
        """What the mean keeps from batch to batch; see `BatchMean`."""
        return self._now.notes

    @property
    def components(self) -> Components:
        """The components found so far; there may be none."""
        return self._as_those_of_rows(self.state.components, self.notes)

    def _as_those_of_rows(self, found: Components, notes: Any) -> Components:
        """Return components of the solver as those of the rows."""
        return self._scale(notes).components(found) if found.n_components else found

    def _scale(self, notes: Any) -> Scale:
        """Return how weights of the solver become those of the rows, each of which counts once."""
        exponent = self.mean.exponent(notes)
        if self.weights is None:
            return Scale(exponent)
        total = self.weights.up_to(self.place.length or self.n_rows)
        return Scale(exponent, total.mean, total.error)

    def weigh(self, weights: Weights) -> None:
        """Take rows, which are multiplied by roots of weights, as weighted ones."""
        self.weights, now = weights, self._now
        if isinstance(now.state, OnePassSolver) and not now.state.weighted:
            self._now = replace(now, state=replace(now.state, weighted=True))

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
            notes = self.mean.notes_after_rows(now.notes, dense=not is_sparse(rows))
            now.total.update(self.mean.prepare(row_slice(rows, start, stop)))
            self._now = replace(now, place=replace(now.place, row=now.place.row + stop - start), notes=notes)
            start = stop
            if self.batches.room(self) == 0:
                self.close()
                if report is not None:
                    report(self.progress)
        if self.mean.norm_bound is None:  # nothing is kept of private rows
            self.squares.update(rows)

    def take(self, part: Part, *, dense: bool) -> None:
        """Add the sum over the rows that follow, at most as many as the batch has room for."""
        now = self._now
        notes = self.mean.notes_after_rows(now.notes, dense=dense)
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
            error.found = self._as_those_of_rows(error.found, release)
            raise
        notes = self.mean.notes_after(self, release, after)
        self.go_on_with(self.batches.following(after), n_closed=now.n_closed + n_rows, notes=notes)

    def require_signal(self, state: Solver | FourthComponents, notes: Any) -> None:
        """Raise if the rank was selected automatically, and is 0."""
        if state.rank_evidence is not None and state.rank_evidence.rank == 0:
            evidence = self._scale(notes).evidence(state.rank_evidence)
            advice = (
                " Rows that are symmetric about zero have no odd moments: order=4 with moment='cumulant' finds their "
                "sources."
            )
            advice = advice if self.state.order % 2 else ""
            raise no_signal_error(evidence.weights, evidence.noise_levels, state.components, advice)

    def go_on_with(self, state: Solver, **changes: Any) -> None:
        """Continue with another solver and an empty sum for its query; rows in the old sum are dropped."""
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

    def result(self, names: Sequence[str] | None = None) -> AnyStreamDecomposition:
        """Return the components found so far, largest weight first, with standard errors if they are known.

        A solver for one pass takes the rows of the unfinished segment into account; others only complete batches.
        `names` are those of the columns.
        """
        state, notes = self._so_far()
        self.require_signal(state, notes)
        found, errors, length = state.components, state.standard_errors(), self.place.length
        if not found.n_components:
            raise StreamEndedError(
                f"There must be components. None is found after {self.n_rows:,} rows. Pass more rows."
            )
        first, scale = found.largest_first(), self._scale(notes)
        components, weight_errors, angle_errors, misfits = scale.components(found.sorted_by_weight()), None, None, None
        if errors is not None:
            misfits = state.misfit_errors() if isinstance(state, Tracker) else None
            weight_errors = scale.weights(errors[0][first], "errors of the weights")
            weight_errors = weight_errors + scale.error * np.abs(components.weights)
            angle_errors = errors[1][first]
        result = StreamDecomposition(
            components=components,
            weight_errors=weight_errors,
            angle_errors=angle_errors,
            n_rows=length or self.n_rows,  # in passes every row counts once
            n_passes=self.n_rows // length if length else 1,
            misfit_errors=None if misfits is None else misfits[first],
            rank_evidence=None if state.rank_evidence is None else scale.evidence(state.rank_evidence),
        )
        finished = self.mean.result(result, self)
        return finished if names is None else finished.with_names(names)

    def warn_of_rows(self, result: AnyStreamDecomposition, *, stacklevel: int) -> None:
        """Warn if a column dominates the components of a result, or if these do not add up to the moment."""
        if isinstance(self.state, FourthMomentSolver):  # whose components do not depend on the units of columns
            return
        column = dominant_column(result.components.vectors, self.squares)
        if column is not None:
            name = None if result.names is None else result.names[column]
            warning = DominantColumnWarning(column, name, self.squares.share(column), len(result.weights))
            warnings.warn(warning, stacklevel=stacklevel + 1)
        elif isinstance(result, StreamDecomposition) and result.misfits:
            warnings.warn(MisfitWarning(self.squares.mean_share), stacklevel=stacklevel + 1)

    def _so_far(self) -> tuple[Solver | FourthComponents, Any]:
        """Return the solver with the best estimate from all rows, and the notes that go with it."""
        now = self._now
        if not isinstance(now.state, StreamSolver):
            return now.state, now.notes
        if self._estimate is None or self._estimate[0] != self.n_rows:
            reply, notes = self.mean.reply(self, keep=True) if now.total.n_rows else (None, now.notes)
            self._estimate = (self.n_rows, now.state.so_far(reply, now.total.n_rows), notes)
        return self._estimate[1:]


# A column that dominates ----------------------------------------------------------------------------------------------

# Let x_c be such a column, r its root mean square, and q that of all other columns together. Of a moment of order 3
# the entry of c alone is of size r³, and so the leading component is the column itself. The next are not those of the
# other columns, of size q³, but what c shares with them: E[x_c x_j x_k], of size r q² wherever the mean of x_c is not
# zero. The unit vector u at which u_c uⱼ u_k is largest has u_c² = 1/3 (at order p, 1 − 2/p), so these components lean
# on column c, which components beside e_c that are orthogonal to it never do.
#
# So a column dominates if the leading vector is the column, if r > 3q (the moments that it shares with the
# others are then three times those of the others alone), and if the other components lean on it on average: deflation
# gives most of what c shares to the first of them. With no other component to show that, it must be r > 10q.

#: A vector is a column if the column has this share of its squares.
ALONE = 0.9

#: Components that lean on a column have this share of their squares there. In theory it is a third; noise lowers it.
LEANING = 0.1

#: The share of the second moment that a column must have, where other components lean on it, and where there are none.
MOST, NEARLY_ALL = 0.9, 0.99

#: The number of rows of a block whose squares are added up, evenly spaced: shares need few.
ROWS_OF_A_BLOCK = 64


class ColumnSquares:
    """Some rows of every block and their squares, added up column by column."""

    def __init__(self) -> None:
        self._squares: FloatArray | None = None
        self._sums: FloatArray | None = None
        self._n_rows = 0
        self._exponent: int | None = None

    def update(self, rows: Any) -> None:
        """Look at some of the rows, dense or CSR."""
        n_rows = int(rows.shape[0])
        places = np.unique(np.linspace(0, n_rows - 1, min(n_rows, ROWS_OF_A_BLOCK)).astype(np.int64))
        some = rows[places]
        dense: FloatArray = (some.toarray() if is_sparse(some) else some).astype(np.float64)
        size = largest(stored_numbers(dense))
        if size == 0 or not math.isfinite(size):  # such rows are refused elsewhere
            return
        if self._exponent is None:  # squares of very large and very small numbers are no numbers
            self._exponent = unit_exponent(size, 2, dense.dtype)
        with np.errstate(over="ignore", under="ignore"):
            dense = times_power_of_two(dense, -self._exponent)
            squares, sums = np.sum(dense**2, axis=0), np.sum(dense, axis=0)
            self._squares = squares if self._squares is None else self._squares + squares
            self._sums = sums if self._sums is None else self._sums + sums
            self._n_rows += len(dense)

    def share(self, column: int) -> float:
        """Return the share of the second moment that a column has; 0 if it is unknown."""
        if self._squares is None or not np.isfinite(total := float(self._squares.sum())) or total == 0:
            return 0.0
        return float(self._squares[column]) / total

    @property
    def mean_share(self) -> float:
        """The share of the second moment that the mean has; 0 if it is unknown."""
        if self._sums is None or self._squares is None:
            return 0.0
        with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
            share = float(self._sums @ self._sums) / self._n_rows / float(self._squares.sum())
        return share if math.isfinite(share) else 0.0


def dominant_column(vectors: FloatArray, squares: ColumnSquares) -> int | None:
    """Return the column that dominates, or None; `vectors` are those of the components, the leading one first."""
    column = int(np.argmax(np.abs(vectors[:, 0])))
    on_column = vectors[column] ** 2
    if on_column[0] < ALONE:
        return None
    if on_column.size == 1:
        return column if squares.share(column) >= NEARLY_ALL else None
    return column if squares.share(column) >= MOST and np.mean(on_column[1:]) >= LEANING else None
