"""Private streams: few queries, components that are taken to be orthogonal, and noise that is
known.

A joint fit would learn more noise. Components that were chosen for their weight in noisy means owe
some of it to the noise, so the batches that refine them begin anew. What a solver gets is the
release and the deviation of its noise, so that all of it is post-processing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from odeco._util.state import (
    array_field,
    given_field,
    part_field,
    require,
    unit_vectors,
    usable_array,
)
from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray
from odeco.cp.small import core_width, decompose_core, decompose_noisy
from odeco.errors import RankError
from odeco.online.methods.entries import (
    FEW_COLUMNS,
    as_dense,
    check_columns,
    objection_to_columns,
)
from odeco.online.methods.open import DEFAULT_MEMORY
from odeco.online.methods.power import Iterate, PowerPlan
from odeco.online.methods.refine import check_tracker
from odeco.online.private import RowGuarantee
from odeco.online.queries import Core, Entries, Images, Query, no_vectors
from odeco.online.solver import Estimate, Plan, Reply, Solver, Where
from odeco.power.power_method import PowerSolver
from odeco.power.steps import uniform_starts
from odeco.power.tracking import Tracker
from odeco.privacy.found import Found, found_in_core, found_in_entries, found_in_images
from odeco.privacy.holders.records import RecordLevel
from odeco.privacy.oracle import MERGE_COSINE, merge_duplicates
from odeco.tensors.components import Components
from odeco.tensors.dense import DenseTensor, symmetrize

#: Rounds of images before the core; one more changes little.
N_ROUNDS = 3

#: Directions beyond the k strongest that the next round keeps, for components that the noise still
#: hides.
_SPARE_DIRECTIONS = 2


@dataclass(frozen=True, kw_only=True)
class PrivatePlan(Plan):
    """What all private methods take.

    Attributes
    ----------
    batch_size : int
        The number of rows of a batch; each release is the mean over one.
    epsilon, delta, norm_bound, neighbour_relation
        The guarantee for every row.
    forgetting : float
        What the weight of the past is multiplied by before each batch that refines.
    """

    batch_size: int
    epsilon: float
    delta: float
    norm_bound: float
    neighbour_relation: str = "replace"
    forgetting: float = 1.0

    private = True
    unit = 0  # rows of a bounded norm have powers of a bounded size
    #: The arguments that make a run private.
    guarantees: ClassVar[frozenset[str]] = frozenset(
        {"epsilon", "delta", "norm_bound", "neighbour_relation"}
    )

    def __post_init__(self) -> None:
        if self.n_components == "auto":
            raise ValueError(
                "A private run needs `n_components` as an int: selecting it would be one more "
                "release. Got 'auto'. Pass the largest number that you expect; `result.clear` "
                "shows which are above the noise, at no cost."
            )
        super().__post_init__()
        _ = self.guarantee  # refuses what is none
        if not self.delta < 1 / self.batch_size:
            raise ValueError(
                f"`delta` must be below 1/batch_size = {1 / self.batch_size:.3g}: publishing one "
                f"row in full, at random, would satisfy it. Got {self.delta!r}. Take one far "
                "below 1/n for the n rows of the whole stream, such as 1e-9."
            )

    @classmethod
    def missing_error(cls, given: Mapping[str, Any], name: str) -> ValueError:  # noqa: ARG003 - whichever it is
        """Return the error for arguments that are missing, if the user asked for the method
        `name`.
        """
        missing = [f"`{name}`" for name in ("epsilon", "delta", "norm_bound") if name not in given]
        if len(missing) == 3:
            return ValueError(
                f"`neighbour_relation` is for private runs. Got {given['neighbour_relation']!r} "
                "without `epsilon`, `delta` and `norm_bound`. Pass these three, or leave it out."
            )
        if missing:
            return ValueError(
                "A private run needs `epsilon`, `delta` and `norm_bound`, all three known "
                f"without looking at the data. Got no {' and no '.join(missing)}. Pass them, or "
                "leave out all three for a run without privacy."
            )
        return ValueError(
            "`batch_size` must be given for a private run: each release is the mean over one "
            "batch. Got None."
        )

    @property
    def guarantee(self) -> RowGuarantee:
        """The guarantee for every row."""
        return RowGuarantee(
            self.epsilon,
            self.delta,
            norm_bound=self.norm_bound,
            neighbour_relation=self.neighbour_relation,
        )

    def bound(self, where: Where) -> Self:
        """Return the plan for such rows."""
        self.guarantee.check_room(where.dimension, self.order)
        return super().bound(where)

    def refined(self, found: Found) -> PrivateRefine:
        """Return the state that refines components, which a search completed."""
        ordered = found.components.sorted_by_weight()
        return PrivateRefine(
            self, Tracker.start(ordered, forgetting=self.forgetting, orthogonal=True), found
        )


@dataclass(frozen=True, eq=False)
class PrivateRefine(Solver):
    """Refinement by noisy batches.

    Attributes
    ----------
    tracker : Tracker
        The components and the mean of their images.
    found : Found
        What the search found, in the order of discovery, and what its noise says about it.
    noise : float
        The deviation of the noise in the last reply; 0 before the first.
    n_rows : int
        The number of rows of the last reply.
    """

    plan: PrivatePlan = given_field()

    tracker: Tracker = part_field(Tracker)
    found: Found = part_field(Found)
    noise: float = array_field(rule=usable_array(low=0), default=0.0)
    n_rows: int = array_field(kind="i", low=0, default=0)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        check_tracker(self.tracker, self.plan)
        require(self.found.components.n_components == self.plan.k, "all components must be found")

    @cached_property
    def query(self) -> Query:
        """Images of the components."""
        return Images(self.tracker.probes, self.plan.order, (self.plan.batch_size,))

    def advance(self, reply: Reply) -> PrivateRefine:
        """Return the state after the noisy images over a batch."""
        tracker = self.tracker.advance(reply.value, reply.n_rows)
        return replace(self, tracker=tracker, noise=reply.noise, n_rows=reply.n_rows)

    def estimate(self, reply: Reply | None) -> Estimate:  # noqa: ARG002 - only complete batches are released
        """Return the components; what the noise says of them is that in their mean image."""
        found = self.tracker.components
        noise = self.found
        ratio = self.tracker.noise_ratio(self.n_rows) if self.n_rows else None
        if ratio is not None:
            k = found.n_components
            scales = np.full(k, self.noise * ratio)
            noise = found_in_images(found, scales, scales, k)
        return Estimate(found, self.tracker.standard_errors(), noise=noise)


# All entries --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PrivateMoment(PrivatePlan):
    """All distinct entries of a moment of order 3, in one release with the whole budget."""

    name = "entries"
    n_batches = 1
    reason = f"with at most {FEW_COLUMNS} columns the whole moment is cheap"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.order != 3:
            raise ValueError(
                "method='entries' takes moments of order 3 in a private run. Got order "
                f"{self.order}. Take method='core'."
            )

    def objection(self, where: Where) -> str | None:
        """Return why this method is not taken for such rows if the user leaves the choice; None if
        it is.
        """
        return objection_to_columns(where.dimension, DEFAULT_MEMORY)

    def bound(self, where: Where) -> Self:
        """Return the plan for such rows."""
        check_columns(where.dimension)
        return super().bound(where)

    def start(self) -> Solver:
        """Return the state before the first query."""
        return FirstMoment(self)


@dataclass(frozen=True, eq=False)
class FirstMoment(Solver):
    """The first batch, for all entries."""

    plan: PrivateMoment = given_field()

    stage = "the whole moment"

    @cached_property
    def query(self) -> Query:
        """All entries, over a batch."""
        return Entries(no_vectors(self.plan.where.dimension), 3, (self.plan.batch_size,))

    def advance(self, reply: Reply) -> PrivateRefine:
        """Decompose the moment."""
        moment = as_dense(reply.value, self.plan.where.dimension)
        generator = np.random.default_rng(self.plan.where.seed)
        components = decompose_noisy(moment, self.plan.k or 0, generator).sorted_by_weight()
        return self.plan.refined(found_in_entries(components, reply.noise, RecordLevel.entry_units))

    def progress(self, n_rows: int, n_in_batch: int) -> tuple[int, int | None]:  # noqa: ARG002 - some were not used
        """Return the number of rows that were used, and of those that the batch still takes."""
        return n_in_batch, self.plan.batch_size - n_in_batch


# A range finder and a core ------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PrivateSpan(PrivatePlan):
    """The span of the components from images of random vectors, and the core in it.

    The image T(I, u, …, u) of *any* u lies in the span of the components. So a few queries for the
    images of a block of random vectors find that span, and one more gets the small core T(Q, …, Q)
    for a basis Q of it, which is then decomposed. They take the place of the k R queries of
    Algorithm 2.
    """

    name = "core"
    n_batches = N_ROUNDS + 1

    def start(self) -> Solver:
        """Return the state before the first query; its block has 2k + 5 columns, or d if that is
        less.
        """
        d = self.where.dimension
        normal = np.random.default_rng(self.where.seed).standard_normal(
            (d, core_width(d, self.k or 0))
        )
        with one_blas_thread():
            block = np.linalg.qr(normal)[0]
        return FindSpan(self, 0, block)


@dataclass(frozen=True, eq=False)
class FindSpan(Solver):
    """Rounds of images, and the core at the end.

    Attributes
    ----------
    round : int
        The number of replies so far.
    probes : array, d x m
        The orthonormal block of the next query.
    last_probes : array or None
        The block of the last images, as columns that are contiguous in memory as they were queried.
    noise : float
        The deviation of the noise in the last images.
    """

    plan: PrivateSpan = given_field()

    round: int = array_field(kind="i", low=0, high=N_ROUNDS)
    probes: FloatArray = array_field("d", "m", rule=unit_vectors("d", "m"))
    last_probes: FloatArray | None = array_field(
        "d", "m", rule=unit_vectors("d", "m"), default=None
    )
    noise: float = array_field(rule=usable_array(low=0), default=0.0)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        d = self.plan.where.dimension
        require(
            self.probes.shape == (d, core_width(d, self.plan.k or 0)), "it must have all probes"
        )
        require(
            (self.last_probes is None) == (self.round == 0),
            "it must have the probes of its last images",
        )

    @property
    def status(self) -> str:
        """What the next reply is for."""
        if self.round < N_ROUNDS:
            return "finding the span"
        return "core"

    @cached_property
    def query(self) -> Query:
        """Images of the probes, and at the end the core in their span."""
        kind = Images if self.round < N_ROUNDS else Core
        return kind(self.probes, self.plan.order, (self.plan.batch_size,))

    def advance(self, reply: Reply) -> Solver:
        """Return the state after noisy images, or after the core."""
        if self.round == N_ROUNDS:
            return self._decomposed(reply)
        with one_blas_thread():  # results must not depend on the number of threads
            basis = np.linalg.svd(reply.value, full_matrices=False)[0]
        following = self.round + 1
        probes = basis
        if following < N_ROUNDS:
            probes = _mixtures(basis, self.plan.k or 0, [self.plan.where.seed, following])
        return replace(
            self, round=following, probes=probes, last_probes=self.query.block, noise=reply.noise
        )

    def progress(self, n_rows: int, n_in_batch: int) -> tuple[int, int | None]:  # noqa: ARG002 - some were not used
        """Return the number of rows that were used, and of those that are needed for the core."""
        used = self.round * self.plan.batch_size + n_in_batch
        return used, (N_ROUNDS + 1) * self.plan.batch_size - used

    def _decomposed(self, reply: Reply) -> PrivateRefine:
        """Return the state that refines the components of the core."""
        core = DenseTensor(symmetrize(reply.value))
        try:
            inside = decompose_core(
                core, self.plan.k or 0, np.random.default_rng(self.plan.where.seed)
            )
        except RankError as error:
            raise RankError(str(error), self._lifted(error.found)) from error
        components = self._lifted(inside.sorted_by_weight())
        outside = self._angles_outside(components)
        return self.plan.refined(
            found_in_core(components, reply.noise, self.probes.shape[1], outside)
        )

    def _lifted(self, inside: Components) -> Components:
        """Return components of the core in d dimensions."""
        return Components(inside.weights, self.probes @ inside.vectors, self.plan.order)

    def _angles_outside(self, found: Components) -> FloatArray:
        """Return the angle by which the span of noisy images misses each component, to first order.

        The images are Σ λᵢ vᵢ sᵢᵀ with sᵢ the (p − 1)-st powers of ⟨vᵢ, u⟩ over the probes u; noise
        moves vᵢ by what the pseudo-inverse of the λᵢ sᵢ makes of it.
        """
        if self.last_probes is None:
            raise RuntimeError("A core needs the images before it.")
        signals = found.weights * (self.last_probes.T @ found.vectors) ** (found.order - 1)
        spread = np.diagonal(np.linalg.pinv(signals.T @ signals))
        angles: FloatArray = self.noise * np.sqrt(found.dimension * np.maximum(spread, 0.0))
        return angles


def _mixtures(basis: FloatArray, n_components: int, seed: list[int]) -> FloatArray:
    """Return random unit vectors in the span of the strongest directions of a basis, for the next
    query.

    Not the basis itself: images are quadratic, and squaring the coordinates of an orthonormal basis
    can leave far fewer directions than it has. Random combinations have independent squares, so
    that their images span the components.
    """
    strong = basis[:, : n_components + _SPARE_DIRECTIONS]
    return strong @ uniform_starts(np.random.default_rng(seed), (strong.shape[1],), basis.shape[1])


# Algorithm 2 --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PrivatePower(PowerPlan, PrivatePlan):
    """Algorithm 2, where iterates that have converged to one vector are one candidate."""

    def start(self) -> Solver:
        """Return the state before the first query."""
        return PrivateIterate(self, self.power_solver())


@dataclass(frozen=True, eq=False)
class PrivateIterate(Iterate):
    """The power method, with the deviation of the noise in the weights of the components found
    before.

    Attributes
    ----------
    noises : array
        One deviation for each component that is found.
    """

    plan: PrivatePower = given_field()

    noises: FloatArray = array_field(None, rule=usable_array(None, low=0), default=np.zeros(0))

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        super().check()
        require(len(self.noises) == len(self.power.found), "every component must have its noise")

    @cached_property
    def query(self) -> Query:
        """Images of the iterates, each that several have converged to once."""
        distinct = merge_duplicates(np.ascontiguousarray(self.power.probes), MERGE_COSINE)[0]
        return Images(distinct, self.plan.order, (self.plan.batch_size,))

    def advance(self, reply: Reply) -> Solver:
        """Return the state after noisy images over a batch."""
        _, members, signs = merge_duplicates(self.power.probes, MERGE_COSINE)
        # T(I, −u, …) has the sign (−1)^(p−1).
        image = reply.value[:, members] * (signs if self.plan.order % 2 == 0 else 1.0)
        after = self.power.advance(image)
        noises = self.noises
        if len(after.found) > len(noises):
            noises = np.append(noises, reply.noise)
        if after.done:
            return self.plan.refined(_with_noise(after, noises, self.power.probes.shape[1]))
        return replace(self, power=after, noises=noises)

    def estimate(self, reply: Reply | None) -> Estimate:  # noqa: ARG002 - only complete batches are released
        """Return the components found so far."""
        if not self.power.found:
            return self.plan.nothing
        noise = _with_noise(self.power, self.noises, self.power.probes.shape[1])
        return Estimate(self.power.components, noise=noise)


def _with_noise(power: PowerSolver, noises: FloatArray, n_probes: int) -> Found:
    """Return the components that the power method has found, with what their noise says about
    them.
    """
    return found_in_images(power.components, noises, noises, n_probes)


PrivateMoment.states = (FirstMoment, PrivateRefine)
PrivateSpan.states = (FindSpan, PrivateRefine)
PrivatePower.states = (PrivateIterate, PrivateRefine)
