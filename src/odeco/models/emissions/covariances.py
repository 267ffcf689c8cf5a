"""The kinds of covariances: one variance per component, one per feature, or matrices; a class for
each.

A kind knows the shape of its array, for mixtures and for the emissions of hidden Markov models.
"""

# Methods of kinds have the docstrings of `Kind`, and some take what only another kind needs.
# ruff: noqa: D102, ARG002

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.linalg import lapack

from odeco._util.state import Rule, Sizes, array, require
from odeco._util.types import FloatArray, IndexArray

CovarianceType = Literal["spherical", "diag", "full"]

#: Numbers in a file are at most this large, so that their squares can be added up.
LARGEST_IN_FILE = 1e150

#: A variance in a file is at most this large: the square of such a number, that of the largest rows
#: of sequences.
_LARGEST_VARIANCE = LARGEST_IN_FILE**2

#: Logarithms of variances are cut to this size when they are extrapolated.
_LARGEST_LOG = 300


#: Products of columns are computed for as many rows at a time as have about this many.
_PRODUCTS_AT_A_TIME = 2**20


class Kind(ABC):
    """A kind of covariances of k components in d dimensions.

    Attributes
    ----------
    name : str
        What it is called.
    axes : tuple of str
        The axes of its array.
    """

    name: ClassVar[CovarianceType]
    axes: ClassVar[tuple[str, ...]]

    @abstractmethod
    def n_parameters(self, d: int) -> int:
        """Return the number of parameters of one covariance."""

    def check(self, value: FloatArray, where: str, sizes: Sizes) -> None:
        """Require variances above zero."""
        low = float(np.finfo(np.float64).tiny)
        array(*self.axes, low=low, high=_LARGEST_VARIANCE)(value, where, sizes)

    @abstractmethod
    def of_matrix(self, covariance: FloatArray, k: int) -> FloatArray:
        """Return the covariances of k components that all have one covariance matrix."""

    @abstractmethod
    def variances(self, covariances: FloatArray, d: int) -> FloatArray:
        """Return the variance of each feature in each component, k x d."""

    def rescale(self, covariances: FloatArray, scale: FloatArray) -> FloatArray:
        """Return the covariances of rows whose columns are multiplied by `scale`."""
        return covariances * scale**2

    def shape_noise(self, noise: FloatArray, labels: IndexArray, covariances: FloatArray) -> None:
        """Give standard normal rows the covariance of the component of each label, in place."""
        noise *= np.sqrt(covariances)[labels].reshape(len(labels), -1)

    def per_component(self, values: Any) -> Any:
        """Return one value for each component in a shape that goes with the covariances."""
        return values.reshape(-1, *(1,) * (len(self.axes) - 1))


class Spherical(Kind):
    """One variance for each component."""

    name = "spherical"
    axes = ("k",)

    def n_parameters(self, d: int) -> int:
        return 1

    def of_matrix(self, covariance: FloatArray, k: int) -> FloatArray:
        return np.full(k, np.trace(covariance) / len(covariance))

    def variances(self, covariances: FloatArray, d: int) -> FloatArray:
        return np.broadcast_to(covariances[:, None], (len(covariances), d))

    def rescale(self, covariances: FloatArray, scale: FloatArray) -> FloatArray:
        if np.all(scale == scale[:1]):
            return np.asarray(covariances * scale[0] ** 2)
        return np.asarray(covariances[:, None] * scale**2)


