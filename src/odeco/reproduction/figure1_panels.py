"""The nine panels of Figure 1, and a figure that separates the law of one start from the choice of L."""

from __future__ import annotations

from typing import Any

import numpy as np

from odeco.reproduction import plots as _plots
from odeco.reproduction.report import distinct, select
from odeco.reproduction.trials import Records

ROWS = {
    "gaussian": ("Gaussian", ("σ", "σ√d", "σd"), "σ√d"),
    "adversarial": ("adversarial", ("σ", "σ√d", "σd"), "σd"),
    "weakly correlated": ("weakly correlated", ("σ", "σ ln d", "σ√d"), "σ ln d"),
}


def _rates(records: Records, outcome: str) -> tuple[Any, Any]:
    """Return the levels of σ, and the mean outcome at each."""
    levels = distinct(records, "sigma")
    return np.array(levels), np.array([np.mean([r[outcome] for r in select(records, sigma=s)]) for s in levels])


@_plots.styled
def draw(records: Records) -> dict[str, Any]:
    """Return the figures by name."""
    return {"figure1": _nine_panels(records), "figure1-law": _law_and_set_up(records)}


def _nine_panels(records: Records) -> Any:
    from odeco.reproduction.figure1 import (
        PRIMARY_RESTARTS,  # imported here, because figure1 imports this file
        SCALINGS,  # imported here, because figure1 imports this file
    )

    figure, axes = _plots.panels(3, 3, height=2.35, sharey=True)
    for row, (noise, (title, scalings, paper)) in zip(axes, ROWS.items(), strict=True):
        for panel, scaling in zip(row, scalings, strict=True):
            for color, marker, d in zip(_plots.SEQUENCE, _plots.MARKERS, distinct(records, "dimension"), strict=False):
                if not (chosen := select(records, noise=noise, dimension=d, n_restarts=PRIMARY_RESTARTS)):
                    continue
                levels, rates = _rates(chosen, "failed")
                scaled = levels * SCALINGS[scaling](np.array(float(d)))
                panel.plot(scaled, rates, marker=marker, color=color, label=f"d = {d}", clip_on=False, zorder=3)
            _plots.log_axes(panel, "x")
            panel.set_xlabel(scaling + ("   (the paper's)" if scaling == paper else ""))
            panel.set_ylim(0, 1)
        row[0].set_ylabel(f"{title} noise\nfailure rate")
    for row in axes:
        row[0].legend(loc="upper left", fontsize=7.5)
    return figure


def _law_and_set_up(records: Records) -> Any:
    from odeco.reproduction.figure1 import transitions

    figure, axes = _plots.panels(1, 3, height=3.4)
    law, set_up, pull = axes[0]
    largest = max(distinct(records, "n_restarts"))
    for color, marker, d in zip(_plots.SEQUENCE, _plots.MARKERS, distinct(records, "dimension"), strict=False):
        if not (chosen := select(records, noise="gaussian", dimension=d, n_restarts=largest)):
            continue
        levels, rates = _rates(chosen, "starts_lost")
        law.plot(levels * np.sqrt(d), rates, marker=marker, color=color, label=f"d = {d}", clip_on=False)
    _plots.log_axes(law, "x")
    law.set(ylim=(0, 1), xlabel="σ√d", ylabel="starts that reach no component")
    law.set_title("Gaussian: one start (law)")
    law.legend()
    for color, marker, n in zip(_plots.PALETTE, _plots.MARKERS, distinct(records, "n_restarts"), strict=False):
        moved = transitions(records, "gaussian", n, "failed_in_any_order")
        set_up.errorbar(
            moved.dimensions, moved.points, yerr=moved.points * moved.errors, marker=marker, color=color,
            label=f"L = {n}", capsize=2,
        )  # fmt: skip
    dimensions = distinct(select(records, noise="gaussian"), "dimension")
    _plots.reference_line(set_up, dimensions, (dimensions[-1], moved.points[-1]), -0.5, "∝ 1/√d")
    set_up.set_title("Gaussian: L starts (set-up)")
    for color, (noise, label) in zip(
        _plots.PALETTE,
        {"pull": "pull outside the span", "weakly correlated": "the paper's model"}.items(),
        strict=False,
    ):
        moved = transitions(records, noise, largest, "starts_lost")
        pull.plot(moved.dimensions, moved.points, marker="o", color=color, label=label)
        if noise == "pull":
            _plots.reference_line(pull, moved.dimensions, (moved.dimensions[0], moved.points[0]), -0.5, "∝ 1/√d")
    pull.set_title("Uncorrelated noise: one start")
    for panel, label in ((set_up, "σ at failure rate ½"), (pull, "σ at which half of the starts are lost")):
        _plots.log_axes(panel)
        panel.set(xlabel="d", ylabel=label)
        _plots.plain_ticks(panel.xaxis, dimensions if panel is set_up else moved.dimensions)
        panel.legend()
    return figure
