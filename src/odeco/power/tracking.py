"""Components that go on learning: average what images say about them, and let old images fade if the data drift.

For orthogonal components an error δ of a vector moves its image, once the others are subtracted, only by δ²: every
image of a nearly right vector is a fresh, nearly unbiased sight of the right one. So their mean over batches is the
refined component, and their spread gives its standard error.

If components are not orthogonal, the errors of the others move an image in first order. All errors together explain
the images of all, by a linear system that Gauss-Newton steps solve; its solution leads to sights that err by δ² again
(`_joint_step.sights`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from odeco._util.schema import Schema, Sizes, flag, number, require, tensor_order, unit_vectors, usable_array
from odeco._util.types import FloatArray
from odeco.cp.rank import RankEvidence
from odeco.power.evidence_file import EVIDENCE_ARRAYS, evidence_from_arrays, evidence_is_whole, evidence_to_arrays
from odeco.power.joint_step import sights
from odeco.tensors.components import Components


def _check_state(_: dict[str, Any], arrays: dict[str, Any], sizes: Sizes) -> None:
    require(1 <= sizes["k"] <= sizes["d"], "there must be 1 to d components")
    require(bool(np.all(np.any(arrays["images"], axis=0))), "no mean image may be zero")
    require(evidence_is_whole(arrays), "it must hold all of the evidence, or none")
    ranks = arrays.get("judged_ranks", [sizes["k"]])
    require(ranks[0] == sizes["k"], "its rank must be the number of its components")


@dataclass(frozen=True, eq=False)
class Tracking:
    """Components as they stand, and the weighted mean of their images: a value that `advance` replaces by the next.

    Attributes
    ----------
    components : Components
        The current estimate.
    forgetting : float
        What the weight of the past is multiplied by before each batch: 1 keeps all, 0.9 forgets in some ten batches.
    holding : bool
        Whether vectors wait for `settled` before they move: within one pass over a data set all images are of the same.
    orthogonal : bool
        Whether components are taken to be orthogonal, so that each sight comes from one image: noise that is far larger
        than the components, as in private runs, must not reach one through another.
    images : array, d x k
        The mean of all sights so far: images with what is due to the other components subtracted.
    values : array of k numbers
        The mean of their values.
    weight, squared_weight : float
        Rows that the means stand for; and Σ aᵢ²/rᵢ over batches of rᵢ rows and faded weight aᵢ, for their variance.
    value_spread, image_spread : arrays of k numbers
        Σ rᵢ (deviation of a batch)², of values and of images across their vector, faded as the weights are.
    n_deviations : float
        How many independent deviations the spreads are made of, faded likewise.
    rank_evidence : RankEvidence or None
        Why there are so many components, if their number was not given.
    """

    candidates_meet: ClassVar[bool] = False
    n_questions: ClassVar[None] = None
    doing: ClassVar[str] = "refining"
    plan_in_words: ClassVar[str] = "rows that refine"
    SCHEMA: ClassVar[Schema] = Schema(
        {
            "forgetting": number(0, 1),
            "holding": flag(),
            "orthogonal": flag(),
            **dict.fromkeys(("weight", "squared_weight", "n_deviations"), number(0, 2.0**63)),
            "order": tensor_order(),
        },
        {
            "images": usable_array("d", "k"),
            "vectors": unit_vectors("d", "k"),
            **dict.fromkeys(("values", "value_spread", "image_spread", "weights"), usable_array("k")),
        },
        optional_arrays=EVIDENCE_ARRAYS,
        relations=_check_state,
    )

    components: Components
    forgetting: float
    holding: bool
    orthogonal: bool
    images: FloatArray
    values: FloatArray
    weight: float
    squared_weight: float
    value_spread: FloatArray
    image_spread: FloatArray
    n_deviations: float
    rank_evidence: RankEvidence | None = None

    @classmethod
    def start(
        cls,
        components: Components,
        *,
        n_rows: int = 0,
        forgetting: float = 1.0,
        holding: bool = False,
        orthogonal: bool = False,
    ) -> Tracking:
        """Begin with components that were learnt from `n_rows` rows; 0 lets the first batch replace them."""
        k = components.n_components
        return cls(
            components=components,
            forgetting=forgetting,
            holding=holding,
            orthogonal=orthogonal,
            images=components.vectors * components.weights,
            values=components.weights,
            weight=float(n_rows),
            squared_weight=float(n_rows),
            value_spread=np.zeros(k),
            image_spread=np.zeros(k),
            n_deviations=0.0,
        )

    @property
    def question(self) -> Literal["image"]:
        """What to ask about `candidates` next."""
        return "image"

    @property
    def order(self) -> int:
        """The order of the moment."""
        return self.components.order

    @property
    def candidates(self) -> FloatArray:
        """The vectors to ask about next."""
        return self.components.vectors

    @property
    def done(self) -> bool:
        """Never: there is always more to learn."""
        return False

    @property
    def n_answered(self) -> int:
        """Not counted: there is no end to count towards."""
        return 0

    def advance(self, answer: FloatArray, n_rows: int | None = None) -> Tracking:
        """Take in the images of the current vectors, averaged over `n_rows` fresh rows."""
        if n_rows is None:
            raise TypeError("Components that go on learning must know how many rows an answer stands for. Pass n_rows.")
        vectors, weights = self.components.vectors, self.components.weights
        if self.orthogonal:
            image = answer - self.components.image(vectors) + vectors * weights  # all others subtracted
        else:
            image = sights(self.components, answer)
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
        return seen if self.holding else seen.settled()

    def settled(self) -> Tracking:
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

    def tracked(
        self, *, n_rows: int = 0, forgetting: float = 1.0, holding: bool = False, orthogonal: bool = False
    ) -> Tracking:
        """Begin to learn anew, from the components as they stand."""
        anew = Tracking.start(
            self.components, n_rows=n_rows, forgetting=forgetting, holding=holding, orthogonal=orthogonal
        )
        return replace(anew, rank_evidence=self.rank_evidence)

    def averaging(self, n_rows: int) -> float | None:
        """Return the noise in the mean over that in one image, for batches of `n_rows` rows with equal noise.

        For batches of weights aᵢ it is √(Σ aᵢ²)/Σ aᵢ. None before there is anything to average.
        """
        return math.sqrt(n_rows * self.squared_weight) / self.weight if self.weight > 0 else None

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the state as a JSON header and named arrays."""
        header = {name: getattr(self, name) for name in _HEADER_FIELDS}
        arrays = {name: getattr(self, name) for name in _ARRAY_FIELDS}
        own = {"vectors": self.components.vectors, "weights": self.components.weights}
        return {**header, "order": self.components.order}, arrays | own | evidence_to_arrays(self.rank_evidence)

    @classmethod
    def from_arrays(cls, header: dict[str, Any], arrays: dict[str, Any]) -> Tracking:
        """Return the state that `to_arrays` described."""
        components = Components(arrays["weights"], arrays["vectors"], header["order"])
        fields = {name: header[name] for name in _HEADER_FIELDS} | {name: arrays[name] for name in _ARRAY_FIELDS}
        return cls(components=components, **fields, rank_evidence=evidence_from_arrays(arrays))


_HEADER_FIELDS = ("forgetting", "holding", "orthogonal", "weight", "squared_weight", "n_deviations")

_ARRAY_FIELDS = ("images", "values", "value_spread", "image_spread")


def _across(first: FloatArray, second: FloatArray, vectors: FloatArray) -> FloatArray:
    """Return ⟨first, second⟩ for each column, without the part along its vector."""
    along = np.sum(first * vectors, axis=0) * np.sum(second * vectors, axis=0)
    inner: FloatArray = np.sum(first * second, axis=0) - along
    return inner
