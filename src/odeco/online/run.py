"""A run: the state of a solver, and the sum over rows that its query needs.

A run is a value. `steps` yields the run after each batch that rows complete, and at last the run
with all of them; whoever is interrupted still has the run from before. How the mean over a batch is
made is not part of it: `odeco.online.means.PlainMean`, or `odeco.online.private.NoisyMean`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

from odeco._util.state import State, array_field, given_field, part_field, require
from odeco.errors import StreamEndedError
from odeco.io.rows import is_sparse, row_slice
from odeco.online.progress import Progress
from odeco.online.solver import Estimate, Reply, Solver
from odeco.online.sums import Kept, Sum
from odeco.online.tree import Part
from odeco.online.units import check_signal, scaled_errors

#: The powers of two that means are divided by.
_MAX_UNIT = 4000


class Mean(Protocol):
    """How the reply to a query is made of the sum over a batch."""

    #: The norm to which rows are clipped before they are added up; None if they are not clipped.
    norm_bound: float | None

    def prepared(self, rows: Any, *, sparse: bool | None) -> Any:
        """Return rows as they are added up; `sparse` says of which kind those before are."""

    def reply(self, run: Run) -> tuple[Reply, int | None]:
        """Return the reply to the query of a run, and the unit of the run from then on."""

    def reply_so_far(self, run: Run) -> tuple[Reply | None, int | None]:
        """Return the reply from the rows of the incomplete batch, or None; and its unit."""


@dataclass(frozen=True, eq=False)
class Run(State):
    """The state of a run.

    Attributes
    ----------
    solver : Solver
        The solver. The reader of a file says of which type it is.
    sum : Sum or Kept
        The sum for its query.
    n_closed : int
        Rows of complete batches.
    row : int
        Rows read in the current pass.
    length : int
        Rows of a pass; 0 if rows are read once, or if it is not known yet.
    unit : int or None
        The power of two that all means are divided by; None before the first.
    sparse : bool or None
        Whether rows are CSR; None before the first.
    ended : bool
        Whether data that are read once have been read to their end.
    """

    solver: Solver = given_field()
    sum: Sum | Kept = part_field(Sum, Kept)
    n_closed: int = array_field(kind="i", low=0, default=0)
    row: int = array_field(kind="i", low=0, default=0)
    length: int = array_field(kind="i", low=0, default=0)
    unit: int | None = array_field(kind="i", low=-_MAX_UNIT, high=_MAX_UNIT, default=None)
    sparse: bool | None = array_field(kind="b", default=None)
    ended: bool = array_field(kind="b", default=False)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        query = self.solver.query
        require(self.length == 0 or self.row <= self.length, "its place must lie within a pass")
        require(isinstance(self.sum, type(query.empty())), "its sum must be that of its query")
        self.sum.check_for(query)
        # A batch is closed as soon as it is complete: without room left, pushing rows would never
        # end.
        require(self.room is None or self.room > 0, "its sum must hold fewer rows than a batch")

    @classmethod
    def begin(cls, solver: Solver, n_closed: int = 0) -> Run:
        """Return a run before its first row; `n_closed` earlier rows have been paid for."""
        return cls(solver, solver.query.empty(), n_closed, unit=solver.plan.unit)

    @property
    def n_rows(self) -> int:
        """Rows used in all."""
        return self.n_closed + self.sum.n_rows

    @property
    def done(self) -> bool:
        """Whether no more rows are needed."""
        return self.ended or self.solver.done

    @property
    def room(self) -> int | None:
        """Rows that the batch still takes; None for all rows of the pass."""
        for size in self.solver.query.sizes:
            return size - self.sum.n_rows
        return None

    @property
    def progress(self) -> Progress:
        """The progress of the run."""
        used, needed = self.solver.progress(self.n_rows, self.sum.n_rows)
        fraction = 0.0
        if needed is not None:
            fraction = used / (used + needed) if needed else 1.0
        return Progress(self.solver.status, fraction, self.n_rows, needed)

    def steps(self, rows: Any, mean: Mean) -> Iterator[Run]:
        """Yield the run after each batch that rows complete, and at last with all rows, or as many
        as it needs.
        """
        run = self
        start = 0
        n_rows = int(rows.shape[0])
        while start < n_rows and not run.done:
            room = run.room
            stop = n_rows if room is None else min(n_rows, start + room)
            part = mean.prepared(row_slice(rows, start, stop), sparse=run.sparse)
            total = run.sum.with_rows(run.solver.query, part)
            run = replace(run, sum=total, row=run.row + stop - start, sparse=is_sparse(rows))
            start = stop
            if run.room == 0:
                run = run.closed(mean)
                yield run
        yield run

    def with_part(self, part: Part, mean: Mean, *, sparse: bool) -> Run:
        """Return the run with the sum over the rows that follow, at most as many as the batch has
        room for.
        """
        total = self.sum.with_part(self.solver.query, part)
        run = replace(self, sum=total, row=self.row + part.n_rows, sparse=sparse)
        if run.room == 0:
            return run.closed(mean)
        return run

    def closed(self, mean: Mean) -> Run:
        """Return the run after the solver has got the mean over the batch."""
        reply, unit = mean.reply(self)
        with scaled_errors(unit or 0):
            after = self.solver.advance(reply)
        if after.in_passes:
            check_signal(after.evidence, unit or 0, self.solver.plan.nothing.components)
        return replace(self, solver=after, sum=after.query.empty(), n_closed=self.n_rows, unit=unit)

    def after_data(self, mean: Mean) -> Run:
        """Return the run after the end of the data: with the next pass, or ended."""
        if self.n_rows == 0:
            raise StreamEndedError("Data must have at least one row. Got none. Pass rows.")
        if not self.solver.in_passes:
            with scaled_errors(self.unit or 0):
                self.solver.check_ended(self.n_rows)
            return replace(self, ended=True)
        run = self.closed(mean) if self.sum.n_rows else self
        solver = run.solver.next_pass(self.row)
        return replace(run, solver=solver, sum=solver.query.empty(), row=0, length=self.row)

    def again(self, n_closed: int) -> Run:
        """Return the run with the query repeated with later rows, after `n_closed` rows; the sum is
        dropped.
        """
        empty = self.solver.query.empty()
        return replace(self, sum=empty, n_closed=n_closed, row=self.row - self.sum.n_rows)

    def without_rows(self) -> Run:
        """Return the run with no row in it, only their sum. Later sums may differ in the last
        bits.
        """
        return replace(self, sum=self.sum.without_rows(self.solver.query))

    def estimate(self, mean: Mean) -> tuple[Estimate, int]:
        """Return the best estimate from all rows, and its unit."""
        reply, unit = mean.reply_so_far(self)
        return self.solver.estimate(reply), unit or 0
