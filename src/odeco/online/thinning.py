"""Rows evenly spaced over a pass of unknown length: those whose number, its bits read backwards, is small enough.

The numbers 0, 1, 2, … with their bits read backwards are spread evenly over [0, 2³²) (van der Corput's sequence), so
the rows below any threshold are spread evenly over the pass. A smaller threshold selects a part of what a larger one
does: when too many rows are kept, the threshold is lowered, and rows above it are dropped. Which are kept in the end
depends on the number of rows only.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from odeco._util.types import IndexArray

#: The threshold that selects all rows.
ALL_ROWS = 2**32

#: The numbers of rows before there are any.
NO_PLACES: IndexArray = np.empty(0, np.int64)

_SWAPS = ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF), (16, 0x0000FFFF))


def selected(start: int, stop: int, threshold: int) -> IndexArray:
    """Return the numbers of the rows from `start` to `stop` that a threshold selects."""
    places = np.arange(start, stop, dtype=np.int64)
    return places[below(places, threshold)]


def below(places: IndexArray, threshold: int) -> NDArray[np.bool_]:
    """Tell which of these rows a threshold selects."""
    if threshold >= ALL_ROWS:
        return np.ones(len(places), dtype=np.bool_)
    reversed_bits = (places & 0xFFFFFFFF).astype(np.uint64)
    for shift, mask in _SWAPS:
        low, high = np.uint64(shift), np.uint64(mask)
        reversed_bits = ((reversed_bits >> low) & high) | ((reversed_bits & high) << low)
    chosen: NDArray[np.bool_] = reversed_bits < threshold
    return chosen


def lowered(threshold: int) -> int:
    """Return the next threshold: 7/8, 6/8, 5/8 and 4/8 of all rows, then 7/16, …."""
    return max(1, threshold - (1 << max(0, (threshold - 1).bit_length() - 3)))


def first_threshold(n_rows: int, most: int) -> int:
    """Return a threshold that selects at least what is kept of `n_rows` rows in the end, and little more."""
    threshold = ALL_ROWS
    while n_rows * threshold / ALL_ROWS - 64 > most:
        threshold = lowered(threshold)
    return threshold
