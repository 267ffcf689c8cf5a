"""A hidden Markov model in words and pictures: how well states are identified, what they emit,
their transitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from odeco._util.types import BoolArray, FloatArray
from odeco.display.tables import shortened
from odeco.models.engine.description import (
    LETTER,
    LINE,
    MAX_TICKS,
    PANEL_SIZE,
    ComponentRow,
    Description,
    HeatMap,
    PageTable,
    component_names,
    number_text,
)
from odeco.models.engine.fit import Fit
from odeco.models.hmm.baum_welch import HMM
from odeco.models.hmm.emissions import Categorical, Gaussian, Poisson
from odeco.models.hmm.sequences import Sequences
from odeco.privacy.report import PrivacyReport

#: A text names at most this number of symbols or features of a state; a figure shows at most the
#: second number.
_MAX_NAMED, _MAX_SYMBOLS = 5, 40

#: Symbols of a smaller probability are not named, unless all are as rare.
_RARE = 0.01

#: A state of private sequences, whose lengths are not known, is never left if it lasts this number
#: of rows.
_LONG = 1e6

#: A figure shows the states of at most this number of rows, the first ones.
_MAX_STEPS = 300


def describe(
    fit: Fit, names: list[str], privacy: PrivacyReport | None, rows: Sequences | None
) -> Description:
    """Return a model in words and pictures; `names` are those of the columns, and the states of
    `rows` are shown.
    """
    hmm, info = fit.params, fit.info
    shares = hmm.row_shares
    symbol_names = fit.context.symbol_names
    kind = f"{len(symbol_names)} symbols"
    if not symbol_names:
        unit = "count" if fit.context.counts else "column"
        kind = f"{len(names)} {unit}{'s' * (len(names) > 1)}"
    fact = (
        f"Fitted to {info.n_samples:,} {'private sequences' if privacy is not None else 'rows'} "
        f"of {kind}"
    )
    fact += (
        f"; start: {info.init}."
        if privacy is not None
        else f"; mean log-likelihood {info.log_likelihood:.4f}."
    )
    durations = 1 / np.maximum(
        1 - np.diagonal(hmm.transitions), 1e-9
    )  # the mean numbers of consecutive rows
    longest = info.n_samples if privacy is None else _LONG  # private runs count sequences
    components = [
        ComponentRow(
            float(share),
            _lasts(durations[state], longest, hmm.stationary[state])
            + _emitted(hmm, state, names, symbol_names),
        )
        for state, share in enumerate(shares)
    ]
    states = component_names(shares)
    numbers = [str(state) for state in range(hmm.n_states)]
    transitions = HeatMap(
        hmm.transitions, states, numbers, "probability of the next state", diverging=False
    )
    if isinstance(hmm.emissions, Categorical):
        # The symbols that differ most between states.
        probabilities = hmm.emissions.probabilities
        chosen = np.sort(np.argsort(-np.ptp(probabilities, axis=0), kind="stable")[:_MAX_SYMBOLS])
        shown = [symbol_names[symbol] for symbol in chosen]
        emissions: Any = HeatMap(
            probabilities[:, chosen], states, shown, f"probability of {names[0]}", diverging=False
        )
        table = _symbols_table(hmm.emissions, symbol_names, shares)
    else:
        emissions, table = _Means(hmm.emissions, names), _means_table(hmm.emissions, names, shares)
    counted = "rows" if privacy is None else "sequences"
    wide, width = ("symbols", len(symbol_names)) if symbol_names else ("columns", len(names))
    sizes = ((counted, f"{info.n_samples:,}"), (wide, f"{width:,}"))
    panels: tuple[Any, ...] = (transitions, emissions)
    if rows is not None:
        panels = (
            _Timeline(hmm.posterior(rows.rows[:_MAX_STEPS], rows.begins[:_MAX_STEPS]), rows.begins),
            *panels,
        )
    return Description(_verdict(fit, privacy), (fact,), tuple(components), panels, (table,), sizes)


def _lasts(duration: float, longest: float, share: float) -> str:
    """Return how long a state lasts; nothing of one that is left less than once in all rows.

    A state whose share in a long sequence is less than one in all these rows is transient: it is
    not entered again.
    """
    if duration >= longest:
        return ""
    transient = "transient, left for good after" if share * longest < 1 else "lasts"
    return f"{transient} {duration:.1f} rows on average; "


def _symbols_table(
    emissions: Categorical, symbol_names: list[str], shares: FloatArray
) -> PageTable:
    """Return the probability of every symbol in every state; those that differ most come first."""
    probabilities = emissions.probabilities
    order = np.argsort(-np.ptp(probabilities, axis=0), kind="stable")
    all_rows = shares @ probabilities
    cells = [
        [
            symbol_names[each],
            *(f"{value:.1%}" for value in (all_rows[each], *probabilities[:, each])),
        ]
        for each in order
    ]
    shades = np.column_stack(
        [
            np.zeros(len(order)),
            (probabilities / np.maximum(probabilities.max(0), 1e-300))[:, order].T,
        ]
    )
    headings = ["symbol", "all", *map(str, range(len(probabilities)))]
    lead = "The probability of each symbol in each state; the symbols that differ most come first."
    return PageTable("What each state emits", lead, headings, cells, shades)


def _means_table(emissions: Gaussian | Poisson, names: list[str], shares: FloatArray) -> PageTable:
    """Return the mean and standard deviation of every column in every state."""
    heights = (emissions.means - emissions.origin) / np.sqrt(emissions.total_variances)
    order = np.argsort(-(shares @ heights**2), kind="stable")
    deviations = np.sqrt(emissions.variances)
    cells = [
        [
            names[each],
            *(
                f"{number_text(mean)} ± {number_text(deviation, 2)}"
                for mean, deviation in zip(
                    emissions.means[:, each], deviations[:, each], strict=True
                )
            ),
        ]
        for each in order
    ]
    lead = (
        "Mean ± standard deviation in each state, in the units of the rows. Blue is above the "
        "mean of all rows, orange below."
    )
    return PageTable(
        "What each state emits",
        lead,
        ["column", *map(str, range(len(heights)))],
        cells,
        heights[:, order].T,
    )


def _verdict(fit: Fit, privacy: PrivacyReport | None) -> str:
    """Return what is said first of models that were not checked on halves because they are private
    or single.
    """
    k = fit.params.n_states
    if k == 1:
        return "One state: the model takes rows to be independent of those before them."
    if privacy is None:
        return ""
    if not fit.info.converged:
        return (
            f"{k} states, partly hidden by noise: ask for fewer, or for more sequences or a "
            "larger epsilon."
        )
    return f"{k} states, which all stand clear of the noise of privacy."


def _emitted(hmm: HMM, state: int, names: list[str], symbol_names: list[str]) -> str:
    """Return the likeliest symbols of a state, or the features in which it differs most from all
    rows.
    """
    emissions = hmm.emissions
    if isinstance(emissions, Categorical):
        probabilities = emissions.probabilities[state]
        likely = np.argsort(-probabilities, kind="stable")[:_MAX_NAMED]
        likely = likely[probabilities[likely] >= min(_RARE, probabilities[likely[0]])]
        return f"{names[0]} is " + ", ".join(
            f"{symbol_names[each]} ({probabilities[each]:.0%})" for each in likely
        )
    offsets = (emissions.means[state] - emissions.origin) / np.sqrt(emissions.total_variances)
    deviations = np.sqrt(emissions.variances[state])
    return ", ".join(
        (
            f"{names[each]} {number_text(emissions.means[state, each], 3)} ± "
            f"{number_text(deviations[each], 2)}"
        )
        for each in np.argsort(-np.abs(offsets), kind="stable")[:_MAX_NAMED]
    )


@dataclass(frozen=True, eq=False)
class _Timeline:
    """The probability of every state for the first rows; lines are where sequences begin."""

    posterior: FloatArray
    begins: BoolArray

    @property
    def size(self) -> tuple[float, float]:
        return 9.0, 3.2

    def draw(self, axes: Any) -> None:
        n_rows, k = self.posterior.shape
        steps = np.arange(n_rows)
        axes.stackplot(
            steps, self.posterior.T, labels=[f"state {state}" for state in range(k)], linewidth=0
        )
        for step in np.flatnonzero(self.begins[:n_rows])[1:]:
            axes.axvline(step - 0.5, color="white", linewidth=1)
        cut = f" in the first {n_rows:,} of {len(self.begins):,} rows"
        axes.set(
            xlim=(0, max(n_rows - 1, 1)),
            ylim=(0, 1),
            xlabel="row",
            ylabel="probability",
            title=f"States over time{cut if n_rows < len(self.begins) else ''}",
        )
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.2), ncols=min(k, 6), fontsize=8)


@dataclass(frozen=True, eq=False)
class _Means:
    """The mean of every feature in every state, with one standard deviation to each side.

    Several features are standardised: one in large units would hide the others.
    """

    emissions: Gaussian | Poisson
    names: list[str]

    @property
    def size(self) -> tuple[float, float]:
        width, height = PANEL_SIZE
        longest = max(len(shortened(name)) for name in self.names)
        return max(
            width, LINE * min(len(self.names), MAX_TICKS) + 1.4
        ), height + LETTER * longest * self._is_upright

    @property
    def _is_upright(self) -> bool:
        return len(self.names) > 8 or max(map(len, self.names)) > 8

    def draw(self, axes: Any) -> None:
        means, names = self.emissions.means, self.names
        deviations: FloatArray = np.sqrt(self.emissions.variances)
        label = "mean ± standard deviation"
        if len(names) > 1:
            unit = np.sqrt(self.emissions.total_variances)
            means, deviations = (means - self.emissions.origin) / unit, deviations / unit
            label += " of standardised rows"
        k = len(means)
        for state in range(k):
            places = np.arange(len(names)) + (state - (k - 1) / 2) * 0.8 / k
            axes.errorbar(
                places, means[state], deviations[state], fmt="o", markersize=3, label=str(state)
            )
        axes.set_ylabel(label)
        every, turn = -(-len(names) // MAX_TICKS), 90 if self._is_upright else 0
        shown = list(map(shortened, names[::every]))
        axes.set_xticks(range(0, len(names), every), shown, rotation=turn, parse_math=False)
        axes.legend(title="state", ncols=min(k, 8), loc="lower left", bbox_to_anchor=(0, 1))
