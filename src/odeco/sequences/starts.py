"""Where Baum-Welch steps begin: at several models, from different parts of the rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from odeco._types import BoolArray, FloatArray, IndexArray
from odeco.sequences.chain import Chain
from odeco.sequences.codes import cells_of
from odeco.sequences.spare_states import merged_to
from odeco.sequences.steps import climbed
from odeco.sequences.symbols import Symbols
from odeco.sequences.triples import Triples, chain_of_triples
from odeco.sequences.vectors import Gaussians

#: A start is made of at most so many consecutive symbols for each state, or vectors, which say more about states; but
#: always of so many rows, as states that last long are seldom left.
_SYMBOLS_A_STATE, _VECTORS_A_STATE, _ALWAYS = 2500, 1000, 2**13
#: Where moves say little about the next state, weak directions of pairs are mostly noise: a start amplifies them no
#: more than if they had this share of the strongest. Which share is best depends on the model; each start has another.
_LEAST_SHARES = (1e-2, 1e-1)
#: There are so many states for each that is wanted, and so many steps before any are merged.
_SPARE, _STEPS_WITH_SPARE = 2, 6
#: How often states are doubled and merged again: of vectors less often, as it takes more of the time of all steps.
_N_DOUBLED = {"symbols": 2, "vectors": 1}
#: Steps on the cells of rows before the rows themselves are looked at.
_STEPS_ON_CELLS = 6


def starts(rows: Any, begins: BoolArray, n_symbols: int, n_states: int, *, full: bool, seed: int) -> Iterator[Chain]:
    """Yield the models at which steps begin; `n_symbols` is 0 for vectors."""
    parts = _parts(rows, begins, n_states, len(_LEAST_SHARES))
    for number, (least_share, (part, here)) in enumerate(zip(_LEAST_SHARES, parts, strict=True)):
        told: Any = {"least_share": least_share, "seed": seed + number}
        if n_symbols:
            chain = chain_of_symbols(part, here, n_symbols, n_states, **told)
        else:
            chain = chain_of_vectors(part, here, n_states, full=full, **told)
        yield reduced(chain, part, here, n_states)


def starts_around(chain: Chain, rows: Any, begins: BoolArray, *, seed: int) -> Iterator[Chain]:
    """Yield a model, and what it becomes if every state is doubled and as many are merged again.

    Where one state does the work of two and two share that of one, this mends it; and if not, little is lost.
    """
    yield chain
    rng = np.random.default_rng([seed, 1])
    for part, here in _parts(rows, begins, chain.start.size, _N_DOUBLED["vectors" if np.ndim(rows) > 1 else "symbols"]):
        yield reduced(chain.doubled(rng), part, here, chain.start.size)


def reduced(chain: Chain, rows: Any, begins: BoolArray, n_states: int) -> Chain:
    """Return a model with so many states, from one with as many or more."""
    if chain.start.size == n_states:
        return chain
    chain = climbed(chain, rows, begins, n_steps=_STEPS_WITH_SPARE, tolerance=0.0).model
    return merged_to(chain, rows, begins, n_states)


def _parts(rows: Any, begins: BoolArray, n_states: int, number: int) -> Iterator[tuple[Any, BoolArray]]:
    """Yield so many parts of consecutive rows, from the first to the last, and which rows begin a sequence."""
    a_state = _VECTORS_A_STATE if np.ndim(rows) > 1 else _SYMBOLS_A_STATE
    size = min(max(a_state * n_states, _ALWAYS), len(rows))
    for place in range(number):
        first = place * (len(rows) - size) // max(number - 1, 1)
        here = begins[first : first + size].copy()
        here[0] = True
        yield rows[first : first + size], here


def chain_of_symbols(
    rows: IndexArray, begins: BoolArray, n_symbols: int, n_states: int, *, least_share: float, seed: int
) -> Chain:
    """Return a model of symbols with spare states, as far as there are symbols for them."""
    triples = Triples.of(rows, begins, n_symbols)
    occurring = min(np.unique(each).size for each in triples.symbols)
    if 1 < n_states <= occurring:
        return chain_of_triples(triples, min(_SPARE * n_states, occurring), seed=seed, least_share=least_share)[0]
    rng = np.random.default_rng(seed)
    frequencies = (np.bincount(rows, minlength=n_symbols) + 1.0) / (len(rows) + n_symbols)
    emitted = frequencies * rng.uniform(0.5, 1.5, (n_states, n_symbols))
    return Chain(*_random_moves(n_states, rng), Symbols(emitted / emitted.sum(axis=1, keepdims=True)))


def chain_of_vectors(
    rows: FloatArray, begins: BoolArray, n_states: int, *, full: bool, least_share: float, seed: int
) -> Chain:
    """Return a model of vectors: their cells are learnt as symbols, and say what state each row is in."""
    emissions = Gaussians.around(rows, n_states, full=full)
    scaled = (rows - emissions.centre) / np.sqrt(emissions.spread)
    cells, n_cells = cells_of(scaled, n_states, seed=seed)
    chain = chain_of_symbols(cells, begins, n_cells, n_states, least_share=least_share, seed=seed)
    chain = climbed(chain, cells, begins, n_steps=_STEPS_ON_CELLS, tolerance=0.0).model
    emitted = emissions.emitted(rows, chain.posterior(cells, begins))
    return Chain(chain.start, chain.transitions, emissions.maximised(emitted))


def _random_moves(n_states: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    moves = rng.uniform(0.5, 1.5, (n_states, n_states)) + n_states * np.eye(n_states)
    return np.full(n_states, 1 / n_states), moves / moves.sum(axis=1, keepdims=True)
