"""Whether rows are what a hidden Markov model takes them for: given its state, a row does not
depend on others.

States also describe what has none: a random walk is cut into levels, and heavy tails into a narrow
and a wide state. More rows then show more states, and each is certain by its likelihood. So a
fitted model is compared with what it rules out, in three ways.

**Independent draws.** If the state of a row were drawn anew, whatever the one before, the model
would be a mixture. Its likelihood with the same emissions is a lower bound of what mixtures reach.
If the transitions gain less than their (k − 1)² further parameters cost by the Bayesian information
criterion (BIC), the order of the rows says nothing, and states may be parts of one distribution.

**A drift.** A model without states is fitted, in which a row follows the row before it: an
autoregression of vectors or of counts, or a Markov chain of symbols. States may be steps of a drift
if that has the better BIC. A chain of symbols is a model with states too, and of few rows often the
better one; so symbols must also show dependence within states.

**Dependence within states.** Let f be the distribution of the state of row t − 1 given the rows up
to it, and z the difference between row t and its expectation given these. If the model holds, z has
mean zero whatever came before. So Σ z r is a martingale for any r of the rows before, and here r is
the difference between row t − 1 and the mean of its state, expected under f. Its variance is Σ v
r², with the variance v of row t that the model predicts; divided by the root, the sum is standard
normal for many rows. Symbols have one column for each. The level is 0.1 % for all columns together.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln, ndtri

from odeco._util.types import BoolArray
from odeco.models.engine.rows import has_missing
from odeco.models.hmm.baum_welch import HMM
from odeco.models.hmm.emissions import Categorical, Gaussian
from odeco.models.hmm.sequences import Sequences

#: What may be found that a model rules out.
_INDEPENDENT = (
    "States may be parts of one distribution: the order of the rows hardly matters (BIC)."
)
_DRIFT = "States may be steps of a drift: following the row before explains the rows better (BIC)."
_DEPENDENT = (
    "Consecutive rows are correlated within states, so one real state may appear as several."
)

#: The chance of dependence within states where there is none.
_LEVEL = 1e-3

#: The least rate of a Poisson autoregression, as a share of the mean.
_LEAST_RATE = 1e-2

#: At most this many numbers of rows are tested, the first ones.
_MAX_NUMBERS = 2**22


def caution_of(hmm: HMM, sequences: Sequences) -> str:
    """Return what a model that was fitted to these sequences rules out, and they show; an empty
    text if nothing.
    """
    n_columns = (
        hmm.emissions.probabilities.shape[1]
        if isinstance(hmm.emissions, Categorical)
        else hmm.emissions.means.shape[1]
    )
    some = sequences[: max(_MAX_NUMBERS // n_columns, 1)]
    if isinstance(hmm.emissions, Categorical):
        some = some[some.rows < n_columns]  # rows without a symbol are left out
    elif has_missing(some.rows):
        return ""
    follows, n = ~some.begins, len(some)
    if hmm.n_states == 1 or not follows.any():
        return ""
    likelihoods = hmm.log_likelihoods(some.rows, some.begins)
    table, index = hmm.emissions.log_likelihoods(some.rows)
    weights = np.maximum(
        hmm.posterior(some.rows, some.begins).mean(axis=0), np.finfo(np.float64).tiny
    )
    independent = np.logaddexp.reduce(table + np.log(weights), axis=1)[index]
    cost = math.log(n) / 2  # of a parameter
    if float(likelihoods.sum() - independent.sum()) < (hmm.n_states - 1) ** 2 * cost:
        return _INDEPENDENT
    gain = float(likelihoods[follows].sum()) - _drift_log_likelihood(hmm, some, follows)
    better, dependent = (
        gain < (hmm.n_parameters - _n_parameters_of_drift(hmm)) * cost,
        _is_dependent(hmm, some),
    )
    if better and (dependent or not isinstance(hmm.emissions, Categorical)):
        return _DRIFT
    return _DEPENDENT if dependent else ""


def _is_dependent(hmm: HMM, sequences: Sequences) -> bool:
    """Return whether rows follow the row before them more than states explain."""
    emissions, begins = hmm.emissions, sequences.begins
    if isinstance(emissions, Categorical):
        means, variances = (
            emissions.probabilities,
            emissions.probabilities * (1 - emissions.probabilities),
        )
        rows = np.eye(means.shape[1])[sequences.rows]
    else:
        # In the coordinates of columns: their origin is near zero, so squares keep their digits.
        rows, means, variances = (
            sequences.rows - emissions.origin,
            emissions.means - emissions.origin,
            emissions.variances,
        )
    filtered = hmm.filtered(sequences.rows, begins)
    now = np.flatnonzero(~begins)
    expected = filtered[now - 1] @ hmm.transitions
    mean = expected @ means
    variance = expected @ (variances + means**2) - mean**2
    before = rows[now - 1] - filtered[now - 1] @ means
    scale = np.sqrt(np.sum(variance * before**2, axis=0))
    scores = np.sum((rows[now] - mean) * before, axis=0) / np.where(scale > 0, scale, np.inf)
    return bool(np.max(np.abs(scores)) > -ndtri(_LEVEL / (2 * scores.size)))


def _n_parameters_of_drift(hmm: HMM) -> int:
    """Return the number of parameters of `_drift_log_likelihood`."""
    if isinstance(hmm.emissions, Categorical):
        n_symbols = hmm.emissions.probabilities.shape[1]
        return int(n_symbols * (n_symbols - 1))
    d = hmm.emissions.means.shape[1]
    if isinstance(hmm.emissions, Gaussian):
        return int(d + d * d + d * (d + 1) // 2 if hmm.emissions.full else 3 * d)
    return int(2 * d)


def _drift_log_likelihood(hmm: HMM, sequences: Sequences, follows: BoolArray) -> float:
    """Return the log-likelihood of rows that follow another, each given the row before it, without
    states.
    """
    now = np.flatnonzero(follows)
    rows, before = sequences.rows[now], sequences.rows[now - 1]
    emissions = hmm.emissions
    if isinstance(emissions, Categorical):
        n_symbols = emissions.probabilities.shape[1]
        counts = np.bincount(before * n_symbols + rows, minlength=n_symbols**2).reshape(
            n_symbols, n_symbols
        )
        shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        return float(np.sum(counts * np.log(np.where(counts > 0, shares, 1.0))))
    n, d = rows.shape
    if isinstance(emissions, Gaussian) and emissions.full:
        design = np.column_stack([np.ones(n), before - emissions.origin])
        left = (rows - emissions.origin) - design @ np.linalg.lstsq(
            design, rows - emissions.origin, rcond=None
        )[0]
        return float(
            -n / 2 * (np.linalg.slogdet(left.T @ left / n)[1] + d * (1 + math.log(2 * math.pi)))
        )
    centred, centred_before = rows - rows.mean(axis=0), before - before.mean(axis=0)
    spread = np.sum(centred_before**2, axis=0)
    slopes = np.sum(centred * centred_before, axis=0) / np.where(spread > 0, spread, 1.0)
    if isinstance(emissions, Gaussian):
        variances = np.mean((centred - slopes * centred_before) ** 2, axis=0)
        return float(
            -n
            / 2
            * np.sum(
                np.log(np.maximum(variances, np.finfo(np.float64).tiny)) + 1 + math.log(2 * math.pi)
            )
        )
    # Counts: a Poisson autoregression whose rate is linear in the count before, by least squares.
    means = rows.mean(axis=0)
    slopes = np.clip(slopes, 0.0, 1.0)
    rates = np.maximum(means + slopes * centred_before, _LEAST_RATE * means)
    return float(
        np.sum(
            rows * np.log(np.maximum(rates, np.finfo(np.float64).tiny)) - rates - gammaln(rows + 1)
        )
    )
