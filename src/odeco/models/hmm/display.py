"""What symbols are called: rows of texts are numbered, and the names stay with the model.

What a hidden Markov model says, in a few lines.

The picture of a hidden Markov model: how it moves between states, and what states emit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odeco._util.types import FloatArray, IndexArray
from odeco.models.hmm.baum_welch import HMM
from odeco.models.hmm.emissions import Categorical, Gaussian
from odeco.models.hmm.spec import NOT_PRIVATE, FittedChain


def check_names(names: Any, n_symbols: int | None) -> list[str]:
    """Return the names of symbols, each once and as many as there are symbols; none if there are none."""
    if names is None:
        return []
    given = [str(name) for name in names]
    if not given or len(set(given)) < len(given) or n_symbols not in (None, len(given)):
        number = "" if n_symbols is None else f", n_symbols={n_symbols} of them"
        raise ValueError(
            f"`symbol_names` must be a list of names, each of them once{number}. Got {len(given)} names, "
            f"{len(set(given))} of them different. Pass one for each of the symbols 0, 1, 2, …"
        )
    return given


def numbered(X: Any, names: list[str]) -> tuple[Any, list[str]]:
    """Return one column of texts as numbers, and its names; anything else as it is.

    Without names, those that occur are taken in the order of the alphabet.
    """
    texts = _texts(X)
    if texts is None:
        return X, names
    known = np.array(names) if names else np.unique(texts)
    order = np.argsort(known, kind="stable")
    places = np.minimum(np.searchsorted(known[order], texts), known.size - 1)
    codes: IndexArray = order[places]
    unknown = known[codes] != texts
    if unknown.any():
        place = int(np.argmax(unknown))
        raise ValueError(
            f"Symbols must be among the names of the model. Got {str(texts[place])!r} in row {place}. Pass all names "
            "as symbol_names to fit or partial_fit."
        )
    if hasattr(X, "columns"):  # a table keeps the name of its column
        return type(X)({X.columns[0]: codes}), known.tolist()
    return codes[:, None], known.tolist()


def _texts(X: Any) -> Any:
    """Return one column of texts as an array, or None for everything else."""
    array = np.asarray(X) if isinstance(X, np.ndarray | list | tuple) or hasattr(X, "columns") else None
    if array is None or not array.size or array.shape not in ((array.size,), (array.size, 1)):
        return None
    column = array.ravel()
    if column.dtype.kind == "U":
        return column
    if column.dtype.kind == "O" and all(isinstance(each, str) for each in column):
        return column.astype(np.str_)
    return None


#: How many symbols or features of a state are named.
_MOST_NAMED = 5


def summary_of(fitted: FittedChain, names: list[str]) -> str:
    """Return a verdict, and a line for each state."""
    hmm, k, private = fitted.hmm, fitted.start.size, fitted.n_clear != NOT_PRIVATE
    kind = f"{fitted.symbols.shape[1]} symbols" if fitted.symbols.shape[1] else f"{len(names)} features"
    ended = "The steps have converged" if fitted.converged else "The steps were used up before they converged"
    advice = "" if fitted.converged else " Raise n_steps."
    what = f"{fitted.n_rows:,} {'private sequences' if private else 'rows'}"
    lines = [f"{ended}: {k} states of {kind}, from {what}.{advice}"]
    if 0 <= fitted.n_clear < k:
        lines.insert(
            0, f"Noise hides {k - fitted.n_clear} of {k} directions: ask for fewer states, or for more sequences or ε."
        )
    if not private:
        lines.append(f"Mean log-likelihood of a row: {fitted.log_likelihood:.4f}.")
    if fitted.tried_numbers.size:
        lines.append(_choice(fitted))
    for state, share in enumerate(hmm.stationary):
        stays = 1 / max(1 - fitted.transitions[state, state], 1e-9)
        lines.append(f"State {state}: {share:.0%} of rows, stays {stays:.1f} rows; {_emitted(fitted, state, names)}.")
    return "\n".join(lines)


def _choice(fitted: FittedChain) -> str:
    """Return how sure the number of states is that was left to the data."""
    k, as_good = fitted.start.size, fitted.tried_numbers[fitted.tried_as_good]
    more = [str(number) for number in as_good if number > k]
    less = f"{k - 1} predict other rows clearly worse" if k > 1 else "there cannot be fewer"
    if not more and k == fitted.tried_numbers.max():
        return f"{k} states were the most that were tried, and predict other rows best: there may be more."
    if not more:
        return f"The number of states was chosen: {less}, and so do more."
    return (
        f"The number of states was chosen: {less}. Rows cannot tell whether there are more: {', '.join(more)} predict "
        "as well."
    )


def _emitted(fitted: FittedChain, state: int, names: list[str]) -> str:
    if fitted.symbols.shape[1]:
        probabilities, called = fitted.symbols[state], fitted.symbol_names
        likely = np.argsort(-probabilities, kind="stable")[:_MOST_NAMED]
        return f"{names[0]} is " + ", ".join(f"{called[symbol]} ({probabilities[symbol]:.0%})" for symbol in likely)
    deviations = _deviations(fitted)[state]
    apart = np.argsort(-np.abs(fitted.means[state] - fitted.centre) / np.sqrt(fitted.spread), kind="stable")
    named = (f"{names[each]} {fitted.means[state, each]:.3g} ± {deviations[each]:.2g}" for each in apart[:_MOST_NAMED])
    return ", ".join(named)


def _deviations(fitted: FittedChain) -> FloatArray:
    """Return the standard deviation of every feature in every state."""
    if fitted.covariances.shape[2] == 1:
        return np.sqrt(fitted.covariances[:, :, 0])
    return np.sqrt(np.diagonal(fitted.covariances, axis1=1, axis2=2))


#: At most so many symbols are shown: those that tell states apart most.
_MOST_SYMBOLS = 40


def picture_of(hmm: HMM, names: list[str], symbol_names: list[str]) -> Any:
    """Return a figure: the moves as a table, and beside it the symbols of each state, or its means."""
    from matplotlib.figure import Figure

    k = hmm.n_states
    figure = Figure(figsize=(10, 2.6 + 0.4 * k), layout="constrained")
    moves, emitted = figure.subplots(1, 2, width_ratios=(1, 2))
    states = [f"{state} ({share:.0%})" for state, share in enumerate(hmm.stationary)]
    picture = moves.imshow(hmm.transitions, cmap="Blues", vmin=0, vmax=1)
    moves.set(title="Moves", xlabel="to state", ylabel="from state")
    moves.set_xticks(range(k))
    moves.set_yticks(range(k), states)
    figure.colorbar(picture, ax=moves, label="probability")
    if isinstance(hmm.emissions, Categorical):
        probabilities = hmm.emissions.probabilities
        chosen = np.sort(np.argsort(-np.ptp(probabilities, axis=0), kind="stable")[:_MOST_SYMBOLS])
        picture = emitted.imshow(probabilities[:, chosen], cmap="Blues", vmin=0, aspect="auto")
        emitted.set(title="Symbols", xlabel=f"symbol ({names[0]})", ylabel="state")
        emitted.set_xticks(range(chosen.size), [symbol_names[symbol] for symbol in chosen], rotation=90)
        emitted.set_yticks(range(k))
        figure.colorbar(picture, ax=emitted, label="probability")
    else:
        _vectors(emitted, hmm.emissions, names)
    return figure


def _vectors(axes: Any, emissions: Gaussian, names: list[str]) -> None:
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
