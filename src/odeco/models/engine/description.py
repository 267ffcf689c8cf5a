"""What there is to say and to draw about a fitted model: text, figure and page are made from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Protocol

import numpy as np

from odeco._util.types import FloatArray
from odeco.display.style import diverging_colours
from odeco.display.tables import shortened
from odeco.models.engine.fit import Info
from odeco.online.halves import SplitHalf
from odeco.privacy.report import PrivacyReport

#: A text lists at most this many components, and names at most this many columns for each.
_MAX_COMPONENTS, _MAX_COLUMNS = 20, 4

#: A warning names at most this many unclear components.
_MAX_UNCLEAR = 6

#: Width and height in inches of a panel that has no `size`.
PANEL_SIZE = (5.2, 4.2)

#: The height of a line of text and the width of a letter in a figure, in inches; and the most names
#: along one side.
LINE, LETTER, MAX_TICKS = 0.19, 0.08, 60

#: A notebook shows at most this many components.
_MAX_BRIEF = 10


class Panel(Protocol):
    """A part of a figure: data that can be drawn. It may have a `size`, width and height in
    inches.
    """

    def draw(self, axes: Any) -> None:
        """Draw it on Matplotlib axes."""
        ...


@dataclass(frozen=True)
class ComponentRow:
    """A component in words.

    Attributes
    ----------
    weight : float or None
        Its share, if it has one.
    text : str
        What tells it from the others.
    doubt : str
        Why it is unclear; empty if it is clear.
    """

    weight: float | None
    text: str
    doubt: str = ""


@dataclass(frozen=True, eq=False)
class PageTable:
    """A table of the page, such as the means of components in the units of the rows.

    Attributes
    ----------
    title, lead : str
        The heading, and a sentence below it.
    columns : sequence of str
        The headings of the columns. The first column is text, the others are numbers.
    rows : sequence of sequences of str
        The cells.
    shades : array, optional
        A number from -1 to 1 for each cell but those of the first column; 0 is not shaded.
    """

    title: str
    lead: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    shades: FloatArray | None = None


@dataclass(frozen=True)
class Description:
    """A fitted model, described.

    Attributes
    ----------
    verdict : str
        One sentence: what was found, and whether to rely on it. If it is empty, `conclude` states
        the support.
    facts : tuple of str
        Further sentences.
    components : tuple of ComponentRow
        The components, in their order.
    panels : tuple of Panel
        The parts of the figure.
    tables : tuple of PageTable
        The tables of the page.
    sizes : tuple of pairs of str
        What was learnt from, such as the number of rows, for the top of the page.
    columns : tuple of int
        The columns of rows that tell components apart, the best first; the page shows them for
        typical rows.
    """

    verdict: str
    facts: tuple[str, ...] = ()
    components: tuple[ComponentRow, ...] = ()
    panels: tuple[Panel, ...] = ()
    tables: tuple[PageTable, ...] = ()
    sizes: tuple[tuple[str, str], ...] = ()
    columns: tuple[int, ...] = ()

    def caution(self, component: str) -> str:
        """Return a warning that names the components that are unclear; nothing if all are clear."""
        unclear = [
            f"{number} ({each.doubt})" for number, each in enumerate(self.components) if each.doubt
        ]
        if not unclear:
            return ""
        more = f", and {len(unclear) - _MAX_UNCLEAR} more" if len(unclear) > _MAX_UNCLEAR else ""
        listed = ", ".join(unclear[:_MAX_UNCLEAR]) + more
        verb = "is" if len(unclear) == 1 else "are"
        return (
            f"{len(unclear)} of {len(self.components)} {verb} unclear. Take care with {component} "
            f"{listed}."
        )

    def conclude(
        self,
        info: Info,
        component: str,
        *,
        privacy: PrivacyReport | None = None,
        halves: SplitHalf | None = None,
    ) -> Description:
        """Return the description with what every model states: its support, selection, cautions and
        guarantee.
        """
        k = len(self.components)
        facts = list(self.facts)
        components = self.components
        support = "" if halves is None else halves.describe(component, plural(component))
        verdict = self.verdict
        if not verdict and info.gain_over_one < 0:
            verdict = (
                f"One {component} explains the data better than {k} {plural(component)} do (BIC)."
            )
        if not verdict:
            verdict = support or f"{k} {component if k == 1 else plural(component)}."
        elif support:
            facts.insert(0, support)
        if halves is not None:
            counted = zip(
                components, halves.found_again.tolist(), halves.is_established.tolist(), strict=True
            )
            components = tuple(
                each
                if established
                else replace(
                    each, doubt=f"found again in {count} of {halves.n_halves} half-samples"
                )
                for each, count, established in counted
            )
        facts += info.cautions.tolist()
        if info.tried.size:
            facts.append(_selection(info, component))
        if privacy is None and not info.converged:
            facts.append(f"{info.n_iter} iterations were not enough to converge; raise max_iter.")
        if privacy is not None:
            facts.append(
                f"Private: epsilon {privacy.epsilon:g}, delta {privacy.delta:g}; "
                f"{privacy.neighbours}."
            )
        elif halves is None and k > 1:
            facts.append("Not checked on halves: model.split_half(X).")
        return replace(self, verdict=verdict, facts=tuple(facts), components=components)

    def __str__(self) -> str:
        lines = [self.verdict, *self.facts]
        for number, each in enumerate(self.components[:_MAX_COMPONENTS]):
            weight = "" if each.weight is None else f"{each.weight:6.1%}  "
            lines.append(f"{number:>3}  {weight}{each.text}")
        if len(self.components) > _MAX_COMPONENTS:
            lines.append(f"     and {len(self.components) - _MAX_COMPONENTS} more")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return the essentials for a notebook: verdict, facts, and components with their shares as
        bars.
        """
        rows = []
        for number, each in enumerate(self.components[:_MAX_BRIEF]):
            doubt = f" <em>({escape(each.doubt)})</em>" if each.doubt else ""
            text = f"<td style='text-align:left'>{escape(each.text)}{doubt}</td>"
            rows.append(f"<tr><td>{number}</td><td>{_share_html(each.weight)}</td>{text}</tr>")
        more = len(self.components) - _MAX_BRIEF
        rest = f"<p>… and {more} more; summary() lists them.</p>" if more > 0 else ""
        facts = "".join(f"<br>{escape(fact)}" for fact in self.facts)
        heading = f"<p><strong>{escape(self.verdict)}</strong>{facts}</p>"
        return f"<div>{heading}<table>{''.join(rows)}</table>{rest}</div>"

    def figure(self) -> Any:
        """Return a Matplotlib figure with all panels beside each other."""
        return draw_panels(self.panels)


