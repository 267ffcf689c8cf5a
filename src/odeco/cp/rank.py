"""The evidence for a rank: weights beside what noise alone would show on the sphere.

A weight is compared with the largest value of pure noise. The noise is taken to be a Gaussian symmetric tensor with the
norm of what remains after the component is subtracted. On the unit sphere such a tensor is a spherical p-spin glass.
The expected number of its local maxima above a level bounds the probability that noise alone reaches it
(`chance_of_noise`). In many dimensions this number is exp(d Θₚ(x/√d)) for x standard deviations, up to a power of d,
where Θₚ is the complexity of Auffinger, Ben Arous and Černý. Θₚ is zero at the level E₀ of the largest maximum.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy  # it imports its submodules when they are used; importing optimize takes longer than importing odeco

from odeco._util.state import State, array_field, require, usable_array
from odeco._util.types import FloatArray
from odeco.errors import RankError
from odeco.tensors.components import Components

#: The largest rank that is selected automatically.
MAX_AUTOMATIC = 100

#: A component is kept if noise alone has one as large with at most this probability.
SIGNIFICANCE = 5e-3

#: The tail of the noise is added up at this many levels, over this many standard deviations.
_N_LEVELS, _TAIL = 1000, 8.0

#: Chances below exp of this are zero: the power of d beside the exponential rate does not make up for it.
_NEGLIGIBLE_EXPONENT = -800.0

#: A rank is stated without reservation if its confidence is at least this.
SURE = 0.95

#: The power method ends after this number of components in a row that do not stand clear of the noise.
PATIENCE = 3

#: Up to this dimension the search looks at all d components before it ends. In few dimensions the signal that remains
#: can hide the first of many equal components: r of them raise the noise level to E₀√(p! r / dᵖ⁻¹) of their weight. At
#: order 3 this is below 1 for every r ≤ d only from d = 17 on.
SMALL_DIMENSION = 24


@dataclass(frozen=True, eq=False)
class RankEvidence(State):
    """The evidence for a rank: each weight beside the noise level that it is compared with.

    Attributes
    ----------
    rank : int
        The number of components kept.
    weights : array
        The weights in order of discovery, including those that were dropped.
    noise_levels : array
        For each weight, the largest weight that noise alone is expected to show.
    chances : array
        For each weight, an upper bound on the chance that noise alone shows one as large.
    confidence : float
        The chance that the rank is right: that no component kept is noise, and that none is undetected. It is 0 if the
        components have as many unknowns as the tensor has entries: they then fit any tensor.
    candidates : tuple of int
        The ranks that the evidence does not rule out, the selected one first.
    resolution : float
        The confidence is for components that can be told apart. Noise may hide two components of equal weight in one
        if their vectors differ by less than this angle in radians, across the span of all components. It may hide
        weights a and b at an angle θ if |ab| / (a + b)² θ² is less than a quarter of the square of this angle. With as
        many components as dimensions, or more, it is for any direction. For terms of an asymmetric tensor θ² is the
        product of the angles along two axes. NaN if pairs were not tested: by the power method, in a stream, without
        the entries of the tensor, for tensors that are symmetric along some axes, and with as many terms as an axis has
        entries.
    """

    rank: int = array_field(kind="i", low=0)
    weights: FloatArray = array_field("n_tested", rule=usable_array("n_tested"))
    noise_levels: FloatArray = array_field("n_tested", rule=usable_array("n_tested", low=0))
    chances: FloatArray = array_field("n_tested", low=0, high=1)
    confidence: float = array_field(low=0, high=1)
    candidates: tuple[int, ...] = array_field(None, kind="i", low=0, as_tuple=True)
    resolution: float = array_field(low=0, nan=True, default=math.nan)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        require(self.candidates[:1] == (self.rank,), "the rank must be the first of those that are not ruled out")


def evidence_from_deflation(weights: FloatArray, remaining: FloatArray, dimension: int, order: int) -> RankEvidence:
    """Test each weight, in order of discovery, against the noise that could be in what remained after it.

    `remaining` holds for each component the squared norm of the tensor without this component and those before it. If
    all of that is noise, a Gaussian symmetric tensor of squared norm N², then its variance at every unit vector is
    N² / C(d+p−1, p).
    """
    floor = np.finfo(np.float64).eps * np.max(weights**2, initial=0.0)
    deviation = np.sqrt(np.maximum(remaining, floor) / math.comb(dimension + order - 1, order))
    heights = np.abs(weights) / (deviation * math.sqrt(dimension))
    chances = np.array([chance_of_noise(height, dimension, order) for height in heights])
    clear = np.flatnonzero(chances <= SIGNIFICANCE)
    rank = int(clear[-1]) + 1 if clear.size else 0
    levels = ground_state(order) * deviation * math.sqrt(dimension)
    confidence = 1 - float(chances[rank - 1]) if rank else 0.0
    return RankEvidence(rank, weights, levels, chances, confidence, (rank,))


def no_signal_error(weights: FloatArray, noise_levels: FloatArray, found: Components, advice: str = "") -> RankError:
    """Say that no component stands clear of the noise, with further advice."""
    best = int(np.argmax(np.abs(weights) / noise_levels))
    return RankError(
        "At least one component must stand clear of the noise. "
        f"The clearest has weight {weights[best]:.3g}, where noise alone would show {noise_levels[best]:.3g}. "
        f"Pass n_components as an int to see it anyway.{advice}",
        found,
    )


def enough_seen(n_found: int, evidence: RankEvidence, dimension: int) -> bool:
    """Return whether further components would hardly change the rank."""
    return n_found >= (dimension if dimension <= SMALL_DIMENSION else evidence.rank + PATIENCE)


def chance_of_noise(height: float, dimension: int, order: int) -> float:
    """Return an upper bound on the chance that noise reaches `height` √d standard deviations anywhere on the sphere.

    It is the expected number of its local maxima above u = √d times the height, by the formula of Kac and Rice. With
    n = d − 1, at a point where the noise is u its Hessian is √(p(p−1)) times a Gaussian symmetric matrix, shifted by
    −p u, whose expected determinant is a Hermite polynomial, and the gradient has variance p. So the number is

        |Sⁿ| ((p−1)/2π)^(n/2) ∫ He_n(t √(p/(p−1))) φ(t) dt   over t > u,

    if all critical points there are maxima. They are from E∞ √d on, where the zeros of He_n end; below it, it is 1.
    """
    edge = 2 * math.sqrt((order - 1) / order)
    if height <= edge:
        return 1.0
    if dimension * complexity(height, order) < _NEGLIGIBLE_EXPONENT:
        return 0.0
    levels = math.sqrt(dimension) * height + np.linspace(0, _TAIL, _N_LEVELS)
    before, polynomial = np.zeros_like(levels), np.ones_like(levels)
    arguments = levels * math.sqrt(order / (order - 1))
    logarithm = np.zeros_like(levels)
    for degree in range(dimension - 1):
        before, polynomial = polynomial, arguments * polynomial - degree * before
        before, logarithm, polynomial = before / polynomial, logarithm + np.log(polynomial), np.ones_like(levels)
    area = math.log(2) + dimension / 2 * math.log(math.pi) - math.lgamma(dimension / 2)
    constant = area + (dimension - 1) / 2 * math.log((order - 1) / (2 * math.pi)) - 0.5 * math.log(2 * math.pi)
    density = np.exp(np.minimum(constant + logarithm - levels**2 / 2, 0.0))
    return min(1.0, float(np.trapezoid(density, levels)))


@lru_cache(maxsize=64)
def clear_height(dimension: int, order: int) -> float:
    """Return the height that noise exceeds with a chance of `SIGNIFICANCE`."""
    lowest = ground_state(order)

    def excess(height: float) -> float:
        return chance_of_noise(height, dimension, order) - SIGNIFICANCE

    return float(scipy.optimize.brentq(excess, lowest, 10 * lowest, xtol=1e-4))


class NoiseLaw(ABC):
    """What the largest value of Gaussian noise is, and with which chance.

    Heights are values over `unit` standard deviations.
    """

    def deviation(self, squared_norm: float, rank: int) -> float:
        """Return the standard deviation at a unit vector of noise of which a fit of `rank` components leaves this."""
        return math.sqrt(squared_norm / max(self.n_entries - rank * self.freedom, 1))

    def height(self, amount: float, deviation: float) -> float:
        """Return the height of a value in noise of this standard deviation."""
        return abs(amount) / (deviation * self.unit)

    @property
    @abstractmethod
    def n_entries(self) -> int:
        """How many independent entries noise has."""

    @property
    @abstractmethod
    def freedom(self) -> int:
        """How many numbers a component is described by."""

    @property
    @abstractmethod
    def unit(self) -> float:
        """The unit of heights, in standard deviations."""

    @property
    @abstractmethod
    def typical(self) -> float:
        """The height that noise alone reaches."""

    @property
    @abstractmethod
    def clear(self) -> float:
        """The height that noise exceeds with a chance of at most `SIGNIFICANCE`."""

    @abstractmethod
    def chance(self, height: float) -> float:
        """Return an upper bound on the chance that noise reaches a height."""


@dataclass(frozen=True)
class SymmetricNoise(NoiseLaw):
    """Symmetric noise on the unit sphere, by `chance_of_noise`; heights are in √d standard deviations."""

    dimension: int
    order: int

    @property
    def n_entries(self) -> int:
        """C(d+p−1, p)."""
        return math.comb(self.dimension + self.order - 1, self.order)

    @property
    def freedom(self) -> int:
        """A vector."""
        return self.dimension

    @property
    def unit(self) -> float:
        """√d."""
        return math.sqrt(self.dimension)

    @property
    def typical(self) -> float:
        """E₀."""
        return ground_state(self.order)

    @property
    def clear(self) -> float:
        """By `clear_height`."""
        return clear_height(self.dimension, self.order)

    def chance(self, height: float) -> float:
        """By `chance_of_noise`."""
        return chance_of_noise(height, self.dimension, self.order)


@dataclass(frozen=True)
class ProductNoise(NoiseLaw):
    """Noise with independent entries, at products of unit vectors u₁ ⊗ … ⊗ uₚ of the sizes d₁, …, dₚ.

    Its largest value X has a mean of at most Σ √dᵢ. For at two such products u and v, with the cosines cᵢ of uᵢ and vᵢ,
    the values differ by a variance of 2 − 2 Π cᵢ, and those of Σ ⟨gᵢ, uᵢ⟩, with independent Gaussian vectors gᵢ, by one
    of Σ (2 − 2 cᵢ). This is no less: the difference is linear in each cᵢ, so that it is least where all are ±1, and
    with m of them negative it is 4m − 2 + 2(−1)ᵐ ≥ 0. Then the mean of the largest value is no less either (Sudakov and
    Fernique), and that of the sum is Σ E‖gᵢ‖ ≤ Σ √dᵢ. Since the variance at every point is 1, X exceeds its mean by t
    with a chance of at most exp(−t²/2) (Borell; Tsirelson, Ibragimov and Sudakov).

    Heights are in Σ √dᵢ standard deviations. The bound is close: for three equal dᵢ the largest value is 2.87 √d, as
    the ground state of the symmetric tensor over all parts says, where the bound has 3 √d.
    """

    parts: tuple[int, ...]

    @property
    def n_entries(self) -> int:
        """All of them."""
        return math.prod(self.parts)

    @property
    def freedom(self) -> int:
        """A unit vector for each axis, and a weight."""
        return sum(self.parts) - len(self.parts) + 1

    @property
    def unit(self) -> float:
        """Σ √dᵢ."""
        return sum(math.sqrt(size) for size in self.parts)

    @property
    def typical(self) -> float:
        """1, the bound on the mean."""
        return 1.0

    @property
    def clear(self) -> float:
        """Where the bound on the chance is `SIGNIFICANCE`."""
        return 1 + math.sqrt(-2 * math.log(SIGNIFICANCE)) / self.unit

    def chance(self, height: float) -> float:
        """Return exp(−t²/2) for t standard deviations above the bound on the mean, 1 below it."""
        return math.exp(-0.5 * (max(height - 1, 0.0) * self.unit) ** 2)


@dataclass(frozen=True)
class PartlySymmetricNoise(ProductNoise):
    """Noise with independent entries up to the symmetry along some axes, at products a ⊗ … ⊗ a ⊗ c ⊗ ….

    If a occurs m times, the bound of `ProductNoise` on the variance of a difference has m terms 2 − 2 c for the cosine
    c of a and a'. They are the variance of √m ⟨g, a⟩, so that the mean of the largest value is at most √(m d) + Σ √dᵢ.
    """

    symmetric: tuple[int, ...]

    @property
    def _free(self) -> list[int]:
        """The sizes of the other axes."""
        return [size for axis, size in enumerate(self.parts) if axis not in self.symmetric]

    @property
    def n_entries(self) -> int:
        """The distinct ones."""
        return math.prod(self._free) * n_distinct(self.parts[self.symmetric[0]], len(self.symmetric))

    @property
    def freedom(self) -> int:
        """A unit vector for all symmetric axes together and for each of the others, and a weight."""
        return self.parts[self.symmetric[0]] + sum(self._free) - len(self._free)

    @property
    def unit(self) -> float:
        """√(m d) + Σ √dᵢ."""
        repeated = math.sqrt(len(self.symmetric) * self.parts[self.symmetric[0]])
        return repeated + sum(math.sqrt(size) for size in self._free)


def n_distinct(dimension: int, order: int) -> int:
    """Return the number of distinct entries of a symmetric tensor."""
    return math.comb(dimension + order - 1, order)


def complexity(height: float, order: int) -> float:
    """Return Θₚ, the exponential rate of the number of local maxima above `height` √d standard deviations.

    Maxima begin at E∞ = 2√((p−1)/p), so a height below E∞ counts as E∞.
    """
    edge = 2 * math.sqrt((order - 1) / order)
    u = max(height, edge)
    root = math.sqrt(max(u * u - edge * edge, 0.0))
    action = u * root / edge**2 - math.log((u + root) / edge)
    return 0.5 * math.log(order - 1) - (order - 2) / (4 * (order - 1)) * u * u - action


@lru_cache(maxsize=64)
def ground_state(order: int) -> float:
    """Return E₀: Gaussian noise on the sphere reaches about E₀ √d standard deviations (1.657 √d at order 3)."""
    edge = 2 * math.sqrt((order - 1) / order)
    return float(scipy.optimize.brentq(lambda height: complexity(height, order), edge, 10 * edge))
