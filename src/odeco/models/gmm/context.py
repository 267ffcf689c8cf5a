"""What belongs to the rows of a mixture: what their columns are, centres, scales and a prior."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from odeco._util.state import State, array_field, part_field
from odeco._util.types import FloatArray, IndexArray
from odeco.io.kinds import Columns
from odeco.models.emissions.categorical import CategoricalPart
from odeco.models.emissions.gaussians import Gaussians
from odeco.models.emissions.located import LocatedPart
from odeco.models.emissions.normal import GaussianPart
from odeco.models.emissions.parts import Part
from odeco.models.emissions.poisson import PoissonPart
from odeco.models.emissions.product import Product, ProductMixture
from odeco.models.engine.rows import MAX_SCALE, MIN_SCALE


@dataclass(frozen=True, eq=False)
class MixtureContext(State):
    """What belongs to the rows.

    Attributes
    ----------
    columns : Columns
        What the columns of a table are; nothing for rows of numbers.
    centre, scale : array
        What is subtracted from numbers, and what they are divided by then; empty before any row.
    floor : array
        What is added to the variances of numbers; empty before any row.
    kind : str
        The kind of the covariances of the numbers; empty before any row.
    located : str
        The column of categories on which the means of numbers depend; empty for none.
    prior : array
        The mean features of all rows; empty before any row.
    """

    columns: Columns = part_field(Columns, default=Columns())
    centre: FloatArray = array_field("numbers", default=np.zeros(0))
    scale: FloatArray = array_field("numbers", low=MIN_SCALE, high=MAX_SCALE, default=np.zeros(0))
    floor: FloatArray = array_field("numbers", low=0, default=np.zeros(0))
    kind: str = array_field(kind="U", default="")
    located: str = array_field(kind="U", default="")
    prior: FloatArray = array_field(None, default=np.zeros(0))

    @cached_property
    def numbers(self) -> IndexArray:
        """The places of the numbers in rows."""
        if self.columns.is_empty:
            return np.arange(self.centre.size)
        return self.columns.places("number")

    @property
    def is_standardized(self) -> bool:
        """Whether columns are divided by different numbers: their own standard deviations."""
        return bool(np.any(self.scale != self.scale[:1]))

    @cached_property
    def order(self) -> list[str]:
        """The names of the columns of categories in the order of a block: the located one first."""
        return sorted(self.columns.categories, key=lambda name: name != self.located)

    @cached_property
    def _layout(self) -> list[tuple[IndexArray, int]]:
        """The places of columns in rows, in the order of a block, and the width of each: one for a
        number or a count, else the number of categories.
        """
        columns = self.columns
        names = columns.names.tolist()
        marked = [
            (np.array([names.index(name)]), columns.categories[name].size) for name in self.order
        ]
        first = 1 if self.located else 0
        counts = (columns.places("count"), 1)
        return [(self.numbers, 1), *marked[:first], counts, *marked[first:]]

    def block(self, rows: FloatArray) -> FloatArray:
        """Return encoded rows as the parts take them: numbers, counts, indicators."""
        made: list[FloatArray] = []
        for places, width in self._layout:
            cells = rows[:, places]
            made.append(cells if width == 1 else (cells == np.arange(width)).astype(np.float64))
        made[0] = (made[0] - self.centre) / self.scale
        return np.hstack(made)

    def rows(self, block: FloatArray) -> FloatArray:
        """Return a block as encoded rows."""
        rows = np.empty((len(block), sum(places.size for places, _ in self._layout)))
        start = 0
        for places, width in self._layout:
            own = block[:, start : start + places.size * width]
            rows[:, places] = own if width == 1 else own.argmax(axis=1)[:, None]
            start += places.size * width
        rows[:, self.numbers] = self.centre + self.scale * rows[:, self.numbers]
        return rows

    def template(self) -> Product:
        """Return one component, whose parameters mean nothing."""
        kind: Any = self.kind
        d = self.centre.size
        n_counts = self.columns.places("count").size
        sizes = [self.columns.categories[name].size for name in self.order]
        parts: list[Part] = []
        if self.located:
            parts.append(LocatedPart.standard(d, kind, sizes.pop(0)))
        elif d:
            parts.append(GaussianPart.standard(d, kind))
        if n_counts:
            parts.append(PoissonPart(np.ones((1, n_counts))))
        if sizes:
            parts.append(CategoricalPart.uniform(np.array(sizes)))
        return Product(tuple(parts))

    def probabilities(self, params: ProductMixture) -> dict[str, FloatArray]:
        """Return the probabilities of the categories of each column, k x categories."""
        shares: list[FloatArray] = []
        located = params.part(LocatedPart)
        if located is not None:
            shares.append(located.chances)
        categories = params.part(CategoricalPart)
        if categories is not None:
            shares += np.split(categories.probabilities, categories.offsets[1:], axis=1)
        found = dict(zip(self.order, shares, strict=True))
        return {name: found[name] for name in self.columns.categories}

    def log_volumes(self, block: FloatArray) -> FloatArray:
        """Return the logarithm of the product of the scales of the observed numbers of each row."""
        return np.asarray(~np.isnan(block[:, : self.scale.size]) @ np.log(self.scale))

    def gaussians(self, params: ProductMixture) -> Gaussians:
        """Return the Gaussians of the numbers."""
        numbers = params.numbers
        if numbers is None:
            k = params.weights.size
            return Gaussians(params.weights, np.zeros((k, 0)), np.ones((k, 0)))
        return Gaussians(params.weights, numbers.means, numbers.covariances)

    def in_own_units(self, params: ProductMixture) -> Gaussians:
        """Return the Gaussians of the numbers, in the units of the rows."""
        return self.gaussians(params).moved(self.centre, self.scale)
