"""One pass over rows, as accurate as they allow: solvers that need no batch size.

The first rows are kept as a block and searched (`odeco.online.search`), again whenever their number has doubled, until
all components are clear or the memory allowed is full. Every later row is read once. It adds (xᵀw)ᵖ⁻¹ x to the image of
each component, where the w are dual to the current vectors; the vectors are replaced whenever the number of rows has
doubled, and images of earlier vectors stay in the mean. The block's own rows are added at the end, at the last vectors.

For few columns it is simpler to add up the whole moment (`MomentSolver`).

Rows between two replacements are cut into segments, whose spread gives the standard errors. All that happens depends on
the count of rows only, so the result does not depend on how rows are cut.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np
import scipy  # it imports its submodules when they are used; importing optimize takes longer than importing odeco
from scipy import sparse

from odeco._util.arguments import MAX_ORDER, MINIMUM_ORDER, check_n_components
from odeco._util.schema import require, usable_array
from odeco._util.state import State, array_field, part_field
from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray, IndexArray
from odeco.cp.rank import SURE, RankEvidence
from odeco.errors import RankError, StreamEndedError
from odeco.io.rows import as_rows, is_sparse, join_rows, row_slice
from odeco.online.entries import MOST_DIMENSION, decompose_moment
from odeco.online.search import Found, count_components, mean_over, search_rows
from odeco.online.thinning import RowLimit
from odeco.power.tracking import Tracker, dual_vectors, kept_apart
from odeco.tensors.components import Components
from odeco.tensors.packed import PackedTensor

#: Rows between two replacements of the vectors are cut into this many segments.
N_SEGMENTS = 16

#: The largest number of rows of a block: beyond it the unfolding, of m² d operations, would take too long.
_MOST_ROWS = 2**15

#: The fewest rows that are searched before the end of a stream, per column, per component and in all.
_ROWS_PER_COLUMN, _ROWS_PER_COMPONENT, _FEWEST_ROWS = 10, 50, 1000

#: Joint power steps on a moment that is known.
_N_STEPS = 10

#: Rows after which the size of a row is known.
_LOOK = 1000


def block_share(memory: int) -> int:
    """Return the bytes that a block may take: a quarter of the memory, for a search needs as much again twice."""
    return memory // 4


def most_block_rows(dimension: int, row_bytes: float, memory: int) -> int:
    """Return how many rows of a size a block may have.

    A search forms a d x d matrix of numbers of 8 bytes, or, where that is too large, an m x m matrix of 4 bytes.
    """
    share = block_share(memory)
    most = min(_MOST_ROWS, int(share / row_bytes))
    if 8 * dimension**2 > share:
        most = min(most, math.isqrt(share // 4))
    return max(1, most)


def moment_bytes(dimension: int) -> int:
    """Return the memory that the distinct entries of a moment take: a tree of sums holds some eight of them."""
    return 64 * math.comb(dimension + 2, 3)


def first_search(dimension: int, n_components: int | None) -> int:
    """Return the number of rows of the first search, if memory allows it."""
    k = 1 if n_components is None else n_components
    return max(_ROWS_PER_COLUMN * dimension, _ROWS_PER_COMPONENT * k, _FEWEST_ROWS)


def segment_end(n_rows: int, replaced_at: int) -> int:
    """Return the count of rows at which the segment that holds the next row ends."""
    place = (n_rows - replaced_at) * N_SEGMENTS // replaced_at + 1
    return replaced_at + -(-place * replaced_at // N_SEGMENTS)


@dataclass(frozen=True, eq=False)
class RowBlock(State):
    """Rows that are kept, dense or CSR.

    Attributes
    ----------
    dense : array, m x d, or None
        Dense rows.
    data, indices, indptr : arrays or None
        CSR rows.
    """

    dimension: int = array_field(kind="i", low=1)
    dense: FloatArray | None = array_field("block_rows", "d", kind="rows", default=None)
    data: FloatArray | None = array_field("block_stored", kind="rows", default=None)
    indices: IndexArray | None = array_field("block_stored", kind="i", low=0, default=None)
    indptr: IndexArray | None = array_field(None, kind="i", low=0, default=None)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        parts = (self.data, self.indices, self.indptr)
        require((self.dense is None) == all(part is not None for part in parts), "rows must be dense or CSR")
        require(self.rows.shape[1] == self.dimension, "rows must be as wide as all")
        require(bool(np.all(np.isfinite(self.rows.data if is_sparse(self.rows) else self.rows))), "rows must be finite")

    @classmethod
    def of(cls, rows: Any) -> RowBlock:
        """Return rows as a block."""
        if is_sparse(rows):
            return cls(int(rows.shape[1]), None, rows.data, rows.indices, rows.indptr)
        return cls(int(rows.shape[1]), rows)

    @property
    def rows(self) -> Any:
        """The rows as an array or a CSR array."""
        if self.dense is not None:
            return self.dense
        stored: Any = (self.data, self.indices, self.indptr)
        return as_rows(sparse.csr_array(stored, shape=(self.n_rows, self.dimension)), self.dimension)

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.dense) if self.dense is not None else len(self.indptr if self.indptr is not None else ()) - 1

    @property
    def row_bytes(self) -> float:
        """The mean size of a row."""
        parts = (self.dense, self.data, self.indices, self.indptr)
        return sum(part.nbytes for part in parts if part is not None) / max(1, self.n_rows)


class _Doubling:
    """What the solvers of one pass have in common: replacements at counts of rows that double."""

    probes_converge: ClassVar[bool] = False
    found_in_reply: ClassVar[bool] = False  # the first image of a pass replaces what a sample found
    done: ClassVar[bool] = False  # more rows are always welcome

    dimension: int
    n_rows: int
    replaced_at: int

    @property
    def n_rows_wanted(self) -> int:
        """Rows of the segment that begins with the next row."""
        return segment_end(self.n_rows, self.replaced_at) - self.n_rows

    @property
    def next_segments(self) -> list[int]:
        """The sizes of the segments that have the current question."""
        sizes, n_rows = list[int](), self.n_rows
        while n_rows < 2 * self.replaced_at:
            sizes.append(segment_end(n_rows, self.replaced_at) - n_rows)
            n_rows += sizes[-1]
        return sizes

    @property
    def n_queries(self) -> None:
        """None: there is no end."""

    @property
    def n_replies(self) -> int:
        """0: there is no end to count towards."""
        return 0

    @property
    def description(self) -> str:
        """What its queries consist of."""
        return "segments of rows"

    def end_pass(self) -> Any:
        """Return the state itself: the end of a pass changes nothing."""
        return self

    def noise_ratio(self, n_rows: int) -> None:
        """Return None: these solvers are not used in private runs."""


def _no_components(dimension: int, order: int) -> Components:
    return Components(np.empty(0), np.empty((dimension, 0)), order)


@dataclass(frozen=True, eq=False)
class OnePassSolver(_Doubling, State):
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
    confirmed : bool
        Whether rows that did not find them confirm all components; otherwise the search may have fitted noise.
    rank_evidence : RankEvidence or None
        The evidence for the number of components, if that was not given.
    """

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
    confirmed: bool = array_field(kind="b", default=True)
    rank_evidence: RankEvidence | None = part_field(RankEvidence, default=None)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        k, tracking, block = self.n_components, self.tracking, self.block
        require(k is None or k <= self.dimension, "there must be at most d components")
        require(block is None or block.dimension == self.dimension, "its block must have d columns")
        require((block is None or block.n_rows <= self.n_rows), "its block must be of rows that it has taken in")
        require(self.n_rows_wanted > 0 or self.in_passes, "it must want rows")
        if tracking is not None:
            found = tracking.components
            fits = (found.dimension, found.order) == (self.dimension, self.order) and tracking.per_pass
            require(fits and k in (None, found.n_components), "its components must be those that it was started for")
            require(block is not None, "components must come from a block")
            require(self.replaced_at <= self.n_rows < 2 * self.replaced_at, "its vectors must be replaced in time")

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
        """The vectors to ask about: those dual to the components; none while rows are kept."""
        return np.empty((self.dimension, 0)) if self.tracking is None else self.tracking.probes

    @property
    def row_limit(self) -> RowLimit | None:
        """In passes, the most rows that the sample of a pass may have."""
        if not self.in_passes:
            return None
        most = most_block_rows(self.dimension, 1, self.memory)
        return RowLimit(most, block_share(self.memory))

    @property
    def n_rows_wanted(self) -> int:
        """Rows until the next search, or of the next segment."""
        if self.tracking is None:
            return self.replaced_at - self.n_rows
        return super().n_rows_wanted

    @property
    def next_segments(self) -> list[int]:
        """The sizes of the segments that have the current question."""
        return [self.n_rows_wanted] if self.tracking is None else super().next_segments

    @property
    def components(self) -> Components:
        """The current components, the last replaced; none before they are found."""
        return _no_components(self.dimension, self.order) if self.tracking is None else self.tracking.components

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
        if n_rows is None:
            raise TypeError("A solver for one pass must know the number of rows of a reply. Pass n_rows.")
        after = self._with(reply, n_rows)
        if after.tracking is None:
            return after._searched()
        if after.n_rows < 2 * after.replaced_at:
            return after
        moved = after.tracking.moved_to(after._settled().components.vectors)
        return replace(after, tracking=moved, replaced_at=after.n_rows)

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
        settled = after._settled()
        # Components that fit the noise of the block have up to some four standard errors there. Among twice as many
        # rows these are fewer than three; before, nothing is said of errors unless other rows confirm the components.
        known = after.confirmed or after.n_rows >= 2 * after.block.n_rows
        return settled if known else replace(settled, n_deviations=0.0)

    def standard_errors(self) -> None:
        """Return None: `so_far` has them."""

    def _with(self, reply: Any, n_rows: int) -> OnePassSolver:
        """Return the state with a reply taken in."""
        if self.tracking is None:
            rows = reply if self.block is None else join_rows([self.block.rows, reply])
            return replace(self, block=RowBlock.of(rows), n_rows=self.n_rows + n_rows)
        return replace(self, tracking=self.tracking.advance(reply, n_rows), n_rows=self.n_rows + n_rows)

    def _search(self, block: RowBlock, *, final: bool = False) -> Found:
        if self.n_components is None:
            return count_components(block.rows, self.order, self.seed)
        if block.n_rows < 2 * self.n_components:
            raise StreamEndedError(
                f"A search for {self.n_components} components needs at least {2 * self.n_components} rows. Got "
                f"{block.n_rows}. Pass more rows."
            )
        return search_rows(block.rows, self.n_components, self.order, self.seed, final=final)

    def _searched(self) -> OnePassSolver:
        """Search the block if it has rows enough; begin to refine, or keep more rows."""
        block = self.block
        if block is None:
            raise RuntimeError("A search needs rows.")
        if self.in_passes:
            return self._begin(self._search(block, final=True))
        most = most_block_rows(self.dimension, block.row_bytes, self.memory)
        first = min(first_search(self.dimension, self.n_components), most)
        if block.n_rows < first:
            return replace(self, replaced_at=self.n_rows - block.n_rows + first)
        full = 2 * block.n_rows > most
        try:
            found = self._search(block, final=full)
        except RankError:  # these rows have fewer components; a result says so, and later rows may have more
            found = Found(_no_components(self.dimension, self.order), np.zeros(1, dtype=np.bool_), self.rank_evidence)
        evidence = found.rank_evidence
        if found.components.n_components == 0 and full:  # forget these rows, and look at as many others
            return replace(self, block=None, rank_evidence=evidence, replaced_at=self.n_rows + first)
        if full or (found.complete and (evidence is None or evidence.confidence >= SURE)):
            return self._begin(found)
        return replace(self, rank_evidence=evidence, replaced_at=self.n_rows + block.n_rows)

    def _begin(self, found: Found) -> OnePassSolver:
        """Return the state that refines what was found."""
        evidence = found.rank_evidence
        if not found.components.n_components:
            return replace(self, rank_evidence=evidence)
        tracking = replace(Tracker.start(found.components, per_pass=True), rank_evidence=evidence)
        begun = replace(self, tracking=tracking, rank_evidence=evidence, replaced_at=self.n_rows)
        return replace(begun, confirmed=found.complete)

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


