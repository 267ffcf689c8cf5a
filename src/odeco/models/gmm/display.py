"""A mixture in words: a verdict first, then its components.

The picture of a mixture: its components in the plane where they are furthest apart, and what tells them apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odeco._util.types import FloatArray
from odeco.models.gmm.gaussians import Gaussians
from odeco.models.gmm.spec import FittedMixture
from odeco.privacy.report import PrivacyReport

#: So many rows are drawn from the mixture to see how often their component can be told.
_DRAWN = 4000

#: Components are called apart if the component of this share of rows can be told, and overlapping below the second.
_APART, _OVERLAPPING = 0.95, 0.75

#: So many features and components are shown.
_FEATURES, _COMPONENTS = 4, 20


def share_told(model: Gaussians) -> float:
    """Return how many rows of the mixture are assigned to their own component, in expectation."""
    rows, _ = model.draw(_DRAWN, np.random.default_rng(0))
    return float(model.about(rows)[0].max(axis=1).mean())


def summarise(fitted: FittedMixture, names: list[str], privacy: PrivacyReport | None) -> str:
    """Return a few lines about a mixture."""
    model, k = fitted.gaussians, len(fitted.weights)
    told = share_told(model)
    verdict = "well apart" if told >= _APART else "overlapping" if told >= _OVERLAPPING else "hardly apart"
    kinds = {"spherical": "spheres", "diag": "axis-aligned ellipsoids", "full": "ellipsoids"}
    first = f"{k} components, {verdict}: the component of {told:.0%} of rows can be told."
    if k == 1:
        first = "One component: nothing to tell apart."
    if privacy is not None and not fitted.converged:
        first = f"{k} components, deep in noise: do not trust them. More rows or a larger epsilon would help."
    lines = [first, f"{kinds[model.covariance_type]}, learnt from {fitted.n_rows:,} rows; start: {fitted.start}."]
    if fitted.tried.size:
        tried = ", ".join(str(number) for number in fitted.tried)
        lines.append(f"Their number was chosen by rows that were not learnt from; tried: {tried}.")
    if privacy is None and not fitted.converged:
        lines.append(f"The {fitted.n_steps} likelihood steps were not enough to converge; raise n_steps.")
    if privacy is not None:
        lines.append(f"Private: epsilon {privacy.epsilon:g}, delta {privacy.delta:g}; {privacy.neighbours}.")
    for component in range(min(k, _COMPONENTS)):
        heights = (model.means[component] - model.origin) / model.spread
        telling = np.argsort(-np.abs(heights), kind="stable")[:_FEATURES]
        words = ", ".join(f"{names[feature]} {model.means[component, feature]:.4g}" for feature in telling)
        lines.append(f"{component:>3}  {model.weights[component]:6.1%}  {words}")
    if k > _COMPONENTS:
        lines.append(f"and {k - _COMPONENTS} more")
    return "\n".join(lines)


#: More rows than this make a cloud without structure.
_MOST_POINTS = 2000

#: More columns than this cannot be read.
_MOST_FEATURES = 40


def plot_mixture(model: Gaussians, names: list[str], rows: FloatArray | None) -> Any:
    """Draw ellipses of one and two standard deviations, and how far the means of each feature are from the middle."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure
    from matplotlib.patches import Ellipse

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    plane, table = figure.subplots(1, 2)
    directions = _plane(model)
    k = len(model.weights)
    palette = colormaps["tab10" if k <= 10 else "tab20"]
    colours = [palette(h % palette.N) for h in range(k)]
    if rows is not None:
        shown = rows[:: max(1, len(rows) // _MOST_POINTS)]
        at, own = (shown - model.origin) @ directions, model.about(shown)[0].argmax(axis=1)
        plane.scatter(at[:, 0], at[:, 1], s=4, c=[colours[h] for h in own], alpha=0.4, linewidths=0)
    for h in range(k):
        centre, matrix = (model.means[h] - model.origin) @ directions, directions.T @ _matrix(model, h) @ directions
        values, vectors = np.linalg.eigh(matrix)
        angle = float(np.degrees(np.arctan2(vectors[1, 1], vectors[0, 1])))
        for deviations in (1, 2):
            width, height = 2 * deviations * np.sqrt(np.maximum(values[::-1], 0.0))
            ellipse = Ellipse((centre[0], centre[1]), width, height, angle=angle, fill=False, edgecolor=colours[h])
            plane.add_patch(ellipse)
        plane.annotate(str(h), (centre[0], centre[1]), ha="center", va="center")
    plane.autoscale_view()
    plane.set_aspect("equal", adjustable="datalim")
    plane.set_xlabel("first direction of the means")
    plane.set_ylabel("second direction of the means")
    telling = _telling(model)[:_MOST_FEATURES]
    heights = ((model.means - model.origin) / model.spread)[:, telling]
    most = float(np.abs(heights).max(initial=0.0)) or 1.0
    drawn = table.imshow(heights, cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto")
    table.set_xticks(range(len(telling)), [names[feature] for feature in telling], rotation=90, fontsize=7)
    table.set_yticks(range(k), [f"{h} ({weight:.0%})" for h, weight in enumerate(model.weights)])
    figure.colorbar(drawn, ax=table, label="mean, in deviations within components")
    return figure


def _matrix(model: Gaussians, component: int) -> FloatArray:
    """Return the covariance matrix of a component, whatever kind it is of."""
    own = model.covariances[component]
    return own if np.ndim(own) == 2 else np.diag(np.broadcast_to(own, model.means.shape[1]))


def _telling(model: Gaussians) -> list[int]:
    """Return the features in the order in which they tell components apart, those that do it best first."""
    between = model.weights @ ((model.means - model.origin) / model.spread) ** 2
    return [int(feature) for feature in np.argsort(-between, kind="stable")]


def _plane(model: Gaussians) -> FloatArray:
    """Return the two orthonormal directions in which the means vary most; with one feature the second is empty."""
    offsets = np.sqrt(model.weights)[:, None] * (model.means - model.origin)
    d = model.means.shape[1]
    directions = np.linalg.svd(offsets, full_matrices=True)[2][:2].T
    return directions if d > 1 else np.hstack([directions, np.zeros((1, 1))])
