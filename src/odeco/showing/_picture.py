"""The picture of a whole result: displays side by side in one figure."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from odeco._arguments import check_choice, check_count
from odeco.showing._displays import (
    MOST_DRAWN,
    ConvergenceDisplay,
    CosinesDisplay,
    LeadingDisplay,
    VectorDisplay,
    WeightsDisplay,
    named,
)
from odeco.showing._palette import LIGHT, drawn_in, new_figure
from odeco.showing._tables import vectors_of

#: Panels of components beside each other.
_BESIDE = 3
KINDS = ("all", "weights", "components", "vectors", "cosines", "convergence")


def draw_result(result: Any, what: str, *, n_top: int, figure: Any) -> Any:
    """Return a figure with a result, or with one kind of picture of it; see `Shown.plot`."""
    check_choice("what", what, KINDS)
    check_count("n_top", n_top)
    rows = _rows_of(result, n_top)
    if what == "convergence" and what not in rows:
        raise ValueError(
            "what='convergence' needs a history of residuals. This result has none of more than one image. Take "
            "another picture."
        )
    if what == "all" and "cosines" in rows:  # both are wider than they need to be where they are alone
        height, draw_weights = rows.pop("weights")
        _, draw_cosines = rows.pop("cosines")
        rows = {"weights": (height, lambda part: _beside(part, draw_weights, draw_cosines)), **rows}
    chosen = [rows[name] for name in rows if what == name or (what == "all" and name != "vectors")]
    heights = [height for height, _ in chosen]
    with drawn_in(LIGHT):
        if figure is None:
            figure = new_figure(9.0 if what in ("all", "components", "vectors") else 5.5, sum(heights))
        parts = figure.subfigures(len(chosen), 1, height_ratios=heights, squeeze=False)[:, 0]
        for part, (_, draw) in zip(parts, chosen, strict=True):
            draw(part)
    return figure


def _rows_of(result: Any, n_top: int) -> dict[str, tuple[float, Callable[[Any], None]]]:
    """Return the height of each kind of picture in inches, and who draws it into a part of a figure."""
    shown = min(len(result.weights), MOST_DRAWN)
    parts = vectors_of(result)
    n_panels = shown * len(parts)
    beside = len(parts) if len(parts) > 1 else min(_BESIDE, n_panels)
    rows: dict[str, tuple[float, Callable[[Any], None]]] = {
        "weights": (2.9, lambda part: _titled(part, "Weights", WeightsDisplay.from_result(result))),
        "components": (
            (0.55 + 0.21 * min(n_top, max(len(part[1]) for part in parts))) * math.ceil(n_panels / beside),
            lambda part: _components(part, result, n_top, beside),
        ),
        "vectors": (0.4 + 0.7 * n_panels, lambda part: _vectors(part, result)),
    }
    if len(result.weights) > 1:
        rows["cosines"] = (3.6, lambda part: _titled(part, "Cosines", CosinesDisplay.from_result(result)))
    convergence = ConvergenceDisplay.from_result(result)
    if not convergence.is_empty:
        rows["convergence"] = (2.9, lambda part: _titled(part, "Convergence", convergence))
    return rows


def _beside(part: Any, first: Callable[[Any], None], second: Callable[[Any], None]) -> None:
    left, right = part.subfigures(1, 2, width_ratios=[3, 2])
    first(left)
    second(right)


def _titled(part: Any, title: str, display: Any) -> None:
    axes = part.subplots()
    display.plot(axes)
    axes.set_title(title)


def _components(part: Any, result: Any, n_top: int, beside: int) -> None:
    panels = [
        LeadingDisplay.of(vectors[:, i], names, n_top, named(result, i) + (f", axis {axis}" if several else ""))
        for several in (len(vectors_of(result)) > 1,)
        for i in range(min(len(result.weights), MOST_DRAWN))
        for axis, (_, vectors, names) in enumerate(vectors_of(result))
    ]
    grid = part.subplots(math.ceil(len(panels) / beside), beside, squeeze=False).ravel()
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    for display, axes in zip(panels, grid, strict=False):
        display.plot(axes)


def _vectors(part: Any, result: Any) -> None:
    drawn = [
        (f"{i + 1}", vectors[:, i])
        for _, vectors, _ in vectors_of(result)
        for i in range(min(vectors.shape[1], MOST_DRAWN))
    ]
    limit = 1.08 * max(float(abs(vector).max()) for _, vector in drawn)
    for (label, vector), axes in zip(drawn, part.subplots(len(drawn), 1, squeeze=False)[:, 0], strict=True):
        VectorDisplay(vector, limit).plot(axes)
        axes.set_ylabel(label, rotation=0, ha="right", va="center")
