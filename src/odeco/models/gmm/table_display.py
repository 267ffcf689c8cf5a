"""A mixture of a table in words and pictures: numbers, counts and categories side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from odeco._util.types import FloatArray
from odeco.models.emissions.poisson import PoissonPart
from odeco.models.engine.description import (
    ComponentRow,
    Description,
    HeatMap,
    PageTable,
    component_names,
    most_characteristic,
    number_text,
)
from odeco.models.engine.fit import Fit

#: A figure shows at most this many lines.
_MAX_LINES = 40

#: A component is described by what is further from all rows than this.
_MIN_HEIGHT = 0.1

#: The least variance within components, in the units of the column.
_TINY = 1e-300


@dataclass(frozen=True)
class _Line:
    """A number, a count or a category of a table.

    Attributes
    ----------
    column : str
        The name of the column.
    name : str
        Its name, for a category with the category.
    everywhere : str
        Its mean or share in all rows.
    cells : list of str
        Its mean, with a deviation, or its share in each component.
    short : list of str
        The same in few letters.
    heights : array, k
        How far it is from all rows in each component: in deviations within components.
    """

    column: str
    name: str
    everywhere: str
    cells: list[str]
    short: list[str]
    heights: FloatArray


def describe_table(fit: Fit, names: list[str]) -> Description:
    """Return a mixture of a table in words and pictures."""
    lines = list(_lines(fit))
    weights = fit.params.weights
    heights = np.array([line.heights for line in lines]).T
    components = []
    for component, places in enumerate(most_characteristic(heights)):
        told = [
            f"{lines[place].name} {lines[place].short[component]} (all {lines[place].everywhere})"
            for place in places
            if abs(heights[component, place]) > _MIN_HEIGHT
        ]
        components.append(ComponentRow(float(weights[component]), ", ".join(told) or "as all rows"))
    order = np.argsort(-(weights @ heights**2), kind="stable").tolist()
    shown = order[:_MAX_LINES]
    panel = HeatMap(
        heights[:, shown],
        component_names(weights),
        [lines[place].name for place in shown],
        "distance from all rows, in deviations",
    )
    verdict = "One component: nothing to tell apart." if weights.size == 1 else ""
    separating = dict.fromkeys(names.index(lines[place].column) for place in order)
    return Description(
        verdict,
        tuple(_facts(fit)),
        tuple(components),
        (panel,),
        (_table([lines[place] for place in order]),),
        columns=tuple(separating),
    )


def _facts(fit: Fit) -> Iterator[str]:
    columns = fit.context.columns
    counted = [
        f"{number} of {kind}"
        for kind, number in (
            ("numbers", columns.places("number").size),
            ("counts", columns.places("count").size),
            ("categories", columns.places("category").size),
        )
        if number
    ]
    yield f"{fit.info.n_samples:,} rows; columns: {', '.join(counted)}; start: {fit.info.init}."
    if fit.context.located:
        yield f"Within a component, the means of numbers depend on {fit.context.located}."
    if columns.sentence:
        yield columns.sentence


def _lines(fit: Fit) -> Iterator[_Line]:
    """Yield the lines of all columns, in the order of the table."""
    params = fit.params
    columns = fit.context.columns
    numbers = fit.context.in_own_units(params)
    counts = params.part(PoissonPart)
    shares = fit.context.probabilities(params)
    place = {"number": 0, "count": 0, "category": 0}
    for name, kind in zip(columns.names.tolist(), columns.kinds.tolist(), strict=True):
        own = place[kind]
        place[kind] += 1
        if kind == "number":
            variances = numbers.variances[:, own]
            yield _mean_line(name, params.weights, numbers.means[:, own], variances)
        elif kind == "count":
            rates = counts.rates[:, own]
            yield _mean_line(name, params.weights, rates, rates)
        else:
            yield from _category_lines(
                name, params.weights, shares[name].T, columns.categories[name]
            )


def _mean_line(name: str, weights: FloatArray, means: FloatArray, variances: FloatArray) -> _Line:
    everywhere = float(weights @ means)
    spread = np.sqrt(max(float(weights @ variances), _TINY))
    pairs = zip(means, np.sqrt(variances), strict=True)
    cells = [f"{number_text(mean)} ± {number_text(deviation, 2)}" for mean, deviation in pairs]
    short = [number_text(mean) for mean in means]
    heights = (means - everywhere) / spread
    return _Line(name, name, number_text(everywhere), cells, short, heights)


def _category_lines(
    name: str, weights: FloatArray, shares: FloatArray, categories: Any
) -> Iterator[_Line]:
    for category, own in zip(categories.tolist(), shares, strict=True):
        everywhere = float(weights @ own)
        within = max(float(weights @ (own * (1 - own))), _TINY)
        spread = np.sqrt(within + everywhere * (1 - everywhere))
        cells = [f"{share:.0%}" for share in own]
        heights = (own - everywhere) / spread
        yield _Line(name, f"{name} = {category}", f"{everywhere:.0%}", cells, cells, heights)


def _table(lines: list[_Line]) -> PageTable:
    """Return every number, count and category in every component."""
    rows = [[line.name, line.everywhere, *line.cells] for line in lines]
    shades = np.array([line.heights for line in lines]) / 2
    k = shades.shape[1]
    lead = (
        "Numbers and counts: mean ± standard deviation in the units of the rows. Categories: "
        "their share. What tells components apart best comes first. Blue is above all rows, "
        "orange below, by up to two standard deviations within components."
    )
    headings = ["column", "all", *(f"{number}" for number in range(k))]
    shaded = np.column_stack([np.zeros(len(rows)), np.clip(shades, -1, 1)])
    return PageTable("Columns, component by component", lead, headings, rows, shaded)
