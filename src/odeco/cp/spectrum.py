"""What noise alone would show in the spectrum of the unfolding, or of the flattening
(`FlatteningSpectrum`).

The d x dᵖ⁻¹ unfolding M of Σ λᵢ aᵢ⊗ᵖ has rank k if the aᵢ are linearly independent. Noise adds to
every eigenvalue of M Mᵀ. For a symmetric Gaussian tensor the columns of M repeat: each of the N =
C(d+p−2, p−1) different ones occurs about (p−1)! times. So its eigenvalues follow the law of
Marchenko and Pastur for N columns: they lie between s(√N ± √d)² for a variance s, their largest
deviates from the edge by Johnstone's law, with the quantiles of Tracy and Widom, and their variance
is d/N of their squared mean. An asymmetric tensor has an unfolding for each of its axes, where all
columns of noise are different. Of a tensor that is not known by its entries, images of random
vectors take the place of the unfolding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy  # it imports its submodules when they are used

from odeco._util.threads import one_blas_thread
from odeco._util.types import DataArray, FloatArray
from odeco.power.steps import normalise
from odeco.tensors.asymmetric import split
from odeco.tensors.oracle import Oracle

#: The law of Tracy and Widom (real case) as a gamma law: its shape, its scale, and its shift to the
#: left (Chiani 2014).
_TRACY_WIDOM = (46.446, 0.186054, 9.84801)


def tracy_widom_chance(height: float) -> float:
    """Return the probability that the law of Tracy and Widom exceeds a height."""
    shape, scale, shift = _TRACY_WIDOM
    return float(scipy.special.gammaincc(shape, max(0.0, height + shift) / scale))


def tracy_widom_quantile(chance: float) -> float:
    """Return the height that the law of Tracy and Widom exceeds with a given probability."""
    shape, scale, shift = _TRACY_WIDOM
    return scale * float(scipy.special.gammainccinv(shape, chance)) - shift


#: The quantile of the law of Tracy and Widom (real case) that is exceeded with a chance of 1 in
#: 1,000.
_EDGE_QUANTILE = 3.3

#: Eigenvalues that are smaller than this multiple of the rounding error of the largest are rounding
#: error themselves.
ROUNDING_MULTIPLE = 100.0

#: The rounding of entries is noise of about their relative rounding error; a norm up to this
#: multiple counts as such.
_ROUNDING_OF_ENTRIES = 32.0

#: A bulk of noise has the variance of its law up to this factor. Of d eigenvalues it fluctuates by
#: a few parts in d.
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
        """How many of the leading eigenvalues stand clear of the noise that those after them show,
        one by one.
        """
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
        """Return what the largest eigenvalue of noise with this mean exceeds with a chance of 1 in
        1,000.
        """
        rows = math.sqrt(noise.size)
        columns = math.sqrt(self.n_columns)
        centre = (rows + columns) ** 2
        width: float = (rows + columns) * (1 / rows + 1 / columns) ** (1 / 3)
        return float(np.mean(noise)) / self.n_columns * (centre + _EDGE_QUANTILE * width)


@dataclass(frozen=True, eq=False)
class Spectra:
    """The spectra of all unfoldings: one of a symmetric tensor, one for each axis of an asymmetric
    one.

    An unfolding of k terms has rank k if their vectors along its axis are independent, and less if
    they are not. So the largest rank counts.
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
        """Return whether the eigenvalues after the first `rank` ones spread as those of noise do,
        not more nor less.

        Fewer than `FEWEST_FOR_A_LAW` of them may do so by chance.
        """
        if self.n_usable <= rank:
            return True
        if any(spectrum.n_usable < spectrum.eigenvalues.size for spectrum in self.spectra):
            return False
        rests = [(spectrum, spectrum.eigenvalues.size - rank) for spectrum in self.spectra]
        spread = sum(each.spread(rank) * rest for each, rest in rests if rest > 0) / self.n_rest(
            rank
        )
        return 1 / _VARIANCE_FACTOR <= spread <= _VARIANCE_FACTOR

    def noise_after(self, rank: int) -> float | None:
        """Return the squared norm of noise with the mean eigenvalue of those after the first `rank`
        ones, if any.
        """
        all_of_them = [each.eigenvalues for each in self.spectra if each.eigenvalues.size > rank]
        return min((float(np.mean(each[rank:])) * each.size for each in all_of_them), default=None)

    def leading(self, rank: int) -> list[tuple[FloatArray, FloatArray]]:
        """Return for each unfolding its leading directions, `rank` or as many as it has, and their
        strengths.
        """
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
    unfolding: Callable[[], FloatArray] | None = None,
) -> Spectrum:
    """Return the spectrum of the unfolding, or that of the images of at least `width` random
    vectors.

    `gram` is the Gram matrix of the unfolding, if it is known. It has squares of singular values,
    so that those below 1e-7 of the largest are lost in rounding errors. Where this happens, they
    are computed from the unfolding itself, if it can be had.
    """
    if gram is None:
        with one_blas_thread():
            return _spectrum_of_images(oracle, width, generator)
    n_columns = math.comb(oracle.dimension + oracle.order - 2, oracle.order - 1)
    spectrum = spectrum_of_gram(gram, n_columns, oracle.rounding)
    if spectrum.n_usable == spectrum.eigenvalues.size or unfolding is None:
        return spectrum
    return _spectrum_of_unfolding(unfolding(), n_columns, oracle.rounding)


