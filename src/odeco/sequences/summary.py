"""What a hidden Markov model says, in a few lines."""

from __future__ import annotations

import numpy as np

from odeco._types import FloatArray
from odeco.sequences.fitted import NOT_PRIVATE, FittedChain

#: How many symbols or features of a state are named.
_MOST_NAMED = 5


def summary_of(fitted: FittedChain, names: list[str]) -> str:
    """Return a verdict, and a line for each state."""
    chain, k, private = fitted.chain, fitted.start.size, fitted.n_clear != NOT_PRIVATE
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
    for state, share in enumerate(chain.shares):
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
