"""The evidence for a rank: weights beside what noise alone would show on the sphere.

A weight is compared with the largest value of pure noise. The noise is taken to be a Gaussian
symmetric tensor with the norm of what remains after the component is subtracted. On the unit sphere
such a tensor is a spherical p-spin glass. The expected number of its local maxima above a level
bounds the probability that noise alone reaches it (`chance_of_noise`). In many dimensions this
number is exp(d Θₚ(x/√d)) for x standard deviations, up to a power of d, where Θₚ is the complexity
of Auffinger, Ben Arous and Černý. Θₚ is zero at the level E₀ of the largest maximum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

# it imports its submodules when they are used; importing optimize takes longer than importing odeco
import scipy

from odeco._util.state import State, array_field, require, usable_array
from odeco._util.types import FloatArray
from odeco.errors import RankError
from odeco.tensors.components import Components

#: The largest rank that is selected automatically.
MAX_AUTOMATIC = 100

#: A component is kept if noise alone has one as large with at most this probability.
SIGNIFICANCE = 5e-3

#: The tail of the noise is added up at this many levels, over this many standard deviations.
_N_LEVELS = 1000
_TAIL = 8.0

#: Chances below exp of this are zero: the power of d beside the exponential rate does not make up
#: for it.
_NEGLIGIBLE_EXPONENT = -800.0

#: A rank is stated without reservation if its confidence is at least this.
SURE = 0.95

#: The power method ends after this number of components in a row that do not stand clear of the
#: noise.
PATIENCE = 3

#: Up to this dimension the search looks at all d components before it ends. In few dimensions the
#: signal that remains can hide the first of many equal components: r of them raise the noise level
#: to E₀√(p! r / dᵖ⁻¹) of their weight. At order 3 this is below 1 for every r ≤ d only from d = 17
#: on.
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
        The chance that the rank is right: that no component kept is noise, and that none is
        undetected. It is 0 if the components have as many unknowns as the tensor has entries: they
        then fit any tensor.
    candidates : tuple of int
        The ranks that the evidence does not rule out, the selected one first.
    resolution : float
        The confidence is for components that can be told apart. Noise may hide two components of
        equal weight in one if their vectors differ by less than this angle in radians, across the
        span of all components. It may hide weights a and b at an angle θ if |ab| / (a + b)² θ² is
        less than a quarter of the square of this angle. With as many components as dimensions, or
        more, it is for any direction. For terms of an asymmetric tensor θ² is the product of the
        angles along two axes. NaN if pairs were not tested: by the power method, in a stream,
        without the entries of the tensor, for tensors that are symmetric along some axes, and with
        as many terms as an axis has entries.
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
        require(
            self.candidates[:1] == (self.rank,),
            "the rank must be the first of those that are not ruled out",
        )

    def is_settled(self, n_found: int, dimension: int) -> bool:
        """Return whether further components would hardly change the rank."""
        return n_found >= (dimension if dimension <= SMALL_DIMENSION else self.rank + PATIENCE)


def evidence_from_deflation(
    weights: FloatArray, remaining: FloatArray, dimension: int, order: int
) -> RankEvidence:
    """Test each weight, in order of discovery, against the noise that could be in what remained
    after it.

    `remaining` holds for each component the squared norm of the tensor without this component and
    those before it. If all of that is noise, a Gaussian symmetric tensor of squared norm N², then
    its variance at every unit vector is N² / C(d+p−1, p).
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


def no_signal_error(
    weights: FloatArray, noise_levels: FloatArray, found: Components, advice: str = ""
) -> RankError:
    """Say that no component stands clear of the noise, with further advice."""
    best = int(np.argmax(np.abs(weights) / noise_levels))
    return RankError(
        "At least one component must stand clear of the noise. The clearest has weight "
        f"{weights[best]:.3g}, where noise alone would show {noise_levels[best]:.3g}. Pass "
        f"n_components as an int to see it anyway.{advice}",
        found,
    )


