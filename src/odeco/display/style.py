"""One style for all figures: colours by their purpose, Matplotlib's settings, and a figure that a
notebook shows.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from odeco._util.lazy import import_optional


@dataclass(frozen=True)
class Palette:
    """Colours by their purpose. The fields are also the names of the colours in the CSS of a page.

    Attributes
    ----------
    paper, panel : str
        The background, and that of boxes on it.
    ink, muted, line : str
        Text; less important text; grids and axes.
    accent, warm, good, bad : str
        The subject of the figure; its opposite, such as noise and negative numbers; success;
        failure.
    series : tuple of str
        For components and methods, one after the other. They also differ in lightness.
    """

    paper: str
    panel: str
    ink: str
    muted: str
    line: str
    accent: str
    warm: str
    good: str
    bad: str
    series: tuple[str, ...]

    @property
    def variables(self) -> dict[str, str]:
        """The colours by name; those of series are ``s0``, ``s1`` and so on."""
        named = {name: colour for name, colour in vars(self).items() if name != "series"}
        return named | {f"s{number}": colour for number, colour in enumerate(self.series)}

    @property
    def style(self) -> Any:
        """Matplotlib's settings for a figure in these colours."""
        return {
            "axes.edgecolor": self.line,
            "axes.labelcolor": self.muted,
            "axes.titlecolor": self.ink,
            "axes.titlesize": 10,
            "axes.titlelocation": "left",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.axisbelow": True,
            "axes.prop_cycle": import_matplotlib().cycler(color=self.series),
            "text.color": self.ink,
            "xtick.color": self.line,
            "ytick.color": self.line,
            "xtick.labelcolor": self.muted,
            "ytick.labelcolor": self.muted,
            "grid.color": self.line,
            "grid.linewidth": 0.6,
            "legend.frameon": False,
            "legend.labelcolor": self.ink,
            "font.size": 9.5,
            "lines.linewidth": 1.6,
            # text stays text, which can be searched and takes the font of the page
            "svg.fonttype": "none",
            "svg.hashsalt": "odeco",  # the same figure gives the same bytes
        }


LIGHT = Palette(
    paper="#ffffff",
    panel="#f6f7f9",
    ink="#1b1f24",
    muted="#5b6570",
    line="#d8dde3",
    accent="#1f5fbf",
    warm="#b4530a",
    good="#1a7f4b",
    bad="#b3261e",
    series=(
        *("#1f5fbf", "#b4530a", "#1a7f4b", "#8a3ab9"),
        *("#0b7285", "#a61e4d", "#5f6b12", "#495057"),
    ),
)

DARK = Palette(
    paper="#14171b",
    panel="#1c2026",
    ink="#e6e9ed",
    muted="#9aa5b1",
    line="#343b44",
    accent="#7db0ff",
    warm="#f0a35e",
    good="#5fcf95",
    bad="#ff8a80",
    series=(
        *("#7db0ff", "#f0a35e", "#5fcf95", "#cf9bf0"),
        *("#5cc8d7", "#ff8fb1", "#c6d15a", "#c3cad2"),
    ),
)


def diverging_colours() -> Any:
    """Return the colours of numbers with a sign: blue above zero, orange below, as in tables."""
    colours = import_matplotlib(".colors")
    shades = [LIGHT.warm, LIGHT.panel, LIGHT.accent]
    return colours.LinearSegmentedColormap.from_list("odeco", shades)


def import_matplotlib(module: str = "") -> Any:
    """Import a part of Matplotlib, or say how to get it."""
    return import_optional(f"matplotlib{module}", "A figure")


@contextmanager
def drawn_in(palette: Palette = LIGHT) -> Iterator[None]:
    """Draw figures inside in the style of odeco."""
    with import_matplotlib().rc_context(palette.style):
        yield


@contextmanager
def any_script() -> Iterator[None]:
    """Ignore warnings about characters that Matplotlib's font lacks: the reader's own font may have
    them.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure that pyplot does not manage and that a notebook shows."""
    base: Any = import_matplotlib(".figure").Figure

    class NotebookFigure(base):  # type: ignore[misc]
        """A figure that a notebook shows without any set-up of Matplotlib."""

        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            with any_script():
                self.savefig(buffer, format="png", dpi=100)
            return buffer.getvalue()

    return NotebookFigure(figsize=(width, height), layout="constrained", facecolor=LIGHT.paper)
