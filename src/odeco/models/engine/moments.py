"""Mean and covariance of rows, which can be summed block by block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from odeco._util.types import FloatArray


@dataclass(frozen=True, eq=False)
class SecondMoment:
    """The mean of rows, and their scatter matrix Σ (x − mean)(x − mean)ᵀ.

    Attributes
    ----------
    mean : array, d
        The mean.
    scatter : array, d x d
        The scatter matrix; of one row, as which a known distribution counts, it is the covariance.
    n_rows : int
        Number of rows.
    """

    mean: FloatArray
    scatter: FloatArray
    n_rows: int = 1

    @classmethod
    def of_block(cls, block: FloatArray) -> SecondMoment:
        """Return the moment of one block of rows."""
        mean = block.mean(axis=0)
        centred = block - mean
        return cls(mean, centred.T @ centred, len(block))

    def __add__(self, other: SecondMoment) -> SecondMoment:
        n_rows, offset = self.n_rows + other.n_rows, other.mean - self.mean
        mean = self.mean + offset * (other.n_rows / n_rows)
        between = np.outer(offset, offset) * (self.n_rows * other.n_rows / n_rows)
        return SecondMoment(mean, self.scatter + other.scatter + between, n_rows)

    @property
    def covariance(self) -> FloatArray:
        """The covariance, divided by the number of rows."""
        covariance: FloatArray = self.scatter / self.n_rows
        return covariance

    @property
    def variance(self) -> float:
        """The mean variance of a feature."""
        return float(np.trace(self.covariance)) / len(self.mean)
