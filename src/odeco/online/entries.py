"""The whole moment: for few columns, and for private streams, where every query costs.

`MomentSolver` averages the distinct entries over all rows, and decomposes their mean whenever a result is wanted.
`EntriesSolver` asks once. `StreamSolver` is the base of all solvers of one pass, and `Doubling` of those that replace
their vectors whenever the number of rows has doubled.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import scipy  # it imports its submodules when they are used; importing optimize takes longer than importing odeco

from odeco._util.arguments import check_n_components
from odeco._util.schema import require, usable_array
from odeco._util.state import array_field, part_field
from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray
from odeco.cp.small import decompose_noisy, fit_independent
from odeco.errors import RankError
from odeco.power.solver import SolverState
from odeco.power.tracking import Tracker, dual_vectors, kept_apart
from odeco.tensors.components import Components, no_components
from odeco.tensors.dense import DenseTensor
from odeco.tensors.packed import PackedTensor

#: The distinct entries of a tensor of this dimension take 86 MB, and as an array half a gigabyte.
MOST_DIMENSION = 400

#: Rows between two replacements of the vectors are cut into this many segments.
N_SEGMENTS = 16

#: The fewest rows that are searched before the end of a stream, per column, per component and in all.
_ROWS_PER_COLUMN, _ROWS_PER_COMPONENT, _FEWEST_ROWS = 10, 50, 1000

#: A component is clear if rows that did not find it give it a weight of this many standard errors.
CLEAR = 3.0

#: Joint power steps on a moment that is known.
_N_STEPS = 10


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


class StreamSolver(SolverState):
    """A solver that reads rows once, without end, and states the number of rows that it wants next."""

    done: ClassVar[bool] = False  # more rows are always welcome
    n_queries: ClassVar[int | None] = None  # there is no end
    n_replies: ClassVar[int] = 0  # to count towards
    description: ClassVar[str] = "segments of rows"

    dimension: int
    n_rows: int

    @property
    @abstractmethod
    def components(self) -> Components:
        """The components, if there are any yet."""

    @property
    @abstractmethod
    def n_rows_wanted(self) -> int:
        """The number of rows of the next reply."""

    @property
    @abstractmethod
    def next_segments(self) -> list[int]:
        """The numbers of rows of all replies to the current query."""

    @abstractmethod
    def so_far(self, reply: Any, n_rows: int) -> Any:
        """Return the best estimate from all rows, given those since the last reply, which may be none."""

    @property
    def is_ready(self) -> bool:
        """Whether components are found."""
        return bool(self.components.n_components)


def check_n_rows(n_rows: int | None) -> int:
    """Return the number of rows of a reply; raise if it is not given."""
    if n_rows is None:
        raise TypeError("A solver for one pass must know the number of rows of a reply. Pass n_rows.")
    return n_rows


class Doubling(StreamSolver):
    """A solver that finds components, and replaces their vectors whenever the number of rows has doubled.

    Until they are found, `replaced_at` is the number of rows at which it looks for them.
    """

    order: int
    replaced_at: int
    tracking: Tracker | None

    @property
    def n_rows_wanted(self) -> int:
        """Rows until components are looked for, or of the segment that begins with the next row."""
        end = self.replaced_at if self.tracking is None else segment_end(self.n_rows, self.replaced_at)
        return end - self.n_rows

    @property
    def next_segments(self) -> list[int]:
        """The sizes of the segments that have the current query."""
        if self.tracking is None:
            return [self.n_rows_wanted]
        sizes, n_rows = list[int](), self.n_rows
        while n_rows < 2 * self.replaced_at:
            sizes.append(segment_end(n_rows, self.replaced_at) - n_rows)
            n_rows += sizes[-1]
        return sizes

    @property
    def components(self) -> Components:
        """The components at the last replacement; none before they are found."""
        return no_components(self.dimension, self.order) if self.tracking is None else self.tracking.components


class WholeMoment:
    """A solver that asks for every distinct entry of a moment of order 3."""

    status: ClassVar[str] = "the whole moment"
    order: ClassVar[int] = 3
    dimension: int

    @property
    def query(self) -> Literal["entries"]:
        """What is needed next."""
        return "entries"

    @property
    def probes(self) -> FloatArray:
        """A block without columns: the query has no vectors."""
        return np.empty((self.dimension, 0))


@dataclass(frozen=True, eq=False)
class MomentSolver(WholeMoment, Doubling):
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

    def advance(self, reply: FloatArray, n_rows: int | None = None) -> MomentSolver:
        """Return the state after the distinct entries of the moment, averaged over `n_rows` rows."""
        after = self._with(reply, check_n_rows(n_rows))
        if after.tracking is not None and after.n_rows < 2 * after.replaced_at:
            return after
        try:
            found = fit_independent(dense(after.mean, self.dimension), self.n_components, self.seed, decompose_noisy)
        except RankError:  # these rows have fewer components; a result says so, and later rows may have more
            return replace(after, tracking=None, replaced_at=2 * after.n_rows)
        return replace(after, tracking=after._tracked(found), replaced_at=after.n_rows)

    def so_far(self, reply: Any, n_rows: int) -> MomentSolver | Tracker:
        """Return the best estimate from all rows, given those since the last reply, which may be none."""
        after = self._with(reply, n_rows) if n_rows else self
        if after.mean is None:
            return after
        found = fit_independent(dense(after.mean, self.dimension), self.n_components, self.seed, decompose_noisy)
        tracked, rows = after._tracked(found), float(after.n_rows)
        # Each segment has the values of vectors that earlier rows found.
        return replace(tracked, weight=rows, squared_weight=rows, confirmed=tracked.confirmed_by_last_rows(CLEAR))

    def _with(self, reply: FloatArray, n_rows: int) -> MomentSolver:
        """Return the state with a reply taken in."""
        share = n_rows / (self.n_rows + n_rows)
        mean = reply if self.mean is None else self.mean + share * (reply - self.mean)
        tracking = self.tracking
        if tracking is not None:
            tracking = tracking.advance(PackedTensor(reply, self.dimension).image(tracking.probes), n_rows)
        return replace(self, mean=mean, tracking=tracking, n_rows=self.n_rows + n_rows)

    def _tracked(self, found: Components) -> Tracker:
        """Return the tracker with components of the mean so far."""
        found = _at_fixed_point(PackedTensor(self.mean, self.dimension), found.sorted_by_weight())
        if self.tracking is None:
            return Tracker.start(found, per_pass=True)
        before = self.tracking.components.vectors  # the spread of each component stays with it
        order = scipy.optimize.linear_sum_assignment(-np.abs(before.T @ found.vectors))[1]
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


@dataclass(frozen=True, eq=False)
class EntriesSolver(WholeMoment, SolverState):
    """A solver with one query, for every distinct entry of a moment of order 3, which it then decomposes.

    Attributes
    ----------
    dimension, n_components, seed
        What does not change.
    orthogonal : bool
        Whether components are taken to be orthogonal; otherwise linearly independent.
    found : Components or None
        The components, once the moment is known.
    """

    found_in_reply: ClassVar[bool] = True
    n_queries: ClassVar[int] = 1
    description: ClassVar[str] = "the whole moment"

    dimension: int = array_field(kind="i", low=1, high=MOST_DIMENSION)
    n_components: int = array_field(kind="i", low=1)
    seed: int = array_field(kind="i", low=0)
    orthogonal: bool = array_field(kind="b")
    found: Components | None = part_field(Components, default=None)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        k, d, found = self.n_components, self.dimension, self.found
        require(k <= d, "there must be at most d components")
        fits = found is None or (found.n_components, found.dimension, found.order) == (k, d, 3)
        require(fits, "its components must be those that it was started for")

    @classmethod
    def start(cls, dimension: int, n_components: int, *, seed: int, orthogonal: bool = False) -> EntriesSolver:
        """Return the state before the first query."""
        check_columns(dimension)
        return cls(dimension, check_n_components(n_components, dimension), seed, orthogonal)

    @property
    def components(self) -> Components:
        """The components, once the moment is known; none before."""
        return no_components(self.dimension, 3) if self.found is None else self.found

    @property
    def done(self) -> bool:
        """Whether the moment is decomposed."""
        return self.found is not None

    @property
    def n_replies(self) -> int:
        """The number of replies so far."""
        return int(self.done)

    def advance(self, reply: FloatArray, n_rows: int | None = None) -> EntriesSolver:  # noqa: ARG002 - one reply
        """Decompose the moment, given its distinct entries T[i, j, k], i ≥ j ≥ k, in the order of i, then j, then k."""
        moment, k = dense(reply, self.dimension), self.n_components
        if self.orthogonal:
            found = decompose_noisy(moment, k, np.random.default_rng(self.seed))
        else:
            found = fit_independent(moment, k, self.seed, decompose_noisy)
        return replace(self, found=found.sorted_by_weight())


def check_columns(dimension: int) -> None:
    """Raise if there are too many columns for all entries."""
    if dimension > MOST_DIMENSION:
        raise ValueError(
            f"method='entries' keeps d³/6 numbers, so rows must have at most {MOST_DIMENSION} columns. "
            f"Got {dimension:,}. Take method='core'."
        )


def dense(packed: FloatArray | None, dimension: int) -> DenseTensor:
    """Return the moment whose distinct entries T[i, j, k], i ≥ j ≥ k, are given."""
    return DenseTensor(PackedTensor(packed, dimension).to_dense())
