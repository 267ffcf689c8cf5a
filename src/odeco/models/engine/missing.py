"""Rows with missing values, which are NaN, in the E step of Gaussians (Little and Rubin 2019, section 11.2).

Values are missing at random: whether one is missing may depend on observed values, but not on itself. Then the density
of a row is that of its observed columns, and the sufficient statistics have E[x | observed, h] and
E[x xᵀ | observed, h] in the place of x and x xᵀ.

- Columns that are independent within a component h: a missing one has the mean μ_h and the variance σ²_h, whatever the
  others are. All sums are products with the mask of missing values.
- Covariance matrices: let Λ = Σ⁻¹, let m be the missing columns of a row, and let x be the row from which μ_h was
  subtracted, with zeros in m. Then Cov(x_m | observed) = Λ_mm⁻¹ and E(x_m | observed) = −Λ_mm⁻¹ (Λ x)_m, and
  log |Σ_oo| = log |Σ| + log |Λ_mm|. Each pattern of missing columns has its own matrix Λ_mm. Patterns with the same
  number of missing columns are inverted together, and most are small, as most rows have few missing values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from odeco._util.types import BoolArray, FloatArray, IndexArray
from odeco.models.engine.weights import times

#: Rows are worked on together as long as their matrices Λ_mm and their expected values have about this many numbers.
_NUMBERS_AT_A_TIME = 2**20

_LOG_2_PI = math.log(2 * math.pi)


def has_missing(rows: FloatArray) -> bool:
    """Tell whether a value is missing; all others are finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isnan(rows.sum())) and bool(np.isnan(rows).any())


def column_ranges(rows: FloatArray) -> FloatArray:
    """Return the range of the observed values of each column."""
    with np.errstate(over="ignore"):
        return np.asarray(np.fmax.reduce(rows, axis=0) - np.fmin.reduce(rows, axis=0))


