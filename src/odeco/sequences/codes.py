"""Rows of numbers as symbols: each is called by the cell that it lies in.

Moments of three consecutive rows tell states apart only if there are at most as many as features, and if their means
differ. The moments of cells do it for any number of features, and for states that differ in their spread only.
"""

from __future__ import annotations

import numpy as np

from odeco._threads import map_blocks
from odeco._types import FloatArray, IndexArray

#: How many cells there are for each state, and at least how many rows for each cell.
_CELLS_A_STATE, _ROWS_A_CELL = 8, 10
#: Cells are found on at most this many rows, by so many rounds of means.
_MOST_ROWS, _N_ROUNDS = 2**13, 8
_BLOCK = 2**13


def cells_of(rows: FloatArray, n_states: int, *, seed: int) -> tuple[IndexArray, int]:
    """Return the cell of every row, and how many cells there are.

    Rows must be in units in which features count alike. Cells are those of the means of nearby rows, which begin at
    rows drawn at random.
    """
    rng = np.random.default_rng(seed)
    drawn = np.sort(rng.choice(len(rows), min(len(rows), _MOST_ROWS), replace=False))
    sample = rows[drawn]
    n_cells = min(_CELLS_A_STATE * n_states, max(len(rows) // _ROWS_A_CELL, n_states))
    places = np.unique(rng.permutation(sample)[:n_cells], axis=0)
    for _ in range(_N_ROUNDS):
        nearest = _nearest(sample, places)
        counts = np.bincount(nearest, minlength=len(places))
        sums = np.zeros_like(places)
        np.add.at(sums, nearest, sample)
        places = sums[counts > 0] / counts[counts > 0, None]
    return _nearest(rows, places), len(places)


def _nearest(rows: FloatArray, places: FloatArray) -> IndexArray:
    squares = np.sum(places**2, axis=1)

    def part(begin: int) -> IndexArray:
        return np.asarray(np.argmin(squares - 2 * (rows[begin : begin + _BLOCK] @ places.T), axis=1))

    starts = range(0, len(rows), _BLOCK)
    return np.concatenate(list(map_blocks(part, starts, parallel=len(starts) > 1)))
