"""What noise alone would show: on the sphere, and in the spectrum of the unfolding.

*On the sphere.* A weight is compared with the largest value of pure noise. The noise is taken to be a Gaussian
symmetric tensor with the norm of what remains after the component is subtracted. On the unit sphere such a tensor is a
spherical p-spin glass. The expected number of its local maxima above a level bounds the probability that noise alone
reaches it (`chance_of_noise`). In many dimensions this number is exp(d Θₚ(x/√d)) for x standard deviations, up to a
power of d, where Θₚ is the complexity of Auffinger, Ben Arous and Černý. Θₚ is zero at the level E₀, where the largest
maximum lies.

*In the unfolding.* The d x dᵖ⁻¹ unfolding M of Σ λᵢ aᵢ⊗ᵖ has rank k if the aᵢ are linearly independent. Noise adds to
every eigenvalue of M Mᵀ. For a symmetric Gaussian tensor the columns of M repeat: each of the N = C(d+p−2, p−1)
different ones occurs about (p−1)! times. So its eigenvalues follow the law of Marchenko and Pastur for N columns: they
lie between s(√N ± √d)² for a variance s, their largest deviates from the edge by Johnstone's law, with the quantiles of
Tracy and Widom, and their variance is d/N of their squared mean. An asymmetric tensor has an unfolding for each of its
axes, where all columns of noise are different. Of a tensor that is not known by its entries, images of random vectors
take the place of the unfolding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import scipy  # it imports its submodules when they are used; importing optimize takes longer than importing odeco

from odeco._util.schema import require, usable_array
from odeco._util.state import State, array_field
from odeco._util.threads import one_blas_thread
from odeco._util.types import DataArray, FloatArray
from odeco.errors import RankError
from odeco.tensors.components import Components
from odeco.tensors.oracle import Oracle

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
        The chance that the rank is right: that no component kept is noise, and that none is undetected.
    candidates : tuple of int
        The ranks that the evidence does not rule out, the selected one first.
    resolution : float
        The confidence is for components that can be told apart. Noise may hide two components of equal weight in one
        if their vectors differ by less than this angle in radians, across the span of all components. It may hide
        weights a and b at an angle θ if |ab| / (a + b)² θ² is less than a quarter of the square of this angle. With as
        many components as dimensions, or more, it is for any direction. For terms of an asymmetric tensor θ² is the
        product of the angles along two axes. NaN if pairs were not tested: by the power method, in a stream, without
        the entries of the tensor, if nothing is left of more components than dimensions, for tensors that are symmetric
        along some axes, and with as many terms as an axis has entries.
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


def no_signal_error(weights: FloatArray, noise_levels: FloatArray, found: Components) -> RankError:
    """Say that no component stands clear of the noise."""
    best = int(np.argmax(np.abs(weights) / noise_levels))
    return RankError(
        "At least one component must stand clear of the noise. "
        f"The clearest has weight {weights[best]:.3g}, where noise alone would show {noise_levels[best]:.3g}. "
        "Pass n_components as an int to see it all the same.",
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


class NoiseLaw(Protocol):
    """What the largest value of Gaussian noise is, and with which chance.

    Heights are values over `unit` standard deviations.
    """

    @property
    def n_entries(self) -> int:
        """How many independent entries noise has."""

    @property
    def freedom(self) -> int:
        """How many numbers a component is described by."""

    @property
    def unit(self) -> float:
        """The unit of heights, in standard deviations."""

    @property
    def typical(self) -> float:
        """The height that noise alone reaches."""

    @property
    def clear(self) -> float:
        """The height that noise exceeds with a chance of at most `SIGNIFICANCE`."""

    def chance(self, height: float) -> float:
        """Return an upper bound on the chance that noise reaches a height."""


@dataclass(frozen=True)
class SymmetricNoise:
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
class ProductNoise:
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


#: The law of Tracy and Widom (real case) as a gamma law: its shape, its scale, and its shift to the left (Chiani 2014).
_TRACY_WIDOM = (46.446, 0.186054, 9.84801)


def tracy_widom_chance(height: float) -> float:
    """Return the probability that the law of Tracy and Widom exceeds a height."""
    shape, scale, shift = _TRACY_WIDOM
    return float(scipy.special.gammaincc(shape, max(0.0, height + shift) / scale))


def tracy_widom_quantile(chance: float) -> float:
    """Return the height that the law of Tracy and Widom exceeds with a given probability."""
    shape, scale, shift = _TRACY_WIDOM
    return scale * float(scipy.special.gammainccinv(shape, chance)) - shift


#: The quantile of the law of Tracy and Widom (real case) that is exceeded with a chance of 1 in 1,000.
_EDGE_QUANTILE = 3.3

#: Eigenvalues that are smaller than this multiple of the rounding error of the largest are rounding error themselves.
ROUNDING_MULTIPLE = 100.0

#: The rounding of entries is noise of about their relative rounding error; a norm up to this multiple counts as such.
_ROUNDING_OF_ENTRIES = 32.0

#: A bulk of noise has the variance of its law up to this factor. Of d eigenvalues it fluctuates by a few parts in d.
_VARIANCE_FACTOR = 2.0

#: Fewer eigenvalues than this may follow a law by chance.
FEWEST_FOR_A_LAW = 12


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues of M Mᵀ, largest first, with their eigenvectors.

    Attributes
    ----------
    eigenvalues : array
        Of the unfolding, or of the images of as many random vectors.
    directions : array
        The eigenvectors, one a column.
    n_columns : int
        How many independent columns noise would have.
    rounding : float
        Eigenvalues up to this are rounding error.
    """

    eigenvalues: FloatArray
    directions: FloatArray
    n_columns: int
    rounding: float

    @property
    def n_usable(self) -> int:
        """How many eigenvalues are not rounding error."""
        return int(np.sum(self.eigenvalues > self.rounding))

    @property
    def n_clear(self) -> int:
        """How many of the leading eigenvalues stand clear of the noise that those after them show, one by one."""
        for rank in range(self.n_usable):
            rest = self.eigenvalues[rank:]
            if rest.size == 1 or rest[0] <= self._edge(rest):
                return rank
        return self.n_usable

    def spread(self, rank: int) -> float:
        """Return the variance of the eigenvalues after the first `rank` ones over that of noise."""
        rest = self.eigenvalues[rank:]
        return float(np.var(rest) / np.mean(rest) ** 2) * self.n_columns / rest.size

    def _edge(self, noise: FloatArray) -> float:
        """Return what the largest eigenvalue of noise with this mean exceeds with a chance of 1 in 1,000."""
        rows, columns = math.sqrt(noise.size), math.sqrt(self.n_columns)
        centre = (rows + columns) ** 2
        width: float = (rows + columns) * (1 / rows + 1 / columns) ** (1 / 3)
        return float(np.mean(noise)) / self.n_columns * (centre + _EDGE_QUANTILE * width)


