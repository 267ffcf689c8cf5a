"""What was found of sources, in words and as a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from odeco.models.ica.densities import EDGES

if TYPE_CHECKING:
    from odeco.models.ica.estimator import TensorICA


#: A summary and a figure show at most so many sources, and name so many columns of each.
_MOST_SHOWN, _MOST_NAMED = 12, 3


def describe(model: TensorICA, *, nearly_gaussian: float) -> str:
    """Return the verdict, and for each source its shape and the columns that it weighs most in."""
    information, mixing, names = model.information_, _relative_mixing(model), feature_names(model)
    vague = information - 1 < nearly_gaussian
    k = len(information)
    if int(vague.sum()) > 1:
        verdict = f"{k - int(vague.sum())} of {k} sources are told apart; the other {int(vague.sum())} look Gaussian"
    elif not model.converged_:
        verdict = f"{k} sources, but Newton's steps did not end: raise max_iter"
    else:
        verdict = f"{k} sources, all told apart"
    lines = [f"{verdict}. {model.n_samples_seen_:,} rows of {len(names)} columns, {model.n_iter_} steps."]
    for index in range(min(k, _MOST_SHOWN)):
        largest = np.argsort(-np.abs(mixing[:, index]), kind="stable")[:_MOST_NAMED]
        weights = ", ".join(f"{names[column]} {mixing[column, index]:+.2f}" for column in largest)
        lines.append(f"source {index + 1}: {_shape(model, index)}, information {information[index]:.2f}; {weights}")
    if k > _MOST_SHOWN:
        lines.append(f"and {k - _MOST_SHOWN} more")
    return "\n".join(lines)


def draw(model: TensorICA) -> Any:
    """Return a figure of the mixing weights, and the densities of the least Gaussian sources."""
    from matplotlib.figure import Figure

    mixing, names = _relative_mixing(model), feature_names(model)
    counts = model._learnt("plot").counts
    n_shown = min(len(counts), _MOST_SHOWN)
    n_rows = max(1, (n_shown + 2) // 3)
    figure = Figure(figsize=(10, 1.2 + 1.4 * n_rows), layout="constrained")
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(1, 1.4))[0]
    axes = left.subplots()
    image = axes.imshow(mixing, aspect="auto", cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest")
    axes.set(xlabel="source", title="correlation of columns with sources")
    axes.set_xticks(range(len(counts)) if len(counts) <= 20 else [], range(1, min(len(counts), 20) + 1))
    if len(names) <= 30:
        axes.set_yticks(range(len(names)), names)
    left.colorbar(image, ax=axes)
    centres = (EDGES[1:] + EDGES[:-1]) / 2
    bell = np.exp(-(centres**2) / 2) / np.sqrt(2 * np.pi)
    panels = right.subplots(n_rows, 3, sharex=True, squeeze=False).ravel()
    for index, panel in enumerate(panels):
        panel.set_yticks([])
        if index >= n_shown:
            panel.set_visible(False)
            continue
        density = counts[index] / (counts[index].sum() * (EDGES[1] - EDGES[0]))
        panel.fill_between(centres, density, step="mid", alpha=0.6)
        panel.plot(centres, bell, color="0.4", linewidth=0.8)
        panel.set(xlim=(-4, 4), title=f"source {index + 1}")
    right.suptitle("densities, beside a Gaussian")
    return figure


def feature_names(model: TensorICA) -> list[str]:
    """Return the names of the columns, or numbers from 1 on."""
    names = getattr(model, "feature_names_in_", None)
    return [f"column {index + 1}" for index in range(model.n_features_in_)] if names is None else list(map(str, names))


def _relative_mixing(model: TensorICA) -> Any:
    """Return the correlation of each column with each source."""
    fitted = model._of_fitted("mixing_")
    deviations = np.sqrt(np.diagonal(fitted.covariance))
    return fitted.mixing / np.where(deviations > 0, deviations, 1.0)[:, None]


def _shape(model: TensorICA, index: int) -> str:
    """Return the shape of a source in words, from its histogram."""
    counts = model._learnt("summary").counts[index]
    centres = (EDGES[1:] + EDGES[:-1]) / 2
    weights = counts / counts.sum()
    centred = centres - weights @ centres
    variance = weights @ centred**2
    skewness, kurtosis = weights @ centred**3 / variance**1.5, weights @ centred**4 / variance**2 - 3
    tails = "heavy tails" if kurtosis > 0.5 else "light tails" if kurtosis < -0.5 else "tails like a Gaussian"
    return f"skewed by {skewness:+.1f}, {tails}" if abs(skewness) > 0.3 else tails
