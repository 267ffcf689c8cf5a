"""Components that are found are refined by all rows that follow: batch by batch, or in passes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from typing import Any

from numpy.typing import NDArray

from odeco._util.state import array_field, part_field, require
from odeco.cp.rank import RankEvidence
from odeco.online.queries import Images, Query, no_vectors
from odeco.online.solver import Estimate, Reply, Solver
from odeco.power.tracking import Tracker
from odeco.tensors.components import Components

#: A pass, and the rows between two replacements of the vectors, are cut into this many segments.
N_SEGMENTS = 16


def check_tracker(tracker: Tracker, plan: Any) -> None:
    """Raise `ValueError` if a file has a tracker of components that a plan does not find."""
    found = tracker.components
    fits = (found.dimension, found.order) == (plan.where.dimension, plan.order)
    require(fits, "its components must be those of its moment")
    require(
        plan.k in (None, found.n_components), "it must have the components that it was started for"
    )


@dataclass(frozen=True, eq=False)
class Refine(Solver):
    """Refinement by batches of `plan.batch_size` rows; a run that reads its own rows ends with the
    components found.
    """

    tracker: Tracker = part_field(Tracker)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        check_tracker(self.tracker, self.plan)

    @property
    def done(self) -> bool:
        """Whether no more rows are needed."""
        return bool(self.plan.where.pulled)

    @cached_property
    def query(self) -> Query:
        """Images of the components."""
        return Images(self.tracker.probes, self.plan.order, (self.plan.batch_size,))

    def advance(self, reply: Reply) -> Refine:
        """Return the state after the images over a batch."""
        return replace(self, tracker=self.tracker.advance(reply.value, reply.n_rows))

    def estimate(self, reply: Reply | None) -> Estimate:  # noqa: ARG002 - only complete batches count
        """Return the components."""
        return Estimate.of(self.tracker)


@dataclass(frozen=True, eq=False)
class RefineInPasses(Solver):
    """Refinement in passes. Vectors change at the end of a pass only, so that all its images are of
    the same vectors.

    Attributes
    ----------
    tracker : Tracker
        The components, and their images in this pass.
    n_left : int
        The number of passes that are left, this one included.
    length : int
        Rows of a pass; 0 until the pass that has found the components has ended.
    """

    in_passes = True

    tracker: Tracker = part_field(Tracker)
    n_left: int = array_field(kind="i", low=0)
    length: int = array_field(kind="i", low=0, default=0)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        check_tracker(self.tracker, self.plan)
        require(self.n_left < self.plan.n_passes, "it must have fewer passes left than its plan")
        require(self.length > 0, "it must know the length of a pass")

    @classmethod
    def begin(
        cls,
        plan: Any,
        found: Components,
        clear: NDArray[Any] | None = None,
        evidence: RankEvidence | None = None,
    ) -> RefineInPasses:
        """Begin with components that the first pass found; `clear` are those that held-out rows
        confirm.
        """
        tracker = Tracker.start(found.sorted_by_weight(), per_pass=True)
        confirmed = None if clear is None else clear[found.largest_first()]
        tracker = replace(tracker, rank_evidence=evidence, confirmed=confirmed)
        return cls(plan, tracker, plan.n_passes - 1)

    @property
    def status(self) -> str:
        """What the next reply is for."""
        n_passes = self.plan.n_passes
        return f"refining, pass {min(n_passes, n_passes - self.n_left + 1)} of {n_passes}"

    @property
    def done(self) -> bool:
        """Whether all passes are made."""
        return self.n_left == 0

    @property
    def evidence(self) -> RankEvidence | None:
        """The evidence for the number of components, if that was not given."""
        return self.tracker.rank_evidence

    @cached_property
    def query(self) -> Query:
        """Images of the components, of one segment of the pass after the other."""
        if self.length == 0:  # the pass that found them has ended, and takes no more rows
            return Images(no_vectors(self.plan.where.dimension), self.plan.order)
        sizes: Iterable[int] = repeat(math.ceil(self.length / N_SEGMENTS))
        return Images(self.tracker.probes, self.plan.order, sizes)

    def advance(self, reply: Reply) -> RefineInPasses:
        """Return the state after the images over a segment."""
        return replace(self, tracker=self.tracker.advance(reply.value, reply.n_rows))

    def estimate(self, reply: Reply | None) -> Estimate:  # noqa: ARG002 - only complete passes count
        """Return the components."""
        return Estimate.of(self.tracker)

    def progress(self, n_rows: int, n_in_batch: int) -> tuple[int, int | None]:  # noqa: ARG002 - all rows count
        """Return the number of rows that were used, and of those in the passes that are left."""
        return n_rows, self.plan.n_passes * self.length - n_rows

    def next_pass(self, length: int) -> RefineInPasses:
        """Return the state after a pass of `length` rows."""
        if self.length == 0:
            return replace(self, length=length)
        tracker = self.tracker.end_pass()
        if self.n_left > 1:
            fresh = Tracker.start(tracker.components, per_pass=True)
            tracker = replace(
                fresh, rank_evidence=tracker.rank_evidence, confirmed=tracker.confirmed
            )
        return replace(self, tracker=tracker, n_left=self.n_left - 1)
