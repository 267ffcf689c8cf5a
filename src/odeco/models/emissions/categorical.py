"""Categories as a part of a mixture: a probability of each category in every component."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from odeco._util.state import array_field, require
from odeco._util.types import FloatArray, IndexArray
from odeco.models.emissions.parts import Part

#: Probabilities below this count as this, so that their logarithms are finite.
_MIN_PROBABILITY = 1e-12

#: The least variance of an indicator in the coordinates of starts.
_MIN_VARIANCE = 1e-9


@dataclass(frozen=True, eq=False)
class CategoricalPart(Part):
    """Columns of categories, as indicators: one column of a block for each category.

    Attributes
    ----------
    probabilities : array, k x categories
        The probability of each category; those of one column sum to one.
    sizes : array
        The number of categories of each column.
    """

    probabilities: FloatArray = array_field("k", "categories", low=0, high=1 + 1e-9)
    sizes: IndexArray = array_field(None, kind="i", low=1)

    @classmethod
    def uniform(cls, sizes: IndexArray) -> Self:
        """Return one component in which the categories of a column are equally frequent."""
        return cls(np.repeat(1 / sizes, sizes)[None], sizes)

    def check(self) -> None:
        """Require probabilities that sum to one."""
        require(self.width == self.sizes.sum(), "it must have a probability for each category")
        totals = self.by_column(self.probabilities)
        require(bool(np.all(np.abs(totals - 1) < 1e-6)), "probabilities must sum to one")

    @property
    def width(self) -> int:
        """The number of categories."""
        return int(self.probabilities.shape[1])

    @property
    def n_sums(self) -> int:
        """The number of categories."""
        return self.width

    @property
    def n_parameters(self) -> int:
        """The number of free probabilities of one component."""
        return self.width - self.sizes.size

    @cached_property
    def offsets(self) -> IndexArray:
        """The first category of each column."""
        return np.cumsum(self.sizes) - self.sizes

    @cached_property
    def owners(self) -> IndexArray:
        """The column of each category."""
        return np.repeat(np.arange(self.sizes.size), self.sizes)

    def by_column(self, numbers: FloatArray) -> FloatArray:
        """Return the sums over the categories of each column; categories are along the last
        axis.
        """
        return np.add.reduceat(numbers, self.offsets, axis=-1)

    def log_densities(self, block: FloatArray) -> FloatArray:
        """Return the log-probability of each row in each component, n x k."""
        densities: FloatArray = block @ np.log(np.maximum(self.probabilities, _MIN_PROBABILITY)).T
        return densities

    def sums(self, block: FloatArray, shares: FloatArray) -> FloatArray:
        """Return how often each category occurs in each component."""
        sums: FloatArray = block.T @ shares
        return sums

    def m_step(self, sums: FloatArray, floor: FloatArray) -> Self:  # noqa: ARG002 - of all parts
        """Return the shares of the categories; those of a column without rows stay."""
        totals = self.by_column(sums.T)[:, self.owners]
        known = totals > 0
        shares = np.where(known, sums.T / np.where(known, totals, 1.0), self.probabilities)
        return replace(self, probabilities=shares)

    def draw(self, labels: IndexArray, random: np.random.RandomState) -> FloatArray:
        """Draw one category of each column, as indicators."""
        block = np.zeros((len(labels), self.width))
        for column in np.split(np.arange(self.width), self.offsets[1:]):
            own = self.probabilities[:, column]
            edges = np.cumsum(own / own.sum(axis=1, keepdims=True), axis=1)[:, :-1]
            codes = np.sum(random.random_sample(len(labels))[:, None] > edges[labels], axis=1)
            block[np.arange(len(labels)), column[codes]] = 1.0
        return block

    def embed(self, block: FloatArray) -> FloatArray:
        """Return indicators such that the variances of each column sum to one."""
        frequencies = block.mean(axis=0)
        variances = self.by_column(frequencies * (1 - frequencies))
        seen = self.by_column(block)[:, self.owners]
        scale = np.sqrt(np.maximum(variances, _MIN_VARIANCE))[self.owners]
        return np.asarray(seen * (block - frequencies) / scale)
