"""The page system: one HTML template, one style sheet, the parts of every page, and figures as SVG.

Templates are Jinja's with autoescape: whatever is not `markupsafe.Markup` is text, and is escaped.
Figures have the colours of the page, light or dark.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from odeco._util.files import replacing
from odeco._util.lazy import needed_by
from odeco.display.style import DARK, LIGHT, Palette, any_script, drawn_in

with needed_by("A page"):
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup
    from matplotlib.figure import Figure

if TYPE_CHECKING:
    from odeco.display.figures import Display

#: The width in inches of a figure that fills the page, and of one of two beside each other. A phone
#: shows these below each other, so that letters are legible on both.
WIDTH = 10.0
HALF = 5.2

#: A figure is shown at most this many times its size in points: letters of 9.5 points then have 13
#: pixels.
_MAX_SCALE = 1.4

#: A wide figure is shown at least this many times its size, so that letters have 8 pixels: a phone
#: scrolls it.
_MIN_SCALE = 0.85

_VARIABLES = {colour: f"var(--{name})" for name, colour in LIGHT.variables.items()}

_COLOUR = re.compile("|".join(_VARIABLES))


@dataclass(frozen=True)
class Section:
    """A section of a page.

    Attributes
    ----------
    title : str
        The heading.
    body : str
        The contents: HTML as `markupsafe.Markup`, as `table`, `Figures` and `parts` return it. A
        plain str is text, and is escaped.
    lead : str
        A sentence below the heading.
    name : str
        The CSS class of the section.
    anchor : str
        The id of the heading, for links.
    """

    title: str
    body: str
    lead: str = ""
    name: str = ""
    anchor: str = ""


def asset(package: str, name: str) -> str:
    """Return the text of a template, style sheet or script that a package brings."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


@cache
def parts(package: str = "odeco.display", name: str = "parts.html") -> Any:
    """Return the macros of a template, which are functions that return `markupsafe.Markup`."""
    return _environment().get_template(f"{package}/{name}").module


@cache
def _environment() -> Environment:
    return Environment(
        loader=FunctionLoader(lambda name: asset(*name.split("/"))),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    text_columns: Iterable[int] = (),
    narrow: bool = False,
    stacked: bool = False,
    long: bool = False,
) -> Markup:
    """Return an HTML table. A column is set flush right, as numbers are, unless it is one of
    `text_columns`.

    A `stacked` table has many columns: on a phone every row becomes a list of headings and values.
    A `long` one can be searched and sorted, if the page has the script ``table.js``.
    """
    kinds = {"narrow": narrow, "stacked": stacked, "long": long}
    kind = next((name for name, is_asked in kinds.items() if is_asked), "")
    made: Markup = parts().table(columns, list(rows), set(text_columns), kind)
    return made


def beside(*figures: str, narrow: bool = False) -> Markup:
    """Return figures beside each other if there is room; `narrow` ones need less of it."""
    return Markup('<div class="{}">\n{}</div>\n').format(
        "cards" if narrow else "beside", Markup().join(figures)
    )


def write_page(
    path: str | os.PathLike[str],
    *,
    title: str,
    subtitle: str,
    sections: Iterable[Section],
    facts: Mapping[str, str] | None = None,
    style: str = "",
    script: str = "",
    verdict: str = "",
    caution: str = "",
) -> None:
    """Write a page to `path`, atomically.

    Parameters
    ----------
    path : path
        Where to write. An old file is replaced only by a complete one.
    title, subtitle : str
        The heading, and a line below it.
    sections : iterable of Section
        The contents of the page, from top to bottom.
    facts : mapping, optional
        Names and values to show at the top.
    style : str
        CSS that only this page needs.
    script : str
        JavaScript of this page. No other script runs, because the policy of the page names the hash
        of this one.
    verdict : str
        The result in one sentence, above everything else.
    caution : str
        A warning, below the verdict.
    """
    template = _environment().get_template("odeco.display/page.html")
    text = template.render(
        title=title,
        verdict=verdict,
        caution=caution,
        subtitle=subtitle,
        sections=list(sections),
        facts=facts or {},
        light=_variables(LIGHT),
        dark=_variables(DARK),
        style=Markup(asset("odeco.display", "page.css") + style),  # noqa: S704 - assets of odeco
        script=Markup(script),  # noqa: S704 - an asset of odeco
        script_hash="sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    with replacing(path) as file:
        file.write(text.encode("utf-8"))


def _variables(palette: Palette) -> str:
    return "".join(f"--{name}:{colour};" for name, colour in palette.variables.items())


class Figures:
    """Turns the figures of one page into HTML. Each figure's ids get a prefix, because ids hold for
    the whole page.
    """

    def __init__(self) -> None:
        self._count = 0

    def html(
        self, figure: Figure, description: str, caption: str = "", *, by_panel: bool = False
    ) -> Markup:
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
            Whether a phone shows the panels of the figure below each other. Otherwise it scrolls a
            wide figure.
        """
        self._count += 1
        prefix = f"f{self._count}-"
        points = 72 * figure.get_figwidth()
        svg = re.sub(r'\bid="', f'id="{prefix}', svg_text(figure))
        svg = svg.replace('href="#', f'href="#{prefix}').replace("url(#", f"url(#{prefix}")
        svg = re.sub(
            r'style="[^"]*"',
            lambda style: _COLOUR.sub(lambda colour: _VARIABLES[colour[0]], style[0]),
            svg,
        )
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
        self,
        display: Display,
        description: str,
        caption: str = "",
        *,
        size: tuple[float, float] | None = None,
    ) -> Markup:
        """Return a display of `odeco.display` as HTML; `size` is in inches."""
        figure = Figure(figsize=size or display.size, layout="constrained")
        with drawn_in():
            display.plot(figure.subplots())
        return self.html(figure, description, caption)


def svg_text(figure: Any) -> str:
    """Return a figure as an SVG element: transparent, without date or metadata, and with no
    reference to the outside.

    Letters of the reader's font may be wider than those of the font that the figure was laid out
    with, so that there is more room around it.
    """
    buffer = io.StringIO()
    with drawn_in(), any_script():
        engine = figure.get_layout_engine()
        if engine is not None:
            engine.set(w_pad=0.15, h_pad=0.1)
        figure.savefig(
            buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
    svg = buffer.getvalue()
    return re.sub(r"\s*<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)


def panel_windows(figure: Any) -> list[tuple[float, float, float, float]]:
    """Return where the panels of a figure are in its SVG, in points: left, top, width and height of
    each.
    """
    figure.draw_without_rendering()
    unit = 72 / figure.dpi
    height = 72 * figure.get_figheight()
    boxes = [axes.get_tightbbox() for axes in figure.axes if axes.get_visible()]
    return [
        (unit * box.x0, height - unit * box.y1, unit * box.width, unit * box.height)
        for box in boxes
    ]