@dataclass(frozen=True, eq=False)
class Spectra:
    """The spectra of all unfoldings: one of a symmetric tensor, one for each axis of an asymmetric one.

    An unfolding of k terms has rank k if their vectors along its axis are independent, and less if they are not. So the
    largest rank counts.
    """

    spectra: tuple[Spectrum, ...]

    @property
    def n_usable(self) -> int:
        """How many eigenvalues of some unfolding are not rounding error."""
        return max(spectrum.n_usable for spectrum in self.spectra)

    @property
    def n_clear(self) -> int:
        """How many eigenvalues of some unfolding stand clear of the noise."""
        return max(spectrum.n_clear for spectrum in self.spectra)

    def n_rest(self, rank: int) -> int:
        """Return the number of eigenvalues after the first `rank` ones, over all unfoldings."""
        return sum(max(0, spectrum.eigenvalues.size - rank) for spectrum in self.spectra)

    def rest_is_noise(self, rank: int) -> bool:
        """Return whether the eigenvalues after the first `rank` ones spread as those of noise do, not more nor less.

        Fewer than `FEWEST_FOR_A_LAW` of them may do so by chance.
        """
        if self.n_usable <= rank:
            return True
        if any(spectrum.n_usable < spectrum.eigenvalues.size for spectrum in self.spectra):
            return False
        rests = [(spectrum, spectrum.eigenvalues.size - rank) for spectrum in self.spectra]
        spread = sum(each.spread(rank) * rest for each, rest in rests if rest > 0) / self.n_rest(rank)
        return 1 / _VARIANCE_FACTOR <= spread <= _VARIANCE_FACTOR

    def noise_after(self, rank: int) -> float | None:
        """Return the squared norm of noise with the mean eigenvalue of those after the first `rank` ones, if any."""
        all_of_them = [each.eigenvalues for each in self.spectra if each.eigenvalues.size > rank]
        return min((float(np.mean(each[rank:])) * each.size for each in all_of_them), default=None)

    def leading(self, rank: int) -> list[tuple[FloatArray, FloatArray]]:
        """Return for each unfolding its leading directions, `rank` or as many as it has, and their strengths."""
        widths = [min(rank, spectrum.n_usable) for spectrum in self.spectra]
        return [
            (spectrum.directions[:, :width], np.sqrt(spectrum.eigenvalues[:width]))
            for spectrum, width in zip(self.spectra, widths, strict=True)
        ]


