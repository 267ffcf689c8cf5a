"""A mixture in words and pictures: how well its components are separated, and what is characteristic of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from odeco._util.types import FloatArray
from odeco.models.engine.description import (
    ComponentRow,
    Description,
    HeatMap,
    component_names,
    most_characteristic,
    separation_verdict,
)
from odeco.models.engine.fit import Fit
from odeco.models.engine.gaussians import Gaussians
from odeco.privacy.report import PrivacyReport

#: Number of rows that are drawn from the mixture to see how often their component is identified.
_N_DRAWN = 4000

#: One column alone separates components if it has this share of the variance between their means.
_ALONE = 0.99

#: A figure shows at most this many rows and columns.
_MAX_POINTS, _MAX_COLUMNS = 2000, 40

_SHAPES = {"spherical": "spheres", "diag": "axis-aligned ellipsoids", "full": "ellipsoids"}


def describe(fit: Fit, names: list[str], privacy: PrivacyReport | None, rows: FloatArray | None) -> Description:
    """Return a mixture in words and pictures; `rows` are scaled as the model is."""
    model, scale = fit.params, fit.context.scale
    heights, means = model.standardized_means, in_own_units(fit).means
    components = [
        ComponentRow(float(weight), ", ".join(f"{names[column]} {mean[column]:.4g}" for column in columns))
        for weight, mean, columns in zip(model.weights, means, most_characteristic(heights), strict=True)
    ]
    # The columns that separate components best come first.
    columns = np.argsort(-(model.weights @ heights**2), kind="stable")[:_MAX_COLUMNS]
    table = HeatMap(
        heights[:, columns],
        component_names(model.weights),
        [names[column] for column in columns],
        "mean, in standard deviations",
    )
    fact = f"{_SHAPES[model.covariance_type]}, fitted to {fit.info.n_samples:,} rows; start: {fit.info.init}."
    verdict, facts = _verdict(fit, privacy), [fact]
    alone = None if scale.size else _only_column(model)
    if scale.size:
        facts.append("Columns were standardised; means are in the units of the rows.")
    if alone is not None:
        name, share = names[alone[0]], alone[1]
        verdict = verdict.replace("components,", f"components that only {name} separates,", 1)
        facts.append(f"{name} has {share:.1%} of the variance between means.")
        facts.append("If columns have different units, pass standardize=True.")
    return Description(verdict, tuple(facts), tuple(components), (_Plane(model, rows), table))


def in_own_units(fit: Fit) -> Gaussians:
    """Return the mixture of rows in their own units."""
    model: Gaussians = fit.params
    return model.rescaled(fit.context.scale) if fit.context.scale.size else model


def _verdict(fit: Fit, privacy: PrivacyReport | None) -> str:
    k = len(fit.params.weights)
    if privacy is not None and not fit.info.converged:
        return f"{k} components, deep in noise: do not trust them. More rows or a larger epsilon would help."
    if k == 1:
        return "One component: nothing to tell apart."
    rows, _ = fit.params.draw(_N_DRAWN, np.random.default_rng(0))
    return separation_verdict(fit.params.posterior(rows)[0], "component")


def _only_column(model: Gaussians) -> tuple[int, float] | None:
    """Return the column that alone separates spheres, and its share, if there is one: it may be one of other units.

    Spheres have the same variance in all columns, so the column with the largest numbers decides. Ellipsoids have not.
    """
    between = model.weights @ (model.means - model.origin) ** 2
    column, total = int(np.argmax(between)), float(between.sum())
    if total <= 1e-24 * float(np.square(model.means).sum()):  # all means are one, but for rounding
        return None
    if model.covariance_type != "spherical" or len(between) == 1 or not total > 0 or between[column] < _ALONE * total:
        return None
    return column, float(between[column]) / total


@dataclass(frozen=True, eq=False)
class _Plane:
    """The components, and rows if there are some, in the plane where the means vary most.

    Ellipses have one and two standard deviations.
    """

    model: Gaussians
    rows: FloatArray | None

    def draw(self, axes: Any) -> None:
        from matplotlib import colormaps
        from matplotlib.patches import Ellipse

        model, k = self.model, len(self.model.weights)
        directions = self._directions()
        palette = colormaps["tab10" if k <= 10 else "tab20"]
        colours = [palette(component % palette.N) for component in range(k)]
        if self.rows is not None:
            shown = self.rows[:: max(1, len(self.rows) // _MAX_POINTS)]
            at, own = (shown - model.origin) @ directions, model.posterior(shown)[0].argmax(axis=1)
            axes.scatter(at[:, 0], at[:, 1], s=4, c=[colours[each] for each in own], alpha=0.4, linewidths=0)
        for component in range(k):
            own = model.covariances[component]
            full = own if np.ndim(own) == 2 else np.diag(np.broadcast_to(own, model.means.shape[1]))
            centre = (model.means[component] - model.origin) @ directions
            values, vectors = np.linalg.eigh(directions.T @ full @ directions)
            angle = float(np.degrees(np.arctan2(vectors[1, 1], vectors[0, 1])))
            for deviations in (1, 2):
                width, height = 2 * deviations * np.sqrt(np.maximum(values[::-1], 0.0))
                edge = colours[component]
                axes.add_patch(Ellipse(tuple(centre), width, height, angle=angle, fill=False, edgecolor=edge))
            axes.annotate(str(component), tuple(centre), ha="center", va="center")
        axes.autoscale_view()
        axes.set_aspect("equal", adjustable="datalim")
        axes.set_xlabel("first direction of the means")
        axes.set_ylabel("second direction of the means")

    def _directions(self) -> FloatArray:
        """Return two orthonormal directions; with one feature the second is zero."""
        offsets = np.sqrt(self.model.weights)[:, None] * (self.model.means - self.model.origin)
        directions = np.linalg.svd(offsets, full_matrices=True)[2][:2].T
        return directions if len(directions) > 1 else np.hstack([directions, np.zeros((1, 1))])
