"""Counts as a part of a mixture: a Poisson distribution for each column of every component."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.special import gammaln

from odeco._util.state import array_field
from odeco._util.types import FloatArray, IndexArray
from odeco.models.emissions.parts import Part

#: The smallest rate, so that its logarithm is finite.
_MIN_RATE = 1e-9


@dataclass(frozen=True, eq=False)
class PoissonPart(Part):
    """Columns of counts; NaN is a missing one.

    Attributes
    ----------
    rates : array, k x counts
        The rate of each column.
    """

    rates: FloatArray = array_field("k", "counts", low=np.finfo(np.float64).tiny)

    @property
    def width(self) -> int:
        """The number of columns."""
        return int(self.rates.shape[1])

    @property
    def n_sums(self) -> int:
        """The number of columns, twice: sums of counts, and of rows that have one."""
        return 2 * self.width

    @property
    def n_parameters(self) -> int:
        """The number of columns."""
        return self.width

    def log_densities(self, block: FloatArray) -> FloatArray:
        """Return the log-probability of each row in each component, n x k."""
        counts = np.nan_to_num(block)
        densities: FloatArray = counts @ np.log(self.rates).T
        densities -= ~np.isnan(block) @ self.rates.T
        densities -= gammaln(counts + 1).sum(axis=1)[:, None]
        return densities

    def sums(self, block: FloatArray, shares: FloatArray) -> FloatArray:
        """Return the sums of counts, and of rows that have one."""
        seen = ~np.isnan(block)
        return np.vstack([np.nan_to_num(block).T @ shares, seen.T @ shares])

    def m_step(self, sums: FloatArray, floor: FloatArray) -> Self:  # noqa: ARG002 - of all parts
        """Return the mean counts; the rate of a column without rows stays."""
        totals, seen = np.split(sums.T, 2, axis=1)
        known = seen > 0
        rates = np.where(known, totals / np.where(known, seen, 1.0), self.rates)
        return replace(self, rates=np.maximum(rates, _MIN_RATE))

    def draw(self, labels: IndexArray, random: np.random.RandomState) -> FloatArray:
        """Draw counts."""
        return np.asarray(random.poisson(self.rates[labels]), np.float64)

    def embed(self, block: FloatArray) -> FloatArray:
        """Return 2√x, which has about the variance 1 within components, standardised."""
        roots = 2 * np.sqrt(block)
        deviations = np.nanstd(roots, axis=0)
        units = np.where(deviations > 0, deviations, 1.0)
        return np.asarray(np.nan_to_num((roots - np.nanmean(roots, axis=0)) / units))
