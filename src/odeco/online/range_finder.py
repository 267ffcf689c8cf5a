"""Range finder and core: the fast way to the same components.

The image T(I, u, …, u) of *any* u lies in the span of the components. So the images of one block of random vectors,
asked two or three times, find that span; one more pass over the data accumulates the small core T(Q, …, Q) for a
basis Q of it; and the core is decomposed for free. A few rounds take the place of the k R rounds of Algorithm
2, and memory stays linear in d.

`CoreSearch` is driven as a `Search` is: ask its `question` about its `candidates`, hand the answer to `advance`,
until `done`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from odeco._util.arguments import as_seed, check_count, check_n_components
from odeco._util.schema import Schema, Sizes, flag, require, size, tensor_order, unit_vectors, usable_array, whole
from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray, RngLike
from odeco.cp.small import core_width, decompose_core, fit_independent
from odeco.errors import RankError
from odeco.power.iteration import uniform_within
from odeco.power.protocol import Finder
from odeco.power.tracking import Tracking
from odeco.tensors.components import Components
from odeco.tensors.dense import DenseTensor, symmetrize

#: Rounds of images before the core; one more changes little (see benchmarks/streaming.py).
DEFAULT_ROUNDS = 3

#: Directions beyond the k strongest that the next round asks in, for components that the noise still hides.
SPARE_DIRECTIONS = 2


def mixtures(basis: FloatArray, n_components: int, seed: list[int]) -> FloatArray:
    """Return random unit vectors in the span of the strongest directions of a basis, to ask about next.

    Not the basis itself: images are quadratic, and squaring the coordinates of an orthonormal basis can leave far fewer
    directions than it has. Random combinations have independent squares, so that their images span the components.
    """
    strong = basis[:, : n_components + SPARE_DIRECTIONS]
    return uniform_within(strong, basis.shape[1], np.random.default_rng(seed))


def _check_state(header: dict[str, Any], arrays: dict[str, Any], sizes: Sizes) -> None:
    n_answers = header["n_rounds"] + 1
    require(sizes["k"] <= sizes["m"] <= sizes["d"], "a search for k components must ask k to d vectors")
    require(header["round"] <= n_answers, f"`round` must be at most {n_answers}")
    complete = header["round"] == n_answers
    found = {"weights", "vectors"} & arrays.keys()
    require(len(found) == (2 if complete else 0), "it must hold components if all is answered, and only then")


@dataclass(frozen=True, eq=False)
class CoreSearch(Finder):
    """Where a range finder with core stands: a value that `advance` replaces by the next.

    Attributes
    ----------
    n_components, order, seed
        What does not change.
    orthogonal : bool
        Whether components are taken to be orthogonal; otherwise they need only be independent.
    n_rounds : int
        Images asked for before the core.
    round : int
        Answers taken in so far.
    candidates : array, d x m
        The orthonormal block to ask about next; m is 2k + 5, or d if that is less.
    found : Components or None
        The components, once the core is decomposed.
    """

    candidates_meet: ClassVar[bool] = False  # a basis is orthonormal, and mixtures are asked once
    SCHEMA: ClassVar[Schema] = Schema(
        {
            "n_components": size("k"),
            "order": tensor_order(),
            "seed": whole(),
            "orthogonal": flag(),
            "n_rounds": whole(1, 1000),
            "round": whole(),
        },
        {"candidates": unit_vectors("d", "m")},
        optional_arrays={"weights": usable_array("k"), "vectors": unit_vectors("d", "k")},
        relations=_check_state,
    )

    n_components: int
    order: int
    seed: int
    orthogonal: bool
    n_rounds: int
    round: int
    candidates: FloatArray
    found: Components | None = None

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
    ) -> CoreSearch:
        """Return the search that has asked nothing yet; `seed`, if given, is used instead of one drawn from `rng`."""
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
    def question(self) -> Literal["image", "core"]:
        """What to ask about `candidates` next."""
        return "image" if self.round < self.n_rounds else "core"

    @property
    def components(self) -> Components:
        """The components, once the core is decomposed; none before."""
        empty = Components(np.empty(0), np.empty((self.candidates.shape[0], 0)), self.order)
        return empty if self.found is None else self.found

    @property
    def n_questions(self) -> int:
        """How many questions it asks in all."""
        return self.n_rounds + 1

    @property
    def n_answered(self) -> int:
        """How many of them are answered."""
        return self.round

    @property
    def doing(self) -> str:
        """What the next answer is for, in words."""
        return "finding the span" if self.question == "image" else "core"

    @property
    def plan_in_words(self) -> str:
        """What its questions consist of."""
        return f"{self.n_rounds} rounds and a core"

    def advance(self, answer: FloatArray, n_rows: int | None = None) -> CoreSearch:  # noqa: ARG002 - no answer counts more
        """Take in the answer to `question` and return the next state."""
        if self.question == "image":
            with one_blas_thread():  # the bits of a decomposition depend on the number of threads
                basis = np.linalg.svd(answer, full_matrices=False)[0]
            last = self.round + 1 == self.n_rounds
            block = basis if last else mixtures(basis, self.n_components, [self.seed, self.round + 1])
            return replace(self, round=self.round + 1, candidates=block)
        return replace(self, round=self.round + 1, found=self._decompose(answer))

    def tracked(
        self,
        *,
        n_rows: int = 0,  # noqa: ARG002 - see below
        forgetting: float = 1.0,
        holding: bool = False,
        orthogonal: bool = False,
    ) -> Tracking:
        """Return what was found, as something that goes on learning.

        The vectors may err outside of the span of the core, whatever it was averaged over: the first image replaces
        them.
        """
        return Tracking.start(self.components, forgetting=forgetting, holding=holding, orthogonal=orthogonal)

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the search as a JSON header and named arrays."""
        names = ("n_components", "order", "seed", "orthogonal", "n_rounds", "round")
        header = {name: getattr(self, name) for name in names}
        arrays = {"candidates": self.candidates}
        if self.found is not None:
            arrays |= {"weights": self.found.weights, "vectors": self.found.vectors}
        return header, arrays

    @classmethod
    def from_arrays(cls, header: dict[str, Any], arrays: dict[str, Any]) -> CoreSearch:
        """Return the search that `to_arrays` described."""
        found = Components(arrays["weights"], arrays["vectors"], header["order"]) if "weights" in arrays else None
        return cls(**header, candidates=arrays["candidates"], found=found)

    def _decompose(self, core: FloatArray) -> Components:
        """Find the components of the core, and bring them back to d dimensions."""
        k, inside = self.n_components, None
        try:
            if not self.orthogonal:
                inside = fit_independent(DenseTensor(symmetrize(core)), k, self.seed)
            if inside is None:
                inside = decompose_core(core, k, np.random.default_rng(self.seed))
        except RankError as error:
            raise RankError(str(error), self._lifted(error.found)) from error
        return self._lifted(inside.sorted_by_weight())

    def _lifted(self, inside: Components) -> Components:
        return Components(inside.weights, self.candidates @ inside.vectors, self.order)