@dataclass(frozen=True, eq=False)
class MomentSolver(_Doubling, State):
    """The distinct entries of a moment of order 3, averaged over all rows; decomposed whenever a result is wanted.

    Attributes
    ----------
    dimension, n_components, seed
        What does not change.
    n_rows, replaced_at : int
        As for `OnePassSolver`.
    mean : array or None
        The mean of the distinct entries over all rows.
    tracking : Tracker or None
        The components at the last replacement, and the spread of their images over the segments since the first.
    """

    status: ClassVar[str] = "the whole moment"
    order: ClassVar[int] = 3
    rank_evidence: ClassVar[None] = None

    dimension: int = array_field(kind="i", low=1, high=MOST_DIMENSION)
    n_components: int = array_field(kind="i", low=1)
    seed: int = array_field(kind="i", low=0)
    n_rows: int = array_field(kind="i", low=0, default=0)
    replaced_at: int = array_field(kind="i", low=0, default=0)
    mean: FloatArray | None = array_field("distinct", rule=usable_array("distinct"), default=None)
    tracking: Tracker | None = part_field(Tracker, default=None)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        d, mean, tracking = self.dimension, self.mean, self.tracking
        require(self.n_components <= d, "there must be at most d components")
        require(mean is None or mean.size == math.comb(d + 2, 3), "its mean must have all distinct entries")
        require(self.n_rows_wanted > 0, "it must want rows")
        if tracking is not None:
            found = (tracking.components.n_components, tracking.components.dimension, tracking.components.order)
            require(found == (self.n_components, d, 3), "its components must be those that it was started for")
            require(self.replaced_at <= self.n_rows < 2 * self.replaced_at, "its vectors must be replaced in time")
            require(mean is not None and tracking.per_pass, "components must come from a mean")

    @classmethod
    def start(cls, dimension: int, n_components: int, *, seed: int) -> MomentSolver:
        """Return the state before the first row."""
        k = check_n_components(n_components, dimension)
        return cls(dimension, k, seed, replaced_at=first_search(dimension, k))

    @property
    def query(self) -> Literal["entries"]:
        """What is needed next."""
        return "entries"

    @property
    def probes(self) -> FloatArray:
        """A block without columns: the query has no vectors."""
        return np.empty((self.dimension, 0))

    @property
    def n_rows_wanted(self) -> int:
        """Rows until the first decomposition, or of the next segment."""
        return self.replaced_at - self.n_rows if self.tracking is None else super().n_rows_wanted

    @property
    def next_segments(self) -> list[int]:
        """The sizes of the segments that have the current question."""
        return [self.n_rows_wanted] if self.tracking is None else super().next_segments

    @property
    def components(self) -> Components:
        """The components at the last replacement; none before."""
        return _no_components(self.dimension, self.order) if self.tracking is None else self.tracking.components

    def advance(self, reply: FloatArray, n_rows: int | None = None) -> MomentSolver:
        """Return the state after the distinct entries of the moment, averaged over `n_rows` rows."""
        if n_rows is None:
            raise TypeError("A solver for one pass must know the number of rows of a reply. Pass n_rows.")
        after = self._with(reply, n_rows)
        if after.tracking is not None and after.n_rows < 2 * after.replaced_at:
            return after
        try:
            return replace(after, tracking=after._refitted(), replaced_at=after.n_rows)
        except RankError:  # these rows have fewer components; a result says so, and later rows may have more
            return replace(after, tracking=None, replaced_at=2 * after.n_rows)

    def so_far(self, reply: Any, n_rows: int) -> MomentSolver | Tracker:
        """Return the best estimate from all rows, given those since the last reply, which may be none."""
        after = self._with(reply, n_rows) if n_rows else self
        if after.mean is None:
            return after
        rows = float(after.n_rows)
        return replace(after._refitted(), weight=rows, squared_weight=rows)

    def standard_errors(self) -> None:
        """Return None: `so_far` has them."""

    def _with(self, reply: FloatArray, n_rows: int) -> MomentSolver:
        """Return the state with a reply taken in."""
        share = n_rows / (self.n_rows + n_rows)
        mean = reply if self.mean is None else self.mean + share * (reply - self.mean)
        tracking = self.tracking
        if tracking is not None:
            tracking = tracking.advance(PackedTensor(reply, self.dimension).image(tracking.probes), n_rows)
        return replace(self, mean=mean, tracking=tracking, n_rows=self.n_rows + n_rows)

    def _refitted(self) -> Tracker:
        """Return the tracker with components of the mean so far."""
        if self.mean is None:
            raise RuntimeError("There must be rows.")
        found = decompose_moment(self.mean, self.dimension, self.n_components, self.seed, orthogonal=False)
        found = _at_fixed_point(PackedTensor(self.mean, self.dimension), found)
        if self.tracking is None:
            return Tracker.start(found, per_pass=True)
        order = _matching(self.tracking.components.vectors, found.vectors)
        return replace(self.tracking, components=Components(found.weights[order], found.vectors[:, order]))


def _at_fixed_point(moment: PackedTensor, found: Components) -> Components:
    """Return components after joint power steps: those of rows that are read again and again end there too."""
    vectors = found.vectors
    for _ in range(_N_STEPS):
        images = moment.image(dual_vectors(vectors))
        sizes = np.linalg.norm(images, axis=0)
        if not sizes.all():
            return found
        vectors = kept_apart(vectors, images / sizes, sizes)
    with one_blas_thread():  # least squares for the weights
        gram = (vectors.T @ vectors) ** 3 + np.finfo(np.float64).eps * np.eye(vectors.shape[1])
        weights: FloatArray = np.linalg.solve(gram, np.sum(vectors * moment.image(vectors), axis=0))
    return Components(weights, vectors)


def _matching(before: FloatArray, after: FloatArray) -> IndexArray:
    """Return the order of new vectors in which they match those before: the spread of each stays with it."""
    order: IndexArray = scipy.optimize.linear_sum_assignment(-np.abs(before.T @ after))[1]
    return order
