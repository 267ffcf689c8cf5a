"""Figures of a result, one class per kind, as the displays of scikit-learn.

`from_result` takes what is drawn from a result; `plot` draws it with Matplotlib, on given axes or
in a new figure, and sets `ax_` and `figure_`. `draw_result` puts several displays into one figure.
Components are numbered from 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from odeco._util.arguments import check_choice, check_count
from odeco._util.types import FloatArray
from odeco.display.style import LIGHT, Palette, drawn_in, import_matplotlib, new_figure
from odeco.display.tables import leading, shortened, vectors_of

#: At most this many components are drawn where each has a line or a panel of its own.
MAX_DRAWN = 12

#: A vector with more coordinates than this is cut into this many stretches, and the range of values
#: in each is drawn.
MAX_POINTS = 400

#: A matrix shows the cosines of at most this many components, and their values for at most this
#: many.
_MAX_COSINES = 30
_MAX_WRITTEN = 12

#: A colour that is weaker than this is invisible, and is not drawn.
_MIN_STRENGTH = 0.0025


@dataclass(eq=False)
class Display:
    """The base of all displays.

    Attributes
    ----------
    ax_, figure_ : matplotlib objects
        Where `plot` has drawn.
    """

    size: ClassVar[tuple[float, float]] = (6.0, 3.2)
    ax_: Any = field(default=None, init=False)
    figure_: Any = field(default=None, init=False)

    def plot(self, ax: Any = None, *, palette: Palette = LIGHT) -> Self:
        """Draw on axes of Matplotlib, or in a new figure."""
        with drawn_in(palette):
            if ax is None:
                ax = new_figure(*self.size).subplots()
            self._draw(ax, palette)
        self.ax_ = ax
        self.figure_ = ax.get_figure()
        return self

    def _draw(self, axes: Any, palette: Palette) -> None:
        raise NotImplementedError


@dataclass(eq=False)
class WeightsDisplay(Display):
    """Weights as bars with error bars, and the weight that noise alone would show; weights not kept
    are grey.
    """

    weights: FloatArray
    errors: FloatArray | None = None
    floors: FloatArray | None = None
    floor_name: str = "noise floor"
    n_kept: int | None = None

    @classmethod
    def from_result(cls, result: Any) -> WeightsDisplay:
        """Return the weights of a result; if its rank was selected, also the weights that were
        dropped.
        """
        evidence = getattr(result, "rank_evidence", None)
        if evidence is not None:
            return cls(
                evidence.weights,
                None,
                evidence.noise_levels,
                "largest that noise would show",
                evidence.rank,
            )
        return cls(
            result.weights,
            getattr(result, "weight_errors", None),
            getattr(result, "noise_floors", None),
        )

    def _draw(self, axes: Any, palette: Palette) -> None:
        number = len(self.weights)
        places = np.arange(number)
        kept = number if self.n_kept is None else self.n_kept
        width = 0.6 * min(1.0, number / 5)
        axes.grid(axis="y")
        axes.bar(
            places,
            self.weights,
            width,
            color=[palette.accent] * kept + [palette.muted] * (number - kept),
        )
        settings: Any = {"ecolor": palette.ink, "capsize": 3, "label": "± 1 standard error"}
        if self.errors is not None:
            axes.errorbar(places, self.weights, yerr=self.errors, fmt="none", **settings)
        settings = {"colors": palette.warm, "linestyles": "dashed", "label": self.floor_name}
        if self.floors is not None:
            axes.hlines(self.floors, places - 0.8 * width, places + 0.8 * width, **settings)
        axes.axhline(0, color=palette.line, linewidth=1)
        axes.set(
            xlim=(-0.7, number - 0.3),
            xticks=_ticks(number, 10),
            xlabel="component",
            ylabel="weight",
        )
        if self.errors is not None or self.floors is not None:
            axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0.2)


@dataclass(eq=False)
class LeadingDisplay(Display):
    """The largest coordinates of one vector as bars with their names, the largest on top."""

    size: ClassVar[tuple[float, float]] = (4.2, 2.6)
    names: Sequence[str]
    values: Sequence[float]
    title: str = ""

    @classmethod
    def from_result(cls, result: Any, component: int = 0, *, n_top: int = 8) -> LeadingDisplay:
        """Return the largest coordinates of a component."""
        return cls.of(
            result.vectors[:, component], result.names, n_top, component_title(result, component)
        )

    @classmethod
    def of(
        cls, vector: FloatArray, names: Sequence[str] | None, n_top: int, title: str = ""
    ) -> LeadingDisplay:
        """Return the largest coordinates of a vector."""
        largest = leading(vector, names, n_top)
        return cls([name for name, _ in largest], [value for _, value in largest], title)

    def _draw(self, axes: Any, palette: Palette) -> None:
        places = np.arange(len(self.values))
        colours = [palette.accent if value >= 0 else palette.warm for value in self.values]
        axes.barh(places, self.values, height=0.62, color=colours)
        # A dollar sign in a name does not begin a formula.
        axes.set_yticks(places, list(map(shortened, self.names)), parse_math=False)
        axes.invert_yaxis()
        axes.axvline(0, color=palette.line, linewidth=1)
        axes.set_xlim(-1.02 if min(self.values, default=0) < 0 else 0, 1.02)
        axes.tick_params(axis="y", length=0, labelcolor=palette.ink)
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.grid(axis="x")
        axes.set_xticks([-1, 0, 1] if min(self.values, default=0) < 0 else [0, 0.5, 1])
        if self.title:
            axes.set_title(self.title, parse_math=False)


@dataclass(eq=False)
class CosinesDisplay(Display):
    """The cosines between unit vectors as a matrix: the stronger the colour, the closer two of them
    are.
    """

    size: ClassVar[tuple[float, float]] = (4.2, 3.6)
    cosines: FloatArray

    @classmethod
    def from_result(cls, result: Any) -> CosinesDisplay:
        """Return the cosines between the components of a result, or, for terms, the largest along
        any axis.
        """
        return cls(cosines_of(result))

    def _draw(self, axes: Any, palette: Palette) -> None:
        number = min(len(self.cosines), _MAX_COSINES)
        rectangle = import_matplotlib(".patches").Rectangle
        settings: Any = {"ha": "center", "va": "center", "color": palette.ink, "fontsize": 9}
        for row, column in np.ndindex(number, number):
            value = float(self.cosines[row, column])
            # Half as strong as the colour at most, so that the number stays legible on it.
            colour = palette.accent if value >= 0 else palette.warm
            strength = min(1.0, abs(value)) / 2
            if row == column:
                colour = palette.line
                strength = 0.5
            if strength > _MIN_STRENGTH:
                place = (column - 0.5, row - 0.5)
                axes.add_patch(
                    rectangle(place, 1, 1, facecolor=colour, alpha=strength, linewidth=0)
                )
            if number <= _MAX_WRITTEN and row != column:
                axes.text(
                    column, row, f"{value:z.2f}".replace("-", "−").replace("0.", ".", 1), **settings
                )
        if number == len(self.cosines):
            left_out = ""
        else:
            left_out = f", the first {number} of {len(self.cosines)}"
        axes.set(xlim=(-0.5, number - 0.5), ylim=(number - 0.5, -0.5), aspect="equal")
        axes.set(xticks=_ticks(number, 8), yticks=_ticks(number, 8))
        axes.tick_params(length=0)
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.set(xlabel=f"component{left_out}", ylabel="component")


@dataclass(eq=False)
class ConvergenceDisplay(Display):
    """The relative residual of the leading candidate after every image, one line for each
    component.
    """

    histories: Sequence[Sequence[float]]

    @classmethod
    def from_result(cls, result: Any) -> ConvergenceDisplay:
        """Return the residuals of a result by iteration; a joint fit of all components has one
        line.
        """
        histories = [each for each in getattr(result, "histories", ()) if each]
        return cls(histories if getattr(result, "n_restarts", None) is not None else histories[:1])

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw: no history of more than one image."""
        return not any(len(history) > 1 for history in self.histories)

    def _draw(self, axes: Any, palette: Palette) -> None:
        axes.grid(axis="both")
        for number, history in enumerate(self.histories[:MAX_DRAWN]):
            turn, place = divmod(number, len(palette.series))
            look: Any = {
                "color": palette.series[place],
                "linestyle": ("-", "--")[turn % 2],
                "label": str(number),
            }
            # A logarithmic axis has no 0, and residuals below the rounding unit of a double are 0
            # but for rounding.
            axes.plot(
                np.arange(1, len(history) + 1), np.maximum(history, np.finfo(float).eps), **look
            )
        axes.set(yscale="log", xlabel="images", ylabel="relative residual")
        axes.set_ylim(bottom=max(axes.get_ylim()[0], np.finfo(float).eps / 2))
        axes.xaxis.get_major_locator().set_params(integer=True)
        if len(self.histories) > 1:
            n_lines = min(len(self.histories), MAX_DRAWN)
            axes.legend(
                title="component",
                loc="center left",
                bbox_to_anchor=(1, 0.5),
                ncols=1 if n_lines < 7 else 2,
            )


