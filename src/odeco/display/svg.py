"""Figures as SVG inside a page, in the colours of the page, light or dark."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

from odeco._util.extras import needed_by
from odeco.display.style import LIGHT, any_script, drawn_in

with needed_by("A page"):
    from markupsafe import Markup
    from matplotlib.figure import Figure

    from odeco.display.page import parts

if TYPE_CHECKING:
    from odeco.display.figures import Display

#: The width in inches of a figure that fills the page, and of one of two beside each other. A phone shows these below
#: each other, so that letters are legible on both.
WIDTH, HALF = 10.0, 5.2

#: A figure is shown at most this many times its size in points: letters of 9.5 points then have 13 pixels.
_MAX_SCALE = 1.4

#: A wide figure is shown at least this many times its size, so that letters have 8 pixels: a phone scrolls it.
_MIN_SCALE = 0.85

_VARIABLES = {colour: f"var(--{name})" for name, colour in LIGHT.variables.items()}


class Figures:
    """Turns the figures of one page into HTML. Each figure's ids get a prefix, because ids hold for the whole page."""

    def __init__(self) -> None:
        self._count = 0

    def html(self, figure: Figure, description: str, caption: str = "", *, by_panel: bool = False) -> Markup:
        """Return a figure as HTML.

        Parameters
        ----------
        figure : matplotlib.figure.Figure
            A figure in the colours of `odeco.display.style.LIGHT`, which become those of the page.
        description : str
            Is read to people who cannot see the figure.
        caption : str
            Stands below the figure.
        by_panel : bool
            Whether a phone shows the panels of the figure below each other. Otherwise it scrolls a wide figure.
        """
        self._count += 1
        prefix, points = f"f{self._count}-", 72 * figure.get_figwidth()
        svg = re.sub(r'\bid="', f'id="{prefix}', svg_text(figure))
        svg = svg.replace('href="#', f'href="#{prefix}').replace("url(#", f"url(#{prefix}")
        svg = re.sub(r'style="[^"]*"', lambda style: _with_variables(style[0]), svg)
        windows = panel_windows(figure) if by_panel else []
        size = f"max-width:{_MAX_SCALE * points:.0f}px"
        if figure.get_figwidth() > HALF and len(windows) < 2:
            size += f";min-width:{_MIN_SCALE * points:.0f}px"
        made: Markup = parts().figure(
            head=Markup('<svg role="img" aria-label="{}" style="{}"').format(description, size),
            svg=Markup(svg.removeprefix("<svg")),  # noqa: S704 - Matplotlib has escaped its texts
            description=description,
            caption=caption,
            windows=windows if len(windows) > 1 else [],
            drawing=f"#{prefix}figure_1",
        )
        return made

    def draw(
        self, display: Display, description: str, caption: str = "", *, size: tuple[float, float] | None = None
    ) -> Markup:
        """Return a display of `odeco.display` as HTML; `size` is in inches."""
        figure = Figure(figsize=size or display.size, layout="constrained")
        with drawn_in():
            display.plot(figure.subplots())
        return self.html(figure, description, caption)


def _with_variables(style: str) -> str:
    return re.sub(r"#[0-9a-f]{6}\b", lambda colour: _VARIABLES.get(colour[0], colour[0]), style)


def svg_text(figure: Any) -> str:
    """Return a figure as an SVG element: transparent, without date or metadata, and with no reference to the outside.

    Letters of the reader's font may be wider than those of the font that the figure was laid out with, so that there
    is more room around it.
    """
    buffer = io.StringIO()
    with drawn_in(), any_script():
        engine = figure.get_layout_engine()
        if engine is not None:
            engine.set(w_pad=0.15, h_pad=0.1)
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    return re.sub(r"\s*<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)


def panel_windows(figure: Any) -> list[tuple[float, float, float, float]]:
    """Return where the panels of a figure are in its SVG, in points: left, top, width and height of each."""
    figure.draw_without_rendering()
    unit, height = 72 / figure.dpi, 72 * figure.get_figheight()
    boxes = [axes.get_tightbbox() for axes in figure.axes if axes.get_visible()]
    return [(unit * box.x0, height - unit * box.y1, unit * box.width, unit * box.height) for box in boxes]
