"""A tensor to fit with the algebra of its components: what `odeco.cp.fit` asks of every kind of tensor.

`odeco.cp.symmetric` has one vector per component, `odeco.cp.asymmetric` one per axis.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol, Self

import numpy as np

from odeco._util.types import FloatArray
from odeco.cp.rank import NoiseLaw
from odeco.cp.spectrum import Spectra
from odeco.power.power_method import Schedule
from odeco.tensors.components import Components
from odeco.tensors.oracle import Oracle


class Flattening(Protocol):
    """What the flattening of a symmetric tensor of order 4 or more shows, and its unfolding does not."""

    def noise_beside(self, rank: int) -> float | None:
        """Return the squared norm of the noise beside `rank` components; None if the unfolding shows it as well."""

    def suggested_rank(self) -> int | None:
        """Return the number of components, if it is at most the dimension and there is noise to tell it from."""

    def start(self, rank: int, generator: np.random.Generator) -> Components | None:
        """Return components near an optimum; None for few of them, where other starts are faster."""


class CPProblem(ABC):
    """A tensor to fit, with the algebra of its components.

    Attributes
    ----------
    oracle : Oracle
        The tensor, or the symmetric embedding of an asymmetric one.
    whole : float
        Its squared norm, known or estimated; 0 if it is neither.
    n_entries : int
        The number of its independent entries.
    flattening : Flattening or None
        What the flattening shows, if it is formed.
    """

    oracle: Oracle
    whole: float
    n_entries: int
    flattening: Flattening | None = None

    @property
    @abstractmethod
    def noise(self) -> NoiseLaw:
        """The law of the largest value of noise."""

    @property
    @abstractmethod
    def n_identifiable(self) -> int:
        """The largest number of components that a random tensor of this kind determines."""

    # The fit

    @abstractmethod
    def as_points(self, components: Components) -> tuple[FloatArray, FloatArray]:
        """Return the signs of components, and their vectors scaled so that weights are products of lengths."""

    @abstractmethod
    def from_points(self, signs: FloatArray, points: FloatArray) -> Components:
        """Return the components that `as_points` makes these points of."""

    @abstractmethod
    def image(self, points: FloatArray) -> FloatArray:
        """Return the contractions of the tensor with all vectors of a component but one."""

    @abstractmethod
    def gain(self, signs: FloatArray, points: FloatArray, images: FloatArray) -> float:
        """Return 2⟨T, C⟩ − ‖C‖², which is ‖T‖² less the squared misfit."""

    @abstractmethod
    def descent(self, signs: FloatArray, points: FloatArray, images: FloatArray) -> FloatArray:
        """Return the negative gradient of half the squared misfit over p, from the images of the points."""

    @abstractmethod
    def step(self, signs: FloatArray, points: FloatArray, descent: FloatArray, damping: float) -> FloatArray:
        """Return the damped Gauss-Newton step."""

    @abstractmethod
    def residuals(self, components: Components, points: FloatArray, images: FloatArray) -> FloatArray:
        """Return ‖T(I, v, …, v) − C(I, v, …, v)‖ for every component, given the images of its points."""

    @abstractmethod
    def gram(self, vectors: FloatArray) -> FloatArray:
        """Return the inner products of the rank-one tensors of unit vectors."""

    @abstractmethod
    def values(self, vectors: FloatArray) -> FloatArray:
        """Return the inner products of the tensor with the rank-one tensors of unit vectors."""

    # The residual tensor

    @property
    @abstractmethod
    def has_entries(self) -> bool:
        """Whether the entries are at hand in double precision, and few enough to subtract components from them."""

    @abstractmethod
    def residual(self, components: Components) -> CPProblem:
        """Return the tensor minus components from its entries, which are not all zero."""

    @abstractmethod
    def misfit(self, components: Components) -> float:
        """Return ‖T − C‖² from the entries, accurate also where it is tiny."""

    @abstractmethod
    def without(self, components: Components) -> CPProblem:
        """Return the tensor minus components."""

    def test_pairs(self, components: Components, deviation: float) -> tuple[float, float]:  # noqa: ARG002
        """Return the probability that noise makes a component look like two, and the resolution; 1 and NaN: no test.

        The resolution is the angle up to which noise of this standard deviation at a unit vector may hide two
        components of equal weight in one; see `odeco.cp.rank.RankEvidence`.
        """
        return 1.0, math.nan

    @abstractmethod
    def run(self, plan: Schedule, generator: np.random.Generator) -> Components:
        """Return what the power method finds."""

    # Starts

    @abstractmethod
    def spectra(self, width: int, generator: np.random.Generator) -> Spectra:
        """Return the spectra of the unfoldings, or those of at least `width` images."""

    @abstractmethod
    def inside(self, bases: Sequence[FloatArray]) -> Self:
        """Return the tensor in the coordinates of an orthonormal basis for each unfolding."""

    @abstractmethod
    def outside(self, bases: Sequence[FloatArray], components: Components) -> Components:
        """Return components of the tensor that `inside` returns as components of this one."""

    @abstractmethod
    def divided(self, scales: Sequence[FloatArray]) -> Self:
        """Return the tensor in coordinates that are divided by scales, one array for each unfolding."""

    @abstractmethod
    def slice_vectors(self, rank: int, generator: np.random.Generator) -> FloatArray:
        """Return the eigenvectors, or singular vectors, of a random slice."""

    @abstractmethod
    def pencil_vectors(self, rank: int, attempt: int, generator: np.random.Generator) -> FloatArray:
        """Return the vectors that solve the eigenvalue problem of a random pencil of slices."""

    @abstractmethod
    def normalised(self, directions: FloatArray, generator: np.random.Generator) -> FloatArray:
        """Return unit vectors, also in place of vectors that are zero."""
