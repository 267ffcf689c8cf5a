"""Colours of pictures by their purpose, and a figure that a notebook shows."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Palette:
    """Colours by their purpose; a page has names instead, which stand for other colours in the dark.

    Attributes
    ----------
    ink, muted, line, paper : str
        Text; text that matters less; grids and axes; what is behind all.
    accent, warm : str
        What the picture is about, and what stands against it: noise, negative numbers.
    series : tuple of str
        For components, one after the other.
    """

    ink: str = "#1b1f24"
    muted: str = "#5b6570"
    line: str = "#c9cfd6"
    paper: str = "#ffffff"
    accent: str = "#1f5fbf"
    warm: str = "#b4530a"
    series: tuple[str, ...] = (
        *("#1f5fbf", "#b4530a", "#1a7f4b", "#8a3ab9", "#0b7285", "#a61e4d", "#5f6b12", "#495057"),
    )

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
        }


#: For a white ground.
LIGHT = Palette()


def import_matplotlib(module: str = "") -> Any:
    """Import a part of Matplotlib, or say how to get it."""
    try:
        return import_module(f"matplotlib{module}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise ModuleNotFoundError(
            "Pictures need matplotlib. It is not installed. Run: pip install 'odeco[plot]'.", name="matplotlib"
        ) from error


@contextmanager
def drawn_in(palette: Palette) -> Iterator[None]:
    """Draw what is drawn inside in these colours."""
    with import_matplotlib().rc_context(palette.style):
        yield


@contextmanager
def any_script() -> Iterator[None]:
    """Say nothing about a name in a script that the font does not have: the reader's own font may."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure that is nobody's but the caller's, and that a notebook shows."""
    base: Any = import_matplotlib(".figure").Figure

    class Picture(base):  # type: ignore[misc]
        """A figure that a notebook shows also where nobody has set up Matplotlib."""

        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            with any_script():
                self.savefig(buffer, format="png", dpi=100)
            return buffer.getvalue()

    return Picture(figsize=(width, height), layout="constrained", facecolor=LIGHT.paper)
