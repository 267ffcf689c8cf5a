"""What there is to say and to draw about a fitted model: text, figure and page are made from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from odeco._util.types import FloatArray
from odeco.models.engine.fit import Info
from odeco.privacy.report import PrivacyReport

#: A text lists at most this many components, and names at most this many columns for each.
_MAX_COMPONENTS, _MAX_COLUMNS = 20, 4

#: Components are well apart if this share of rows is assigned to its own component, and overlap down to the second.
_WELL_APART, _OVERLAPPING = 0.95, 0.75

#: And guessing the largest component for all rows must leave errors, this share of which is avoided.
_MIN_GAIN = 0.5


class Panel(Protocol):
    """A part of a figure: data that can be drawn. It may have a `size`, width and height in inches."""

    def draw(self, axes: Any) -> None:
        """Draw it on Matplotlib axes."""
        ...


@dataclass(frozen=True)
class ComponentRow:
    """A component in words: its weight, if it has one, and what is characteristic of it."""

    weight: float | None
    text: str


@dataclass(frozen=True)
class Description:
    """A fitted model, described.

    Attributes
    ----------
    verdict : str
        One sentence: what was found, and whether to rely on it.
    facts : tuple of str
        Further sentences.
    components : tuple of ComponentRow
        The components, in their order.
    panels : tuple of Panel
        The parts of the figure.
    """

    verdict: str
    facts: tuple[str, ...] = ()
    components: tuple[ComponentRow, ...] = ()
    panels: tuple[Panel, ...] = ()

    def with_facts(self, info: Info, privacy: PrivacyReport | None) -> Description:
        """Return the description with the facts that every model states: how k was chosen, convergence, privacy."""
        facts = list(self.facts)
        if info.tried.size:
            facts.append(_selection(info))
            if 0 < info.n_groups < info.selected:
                facts.append(_groups(info))
        if privacy is None and not info.converged:
            facts.append(f"{info.n_iter} iterations were not enough to converge; raise max_iter.")
        if privacy is not None:
            facts.append(f"Private: epsilon {privacy.epsilon:g}, delta {privacy.delta:g}; {privacy.neighbours}.")
        return replace(self, facts=tuple(facts))

    def __str__(self) -> str:
        lines = [self.verdict, *self.facts]
        for number, each in enumerate(self.components[:_MAX_COMPONENTS]):
            weight = "" if each.weight is None else f"{each.weight:6.1%}  "
            lines.append(f"{number:>3}  {weight}{each.text}")
        if len(self.components) > _MAX_COMPONENTS:
            lines.append(f"     and {len(self.components) - _MAX_COMPONENTS} more")
        return "\n".join(lines)

    def figure(self) -> Any:
        """Return a Matplotlib figure with all panels beside each other."""
        from matplotlib.figure import Figure  # Matplotlib takes half a second, and may be missing

        widths, heights = zip(*(getattr(panel, "size", (5.5, 4.5)) for panel in self.panels), strict=True)
        figure = Figure(figsize=(sum(widths), max(heights)), layout="constrained")
        row = figure.subplots(1, len(self.panels), width_ratios=widths, squeeze=False)[0]
        for axes, panel in zip(row, self.panels, strict=True):
            panel.draw(axes)
        return figure


def _selection(info: Info) -> str:
    """Return how certain a number of components is that was selected by cross-validation."""
    k, others = info.selected, [str(number) for number in info.tried[info.tried_as_good] if number != info.selected]
    text = f"{k} was selected by cross-validation"
    certain = {"at least": info.at_least if k > 1 else math.nan, "exactly": info.exactly}
    stated = [f"{words} {k}: {share:.0%}" for words, share in certain.items() if not math.isnan(share)]
    if stated:
        text += f" ({'; '.join(stated)})"
    if others:
        text += f"; {' and '.join(others)} {'is' if len(others) == 1 else 'are'} nearly as good"
    if k == info.tried.max():
        text += "; no larger number was tried"
    return f"{text}."


def _groups(info: Info) -> str:
    """Return that components may be parts of one group."""
    groups = "1 group" if info.n_groups == 1 else f"{info.n_groups} groups"
    return (
        f"Components overlap ({info.overlap:.0%} of the largest possible entropy) and may be parts of fewer groups, as "
        f"when no component has the shape of a group: joined where they overlap, they form {groups}."
    )


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

    def draw(self, axes: Any) -> None:
        """Draw it on Matplotlib axes."""
        most = float(np.abs(self.values).max(initial=0.0)) or 1.0
        colours = {"cmap": "RdBu_r", "vmin": -most} if self.diverging else {"cmap": "Blues", "vmin": 0.0}
        drawn = axes.imshow(self.values, vmax=most, aspect="auto", interpolation="nearest", **colours)
        axes.set_xticks(range(len(self.columns)), self.columns, rotation=90, fontsize=7)
        axes.set_yticks(range(len(self.rows)), self.rows)
        axes.figure.colorbar(drawn, ax=axes, label=self.label)


def separation_verdict(posterior: FloatArray, component: str) -> str:
    """Return how well components are separated, by their posterior for rows that were drawn from the model (n x k).

    The expected share of rows that are assigned to their own component says little if one component has nearly all
    rows, as it is then high for any guess. So it is compared with always guessing the largest component.
    """
    k, share, guess = posterior.shape[1], float(posterior.max(axis=1).mean()), float(posterior.mean(axis=0).max())
    gain = (share - guess) / (1 - guess) if guess < 1 else 0.0
    if share >= _OVERLAPPING and gain < _MIN_GAIN:
        return (
            f"{k} {component}s, hardly apart: {share:.0%} of rows can be assigned to their own {component}, and "
            f"{guess:.0%} by always guessing the largest."
        )
    verdict = "well apart" if share >= _WELL_APART else "overlapping" if share >= _OVERLAPPING else "hardly apart"
    return f"{k} {component}s, {verdict}: the {component} of {share:.0%} of rows can be identified."


def component_names(weights: FloatArray) -> list[str]:
    """Return the name of every component in a figure: its number and weight."""
    return [f"{number} ({weight:.0%})" for number, weight in enumerate(weights)]


def most_characteristic(heights: FloatArray) -> list[list[int]]:
    """Return for each component (row) the few columns where it is furthest from zero, the furthest first."""
    places = np.argsort(-np.abs(heights), axis=1, kind="stable")[:, :_MAX_COLUMNS]
    return [[int(place) for place in row] for row in places]
