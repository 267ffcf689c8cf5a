"""A fitted unmixing: from rows to sources and back, their likelihood, and samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from odeco._util.state import State, array_field, require
from odeco._util.types import FloatArray, IndexArray
from odeco.models.ica.likelihood import N_BINS, draw_sources, log_densities
from odeco.models.ica.start import log_volume, scaled, whiten

#: No double-precision number has a larger exponent.
_MAX_EXPONENT = 1100

#: Scaled rows are at most about 1e77, so that products of four of their numbers do not overflow. In a file, numbers
#: must be at most this.
RANGE: dict[str, Any] = {"low": -1e160, "high": 1e160}

#: A variance below this share of the sum of all variances is rounding error.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Sources(State):
    """What ICA has learnt: an unmixing matrix, or the mixing matrix of more sources than columns."""

    mark: ClassVar[str]  # the field by which a file is recognised

    @classmethod
    def from_arrays(cls, arrays: Any, prefix: str, sizes: Any = None, parts: Any = None) -> Any:
        """Return the sources that a file holds, of either kind."""
        if cls is not Sources:
            return super().from_arrays(arrays, prefix, sizes, parts)
        kinds = [kind for kind in cls.__subclasses__() if f"{prefix}.{kind.mark}" in arrays]
        require(len(kinds) == 1, "it must hold an unmixing matrix or a mixing matrix")
        return kinds[0].from_arrays(arrays, prefix, sizes, parts)

    @property
    def signs(self) -> FloatArray:
        """The signs that make the largest mixing weight of each source positive."""
        mixing: FloatArray = self.mixing  # type: ignore[attr-defined]
        largest = mixing[np.argmax(np.abs(mixing), axis=0), np.arange(mixing.shape[1])]
        return np.where(largest < 0, -1.0, 1.0)


@dataclass(frozen=True, eq=False)
class Unmixing(Sources):
    """The unmixing matrix of rows that are scaled by powers of two: column j is divided by 2^exponents[j].

    Attributes
    ----------
    exponents : array
        The exponents; 0 for columns of ordinary size.
    mean, covariance : array
        Mean and covariance of the scaled rows.
    unmixing : array, k x d
        The unmixing matrix of the scaled rows, one row per source.
    whitening : array, m x d
        The map of the scaled rows to the directions in which sources were searched.
    information : array
        Fisher information of each source: 1 for a Gaussian, and more for all others.
    counts : array, k x 200
        The histogram of each source.
    """

    mark: ClassVar[str] = "unmixing"

    exponents: IndexArray = array_field("n_features", kind="i", low=-_MAX_EXPONENT, high=_MAX_EXPONENT)
    mean: FloatArray = array_field("n_features", **RANGE)
    covariance: FloatArray = array_field("n_features", "n_features", **RANGE)
    unmixing: FloatArray = array_field("k", "n_features", **RANGE)
    whitening: FloatArray = array_field("m", "n_features", **RANGE)
    information: FloatArray = array_field("k")
    counts: FloatArray = array_field("k", "bins", low=0)

    def check(self) -> None:
        """Require complete histograms, and sources with a positive definite covariance."""
        complete = self.counts.shape[1] == N_BINS and bool(np.all(self.counts.sum(axis=1) > 0))
        require(complete, f"its histograms must have {N_BINS} bins, and rows in them")
        require(np.allclose(self.covariance, self.covariance.T), "its covariance must be symmetric")
        with np.errstate(over="ignore", invalid="ignore"):
            own = self.unmixing @ self.covariance @ self.unmixing.T
        positive = bool(np.isfinite(own).all()) and bool(np.all(np.linalg.eigvalsh(own) > 0))
        require(positive, "its sources must have a positive definite covariance")

    def check_finite(self) -> None:
        """Raise if the unmixing matrix of rows that are not scaled is too large for double precision."""
        with np.errstate(over="ignore"):
            finite = np.isfinite(self.components).all(axis=0)
        if not finite.all():
            raise ValueError(
                "Rows must vary by more than about 1e-300, so that the unmixing matrix is finite. Column "
                f"{int(np.argmin(finite))} varies less. Multiply all rows by a constant."
            )

    @property
    def components(self) -> FloatArray:
        """The unmixing matrix of rows that are not scaled, k x d."""
        return scaled(self.unmixing, self.exponents)

    @property
    def mixing(self) -> FloatArray:
        """The mixing matrix of rows that are not scaled, d x k."""
        return scaled(self.scaled_mixing.T, -self.exponents).T

    @property
    def scaled_mixing(self) -> FloatArray:
        """The d x k regression of scaled rows on sources: the inverse of the unmixing matrix if there are d sources."""
        return mixing_of(self.unmixing, self.covariance)

    @property
    def correlations(self) -> FloatArray:
        """The correlation of each column with each source, d x k."""
        deviations = np.sqrt(np.diagonal(self.covariance))
        return np.asarray(self.scaled_mixing / np.where(deviations > 0, deviations, 1.0)[:, None])

    def sources(self, rows: FloatArray) -> FloatArray:
        """Return the sources of rows, n x k."""
        return np.asarray((scaled(rows, self.exponents) - self.mean) @ self.unmixing.T)

    def mix(self, sources: FloatArray) -> FloatArray:
        """Return the rows that sources (n x k) are mixed to."""
        return scaled(sources @ self.scaled_mixing.T + self.mean, -self.exponents)

    def log_likelihoods(self, rows: FloatArray) -> FloatArray:
        """Return the log-likelihood of each row: sources have their histograms, and the remainder is Gaussian."""
        centred = scaled(rows, self.exponents) - self.mean
        whitener = whiten(self.covariance, None).forward
        white, sources = centred @ whitener, centred @ self.unmixing.T
        inner = np.linalg.cholesky(self.unmixing @ self.covariance @ self.unmixing.T)
        own = np.linalg.solve(inner, sources.T)
        # The density of a Gaussian, in which the factors of the sources are replaced by their own densities.
        scale = log_volume(whitener, self.exponents) + np.sum(np.log(np.diagonal(inner)))
        constant = scale - (white.shape[1] - len(own)) * np.log(2 * np.pi) / 2
        gaussian = (np.sum(own**2, axis=0) - np.sum(white**2, axis=1)) / 2
        return np.asarray(constant + gaussian + log_densities(self.counts, sources.T).sum(axis=0))

    def sample(self, n_rows: int, rng: np.random.RandomState) -> tuple[FloatArray, FloatArray]:
        """Draw rows, n x d, and return the sources that they were mixed from; the remainder is Gaussian."""
        sources, mixing = draw_sources(self.counts, n_rows, rng).T, self.scaled_mixing
        remainder = self.covariance - mixing @ self.unmixing @ self.covariance
        values, vectors = np.linalg.eigh((remainder + remainder.T) / 2)
        variances = np.where(values > _ROUNDING * np.trace(self.covariance), values, 0.0)
        noise = rng.standard_normal((n_rows, len(values))) * np.sqrt(variances)
        return scaled(sources @ mixing.T + noise @ vectors.T + self.mean, -self.exponents), sources


def mixing_of(unmixing: FloatArray, covariance: FloatArray) -> FloatArray:
    """Return Cov(x, s) Cov(s)⁻¹ for s = W x."""
    across = unmixing @ covariance
    return np.linalg.solve(across @ unmixing.T, across).T.astype(np.float64, copy=False)


def with_positive_mixing(unmixing: FloatArray, covariance: FloatArray, exponents: IndexArray) -> FloatArray:
    """Return the unmixing matrix with signs that make the largest mixing weight of each source positive."""
    mixing = np.ldexp(mixing_of(unmixing, covariance), exponents[:, None])
    largest = mixing[np.argmax(np.abs(mixing), axis=0), np.arange(len(unmixing))]
    return np.asarray(unmixing * np.where(largest < 0, -1.0, 1.0)[:, None])
