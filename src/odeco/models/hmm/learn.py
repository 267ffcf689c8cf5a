"""A hidden Markov model of sequences: from the moments of three consecutive rows, then by likelihood steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from odeco._util.types import BoolArray, FloatArray
from odeco.models.engine.selection import ChosenNumber, choose_number, means_of_stretches
from odeco.models.hmm.baum_welch import baum_welch_from_best
from odeco.models.hmm.settings import MOST_AUTOMATIC, Settings
from odeco.models.hmm.spec import FittedChain
from odeco.models.hmm.split_merge import split_merge_starts
from odeco.models.hmm.start import spectral_starts

#: The number of states is chosen on at most this many rows, of which one part in five is not learnt from, by models
#: with at most so many steps; each state must have so many rows.
_ROWS_TO_CHOOSE, _FOLDS, _STEPS_TO_CHOOSE, _ROWS_A_STATE = 2**16, 5, 60, 30

#: Gains of neighbouring rows depend on each other: numbers are compared by means of so many stretches of rows.
_STRETCHES = 100

#: Steps from every start before the best of them goes on alone.
_TRIAL_STEPS = 6


def learn(rows: Any, begins: BoolArray, n_symbols: int, settings: Settings, *, seed: int) -> FittedChain:
    """Learn from whole sequences: of symbols below `n_symbols`, or of vectors if that is 0."""
    k, chosen = settings.n_components, None
    if k == "auto":
        chosen = _chosen_number(rows, begins, n_symbols, settings, seed)
        k = chosen.n_components
    how: Any = {"trial_iter": _TRIAL_STEPS, "tol": settings.tolerance}
    first_steps = min(_TRIAL_STEPS, settings.n_steps)
    starts = spectral_starts(rows, begins, n_symbols, k, full=settings.full, seed=seed)
    found = baum_welch_from_best(starts, rows, begins, max_iter=first_steps, **how)
    n_steps = found.n_iter
    if settings.n_steps > first_steps:
        around = split_merge_starts(found.params, rows, begins, seed=seed)
        found = baum_welch_from_best(around, rows, begins, max_iter=settings.n_steps - first_steps, **how)
        n_steps += found.n_iter
    return FittedChain.of(
        found.params.most_frequent_first(),
        n_rows=len(rows),
        log_likelihood=found.log_likelihood,
        n_steps=n_steps,
        converged=found.converged,
        chosen=chosen,
    )


def _chosen_number(rows: Any, begins: BoolArray, n_symbols: int, settings: Settings, seed: int) -> ChosenNumber:
    """Choose the number of states by rows that were not learnt from, given those before them in their sequence."""
    rows, begins = rows[:_ROWS_TO_CHOOSE], begins[:_ROWS_TO_CHOOSE]
    left_out = _left_out(begins)
    part = replace(settings, n_steps=min(settings.n_steps, _STEPS_TO_CHOOSE))

    def score(number: int) -> FloatArray:
        fitted = learn(rows[~left_out], begins[~left_out], n_symbols, replace(part, n_components=number), seed=seed)
        return means_of_stretches(fitted.hmm.log_likelihoods(rows, begins)[left_out], _STRETCHES)

    return choose_number(score, most=max(1, min(MOST_AUTOMATIC, len(rows) // _ROWS_A_STATE)))


def _left_out(begins: BoolArray) -> BoolArray:
    """Return which rows are not learnt from: every fifth sequence, or the last fifth of each if there are few."""
    number = np.cumsum(begins) - 1
    lengths = np.bincount(number)
    if lengths.size >= 2 * _FOLDS:
        return np.asarray(number % _FOLDS == _FOLDS - 1)
    since = np.arange(len(begins)) - np.flatnonzero(begins)[number]
    return np.asarray(since >= np.ceil(lengths * (1 - 1 / _FOLDS))[number])
