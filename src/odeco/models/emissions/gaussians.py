"""A mixture of Gaussians in the units of its rows: what is planted, what a private program learns,
and what fitted attributes show.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from odeco._util.state import State, array_field
from odeco._util.types import FloatArray, IndexArray
from odeco.models.emissions.covariances import CovarianceType, bounded, covariances_rule
from odeco.models.emissions.normal import GaussianPart, draw_rows
from odeco.models.emissions.parts import draw_labels, normalize, weights_rule


@dataclass(frozen=True, eq=False)
class Gaussians(State):
    """A mixture of k Gaussians in d dimensions.

    Attributes
    ----------
    weights : array, k
        The probability of each component.
    means : array, k x d
        The means.
    covariances : array
        One variance for each component (k), one for each feature (k x d), or covariance matrices (k
        x d x d).
    """

    weights: FloatArray = array_field("k", rule=weights_rule("k"))
    means: FloatArray = array_field("k", "n_features", rule=bounded("k", "n_features"))
    covariances: FloatArray = array_field("k", rule=covariances_rule("k", "n_features"))

    @cached_property
    def part(self) -> GaussianPart:
        """The Gaussians without their weights."""
        return GaussianPart(self.means, self.covariances)

    @property
    def covariance_type(self) -> CovarianceType:
        """The name of the kind of the covariances."""
        return self.part.kind.name

    @cached_property
    def origin(self) -> FloatArray:
        """The mean of the mixture."""
        return np.asarray(self.weights @ self.means)

    @property
    def variances(self) -> FloatArray:
        """The variance of each feature in each component (k x d)."""
        return self.part.variances

    @property
    def spread(self) -> FloatArray:
        """The standard deviation of each feature within components, averaged over components."""
        return np.asarray(np.sqrt(self.weights @ self.variances))

    @property
    def standardized_means(self) -> FloatArray:
        """The distance of each mean from the mean of the mixture, in standard deviations within
        components.
        """
        return np.asarray((self.means - self.origin) / self.spread)

    def posterior(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the responsibility of each component for each row, and the log-density of each
        row.
        """
        centred = GaussianPart(self.means - self.origin, self.covariances)
        with np.errstate(divide="ignore"):  # a weight may be zero
            joint = centred.log_densities(rows - self.origin) + np.log(self.weights)
        return normalize(joint)

    def moved(self, centre: FloatArray, scale: FloatArray) -> Gaussians:
        """Return the mixture of rows that are multiplied by a scale for each column, and have a
        centre added then. Spheres are axis-aligned unless all scales are equal.
        """
        covariances = self.part.kind.rescale(self.covariances, scale)
        return Gaussians(self.weights, centre + self.means * scale, covariances)

    def draw(self, n_rows: int, random: Any) -> tuple[FloatArray, IndexArray]:
        """Draw rows, and return them with the component of each; `random` is a generator of NumPy,
        new or old.
        """
        labels = draw_labels(self.weights, n_rows, random)
        return draw_rows(labels, self.means, self.covariances, random), labels
