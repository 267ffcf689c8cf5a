"""Refinement and tracking of components: average their images over batches, with forgetting if the
data drift.

For orthogonal components an error δ of a vector changes its image, once the others are subtracted,
only by δ²: every image of a nearly right vector is a fresh, nearly unbiased estimate of the right
one. So their mean over batches is the refined component, and their spread gives its standard error.

If components are not orthogonal, images are those of the *dual* vectors wᵢ, with wᵢᵀvᵢ = 1 and
wᵢᵀvⱼ = 0 for j ≠ i: the image Σⱼ λⱼ (wᵢᵀvⱼ)ᵖ⁻¹ vⱼ of such a vector is λᵢ vᵢ, and errors δ change
its direction only by δ² again. Its length is λᵢ (wᵢᵀvᵢ)ᵖ⁻¹, so that weights are read off once the
better vectors are known (`Tracker.moved_to`).

All of this supposes that the tensor T is a sum of such components C and of others at right angles
to them. If it is not, as the third moment of rows with a mean (it holds the mean times the
covariance), vectors still settle, batches agree on them, and errors look small. So the images of
*combinations* of dual vectors are asked for too: the sum z of those of unit length, and z ± e,
where e is at right angles to all vectors and drawn at random. Components are right at every wᵢ,
because they were made so, but at z only if T(wᵢ, wⱼ, ·) = 0 for i ≠ j. And z + e and z − e have the
same image only if T(wᵢ, e, ·) = 0. What is left, R = T − C, tells how far T is from such a sum. If
R is alike in all directions, it is as large at the unit vector wᵢ/‖wᵢ‖ as at these. There it turns
component i by ‖R‖ ‖wᵢ‖ᵖ⁻¹/λᵢ. This misfit is part of the error of each angle.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

from odeco._util.state import State, array_field, part_field, require, usable_array
from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray
from odeco.cp.rank import SIGNIFICANCE, RankEvidence
from odeco.tensors.components import Components
from odeco.tensors.oracle import Oracle

#: The ridge of the Gram matrix of unit vectors whose dual vectors are formed.
_RIDGE = 1e-5

#: A joint step may bring a vector this much nearer to the span of stronger ones, as a share of its
#: distance.
_LEAST_APART = 0.1

#: The largest value of a Gaussian tensor of order 3 at unit vectors is about this times √d standard
#: deviations of one value (the ground state of the spherical 3-spin model, Auffinger, Ben Arous and
#: Černý 2013), and exceeds its mean by this many of them in one of 90 cases at most (Borell's
#: inequality, e^(−t²/2)).
_GROUND_STATE = 1.657
_ABOVE_FLOOR = 3.0

#: What is left at combinations is compared with noise from this number of deviations between
#: batches on.
_LEAST_DEVIATIONS = 4

#: What is left at combinations is rounding error up to this share of the largest weight.
_ROUNDING = 1e-9

#: Weights and numbers of rows in a file are at most this.
_MAX_ROWS = 2.0**63


@dataclass(frozen=True, eq=False)
class CombinationImages(State):
    """The images of z, and of z + e minus that of z − e over √2, averaged over batches.

    Attributes
    ----------
    mean : array, d x 2
        Their means.
    spread : array of 2 numbers
        Σ rᵢ ‖deviation of a batch‖² for batches of rᵢ rows.
    n_rows, n_batches : float
        What they are the mean of.
    """

    mean: FloatArray = array_field("d", "combinations", rule=usable_array("d", "combinations"))
    spread: FloatArray = array_field("combinations", low=0)
    n_rows: float = array_field(low=0, high=_MAX_ROWS, default=0.0)
    n_batches: float = array_field(low=0, high=_MAX_ROWS, default=0.0)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        require(len(self.spread) == 2, "there must be two of them")

    @classmethod
    def none(cls, dimension: int) -> CombinationImages:
        """Return the mean of no images."""
        return cls(np.zeros((dimension, 2)), np.zeros(2))

    def advance(self, images: FloatArray, n_rows: int) -> CombinationImages:
        """Return the mean with the images of one more batch, themselves means over `n_rows`
        rows.
        """
        off = images - self.mean
        mean = self.mean + n_rows / (self.n_rows + n_rows) * off
        spread = self.spread + n_rows * np.maximum(
            0.0, np.sum(off * (images - mean), axis=0)
        )  # 0 for the first
        return CombinationImages(mean, spread, self.n_rows + n_rows, self.n_batches + 1)

    def misfit(self, left: FloatArray, n_rows: float, largest: float) -> float | None:
        """Return the length of what is left of mean images over `n_rows` rows; 0 if it may be
        noise.

        None if there are too few batches to tell how large noise is. If all noise were in one
        direction, the square of the mean over its variance would be the square of a variable with
        Student's law; in several, it varies less. Components fit part of the noise, which makes it
        smaller still. `largest` is the largest weight.
        """
        n_deviations = self.n_batches - 1
        if n_deviations < _LEAST_DEVIATIONS:
            return None
        squares = np.sum(left**2, axis=0)
        noise = self.spread / n_deviations / n_rows
        level = (
            float(stdtrit(n_deviations, 1 - SIGNIFICANCE / 4)) ** 2
        )  # two-sided, and two of them
        if not np.any(squares > np.maximum(level * noise, (_ROUNDING * largest) ** 2)):
            return 0.0
        return math.sqrt(float(np.max(np.maximum(squares - noise, 0.0))))


@dataclass(frozen=True, eq=False)
class Tracker(State):
    """The current components, and the weighted mean of their images: a solver that never ends.

    Attributes
    ----------
    components : Components
        The current estimate.
    forgetting : float
        What the weight of the past is multiplied by before each batch: 1 keeps all, 0.9 forgets in
        some ten batches.
    per_pass : bool
        Whether vectors are updated at the end of a pass only (`end_pass`), so that all images of a
        pass are images of the same vectors.
    orthogonal : bool
        Whether components are taken to be orthogonal, so that each is corrected by its own image
        alone: noise that is far larger than the components, as in private runs, must not reach one
        through another.
    images : array, d x k
        The mean over batches of the images with what is due to the other components subtracted.
    values : array of k numbers
        The mean of their values.
    weight, squared_weight : float
        The number of rows that the means stand for; and Σ aᵢ²/rᵢ over batches of rᵢ rows and faded
        weight aᵢ, for their variance.
    value_spread, image_spread : arrays of k numbers
        Σ rᵢ (deviation of a batch)², of values and of images across their vector, faded as the
        weights are.
    n_deviations : float
        The number of independent deviations in the spreads, faded likewise.
    settled_weight : float
        The part of `weight` from before the vectors were moved last; that of their values is in
        `settled_values`.
    settled_values : array of k numbers
        The mean of the values over these rows.
    rank_evidence : RankEvidence or None
        The evidence for the number of components, if that was not given.
    confirmed : array of k booleans, or None
        Which components rows confirm that did not find them. The others may fit noise, and rows
        that found them would confirm them, so their angles are unknown. None if no rows were held
        out: in passes, components of order 3 then count as confirmed above the weight that noise
        alone would show.
    combinations : CombinationImages or None
        The images of combinations since the vectors were moved last; None before that, or if they
        are not asked for.
    misfit : float
        What was left at combinations when the vectors were moved last, as a length; 0 if it may be
        noise.
    """

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
    combinations: CombinationImages | None = part_field(CombinationImages, default=None)
    misfit: float = array_field(low=0, default=0.0)

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
        """Begin with components that were learnt from `n_rows` rows; 0 lets the first batch replace
        them.
        """
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

    @property
    def order(self) -> int:
        """The order of the moment."""
        return self.components.order

    @property
    def probes(self) -> FloatArray:
        """The current vectors, or those dual to them, scaled to unit length, and combinations if
        they are asked for.
        """
        if self.orthogonal:
            return self.components.vectors
        dual = dual_vectors(self.components.vectors)
        units = np.asarray(dual / np.linalg.norm(dual, axis=0))
        if self.combines:
            return np.hstack([units, combinations_of(units)])
        return units

    @property
    def combines(self) -> bool:
        """Whether images of combinations are asked for: if vectors stay for a while, and components
        must add up.
        """
        return self.per_pass and not self.orthogonal

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        k = self.components.n_components
        evidence = self.rank_evidence
        require(1 <= k <= self.components.dimension, "there must be 1 to d components")
        with np.errstate(over="ignore"):
            lengths = np.linalg.norm(self.images, axis=0)
            squares = np.square([self.components.weights, self.values])
        require(
            bool(np.all((lengths > 0) & np.isfinite(lengths))),
            "mean images must have positive, finite lengths",
        )
        require(bool(np.all(np.isfinite(squares))), "the squares of its weights must be finite")
        require(
            evidence is None or evidence.rank == k, "its rank must be the number of its components"
        )
        require(
            self.combinations is None or self.combines,
            "it must have no images of combinations that it does not ask for",
        )

    def advance(self, reply: FloatArray, n_rows: int) -> Tracker:
        """Return the state after the images of the current vectors, averaged over `n_rows` fresh
        rows.
        """
        vectors = self.components.vectors
        weights = self.components.weights
        if self.orthogonal:
            image = (
                reply - self.components.image(vectors) + vectors * weights
            )  # all others subtracted
            value = np.sum(vectors * image, axis=0)
        else:
            dual = dual_vectors(vectors)
            image = reply[:, : weights.size] * np.linalg.norm(dual, axis=0) ** (self.order - 1)
            value = np.sum(dual * image, axis=0)
        kept = self.forgetting * self.weight
        share = n_rows / (kept + n_rows)
        images = self.images + share * (image - self.images)
        values = self.values + share * (value - self.values)
        seen = replace(
            self,
            images=images,
            values=values,
            weight=kept + n_rows,
            squared_weight=self.forgetting**2 * self.squared_weight + n_rows,
            # Welford's update. A first batch with nothing before it becomes the mean, and so
            # deviates by 0.
            value_spread=self.forgetting * self.value_spread
            + n_rows * (value - self.values) * (value - values),
            image_spread=self.forgetting * self.image_spread
            + n_rows * _across(image - self.images, image - images, vectors),
            n_deviations=self.forgetting * self.n_deviations + (self.weight > 0),
            settled_weight=self.forgetting * self.settled_weight,
        )
        if self.combines:
            if self.combinations is None:
                combinations = CombinationImages.none(len(vectors))
            else:
                combinations = self.combinations
            seen = replace(
                seen,
                combinations=combinations.advance(_differences(reply[:, weights.size :]), n_rows),
            )
        if self.per_pass:
            return seen
        return seen.end_pass()

    def end_pass(self) -> Tracker:
        """Move every vector to the mean of its images."""
        signs = np.where(
            self.values < 0, -1.0, 1.0
        )  # at even orders an image of a negative weight points backwards
        vectors = signs * self.images / np.linalg.norm(self.images, axis=0)
        return self.moved_to(kept_apart(self.components.vectors, vectors, self.values))

    def moved_to(self, vectors: FloatArray) -> Tracker:
        """Return the tracker with other vectors, and values so far corrected by what these say of
        the last ones.

        A value since the last move is that of a dual vector w, λ (wᵀv)ᵖ for the component λ v⊗ᵖ.
        """
        values = self.values
        if not self.orthogonal:
            # Overlaps beyond one half and two mean that vectors have changed so much that they say
            # nothing.
            overlaps = np.clip(
                np.sum(dual_vectors(self.components.vectors) * vectors, axis=0), 0.5, 2.0
            )
            settled = self.settled_weight * self.settled_values
            recent = self.weight * self.values - settled
            if self.weight:
                values = (settled + recent / overlaps**self.order) / self.weight
        components = Components(values, vectors, self.order)
        moved = replace(
            self,
            components=components,
            values=values,
            settled_weight=self.weight,
            settled_values=values,
        )
        combinations = self.combinations
        if combinations is None:
            return moved
        left = combinations.mean - _differences(components.image(self.probes[:, values.size :]))
        return moved._with_misfit(
            combinations.misfit(left, combinations.n_rows, float(np.max(np.abs(values))))
        )

    def compared_with(self, moment: Oracle, n_rows: int) -> Tracker:
        """Return the tracker with what its components leave of a moment over `n_rows` rows that is
        known as a whole.
        """
        if self.combinations is None:
            return self
        weights = self.components.weights
        probes = self.probes[:, weights.size :]
        left = _differences(moment.image(probes) - self.components.image(probes))
        return self._with_misfit(
            self.combinations.misfit(left, n_rows, float(np.max(np.abs(weights))))
        )

    def _with_misfit(self, misfit: float | None) -> Tracker:
        """Return the tracker with a misfit, the one before if it is not known, and no images of
        combinations.
        """
        return replace(self, misfit=self.misfit if misfit is None else misfit, combinations=None)

    def misfit_errors(self) -> FloatArray | None:
        """Return the angle by which each vector may be off because the tensor is not a sum of such
        components.

        None if images of combinations are not asked for.
        """
        if not self.combines:
            return None
        lengths = np.linalg.norm(dual_vectors(self.components.vectors), axis=0) ** (self.order - 1)
        angles: FloatArray = self.misfit * lengths / np.abs(self.values)
        return np.minimum(angles, math.pi / 2)

    def standard_errors(self) -> tuple[FloatArray, FloatArray] | None:
        """Return the standard errors of weights and of angles (in radians), or None after fewer
        than two deviations.

        The variance of one row is estimated from the spread between batches, and divided by the
        rows that the means stand for. The angle is π/2 for a vector that cannot be distinguished
        from the span of the others.
        """
        if self.n_deviations < 2:
            return None
        rows = self.n_deviations * self.weight**2 / self.squared_weight
        weight_errors = np.sqrt(np.maximum(self.value_spread, 0) / rows)
        across = np.sqrt(np.maximum(self.image_spread, 0) / rows)
        angle_errors = across / np.abs(self.values)
        misfits = self.misfit_errors()
        if misfits is not None:
            angle_errors = np.hypot(angle_errors, misfits)
        confirmed = self.confirmed
        if (
            confirmed is None and self.per_pass
        ):  # the rows that are read again are those that found the components
            d = self.components.dimension
            # Of a Gaussian tensor, T(u, u, v) has a third of the variance of T(u, u, u), in each of
            # d − 1 directions v.
            noise = across * math.sqrt(3 / max(1, d - 1))
            confirmed = np.abs(self.values) > (_GROUND_STATE * math.sqrt(d) + _ABOVE_FLOOR) * noise
        if confirmed is not None:
            angle_errors = np.where(confirmed, angle_errors, math.pi / 2)
        if (
            not self.orthogonal
        ):  # a vector that errs by more than it differs from the span of the others is not known
            apart = _distances(self.components.vectors)
            angle_errors = np.where(angle_errors < apart, angle_errors, math.pi / 2)
        return weight_errors, angle_errors

    def confirmed_by_last_rows(self, n_errors: float) -> NDArray[np.bool_]:
        """Tell which values over the rows since the vectors were moved last are larger than
        `n_errors` of their errors.

        These rows had no part in the vectors. After few deviations the errors themselves are
        uncertain, so the number of errors is that of Student's law.
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
        """Return the noise in the mean over that in one image, for batches of `n_rows` rows with
        equal noise.

        For batches of weights aᵢ it is √(Σ aᵢ²)/Σ aᵢ. None before there is anything to average.
        """
        if self.weight > 0:
            return math.sqrt(n_rows * self.squared_weight) / self.weight
        return None