def draw_panels(panels: Sequence[Panel]) -> Any:
    """Return a Matplotlib figure with panels beside each other."""
    from matplotlib.figure import Figure  # Matplotlib takes half a second, and may be missing

    if not panels:
        return Figure()
    widths, heights = zip(*(getattr(panel, "size", PANEL_SIZE) for panel in panels), strict=True)
    figure = Figure(figsize=(sum(widths), max(heights)), layout="constrained")
    row = figure.subplots(1, len(panels), width_ratios=widths, squeeze=False)[0]
    for axes, panel in zip(row, panels, strict=True):
        panel.draw(axes)
    return figure


def _share_html(weight: float | None) -> str:
    if weight is None:
        return ""
    bar = f"display:inline-block;height:.7em;width:{60 * weight:.0f}px;background:#1f5fbf"
    return f"<span style='{bar}'></span> {weight:.0%}"


def _selection(info: Info, component: str) -> str:
    """Return how the number of components was selected, and which others fit almost as well."""
    k = info.selected
    others = [str(number) for number in info.tried[info.tried_as_good] if number != k]
    text = f"Cross-validation chose {k} {component if k == 1 else plural(component)}"
    if others:
        text += f"; {' and '.join(others)} {'fits' if len(others) == 1 else 'fit'} almost as well"
    return f"{text}."


@dataclass(frozen=True, eq=False)
class HeatMap:
    """A matrix as colours, with a name for every row and column.

    Attributes
    ----------
    values : array
        The matrix.
    rows, columns : sequence of str
        Their names.
    label : str
        What the numbers are.
    diverging : bool
        Whether zero is the middle of the colours, or the lowest colour.
    """

    values: FloatArray
    rows: Sequence[str]
    columns: Sequence[str]
    label: str
    diverging: bool = True

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches: room for the names, and for as many lines of text as there
        are names.
        """
        n_rows, n_columns = (min(number, MAX_TICKS) for number in self.values.shape)
        left, below = (
            LETTER * max(map(len, map(shortened, names)), default=0)
            for names in (self.rows, self.columns)
        )
        below *= self._is_upright
        width, height = LINE * n_columns + left + 1.4, LINE * n_rows + below + 0.6
        return max(PANEL_SIZE[0], width), max(PANEL_SIZE[1], height)

    @property
    def _is_upright(self) -> bool:
        """Whether the names of columns are written upwards."""
        return max(map(len, self.columns), default=0) > 3

    def draw(self, axes: Any) -> None:
        """Draw it on Matplotlib axes."""
        most = float(np.abs(self.values).max(initial=0.0)) or 1.0
        colours: dict[str, Any] = {"cmap": "Blues", "vmin": 0.0}
        if self.diverging:
            colours = {"cmap": diverging_colours(), "vmin": -most}
        drawn = axes.imshow(
            self.values, vmax=most, aspect="auto", interpolation="nearest", **colours
        )
        for axis, names in ((axes.xaxis, self.columns), (axes.yaxis, self.rows)):
            every = -(-len(names) // MAX_TICKS)
            # A dollar sign in a name does not begin a formula.
            axis.set_ticks(
                range(0, len(names), every), list(map(shortened, names[::every])), parse_math=False
            )
        axes.tick_params(axis="x", labelrotation=90 if self._is_upright else 0)
        axes.figure.colorbar(drawn, ax=axes, label=self.label)


def plural(name: str) -> str:
    """Return the plural of a noun."""
    if name.endswith("y"):
        return f"{name[:-1]}ies"
    return f"{name}es" if name.endswith("s") else f"{name}s"


def number_text(value: float, digits: int = 4) -> str:
    """Return a number with this many digits, without an exponent unless it is very large or
    small.
    """
    return f"{value:,.0f}" if 10 ** min(digits, 3) <= abs(value) < 1e9 else f"{value:.{digits}g}"


def component_names(weights: FloatArray) -> list[str]:
    """Return the name of every component in a figure: its number and weight."""
    return [f"{number} ({weight:.0%})" for number, weight in enumerate(weights)]


def most_characteristic(heights: FloatArray) -> list[list[int]]:
    """Return for each component (row) the few columns where it is furthest from zero, the furthest
    first.
    """
    places = np.argsort(-np.abs(heights), axis=1, kind="stable")[:, :_MAX_COLUMNS]
    return [[int(place) for place in row] for row in places]