def spectra_of_axes(entries: DataArray, rounding: float) -> Spectra:
    """Return the spectra of the unfoldings along each axis. The columns of noise are all different
    there.
    """
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
    return Spectrum(
        values[::-1], vectors[:, ::-1], n_columns, ROUNDING_MULTIPLE * rounding * float(values[-1])
    )


def _spectrum_of_unfolding(unfolding: DataArray, n_columns: int, rounding: float) -> Spectrum:
    """Return the spectrum from singular values themselves, which are accurate to the rounding of
    the largest.
    """
    with one_blas_thread():
        matrix: DataArray = unfolding.astype(np.float64, copy=False)
        if (
            matrix.shape[1] > matrix.shape[0]
        ):  # the triangular factor has the same left singular vectors, and is small
            matrix = scipy.linalg.qr(matrix.T, mode="r", check_finite=False)[0][: matrix.shape[0]].T
        left, strengths, _ = np.linalg.svd(matrix, full_matrices=False)
    return Spectrum(
        strengths**2, left, n_columns, (_ROUNDING_OF_ENTRIES * rounding * float(strengths[0])) ** 2
    )


def _spectrum_of_images(oracle: Oracle, width: int, generator: np.random.Generator) -> Spectrum:
    """Return the spectrum of images.

    The second round asks about vectors inside the span that the first one found, where images are
    larger by a factor of about d / k while noise stays as it is.
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


def spectra_of_images(oracle: Oracle, width: int, generator: np.random.Generator) -> Spectra:
    """Return the spectra of images of random vectors along each axis, as `spectrum_of` does for
    symmetric tensors.
    """
    count = max(2 * width + 5, 2 * FEWEST_FOR_A_LAW)
    pieces = [generator.standard_normal((size, count)) for size in oracle.parts]
    for _ in range(2):
        images = oracle.image(
            normalise(np.concatenate(pieces), oracle.parts, np.ones((oracle.dimension, count)))
        )
        spectra = []
        for axis, image in enumerate(split(images, oracle.parts)):
            with one_blas_thread():
                left, strengths, _ = np.linalg.svd(image, full_matrices=False)
            rounding = (ROUNDING_MULTIPLE * oracle.rounding * float(strengths[0])) ** 2
            spectra.append(Spectrum(strengths**2, left, max(image.shape), rounding))
            basis = left[:, : max(1, min(width, spectra[-1].n_usable))]
            pieces[axis] = basis @ generator.standard_normal((basis.shape[1], count))
    return Spectra(tuple(spectra))


#: Singular values up to this multiple of the rounding error of the largest count as rounding error:
#: a residual of the same relative size counts as such too.
_ROUNDING_OF_FLATTENING = 8192.0

#: A law is compared with more singular values than this.
_FEWEST_IN_FLATTENING = 5

#: The chance that the largest singular value of noise exceeds the edge.
_EDGE_CHANCE = 1e-3


@dataclass(frozen=True, eq=False)
class FlatteningSpectrum:
    """The singular values of a flattening M = L D Rᵀ, largest first.

    Attributes
    ----------
    values : array
        The singular values; at even orders, eigenvalues with their sign, largest in absolute value
        first.
    left, right : arrays
        The singular vectors, one in each column; the same array at even orders.
    rounding : float
        The relative rounding error of the entries.
    """

    values: FloatArray
    left: FloatArray
    right: FloatArray
    rounding: float

    @classmethod
    def of(cls, flattening: FloatArray, rounding: float) -> FlatteningSpectrum:
        """Return the spectrum of a flattening."""
        with one_blas_thread():  # the bits of a decomposition depend on the number of threads
            if flattening.shape[0] == flattening.shape[1]:
                values, vectors = np.linalg.eigh(flattening)
                first = np.argsort(-np.abs(values), kind="stable")
                basis = vectors[:, first]
                return cls(values[first], basis, basis, rounding)
            left, values, right = np.linalg.svd(flattening, full_matrices=False)
        return cls(values, left, right.T, rounding)

    @property
    def symmetric(self) -> bool:
        """Whether the flattening is a symmetric matrix, as at even orders."""
        return self.left is self.right

    @cached_property
    def n_usable(self) -> int:
        """How many singular values are not rounding error."""
        sizes = np.abs(self.values)
        return int(np.sum(sizes > _ROUNDING_OF_FLATTENING * self.rounding * sizes[0]))

    @cached_property
    def margins(self) -> FloatArray:
        """For each singular value but the smallest ones, its size over the edge of noise with those
        after it.

        The edge is what the largest of n singular values exceeds with a chance of 1 in 1,000. If it
        is one of noise, it has about e times their mean square, where e is the edge of the law of
        many. So the sum of the other squares is divided by n − e.
        """
        squares = self.values**2
        n_rows = np.arange(squares.size, _FEWEST_IN_FLATTENING, -1.0)
        after = np.append(np.cumsum(squares[::-1])[::-1], 0.0)[1 : n_rows.size + 1]
        if self.symmetric:
            # Either the largest or the smallest eigenvalue may be the one that exceeds it.
            quantile = tracy_widom_quantile(_EDGE_CHANCE / 2)
            edges = (2 + quantile * n_rows ** (-2 / 3)) ** 2
            typical = np.full_like(n_rows, 4.0)
        else:
            quantile = tracy_widom_quantile(_EDGE_CHANCE)
            n_columns = self.right.shape[0] - squares.size + n_rows
            sums = np.sqrt(n_rows) + np.sqrt(n_columns)
            width = sums * (1 / np.sqrt(n_rows) + 1 / np.sqrt(n_columns)) ** (1 / 3)
            edges = (sums**2 + quantile * width) / n_columns
            typical = sums**2 / n_columns
        noise = np.maximum(
            edges * after / np.maximum(n_rows - typical, 1.0), np.finfo(np.float64).tiny
        )
        margins: FloatArray = np.sqrt(squares[: n_rows.size] / noise)
        return margins

    @cached_property
    def n_clear(self) -> int:
        """How many singular values stand clear of the noise that those after them show, or of
        rounding error.

        Among more components than not, the first singular values do not stand clear of the others.
        So the last one that does is looked for. A part of the bulk of noise, from its smallest
        value on, has a relatively lower edge than all of it, so that no value of the bulk is clear
        of those after it.
        """
        if self.n_usable < self.values.size:
            return self.n_usable
        clear = np.flatnonzero(self.margins > 1)
        if clear.size:
            return int(clear[-1]) + 1
        return 0

    def noise_after(self, rank: int) -> float:
        """Return the mean square of the singular values after the first `rank` ones: s times the
        free columns.
        """
        if rank < self.values.size:
            return float(np.mean(self.values[rank:] ** 2))
        return 0.0
