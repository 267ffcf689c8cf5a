"""The whole moment in one query: for small dimensions, and for private streams, where every query costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from odeco._util.arguments import check_n_components
from odeco._util.schema import require
from odeco._util.state import State, array_field, part_field
from odeco._util.types import FloatArray
from odeco.cp.small import decompose_noisy, fit_independent
from odeco.power.solver import FiniteSolver
from odeco.tensors.components import Components
from odeco.tensors.dense import DenseTensor
from odeco.tensors.packed import PackedTensor

#: The distinct entries of a tensor of this dimension take 86 MB, and as an array half a gigabyte.
MOST_DIMENSION = 400


@dataclass(frozen=True, eq=False)
class EntriesSolver(State, FiniteSolver):
    """A solver with one query, for every distinct entry of a moment of order 3, which it then decomposes.

    Attributes
    ----------
    dimension, n_components, seed
        What does not change.
    orthogonal : bool
        Whether components are taken to be orthogonal; otherwise linearly independent.
    found : Components or None
        The components, once the moment is known.
    """

    found_in_reply: ClassVar[bool] = True
    order: ClassVar[int] = 3
    n_queries: ClassVar[int] = 1
    status: ClassVar[str] = "the whole moment"
    description: ClassVar[str] = "the whole moment"

    dimension: int = array_field(kind="i", low=1, high=MOST_DIMENSION)
    n_components: int = array_field(kind="i", low=1)
    seed: int = array_field(kind="i", low=0)
    orthogonal: bool = array_field(kind="b")
    found: Components | None = part_field(Components, default=None)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        k, d, found = self.n_components, self.dimension, self.found
        require(k <= d, "there must be at most d components")
        fits = found is None or (found.n_components, found.dimension, found.order) == (k, d, 3)
        require(fits, "its components must be those that it was started for")

    @classmethod
    def start(cls, dimension: int, n_components: int, *, seed: int, orthogonal: bool = False) -> EntriesSolver:
        """Return the state before the first query."""
        check_columns(dimension)
        return cls(dimension, check_n_components(n_components, dimension), seed, orthogonal)

    @property
    def query(self) -> Literal["entries"]:
        """Which product is needed next."""
        return "entries"

    @property
    def probes(self) -> FloatArray:
        """A block without columns: the query has no vectors."""
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
    def n_replies(self) -> int:
        """The number of replies so far."""
        return int(self.done)

    def advance(self, reply: FloatArray, n_rows: int | None = None) -> EntriesSolver:  # noqa: ARG002 - one reply
        """Decompose the moment, given its distinct entries T[i, j, k], i ≥ j ≥ k, in the order of i, then j, then k."""
        found = decompose_moment(reply, self.dimension, self.n_components, self.seed, orthogonal=self.orthogonal)
        return replace(self, found=found)


def check_columns(dimension: int) -> None:
    """Raise if there are too many columns for all entries."""
    if dimension > MOST_DIMENSION:
        raise ValueError(
            f"method='entries' keeps d³/6 numbers, so rows must have at most {MOST_DIMENSION} columns. "
            f"Got {dimension:,}. Take method='core'."
        )


def decompose_moment(
    packed: FloatArray, dimension: int, n_components: int, seed: int, *, orthogonal: bool
) -> Components:
    """Decompose the moment whose distinct entries T[i, j, k], i ≥ j ≥ k, are given; largest weight first."""
    tensor = DenseTensor(PackedTensor(packed, dimension).to_dense())
    found = None if orthogonal else fit_independent(tensor, n_components, seed)
    if found is None:
        found = decompose_noisy(tensor, n_components, np.random.default_rng(seed))
    return found.sorted_by_weight()
