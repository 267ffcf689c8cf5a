"""A hidden Markov model in words and pictures: how well states are identified, what they emit, their transitions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from odeco._util.types import FloatArray
from odeco.models.engine.description import ComponentRow, Description, HeatMap, component_names, separation_verdict
from odeco.models.engine.fit import Fit
from odeco.models.hmm.baum_welch import HMM
from odeco.models.hmm.emissions import Categorical, Gaussian, Poisson
from odeco.privacy.report import PrivacyReport

#: Number of rows that are drawn from the model to see how often their state is identified.
_N_DRAWN = 4000

#: A text names at most this number of symbols or features of a state; a figure shows at most the second number.
_MAX_NAMED, _MAX_SYMBOLS = 5, 40


def describe(fit: Fit, names: list[str], privacy: PrivacyReport | None) -> Description:
    """Return a model in words and pictures; `names` are those of the columns."""
    hmm, info = fit.params, fit.info
    stationary = hmm.stationary
    symbol_names = fit.context.symbol_names
    kind = (
        f"{len(symbol_names)} symbols"
        if symbol_names
        else f"{len(names)} {'counts' if fit.context.counts else 'features'}"
    )
    fact = f"Fitted to {info.n_samples:,} {'private sequences' if privacy is not None else 'rows'} of {kind}"
    fact += f"; start: {info.init}." if privacy is not None else f"; mean log-likelihood {info.log_likelihood:.4f}."
    durations = 1 / np.maximum(1 - np.diagonal(hmm.transitions), 1e-9)  # the mean numbers of consecutive rows
    components = [
        ComponentRow(float(share), f"lasts {duration:.1f} rows; {_emitted(hmm, state, names, symbol_names)}")
        for state, (share, duration) in enumerate(zip(stationary, durations, strict=True))
    ]
    states = component_names(stationary)
    numbers = [str(state) for state in range(hmm.n_states)]
    transitions = HeatMap(hmm.transitions, states, numbers, "probability of the next state", diverging=False)
    if isinstance(hmm.emissions, Categorical):
        # The symbols that differ most between states.
        probabilities = hmm.emissions.probabilities
        chosen = np.sort(np.argsort(-np.ptp(probabilities, axis=0), kind="stable")[:_MAX_SYMBOLS])
        shown = [symbol_names[symbol] for symbol in chosen]
        emissions: Any = HeatMap(probabilities[:, chosen], states, shown, f"probability of {names[0]}", diverging=False)
    else:
        emissions = _Means(hmm.emissions, names)
    return Description(_verdict(fit, privacy), (fact,), tuple(components), (transitions, emissions))


def _verdict(fit: Fit, privacy: PrivacyReport | None) -> str:
    k = fit.params.n_states
    if privacy is not None and not fit.info.converged:
        return f"{k} states, partly hidden by noise: ask for fewer states, or for more sequences or a larger epsilon."
    if k == 1:
        return "One state: rows do not depend on those before them."
    if not _supported(fit):
        return f"{k} states, but no evidence for them: independent rows explain the data as well (BIC)."
    rows, _ = fit.params.sample(_N_DRAWN, np.random.default_rng(0))
    return separation_verdict(fit.params.posterior(rows, np.arange(_N_DRAWN) == 0), "state")


def _supported(fit: Fit) -> bool:
    """Return whether the model has a better BIC than one with a single state; True if that is not known."""
    hmm, info = fit.params, fit.info
    gain = info.n_samples * (info.log_likelihood - fit.context.independent_log_likelihood)
    n_further = hmm.n_parameters - hmm.emissions.n_parameters // hmm.n_states
    return not math.isfinite(gain) or bool(gain > n_further * math.log(info.n_samples) / 2)


def _emitted(hmm: HMM, state: int, names: list[str], symbol_names: list[str]) -> str:
    """Return the likeliest symbols of a state, or the features in which it differs most from all rows."""
    emissions = hmm.emissions
    if isinstance(emissions, Categorical):
        probabilities = emissions.probabilities[state]
        likely = np.argsort(-probabilities, kind="stable")[:_MAX_NAMED]
        return f"{names[0]} is " + ", ".join(f"{symbol_names[each]} ({probabilities[each]:.0%})" for each in likely)
    offsets = (emissions.means[state] - emissions.origin) / np.sqrt(emissions.total_variances)
    deviations = np.sqrt(emissions.variances[state])
    return ", ".join(
        f"{names[each]} {emissions.means[state, each]:.3g} ± {deviations[each]:.2g}"
        for each in np.argsort(-np.abs(offsets), kind="stable")[:_MAX_NAMED]
    )


@dataclass(frozen=True, eq=False)
class _Means:
    """The mean of every feature in every state, with one standard deviation to each side."""

    emissions: Gaussian | Poisson
    names: list[str]

    def draw(self, axes: Any) -> None:
        means, names = self.emissions.means, self.names
        deviations: FloatArray = np.sqrt(self.emissions.variances)
        k = len(means)
        for state in range(k):
            places = np.arange(len(names)) + (state - (k - 1) / 2) * 0.8 / k
            axes.errorbar(places, means[state], deviations[state], fmt="o", markersize=3, label=str(state))
        axes.set(title="Means, with a standard deviation to each side")
        axes.set_xticks(range(len(names)), names, rotation=90 if len(names) > 8 else 0)
        axes.legend(title="state", ncols=1 + k // 8)