def spectrum_of(
    oracle: Oracle,
    width: int,
    generator: np.random.Generator,
    gram: FloatArray | None,
    entries: Callable[[], FloatArray] | None = None,
) -> Spectrum:
    """Return the spectrum of the unfolding, or that of the images of at least `width` random vectors.

    `gram` is the Gram matrix of the unfolding, if it is known. It has squares of singular values, so that those below
    1e-7 of the largest are lost in rounding errors. Where this happens, they are computed from the entries, if these
    can be had.
    """
    if gram is None:
        with one_blas_thread():
            return _spectrum_of_images(oracle, width, generator)
    n_columns = math.comb(oracle.dimension + oracle.order - 2, oracle.order - 1)
    spectrum = spectrum_of_gram(gram, n_columns, oracle.rounding)
    if spectrum.n_usable == spectrum.eigenvalues.size or entries is None:
        return spectrum
    return _spectrum_of_unfolding(entries().reshape(oracle.dimension, -1), n_columns, oracle.rounding)


def spectra_of_axes(entries: DataArray, rounding: float) -> Spectra:
    """Return the spectra of the unfoldings along each axis. The columns of noise are all different there."""
    spectra = []
    for axis, size in enumerate(entries.shape):
        others = [other for other in range(entries.ndim) if other != axis]
        with one_blas_thread():
            gram: FloatArray = np.tensordot(entries, entries, axes=(others, others))
        spectrum = spectrum_of_gram(gram, entries.size // size, rounding)
        if spectrum.n_usable < size:
            unfolding = np.moveaxis(entries, axis, 0).reshape(size, -1)
            spectrum = _spectrum_of_unfolding(unfolding, entries.size // size, rounding)
        spectra.append(spectrum)
    return Spectra(tuple(spectra))


def spectrum_of_gram(gram: FloatArray, n_columns: int, rounding: float) -> Spectrum:
    """Return the spectrum of an unfolding M from M Mᵀ."""
    with one_blas_thread():  # the bits of a decomposition depend on the number of threads
        values, vectors = np.linalg.eigh(gram)
    return Spectrum(values[::-1], vectors[:, ::-1], n_columns, ROUNDING_MULTIPLE * rounding * float(values[-1]))


def _spectrum_of_unfolding(unfolding: DataArray, n_columns: int, rounding: float) -> Spectrum:
    """Return the spectrum from singular values themselves, which are accurate to the rounding of the largest."""
    with one_blas_thread():
        matrix: DataArray = unfolding.astype(np.float64, copy=False)
        if matrix.shape[1] > matrix.shape[0]:  # the triangular factor has the same left singular vectors, and is small
            matrix = scipy.linalg.qr(matrix.T, mode="r", check_finite=False)[0][: matrix.shape[0]].T
        left, strengths, _ = np.linalg.svd(matrix, full_matrices=False)
    return Spectrum(strengths**2, left, n_columns, (_ROUNDING_OF_ENTRIES * rounding * float(strengths[0])) ** 2)


def _spectrum_of_images(oracle: Oracle, width: int, generator: np.random.Generator) -> Spectrum:
    """Return the spectrum of images.

    The second round asks about vectors inside the span that the first one found, where images are larger by a factor of
    about d / k while noise stays as it is.
    """
    dimension = oracle.dimension
    count = min(max(2 * width + 5, 2 * FEWEST_FOR_A_LAW), 2 * dimension)
    asked = generator.standard_normal((dimension, count))
    for more in (True, False):
        images = oracle.image(asked / np.linalg.norm(asked, axis=0))
        left, strengths, _ = np.linalg.svd(images, full_matrices=False)
        usable = int(np.sum(strengths > ROUNDING_MULTIPLE * oracle.rounding * strengths[0]))
        if more:
            basis = left[:, : max(1, min(usable, width))]
            asked = basis @ generator.standard_normal((basis.shape[1], count))
    n_rows, n_columns = sorted(images.shape)
    rounding = (ROUNDING_MULTIPLE * oracle.rounding * float(strengths[0])) ** 2
    return Spectrum(strengths[:n_rows] ** 2, left[:, :n_rows], n_columns, rounding)
