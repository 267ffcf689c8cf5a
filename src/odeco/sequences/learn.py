"""A hidden Markov model of sequences: from the moments of three consecutive rows, then by likelihood steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from odeco._types import BoolArray, FloatArray, IndexArray
from odeco.latent.acceleration import climb_ahead
from odeco.latent.likelihood import Climbed
from odeco.latent.number_of_components import choose_number
from odeco.sequences.chain import Chain
from odeco.sequences.codes import cells_of
from odeco.sequences.fitted import FittedChain
from odeco.sequences.settings import MOST_AUTOMATIC, Settings
from odeco.sequences.symbols import Symbols
from odeco.sequences.triples import Triples, chain_of_triples
from odeco.sequences.vectors import Gaussians

#: The number of states is chosen on at most this many rows, of which one part in five is not learnt from, by models
#: with at most so many steps; each state must have so many rows.
_ROWS_TO_CHOOSE, _FOLDS, _STEPS_TO_CHOOSE, _ROWS_A_STATE = 2**16, 5, 30, 30
#: Steps on the cells of rows before the rows themselves are looked at.
_STEPS_ON_CELLS = 12


def learn(rows: Any, begins: BoolArray, n_symbols: int, settings: Settings, *, seed: int) -> FittedChain:
    """Learn from whole sequences: of symbols below `n_symbols`, or of vectors if that is 0."""
    k, tried = settings.n_components, None
    if k == "auto":
        k, tried = _chosen_number(rows, begins, n_symbols, settings, seed)
    chain, explained = start(rows, begins, n_symbols, k, full=settings.full, seed=seed)
    found = climbed(chain, rows, begins, n_steps=settings.n_steps, tolerance=settings.tolerance)
    return FittedChain.of(
        found.model.ordered(),
        n_rows=len(rows),
        log_likelihood=found.log_likelihood,
        n_steps=found.n_steps,
        converged=found.converged,
        explained=explained,
        tried=tried,
    )


def start(rows: Any, begins: BoolArray, n_symbols: int, n_states: int, *, full: bool, seed: int) -> tuple[Chain, float]:
    """Return where steps begin, and the share of the third moment that the states there explain."""
    if n_symbols:
        return start_of_symbols(rows, begins, n_symbols, n_states, seed=seed)
    return start_of_vectors(rows, begins, n_states, full=full, seed=seed)


def _chosen_number(
    rows: Any, begins: BoolArray, n_symbols: int, settings: Settings, seed: int
) -> tuple[int, dict[int, float]]:
    """Choose the number of states by rows that were not learnt from, given those before them in their sequence."""
    rows, begins = rows[:_ROWS_TO_CHOOSE], begins[:_ROWS_TO_CHOOSE]
    left_out = _left_out(begins)
    part = replace(settings, n_steps=min(settings.n_steps, _STEPS_TO_CHOOSE))

    def score(number: int) -> FloatArray:
        fitted = learn(rows[~left_out], begins[~left_out], n_symbols, replace(part, n_components=number), seed=seed)
        return fitted.chain.log_likelihoods(rows, begins)[left_out]

    chosen = choose_number(score, most=max(1, min(MOST_AUTOMATIC, len(rows) // _ROWS_A_STATE)))
    return chosen.n_components, chosen.tried


def _left_out(begins: BoolArray) -> BoolArray:
    """Return which rows are not learnt from: every fifth sequence, or the last fifth of each if there are few."""
    number = np.cumsum(begins) - 1
    lengths = np.bincount(number)
    if lengths.size >= 2 * _FOLDS:
        return np.asarray(number % _FOLDS == _FOLDS - 1)
    since = np.arange(len(begins)) - np.flatnonzero(begins)[number]
    return np.asarray(since >= np.ceil(lengths * (1 - 1 / _FOLDS))[number])


def climbed(chain: Chain, rows: Any, begins: BoolArray, *, n_steps: int, tolerance: float) -> Climbed[Chain]:
    """Take Baum-Welch steps from a model; the tolerance is of the mean log-likelihood of a row."""

    def step(model: Chain) -> tuple[Chain, float]:
        expected = model.expected(rows, begins)
        return model.maximised(expected), expected.log_likelihood / expected.n_rows

    return climb_ahead(
        step,
        chain,
        n_steps=n_steps,
        tolerance=tolerance,
        coordinates=Chain.coordinates,
        model_at=lambda coordinates, model: model.at(coordinates),
    )


def start_of_symbols(
    rows: IndexArray, begins: BoolArray, n_symbols: int, n_states: int, *, seed: int
) -> tuple[Chain, float]:
    """Return where steps begin for symbols, and the share of the third moment that the states there explain."""
    triples = Triples.of(rows, begins, n_symbols)
    occurring = min(np.unique(each).size for each in triples.symbols)
    if 1 < n_states <= occurring:
        return chain_of_triples(triples, n_states, seed=seed)
    rng = np.random.default_rng(seed)
    frequencies = (np.bincount(rows, minlength=n_symbols) + 1.0) / (len(rows) + n_symbols)
    emitted = frequencies * rng.uniform(0.5, 1.5, (n_states, n_symbols))
    return Chain(*_random_moves(n_states, rng), Symbols(emitted / emitted.sum(axis=1, keepdims=True))), 0.0


def start_of_vectors(
    rows: FloatArray, begins: BoolArray, n_states: int, *, full: bool, seed: int
) -> tuple[Chain, float]:
    """Return where steps begin for vectors: their cells are learnt as symbols, and say what state each row is in."""
    emissions = Gaussians.around(rows, n_states, full=full)
    scaled = (rows - emissions.centre) / np.sqrt(emissions.spread)
    cells, n_cells = cells_of(scaled, n_states, seed=seed)
    chain, explained = start_of_symbols(cells, begins, n_cells, n_states, seed=seed)
    chain = climbed(chain, cells, begins, n_steps=_STEPS_ON_CELLS, tolerance=0.0).model
    emitted = emissions.emitted(rows, chain.posterior(cells, begins))
    return Chain(chain.start, chain.transitions, emissions.maximised(emitted)), explained


def _random_moves(n_states: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    moves = rng.uniform(0.5, 1.5, (n_states, n_states)) + n_states * np.eye(n_states)
    return np.full(n_states, 1 / n_states), moves / moves.sum(axis=1, keepdims=True)
