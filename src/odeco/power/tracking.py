"""Refinement and tracking of components: average their images over batches, with forgetting if the data drift.

For orthogonal components an error δ of a vector changes its image, once the others are subtracted, only by δ²: every
image of a nearly right vector is a fresh, nearly unbiased estimate of the right one. So their mean over batches is the
refined component, and their spread gives its standard error.

If components are not orthogonal, the errors of the others change an image in first order. All errors together explain
the images of all, by a linear system that Gauss-Newton steps solve; its solution gives images that err by δ² again
(`_corrected_images`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from odeco._util.schema import require, usable_array
from odeco._util.state import State, array_field, part_field
from odeco._util.types import FloatArray
from odeco.cp.rank import RankEvidence
from odeco.power.gauss_newton_step import gauss_newton_step
from odeco.tensors.components import Components

if TYPE_CHECKING:
    from odeco.power.solver import Solver

#: The damping of `_corrected_images`, which keeps components that nearly coincide from repelling each other, and the
#: tolerance: no later step corrects them, so they are solved for to more digits than a Gauss-Newton step.
_DAMPING, _TOLERANCE = 1e-3, 1e-8

#: Weights and numbers of rows in a file are at most this.
_MAX_ROWS = 2.0**63


@dataclass(frozen=True, eq=False)
class Tracker(State):
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
    rank_evidence : RankEvidence or None
        The evidence for the number of components, if that was not given.
    """

    probes_converge: ClassVar[bool] = False
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
    rank_evidence: RankEvidence | None = part_field(RankEvidence, default=None)

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
        )

    @classmethod
    def after(cls, solver: Solver, *, n_rows: int = 0, **settings: Any) -> Tracker:
        """Begin with the components of another solver, largest weight first; `settings` are those of `start`.

        They count as the `n_rows` rows of its last reply if they were read off it. Those of a tracker keep their order.
        """
        found = solver.components if isinstance(solver, Tracker) else solver.components.sorted_by_weight()
        tracker = cls.start(found, n_rows=n_rows if solver.found_in_reply else 0, **settings)
        return replace(tracker, rank_evidence=solver.rank_evidence)

    @property
    def query(self) -> Literal["image"]:
        """Which product with `probes` is needed next."""
        return "image"

    @property
    def order(self) -> int:
        """The order of the moment."""
        return self.components.order

    @property
    def probes(self) -> FloatArray:
        """The current vectors."""
        return self.components.vectors

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
        else:
            image = _corrected_images(self.components, reply)
        value = np.sum(vectors * image, axis=0)
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
        )
        return seen if self.per_pass else seen.end_pass()

    def end_pass(self) -> Tracker:
        """Move every vector to the mean of its images."""
        signs = np.where(self.values < 0, -1.0, 1.0)  # at even orders an image of a negative weight points backwards
        vectors = signs * self.images / np.linalg.norm(self.images, axis=0)
        return replace(self, components=Components(self.values, vectors, self.components.order))

    def standard_errors(self) -> tuple[FloatArray, FloatArray] | None:
        """Return the standard errors of weights and of angles (in radians), or None after fewer than two deviations.

        The variance of one row is estimated from the spread between batches, and divided by the rows that the means
        stand for.
        """
        if self.n_deviations < 2:
            return None
        rows = self.n_deviations * self.weight**2 / self.squared_weight
        weight_errors = np.sqrt(np.maximum(self.value_spread, 0) / rows)
        angle_errors = np.sqrt(np.maximum(self.image_spread, 0) / rows) / np.abs(self.values)
        return weight_errors, angle_errors

    def noise_ratio(self, n_rows: int) -> float | None:
        """Return the noise in the mean over that in one image, for batches of `n_rows` rows with equal noise.

        For batches of weights aᵢ it is √(Σ aᵢ²)/Σ aᵢ. None before there is anything to average.
        """
        return math.sqrt(n_rows * self.squared_weight) / self.weight if self.weight > 0 else None


def _corrected_images(components: Components, images: FloatArray) -> FloatArray:
    """Return, for each component, the estimate λ v that the images of all give of it.

    The images differ from those of the components by what the errors of all components contribute, to first order:
    with zⱼ = λⱼ δⱼ and unit vectors for points, this is H(Z) of `gauss_newton_step`, in which no weight occurs. Along
    vⱼ, z counts p times in the weight. For orthogonal components the estimate is the image less the parts of the
    others.
    """
    vectors, weights, order = components.vectors, components.weights, components.order
    misfit = images - components.image(vectors)
    signs = np.ones_like(weights)
    change = gauss_newton_step(vectors, signs, misfit, order, damping=_DAMPING, tolerance=_TOLERANCE)
    along = np.sum(change * vectors, axis=0)
    corrected: FloatArray = change + vectors * (weights + (order - 1) * along)
    return corrected


def _across(first: FloatArray, second: FloatArray, vectors: FloatArray) -> FloatArray:
    """Return ⟨first, second⟩ for each column, without the part along its vector."""
    along = np.sum(first * vectors, axis=0) * np.sum(second * vectors, axis=0)
    inner: FloatArray = np.sum(first * second, axis=0) - along
    return inner
