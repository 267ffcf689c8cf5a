"""Problem and solution of a CP fit: a tensor with the algebra of its components, and what a fit of
it returns.

`CPProblem` is what `odeco.cp.fit` asks of every kind of tensor, `Fit` and `RankSelection` are what
fits return. `odeco.cp.symmetric` has one vector per component, `odeco.cp.asymmetric` one per axis.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np

from odeco._util.types import FloatArray
from odeco.cp.rank import SIGNIFICANCE, NoiseLaw, RankEvidence
from odeco.cp.spectrum import FEWEST_FOR_A_LAW, Spectra
from odeco.power.power_method import Schedule
from odeco.tensors.components import Components
from odeco.tensors.oracle import Oracle


class CPProblem(ABC):
    """A tensor to fit, with the algebra of its components.

    Attributes
    ----------
    oracle : Oracle
        The tensor, or the symmetric embedding of an asymmetric one.
    whole : float
        Its squared norm, known or estimated; 0 if it is neither.
    """

    oracle: Oracle
    whole: float

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
        """Return the signs of components, and their vectors scaled so that weights are products of
        lengths.
        """

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
        """Return the negative gradient of half the squared misfit over p, from the images of the
        points.
        """

    @abstractmethod
    def step(
        self, signs: FloatArray, points: FloatArray, descent: FloatArray, damping: float
    ) -> FloatArray:
        """Return the damped Gauss-Newton step."""

    @abstractmethod
    def residuals(
        self, components: Components, points: FloatArray, images: FloatArray
    ) -> FloatArray:
        """Return ‖T(I, v, …, v) − C(I, v, …, v)‖ for every component, given the images of its
        points.
        """

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
        """Whether the entries are at hand in double precision, and few enough to subtract
        components from them.
        """

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
        """Return the probability that noise makes a component look like two, and the resolution; 1
        and NaN: no test.

        The resolution is the angle up to which noise of this standard deviation at a unit vector
        may hide two components of equal weight in one; see `odeco.cp.rank.RankEvidence`.
        """
        return 1.0, math.nan

    @abstractmethod
    def run(self, plan: Schedule, generator: np.random.Generator) -> Components:
        """Return what the power method finds."""

    # What the flattening of a symmetric tensor of order 4 or more shows, and its unfolding does not

    def noise_beside(self, rank: int) -> float | None:  # noqa: ARG002
        """Return the squared norm of the noise beside `rank` components; None if the unfolding
        shows it as well.
        """
        return None

    def suggested_rank(self) -> int | None:
        """Return the number of components, if it is at most the dimension and there is noise to
        tell it from.
        """
        return None

    def rest_is_noise(self, rank: int, spectra: Spectra) -> bool:
        """Return whether what the unfoldings have beside `rank` components follows the law of
        noise.
        """
        return spectra.n_rest(rank) >= FEWEST_FOR_A_LAW and spectra.rest_is_noise(rank)

    # Starts

    def start(self, rank: int, generator: np.random.Generator) -> Components | None:  # noqa: ARG002
        """Return components near an optimum; None where other starts are faster."""
        return None

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
        """Return the tensor in coordinates that are divided by scales, one array for each
        unfolding.
        """

    @abstractmethod
    def slice_vectors(self, rank: int, generator: np.random.Generator) -> FloatArray:
        """Return the eigenvectors, or singular vectors, of a random slice."""

    @abstractmethod
    def pencil_vectors(self, rank: int, attempt: int, generator: np.random.Generator) -> FloatArray:
        """Return the vectors that solve the eigenvalue problem of a random pencil of slices."""

    @abstractmethod
    def normalised(self, directions: FloatArray, generator: np.random.Generator) -> FloatArray:
        """Return unit vectors, also in place of vectors that are zero."""


@dataclass(frozen=True, eq=False)
class Fit:
    """Components at a least-squares optimum.

    Attributes
    ----------
    components : Components
        Weights and vectors, in the order of the start.
    explained : float
        2⟨T, C⟩ − ‖C‖²: what the components take off the squared norm of the tensor.
    residuals : array
        ‖T(I, v, …, v) − C(I, v, …, v)‖ for every component: its distance from a stationary point.
    history : tuple of float
        Length of every step over that of the components.
    converged : bool
        Whether the fit ended before the largest number of steps.
    """

    components: Components
    explained: float
    residuals: FloatArray
    history: tuple[float, ...]
    converged: bool


#: A residual up to this multiple of the relative rounding error is rounding error, that of the fit
#: included: it grows with the root of the condition number of the Gauss-Newton matrix.
_ROUNDING_OF_FIT = 4096.0


Left = Literal["nothing", "noise", "unclear", "more"]


def rounding_error(problem: CPProblem) -> float:
    """Return the squared norm up to which a residual counts as rounding error."""
    eps = max(problem.oracle.rounding, float(np.finfo(np.float64).eps))
    return problem.whole * ((_ROUNDING_OF_FIT * eps) ** 2 if problem.has_entries else 100 * eps)


#: A residual with at most this share of the squared norm of the tensor is small beside it.
_SMALL = 0.01


def what_is_left(problem: CPProblem, misfit: float, chance: float, *, follows_law: bool) -> Left:
    """Return what a fit leaves.

    Many components together look like noise at every single vector. So a residual is called noise
    only if it is small beside the tensor, or if its spectrum follows the law of noise too.

    Parameters
    ----------
    problem
        The tensor.
    misfit
        The squared norm of the residual.
    chance
        The probability that noise has a value as large as the largest of the residual.
    follows_law
        Whether the spectrum of the residual has enough values to tell, and is that of noise.
    """
    if misfit <= rounding_error(problem):
        return "nothing"
    if chance <= SIGNIFICANCE:
        return "more"
    if follows_law or misfit <= _SMALL * problem.whole:
        return "noise"
    return "unclear"


@dataclass(frozen=True, eq=False)
class Stage:
    """What a fit is doing, for a callback.

    Attributes
    ----------
    status : str
        What comes next, in words.
    components : Components
        The components of the best fit so far; there may be none.
    """

    status: str
    components: Components


@dataclass(frozen=True, eq=False)
class RankSelection:
    """A fit with the evidence for its rank.

    Attributes
    ----------
    fit : Fit
        The components.
    evidence : RankEvidence or None
        The evidence for the rank, if it was selected.
    deviation : float
        Standard deviation of the noise at a unit vector.
    left : {"nothing", "noise", "unclear", "more"}
        What is left of the tensor: rounding error, what looks like noise, what may be noise or
        many components, or something that noise would not show.
    """

    fit: Fit
    evidence: RankEvidence | None
    deviation: float
    left: Left


Callback = Callable[[Stage], object]
