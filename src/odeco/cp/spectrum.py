"""The spectrum of the unfolding: in how many directions a tensor points, and what noise alone would show.

The d x dᵖ⁻¹ unfolding M of Σ λᵢ aᵢ⊗ᵖ has rank k if the aᵢ are independent, orthogonal or not. Noise adds to every
eigenvalue of M Mᵀ. For a symmetric Gaussian tensor the columns of M repeat: each of the N = C(d+p−2, p−1) different
ones occurs about (p−1)! times. Its eigenvalues therefore follow the law of Marchenko and Pastur for N columns: they lie
between s(√N ± √d)² for a variance s, their largest deviates from the edge by Johnstone's law, with the quantiles of
Tracy and Widom, and their variance is d/N of their squared mean.

An asymmetric tensor has an unfolding for each of its axes. There all columns of noise are different.

Of a tensor that is not known by its entries, images of random vectors take the place of the unfolding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from odeco._util.threads import one_blas_thread
from odeco._util.types import DataArray, FloatArray
from odeco.tensors.oracle import Oracle

#: The quantile of the law of Tracy and Widom (real case) that is exceeded with a chance of 1 in 1,000.
_EDGE_QUANTILE = 3.3

#: Eigenvalues that are smaller than this multiple of the rounding error of the largest are rounding error themselves.
_ROUNDING_MULTIPLE = 100.0

#: A bulk of noise has the variance of its law up to this factor. Of d eigenvalues it fluctuates by a few parts in d.
_VARIANCE_FACTOR = 2.0

#: Fewer eigenvalues than this do not tell a law.
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

    def rest_is_noise(self, rank: int) -> bool:
        """Return whether the eigenvalues after the first `rank` ones spread as those of noise do, not more nor less."""
        if self.n_usable <= rank:
            return True
        rests = [spectrum.eigenvalues.size - rank for spectrum in self.spectra]
        spread_out = [
            (spectrum.spread(rank), rest) for spectrum, rest in zip(self.spectra, rests, strict=True) if rest > 0
        ]
        n_rest = sum(rest for _, rest in spread_out)
        if n_rest < FEWEST_FOR_A_LAW or any(each.n_usable < each.eigenvalues.size for each in self.spectra):
            return False
        spread = sum(each * rest for each, rest in spread_out) / n_rest
        return 1 / _VARIANCE_FACTOR <= spread <= _VARIANCE_FACTOR

    def leading(self, rank: int) -> list[tuple[FloatArray, FloatArray]]:
        """Return for each unfolding its leading directions, `rank` or as many as it has, and their strengths."""
        widths = [min(rank, spectrum.n_usable) for spectrum in self.spectra]
        return [
            (spectrum.directions[:, :width], np.sqrt(spectrum.eigenvalues[:width]))
            for spectrum, width in zip(self.spectra, widths, strict=True)
        ]


def spectrum_of(oracle: Oracle, width: int, generator: np.random.Generator) -> Spectrum:
    """Return the spectrum of the unfolding, or that of the images of at least `width` random vectors."""
    gram = oracle.unfolding_gram()
    if gram is None:
        with one_blas_thread():
            return _spectrum_of_images(oracle, width, generator)
    n_columns = math.comb(oracle.dimension + oracle.order - 2, oracle.order - 1)
    return _spectrum_of_gram(gram, n_columns, oracle.rounding)


def spectra_of_axes(entries: DataArray, rounding: float) -> Spectra:
    """Return the spectra of the unfoldings along each axis. The columns of noise are all different there."""
    spectra = []
    for axis, size in enumerate(entries.shape):
        others = [other for other in range(entries.ndim) if other != axis]
        with one_blas_thread():
            gram: FloatArray = np.tensordot(entries, entries, axes=(others, others))
        spectra.append(_spectrum_of_gram(gram, entries.size // size, rounding))
    return Spectra(tuple(spectra))


def _spectrum_of_gram(gram: FloatArray, n_columns: int, rounding: float) -> Spectrum:
    with one_blas_thread():  # the bits of a decomposition depend on the number of threads
        values, vectors = np.linalg.eigh(gram)
    return Spectrum(values[::-1], vectors[:, ::-1], n_columns, _ROUNDING_MULTIPLE * rounding * float(values[-1]))


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
        usable = int(np.sum(strengths > _ROUNDING_MULTIPLE * oracle.rounding * strengths[0]))
        if more:
            basis = left[:, : max(1, min(usable, width))]
            asked = basis @ generator.standard_normal((basis.shape[1], count))
    n_rows, n_columns = sorted(images.shape)
    rounding = (_ROUNDING_MULTIPLE * oracle.rounding * float(strengths[0])) ** 2
    return Spectrum(strengths[:n_rows] ** 2, left[:, :n_rows], n_columns, rounding)