@dataclass(eq=False)
class VectorDisplay(Display):
    """All coordinates of one vector in their order; of a long vector, the range of values in each
    stretch.
    """

    size: ClassVar[tuple[float, float]] = (6.0, 1.2)
    vector: FloatArray
    limit: float | None = None

    @classmethod
    def from_result(cls, result: Any, component: int = 0) -> VectorDisplay:
        """Return the coordinates of a component."""
        return cls(result.vectors[:, component])

    def _draw(self, axes: Any, palette: Palette) -> None:
        dimension = len(self.vector)
        limit = self.limit or 1.08 * float(np.abs(self.vector).max())
        starts = np.linspace(0, dimension, min(dimension, MAX_POINTS) + 1).astype(int)[:-1]
        top, bottom = (each.reduceat(self.vector, starts) for each in (np.maximum, np.minimum))
        if dimension <= MAX_POINTS:
            axes.vlines(
                starts, 0, top, colors=palette.accent, linewidth=max(0.7, min(4, 180 / dimension))
            )
        else:
            low = np.minimum(bottom, 0)
            high = np.maximum(top, 0)
            axes.fill_between(starts, low, high, color=palette.accent, step="mid", linewidth=0.4)
        axes.axhline(0, color=palette.line, linewidth=0.8)
        margin = 0.5 + 0.005 * dimension
        axes.set(xlim=(-margin, dimension - 1 + margin), ylim=(-limit, limit), yticks=[])
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.tick_params(length=0)


