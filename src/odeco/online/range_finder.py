"""Range finder and core: the fast way to the same components.

The image T(I, u, …, u) of *any* u lies in the span of the components. So the images of one block of random vectors,
asked two or three times, find that span; one more pass over the data accumulates the small core T(Q, …, Q) for a
basis Q of it; and the core is decomposed for free. A few rounds take the place of the k R rounds of Algorithm
2, and memory stays linear in d.

`CoreSolver` is driven as `PowerSolver` is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from odeco._util.arguments import MAX_ORDER, MINIMUM_ORDER, as_seed, check_count, check_n_components
from odeco._util.schema import require, unit_vectors
from odeco._util.state import array_field, part_field
from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray, RngLike
from odeco.cp.small import core_width, decompose_core, fit_independent
from odeco.errors import RankError
from odeco.power.solver import SolverState
from odeco.power.steps import uniform_starts
from odeco.tensors.components import Components, no_components
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
