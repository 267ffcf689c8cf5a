"""The picture of a hidden Markov model: how it moves between states, and what states emit."""

from __future__ import annotations

from typing import Any

import numpy as np

from odeco.sequences.chain import Chain
from odeco.sequences.symbols import Symbols
from odeco.sequences.vectors import Gaussians

#: At most so many symbols are shown: those that tell states apart most.
_MOST_SYMBOLS = 40


def picture_of(chain: Chain, names: list[str], symbol_names: list[str]) -> Any:
    """Return a figure: the moves as a table, and beside it the symbols of each state, or its means."""
    from matplotlib.figure import Figure

    k = chain.start.size
    figure = Figure(figsize=(10, 2.6 + 0.4 * k), layout="constrained")
    moves, emitted = figure.subplots(1, 2, width_ratios=(1, 2))
    states = [f"{state} ({share:.0%})" for state, share in enumerate(chain.shares)]
    picture = moves.imshow(chain.transitions, cmap="Blues", vmin=0, vmax=1)
    moves.set(title="Moves", xlabel="to state", ylabel="from state")
    moves.set_xticks(range(k))
    moves.set_yticks(range(k), states)
    figure.colorbar(picture, ax=moves, label="probability")
    if isinstance(chain.emissions, Symbols):
        probabilities = chain.emissions.probabilities
        chosen = np.sort(np.argsort(-np.ptp(probabilities, axis=0), kind="stable")[:_MOST_SYMBOLS])
        picture = emitted.imshow(probabilities[:, chosen], cmap="Blues", vmin=0, aspect="auto")
        emitted.set(title="Symbols", xlabel=f"symbol ({names[0]})", ylabel="state")
        emitted.set_xticks(range(chosen.size), [symbol_names[symbol] for symbol in chosen], rotation=90)
        emitted.set_yticks(range(k))
        figure.colorbar(picture, ax=emitted, label="probability")
    elif isinstance(chain.emissions, Gaussians):
        _vectors(emitted, chain.emissions, names)
    return figure


def _vectors(axes: Any, emissions: Gaussians, names: list[str]) -> None:
    """Draw the mean of every feature in every state, with one standard deviation to each side."""
    variances = emissions.covariances
    wide = variances.shape[2] > 1
    deviations = np.sqrt(np.diagonal(variances, axis1=1, axis2=2) if wide else variances[:, :, 0])
    k = len(emissions.means)
    for state in range(k):
        places = np.arange(len(names)) + (state - (k - 1) / 2) * 0.8 / k
        axes.errorbar(places, emissions.means[state], deviations[state], fmt="o", markersize=3, label=str(state))
    axes.set(title="Means, with a standard deviation to each side")
    axes.set_xticks(range(len(names)), names, rotation=90 if len(names) > 8 else 0)
    axes.legend(title="state", ncols=1 + k // 8)
