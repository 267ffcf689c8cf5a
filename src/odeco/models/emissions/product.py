"""Components that are products of parts, side by side, with their sufficient statistics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self, TypeVar

import numpy as np

from odeco._util.state import State, array_field, parts_field
from odeco._util.types import FloatArray, IndexArray
from odeco.models.emissions.categorical import CategoricalPart
from odeco.models.emissions.located import LocatedPart
from odeco.models.emissions.normal import GaussianPart
from odeco.models.emissions.parts import Part, normalize, weights_rule
from odeco.models.emissions.poisson import PoissonPart
from odeco.models.engine.fit import Statistics

Some = TypeVar("Some", bound=Part)

#: The types of parts that a file may name.
PARTS: tuple[type[Part], ...] = (GaussianPart, LocatedPart, PoissonPart, CategoricalPart)


@dataclass(frozen=True, eq=False)
class Product(State):
    """Components that are products of parts.

    Attributes
    ----------
    parts : tuple of Part
        The parts, in the order of their columns.
    """

    parts: tuple[Part, ...] = parts_field(*PARTS)

    @property
    def numbers(self) -> GaussianPart | None:
        """The Gaussians of the numbers, over all categories on which means depend; None without
        numbers.
        """
        for part in self.parts:
            if isinstance(part, GaussianPart):
                return part
            if isinstance(part, LocatedPart):
                return part.marginal
        return None

    def share_within(self, weights: FloatArray) -> FloatArray:
        """Return the share of the standard deviation of a number that is left within components,
        the least of all columns, for several mixtures whose components stand side by side.

        Parameters
        ----------
        weights : array, mixtures x k
            The probabilities of the components of each.
        """
        numbers = self.numbers
        if numbers is None:
            return np.ones(len(weights))
        means = numbers.means.reshape(*weights.shape, -1)
        variances = numbers.variances.reshape(means.shape)
        within = np.einsum("sk,skd->sd", weights, variances)
        origins = np.einsum("sk,skd->sd", weights, means)
        between = np.einsum("sk,skd->sd", weights, (means - origins[:, None]) ** 2)
        return np.asarray(np.sqrt(np.min(within / (within + between), axis=1)))

    @cached_property
    def _ends(self) -> IndexArray:
        return np.cumsum([part.width for part in self.parts])[:-1]

    @property
    def n_parameters(self) -> int:
        """The number of free parameters of one component."""
        return sum(part.n_parameters for part in self.parts)

    @property
    def n_sums(self) -> int:
        """The number of features of all parts."""
        return sum(part.n_sums for part in self.parts)

    def _blocks(self, block: FloatArray) -> Iterator[tuple[Part, FloatArray]]:
        return zip(self.parts, np.split(block, self._ends, axis=1), strict=True)

    def log_densities(self, block: FloatArray) -> FloatArray:
        """Return the log-density of each row in each component, n x k."""
        first, *others = (part.log_densities(own) for part, own in self._blocks(block))
        return sum(others, start=first)

    def sums(self, block: FloatArray, shares: FloatArray) -> FloatArray:
        """Return the sums of the features of all parts for responsibilities, n_sums x k."""
        return np.vstack([part.sums(own, shares) for part, own in self._blocks(block)])

    def m_step(self, sums: FloatArray, floor: FloatArray) -> Self:
        """Return the likeliest components for sums of features."""
        ends = np.cumsum([part.n_sums for part in self.parts])[:-1]
        own_sums = np.split(sums, ends)
        made = [part.m_step(own, floor) for part, own in zip(self.parts, own_sums, strict=True)]
        return replace(self, parts=tuple(made))

    def draw(self, labels: IndexArray, random: np.random.RandomState) -> FloatArray:
        """Draw a row of a block from the component of each label."""
        return np.hstack([part.draw(labels, random) for part in self.parts])

    def embed(self, block: FloatArray) -> FloatArray:
        """Return coordinates of rows in which every column counts alike, for starts."""
        return np.hstack([part.embed(own) for part, own in self._blocks(block)])

    def take(self, places: IndexArray) -> Self:
        """Return some components."""
        return replace(self, parts=tuple(part.permuted(places) for part in self.parts))


@dataclass(frozen=True, eq=False)
class ProductMixture(Product):
    """A mixture of products.

    Attributes
    ----------
    weights : array, k
        The probability of each component.
    """

    weights: FloatArray = array_field("k", rule=weights_rule("k"))

    def posterior(self, block: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the responsibility of each component for each row, and the log-density of each
        row.
        """
        with np.errstate(divide="ignore"):
            return normalize(self.log_densities(block) + np.log(self.weights))

    def __getitem__(self, kind: type[Some]) -> Some:
        """Return the part of a type, of which there must be one."""
        return next(each for each in self.parts if isinstance(each, kind))

    def part(self, kind: type[Some]) -> Some | None:
        """Return the part of a type, or None."""
        return next((each for each in self.parts if isinstance(each, kind)), None)


@dataclass(frozen=True, eq=False)
class ProductStatistics(Statistics):
    """Sufficient statistics of a mixture of products.

    Attributes
    ----------
    counts : array, k
        Σ r_h.
    sums : array, n_sums x k
        Σ r_h T(x), with the features of all parts side by side.
    """

    counts: FloatArray = array_field("k", low=0)
    sums: FloatArray = array_field(None, "k")
