"""A stream whose distribution drifts: components that move are followed, new ones found, vanished ones dropped.

Rows come in batches, and the weight of the past fades by a factor with each of them. Components that move slowly are
followed by the images of each batch. A component that appears has no image yet, so the last rows are kept, as many as
the mean stands for; whenever all of them are new, those that were found are asked whether they are still there, and the
rows are searched again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from odeco._util.state import array_field, require
from odeco._util.types import FloatArray
from odeco.errors import RankError
from odeco.io.rows import join_rows, row_slice
from odeco.online.block import RowBlock, most_block_rows
from odeco.online.entries import first_search
from odeco.online.one_pass import OnePassSolver
from odeco.online.search import SAME, clear_components, mean_over
from odeco.power.tracking import Tracker
from odeco.tensors.components import Components


@dataclass(frozen=True, eq=False)
class DriftSolver(OnePassSolver):
    """The state of a search among the last rows, and of the images of all that fade. `advance` returns the next state.

    Attributes
    ----------
    forgetting : float
        What the weight of the past is multiplied by before each batch.
    batch_rows : int
        The number of rows of a batch.
    searched_at : int
        The number of rows when the last ones were searched.
    """

    forgetting: float = array_field(low=0, high=1, default=1.0)
    batch_rows: int = array_field(kind="i", low=1, default=1)
    searched_at: int = array_field(kind="i", low=0, default=0)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        tracking, block, k = self.tracking, self.block, self.n_components
        require(k is None or k <= self.dimension, "there must be at most d components")
        require(block is None or block.dimension == self.dimension, "its block must have d columns")
        require(block is None or block.n_rows <= self.n_rows, "its block must be of rows that it has taken in")
        require(self.searched_at <= self.n_rows, "rows that were searched must have been taken in")
        require(not self.in_passes, "rows that drift are read once")
        if tracking is not None:
            found = tracking.components
            fits = (found.dimension, found.order) == (self.dimension, self.order)
            require(fits and (k is None or found.n_components <= k), "its components must be those of its moment")
            require(block is not None, "components must come from a block")

    @property
    def query(self) -> Literal["rows"]:
        """What is needed next: rows, which are kept for a while."""
        return "rows"

    @property
    def probes(self) -> FloatArray:
        """A block without columns: rows are asked for."""
        return np.empty((self.dimension, 0))

    @property
    def n_rows_wanted(self) -> int:
        """Rows of a batch."""
        return self.batch_rows

    @property
    def next_segments(self) -> list[int]:
        """The sizes of the batches that are asked for: one."""
        return [self.batch_rows]

    def advance(self, reply: Any, n_rows: int | None = None) -> DriftSolver:
        """Return the state after a batch."""
        after = self._with(reply, reply.shape[0] if n_rows is None else n_rows)
        block = after.block
        if block is None or after.n_rows - after.searched_at < after._window:
            return after
        return after._searched_again(block)

    def so_far(self, reply: Any, n_rows: int) -> Tracker | OnePassSolver:
        """Return the best estimate from all rows, given those since the last batch, which may be none."""
        after = self._with(reply, n_rows) if n_rows else self
        block = after.block
        if after.tracking is None and block is not None:
            found = after._search(block, final=True)
            after = replace(after, rank_evidence=found.rank_evidence)
            if found.components.n_components:
                after = after._follow(found.components, block)
            if after.tracking is not None and not found.complete:  # they may fit noise: nothing is said of errors
                after = replace(after, tracking=replace(after.tracking, n_deviations=0.0))
        return after if after.tracking is None else after.tracking

    @property
    def _fewest_components(self) -> int:
        """1: components come and go, so fewer may be there than are asked for."""
        return 1

    @property
    def _window(self) -> int:
        """The number of rows that are kept: those that the faded mean stands for, within memory."""
        row_bytes = 8.0 * self.dimension if self.block is None else self.block.row_bytes
        wanted = max(first_search(self.dimension, self.n_components), int(self.batch_rows / (1 - self.forgetting)))
        return min(wanted, most_block_rows(self.dimension, row_bytes, self.memory))

    def _with(self, reply: Any, n_rows: int) -> DriftSolver:
        rows = reply if self.block is None else join_rows([self.block.rows, reply])
        surplus = max(0, int(rows.shape[0]) - self._window)
        tracking = self.tracking
        if tracking is not None:
            tracking = tracking.advance(mean_over(reply, "image", tracking.probes, self.order), n_rows)
        block = RowBlock.of(row_slice(rows, surplus, int(rows.shape[0])))
        return replace(self, block=block, tracking=tracking, n_rows=self.n_rows + n_rows)

    def _searched_again(self, block: RowBlock) -> DriftSolver:
        """Drop components that the last rows do not bear out, and add those that they show."""
        after = replace(self, searched_at=self.n_rows)
        try:
            found = self._search(block)
        except RankError:  # these rows have fewer components, of which those that are known are kept
            return after
        fresh = found.components.vectors[:, found.clear]
        if self.tracking is None:
            kept = fresh
        else:
            known = self.tracking.components.vectors
            kept = known[:, clear_components(block.rows, known, self.order)]
            new = np.max(np.abs(kept.T @ fresh), axis=0, initial=0.0) < SAME
            most = self.dimension if self.n_components is None else self.n_components
            if kept.shape[1] == known.shape[1] and not new.any():
                return after
            kept = np.hstack([kept, fresh[:, new]])[:, :most]
        if not kept.shape[1]:
            return replace(after, tracking=None, rank_evidence=found.rank_evidence)
        return after._follow(Components(np.ones(kept.shape[1]), kept, self.order), block)

    def _follow(self, components: Components, block: RowBlock) -> DriftSolver:
        """Return the state that follows components, whose images so far are those of the block, batch by batch."""
        tracking = Tracker.start(components, forgetting=self.forgetting)
        rows, m = block.rows, block.n_rows
        for start in range(0, m, self.batch_rows):
            piece = row_slice(rows, start, min(start + self.batch_rows, m))
            images = mean_over(piece, "image", tracking.probes, self.order)
            tracking = tracking.advance(images, int(piece.shape[0]))
        return replace(self, tracking=tracking)