class Diagonal(Kind):
    """One variance for each feature of each component."""

    name = "diag"
    axes = ("k", "n_features")

    def n_parameters(self, d: int) -> int:
        return d

    def of_matrix(self, covariance: FloatArray, k: int) -> FloatArray:
        return np.tile(np.diag(covariance), (k, 1))

    def variances(self, covariances: FloatArray, d: int) -> FloatArray:
        return covariances

    def to_vector(self, covariances: FloatArray) -> FloatArray:
        """Return coordinates in which covariances may be extrapolated: logarithms of variances."""
        return np.log(covariances).ravel()

    def from_vector(self, vector: FloatArray, k: int, d: int) -> FloatArray:
        """Return the covariances with these coordinates."""
        return np.exp(np.clip(vector.reshape(k, d), -_LARGEST_LOG, _LARGEST_LOG))

    def raise_to(self, covariances: FloatArray, least: float) -> FloatArray:
        """Return covariances with at least this variance in every direction."""
        return np.maximum(covariances, least)


class Full(Kind):
    """A covariance matrix for each component; `factors` are the inverses of their Cholesky factors,
    transposed.
    """

    name = "full"
    axes = ("k", "n_features", "n_features")

    def n_parameters(self, d: int) -> int:
        return d * (d + 1) // 2

    def check(self, value: FloatArray, where: str, sizes: Sizes) -> None:
        """Require positive definite matrices."""
        array(*self.axes, low=-_LARGEST_VARIANCE, high=_LARGEST_VARIANCE)(value, where, sizes)
        require(bool(np.allclose(value, value.transpose(0, 2, 1))), f"`{where}` must be symmetric")
        try:
            np.linalg.cholesky(value)
        except np.linalg.LinAlgError:
            raise ValueError(f"`{where}` must be positive definite") from None

    def factors(self, covariances: FloatArray) -> FloatArray:
        """Return the factors: (x − μ)ᵀ times one has covariance I."""
        try:
            roots = np.linalg.cholesky(covariances)
        except np.linalg.LinAlgError:
            raise ValueError(
                "The covariance matrix of a component must be positive definite. One is not: its "
                "rows are equal, or lie in a plane. Raise `reg_covar`, pass fewer components, or "
                "covariance_type='diag'."
            ) from None
        return np.stack([lapack.dtrtri(each, lower=1)[0].T for each in roots])

    def log_peaks(self, factors: FloatArray) -> FloatArray:
        """Return the log-density of each component at its mean."""
        halves = np.log(np.einsum("kii->ki", factors)).sum(axis=1)
        return np.asarray(halves - 0.5 * factors.shape[1] * math.log(2 * math.pi))

    def log_densities(self, rows: FloatArray, means: FloatArray, factors: FloatArray) -> FloatArray:
        """Return the log-density of each row in each component, n x k. Rows and means should be
        near zero, as squares of large numbers lose digits.
        """
        precisions = factors @ factors.transpose(0, 2, 1)
        slopes = np.einsum("kij,kj->ki", precisions, means)
        own = np.einsum("kij->ijk", precisions)[self._pairs(rows.shape[1])].copy()
        own[: rows.shape[1]] /= 2
        densities: FloatArray = rows @ slopes.T
        for some in self._slices(rows):
            densities[some] -= self._products(rows[some]).T @ own
        densities += self.log_peaks(factors) - 0.5 * np.sum(slopes * means, axis=1)
        return densities

    @staticmethod
    def _pairs(d: int) -> tuple[IndexArray, IndexArray]:
        """Return all pairs of columns, those of a column with itself first."""
        diagonal = np.arange(d)
        rows, columns = np.triu_indices(d, 1)
        return np.append(diagonal, rows), np.append(diagonal, columns)

    def _products(self, rows: FloatArray) -> FloatArray:
        """Return the products of all pairs of columns, pairs x rows."""
        columns = np.ascontiguousarray(rows.T)
        first, second = self._pairs(len(columns))
        products: FloatArray = columns[first]
        products *= columns[second]
        return products

    @staticmethod
    def _slices(rows: FloatArray) -> Iterator[slice]:
        """Yield slices of rows whose products have about `_PRODUCTS_AT_A_TIME` numbers."""
        size = max(_PRODUCTS_AT_A_TIME // rows.shape[1] ** 2, 1)
        return (slice(start, start + size) for start in range(0, len(rows), size))

    def second_sums(self, rows: FloatArray, shares: FloatArray) -> FloatArray:
        """Return Σ r_h x xᵀ for responsibilities r (n x k)."""
        k, d = shares.shape[1], rows.shape[1]
        sums = np.zeros((d * (d + 1) // 2, k))
        for some in self._slices(rows):
            sums += self._products(rows[some]) @ shares[some]
        first, second = self._pairs(d)
        seconds = np.empty((k, d, d))
        seconds[:, first, second] = seconds[:, second, first] = sums.T
        return seconds

    def of_matrix(self, covariance: FloatArray, k: int) -> FloatArray:
        return np.tile(covariance, (k, 1, 1))

    def variances(self, covariances: FloatArray, d: int) -> FloatArray:
        return np.asarray(np.einsum("kii->ki", covariances))

    def rescale(self, covariances: FloatArray, scale: FloatArray) -> FloatArray:
        return np.asarray(covariances * np.outer(scale, scale))

    def to_vector(self, covariances: FloatArray) -> FloatArray:
        """Return coordinates in which covariances may be extrapolated: Cholesky factors, with
        log-diagonals first.
        """
        lower = np.linalg.cholesky(covariances)
        rows, columns = np.tril_indices(covariances.shape[1], -1)
        diagonals = np.log(np.diagonal(lower, axis1=1, axis2=2))
        return np.concatenate([diagonals.ravel(), lower[:, rows, columns].ravel()])

    def from_vector(self, vector: FloatArray, k: int, d: int) -> FloatArray:
        """Return the covariances with these coordinates."""
        lower = np.zeros((k, d, d))
        diagonals = vector[: k * d].reshape(k, d)
        lower[:, np.arange(d), np.arange(d)] = np.exp(
            np.clip(diagonals, -_LARGEST_LOG, _LARGEST_LOG)
        )
        rows, columns = np.tril_indices(d, -1)
        lower[:, rows, columns] = vector[k * d :].reshape(k, -1)
        return np.asarray(lower @ lower.transpose(0, 2, 1))

    def raise_to(self, covariances: FloatArray, least: float) -> FloatArray:
        """Return covariances with at least this variance in every direction."""
        values, vectors = np.linalg.eigh(covariances)
        low = values[:, 0] < least
        if low.any():
            raised = vectors[low] * np.maximum(values[low], least)[:, None, :]
            covariances = covariances.copy()
            covariances[low] = raised @ vectors[low].transpose(0, 2, 1)
        return covariances

    def shape_noise(self, noise: FloatArray, labels: IndexArray, covariances: FloatArray) -> None:
        for component, root in enumerate(np.linalg.cholesky(covariances)):
            noise[labels == component] = noise[labels == component] @ root.T


FULL = Full()

#: Every kind by its name, the one with the fewest parameters first.
KINDS: dict[CovarianceType, Kind] = {each.name: each for each in (Spherical(), Diagonal(), FULL)}

COVARIANCE_TYPES: tuple[CovarianceType, ...] = tuple(KINDS)


def kind_of(covariances: FloatArray) -> Kind:
    """Return the kind of an array of covariances, or of sums in their shape."""
    return next(kind for kind in KINDS.values() if len(kind.axes) == covariances.ndim)


def bounded(*shape: str) -> Rule:
    """Require numbers whose squares can be added up."""
    return array(*shape, low=-LARGEST_IN_FILE, high=LARGEST_IN_FILE)


def covariances_rule(k: str, d: str) -> Rule:  # noqa: ARG001 - the names of axes are those of the kinds
    """Require covariances of some kind."""

    def check(value: Any, where: str, sizes: Sizes) -> None:
        n_axes = value.ndim if isinstance(value, np.ndarray) else 0
        require(
            n_axes in {len(kind.axes) for kind in KINDS.values()},
            f"`{where}` must have one to three axes",
        )
        kind_of(value).check(value, where, sizes)

    return check
