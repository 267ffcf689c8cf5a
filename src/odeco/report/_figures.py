"""Figures as SVG inside the page. They take the colours of the page, also where it is shown dark."""

from __future__ import annotations

import io
import re
import warnings
from html import escape
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from odeco._types import FloatArray
from odeco.report._page import SERIES

# matplotlib cannot write the names of the page's colours. So each name has a colour that stands for it while the figure
# is drawn, and in the finished SVG that colour is replaced by the name.
_NAMES = ("ink", "muted", "line", "accent", "warm", "good", "bad", "paper", *SERIES)
COLOURS = {name: f"#fe{number:02x}01" for number, name in enumerate(_NAMES)}
STYLE: Any = {
    "svg.fonttype": "none",  # text stays text, which can be searched and takes the font of the page
    "svg.hashsalt": "odeco",  # the same figure gives the same bytes
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.edgecolor": COLOURS["line"],
    "axes.labelcolor": COLOURS["muted"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "text.color": COLOURS["ink"],
    "xtick.color": COLOURS["line"],
    "ytick.color": COLOURS["line"],
    "xtick.labelcolor": COLOURS["muted"],
    "ytick.labelcolor": COLOURS["muted"],
    "grid.color": COLOURS["line"],
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.labelcolor": COLOURS["ink"],
    "font.size": 9.5,
    "lines.linewidth": 1.6,
}
#: The width of every figure in inches. The page scales all figures alike.
WIDTH = 10.0
#: A vector with more coordinates than this is cut into so many stretches, and the range of its values in each is drawn.
MOST_POINTS = 400
#: The figures of vectors and of convergence show at most so many components. The table lists all of them.
MOST_DRAWN = 12


class Figures:
    """Draws the figures of one page. Ids inside a figure get a prefix, so that no two figures share one."""

    def __init__(self) -> None:
        self._count = 0

    @staticmethod
    def style() -> Any:
        """Return a context in which figures are made: text and axes get the colours of the page, also in the dark."""
        return mpl.rc_context(STYLE)

    def html(self, figure: Figure, description: str, caption: str = "") -> str:
        """Return a figure as HTML. The `description` is read to people who cannot see the figure."""
        self._count += 1
        buffer = io.StringIO()
        with mpl.rc_context(STYLE), warnings.catch_warnings():
            # The browser draws the text, in its own fonts.
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
        svg = buffer.getvalue()
        svg = svg[svg.index("<svg") :]
        svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
        # Ids inside an SVG hold for the whole page. Without a prefix the second figure would refer to the first.
        prefix = f"f{self._count}-"
        svg = re.sub(r'\bid="', f'id="{prefix}', svg)
        svg = re.sub(r'href="#', f'href="#{prefix}', svg)
        svg = svg.replace("url(#", f"url(#{prefix}")
        for name, colour in COLOURS.items():
            svg = svg.replace(colour, f"var(--{name})")
        svg = svg.replace("<svg", f'<svg role="img" aria-label="{escape(description)}"', 1)
        shown = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
        return f"<figure>\n{svg}{shown}</figure>\n"

    def weights(
        self,
        weights: FloatArray,
        errors: FloatArray | None = None,
        floors: FloatArray | None = None,
        floor_name: str = "noise floor",
        n_kept: int | None = None,
    ) -> str:
        """Draw weights with error bars, and across each the weight that noise would show; those not kept are grey."""
        numbers = np.arange(1, len(weights) + 1)
        kept = len(weights) if n_kept is None else n_kept
        colours = [COLOURS["accent"]] * kept + [COLOURS["muted"]] * (len(weights) - kept)
        width = 0.55 * min(1.0, len(weights) / 8)
        with mpl.rc_context(STYLE):
            figure, axes = _axes(WIDTH, 3.1)
            axes.grid(axis="y")
            axes.bar(numbers, weights, width=width, color=colours, label="weight")
            if errors is not None:
                axes.errorbar(
                    numbers,
                    weights,
                    yerr=errors,
                    fmt="none",
                    ecolor=COLOURS["ink"],
                    capsize=3,
                    label="± 1 standard error",
                )
            if floors is not None:
                axes.hlines(
                    floors,
                    numbers - 0.8 * width,
                    numbers + 0.8 * width,
                    colors=COLOURS["warm"],
                    linestyles="dashed",
                    label=floor_name,
                )
            axes.axhline(0, color=COLOURS["line"], linewidth=1)
            axes.set_xlim(0.3, len(weights) + 0.7)
            if len(weights) <= 30:
                axes.set_xticks(numbers)
            axes.set_xlabel("component")
            axes.set_ylabel("weight")
            if errors is not None or floors is not None:
                axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3)
            return self.html(
                figure, f"Weights of {len(weights)} components, from {weights[0]:.3g} to {weights[-1]:.3g}."
            )

    def vectors(self, vectors: FloatArray) -> str:
        """Draw the coordinates of every vector, one below the other on the same scale."""
        dimension, k = vectors.shape[0], min(vectors.shape[1], MOST_DRAWN)
        edges = np.linspace(0, dimension, min(dimension, MOST_POINTS) + 1).astype(int)
        starts = edges[:-1]
        highest = float(np.abs(vectors[:, :k]).max()) * 1.08
        with mpl.rc_context(STYLE):
            figure = Figure(figsize=(WIDTH, 0.55 + 0.62 * k), layout="constrained")
            grid = figure.subplots(k, 1, sharex=True, sharey=True, squeeze=False)[:, 0]
            for number, axes in enumerate(grid):
                top = np.maximum.reduceat(vectors[:, number], starts)
                bottom = np.minimum.reduceat(vectors[:, number], starts)
                if dimension <= MOST_POINTS:
                    axes.vlines(starts, 0, top, colors=COLOURS["accent"], linewidth=max(0.7, min(4, 300 / dimension)))
                else:
                    axes.fill_between(
                        starts,
                        np.minimum(bottom, 0),
                        np.maximum(top, 0),
                        color=COLOURS["accent"],
                        step="mid",
                        linewidth=0.4,
                    )
                axes.axhline(0, color=COLOURS["line"], linewidth=0.8)
                axes.set_ylim(-highest, highest)
                axes.set_ylabel(str(number + 1), rotation=0, ha="right", va="center", color=COLOURS["ink"])
                axes.spines["left"].set_visible(False)
                axes.spines["bottom"].set_visible(False)
                axes.tick_params(length=0)
                axes.set_yticks([])
            grid[-1].set_xlabel("coordinate, counted from 0")
            grid[-1].set_xlim(-0.5 - 0.005 * dimension, dimension - 0.5 + 0.005 * dimension)
            left_out = f" The first {k} of {vectors.shape[1]}." if k < vectors.shape[1] else ""
            caption = f"All on one scale: the axis of each ends at ±{highest:.2g}.{left_out}"
            return self.html(figure, f"Coordinates of {k} unit vectors of dimension {dimension}.", caption)

    def convergence(self, histories: tuple[tuple[float, ...], ...], tolerance_name: str = "") -> str:
        """Draw the relative residual of the leading candidate after every image, one line for each component."""
        drawn = histories[:MOST_DRAWN]
        with mpl.rc_context(STYLE):
            figure, axes = _axes(WIDTH, 3.1)
            axes.grid(axis="both")
            styles = ("-", "--")
            for number, history in enumerate(drawn):
                # A logarithmic axis has no 0, so a residual of 0 is drawn at half the rounding unit of a double.
                axes.plot(
                    np.arange(1, len(history) + 1),
                    np.maximum(history, np.finfo(float).eps / 2),
                    color=COLOURS[f"s{number % len(SERIES)}"],
                    linestyle=styles[number // len(SERIES) % 2],
                    label=str(number + 1),
                )
            axes.set_yscale("log")
            axes.set_xlabel("images asked for")
            axes.set_ylabel("relative residual")
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.legend(title="component", loc="center left", bbox_to_anchor=(1, 0.5), ncols=1 if len(drawn) < 7 else 2)
            return self.html(
                figure, f"Relative residual against the number of images, for {len(drawn)} components.", tolerance_name
            )


def _axes(width: float, height: float) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()
