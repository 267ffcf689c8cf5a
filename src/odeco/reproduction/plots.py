"""Figures that are legible on white and on black, and the same bytes from run to run."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

#: The colour of text and axes. The page replaces it by the colour of its own text.
INK = "#23262b"

GRID = "#8f959e"

#: Colours for an ordered quantity such as the dimension, legible on black and on white.
SEQUENCE = ("#d98f1f", "#c2553c", "#9b3f86", "#4a63c9", "#1c8d8a", "#6f8f2e")

#: Colours for methods that are compared.
PALETTE = ("#3b74c4", "#d2691e", "#2f9461", "#a24bb0", "#8a7a1f", "#c23b57")

MARKERS = ("o", "s", "^", "D", "v", "P")


_STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 9.5,
    "axes.titlesize": 10,
    "axes.labelsize": 9.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.alpha": 0.28,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.2,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "odeco",
    "figure.dpi": 100,
}


def style() -> AbstractContextManager[Any]:
    """Return a context in which figures are drawn in our style."""
    context: AbstractContextManager[Any] = mpl.rc_context(_STYLE)
    return context


def panels(n_rows: int, n_columns: int, *, width: float = 9.2, height: float = 2.7, **settings: Any) -> tuple[Any, Any]:
    """Return a figure with `n_rows` x `n_columns` panels, each `height` inches high, and its axes as a 2-D array."""
    figure = Figure(figsize=(width, height * n_rows), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(n_rows, n_columns, squeeze=False, **settings)


def reference_line(axes: Any, x: Any, through: tuple[float, float], exponent: float, label: str) -> None:
    """Draw the dashed line y ~ xᵇ through a point: what the theory says."""
    x = np.array([np.min(x), np.max(x)], dtype=float)
    axes.plot(x, through[1] * (x / through[0]) ** exponent, "--", color=GRID, linewidth=1.2, label=label, zorder=1)


def log_axes(axes: Any, which: str = "xy") -> None:
    """Make axes logarithmic, with plain numbers at 1, 2 and 5 of each decade, or at decades where there are many."""
    for letter in which:
        getattr(axes, f"set_{letter}scale")("log")
        axis = getattr(axes, f"{letter}axis")
        low, high = getattr(axes, f"get_{letter}lim")()
        steps = (1.0, 2.0, 5.0) if high / low < 100 else (1.0,)
        axis.set_major_locator(LogLocator(subs=steps))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        axis.set_minor_formatter(NullFormatter())


def plain_ticks(axis: Any, values: Any) -> None:
    """Label a logarithmic axis with these values, written out."""
    axis.set_ticks(list(values), [f"{value:,g}" if value < 1e5 else f"{value:,.0f}" for value in values])
    axis.set_ticks([], minor=True)


def save_figure(figure: Any, folder: Path, name: str) -> tuple[Path, Path]:
    """Write PNG (on white) and SVG (transparent); return both paths."""
    png, svg = folder / f"{name}.png", folder / f"{name}.svg"
    figure.savefig(png, dpi=160, facecolor="white", metadata={"Software": None})
    svg.write_text(svg_text(figure), encoding="utf-8")
    return png, svg


def svg_text(figure: Any) -> str:
    """Return the figure as an SVG element: transparent, with no date, no metadata and nothing outside of it."""
    buffer = io.StringIO()
    with style():  # matplotlib decides how text is written when it saves, not when it draws
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    return re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)


def panel_windows(figure: Any) -> list[tuple[float, float, float, float]]:
    """Return where the panels of a figure are in its SVG, in points: left, top, width and height of each."""
    figure.draw_without_rendering()
    unit, height = 72 / figure.dpi, 72 * figure.get_figheight()
    boxes = [axes.get_tightbbox() for axes in figure.axes if axes.get_visible()]
    return [(unit * box.x0, height - unit * box.y1, unit * box.width, unit * box.height) for box in boxes]


def styled(draw: Callable[[Any], dict[str, Any]]) -> Callable[[Any], dict[str, Any]]:
    """Make a drawing function draw in our style."""

    def drawn(records: Any) -> dict[str, Any]:
        with style():
            return draw(records)

    return drawn
