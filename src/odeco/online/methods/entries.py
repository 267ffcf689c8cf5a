"""The whole moment of order 3: all distinct entries are averaged and decomposed; for few columns.

In a stream the mean is decomposed whenever a result is wanted, and whenever the number of rows has
doubled, to see how the images at its components spread. In passes one query gets all entries, and
the others refine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

# it imports its submodules when they are used; importing optimize takes longer than importing odeco
import scipy

from odeco._util.state import array_field, given_field, part_field, require, usable_array
from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray
from odeco.cp.small import decompose_noisy, fit_independent
from odeco.errors import RankError
from odeco.online.methods.doubling import first_search, segments
from odeco.online.methods.open import DEFAULT_MEMORY, OpenPlan
from odeco.online.methods.refine import RefineInPasses, check_tracker
from odeco.online.queries import Entries, Query, no_vectors
from odeco.online.search import CLEAR
from odeco.online.solver import Estimate, Reply, Solver, Where
from odeco.power.tracking import Tracker, dual_vectors, kept_apart
from odeco.tensors.components import Components
from odeco.tensors.dense import DenseTensor, PackedTensor

#: The distinct entries of a tensor of this dimension take 86 MB, and as an array half a gigabyte.
MAX_COLUMNS = 400

#: Up to this number of columns adding up the whole moment is cheap.
FEW_COLUMNS = 100

#: Joint power steps on a moment that is known.
_N_STEPS = 10


def check_columns(dimension: int) -> None:
    """Raise if there are too many columns for all entries."""
    if dimension > MAX_COLUMNS:
        raise ValueError(
            f"method='entries' keeps d³/6 numbers, so rows must have at most {MAX_COLUMNS} "
            f"columns. Got {dimension:,}. Take method='core'."
        )


def objection_to_columns(dimension: int, memory: float) -> str | None:
    """Return why the whole moment is not added up if the user leaves the choice; None if it is."""
    if dimension > FEW_COLUMNS:
        return f"with more than {FEW_COLUMNS} columns the whole moment would take longer"
    if 64 * math.comb(dimension + 2, 3) > memory * 1e6:  # a tree of sums holds some eight of them
        return "the whole moment does not fit into the memory allowed"
    return None


def as_dense(packed: FloatArray | None, dimension: int) -> DenseTensor:
    """Return the moment whose distinct entries T[i, j, k], i ≥ j ≥ k, are given."""
    return DenseTensor(PackedTensor(packed, dimension).to_dense())


@dataclass(frozen=True, kw_only=True)
class WholeMoment(OpenPlan):
    """The whole moment of order 3.

    Attributes
    ----------
    memory : float
        The memory that the run may take, in megabytes.
    """

    memory: float = DEFAULT_MEMORY

    name = "entries"
    default_passes = 2
    reason = f"with at most {FEW_COLUMNS} columns the whole moment is cheap"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.order != 3:
            raise ValueError(
                f"method='entries' takes moments of order 3 or 4. Got order {self.order}. Take "
                "method='core'."
            )

    @property
    def takes_cumulants(self) -> bool:
        """Whether the method decomposes cumulants of this order: at order 4 by
        `odeco.online.methods.fourth`.
        """
        return self.order in (3, 4)

    def objection(self, where: Where) -> str | None:
        """Return why this method is not taken for such rows if the user leaves the choice; None if
        it is.
        """
        return objection_to_columns(where.dimension, self.memory)

    def bound(self, where: Where) -> WholeMoment:
        """Return the plan for such rows."""
        check_columns(where.dimension)
        return super().bound(where)

    def start(self) -> Solver:
        """Return the state before the first query."""
        if self.reads_again:
            return MomentOfPass(self)
        return AverageMoment(self, replaced_at=first_search(self.where.dimension, self.k))

    def decomposed(self, packed: FloatArray | None) -> Components:
        """Return the components of the moment with these distinct entries."""
        return fit_independent(
            as_dense(packed, self.where.dimension), self.k or 0, self.where.seed, decompose_noisy
        )


@dataclass(frozen=True, eq=False)
class MomentOfPass(Solver):
    """The first of several passes."""

    plan: WholeMoment = given_field()

    in_passes = True

    @property
    def status(self) -> str:
        """What the next reply is for."""
        return f"the whole moment, pass 1 of {self.plan.n_passes}"

    @cached_property
    def query(self) -> Query:
        """All entries, over the whole pass."""
        return Entries(no_vectors(self.plan.where.dimension), 3)

    def advance(self, reply: Reply) -> RefineInPasses:
        """Decompose the moment."""
        return RefineInPasses.begin(self.plan, self.plan.decomposed(reply.value).sorted_by_weight())

    def progress(self, n_rows: int, n_in_batch: int) -> tuple[int, int | None]:  # noqa: ARG002 - none is known
        """Return the number of rows that were used; the length of a pass is not known yet."""
        return n_rows, None


@dataclass(frozen=True, eq=False)
class AverageMoment(Solver):
    """The mean over all rows of a stream.

    Attributes
    ----------
    n_rows : int
        Rows taken in so far.
    replaced_at : int
        Their number when the mean was decomposed last; before components are found, the number at
        which it will be.
    mean : array or None
        The distinct entries.
    tracker : Tracker or None
        The components at that number of rows, and the spread of their images over the segments
        since the first.
    """

    plan: WholeMoment = given_field()

    stage = "the whole moment"

    n_rows: int = array_field(kind="i", low=0, default=0)
    replaced_at: int = array_field(kind="i", low=1, default=1)
    mean: FloatArray | None = array_field("distinct", rule=usable_array("distinct"), default=None)
    tracker: Tracker | None = part_field(Tracker, default=None)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        d = self.plan.where.dimension
        mean = self.mean
        require((mean is None) == (self.n_rows == 0), "it must have a mean of its rows")
        require(
            mean is None or mean.size == math.comb(d + 2, 3),
            "its mean must have all distinct entries",
        )
        if self.tracker is None:
            require(self.n_rows < self.replaced_at, "it must want rows")
            return
        check_tracker(self.tracker, self.plan)
        require(
            self.replaced_at <= self.n_rows < 2 * self.replaced_at,
            "its vectors must be replaced in time",
        )
        require(mean is not None and self.tracker.per_pass, "components must come from a mean")

    @cached_property
    def query(self) -> Query:
        """All entries, over a segment."""
        sizes = [self.replaced_at - self.n_rows]
        if self.tracker is not None:
            sizes = segments(self.n_rows, self.replaced_at)
        return Entries(no_vectors(self.plan.where.dimension), 3, sizes)

    def advance(self, reply: Reply) -> AverageMoment:
        """Return the state after the distinct entries of the moment, averaged over a segment."""
        after = self._with(reply)
        if after.tracker is not None and after.n_rows < 2 * after.replaced_at:
            return after
        try:
            found = self.plan.decomposed(after.mean)
        except (
            RankError
        ):  # these rows have fewer components; a result says so, and later rows may have more
            return replace(after, tracker=None, replaced_at=2 * after.n_rows)
        return replace(after, tracker=after._tracked(found), replaced_at=after.n_rows)

    def estimate(self, reply: Reply | None) -> Estimate:
        """Return the components of the mean over all rows."""
        after = self if reply is None else self._with(reply)
        if after.mean is None:
            return self.plan.nothing
        tracker = after._tracked(self.plan.decomposed(after.mean))
        rows = float(after.n_rows)
        # Each segment has the values of vectors that earlier rows found.
        confirmed = tracker.confirmed_by_last_rows(CLEAR)
        return Estimate.of(replace(tracker, weight=rows, squared_weight=rows, confirmed=confirmed))

    def progress(self, n_rows: int, n_in_batch: int) -> tuple[int, int | None]:
        """Return the number of rows that were used, and of those before the mean is decomposed
        first.
        """
        needed = self.replaced_at - self.n_rows - n_in_batch
        return n_rows, needed if self.tracker is None else 0

    def _with(self, reply: Reply) -> AverageMoment:
        """Return the state with a reply taken in."""
        n_rows = self.n_rows + reply.n_rows
        mean = reply.value
        if self.mean is not None:
            mean = self.mean + reply.n_rows / n_rows * (reply.value - self.mean)
        tracker = self.tracker
        if tracker is not None:
            segment = PackedTensor(reply.value, self.plan.where.dimension)
            tracker = tracker.advance(segment.image(tracker.probes), reply.n_rows)
        return replace(self, mean=mean, tracker=tracker, n_rows=n_rows)

    def _tracked(self, found: Components) -> Tracker:
        """Return the tracker with components of the mean, in the order of those before."""
        moment = PackedTensor(self.mean, self.plan.where.dimension)
        found = _at_fixed_point(moment, found.sorted_by_weight())
        if self.tracker is None:
            return Tracker.start(found, per_pass=True)
        before = self.tracker.components.vectors  # the spread of each component stays with it
        order = scipy.optimize.linear_sum_assignment(-np.abs(before.T @ found.vectors))[1]
        ordered = Components(found.weights[order], found.vectors[:, order])
        return replace(self.tracker, components=ordered).compared_with(moment, self.n_rows)


def _at_fixed_point(moment: PackedTensor, found: Components) -> Components:
    """Return components after joint power steps: those of rows that are read again and again end
    there too.
    """
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


WholeMoment.states = (AverageMoment, MomentOfPass, RefineInPasses)
