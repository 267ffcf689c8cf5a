"""The default: some rows are kept and searched (`odeco.online.search`), and all others refine what
is found.

In a stream the first rows are kept as a block and searched, again whenever their number has
doubled, until all components are clear or the memory allowed is full. Every later row is read once.
It adds (xᵀw)ᵖ⁻¹ x to the image of each component, where the w are dual to the current vectors; the
vectors are replaced whenever the number of rows has doubled, and images of earlier vectors stay in
the mean. The block's own rows are added at the end, at the last vectors. Rows between two
replacements are cut into segments, whose spread gives the standard errors.

In passes, rows that are evenly spaced over the first pass are searched, and the others refine.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odeco._util.state import array_field, given_field, part_field, require
from odeco.cp.rank import SURE, RankEvidence
from odeco.errors import RankError, StreamEndedError
from odeco.io.rows import join_rows, row_slice
from odeco.online.block import RowBlock, RowLimit, block_share, most_block_rows
from odeco.online.methods.doubling import first_search, segments
from odeco.online.methods.open import DEFAULT_MEMORY, OpenPlan
from odeco.online.methods.refine import N_SEGMENTS, RefineInPasses, check_tracker
from odeco.online.queries import Images, Query, Rows, no_vectors
from odeco.online.search import CLEAR, Found, count_components, search_rows
from odeco.online.solver import Estimate, Reply, Solver
from odeco.power.tracking import Tracker

#: Rows after which the size of a row is known.
_LOOK = 1000


@dataclass(frozen=True, kw_only=True)
class Core(OpenPlan):
    """A search in a block of rows.

    Attributes
    ----------
    memory : float
        The memory that rows that are kept, and matrices made of them, may take, in megabytes.
    """

    memory: float = DEFAULT_MEMORY

    name = "core"
    counts = True
    default_passes = 3

    @property
    def reason(self) -> str:
        """Why this method is taken, if none before it had an objection."""
        if self.k is not None:
            return super().reason
        return "rows are held out to select the number of components"

    def start(self) -> Solver:
        """Return the state before the first query."""
        if self.reads_again:
            return Sample(self)
        return Collect(self, searched_at=min(_LOOK, self.most_rows(8 * self.where.dimension)))

    @property
    def n_bytes(self) -> int:
        """The memory allowed, in bytes."""
        return max(1, int(self.memory * 1e6))

    @property
    def first(self) -> int:
        """The number of rows of the first search, if memory allows it."""
        return first_search(self.where.dimension, self.k)

    def most_rows(self, row_bytes: float, factor: int = 1) -> int:
        """Return how many rows of a size are searched at most, with `factor` times the memory."""
        return most_block_rows(self.where.dimension, row_bytes, factor * self.n_bytes)

    def found_in(self, rows: Any, *, final: bool, fewest: int | None = None) -> Found:
        """Search rows."""
        if self.k is None:
            return count_components(rows, self.order, self.where.seed)
        n_rows = int(rows.shape[0])
        if n_rows < 2 * self.k:
            raise StreamEndedError(
                f"A search for {self.k} components needs at least {2 * self.k} rows. Got "
                f"{n_rows}. Pass more rows."
            )
        return search_rows(rows, self.k, self.order, self.where.seed, fewest=fewest, final=final)

    def found_or_nothing(
        self, rows: Any, *, final: bool = False, evidence: RankEvidence | None = None
    ) -> Found:
        """Search rows, which may have fewer components; others may have more."""
        try:
            return self.found_in(rows, final=final)
        except RankError:
            return Found(self.nothing.components, np.zeros(1, dtype=np.bool_), evidence)

    def warn_of_memory(self, block: RowBlock) -> None:
        """Warn if a search that leaves components in doubt could have had more rows with more
        memory.
        """
        if self.most_rows(block.row_bytes, 4) > self.most_rows(block.row_bytes):
            warnings.warn(
                "A search must have memory for rows enough to show all components. "
                f"memory={self.memory:g} megabytes hold {block.n_rows:,} rows for it, which leave "
                f"some in doubt. Pass memory={4 * self.memory:g} or more.",
                RuntimeWarning,
                stacklevel=2,
            )


# In passes ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Sample(Solver):
    """The first of several passes: rows that are evenly spaced over it are kept and searched."""

    plan: Core = given_field()

    in_passes = True

    @property
    def status(self) -> str:
        """What the next reply is for."""
        return f"collecting rows for a search, pass 1 of {self.plan.n_passes}"

    @cached_property
    def query(self) -> Query:
        """Rows, within the memory allowed."""
        limit = RowLimit(self.plan.most_rows(1), block_share(self.plan.n_bytes))
        return Rows(no_vectors(self.plan.where.dimension), self.plan.order, limit=limit)

    def advance(self, reply: Reply) -> RefineInPasses:
        """Search the rows."""
        found = self._found(reply.value, reply.n_rows)
        return RefineInPasses.begin(self.plan, found.components, found.clear, found.rank_evidence)

    def progress(self, n_rows: int, n_in_batch: int) -> tuple[int, int | None]:  # noqa: ARG002 - none is known
        """Return the number of rows that were used; the length of a pass is not known yet."""
        return n_rows, None

    def _found(self, rows: Any, n_seen: int) -> Found:
        """Search ever larger parts of the sample, drawn at random, until all components are clear.

        Later passes refine what a part shows as well as what the whole sample does, and searching m
        rows takes of the order of m² d operations, so parts of at most half take a third of the
        time of the whole. That is searched if they leave components in doubt, or if their number is
        selected.
        """
        plan = self.plan
        n_rows = int(rows.shape[0])
        first = plan.first
        sizes = [min(plan.most_rows(8 * plan.where.dimension), n_rows) // 2]
        if plan.k is None or 2 * first > n_rows:
            sizes = []
        while sizes and sizes[0] >= 2 * first:
            sizes.insert(0, sizes[0] // 2)
        places = np.random.default_rng(plan.where.seed).permutation(n_rows)
        for size in sizes:
            kept = np.zeros(n_rows, dtype=np.bool_)
            kept[places[:size]] = True
            found = plan.found_or_nothing(rows[kept])
            if found.complete:
                return found.refined(rows)
        found = plan.found_in(rows, final=True)
        if n_rows < n_seen and not found.complete:
            plan.warn_of_memory(RowBlock.of(rows))
        return found


# In one pass --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Collect(Solver):
    """The first rows of a stream, before components are found.

    Attributes
    ----------
    searched_at : int
        The number of rows at which they are searched next.
    n_rows : int
        Rows taken in so far.
    block : RowBlock or None
        The rows that are kept.
    last_evidence : RankEvidence or None
        The evidence of the last search, if the number of components was not given.
    """

    plan: Core = given_field()

    stage = "collecting rows for a search"

    searched_at: int = array_field(kind="i", low=1)
    n_rows: int = array_field(kind="i", low=0, default=0)
    block: RowBlock | None = part_field(RowBlock, default=None)
    last_evidence: RankEvidence | None = part_field(RankEvidence, default=None)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        require(self.searched_at > self.n_rows, "it must want rows")
        check_block(self.block, self.n_rows, self.plan)

    @cached_property
    def query(self) -> Query:
        """Rows, up to the next search."""
        return Rows(
            no_vectors(self.plan.where.dimension),
            self.plan.order,
            (self.searched_at - self.n_rows,),
        )

    def advance(self, reply: Reply) -> Solver:
        """Search the rows if there are enough; begin to refine, or keep more."""
        after = self._with(reply)
        block = after.kept
        most = self.plan.most_rows(block.row_bytes)
        first = min(self.plan.first, most)
        if block.n_rows < first:
            return replace(after, searched_at=after.n_rows - block.n_rows + first)
        full = 2 * block.n_rows > most
        # A result says so if these rows have fewer components; later ones may have more.
        found = self.plan.found_or_nothing(block.rows, final=full, evidence=self.last_evidence)
        evidence = found.rank_evidence
        n_found = found.components.n_components
        if n_found and found.complete and (evidence is None or evidence.confidence >= SURE):
            return Track.begin(after, found)
        if not full:
            return replace(after, last_evidence=evidence, searched_at=after.n_rows + block.n_rows)
        self.plan.warn_of_memory(block)
        if n_found:
            return Track.begin(after, found)
        # Drop these rows, and search others.
        return replace(after, block=None, last_evidence=evidence, searched_at=after.n_rows + first)

    def estimate(self, reply: Reply | None) -> Estimate:
        """Return what a search of all rows that are kept finds."""
        after = self if reply is None else self._with(reply)
        if after.block is None:
            return self.plan.nothing._replace(evidence=after.last_evidence)
        found = self.plan.found_in(after.block.rows, final=True)
        if not found.components.n_components:
            return Estimate(found.components, evidence=found.rank_evidence)
        return Track.begin(after, found).estimate(None)

    def progress(self, n_rows: int, n_in_batch: int) -> tuple[int, int | None]:
        """Return the number of rows that were used, and of those before the next search."""
        return n_rows, self.searched_at - self.n_rows - n_in_batch

    @property
    def kept(self) -> RowBlock:
        """The rows that are kept, of which there are some."""
        if self.block is None:
            raise RuntimeError("A search needs rows.")
        return self.block

    def _with(self, reply: Reply) -> Collect:
        """Return the state with a reply taken in."""
        rows = reply.value
        if self.block is not None:
            rows = join_rows([self.block.rows, rows])
        return replace(self, block=RowBlock.of(rows), n_rows=self.n_rows + reply.n_rows)


def check_block(block: RowBlock | None, n_rows: int, plan: Core) -> None:
    """Raise `ValueError` if a file has a block that is not of the first `n_rows` rows of a run."""
    require(
        block is None or block.dimension == plan.where.dimension, "its block must have d columns"
    )
    require(
        block is None or 0 < block.n_rows <= n_rows,
        "its block must be of rows that it has taken in",
    )


@dataclass(frozen=True, eq=False)
class Track(Solver):
    """The images of the components over later rows of a stream.

    Attributes
    ----------
    tracker : Tracker
        The components, and the mean of their images.
    block : RowBlock
        The rows that were searched.
    n_rows, replaced_at : int
        Rows taken in so far, and their number when the vectors were replaced last.
    """

    plan: Core = given_field()

    tracker: Tracker = part_field(Tracker)
    block: RowBlock = part_field(RowBlock)
    n_rows: int = array_field(kind="i", low=1)
    replaced_at: int = array_field(kind="i", low=1)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        check_tracker(self.tracker, self.plan)
        check_block(self.block, self.n_rows, self.plan)
        held_out = self.tracker.per_pass and self.tracker.confirmed is not None
        require(held_out, "its components must be those of a search")
        require(
            self.replaced_at <= self.n_rows < 2 * self.replaced_at,
            "its vectors must be replaced in time",
        )

    @classmethod
    def begin(cls, collected: Collect, found: Found) -> Track:
        """Begin with what a search found."""
        tracker = Tracker.start(found.components, per_pass=True)
        tracker = replace(tracker, rank_evidence=found.rank_evidence, confirmed=found.clear)
        return cls(collected.plan, tracker, collected.kept, collected.n_rows, collected.n_rows)

    @cached_property
    def query(self) -> Query:
        """Images of the components, over a segment."""
        return Images(self.tracker.probes, self.plan.order, segments(self.n_rows, self.replaced_at))

    def advance(self, reply: Reply) -> Track:
        """Return the state after the images over a segment."""
        after = self._with(reply)
        if after.n_rows < 2 * after.replaced_at:
            return after
        moved = after.tracker.moved_to(after._settled().components.vectors)
        return replace(
            after, tracker=replace(moved, confirmed=after._confirmed()), replaced_at=after.n_rows
        )

    def estimate(self, reply: Reply | None) -> Estimate:
        """Return the components with all rows added."""
        after = self if reply is None else self._with(reply)
        return Estimate.of(replace(after._settled(), confirmed=after._confirmed()))

    def _with(self, reply: Reply) -> Track:
        """Return the state with a reply taken in."""
        tracker = self.tracker.advance(reply.value, reply.n_rows)
        return replace(self, tracker=tracker, n_rows=self.n_rows + reply.n_rows)

    def _confirmed(self) -> NDArray[np.bool_]:
        """Return which components rows confirm that did not find them: those held out from a
        search, or later ones.
        """
        later = self.tracker.confirmed_by_last_rows(CLEAR)
        if self.tracker.confirmed is None:
            return later
        return self.tracker.confirmed | later

    def _settled(self) -> Tracker:
        """Return the components with the block's own rows added, twice: at the current vectors, and
        at the result.
        """
        rows = self.block.rows
        m = self.block.n_rows
        n_segments = min(N_SEGMENTS, m)
        edges = [m * place // n_segments for place in range(n_segments + 1)]
        tracker = self.tracker
        for _ in range(2):
            settled = tracker
            query = Images(tracker.probes, self.plan.order)
            for start, stop in pairwise(edges):
                images = query.mean_over(row_slice(rows, start, stop))
                settled = settled.advance(images, stop - start)
            settled = settled.end_pass()
            tracker = self.tracker.moved_to(settled.components.vectors)
        return settled


Core.states = (Collect, Track, Sample, RefineInPasses)
