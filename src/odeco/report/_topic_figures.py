"""The figures of topics: a map of which are alike, and the spectrum that shows how many stand clear of noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.patches import Circle
from numpy.typing import NDArray

from odeco._types import FloatArray
from odeco.report._figures import COLOURS, STYLE, WIDTH, Figures, _axes

if TYPE_CHECKING:
    from odeco.topics.diagnostics import TopicDiagnostics

#: The map has this height in inches, or the second one with more than 40 topics.
_HEIGHT, _TALL, _MANY = 6.2, 9.0, 40
#: All circles together take this share of the area of the map.
_FILLED = 0.14
#: Circles keep this share of the map's height between them.
_GAP = 0.065
#: Circles are moved apart in at most this many steps.
_STEPS = 400


def draw_map(figures: Figures, topic_word: FloatArray, shares: FloatArray, labels: Sequence[str]) -> str:
    """Draw each topic as a circle, near to those that use the same words."""
    many = len(shares) > _MANY
    height = _TALL if many else _HEIGHT
    width = WIDTH / height
    radii = np.sqrt(shares * _FILLED * width / np.pi)
    places = _spread(_plane(topic_word), radii, width)
    with mpl.rc_context(STYLE):
        low, high = (places - radii[:, None]).min(axis=0), (places + radii[:, None]).max(axis=0)
        low, high = low - np.array([0.08, 0.06]), high + np.array([0.08, 0.02])  # room for labels
        figure, axes = _axes(WIDTH, min(height, max(2.5, WIDTH * (high[1] - low[1]) / (high[0] - low[0]))))
        sizes = (7.0, 7.5) if many else (10.0, 9.5)
        for number, (place, radius, label) in enumerate(zip(places, radii, labels, strict=True), 1):
            axes.add_patch(Circle(place, radius, facecolor=COLOURS["accent"], alpha=0.25, linewidth=0))
            axes.add_patch(Circle(place, radius, fill=False, edgecolor=COLOURS["accent"], linewidth=1.2))
            axes.text(*place, str(number), ha="center", va="center", fontsize=sizes[0], fontweight="bold")
            shown = label if len(label) <= 18 else label[:17] + "…"
            # Just below the circle; a dollar sign would begin a formula.
            axes.text(
                place[0], place[1] - radius - 0.008, shown, ha="center", va="top", fontsize=sizes[1], parse_math=False
            )
        axes.set_xlim(low[0], high[0])
        axes.set_ylim(low[1], high[1])
        axes.set_aspect("equal")
        axes.set_axis_off()
        return figures.html(
            figure, f"Map of {len(labels)} topics.", "Circles that would lie over each other are moved apart."
        )


def _plane(topic_word: FloatArray) -> FloatArray:
    """Return coordinates of topics in the plane that keeps most of their Hellinger distances: classical scaling."""
    roots = np.sqrt(topic_word)
    centred = roots - roots.mean(axis=0)
    values, vectors = np.linalg.eigh(centred @ centred.T)
    coordinates = np.zeros((len(roots), 2))
    for axis, place in enumerate(range(len(values) - 1, max(len(values) - 3, -1), -1)):
        # The sign of an eigenvector is a matter of chance: its largest entry is made positive.
        vector = vectors[:, place] * np.sign(vectors[np.argmax(np.abs(vectors[:, place])), place])
        coordinates[:, axis] = vector * np.sqrt(max(values[place], 0.0))
    return coordinates


def _spread(coordinates: FloatArray, radii: FloatArray, width: float) -> FloatArray:
    """Scale coordinates to a map of height 1, and move circles apart that lie over each other, all at once."""
    extent = np.maximum(np.ptp(coordinates, axis=0), 1e-12)
    scale = np.minimum(width / extent[0], 1 / extent[1]) * 0.85
    places: FloatArray = coordinates * scale
    k = len(places)
    wanted = radii[:, None] + radii[None, :] + _GAP
    places += 1e-6 * np.stack([np.cos(np.arange(k)), np.sin(np.arange(k))], axis=1)  # no two at the same place
    for _ in range(_STEPS):
        apart = places[:, None, :] - places[None, :, :]
        distance = np.linalg.norm(apart, axis=2) + np.eye(k)
        overlap = np.maximum(wanted - distance, 0.0) * (1 - np.eye(k))
        if overlap.max() < 1e-3:
            break
        places += 0.25 * np.sum(apart / distance[:, :, None] * overlap[:, :, None], axis=1)
    return places


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
