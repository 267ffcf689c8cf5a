"""One pass over rows, as accurate as they allow, without a batch size.

The first rows are kept as a block and searched (`odeco.online.search`), again whenever their number has doubled, until
all components are clear or the memory allowed is full. Every later row is read once. It adds (xᵀw)ᵖ⁻¹ x to the image of
each component, where the w are dual to the current vectors; the vectors are replaced whenever the number of rows has
doubled, and images of earlier vectors stay in the mean. The block's own rows are added at the end, at the last vectors.

A dense block that is full before all components are clear is quantized (`odeco.online.block`), so that it can go on.
For few columns it is simpler to add up the whole moment (`odeco.online.entries`).

Rows between two replacements are cut into segments, whose spread gives the standard errors. All that happens depends on
the count of rows only, so the result does not depend on how rows are cut.

`DriftSolver` is for a stream whose distribution drifts: components that move are followed, new ones found, vanished
ones dropped. Rows come in batches, and the weight of the past fades by a factor with each of them. Components that move
slowly are followed by the images of each batch. A component that appears has no image yet, so the last rows are kept,
the number of rows that the mean stands for. Whenever all of them are new, the components are tested against them, and
the rows are searched again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from odeco._util.arguments import MAX_ORDER, MINIMUM_ORDER, check_n_components
from odeco._util.state import array_field, part_field, require
from odeco._util.types import FloatArray, IndexArray
from odeco.cp.rank import SURE, RankEvidence
from odeco.errors import RankError, StreamEndedError
from odeco.io.rows import is_sparse, join_rows, row_slice
from odeco.online.batches import CLEAR, N_SEGMENTS, Doubling, check_n_rows, first_search
from odeco.online.block import (
    QuantizedRows,
    RowBlock,
    RowLimit,
    block_share,
    most_block_rows,
    most_quantized_rows,
    row_chunks,
)
from odeco.online.search import SAME, Found, clear_components, count_components, mean_over, search_rows
from odeco.power.tracking import Tracker
from odeco.tensors.components import Components, no_components

#: Rows that are taken in at a time while they are quantized.
_REPLY_ROWS = 4096

#: Rows after which the size of a row is known.
_LOOK = 1000


@dataclass(frozen=True, eq=False)
class OnePassSolver(Doubling):
    """The state of a search in a block of rows, and of the images of later rows. `advance` returns the next state.

    Attributes
    ----------
    dimension, order, seed
        What does not change.
    n_components : int or None
        The number of components; None if it is selected automatically.
    memory : int
        The memory allowed, in bytes.
    in_passes : bool
        Whether the block is the sample of a whole pass, and later passes refine what a single search finds.
    n_rows : int
        Rows taken in so far.
    replaced_at : int
        Their number when the vectors were replaced last; before components are found, the number at which the block is
        searched next.
    block : RowBlock or None
        The first rows.
    tracking : Tracker or None
        The components and the mean of their images over later rows, once they are found.
    rank_evidence : RankEvidence or None
        The evidence for the number of components, if that was not given.
    weighted : bool
        Whether rows are multiplied by roots of weights, so that their sizes differ.
    """

    #: The fewest components that a search may return; None for all of them.
    fewest: ClassVar[int | None] = None

    dimension: int = array_field(kind="i", low=1)
    order: int = array_field(kind="i", low=MINIMUM_ORDER, high=MAX_ORDER)
    seed: int = array_field(kind="i", low=0)
    memory: int = array_field(kind="i", low=1)
    in_passes: bool = array_field(kind="b")
    n_components: int | None = array_field(kind="i", low=1, default=None)
    n_rows: int = array_field(kind="i", low=0, default=0)
    replaced_at: int = array_field(kind="i", low=0, default=0)
    block: RowBlock | None = part_field(RowBlock, default=None)
    tracking: Tracker | None = part_field(Tracker, default=None)
    rank_evidence: RankEvidence | None = part_field(RankEvidence, default=None)
    weighted: bool = array_field(kind="b", default=False)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        self._check_block()
        require(self.n_rows_wanted > 0 or self.in_passes, "it must want rows")
        if self.tracking is not None:
            same = self.n_components in (None, self.tracking.components.n_components) and self.tracking.per_pass
            require(same, "its components must be those that it was started for")
            require(self.replaced_at <= self.n_rows < 2 * self.replaced_at, "its vectors must be replaced in time")

    def _check_block(self) -> None:
        """Raise `ValueError` if its block and its components are not those of its rows."""
        k, block = self.n_components, self.block
        require(k is None or k <= self.dimension, "there must be at most d components")
        require(block is None or block.dimension == self.dimension, "its block must have d columns")
        require(block is None or block.n_rows <= self.n_rows, "its block must be of rows that it has taken in")
        if self.tracking is not None:
            found = self.tracking.components
            fits = (found.dimension, found.order) == (self.dimension, self.order)
            require(fits, "its components must be those of its moment")
            require(block is not None, "components must come from a block")

    @classmethod
    def start(
        cls, dimension: int, n_components: int | None, *, order: int, seed: int, memory: int, in_passes: bool
    ) -> OnePassSolver:
        """Return the state before the first row."""
        if n_components is not None:
            check_n_components(n_components, dimension)
        first = min(_LOOK, most_block_rows(dimension, 8 * dimension, memory))
        return cls(dimension, order, seed, memory, in_passes, n_components, replaced_at=first)

    @property
    def done(self) -> bool:  # type: ignore[override]
        """Whether components are found, and the passes that follow refine them."""
        return self.in_passes and self.tracking is not None

    @property
    def query(self) -> Literal["rows", "image"]:
        """What is needed next: rows for the block, or images of `probes`."""
        return "rows" if self.tracking is None else "image"

    @property
    def probes(self) -> FloatArray:
        """The vectors of the next query: those dual to the components; none while rows are kept."""
        return np.empty((self.dimension, 0)) if self.tracking is None or self.query == "rows" else self.tracking.probes

    @property
    def row_limit(self) -> RowLimit | None:
        """In passes, the most rows that the sample of a pass may have."""
        if not self.in_passes:
            return None
        most = most_block_rows(self.dimension, 1, self.memory)
        return RowLimit(most, block_share(self.memory), self._most_quantized_rows)

    @property
    def n_rows_wanted(self) -> int:
        """Rows until the next search, or of the next segment."""
        wanted, block = super().n_rows_wanted, self.block
        quantizing = self.tracking is None and block is not None and block.quantized
        return min(wanted, _REPLY_ROWS) if quantizing else wanted

    @property
    def n_queries(self) -> int | None:  # type: ignore[override]
        """1 in passes, for a single search; None if there is no end."""
        return 1 if self.in_passes else None

    @property
    def status(self) -> str:
        """What the next reply is for."""
        return "collecting rows for a search" if self.tracking is None else "refining"

    def advance(self, reply: Any, n_rows: int | None = None) -> OnePassSolver:
        """Return the state after the rows of a search, or after images averaged over `n_rows` rows."""
        after = self._with(reply, check_n_rows(n_rows))
        if after.tracking is None:
            return after._searched() if after.n_rows >= after.replaced_at or after.in_passes else after
        if after.n_rows < 2 * after.replaced_at:
            return after
        moved = after.tracking.moved_to(after._settled().components.vectors)
        return replace(after, tracking=replace(moved, confirmed=after.confirmed), replaced_at=after.n_rows)

    def so_far(self, reply: Any, n_rows: int) -> Tracker | OnePassSolver:
        """Return the best estimate from all rows, given those since the last reply, which may be none."""
        after = self._with(reply, n_rows) if n_rows else self
        if after.tracking is None and after.block is not None:
            found = after._search(after.block, final=True)
            if not found.components.n_components:
                return replace(after, rank_evidence=found.rank_evidence)
            after = after._begin(found)
        if after.tracking is None or after.block is None:
            return after
        return replace(after._settled(), confirmed=after.confirmed)

    @property
    def confirmed(self) -> NDArray[np.bool_] | None:  # type: ignore[override]
        """Which components rows that did not find them confirm: those held out from the search, or later ones."""
        if self.tracking is None or self.tracking.confirmed is None:
            return None
        return self.tracking.confirmed | self.tracking.confirmed_by_last_rows(CLEAR)

    def _with(self, reply: Any, n_rows: int) -> OnePassSolver:
        """Return the state with a reply taken in."""
        if self.tracking is None:
            block = RowBlock.of(reply) if self.block is None else self.block.grown(reply)
            return replace(self, block=block, n_rows=self.n_rows + n_rows)
        return replace(self, tracking=self.tracking.advance(reply, n_rows), n_rows=self.n_rows + n_rows)

    def _search(self, block: RowBlock, *, final: bool = False) -> Found:
        if self.n_components is None:
            return count_components(block.rows, self.order, self.seed)
        if block.n_rows < 2 * self.n_components:
            raise StreamEndedError(
                f"A search for {self.n_components} components needs at least {2 * self.n_components} rows. Got "
                f"{block.n_rows}. Pass more rows."
            )
        return search_rows(
            block.rows,
            self.n_components,
            self.order,
            self.seed,
            fewest=self.fewest,
            final=final,
            weighted=self.weighted,
        )

    def _searched(self) -> OnePassSolver:
        """Search the block if it has rows enough; begin to refine, or keep more rows."""
        block = self.block
        if block is None:
            raise RuntimeError("A search needs rows.")
        if self.in_passes:
            return self._begin(self._search_sample(block))
        most = most_block_rows(self.dimension, block.row_bytes, self.memory)
        first = min(first_search(self.dimension, self.n_components), most)
        if block.n_rows < first:
            return replace(self, replaced_at=self.n_rows - block.n_rows + first)
        more = 0 if is_sparse(block.rows) else self._most_quantized_rows
        full = block.n_rows >= more if block.quantized else 2 * block.n_rows > most
        try:
            found = self._search(block, final=full and block.n_rows >= more)
        except RankError:  # these rows have fewer components; a result says so, and later rows may have more
            found = self._nothing()
        evidence = found.rank_evidence
        if found.complete and (evidence is None or evidence.confidence >= SURE):
            return self._begin(found)
        if not full and not block.quantized:
            return replace(self, rank_evidence=evidence, replaced_at=self.n_rows + block.n_rows)
        if block.n_rows < more:
            quantized = RowBlock.of(QuantizedRows.of(block.rows))
            return replace(self, block=quantized, replaced_at=self.n_rows + min(block.n_rows, more - block.n_rows))
        if found.components.n_components == 0:  # drop these rows, and search others
            return replace(self, block=None, rank_evidence=evidence, replaced_at=self.n_rows + first)
        return self._begin(found)

    def _search_sample(self, block: RowBlock) -> Found:
        """Search the sample of a pass: ever larger parts of it, drawn at random, until all components are clear.

        Later passes refine what a part shows as well as what the whole sample does, and searching m rows takes of the
        order of m² d operations, so parts of at most half take a third of the time of the whole. That is searched if
        they leave components in doubt, or if their number is selected. If it is quantized and components are still in
        doubt, as many rows are searched as a block that is not may have: their unfolding shows components that a slice
        does not.
        """
        most = most_block_rows(self.dimension, 8 * self.dimension, self.memory)
        places = np.random.default_rng(self.seed).permutation(block.n_rows)
        n_rows, half = first_search(self.dimension, self.n_components), min(most, block.n_rows) // 2
        sizes = [] if self.n_components is None or 2 * n_rows > block.n_rows else [half]
        while sizes and sizes[0] >= 2 * n_rows:
            sizes.insert(0, sizes[0] // 2)
        for size in sizes:
            part = self._search_part(block, places[:size])
            if part.complete:
                return part.refined(block.rows)
        found = self._search(block, final=True)
        if found.complete or not block.quantized or most >= block.n_rows:
            return found
        unfolded = self._search_part(block, places[:most])
        return unfolded if unfolded.complete else found

    def _search_part(self, block: RowBlock, places: IndexArray) -> Found:
        """Search the rows at some places, in the order of the block, and as they were before they were quantized."""
        kept = np.zeros(block.n_rows, dtype=np.bool_)
        kept[places] = True
        rows = block.rows[kept]
        rows = np.concatenate([*row_chunks(rows)]) if isinstance(rows, QuantizedRows) else rows
        try:
            return self._search(RowBlock.of(rows))
        except RankError:  # these rows have fewer components, and others may have more
            return self._nothing()

    def _nothing(self) -> Found:
        return Found(no_components(self.dimension, self.order), np.zeros(1, dtype=np.bool_), self.rank_evidence)

    @property
    def _most_quantized_rows(self) -> int:
        """How many dense rows the block may have once they are quantized; 0 if that is not done."""
        searchable = self.n_components is not None and self.order == 3
        return most_quantized_rows(self.dimension, self.memory) if searchable else 0

    def _begin(self, found: Found) -> OnePassSolver:
        """Return the state that refines what was found."""
        evidence = found.rank_evidence
        if not found.components.n_components:
            return replace(self, rank_evidence=evidence)
        tracking = Tracker.start(found.components, per_pass=True)
        tracking = replace(tracking, rank_evidence=evidence, confirmed=found.clear)
        return replace(self, tracking=tracking, rank_evidence=evidence, replaced_at=self.n_rows)

    def _settled(self) -> Tracker:
        """Return the components with the block's own rows added, twice: at the current vectors, and at the result."""
        if self.tracking is None or self.block is None:
            raise RuntimeError("There must be components.")
        tracking, rows, m = self.tracking, self.block.rows, self.block.n_rows
        n_segments = min(N_SEGMENTS, m)
        edges = [m * place // n_segments for place in range(n_segments + 1)]
        for _ in range(2):
            settled, probes = tracking, tracking.probes
            for start, stop in pairwise(edges):
                images = mean_over(row_slice(rows, start, stop), "image", probes, self.order)
                settled = settled.advance(images, stop - start)
            settled = settled.end_pass()
            tracking = self.tracking.moved_to(settled.components.vectors)
        return settled


# A stream that drifts -------------------------------------------------------------------------------------------------


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

    fewest: ClassVar[int | None] = 1  # components come and go

    forgetting: float = array_field(low=0, high=1, default=1.0)
    batch_rows: int = array_field(kind="i", low=1, default=1)
    searched_at: int = array_field(kind="i", low=0, default=0)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        self._check_block()
        require(self.searched_at <= self.n_rows, "rows that were searched must have been taken in")
        require(not self.in_passes, "rows that drift are read once")
        if self.tracking is not None and self.n_components is not None:
            found = self.tracking.components
            require(found.n_components <= self.n_components, "it must have no more components than it may find")

    @property
    def query(self) -> Literal["rows"]:
        """What is needed next: rows, which are kept for a while."""
        return "rows"

    @property
    def n_rows_wanted(self) -> int:
        """Rows of a batch."""
        return self.batch_rows

    @property
    def next_segments(self) -> list[int]:
        """The size of the next batch."""
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
            if after.tracking is not None and not found.complete:  # they may fit noise: their errors are unknown
                after = replace(after, tracking=replace(after.tracking, n_deviations=0.0))
        return after if after.tracking is None else after.tracking

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
        """Drop components that the last rows do not confirm, and add those that they show."""
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