def cosines_of(result: Any) -> FloatArray:
    """Return the cosines between components; between terms, the cosine along the axis where they
    are closest.
    """
    factors = getattr(result, "factors", None)
    grams = np.stack(
        [vectors.T @ vectors for vectors in ((result.vectors,) if factors is None else factors)]
    )
    closest = np.argmax(np.abs(grams), axis=0)
    cosines: FloatArray = np.take_along_axis(grams, closest[None], axis=0)[0]
    return cosines


def component_title(result: Any, component: int) -> str:
    """Return the title of a component's figure: its number and its weight."""
    return f"{component}: weight {result.weights[component]:.4g}"


def _ticks(number: int, most: int) -> Any:
    """Return the places of the ticks of components: one for each, or about `most` if there are
    many.
    """
    if number <= 20:
        return np.arange(number)
    return np.unique(np.linspace(0, number - 1, most).astype(int))


#: Panels of components beside each other.
_BESIDE = 3

KINDS = ("all", "weights", "components", "vectors", "cosines", "convergence")


def draw_result(result: Any, what: str, *, n_top: int, figure: Any) -> Any:
    """Return a figure of a result: all displays, or one kind; see `Shown.plot`."""
    check_choice("what", what, KINDS)
    check_count("n_top", n_top)
    rows = _rows_of(result, n_top)
    if what == "convergence" and what not in rows:
        raise ValueError(
            "what='convergence' needs a history of residuals. This result has none of more than "
            "one image. Draw something else."
        )
    if what == "all" and "cosines" in rows:  # neither needs the whole width
        height, draw_weights = rows.pop("weights")
        _, draw_cosines = rows.pop("cosines")
        rows = {"weights": (height, lambda part: _beside(part, draw_weights, draw_cosines)), **rows}
    chosen = [rows[name] for name in rows if what == name or (what == "all" and name != "vectors")]
    heights = [height for height, _ in chosen]
    with drawn_in(LIGHT):
        if figure is None:
            figure = new_figure(
                9.0 if what in ("all", "components", "vectors") else 5.5, sum(heights)
            )
        parts = figure.subfigures(len(chosen), 1, height_ratios=heights, squeeze=False)[:, 0]
        for part, (_, draw) in zip(parts, chosen, strict=True):
            draw(part)
    return figure


