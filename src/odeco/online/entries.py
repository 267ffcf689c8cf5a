"""The whole moment in one question: for small dimensions, and for private streams, where every question costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from odeco._util.arguments import check_n_components
from odeco._util.schema import Schema, Sizes, array, flag, require, size, whole
from odeco._util.types import FloatArray
from odeco.cp.small import decompose_noisy, fit_independent
from odeco.power.protocol import Finder
from odeco.power.tracking import Tracking
from odeco.tensors.components import Components
from odeco.tensors.dense import DenseTensor
from odeco.tensors.packed import PackedTensor

#: The distinct entries of a tensor of this dimension take 86 MB, and as an array half a gigabyte.
MOST_DIMENSION = 400


def _check_state(header: dict[str, Any], arrays: dict[str, Any], sizes: Sizes) -> None:  # noqa: ARG001 - all in arrays
    require(len(arrays) in (0, 2), "it must hold both the weights and the vectors of its components, or neither")
    require(
        sizes["k"] <= sizes["d"] <= MOST_DIMENSION, f"there must be at most d components, and {MOST_DIMENSION} columns"
    )
    require(not arrays or bool(np.all(np.any(arrays["vectors"], axis=0))), "no vector may be zero")


@dataclass(frozen=True, eq=False)
class EntriesSearch(Finder):
    """A search that asks one question: for every distinct entry of a moment of order 3. Then it decomposes that.

    Attributes
    ----------
    dimension, n_components, seed
        What does not change.
    orthogonal : bool
        Whether components are taken to be orthogonal; otherwise they need only be independent.
    found : Components or None
        The components, once the moment is known.
    """

    candidates_meet: ClassVar[bool] = False
    SCHEMA: ClassVar[Schema] = Schema(
        {
            "dimension": size("d"),
            "n_components": size("k"),
            "order": whole(3, 3),
            "seed": whole(),
            "orthogonal": flag(),
        },
        {},
        optional_arrays={"weights": array("k"), "vectors": array("d", "k")},
        relations=_check_state,
    )
    order: ClassVar[int] = 3
    n_questions: ClassVar[int] = 1
    doing: ClassVar[str] = "the whole moment"
    plan_in_words: ClassVar[str] = "the whole moment"

    dimension: int
    n_components: int
    seed: int
    orthogonal: bool
    found: Components | None = None

    @classmethod
    def start(cls, dimension: int, n_components: int, *, seed: int, orthogonal: bool = False) -> EntriesSearch:
        """Return the search that has asked nothing yet."""
        if dimension > MOST_DIMENSION:
            raise ValueError(
                f"method='entries' keeps d³/6 numbers, so rows must have at most {MOST_DIMENSION} columns. "
                f"Got {dimension:,}. Take method='core'."
            )
        return cls(dimension, check_n_components(n_components, dimension), seed, orthogonal)

    @property
    def question(self) -> Literal["entries"]:
        """What to ask next."""
        return "entries"

    @property
    def candidates(self) -> FloatArray:
        """A block without columns: the question is not about any vector."""
        return np.empty((self.dimension, 0))

    @property
    def components(self) -> Components:
        """The components, once the moment is known; none before."""
        return Components(np.empty(0), np.empty((self.dimension, 0))) if self.found is None else self.found

    @property
    def done(self) -> bool:
        """Whether the moment is decomposed."""
        return self.found is not None

    @property
    def n_answered(self) -> int:
        """How many questions are answered."""
        return int(self.done)

    def advance(self, answer: FloatArray, n_rows: int | None = None) -> EntriesSearch:  # noqa: ARG002 - one answer
        """Take in the distinct entries T[i, j, k], i ≥ j ≥ k, in the order of i, then j, then k."""
        tensor = DenseTensor(PackedTensor(answer, self.dimension).to_dense())
        found = None if self.orthogonal else fit_independent(tensor, self.n_components, self.seed)
        if found is None:
            found = decompose_noisy(tensor, self.n_components, np.random.default_rng(self.seed))
        return replace(self, found=found.sorted_by_weight())

    def tracked(
        self, *, n_rows: int = 0, forgetting: float = 1.0, holding: bool = False, orthogonal: bool = False
    ) -> Tracking:
        """Return what was found, as something that goes on learning; it counts as the `n_rows` rows of the moment."""
        return Tracking.start(
            self.components, n_rows=n_rows, forgetting=forgetting, holding=holding, orthogonal=orthogonal
        )

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the search as a JSON header and named arrays."""
        header = {name: getattr(self, name) for name in ("dimension", "n_components", "order", "seed", "orthogonal")}
        return header, {} if self.found is None else {"weights": self.found.weights, "vectors": self.found.vectors}

    @classmethod
    def from_arrays(cls, header: dict[str, Any], arrays: dict[str, Any]) -> EntriesSearch:
        """Return the search that `to_arrays` described."""
        found = Components(arrays["weights"], arrays["vectors"]) if "weights" in arrays else None
        return cls(header["dimension"], header["n_components"], header["seed"], header["orthogonal"], found)
