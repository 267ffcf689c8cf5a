"""Solvers whose query is the whole moment, or its core in the span of its components.

`MomentSolver` averages the distinct entries over all rows, and decomposes their mean whenever a result is wanted: for
few columns. `EntriesSolver` makes one query for them: in passes, and for private streams, where every query costs.

`CoreSolver` needs fewer numbers, and memory linear in d. The image T(I, u, …, u) of *any* u lies in the span of the
components. So two or three queries for the images of a block of random vectors find that span; one more query gets
the small core T(Q, …, Q) for a basis Q of it, which is then decomposed. A few queries take the place of the k R queries
of Algorithm 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import scipy  # it imports its submodules when they are used; importing optimize takes longer than importing odeco

from odeco._util.arguments import MAX_ORDER, MINIMUM_ORDER, as_seed, check_count, check_n_components
from odeco._util.state import array_field, part_field, require, unit_vectors, usable_array
from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray, RngLike
from odeco.cp.small import core_width, decompose_core, decompose_noisy, fit_independent
from odeco.errors import RankError
from odeco.online.batches import CLEAR, Doubling, check_n_rows, first_search
from odeco.power.solver import SolverState
from odeco.power.steps import uniform_starts
from odeco.power.tracking import Tracker, dual_vectors, kept_apart
from odeco.tensors.components import Components, no_components
from odeco.tensors.dense import DenseTensor, PackedTensor, symmetrize

#: The distinct entries of a tensor of this dimension take 86 MB, and as an array half a gigabyte.
MOST_DIMENSION = 400

#: Joint power steps on a moment that is known.
_N_STEPS = 10

#: Rounds of images before the core; one more changes little (see benchmarks/streaming.py).
DEFAULT_ROUNDS = 3

#: Directions beyond the k strongest that the next round keeps, for components that the noise still hides.
SPARE_DIRECTIONS = 2


def moment_bytes(dimension: int) -> int:
    """Return the memory that the distinct entries of a moment take: a tree of sums holds some eight of them."""
    return 64 * math.comb(dimension + 2, 3)


class WholeMoment:
    """A solver whose query is every distinct entry of a moment of order 3."""

    query: ClassVar[Literal["entries"]] = "entries"
    status: ClassVar[str] = "the whole moment"
    order: ClassVar[int] = 3
    dimension: int

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
        moment = PackedTensor(self.mean, self.dimension)
        found = _at_fixed_point(moment, found.sorted_by_weight())
        if self.tracking is None:
            return Tracker.start(found, per_pass=True)
        before = self.tracking.components.vectors  # the spread of each component stays with it
        order = scipy.optimize.linear_sum_assignment(-np.abs(before.T @ found.vectors))[1]
        tracked = replace(self.tracking, components=Components(found.weights[order], found.vectors[:, order]))
        return tracked.compared_with(moment, self.n_rows)


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


# A range finder and a core --------------------------------------------------------------------------------------------


def mixtures(basis: FloatArray, n_components: int, seed: list[int]) -> FloatArray:
    """Return random unit vectors in the span of the strongest directions of a basis, for the next query.

    Not the basis itself: images are quadratic, and squaring the coordinates of an orthonormal basis can leave far fewer
    directions than it has. Random combinations have independent squares, so that their images span the components.
    """
    strong = basis[:, : n_components + SPARE_DIRECTIONS]
    return strong @ uniform_starts(np.random.default_rng(seed), (strong.shape[1],), basis.shape[1])


@dataclass(frozen=True, eq=False)
class CoreSolver(SolverState):
    """The state of a range finder with core. `advance` returns the next state.

    Attributes
    ----------
    n_components, order, seed
        What does not change.
    orthogonal : bool
        Whether components are taken to be orthogonal; otherwise linearly independent.
    n_rounds : int
        Number of images before the core.
    round : int
        Number of replies so far.
    probes : array, d x m
        The orthonormal block of the next query; m is 2k + 5, or d if that is less.
    found : Components or None
        The components, once the core is decomposed.
    """

    n_components: int = array_field(kind="i", low=1)
    order: int = array_field(kind="i", low=MINIMUM_ORDER, high=MAX_ORDER)
    seed: int = array_field(kind="i", low=0)
    orthogonal: bool = array_field(kind="b")
    n_rounds: int = array_field(kind="i", low=1, high=1000)
    round: int = array_field(kind="i", low=0)
    probes: FloatArray = array_field("d", "m", rule=unit_vectors("d", "m"))
    found: Components | None = part_field(Components, default=None)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        d, m = self.probes.shape
        require(self.n_components <= m <= d, "a solver for k components must have k to d probes")
        require(self.round <= self.n_rounds + 1, f"`round` must be at most {self.n_rounds + 1}")
        complete = self.round == self.n_rounds + 1
        require((self.found is not None) == complete, "it must hold components at the end, and only then")
        found = self.found
        fits = found is None or (found.n_components, found.dimension, found.order) == (self.n_components, d, self.order)
        require(fits, "its components must be those that it was started for")

    @classmethod
    def start(
        cls,
        dimension: int,
        n_components: int,
        *,
        order: int = 3,
        n_rounds: int = DEFAULT_ROUNDS,
        rng: RngLike = None,
        seed: int | None = None,
        orthogonal: bool = False,
    ) -> CoreSolver:
        """Return the state before the first query; `seed`, if given, is used instead of one drawn from `rng`."""
        k = check_n_components(n_components, dimension)
        seed = as_seed(rng) if seed is None else seed
        width = core_width(dimension, k)
        with one_blas_thread():
            block = np.linalg.qr(np.random.default_rng(seed).standard_normal((dimension, width)))[0]
        return cls(k, order, seed, orthogonal, check_count("n_rounds", n_rounds), 0, block)

    @property
    def done(self) -> bool:
        """Whether the core is decomposed."""
        return self.found is not None

    @property
    def query(self) -> Literal["image", "core"]:
        """Which product with `probes` is needed next."""
        return "image" if self.round < self.n_rounds else "core"

    @property
    def components(self) -> Components:
        """The components, once the core is decomposed; none before."""
        empty = no_components(self.probes.shape[0], self.order)
        return empty if self.found is None else self.found

    @property
    def n_queries(self) -> int:
        """The number of queries in all."""
        return self.n_rounds + 1

    @property
    def n_replies(self) -> int:
        """The number of replies so far."""
        return self.round

    @property
    def status(self) -> str:
        """What the next reply is for."""
        return "finding the span" if self.query == "image" else "core"

    @property
    def description(self) -> str:
        """What its queries consist of."""
        return f"{self.n_rounds} rounds and a core"

    def advance(self, reply: FloatArray, n_rows: int | None = None) -> CoreSolver:  # noqa: ARG002 - all replies weigh the same
        """Return the state after the reply to `query`."""
        if self.query == "image":
            with one_blas_thread():  # results must not depend on the number of threads
                basis = np.linalg.svd(reply, full_matrices=False)[0]
            last = self.round + 1 == self.n_rounds
            block = basis if last else mixtures(basis, self.n_components, [self.seed, self.round + 1])
            return replace(self, round=self.round + 1, probes=block)
        k, core = self.n_components, DenseTensor(symmetrize(reply))
        try:
            if self.orthogonal:
                inside = decompose_core(core, k, np.random.default_rng(self.seed))
            else:
                inside = fit_independent(core, k, self.seed, decompose_core)
        except RankError as error:
            raise RankError(str(error), self._lifted(error.found)) from error
        return replace(self, round=self.round + 1, found=self._lifted(inside.sorted_by_weight()))

    def _lifted(self, inside: Components) -> Components:
        """Return components of the core in d dimensions."""
        return Components(inside.weights, self.probes @ inside.vectors, self.order)
