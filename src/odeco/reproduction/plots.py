"""Figures of experiments: panels in the style of `odeco.display`, logarithmic axes, and files."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from odeco._util.files import replacing
from odeco.display.style import LIGHT, drawn_in
from odeco.display.svg import svg_text

#: The colour of lines that show a theory.
REFERENCE = LIGHT.muted

#: Colours for methods that are compared.
METHOD_COLOURS = LIGHT.series

#: Colours for an ordered quantity such as the dimension, in the order of their hues.
ORDERED_COLOURS = tuple(LIGHT.series[number] for number in (1, 5, 3, 0, 4, 2))

MARKERS = ("o", "s", "^", "D", "v", "P")


def styled(draw: Callable[[Any], dict[str, Any]]) -> Callable[[Any], dict[str, Any]]:
    """Make a drawing function use the style of `odeco.display`, with grids and small markers."""

    @wraps(draw)
    def drawn(records: Any) -> dict[str, Any]:
        more: Any = {"axes.grid": True, "legend.fontsize": 8.5, "lines.markersize": 4.2}
        with drawn_in(), mpl.rc_context(more):
            return draw(records)

    return drawn


def panels(n_rows: int, n_columns: int, *, width: float = 9.2, height: float = 2.7, **settings: Any) -> tuple[Any, Any]:
    """Return a figure with `n_rows` x `n_columns` panels, each `height` inches high, and its axes as a 2-D array."""
    figure = Figure(figsize=(width, height * n_rows), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(n_rows, n_columns, squeeze=False, **settings)


def reference_line(axes: Any, x: Any, through: tuple[float, float], exponent: float, label: str) -> None:
    """Draw the dashed line y ~ xᵇ of a theory through a point."""
    x = np.array([np.min(x), np.max(x)], dtype=float)
    axes.plot(x, through[1] * (x / through[0]) ** exponent, "--", color=REFERENCE, linewidth=1.2, label=label, zorder=1)


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


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure as PNG, on white, or as SVG, transparent."""
    with replacing(path) as file:
        if path.suffix == ".png":
            figure.savefig(file, format="png", dpi=160, facecolor="white", metadata={"Software": None})
        else:
            file.write(svg_text(figure).encode("utf-8"))
