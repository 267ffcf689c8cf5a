"""Refinement and tracking of components: average their images over batches, with forgetting if the data drift.

For orthogonal components an error δ of a vector changes its image, once the others are subtracted, only by δ²: every
image of a nearly right vector is a fresh, nearly unbiased estimate of the right one. So their mean over batches is the
refined component, and their spread gives its standard error.

If components are not orthogonal, images are those of the *dual* vectors wᵢ, with wᵢᵀvᵢ = 1 and wᵢᵀvⱼ = 0 for j ≠ i: the
image Σⱼ λⱼ (wᵢᵀvⱼ)ᵖ⁻¹ vⱼ of such a vector is λᵢ vᵢ, and errors δ change its direction only by δ² again. Its length is
λᵢ (wᵢᵀvᵢ)ᵖ⁻¹, so that weights are read off once the better vectors are known (`Tracker.moved_to`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

from odeco._util.state import array_field, part_field, require, usable_array
from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray
from odeco.cp.rank import RankEvidence
from odeco.power.solver import Solver, SolverState
from odeco.tensors.components import Components

#: The ridge of the Gram matrix of unit vectors whose dual vectors are formed.
_RIDGE = 1e-5

#: A joint step may bring a vector this much nearer to the span of stronger ones, as a share of its distance.
_LEAST_APART = 0.1

#: The largest value of a Gaussian tensor of order 3 at unit vectors is about this times √d standard deviations of one
#: value (the ground state of the spherical 3-spin model, Auffinger, Ben Arous and Černý 2013), and exceeds its mean by
#: this many of them in one of 90 cases at most (Borell's inequality, e^(−t²/2)).
_GROUND_STATE, _ABOVE_FLOOR = 1.657, 3.0

#: Weights and numbers of rows in a file are at most this.
_MAX_ROWS = 2.0**63


@dataclass(frozen=True, eq=False)
class Tracker(SolverState):
    """The current components, and the weighted mean of their images: a solver that never ends.

    Attributes
    ----------
    components : Components
        The current estimate.
    forgetting : float
        What the weight of the past is multiplied by before each batch: 1 keeps all, 0.9 forgets in some ten batches.
    per_pass : bool
        Whether vectors are updated at the end of a pass only (`end_pass`), so that all images of a pass are images of
        the same vectors.
    orthogonal : bool
        Whether components are taken to be orthogonal, so that each is corrected by its own image alone: noise that is
        far larger than the components, as in private runs, must not reach one through another.
    images : array, d x k
        The mean over batches of the images with what is due to the other components subtracted.
    values : array of k numbers
        The mean of their values.
    weight, squared_weight : float
        The number of rows that the means stand for; and Σ aᵢ²/rᵢ over batches of rᵢ rows and faded weight aᵢ, for
        their variance.
    value_spread, image_spread : arrays of k numbers
        Σ rᵢ (deviation of a batch)², of values and of images across their vector, faded as the weights are.
    n_deviations : float
        The number of independent deviations in the spreads, faded likewise.
    settled_weight : float
        The part of `weight` from before the vectors were moved last; that of their values is in `settled_values`.
    settled_values : array of k numbers
        The mean of the values over these rows.
    rank_evidence : RankEvidence or None
        The evidence for the number of components, if that was not given.
    confirmed : array of k booleans, or None
        Which components rows confirm that did not find them. The others may fit noise, and rows that found them would
        confirm them, so their angles are unknown. None if no rows were held out: in passes, components of
        order 3 then count as confirmed above the weight that noise alone would show.
    """

    query: ClassVar[Literal["image"]] = "image"
    found_in_reply: ClassVar[bool] = True
    n_queries: ClassVar[None] = None
    n_replies: ClassVar[int] = 0  # there is no end to count towards
    done: ClassVar[bool] = False
    status: ClassVar[str] = "refining"
    description: ClassVar[str] = "batches that refine"

    components: Components = part_field(Components)
    forgetting: float = array_field(low=0, high=1)
    per_pass: bool = array_field(kind="b")
    orthogonal: bool = array_field(kind="b")
    images: FloatArray = array_field("d", "k", rule=usable_array("d", "k"))
    values: FloatArray = array_field("k", rule=usable_array("k"))
    weight: float = array_field(low=0, high=_MAX_ROWS)
    squared_weight: float = array_field(low=0, high=_MAX_ROWS)
    value_spread: FloatArray = array_field("k", rule=usable_array("k"))
    image_spread: FloatArray = array_field("k", rule=usable_array("k"))
    n_deviations: float = array_field(low=0, high=_MAX_ROWS)
    settled_weight: float = array_field(low=0, high=_MAX_ROWS)
    settled_values: FloatArray = array_field("k", rule=usable_array("k"))
    rank_evidence: RankEvidence | None = part_field(RankEvidence, default=None)
    confirmed: NDArray[np.bool_] | None = array_field("k", kind="b", default=None)

    @classmethod
    def start(
        cls,
        components: Components,
        *,
        n_rows: int = 0,
        forgetting: float = 1.0,
        per_pass: bool = False,
        orthogonal: bool = False,
    ) -> Tracker:
        """Begin with components that were learnt from `n_rows` rows; 0 lets the first batch replace them."""
        k = components.n_components
        return cls(
            components=components,
            forgetting=forgetting,
            per_pass=per_pass,
            orthogonal=orthogonal,
            images=components.vectors * components.weights,
            values=components.weights,
            weight=float(n_rows),
            squared_weight=float(n_rows),
            value_spread=np.zeros(k),
            image_spread=np.zeros(k),
            n_deviations=0.0,
            settled_weight=float(n_rows),
            settled_values=components.weights,
        )

    @classmethod
    def after(cls, solver: Solver, *, n_rows: int = 0, **settings: Any) -> Tracker:
        """Begin with the components of another solver, largest weight first; `settings` are those of `start`.

        They count as the `n_rows` rows of its last reply if they were read off it. Those of a tracker keep their order.
        """
        found, confirmed = solver.components, solver.confirmed
        if not isinstance(solver, Tracker):
            confirmed = None if confirmed is None else confirmed[found.largest_first()]
            found = found.sorted_by_weight()
        tracker = cls.start(found, n_rows=n_rows if solver.found_in_reply else 0, **settings)
        return replace(tracker, rank_evidence=solver.rank_evidence, confirmed=confirmed)

    @property
    def order(self) -> int:
        """The order of the moment."""
        return self.components.order

    @property
    def probes(self) -> FloatArray:
        """The current vectors, or those dual to them, scaled to unit length."""
        if self.orthogonal:
            return self.components.vectors
        dual = dual_vectors(self.components.vectors)
        return np.asarray(dual / np.linalg.norm(dual, axis=0))

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        k, evidence = self.components.n_components, self.rank_evidence
        require(1 <= k <= self.components.dimension, "there must be 1 to d components")
        with np.errstate(over="ignore"):
            lengths = np.linalg.norm(self.images, axis=0)
            squares = np.square([self.components.weights, self.values])
        require(bool(np.all((lengths > 0) & np.isfinite(lengths))), "mean images must have positive, finite lengths")
        require(bool(np.all(np.isfinite(squares))), "the squares of its weights must be finite")
        require(evidence is None or evidence.rank == k, "its rank must be the number of its components")

    def advance(self, reply: FloatArray, n_rows: int | None = None) -> Tracker:
        """Return the state after the images of the current vectors, averaged over `n_rows` fresh rows."""
        if n_rows is None:
            raise TypeError("A tracker must know the number of rows that a reply is the mean of. Pass n_rows.")
        vectors, weights = self.components.vectors, self.components.weights
        if self.orthogonal:
            image = reply - self.components.image(vectors) + vectors * weights  # all others subtracted
            value = np.sum(vectors * image, axis=0)
        else:
            dual = dual_vectors(vectors)
            image = reply * np.linalg.norm(dual, axis=0) ** (self.order - 1)
            value = np.sum(dual * image, axis=0)
        kept = self.forgetting * self.weight
        share = n_rows / (kept + n_rows)
        images, values = self.images + share * (image - self.images), self.values + share * (value - self.values)
        seen = replace(
            self,
            images=images,
            values=values,
            weight=kept + n_rows,
            squared_weight=self.forgetting**2 * self.squared_weight + n_rows,
            # Welford's update. A first batch with nothing before it becomes the mean, and so deviates by 0.
            value_spread=self.forgetting * self.value_spread + n_rows * (value - self.values) * (value - values),
            image_spread=self.forgetting * self.image_spread
            + n_rows * _across(image - self.images, image - images, vectors),
            n_deviations=self.forgetting * self.n_deviations + (self.weight > 0),
            settled_weight=self.forgetting * self.settled_weight,
        )
        return seen if self.per_pass else seen.end_pass()

    def end_pass(self) -> Tracker:
        """Move every vector to the mean of its images."""
        signs = np.where(self.values < 0, -1.0, 1.0)  # at even orders an image of a negative weight points backwards
        vectors = signs * self.images / np.linalg.norm(self.images, axis=0)
        return self.moved_to(kept_apart(self.components.vectors, vectors, self.values))

    def moved_to(self, vectors: FloatArray) -> Tracker:
        """Return the tracker with other vectors, and values so far corrected by what these say of the last ones.

        A value since the last move is that of a dual vector w, λ (wᵀv)ᵖ for the component λ v⊗ᵖ.
        """
        values = self.values
        if not self.orthogonal:
            # Overlaps beyond one half and two mean that vectors have changed so much that they say nothing.
            overlaps = np.clip(np.sum(dual_vectors(self.components.vectors) * vectors, axis=0), 0.5, 2.0)
            settled = self.settled_weight * self.settled_values
            recent = self.weight * self.values - settled
            values = (settled + recent / overlaps**self.order) / self.weight if self.weight else values
        components = Components(values, vectors, self.order)
        return replace(self, components=components, values=values, settled_weight=self.weight, settled_values=values)

    def standard_errors(self) -> tuple[FloatArray, FloatArray] | None:
        """Return the standard errors of weights and of angles (in radians), or None after fewer than two deviations.

        The variance of one row is estimated from the spread between batches, and divided by the rows that the means
        stand for. The angle is π/2 for a vector that cannot be distinguished from the span of the others.
        """
        if self.n_deviations < 2:
            return None
        rows = self.n_deviations * self.weight**2 / self.squared_weight
        weight_errors = np.sqrt(np.maximum(self.value_spread, 0) / rows)
        across = np.sqrt(np.maximum(self.image_spread, 0) / rows)
        angle_errors = across / np.abs(self.values)
        confirmed = self.confirmed
        if confirmed is None and self.per_pass:  # the rows that are read again are those that found the components
            d = self.components.dimension
            # Of a Gaussian tensor, T(u, u, v) has a third of the variance of T(u, u, u), in each of d − 1 directions v.
            noise = across * math.sqrt(3 / max(1, d - 1))
            confirmed = np.abs(self.values) > (_GROUND_STATE * math.sqrt(d) + _ABOVE_FLOOR) * noise
        if confirmed is not None:
            angle_errors = np.where(confirmed, angle_errors, math.pi / 2)
        if not self.orthogonal:  # a vector that errs by more than it differs from the span of the others is not known
            apart = _distances(self.components.vectors)
            angle_errors = np.where(angle_errors < apart, angle_errors, math.pi / 2)
        return weight_errors, angle_errors

    def confirmed_by_last_rows(self, n_errors: float) -> NDArray[np.bool_]:
        """Tell which values over the rows since the vectors were moved last are larger than `n_errors` of their errors.

        These rows had no part in the vectors. After few deviations the errors themselves are uncertain, so the number
        of errors is that of Student's law.
        """
        n_rows = self.weight - self.settled_weight
        if self.n_deviations < 2 or n_rows <= 0:
            return np.zeros(self.values.shape, dtype=np.bool_)
        n_errors = float(stdtrit(self.n_deviations, float(ndtr(n_errors))))
        values = (self.weight * self.values - self.settled_weight * self.settled_values) / n_rows
        errors = np.sqrt(np.maximum(self.value_spread, 0) / self.n_deviations / n_rows)
        confirmed: NDArray[np.bool_] = np.abs(values) > n_errors * errors
        return confirmed

    def noise_ratio(self, n_rows: int) -> float | None:
        """Return the noise in the mean over that in one image, for batches of `n_rows` rows with equal noise.

        For batches of weights aᵢ it is √(Σ aᵢ²)/Σ aᵢ. None before there is anything to average.
        """
        return math.sqrt(n_rows * self.squared_weight) / self.weight if self.weight > 0 else None


def dual_vectors(vectors: FloatArray) -> FloatArray:
    """Return the vectors wᵢ in the span of the vⱼ with wᵢᵀvᵢ = 1 and wᵢᵀvⱼ = 0 for j ≠ i.

    A small ridge keeps them bounded where the vⱼ are linearly dependent; then wᵢᵀvⱼ is not quite 0, and an image errs
    by its square.
    """
    with one_blas_thread():  # results must not depend on the number of threads
        gram = vectors.T @ vectors + _RIDGE * np.eye(vectors.shape[1])
        solution = np.linalg.solve(gram, vectors.T).T
    dual: FloatArray = np.asarray(solution / np.sum(solution * vectors, axis=0), np.float64)
    return dual


def kept_apart(before: FloatArray, after: FloatArray, weights: FloatArray) -> FloatArray:
    """Return vectors after a joint step, those before it where one has moved into the span of stronger ones.

    A weak component beside a strong one has an image in which the strong one prevails as soon as vectors err by the
    root of the ratio of their weights. All would end at the strong one.
    """
    ranked = np.argsort(-np.abs(weights), kind="stable")
    least = _LEAST_APART * _heights(before[:, ranked])
    if np.all(_heights(after[:, ranked]) >= least):
        return after
    result = after.copy()
    for place, number in enumerate(ranked):
        if _heights(result[:, ranked[: place + 1]])[-1] < least[place]:
            result[:, number] = before[:, number]
    return result


def _heights(vectors: FloatArray) -> FloatArray:
    """Return the distance of each vector from the span of those before it."""
    with one_blas_thread():
        triangle = np.linalg.qr(vectors, mode="r")
    heights: FloatArray = np.abs(np.diagonal(triangle)).astype(np.float64)
    return heights


def _distances(vectors: FloatArray) -> FloatArray:
    """Return the distance of each unit vector from the span of the others."""
    with one_blas_thread():
        sizes, axes = np.linalg.eigh(vectors.T @ vectors)
    distances: FloatArray = 1 / np.sqrt(np.sum(axes**2 / np.maximum(sizes, np.finfo(np.float64).eps), axis=1))
    return distances


def _across(first: FloatArray, second: FloatArray, vectors: FloatArray) -> FloatArray:
    """Return ⟨first, second⟩ for each column, without the part along its vector."""
    along = np.sum(first * vectors, axis=0) * np.sum(second * vectors, axis=0)
    inner: FloatArray = np.sum(first * second, axis=0) - along
    return inner
