"""Figures as SVG inside the page. They take the colours of the page, also where it is shown dark."""

from __future__ import annotations

import io
import re
from html import escape
from typing import Any

import numpy as np

from odeco._util.extras import needed_by
from odeco._util.types import FloatArray
from odeco.display.figures import ConvergenceDisplay, CosinesDisplay, LeadingDisplay, VectorDisplay, WeightsDisplay
from odeco.display.page import SERIES
from odeco.display.style import Palette, any_script

with needed_by("odeco.display.svg"):
    import matplotlib as mpl
    from matplotlib.figure import Figure

# matplotlib cannot write the names of the page's colours. So each name has a colour that stands for it while the figure
# is drawn, and in the finished SVG that colour is replaced by the name.
_NAMES = ("ink", "muted", "line", "accent", "warm", "good", "bad", "paper", *SERIES)

COLOURS = {name: f"#fe{number:02x}01" for number, name in enumerate(_NAMES)}

STYLE: Any = {
    "svg.fonttype": "none",  # text stays text, which can be searched and takes the font of the page
    "svg.hashsalt": "odeco",  # the same figure gives the same bytes
    "figure.constrained_layout.w_pad": 0.15,  # letters of that font may be wider than those the layout was made with
    "figure.constrained_layout.h_pad": 0.1,
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

PAGE = Palette(
    **{name: COLOURS[name] for name in ("ink", "muted", "line", "paper", "accent", "warm")},
    series=tuple(COLOURS[name] for name in SERIES),
)

#: The width in inches of a figure that has a page to itself, and of one of two beside each other, which a phone shows
#: below each other: its letters are legible on both.
WIDTH, HALF = 10.0, 5.2

#: The figures of vectors and of convergence show at most so many components. The table lists all of them.
MOST_DRAWN = 12

#: No figure is shown larger than so many times its size in points: letters of 9.5 points have 13 pixels then.
_LARGEST = 1.4

#: Nor smaller than so many times, so that letters have 8 pixels: a phone shows a part of a wide figure, and scrolls.
_SMALLEST = 0.85


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
        with mpl.rc_context(STYLE), any_script():
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
        points = 72 * figure.get_figwidth()
        width = f"max-width:{_LARGEST * points:.0f}px"
        width += f";min-width:{_SMALLEST * points:.0f}px" if figure.get_figwidth() > HALF else ""
        svg = svg.replace("<svg", f'<svg style="{width}"', 1)
        shown = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
        return f"<figure>\n{svg}{shown}</figure>\n"

    def draw(
        self, display: Any, description: str, caption: str = "", *, size: tuple[float, float] | None = None
    ) -> str:
        """Return a picture of `odeco.display` as HTML, in the colours of the page."""
        with mpl.rc_context(STYLE):
            figure, axes = new_axes(*(size or display.size))
            display.plot(axes, palette=PAGE)
            return self.html(figure, description, caption)

    def weights(self, display: WeightsDisplay) -> str:
        """Draw weights with error bars, and across each the weight that noise would show; those not kept are grey."""
        first, last = float(display.weights[0]), float(display.weights[-1])
        size = (max(HALF, 0.2 * len(display.weights)), 3.0)
        description = f"Weights of {len(display.weights)} components, from {first:.3g} to {last:.3g}."
        return self.draw(display, description, size=size)

    def cosines(self, display: CosinesDisplay) -> str:
        """Draw the cosines between components as a matrix."""
        largest = float(np.abs(display.cosines - np.eye(len(display.cosines))).max())
        return self.draw(display, f"Cosines between components, {largest:.2g} at most.", size=(HALF, 3.6))

    def leading(self, display: LeadingDisplay) -> str:
        """Draw the largest coordinates of a component as bars with their names."""
        listed = ", ".join(f"{name} {value:+.2f}" for name, value in zip(display.names, display.values, strict=True))
        return self.draw(display, f"{display.title}. {listed}", size=(3.6, 0.55 + 0.22 * len(display.values)))

    def vectors(self, vectors: FloatArray) -> str:
        """Draw the coordinates of every vector in their order, one below the other on the same scale."""
        dimension, k = vectors.shape[0], min(vectors.shape[1], MOST_DRAWN)
        limit = float(np.abs(vectors[:, :k]).max()) * 1.08
        with mpl.rc_context(STYLE):
            figure = Figure(figsize=(HALF, 0.55 + 0.45 * k), layout="constrained")
            grid = figure.subplots(k, 1, sharex=True, squeeze=False)[:, 0]
            for number, axes in enumerate(grid):
                VectorDisplay(vectors[:, number], limit).plot(axes, palette=PAGE)
                axes.set_ylabel(str(number + 1), rotation=0, ha="right", va="center", color=COLOURS["ink"])
            grid[-1].set_xlabel("coordinate, counted from 0")
            left_out = f" The first {k} of {vectors.shape[1]}." if k < vectors.shape[1] else ""
            caption = f"All on one scale: the axis of each ends at ±{limit:.2g}.{left_out}"
            return self.html(figure, f"Coordinates of {k} unit vectors of dimension {dimension}.", caption)

    def convergence(self, display: ConvergenceDisplay) -> str:
        """Draw the relative residual of the leading candidate after every image, one line for each component."""
        number = min(len(display.histories), MOST_DRAWN)
        description = f"Relative residual against the number of images, for {number} components."
        return self.draw(display, description, size=(HALF, 3.0))


def new_axes(width: float, height: float) -> tuple[Figure, Any]:
    """Return a new figure of this size in inches, and its axes."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()
