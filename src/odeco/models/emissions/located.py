"""A category and numbers whose means depend on it within a component: Krzanowski's location model.

Products of parts forbid that sizes depend on sex within a species, so clusters of birds may be
"one species, other females, other males". Here a component has a mean for each category, and one
covariance for all (Krzanowski, *Discrimination and classification using both binary and continuous
variables*, 1975). Each pair of a component and a category is a Gaussian, which has the same columns
as `GaussianPart`; a missing category is summed over.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from scipy.special import logsumexp

from odeco._util.state import array_field, require
from odeco._util.types import FloatArray, IndexArray
from odeco.models.emissions.covariances import CovarianceType, bounded
from odeco.models.emissions.normal import GaussianPart, check_own_covariances
from odeco.models.emissions.parts import Part

#: Probabilities and shares of rows below this count as this.
_MIN_PROBABILITY = 1e-12


@dataclass(frozen=True, eq=False)
class LocatedPart(Part):
    """Columns of standardised numbers, and the indicators of a category after them.

    Attributes
    ----------
    chances : array, k x values
        The probability of each category.
    means : array, k x values x numbers
        The means of the numbers in each category.
    covariances : array
        The variances or covariance matrices of the numbers around these means.
    """

    chances: FloatArray = array_field("k", "n_values", low=0, high=1 + 1e-9)
    means: FloatArray = array_field(
        "k", "n_values", "n_numbers", rule=bounded("k", "n_values", "n_numbers")
    )
    covariances: FloatArray = array_field("k", rule=check_own_covariances)

    @classmethod
    def standard(cls, d: int, kind: CovarianceType, n_values: int) -> Self:
        """Return one component in which means do not depend on the category."""
        like = GaussianPart.standard(d, kind)
        chances = np.full((1, n_values), 1 / n_values)
        return cls(chances, np.zeros((1, n_values, d)), like.covariances)

    def check(self) -> None:
        """Require probabilities that sum to one, and a variance for each column."""
        require(self.covariances.ndim > 1, "numbers must have a variance for each column")
        totals = self.chances.sum(axis=1)
        require(bool(np.all(np.abs(totals - 1) < 1e-6)), "probabilities must sum to one")

    @property
    def n_values(self) -> int:
        """The number of categories."""
        return int(self.chances.shape[1])

    @property
    def d(self) -> int:
        """The number of columns of numbers."""
        return int(self.means.shape[2])

    @property
    def width(self) -> int:
        """The number of columns of numbers, and of categories."""
        return self.d + self.n_values

    @property
    def n_sums(self) -> int:
        """The sums of rows and of numbers for each category, and of squares for all together."""
        own = self._gaussians
        return self.n_values * (1 + own.n_seen + self.d) + int(self.covariances[0].size)

    @property
    def n_parameters(self) -> int:
        """The number of probabilities, means and variances of one component."""
        own = self._gaussians.kind.n_parameters(self.d)
        return self.n_values - 1 + self.n_values * self.d + own

    @cached_property
    def _gaussians(self) -> GaussianPart:
        """A Gaussian for each component and category."""
        means = self.means.reshape(-1, self.d)
        return GaussianPart(means, np.repeat(self.covariances, self.n_values, axis=0))

    @cached_property
    def marginal(self) -> GaussianPart:
        """The means and covariances of the numbers in each component, over all categories."""
        means = np.einsum("ka,kad->kd", self.chances, self.means)
        offsets = self.means - means[:, None]
        kind = self._gaussians.kind
        if kind.name == "full":
            between = np.einsum("ka,kai,kaj->kij", self.chances, offsets, offsets)
        else:
            between = np.einsum("ka,kad->kd", self.chances, offsets**2)
        return GaussianPart(means, self.covariances + between)

    def _joint(self, block: FloatArray) -> FloatArray:
        """Return the log-density of the numbers and of each possible category, n x k x values."""
        marked = block[:, None, self.d :] > 0
        is_other = marked.any(axis=2, keepdims=True) & ~marked
        densities = self._gaussians.log_densities(block[:, : self.d])
        joint = densities.reshape(len(block), *self.chances.shape)
        joint += np.log(np.maximum(self.chances, _MIN_PROBABILITY))
        return np.where(is_other, -np.inf, joint)

    def log_densities(self, block: FloatArray) -> FloatArray:
        """Return the log-density of each row in each component, n x k."""
        return np.asarray(logsumexp(self._joint(block), axis=2))

    def sums(self, block: FloatArray, shares: FloatArray) -> FloatArray:
        """Return the sums of 1 and x by category, and of x² (or products) over all."""
        joint = self._joint(block)
        joint -= logsumexp(joint, axis=2)[:, :, None]
        both = (np.exp(joint) * shares[:, :, None]).reshape(len(block), -1)
        own = self._gaussians
        sums = own.sums(block[:, : self.d], both).reshape(own.n_sums, -1, self.n_values)
        counts = both.sum(axis=0).reshape(-1, self.n_values).T
        n_first = own.n_seen + self.d
        firsts = sums[:n_first].transpose(2, 0, 1).reshape(-1, len(self.chances))
        return np.vstack([counts, firsts, sums[n_first:].sum(axis=2)])

    def m_step(self, sums: FloatArray, floor: FloatArray) -> Self:
        """Return probabilities, means and covariances."""
        own = self._gaussians
        a = self.n_values
        n_first = own.n_seen + self.d
        counts, firsts, seconds = np.split(sums.T, [a, a + a * n_first], axis=1)
        counts = np.maximum(counts, _MIN_PROBABILITY)
        by_value = firsts.reshape(-1, a, n_first)
        seen = np.maximum(by_value[:, :, : own.n_seen], _MIN_PROBABILITY)
        means = by_value[:, :, own.n_seen :] / seen
        return replace(
            self,
            chances=counts / counts.sum(axis=1, keepdims=True),
            means=means,
            covariances=own.covariances_of(seconds, seen, means, floor),
        )

    def draw(self, labels: IndexArray, random: np.random.RandomState) -> FloatArray:
        """Draw a category, and numbers of it."""
        edges = np.cumsum(self.chances, axis=1)[:, :-1]
        codes = np.sum(random.random_sample(len(labels))[:, None] > edges[labels], axis=1)
        numbers = self._gaussians.draw(labels * self.n_values + codes, random)
        return np.hstack([numbers, np.eye(self.n_values)[codes]])

    def embed(self, block: FloatArray) -> FloatArray:
        """Return the numbers less their means by category, so that starts see what is left."""
        numbers = np.nan_to_num(block[:, : self.d])
        marked = block[:, self.d :]
        counts = np.maximum(marked.sum(axis=0), 1.0)
        return np.asarray(numbers - marked @ (marked.T @ numbers / counts[:, None]))
