"""A mixture in words and pictures: what is characteristic of each component, in numbers, counts and
categories side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from odeco._util.types import FloatArray
from odeco.models.emissions.gaussians import Gaussians
from odeco.models.emissions.poisson import PoissonPart
from odeco.models.engine.description import (
    ComponentRow,
    Description,
    HeatMap,
    PageTable,
    Panel,
    component_names,
    most_characteristic,
    number_text,
)
from odeco.models.engine.fit import Fit
from odeco.privacy.report import PrivacyReport

#: One column alone separates components if it has this share of the variance between their means.
_ALONE = 0.99

#: A figure shows at most this many rows and lines.
_MAX_POINTS, _MAX_LINES = 2000, 40

#: A component is described by what is further from all rows than this.
_MIN_HEIGHT = 0.1

#: The least variance within components, in the units of the column.
_TINY = 1e-300

#: The room for the number of a component, in parts of the figure's width.
_LABEL = 0.05

_SHAPES = {"spherical": "spheres", "diag": "axis-aligned ellipsoids", "full": "ellipsoids"}


@dataclass(frozen=True)
class _Line:
    """A number, a count or a category.

    Attributes
    ----------
    column : int
        The place of its column.
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

    column: int
    name: str
    everywhere: str
    cells: list[str]
    short: list[str]
    heights: FloatArray


def describe(
    fit: Fit, names: list[str], privacy: PrivacyReport | None, block: FloatArray | None
) -> Description:
    """Return a mixture in words and pictures; `block` has rows to draw, as its parts take them."""
    lines = list(_lines(fit, names))
    weights = fit.params.weights
    heights = np.array([line.heights for line in lines]).T
    components = []
    for component, places in enumerate(most_characteristic(heights)):
        told = [
            f"{lines[place].name} {lines[place].short[component]} (all {lines[place].everywhere})"
            for place in places
            if weights.size == 1 or abs(heights[component, place]) > _MIN_HEIGHT
        ]
        components.append(ComponentRow(float(weights[component]), ", ".join(told) or "as all rows"))
    order = np.argsort(-(weights @ heights**2), kind="stable").tolist()
    shown = order[:_MAX_LINES]
    panels: list[Panel] = [
        HeatMap(
            heights[:, shown],
            component_names(weights),
            [lines[place].name for place in shown],
            "deviations from all rows",
        )
    ]
    if fit.context.columns.are_numbers:
        panels.insert(0, _Plane(fit.context.gaussians(fit.params), block))
    separating = dict.fromkeys(lines[place].column for place in order)
    return Description(
        _verdict(fit, privacy),
        tuple(_facts(fit, names)),
        tuple(components),
        tuple(panels),
        (_table([lines[place] for place in order]),),
        columns=tuple(separating),
    )


def _verdict(fit: Fit, privacy: PrivacyReport | None) -> str:
    """Return what is said first of mixtures that were not checked on halves because they are
    private or single.
    """
    k = fit.params.weights.size
    if k == 1:
        return "One component: nothing to tell apart."
    if privacy is None:
        return ""
    if not fit.info.converged:
        return (
            f"{k} components, deep in noise: do not trust them. More rows or a larger epsilon "
            "would help."
        )
    return f"{k} components, which all stand clear of the noise of privacy."


def _facts(fit: Fit, names: list[str]) -> Iterator[str]:
    context = fit.context
    columns = context.columns
    counted = [
        f"{number} of {kind}"
        for kind, number in (
            ("numbers", context.numbers.size),
            ("counts", columns.places("count").size),
            ("categories", columns.places("category").size),
        )
        if number
    ]
    shape = f", fitted by {_SHAPES[context.kind]}" if context.numbers.size else ""
    yield (
        f"{fit.info.n_samples:,} rows{shape}; columns: {', '.join(counted)}; start: "
        f"{fit.info.init}."
    )
    if context.kind == "spherical":
        yield from _facts_about_units(fit, names)
    if context.located:
        yield f"Within a component, the means of numbers depend on {context.located}."
    if columns.sentence:
        yield columns.sentence


def _facts_about_units(fit: Fit, names: list[str]) -> Iterator[str]:
    """Yield what spheres owe to the units of columns: that columns were standardised, or which one
    alone separates components. It has the largest numbers, and may be one of other units.
    """
    if fit.context.is_standardized:
        yield "Columns were standardised; means are in the units of the rows."
        return
    model = fit.context.in_own_units(fit.params)
    between = model.weights @ (model.means - model.origin) ** 2
    column = int(np.argmax(between))
    total = float(between.sum())
    is_rounding = total <= 1e-24 * float(np.square(model.means).sum())
    if is_rounding or between.size == 1 or between[column] < _ALONE * total:
        return
    yield (
        f"Only {names[column]} separates components: it has {between[column] / total:.1%} of the "
        "variance between means. If columns have different units, pass standardize=True."
    )


