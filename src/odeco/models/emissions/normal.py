"""Numbers as a part of a mixture: a Gaussian for every component.

Rows of this part are standardised, so that their squares may be added up, and one floor goes with
all variances.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from odeco._util.state import Sizes, array_field
from odeco._util.types import FloatArray, IndexArray
from odeco.models.emissions.covariances import (
    FULL,
    KINDS,
    CovarianceType,
    Kind,
    bounded,
    covariances_rule,
    kind_of,
)
from odeco.models.emissions.parts import Part
from odeco.models.engine.rows import Correlated, parts_of

#: Numbers beyond this many deviations count as if they were there: their squares would overflow.
_FARTHEST = 1e100

#: A component with less than this share of one row keeps its mean and covariance.
_MIN_COUNT = 1e-6


def check_own_covariances(value: Any, where: str, sizes: Sizes) -> None:
    """Require covariances of the numbers, which are some of the features."""
    own = {"k": sizes["k"], "n_features": sizes["n_numbers"]}
    covariances_rule("k", "n_features")(value, where, own)


@dataclass(frozen=True, eq=False)
class GaussianPart(Part):
    """Columns of standardised numbers; NaN is a missing one.

    Attributes
    ----------
    means : array, k x numbers
        The means.
    covariances : array
        One variance for each component, one for each column, or covariance matrices.
    """

    means: FloatArray = array_field("k", "n_numbers", rule=bounded("k", "n_numbers"))
    covariances: FloatArray = array_field("k", rule=check_own_covariances)

    @classmethod
    def standard(cls, d: int, kind: CovarianceType) -> Self:
        """Return one component with the mean 0 and the variance 1 in each column."""
        return cls(np.zeros((1, d)), KINDS[kind].of_matrix(np.eye(d), 1))

    @cached_property
    def kind(self) -> Kind:
        """The kind of the covariances."""
        return kind_of(self.covariances)

    @property
    def width(self) -> int:
        """The number of columns."""
        return int(self.means.shape[1])

    @property
    def is_full(self) -> bool:
        """Whether components have covariance matrices."""
        return self.covariances.ndim > 2

    @property
    def n_seen(self) -> int:
        """The number of sums of rows: with matrices one, else one for each column."""
        return 1 if self.is_full else self.width

    @property
    def n_sums(self) -> int:
        """The number of sums of rows, of numbers, and of their squares or products."""
        return self.n_seen + self.width + (self.width**2 if self.is_full else self.width)

    @property
    def n_parameters(self) -> int:
        """The number of means and variances of one component."""
        return self.width + self.kind.n_parameters(self.width)

    @property
    def variances(self) -> FloatArray:
        """The variance of each column in each component, k x numbers."""
        return self.kind.variances(self.covariances, self.width)

    @cached_property
    def _factors(self) -> FloatArray:
        """Of covariance matrices: the inverses of their Cholesky factors, transposed."""
        return FULL.factors(self.covariances)

    @cached_property
    def _log_peaks_by_column(self) -> FloatArray:
        """Without correlations: the log-density at the mean of each column."""
        return np.asarray(-0.5 * np.log(2 * math.pi * self.variances))

    @property
    def log_peaks(self) -> FloatArray:
        """The log-density of each component at its mean."""
        if self.is_full:
            return FULL.log_peaks(self._factors)
        return np.asarray(self._log_peaks_by_column.sum(axis=1))

    def log_densities(self, block: FloatArray) -> FloatArray:
        """Return the log-density of the observed numbers of each row in each component, n x k."""
        rows = np.clip(block, -_FARTHEST, _FARTHEST)
        return self._correlated(rows) if self.is_full else self._independent(rows)

    def _independent(self, rows: FloatArray) -> FloatArray:
        missing = np.isnan(rows)
        has_gaps = bool(missing.any())
        numbers = np.where(missing, 0.0, rows) if has_gaps else rows
        variances = self.variances
        at_zero = self._log_peaks_by_column - 0.5 * self.means**2 / variances
        densities: FloatArray = numbers @ (self.means / variances).T
        densities -= np.square(numbers) @ (0.5 / variances).T
        densities += at_zero.sum(axis=1)
        if has_gaps:
            densities -= missing @ at_zero.T
        return densities

    def _correlated(self, rows: FloatArray) -> FloatArray:
        whole = ~np.isnan(rows).any(axis=1)
        if whole.all():
            return FULL.log_densities(rows, self.means, self._factors)
        densities = np.empty((len(rows), len(self.means)))
        densities[whole] = FULL.log_densities(rows[whole], self.means, self._factors)
        gaps = np.flatnonzero(~whole)
        for some in parts_of(rows[gaps], len(self.means)):
            densities[gaps[some]] = self._condition(rows[gaps[some]]).log_densities
        return densities

    def _condition(self, rows: FloatArray) -> Correlated:
        return Correlated(rows, self.means, self._factors)

    def sums(self, block: FloatArray, shares: FloatArray) -> FloatArray:
        """Return the sums of 1, x and x²; a missing number adds nothing.

        With matrices, the sums of products have what is expected of missing numbers.
        """
        if not self.is_full:
            seen = ~np.isnan(block)
            numbers = np.where(seen, block, 0.0)
            return np.vstack([seen.T @ shares, numbers.T @ shares, np.square(numbers).T @ shares])
        whole = ~np.isnan(block).any(axis=1)
        rows, own = block[whole], shares[whole]
        total = _stacked((own.sum(axis=0), own.T @ rows, FULL.second_sums(rows, own)))
        gaps = np.flatnonzero(~whole)
        for some in parts_of(block[gaps], len(self.means)):
            places = gaps[some]
            total += _stacked(self._condition(block[places]).sums(shares[places]))
        return total

    def expected_sums(self) -> FloatArray:
        """Return the sums that a row of each component has on average."""
        k = len(self.means)
        if self.is_full:
            seconds = self.covariances + self.means[:, :, None] * self.means[:, None, :]
        else:
            seconds = self.variances + self.means**2
        return np.vstack([np.ones((self.n_seen, k)), self.means.T, seconds.reshape(k, -1).T])

    def m_step(self, sums: FloatArray, floor: FloatArray) -> Self:
        """Return means and covariances; those of a component without rows stay."""
        seen, firsts, seconds = np.split(sums.T, [self.n_seen, self.n_seen + self.width], axis=1)
        k = len(seen)
        known = np.broadcast_to(seen > _MIN_COUNT, (k, self.width))
        totals = np.where(seen > _MIN_COUNT, seen, 1.0)
        means = np.where(known, firsts / totals, self.means)
        covariances = self.covariances_of(seconds, totals[:, None], means[:, None], floor)
        if self.is_full:
            known = known[:, :1, None]
        elif self.kind.name == "spherical":
            known = known[:, 0]
        covariances = np.where(known, covariances, self.covariances)
        return replace(self, means=means, covariances=covariances)

    def covariances_of(
        self, seconds: FloatArray, seen: FloatArray, means: FloatArray, floor: FloatArray
    ) -> FloatArray:
        """Return the covariances around one or several means of each component.

        Parameters
        ----------
        seconds : array, k x n
            The sums of squares or products.
        seen : array, k x means x n_seen
            The number of rows of each mean.
        means : array, k x means x numbers
            The means.
        floor : array
            What is added to the variances of each number.
        """
        k = len(seconds)
        totals = seen.sum(axis=1)
        if self.is_full:
            around = np.einsum("kan,kai,kaj->kij", seen, means, means)
            scatter = (seconds.reshape(around.shape) - around) / totals[:, :, None]
            symmetric = (scatter + scatter.transpose(0, 2, 1)) / 2
            return np.asarray(symmetric + np.diag(floor))
        scatter = np.maximum(seconds - np.sum(seen * means**2, axis=1), 0.0)
        if self.kind.name == "spherical":
            counts = np.broadcast_to(totals, (k, self.width)).sum(axis=1)
            return np.asarray(scatter.sum(axis=1) / counts + floor.mean())
        return np.asarray(scatter / totals + floor)

    def draw(self, labels: IndexArray, random: np.random.RandomState) -> FloatArray:
        """Draw numbers."""
        return draw_rows(labels, self.means, self.covariances, random)

    def embed(self, block: FloatArray) -> FloatArray:
        """Return the numbers, which are standardised."""
        return np.nan_to_num(block)


def _stacked(sums: tuple[FloatArray, FloatArray, FloatArray]) -> FloatArray:
    """Return the sums of components as columns."""
    counts, firsts, seconds = sums
    return np.vstack([counts, firsts.T, seconds.reshape(len(counts), -1).T])


def draw_rows(
    labels: IndexArray, means: FloatArray, covariances: FloatArray, random: Any
) -> FloatArray:
    """Draw a row from the component of each label; `random` is a generator of NumPy, new or old."""
    noise: FloatArray = random.standard_normal((len(labels), means.shape[1]))
    kind_of(covariances).shape_noise(noise, labels, covariances)
    return means[labels] + noise