def column_moments(rows: FloatArray, weights: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
    """Return mean and variance of the observed values of each column; zeros if there are none."""
    if not has_missing(rows):
        means = np.average(rows, axis=0, weights=weights)
        return means, np.average(np.square(rows - means), axis=0, weights=weights)
    missing, counts = np.isnan(rows), observed_counts(rows, weights)
    means = times(np.where(missing, 0.0, rows), weights).sum(axis=0) / counts
    return means, times(np.square(np.where(missing, 0.0, rows - means)), weights).sum(axis=0) / counts


def observed_counts(rows: FloatArray, weights: FloatArray | None = None) -> FloatArray:
    """Return the number of observed values of each column, counted by the weights of rows; 1 if there are none."""
    counts = times((~np.isnan(rows)).astype(np.float64), weights).sum(axis=0)
    return np.where(counts > 0, counts, 1.0)


def filled(rows: FloatArray, by: Any) -> FloatArray:
    """Return rows with other values in the place of missing ones."""
    return np.where(np.isnan(rows), by, rows) if has_missing(rows) else rows


def parts_of(rows: FloatArray, n_components: int) -> Iterator[slice]:
    """Yield parts of rows for which `condition` needs little memory."""
    n_missing = np.isnan(rows).sum(axis=1)
    numbers = np.cumsum(n_components * (rows.shape[1] + n_missing**2))
    ends = np.append(np.flatnonzero(np.diff(numbers // _NUMBERS_AT_A_TIME)) + 1, len(rows))
    return (slice(first, end) for first, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True))


def condition(
    rows: FloatArray, log_weights: Any, means: FloatArray, covariances: FloatArray, factors: FloatArray | None
) -> Independent | Correlated:
    """Return what the observed values of rows say about each component, and about what is missing.

    Parameters
    ----------
    rows : array, n x d
        Rows, in which NaN is missing. They should be near zero, as squares of large numbers lose digits.
    log_weights : float or array, k
        What is added to every log-density.
    means, covariances : array
        As of `Gaussians`.
    factors : array, k x d x d, or None
        The `inverse_factors` of covariance matrices.
    """
    if factors is None:
        return Independent(rows, log_weights, means, covariances)
    return Correlated(rows, log_weights, means, factors)


class Independent:
    """Rows, given components in which columns are independent.

    Attributes
    ----------
    log_densities : array, n x k
        The log-density of the observed values of each row under each component.
    """

    def __init__(self, rows: FloatArray, log_weights: Any, means: FloatArray, covariances: FloatArray) -> None:
        self._missing = np.isnan(rows).astype(np.float64)
        self._rows = np.where(self._missing, 0.0, rows)
        self._means, self._n_axes = means, covariances.ndim
        self._variances = np.broadcast_to(covariances.reshape(len(means), -1), means.shape)
        peaks = 0.5 * (means**2 / self._variances + np.log(self._variances) + _LOG_2_PI)
        densities: FloatArray = self._rows @ (means / self._variances).T
        densities -= (self._rows * self._rows) @ (0.5 / self._variances).T
        densities -= (1 - self._missing) @ peaks.T
        self.log_densities = densities + log_weights

    def sums(self, shares: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the expectations of Σ r_h, Σ r_h x and Σ r_h x² for responsibilities r (n x k)."""
        unseen = shares.T @ self._missing
        firsts = shares.T @ self._rows + unseen * self._means
        seconds = shares.T @ (self._rows * self._rows) + unseen * (self._means**2 + self._variances)
        return shares.sum(axis=0), firsts, seconds if self._n_axes == 2 else seconds.sum(axis=1)


@dataclass(frozen=True, eq=False)
class _Group:
    """Rows with one number q of missing values.

    Attributes
    ----------
    rows : array, r
        Their places.
    patterns : array, r
        The pattern of each.
    columns : array, p x q
        The missing columns of each pattern.
    covariances : array, k x p x q x q
        The covariance of the missing values of each pattern, given the observed ones.
    """

    rows: IndexArray
    patterns: IndexArray
    columns: IndexArray
    covariances: FloatArray


class Correlated:
    """Rows, given components with covariance matrices; it has the methods of `Independent`."""

    def __init__(self, rows: FloatArray, log_weights: Any, means: FloatArray, factors: FloatArray) -> None:
        missing = np.isnan(rows)
        precisions = factors @ factors.transpose(0, 2, 1)
        # In units in which precisions have a unit diagonal, inverses do not depend on the units of columns.
        units = np.sqrt(np.einsum("kii->ki", precisions))
        scaled = factors / units[:, :, None]
        precisions = precisions / (units[:, :, None] * units[:, None, :])
        offsets = np.where(missing, 0.0, (rows - means[:, None]) * units[:, None])
        slopes = offsets @ precisions
        halves = 0.5 * _LOG_2_PI * (~missing).sum(axis=1) - np.log(np.einsum("kii->ki", factors)).sum(axis=1)[:, None]
        self._groups: list[_Group] = []
        for at, patterns, columns in _groups(missing):
            own = precisions[:, columns[:, :, None], columns[:, None, :]]
            inverses = np.linalg.inv(own)
            own_slopes = slopes[:, at[:, None], columns[patterns]]
            offsets[:, at[:, None], columns[patterns]] = -(inverses[:, patterns] @ own_slopes[..., None])[..., 0]
            own_units = units[:, columns]
            log_determinants = np.linalg.slogdet(own)[1] + 2 * np.log(own_units).sum(axis=2)
            halves[:, at] += 0.5 * log_determinants[:, patterns]
            inverses /= own_units[..., :, None] * own_units[..., None, :]
            self._groups.append(_Group(at, patterns, columns, inverses))
        white = offsets @ scaled
        self.log_densities = (-0.5 * np.einsum("kij,kij->ki", white, white) - halves).T + log_weights
        self._expected = offsets / units[:, None] + means[:, None]  # k x n x d

    def sums(self, shares: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the expectations of Σ r_h, Σ r_h x and Σ r_h x xᵀ for responsibilities r (n x k)."""
        k, d = len(self._expected), self._expected.shape[2]
        weighted = self._expected * shares.T[:, :, None]
        seconds = weighted.transpose(0, 2, 1) @ self._expected
        for group in self._groups:
            places = (group.columns[:, :, None] * d + group.columns[:, None, :]).ravel()
            for component, own in enumerate(group.covariances):
                counts = np.bincount(group.patterns, shares[group.rows, component], minlength=len(group.columns))
                unseen = np.bincount(places, (counts[:, None, None] * own).ravel(), minlength=d * d)
                seconds[component] += unseen.reshape(d, d)
        return shares.sum(axis=0), weighted.sum(axis=1), seconds.reshape(k, d, d)


def _groups(missing: BoolArray) -> Iterator[tuple[IndexArray, IndexArray, IndexArray]]:
    """Yield rows with the same number of missing values: their places, their patterns, and the columns of patterns."""
    n_missing = missing.sum(axis=1)
    for number in np.unique(n_missing[n_missing > 0]).tolist():
        at = np.flatnonzero(n_missing == number)
        columns = np.nonzero(missing[at])[1].reshape(-1, number)
        patterns = columns.astype(np.int32).view(f"V{4 * number}").ravel()
        _, firsts, numbers = np.unique(patterns, return_index=True, return_inverse=True)
        yield at, numbers.ravel(), columns[firsts]
