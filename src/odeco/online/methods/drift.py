"""A stream whose distribution drifts: components that move are followed, new ones found, vanished
ones dropped.

Rows come in batches, and the weight of the past fades by a factor with each of them. Components
that move slowly are followed by the images of each batch. A component that appears has no image
yet, so the last rows are kept, the number of rows that the mean stands for. Whenever all of them
are new, the components are tested against them, and the rows are searched again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from odeco._util.state import array_field, given_field, part_field, require
from odeco._util.types import FloatArray
from odeco.cp.rank import RankEvidence
from odeco.errors import RankError
from odeco.io.rows import join_rows, row_slice
from odeco.online.block import RowBlock
from odeco.online.methods.core import Core, check_block
from odeco.online.queries import Images, Query, Rows, no_vectors
from odeco.online.search import SAME, clear_components
from odeco.online.solver import Estimate, Reply, Solver
from odeco.power.tracking import Tracker
from odeco.tensors.components import Components

#: The fewest components that a search may return: they come and go.
_FEWEST = 1


@dataclass(frozen=True, kw_only=True)
class Drift(Core):
    """The default for a stream that drifts.

    Attributes
    ----------
    batch_size : int
        The number of rows of a batch.
    forgetting : float
        What the weight of the past is multiplied by before each batch.
    """

    batch_size: int
    forgetting: float

    reason = "the last rows are kept, to find components that appear"

    @classmethod
    def missing_error(cls, given: Mapping[str, Any], name: str) -> ValueError:
        """Return the error for arguments that are missing, if the user asked for the method
        `name`.
        """
        if "batch_size" in given:
            return ValueError(
                f"`batch_size` is not used by method={name!r}: everything depends on the count of "
                f"rows. Got {given['batch_size']!r}. Leave it out."
            )
        return ValueError(
            "`batch_size` must be given for `forgetting` below 1, whose unit it is. Got None."
        )

    @property
    def takes_cumulants(self) -> bool:
        """Whether the method decomposes cumulants: what is forgotten has no mean of its own."""
        return False

    def start(self) -> Solver:
        """Return the state before the first query."""
        return Follow(self)


@dataclass(frozen=True, eq=False)
class Follow(Solver):
    """The last rows, and the images of all that fade.

    Attributes
    ----------
    n_rows, searched_at : int
        Rows taken in so far, and their number when the last ones were searched.
    block : RowBlock or None
        The last rows.
    tracker : Tracker or None
        The components, if there are any.
    last_evidence : RankEvidence or None
        The evidence of the last search, if the number of components was not given.
    """

    plan: Drift = given_field()

    n_rows: int = array_field(kind="i", low=0, default=0)
    searched_at: int = array_field(kind="i", low=0, default=0)
    block: RowBlock | None = part_field(RowBlock, default=None)
    tracker: Tracker | None = part_field(Tracker, default=None)
    last_evidence: RankEvidence | None = part_field(RankEvidence, default=None)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        require(self.searched_at <= self.n_rows, "rows that were searched must have been taken in")
        check_block(self.block, self.n_rows, self.plan)
        if self.tracker is not None:
            found = self.tracker.components
            d = self.plan.where.dimension
            require(
                (found.dimension, found.order) == (d, self.plan.order),
                "its components must be of its moment",
            )
            most = d if self.plan.k is None else self.plan.k
            require(found.n_components <= most, "it must have no more components than it may find")
            require(self.block is not None, "components must come from a block")

    @property
    def status(self) -> str:
        """What the next reply is for."""
        if self.tracker is None:
            return "collecting rows for a search"
        return "refining"

    @cached_property
    def query(self) -> Query:
        """Rows, which are kept for a while."""
        return Rows(no_vectors(self.plan.where.dimension), self.plan.order, (self.plan.batch_size,))

    def advance(self, reply: Reply) -> Follow:
        """Return the state after a batch."""
        after = self._with(reply)
        if after.block is None or after.n_rows - after.searched_at < after._window:
            return after
        return after._searched(after.block)

    def estimate(self, reply: Reply | None) -> Estimate:
        """Return the components that are followed, or that a search of the last rows finds."""
        after = self if reply is None else self._with(reply)
        tracker = after.tracker
        block = after.block
        if tracker is None and block is not None:
            found = self.plan.found_in(block.rows, final=True, fewest=_FEWEST)
            after = replace(after, last_evidence=found.rank_evidence)
            if found.components.n_components:
                tracker = after._followed(found.components, block)
                if not found.complete:  # they may fit noise: their errors are unknown
                    tracker = replace(tracker, n_deviations=0.0)
        if tracker is None:
            return self.plan.nothing._replace(evidence=after.last_evidence)
        return Estimate.of(tracker)

    def progress(self, n_rows: int, n_in_batch: int) -> tuple[int, int | None]:
        """Return the number of rows that were used, and of those that the batch still takes."""
        return n_rows, self.plan.batch_size - n_in_batch if self.tracker is None else 0

    @property
    def _window(self) -> int:
        """The number of rows that are kept: those that the faded mean stands for, within memory."""
        plan = self.plan
        row_bytes = 8.0 * plan.where.dimension if self.block is None else self.block.row_bytes
        wanted = max(plan.first, int(plan.batch_size / (1 - plan.forgetting)))
        return min(wanted, plan.most_rows(row_bytes))

    def _with(self, reply: Reply) -> Follow:
        """Return the state with a batch taken in."""
        rows = reply.value
        tracker = self.tracker
        if tracker is not None:
            tracker = tracker.advance(self._images(tracker, rows), reply.n_rows)
        if self.block is not None:
            rows = join_rows([self.block.rows, rows])
        n_rows = int(rows.shape[0])
        last = RowBlock.of(row_slice(rows, max(0, n_rows - self._window), n_rows))
        return replace(self, block=last, tracker=tracker, n_rows=self.n_rows + reply.n_rows)

    def _searched(self, block: RowBlock) -> Follow:
        """Drop components that the last rows do not confirm, and add those that they show."""
        after = replace(self, searched_at=self.n_rows)
        try:
            found = self.plan.found_in(block.rows, final=False, fewest=_FEWEST)
        except (
            RankError
        ):  # these rows have fewer components, of which those that are known are kept
            return after
        kept = found.components.vectors[:, found.clear]
        if self.tracker is not None:
            known = self.tracker.components.vectors
            confirmed = known[:, clear_components(block.rows, known, self.plan.order)]
            new = np.max(np.abs(confirmed.T @ kept), axis=0, initial=0.0) < SAME
            if confirmed.shape[1] == known.shape[1] and not new.any():
                return after
            most = self.plan.where.dimension if self.plan.k is None else self.plan.k
            kept = np.hstack([confirmed, kept[:, new]])[:, :most]
        if not kept.shape[1]:
            return replace(after, tracker=None, last_evidence=found.rank_evidence)
        components = Components(np.ones(kept.shape[1]), kept, self.plan.order)
        return replace(after, tracker=self._followed(components, block))

    def _followed(self, components: Components, block: RowBlock) -> Tracker:
        """Return the tracker of components, whose images so far are those of the block, batch by
        batch.
        """
        tracker = Tracker.start(components, forgetting=self.plan.forgetting)
        for start in range(0, block.n_rows, self.plan.batch_size):
            piece = row_slice(block.rows, start, min(start + self.plan.batch_size, block.n_rows))
            tracker = tracker.advance(self._images(tracker, piece), int(piece.shape[0]))
        return tracker

    def _images(self, tracker: Tracker, rows: Any) -> FloatArray:
        """Return the images of the components of a tracker, averaged over rows."""
        return Images(tracker.probes, self.plan.order).mean_over(rows)


Drift.states = (Follow,)
