"""Range finder and core: the fast way to the same components.

The image T(I, u, …, u) of *any* u lies in the span of the components. So the images of one block of random vectors,
asked two or three times, find that span; one more pass over the data accumulates the small core T(Q, …, Q) for a
basis Q of it; and Algorithm 1 runs on the core for free. A few rounds take the place of the k R rounds of Algorithm
2, and memory stays linear in d.

`CoreSearch` is driven as a `Search` is: ask its `question` about its `candidates`, hand the answer to `advance`,
until `done`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from odeco._arguments import as_seed, check_count, check_n_components
from odeco._types import FloatArray, RngLike
from odeco.components import Components
from odeco.errors import RankError
from odeco.search._plan import Plan
from odeco.search._power import run
from odeco.search._sphere import uniform_within
from odeco.tensors import DenseTensor, symmetrize

#: Rounds of images before the core; one more changes little (see benchmarks/streaming.py).
DEFAULT_ROUNDS = 3
#: Directions beyond the k strongest that the next round asks in, for components that the noise still hides.
SPARE_DIRECTIONS = 2
#: The core of a sample is noisy, so its components need not be found to more digits than this.
CORE_TOLERANCE = 1e-6


def core_width(dimension: int, n_components: int) -> int:
    """Return how many directions are asked about to find the span of k components: 2k + 5, or d if that is less."""
    return min(dimension, 2 * n_components + 5)


@dataclass(frozen=True, eq=False)
class CoreSearch:
    """Where a range finder with core stands: a value that `advance` replaces by the next.

    Attributes
    ----------
    n_components, order, seed
        What does not change.
    n_rounds : int
        Images asked for before the core.
    round : int
        Answers taken in so far.
    candidates : array, d x m
        The orthonormal block to ask about next; m is `core_width`.
    found : Components or None
        The components, once the core is decomposed.
    """

    n_components: int
    order: int
    seed: int
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
    ) -> CoreSearch:
        """Return the search that has asked nothing yet; `seed`, if given, is used instead of one drawn from `rng`."""
        k = check_n_components(n_components, dimension)
        seed = as_seed(rng) if seed is None else seed
        block = np.linalg.qr(np.random.default_rng(seed).standard_normal((dimension, core_width(dimension, k))))[0]
        return cls(k, order, seed, check_count("n_rounds", n_rounds), 0, block)

    @property
    def done(self) -> bool:
        """Whether the core is decomposed."""
        return self.found is not None

    @property
    def question(self) -> Literal["image", "core"]:
        """What to ask about `candidates` next."""
        return "image" if self.round < self.n_rounds else "core"

    def advance(self, answer: FloatArray) -> CoreSearch:
        """Take in the answer to `question` and return the next state."""
        if self.question == "image":
            basis = np.linalg.svd(answer, full_matrices=False)[0]
            last = self.round + 1 == self.n_rounds
            return replace(self, round=self.round + 1, candidates=basis if last else self._mixed(basis))
        return replace(self, round=self.round + 1, found=self._decompose(answer))

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the search as a JSON header and named arrays."""
        header = {name: getattr(self, name) for name in ("n_components", "order", "seed", "n_rounds", "round")}
        arrays = {"candidates": self.candidates}
        if self.found is not None:
            arrays |= {"weights": self.found.weights, "vectors": self.found.vectors}
        return header, arrays

    @classmethod
    def from_arrays(cls, header: dict[str, Any], arrays: dict[str, Any]) -> CoreSearch:
        """Return the search that `to_arrays` described."""
        found = Components(arrays["weights"], arrays["vectors"], header["order"]) if "weights" in arrays else None
        return cls(**header, candidates=arrays["candidates"], found=found)

    def _mixed(self, basis: FloatArray) -> FloatArray:
        """Return random unit vectors in the span of the strongest directions, to ask about next.

        Not the basis itself: images are quadratic, and squaring the coordinates of an orthonormal basis can leave far
        fewer directions than it has. Random combinations have independent squares, so that their images span the
        components.
        """
        strong = basis[:, : self.n_components + SPARE_DIRECTIONS]
        generator = np.random.default_rng([self.seed, self.round + 1])
        return uniform_within(strong, basis.shape[1], generator)

    def _decompose(self, core: FloatArray) -> Components:
        """Run Algorithm 1 on the core and bring what it finds back to d dimensions."""
        tensor = DenseTensor(symmetrize(core))
        plan = Plan.default(tensor.dimension, self.n_components, tolerance=CORE_TOLERANCE)
        try:
            inside = run(tensor, plan, rng=self.seed).components
        except RankError as error:
            raise RankError(str(error), self._lifted(error.found)) from error
        first = inside.largest_first()
        return self._lifted(Components(inside.weights[first], inside.vectors[:, first], self.order))

    def _lifted(self, inside: Components) -> Components:
        return Components(inside.weights, self.candidates @ inside.vectors, self.order)
