"""A mixture in words: a verdict first, then its components."""

from __future__ import annotations

import numpy as np

from odeco.mixtures.fitted import FittedMixture
from odeco.mixtures.gaussians import Gaussians
from odeco.privacy import PrivacyReport

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
