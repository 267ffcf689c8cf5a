"""The picture of latent classes: how each of them answers each question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from odeco.answers.fitted import FittedClasses

#: Names longer than this are cut.
_LONGEST = 24
#: More answers than this have no labels, which could not be read.
_MOST_LABELS = 120


def picture_of(fitted: FittedClasses, names: Sequence[str]) -> Any:
    """Return a figure: a row for each class and a column for each answer, the darker the likelier it is given."""
    from matplotlib.figure import Figure

    k, n_answers = fitted.answers.shape[1], fitted.answers.shape[0]
    size = (min(max(4.0, 1.5 + 0.28 * n_answers), 30.0), 2.2 + 0.35 * k)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    shown = axes.imshow(fitted.answers.T, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    edges = fitted.questions.offsets
    for edge in edges[1:]:
        axes.axvline(edge - 0.5, color="grey", linewidth=0.8)
    axes.set_yticks(range(k), [f"class {number} ({weight:.0%})" for number, weight in enumerate(fitted.weights)])
    if n_answers <= _MOST_LABELS:
        cells = [_short(cell) for own in fitted.categories for cell in own.tolist()]
        axes.set_xticks(range(n_answers), cells, rotation=90)
    else:
        axes.set_xticks([])
    above = axes.secondary_xaxis("top")
    centres = edges + (fitted.sizes - 1) / 2
    every = max(1, int(np.ceil(fitted.sizes.size / _MOST_LABELS)))
    above.set_xticks(centres[::every], [_short(name) for name in names[::every]], rotation=60, ha="left")
    figure.colorbar(shown, ax=axes, label="probability of the answer")
    return figure


def _short(cell: Any) -> str:
    text = str(cell)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