def chance_of_noise(height: float, dimension: int, order: int) -> float:
    """Return an upper bound on the chance that noise reaches `height` √d standard deviations
    anywhere on the sphere.

    It is the expected number of its local maxima above u = √d times the height, by the formula of
    Kac and Rice. With n = d − 1, at a point where the noise is u its Hessian is √(p(p−1)) times a
    Gaussian symmetric matrix, shifted by −p u, whose expected determinant is a Hermite polynomial,
    and the gradient has variance p. So the number is

        |Sⁿ| ((p−1)/2π)^(n/2) ∫ He_n(t √(p/(p−1))) φ(t) dt   over t > u,

    if all critical points there are maxima. They are from E∞ √d on, where the zeros of He_n end;
    below it, it is 1.
    """
    edge = 2 * math.sqrt((order - 1) / order)
    if height <= edge:
        return 1.0
    if dimension * complexity(height, order) < _NEGLIGIBLE_EXPONENT:
        return 0.0
    levels = math.sqrt(dimension) * height + np.linspace(0, _TAIL, _N_LEVELS)
    before = np.zeros_like(levels)
    polynomial = np.ones_like(levels)
    arguments = levels * math.sqrt(order / (order - 1))
    logarithm = np.zeros_like(levels)
    for degree in range(dimension - 1):
        before, polynomial = polynomial, arguments * polynomial - degree * before
        before = before / polynomial
        logarithm = logarithm + np.log(polynomial)
        polynomial = np.ones_like(levels)
    area = math.log(2) + dimension / 2 * math.log(math.pi) - math.lgamma(dimension / 2)
    constant = (
        area
        + (dimension - 1) / 2 * math.log((order - 1) / (2 * math.pi))
        - 0.5 * math.log(2 * math.pi)
    )
    density = np.exp(np.minimum(constant + logarithm - levels**2 / 2, 0.0))
    return min(1.0, float(np.trapezoid(density, levels)))


@lru_cache(maxsize=64)
def clear_height(dimension: int, order: int) -> float:
    """Return the height that noise exceeds with a chance of `SIGNIFICANCE`."""
    lowest = ground_state(order)

    def excess(height: float) -> float:
        return chance_of_noise(height, dimension, order) - SIGNIFICANCE

    return float(scipy.optimize.brentq(excess, lowest, 10 * lowest, xtol=1e-4))


@dataclass(frozen=True)
class NoiseLaw:
    """The law of the largest value of Gaussian noise. Heights are values over `unit` standard
    deviations.

    Attributes
    ----------
    n_entries, freedom : int
        How many independent entries noise has, and how many numbers describe a component.
    unit : float
        The unit of heights, in standard deviations.
    typical : float
        The height that noise alone reaches.
    clear : callable
        Returns the height that noise exceeds with a chance of at most `SIGNIFICANCE`.
    chance : callable
        Returns an upper bound on the chance that noise reaches a height.
    """

    n_entries: int
    freedom: int
    unit: float
    typical: float
    clear: Callable[[], float]
    chance: Callable[[float], float]

    def deviation(self, squared_norm: float, rank: int) -> float:
        """Return the standard deviation at a unit vector of noise of which a fit of `rank`
        components leaves this.
        """
        return math.sqrt(squared_norm / max(self.n_entries - rank * self.freedom, 1))

    def height(self, amount: float, deviation: float) -> float:
        """Return the height of a value in noise of this standard deviation."""
        return abs(amount) / (deviation * self.unit)


def symmetric_noise(dimension: int, order: int) -> NoiseLaw:
    """Return the law of symmetric noise on the unit sphere, by `chance_of_noise`; heights are in √d
    deviations.
    """
    return NoiseLaw(
        n_entries=n_distinct(dimension, order),
        freedom=dimension,
        unit=math.sqrt(dimension),
        typical=ground_state(order),
        clear=lambda: clear_height(dimension, order),
        chance=lambda height: chance_of_noise(height, dimension, order),
    )