def _rows_of(result: Any, n_top: int) -> dict[str, tuple[float, Callable[[Any], None]]]:
    """Return for each kind of display its height in inches and the function that draws it into a
    subfigure.
    """
    shown = min(len(result.weights), MAX_DRAWN)
    parts = vectors_of(result)
    n_panels = shown * len(parts)
    beside = len(parts) if len(parts) > 1 else min(_BESIDE, n_panels)
    rows: dict[str, tuple[float, Callable[[Any], None]]] = {
        "weights": (2.9, lambda part: _titled(part, "Weights", WeightsDisplay.from_result(result))),
        "components": (
            (0.55 + 0.21 * min(n_top, max(len(part[1]) for part in parts)))
            * math.ceil(n_panels / beside),
            lambda part: _components(part, result, n_top, beside),
        ),
        "vectors": (0.4 + 0.7 * n_panels, lambda part: _vectors(part, result)),
    }
    if len(result.weights) > 1:
        rows["cosines"] = (
            3.6,
            lambda part: _titled(part, "Cosines", CosinesDisplay.from_result(result)),
        )
    convergence = ConvergenceDisplay.from_result(result)
    if not convergence.is_empty:
        rows["convergence"] = (2.9, lambda part: _titled(part, "Convergence", convergence))
    return rows


def _beside(part: Any, first: Callable[[Any], None], second: Callable[[Any], None]) -> None:
    left, right = part.subfigures(1, 2, width_ratios=[3, 2])
    first(left)
    second(right)


def _titled(part: Any, title: str, display: Any) -> None:
    axes = part.subplots()
    display.plot(axes)
    axes.set_title(title)


def leading_displays(result: Any, n_top: int) -> list[LeadingDisplay]:
    """Return the largest coordinates of the first components; of terms, along each axis."""
    parts = vectors_of(result)
    displays = []
    for i in range(min(len(result.weights), MAX_DRAWN)):
        for axis, (_, vectors, names) in enumerate(parts):
            title = component_title(result, i) + (f", axis {axis}" if len(parts) > 1 else "")
            displays.append(LeadingDisplay.of(vectors[:, i], names, n_top, title))
    return displays


def _components(part: Any, result: Any, n_top: int, beside: int) -> None:
    displays = leading_displays(result, n_top)
    grid = part.subplots(math.ceil(len(displays) / beside), beside, squeeze=False).ravel()
    for axes in grid[len(displays) :]:
        axes.set_axis_off()
    for display, axes in zip(displays, grid, strict=False):
        display.plot(axes)


def _vectors(part: Any, result: Any) -> None:
    drawn = [
        (str(i), vectors[:, i])
        for _, vectors, _ in vectors_of(result)
        for i in range(min(vectors.shape[1], MAX_DRAWN))
    ]
    limit = 1.08 * max(float(abs(vector).max()) for _, vector in drawn)
    draw_vectors(part.subplots(len(drawn), 1, squeeze=False)[:, 0], drawn, limit)


def draw_vectors(grid: Any, drawn: Sequence[tuple[str, FloatArray]], limit: float) -> None:
    """Draw vectors below each other on one scale, each with its label."""
    for (label, vector), axes in zip(drawn, grid, strict=True):
        VectorDisplay(vector, limit).plot(axes)
        axes.set_ylabel(label, rotation=0, ha="right", va="center")