def combinations_of(units: FloatArray) -> FloatArray:
    """Return z, z + e and z − e, scaled to unit length; z alone if the vectors span everything.

    A mean of the rows has the same sign in all components, and so shows in z. e depends on the
    numbers of vectors and dimensions only.
    """
    d, k = units.shape
    z: FloatArray = units.sum(axis=1, keepdims=True)
    z /= np.linalg.norm(z)
    if k == d:
        return z
    with one_blas_thread():
        basis = np.linalg.qr(units)[0]
        e: FloatArray = np.random.default_rng([d, k]).standard_normal((d, 1))
        for _ in range(2):  # once more for what rounding leaves
            e -= basis @ (basis.T @ e)
    e /= np.linalg.norm(e)
    return np.hstack([z, (z + e) / math.sqrt(2), (z - e) / math.sqrt(2)])


def _differences(images: FloatArray) -> FloatArray:
    """Return the image of z, and the difference of those of z + e and z − e over √2, or 0 if there
    are none.
    """
    if images.shape[1] == 1:
        turned = np.zeros(len(images))
    else:
        turned = (images[:, 1] - images[:, 2]) / math.sqrt(2)
    return np.column_stack([images[:, 0], turned])


def dual_vectors(vectors: FloatArray) -> FloatArray:
    """Return the vectors wᵢ in the span of the vⱼ with wᵢᵀvᵢ = 1 and wᵢᵀvⱼ = 0 for j ≠ i.

    A small ridge keeps them bounded where the vⱼ are linearly dependent; then wᵢᵀvⱼ is not quite 0,
    and an image errs by its square.
    """
    with one_blas_thread():  # results must not depend on the number of threads
        gram = vectors.T @ vectors + _RIDGE * np.eye(vectors.shape[1])
        solution = np.linalg.solve(gram, vectors.T).T
    dual: FloatArray = np.asarray(solution / np.sum(solution * vectors, axis=0), np.float64)
    return dual


def kept_apart(before: FloatArray, after: FloatArray, weights: FloatArray) -> FloatArray:
    """Return vectors after a joint step, those before it where one has moved into the span of
    stronger ones.

    A weak component beside a strong one has an image in which the strong one prevails as soon as
    vectors err by the root of the ratio of their weights. All would end at the strong one.
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
    distances: FloatArray = 1 / np.sqrt(
        np.sum(axes**2 / np.maximum(sizes, np.finfo(np.float64).eps), axis=1)
    )
    return distances


def _across(first: FloatArray, second: FloatArray, vectors: FloatArray) -> FloatArray:
    """Return ⟨first, second⟩ for each column, without the part along its vector."""
    along = np.sum(first * vectors, axis=0) * np.sum(second * vectors, axis=0)
    inner: FloatArray = np.sum(first * second, axis=0) - along
    return inner