def _lines(fit: Fit, names: list[str]) -> Iterator[_Line]:
    """Yield the lines of all columns, in the order of the rows."""
    params = fit.params
    columns = fit.context.columns
    numbers = fit.context.in_own_units(params)
    counts = params.part(PoissonPart)
    # By their places: the names to show may be others than those of the fit.
    shares = list(fit.context.probabilities(params).values())
    categories = list(columns.categories.values())
    kinds = ["number"] * len(names) if columns.is_empty else columns.kinds.tolist()
    place = {"number": 0, "count": 0, "category": 0}
    for column, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        own = place[kind]
        place[kind] += 1
        if kind == "category":
            yield from _category_lines(column, name, params.weights, shares[own].T, categories[own])
            continue
        means, variances = numbers.means, numbers.variances
        if kind == "count":
            means = variances = counts.rates
        yield _mean_line(
            column, name, fit.info.n_samples, params.weights, means[:, own], variances[:, own]
        )


def _mean_line(
    column: int,
    name: str,
    n_rows: int,
    weights: FloatArray,
    means: FloatArray,
    variances: FloatArray,
) -> _Line:
    """Return the line of a number or a count; means below their standard errors are shown as 0."""
    everywhere = float(weights @ means)
    spread = np.sqrt(max(float(weights @ variances), _TINY))
    errors = np.sqrt(variances / np.maximum(weights * n_rows, 1.0))
    shown = np.where(np.abs(means) < errors, 0.0, means)
    pairs = zip(shown, np.sqrt(variances), strict=True)
    cells = [f"{number_text(mean)} ± {number_text(deviation, 2)}" for mean, deviation in pairs]
    short = [number_text(mean) for mean in shown]
    heights = (means - everywhere) / spread
    return _Line(column, name, number_text(everywhere), cells, short, heights)


def _category_lines(
    column: int, name: str, weights: FloatArray, shares: FloatArray, categories: Any
) -> Iterator[_Line]:
    for category, own in zip(categories.tolist(), shares, strict=True):
        everywhere = float(weights @ own)
        within = max(float(weights @ (own * (1 - own))), _TINY)
        spread = np.sqrt(within + everywhere * (1 - everywhere))
        cells = [f"{share:.0%}" for share in own]
        heights = (own - everywhere) / spread
        yield _Line(column, f"{name} = {category}", f"{everywhere:.0%}", cells, cells, heights)


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


@dataclass(frozen=True, eq=False)
class _Plane:
    """The components, and rows if there are some, in the plane where the means vary most.

    Columns are measured in standard deviations within components, so that one in large units does
    not hide the others. Ellipses have one and two standard deviations.
    """

    model: Gaussians
    rows: FloatArray | None

    def draw(self, axes: Any) -> None:
        from matplotlib import colormaps
        from matplotlib.patches import Ellipse

        model, k = self.model, len(self.model.weights)
        directions = self._directions()
        centres = (model.means - model.origin) @ directions
        palette = colormaps["tab10" if k <= 10 else "tab20"]
        colours = [palette(component % palette.N) for component in range(k)]
        if self.rows is not None:
            shown = self.rows[:: max(1, len(self.rows) // _MAX_POINTS)]
            at, own = (shown - model.origin) @ directions, model.posterior(shown)[0].argmax(axis=1)
            axes.scatter(
                at[:, 0], at[:, 1], s=4, c=[colours[each] for each in own], alpha=0.4, linewidths=0
            )
        for component in range(k):
            own = model.covariances[component]
            full = own if np.ndim(own) == 2 else np.diag(np.broadcast_to(own, model.means.shape[1]))
            values, vectors = np.linalg.eigh(directions.T @ full @ directions)
            angle = float(np.degrees(np.arctan2(vectors[1, 1], vectors[0, 1])))
            for deviations in (1, 2):
                width, height = 2 * deviations * np.sqrt(np.maximum(values[::-1], 0.0))
                centre, edge = tuple(centres[component]), colours[component]
                axes.add_patch(
                    Ellipse(centre, width, height, angle=angle, fill=False, edgecolor=edge)
                )
        axes.autoscale_view()
        gap = _LABEL * max(np.ptp(axes.get_xlim()), np.ptp(axes.get_ylim()))
        for component, place in enumerate(_spread_out(centres, gap)):
            axes.annotate(str(component), tuple(place), ha="center", va="center", weight="bold")
        axes.set_aspect("equal", adjustable="datalim")
        axes.set_xlabel("first direction of the means, in standard deviations")
        axes.set_ylabel("second direction of the means")

    def _directions(self) -> FloatArray:
        """Return the two directions of the plane, for rows less the origin; with one feature the
        second is zero.
        """
        offsets = np.sqrt(self.model.weights)[:, None] * self.model.standardized_means
        directions = (
            np.linalg.svd(offsets, full_matrices=True)[2][:2].T / self.model.spread[:, None]
        )
        return directions if len(directions) > 1 else np.hstack([directions, np.zeros((1, 1))])


def _spread_out(points: FloatArray, gap: float) -> FloatArray:
    """Return points in the plane, those that are closer than a gap moved away from each other."""
    angles = np.arange(len(points)) * 2.4  # points in one place part in different directions
    points = points + 1e-3 * gap * np.column_stack([np.cos(angles), np.sin(angles)])
    for _ in range(100):
        apart = points[:, None] - points
        distances = np.maximum(np.linalg.norm(apart, axis=2), 1e-12 * gap) + np.diag(
            np.full(len(points), np.inf)
        )
        points += np.einsum("ij,ijc->ic", np.maximum(gap - distances, 0.0) / (2 * distances), apart)
    return points
