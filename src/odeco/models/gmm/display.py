"""A mixture in words and pictures: how well its components are separated, and what is
characteristic of each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from odeco._util.types import FloatArray, IndexArray
from odeco.models.emissions.gaussians import Gaussians
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
from odeco.privacy.report import PrivacyReport

#: One column alone separates components if it has this share of the variance between their means.
_ALONE = 0.99

#: A figure shows at most this many rows and columns.
_MAX_POINTS, _MAX_COLUMNS = 2000, 40

#: A mean below this share of a column's root mean square is shown as zero.
_ROUNDING = 1e-12

#: The room for the number of a component, in parts of the figure's width.
_LABEL = 0.05

_SHAPES = {"spherical": "spheres", "diag": "axis-aligned ellipsoids", "full": "ellipsoids"}


def describe(
    fit: Fit, names: list[str], privacy: PrivacyReport | None, rows: FloatArray | None
) -> Description:
    """Return a mixture in words and pictures; `rows` are scaled as the model is."""
    model, scale = fit.params, fit.context.scale
    own_units = _without_rounding(in_own_units(fit))
    heights, means = model.standardized_means, own_units.means
    components = [
        ComponentRow(
            float(weight),
            ", ".join(
                (
                    f"{names[column]} {number_text(mean[column])} (all "
                    f"{number_text(own_units.origin[column])})"
                )
                for column in columns
            ),
        )
        for weight, mean, columns in zip(
            model.weights, means, most_characteristic(heights), strict=True
        )
    ]
    # The columns that separate components best come first.
    by_separation = np.argsort(-(model.weights @ heights**2), kind="stable")
    columns = by_separation[:_MAX_COLUMNS]
    table = HeatMap(
        heights[:, columns],
        component_names(model.weights),
        [names[column] for column in columns],
        "mean, in standard deviations",
    )
    fact = (
        f"{fit.info.n_samples:,} rows, fitted by {_SHAPES[model.covariance_type]}; start: "
        f"{fit.info.init}."
    )
    facts = [fact]
    alone = None if scale.size else _only_column(model)
    if scale.size:
        facts.append("Columns were standardised; means are in the units of the rows.")
    if alone is not None:
        name, share = names[alone[0]], alone[1]
        facts.append(
            f"Only {name} separates components: it has {share:.1%} of the variance between means. "
            "If columns have different units, pass standardize=True."
        )
    return Description(
        _verdict(fit, privacy),
        tuple(facts),
        tuple(components),
        (_Plane(model, rows), table),
        (_means_table(own_units, heights, by_separation, names),),
        columns=tuple(by_separation.tolist()),
    )


def _means_table(
    model: Gaussians, heights: FloatArray, columns: IndexArray, names: list[str]
) -> PageTable:
    """Return the mean of every column in every component, in the units of the rows."""
    deviations = np.sqrt(model.variances)
    rows = [
        [
            names[column],
            number_text(model.origin[column]),
            *(
                f"{number_text(model.means[k, column])} ± {number_text(deviations[k, column], 2)}"
                for k in range(len(heights))
            ),
        ]
        for column in columns.tolist()
    ]
    lead = (
        "Mean ± standard deviation in the units of the rows; the columns that tell components "
        "apart best come first. Blue is above the mean of all rows, orange below, by up to two "
        "standard deviations within components."
    )
    shades = np.column_stack([np.zeros(len(rows)), heights[:, columns].T / 2])
    headings = ["column", "all", *(f"{number}" for number in range(len(heights)))]
    return PageTable("Means, column by column", lead, headings, rows, shades)


def in_own_units(fit: Fit) -> Gaussians:
    """Return the mixture of rows in their own units."""
    model: Gaussians = fit.context.in_own_units(fit.params)
    return model


def _without_rounding(model: Gaussians) -> Gaussians:
    """Return the mixture with means of zero where they are rounding errors of the column's other
    means.
    """
    sizes = np.sqrt(model.weights @ (model.means**2 + model.variances))
    return replace(model, means=np.where(np.abs(model.means) < _ROUNDING * sizes, 0.0, model.means))


def _verdict(fit: Fit, privacy: PrivacyReport | None) -> str:
    """Return what is said first of mixtures that were not checked on halves because they are
    private or single.
    """
    k = len(fit.params.weights)
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


def _only_column(model: Gaussians) -> tuple[int, float] | None:
    """Return the column that alone separates spheres, and its share, if there is one: it may be one
    of other units.

    Spheres have the same variance in all columns, so the column with the largest numbers decides.
    Ellipsoids have not.
    """
    between = model.weights @ (model.means - model.origin) ** 2
    column, total = int(np.argmax(between)), float(between.sum())
    if total <= 1e-24 * float(np.square(model.means).sum()):  # all means are one, but for rounding
        return None
    if (
        model.covariance_type != "spherical"
        or len(between) == 1
        or not total > 0
        or between[column] < _ALONE * total
    ):
        return None
    return column, float(between[column]) / total


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