def product_noise(parts: tuple[int, ...], symmetric: tuple[int, ...] = ()) -> NoiseLaw:
    """Return the law of noise with independent entries at products of unit vectors u₁ ⊗ … ⊗ uₚ of
    sizes d₁, …, dₚ.

    Its largest value X has a mean of at most Σ √dᵢ. For at two such products u and v, with the
    cosines cᵢ of uᵢ and vᵢ, the values differ by a variance of 2 − 2 Π cᵢ, and those of Σ ⟨gᵢ, uᵢ⟩,
    with independent Gaussian vectors gᵢ, by one of Σ (2 − 2 cᵢ). This is no less: the difference is
    linear in each cᵢ, so that it is least where all are ±1, and with m of them negative it is 4m −
    2 + 2(−1)ᵐ ≥ 0. Then the mean of the largest value is no less either (Sudakov and Fernique), and
    that of the sum is Σ E‖gᵢ‖ ≤ Σ √dᵢ. Since the variance at every point is 1, X exceeds its mean
    by t with a chance of at most exp(−t²/2) (Borell; Tsirelson, Ibragimov and Sudakov).

    Heights are in Σ √dᵢ standard deviations, so that the mean is at most 1. The bound is close: for
    three equal dᵢ the largest value is 2.87 √d, as the ground state of the symmetric tensor over
    all parts says, where the bound has 3 √d.

    Noise may be symmetric along some axes, at products a ⊗ … ⊗ a ⊗ c ⊗ …. If a occurs m times, the
    bound on the variance of a difference has m terms 2 − 2 c for the cosine c of a and a'. They are
    the variance of √m ⟨g, a⟩, so that the mean of the largest value is at most √(m d) + Σ √dᵢ.
    """
    n_shared = len(symmetric)
    vectors = [size for axis, size in enumerate(parts) if axis not in symmetric]
    n_entries = math.prod(vectors)
    unit = sum(math.sqrt(size) for size in vectors)
    if symmetric:  # one vector for all of these axes
        shared = parts[symmetric[0]]
        n_entries = n_entries * n_distinct(shared, n_shared)
        unit = math.sqrt(n_shared * shared) + unit
        vectors.append(shared)
    return NoiseLaw(
        n_entries=n_entries,
        freedom=sum(vectors) - len(vectors) + 1,  # unit vectors and a weight
        unit=unit,
        typical=1.0,
        clear=lambda: 1 + math.sqrt(-2 * math.log(SIGNIFICANCE)) / unit,
        chance=lambda height: math.exp(-0.5 * (max(height - 1, 0.0) * unit) ** 2),
    )


def n_distinct(dimension: int, order: int) -> int:
    """Return the number of distinct entries of a symmetric tensor."""
    return math.comb(dimension + order - 1, order)


def complexity(height: float, order: int) -> float:
    """Return Θₚ, the exponential rate of the number of local maxima above `height` √d standard
    deviations.

    Maxima begin at E∞ = 2√((p−1)/p), so a height below E∞ counts as E∞.
    """
    edge = 2 * math.sqrt((order - 1) / order)
    u = max(height, edge)
    root = math.sqrt(max(u * u - edge * edge, 0.0))
    action = u * root / edge**2 - math.log((u + root) / edge)
    return 0.5 * math.log(order - 1) - (order - 2) / (4 * (order - 1)) * u * u - action


@lru_cache(maxsize=64)
def ground_state(order: int) -> float:
    """Return E₀: Gaussian noise on the sphere reaches about E₀ √d standard deviations (1.657 √d at
    order 3).
    """
    edge = 2 * math.sqrt((order - 1) / order)
    return float(scipy.optimize.brentq(lambda height: complexity(height, order), edge, 10 * edge))


def n_identifiable_terms(parts: tuple[int, ...], symmetric: tuple[int, ...] = ()) -> int:
    """Return the largest number of terms that a random tensor of this shape determines.

    It is below Π dᵢ / (1 + Σ (dᵢ − 1)), the number of entries over that of the unknowns of a term,
    and if the largest axis has more than r = Π dᵢ − Σ (dᵢ − 1) entries, with the product and the
    sum over the others, below r; five shapes have one less (Chiantini, Ottaviani and
    Vannieuwenhoven 2014, who checked all shapes up to 15,000 entries). Three kinds of shape have
    one more. If the others are 2 x m, r = m, and the span of m of their rank-one matrices holds no
    further one: the terms of 2 x m x n with m ≤ n are those of a matrix pencil. 3 x 4 x 5 and 2 x 2
    x 2 x 3 determine as many terms as entries allow (Hauenstein, Oeding, Ottaviani and Sommese
    2019).

    Of a tensor that is symmetric along some axes only a bound is known: k terms are determined if Σ
    min(dᵢ, k) ≥ 2k + p − 1 (Kruskal 1977; Sidiropoulos and Bro 2000).
    """
    if symmetric:
        numbers = range(1, sum(parts))
        return max(
            (k for k in numbers if sum(min(size, k) for size in parts) >= 2 * k + len(parts) - 1),
            default=1,
        )
    *others, largest = sorted(parts)
    perfect = {(3, 4, 5): 6, (2, 2, 2, 3): 4}
    if (*others, largest) in perfect:
        return perfect[*others, largest]
    if len(others) == 2 and others[0] == 2:
        return others[1]
    most = -(-math.prod(parts) // (1 + sum(parts) - len(parts))) - 1
    unbalanced = math.prod(others) - sum(others) + len(others)
    if largest > unbalanced:
        most = min(most, unbalanced - 1)
    exceptions = {
        (3, 4, 4): 5,
        (4, 4, 4): 6,
        (3, 6, 6): 8,
        (2, 2, largest, largest): 2 * largest - 1,
        (2,) * 5: 5,
    }
    return most - (exceptions.get((*others, largest)) == most)
