"""A mixture of Gaussians: what it says about rows, block by block."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from scipy import linalg

from odeco._types import FloatArray, IndexArray

CovarianceType = Literal["spherical", "diag", "full"]
COVARIANCE_TYPES = ("spherical", "diag", "full")
#: Rows that are worked on at a time: a block of them, with what it says of the components, stays in the cache.
BLOCK = 8192


@dataclass(frozen=True, eq=False)
class Gaussians:
    """k Gaussians in d dimensions, and how probable each is.

    Attributes
    ----------
    weights : array, k
        Their probabilities.
    means : array, k x d
        Their means.
    covariances : array
        One variance each (k), one for each feature (k x d) or a covariance matrix each (k x d x d).
    """

    weights: FloatArray
    means: FloatArray
    covariances: FloatArray

    @property
    def covariance_type(self) -> CovarianceType:
        """What kind of covariances these are."""
        kinds: tuple[CovarianceType, ...] = ("spherical", "diag", "full")
        return kinds[self.covariances.ndim - 1]

    @cached_property
    def origin(self) -> FloatArray:
        """The mean of the mixture. Rows are looked at from there, as squares of far numbers lose digits."""
        mean: FloatArray = self.weights @ self.means
        return mean

    @cached_property
    def _offsets(self) -> FloatArray:
        offsets: FloatArray = self.means - self.origin
        return offsets

    @cached_property
    def _factors(self) -> FloatArray:
        """The inverses of the Cholesky factors of full covariances, transposed: (x − μ)ᵀ times one has covariance I."""
        identity = np.eye(self.means.shape[1])
        lower = np.linalg.cholesky(self.covariances)
        return np.stack([linalg.solve_triangular(each, identity, lower=True).T for each in lower])

    @cached_property
    def _constants(self) -> FloatArray:
        """The logarithms of the weights times the densities at the means."""
        d = self.means.shape[1]
        if self.covariances.ndim == 1:
            halves = 0.5 * d * np.log(self.covariances)
        elif self.covariances.ndim == 2:
            halves = 0.5 * np.log(self.covariances).sum(axis=1)
        else:
            halves = -np.log(np.einsum("kii->ki", self._factors)).sum(axis=1)
        with np.errstate(divide="ignore"):  # a component without weight has no density anywhere
            constants: FloatArray = np.log(self.weights) - halves - 0.5 * d * math.log(2 * math.pi)
        return constants

    @property
    def spread(self) -> FloatArray:
        """The standard deviation of each feature within components, on average."""
        k, d = self.means.shape
        own = np.einsum("kii->ki", self.covariances) if self.covariances.ndim == 3 else self.covariances.reshape(k, -1)
        spread: FloatArray = np.sqrt(self.weights @ np.broadcast_to(own, (k, d)))
        return spread

    def log_joint(self, centred: FloatArray, squares: FloatArray) -> FloatArray:
        """Return log(w_h N(x | h)) for each row x and component h, of rows seen from the origin.

        `squares` are the squared norms of these rows, or for other covariances than spheres anything.
        """
        if self.covariances.ndim == 1:
            joint: FloatArray = centred @ (self._offsets / self.covariances[:, None]).T
            joint -= np.multiply.outer(squares, 0.5 / self.covariances)
            joint += self._constants - 0.5 * np.sum(self._offsets**2, axis=1) / self.covariances
        elif self.covariances.ndim == 2:
            joint = centred @ (self._offsets / self.covariances).T
            joint -= (centred * centred) @ (0.5 / self.covariances).T
            joint += self._constants - 0.5 * np.sum(self._offsets**2 / self.covariances, axis=1)
        else:
            joint = np.empty((len(centred), len(self.weights)))
            for component, (factor, offset) in enumerate(zip(self._factors, self._offsets, strict=True)):
                white = (centred - offset) @ factor
                joint[:, component] = np.einsum("ij,ij->i", white, white)
            joint *= -0.5
            joint += self._constants
        return joint

    def about(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the probability of each component for each row, and the log-density of each row."""
        centred = rows - self.origin
        return normalised(self.log_joint(centred, squared_norms(centred)))

    def draw(self, n_rows: int, random: Any) -> tuple[FloatArray, IndexArray]:
        """Draw rows, and return them with the component of each; `random` is a generator of NumPy, new or old."""
        # Weights may sum to one and a rounding error, which NumPy refuses.
        numbers = random.multinomial(n_rows, self.weights / self.weights.sum())
        labels = np.repeat(np.arange(len(self.weights)), numbers)
        noise = random.standard_normal((n_rows, self.means.shape[1]))
        if self.covariances.ndim == 3:
            for component, root in enumerate(np.linalg.cholesky(self.covariances)):
                noise[labels == component] = noise[labels == component] @ root.T
        else:
            noise *= np.sqrt(self.covariances)[labels].reshape(n_rows, -1)
        return self.means[labels] + noise, labels


def normalised(joint: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the exponentials of rows of logarithms, divided by their sum, and the logarithm of that; in place."""
    largest = joint.max(axis=1)
    joint -= largest[:, None]
    np.exp(joint, out=joint)
    totals = joint.sum(axis=1)
    joint /= totals[:, None]
    return joint, largest + np.log(totals)


def squared_norms(rows: FloatArray) -> FloatArray:
    """Return the squared norm of each row."""
    squares: FloatArray = np.einsum("ij,ij->i", rows, rows)
    return squares


def blocks_of(rows: Any) -> Iterator[Any]:
    """Yield rows in blocks of one size."""
    for start in range(0, len(rows), BLOCK):
        yield rows[start : start + BLOCK]
