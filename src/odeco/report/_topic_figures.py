"""The figures of topics: a map of which are alike, and the spectrum that shows how many stand clear of noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.patches import Circle
from numpy.typing import NDArray

from odeco.report._figures import COLOURS, STYLE, WIDTH, Figures, _axes
from odeco.report._topic_map import MANY, TopicMap

if TYPE_CHECKING:
    from odeco.topics.diagnostics import TopicDiagnostics

#: The map has this height in inches at most, or the second one if there are many topics.
_HEIGHT, _TALL = 6.2, 9.0


def draw_map(figures: Figures, layout: TopicMap, labels: Sequence[str]) -> str:
    """Draw each topic as a circle, near to those that use the same words."""
    many = len(labels) > MANY
    tallest = _TALL if many else _HEIGHT
    width, height = layout.size
    with mpl.rc_context(STYLE):
        figure, axes = _axes(WIDTH, min(tallest, max(2.5, WIDTH * height / width)))
        sizes = (7.0, 7.5) if many else (10.0, 9.5)
        for number, (place, radius, label) in enumerate(zip(layout.places, layout.radii, labels, strict=True), 1):
            axes.add_patch(Circle(place, radius, facecolor=COLOURS["accent"], alpha=0.25, linewidth=0))
            axes.add_patch(Circle(place, radius, fill=False, edgecolor=COLOURS["accent"], linewidth=1.2))
            axes.text(*place, str(number), ha="center", va="center", fontsize=sizes[0], fontweight="bold")
            shown = label if len(label) <= 18 else label[:17] + "…"
            # Just below the circle; a dollar sign would begin a formula.
            axes.text(
                place[0], place[1] - radius - 0.008, shown, ha="center", va="top", fontsize=sizes[1], parse_math=False
            )
        axes.set_xlim(0, width)
        axes.set_ylim(0, height)
        axes.set_aspect("equal")
        axes.set_axis_off()
        return figures.html(
            figure, f"Map of {len(labels)} topics.", "Circles that would lie over each other are moved apart."
        )


def clear_directions(found: TopicDiagnostics, *, private: bool) -> NDArray[np.bool_]:
    """Return which directions are clear of noise.

    In a private run these are the directions above the level of noise, which allows for errors. Otherwise the
    diagnostics say which of the first k are clear, and how many of the rest: the rest that are clear are those that are
    farthest above the level, in standard errors.
    """
    if private:
        return np.asarray(found.eigenvalues > found.noise_level)
    k = found.reliable.size
    clear = np.zeros(found.eigenvalues.size, dtype=bool)
    clear[:k] = found.reliable[: clear.size]
    further = max(found.n_clear - int(clear.sum()), 0)
    margins = (found.eigenvalues - found.noise_level) / np.maximum(found.eigenvalue_errors, np.finfo(float).tiny)
    clear[k + np.argsort(-margins[k:], kind="stable")[:further]] = True
    return clear


def draw_spectrum(figures: Figures, found: TopicDiagnostics, clear: NDArray[np.bool_]) -> str:
    """Draw the eigenvalues with standard errors, the level of noise, and where the number of topics was set."""
    values, errors = found.eigenvalues, np.where(np.isfinite(found.eigenvalue_errors), found.eigenvalue_errors, 0.0)
    positive = values > 0
    numbers = np.arange(1, values.size + 1)
    with mpl.rc_context(STYLE):
        figure, axes = _axes(WIDTH, 3.4)
        axes.grid(axis="y")
        for shown, colour, name in ((clear, "accent", "clear of noise"), (~clear, "muted", "not clear of noise")):
            drawn = positive & shown
            if drawn.any():
                axes.errorbar(
                    numbers[drawn],
                    values[drawn],
                    yerr=np.minimum(errors[drawn], values[drawn] * (1 - 1e-6)),
                    fmt="o",
                    markersize=4.5,
                    color=COLOURS[colour],
                    ecolor=COLOURS[colour],
                    elinewidth=1.2,
                    capsize=2.5,
                    label=f"{name}, ± 1 standard error",
                )
        axes.axhline(
            found.noise_level, color=COLOURS["warm"], linestyle="dashed", linewidth=1.3, label="level of noise"
        )
        axes.axvline(
            found.n_components + 0.5, color=COLOURS["ink"], linewidth=1, label=f"number of topics, {found.n_components}"
        )
        axes.set_yscale("log")
        lowest = min(float(values[positive].min(initial=found.noise_level)), found.noise_level)
        axes.set_ylim(lowest / 1.6, max(float(values[0] + errors[0]), found.noise_level) * 1.5)
        axes.set_xlim(0.3, values.size + 0.7)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_xlabel("direction, strongest first")
        axes.set_ylabel("eigenvalue of pairs of words")
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=4)
        left_out = int(np.sum(~positive))
        noun = "1 direction" if left_out == 1 else f"{left_out} directions"
        caption = f"Not drawn: {noun} with an eigenvalue below zero." if left_out else ""
        described = f"{values.size} eigenvalues, {int(clear.sum())} of them above the level of noise."
        return figures.html(figure, described, caption)
