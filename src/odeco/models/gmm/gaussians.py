"""A mixture of Gaussians: what it says about rows, block by block.

Likelihood steps: what rows say about the Gaussians so far, added up, gives the next ones (Dempster et al. 1977).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from scipy import linalg

from odeco._util.threads import map_blocks
from odeco._util.types import FloatArray, IndexArray

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


#: A component keeps its place if it has less than this share of a row: there is nothing to learn about it.
_LEAST_ROWS = 1e-6


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over rows x, with the probability r_h of each component h for each row, seen from an origin.

    Attributes
    ----------
    counts : array, k
        Σ r_h.
    firsts : array, k x d
        Σ r_h x.
    seconds : array
        Σ r_h |x|² (k), Σ r_h x² for each feature (k x d) or Σ r_h x xᵀ (k x d x d), as the covariances are.
    log_likelihood : float
        The sum of the log-densities of the rows.
    """

    counts: FloatArray
    firsts: FloatArray
    seconds: FloatArray
    log_likelihood: float

    def plus(self, other: Sums) -> Sums:
        """Return these sums and the other ones, added up."""
        return Sums(
            self.counts + other.counts,
            self.firsts + other.firsts,
            self.seconds + other.seconds,
            self.log_likelihood + other.log_likelihood,
        )

    def times(self, factor: float) -> Sums:
        """Return these sums, multiplied by a factor."""
        return Sums(factor * self.counts, factor * self.firsts, factor * self.seconds, factor * self.log_likelihood)

    def seen_from(self, shift: FloatArray) -> Sums:
        """Return the same sums with the origin moved by `shift`."""
        counts, firsts = self.counts, self.firsts - self.counts[:, None] * shift
        if self.seconds.ndim == 1:
            seconds = self.seconds - 2 * self.firsts @ shift + counts * (shift @ shift)
        elif self.seconds.ndim == 2:
            seconds = self.seconds - 2 * self.firsts * shift + counts[:, None] * shift**2
        else:
            cross = self.firsts[:, :, None] * shift
            seconds = self.seconds - cross - cross.transpose(0, 2, 1) + counts[:, None, None] * np.outer(shift, shift)
        return Sums(counts, firsts, seconds, self.log_likelihood)


def sums_of_block(model: Gaussians, block: FloatArray) -> Sums:
    """Return what a block of rows says about the Gaussians, seen from their origin."""
    centred = block - model.origin
    squares = squared_norms(centred)
    shares, log_densities = normalised(model.log_joint(centred, squares))
    if model.covariances.ndim == 1:
        seconds: FloatArray = squares @ shares
    elif model.covariances.ndim == 2:
        seconds = shares.T @ (centred * centred)
    else:
        seconds = np.stack([(centred * share[:, None]).T @ centred for share in shares.T])
    return Sums(shares.sum(axis=0), shares.T @ centred, seconds, float(log_densities.sum()))


def sums_of(model: Gaussians, rows: FloatArray, *, parallel: bool = False) -> Sums:
    """Return what rows say about the Gaussians; blocks are added up in their order, whoever worked on them."""
    total: Sums | None = None
    for part in map_blocks(lambda block: sums_of_block(model, block), blocks_of(rows), parallel=parallel):
        total = part if total is None else total.plus(part)
    if total is None:
        raise ValueError("There must be rows to learn from. Got none.")
    return total


def next_gaussians(model: Gaussians, sums: Sums, floor: float) -> Gaussians:
    """Return the Gaussians that are likeliest given sums seen from the origin of the ones before.

    `floor` is added to every variance, so that no component shrinks to a point.
    """
    counts, d = sums.counts, model.means.shape[1]
    learnt = counts > _LEAST_ROWS
    totals = np.where(learnt, counts, 1.0)
    offsets = sums.firsts / totals[:, None]
    if model.covariances.ndim == 1:
        covariances = np.maximum(sums.seconds / totals - np.sum(offsets**2, axis=1), 0.0) / d + floor
    elif model.covariances.ndim == 2:
        covariances = np.maximum(sums.seconds / totals[:, None] - offsets**2, 0.0) + floor
    else:
        covariances = sums.seconds / totals[:, None, None] - offsets[:, :, None] * offsets[:, None, :]
        covariances = (covariances + covariances.transpose(0, 2, 1)) / 2 + floor * np.eye(d)
    kept = learnt.reshape(-1, *(1,) * (covariances.ndim - 1))
    return Gaussians(
        counts / counts.sum(),
        np.where(learnt[:, None], model.origin + offsets, model.means),
        np.where(kept, covariances, model.covariances),
    )


def step(model: Gaussians, rows: FloatArray, floor: float, *, parallel: bool = False) -> tuple[Gaussians, float]:
    """Take one likelihood step over rows; return the next Gaussians, and the mean log-likelihood of those before."""
    sums = sums_of(model, rows, parallel=parallel)
    return next_gaussians(model, sums, floor), sums.log_likelihood / len(rows)
