"""Rows that are kept in place of a sum: all of them, or a number of them that are evenly spaced over a pass.

The numbers 0, 1, 2, … with their bits read backwards are spread evenly over [0, 2³²) (van der Corput's sequence), so
the rows below any threshold are spread evenly over a pass of unknown length. A smaller threshold selects a part of what
a larger one does: when too many rows are kept, the threshold is lowered, and rows above it are dropped. Which are kept
in the end depends on the number of rows only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odeco._util.types import FloatArray, IndexArray
from odeco.io.rows import is_sparse
from odeco.online.block import QuantizedRows, RowBlock, join_kept
from odeco.online.sums import Held, RowSum, check_size
from odeco.online.tree import ALL_ROWS, Part, grown


class RowLimit(NamedTuple):
    """The most that is kept of a pass.

    Attributes
    ----------
    n_rows, n_bytes : int
        The most rows, and bytes of rows, that are kept as they are.
    n_quantized : int
        The most rows if dense rows beyond that are quantized; 0 if they are not.
    """

    n_rows: int
    n_bytes: int
    n_quantized: int = 0

    def quantizes(self, n_rows: int, rows: Any) -> bool:
        """Tell whether of `n_rows` rows of a kind more can be kept if they are quantized."""
        if is_sparse(rows) or not self.n_quantized:
            return False
        row_bytes: int = rows.dtype.itemsize * rows.shape[1]
        return n_rows > min(self.n_rows, self.n_bytes // row_bytes)

    def most(self, *, sparse: bool) -> int:
        """Return the most rows of a kind that may be kept."""
        return self.n_rows if sparse else max(self.n_rows, self.n_quantized)

    def allows(self, pieces: tuple[Any, ...]) -> bool:
        """Tell whether pieces of rows, all of one kind, are within the limit; a single row always is."""
        blocks = [RowBlock.of(piece) for piece in pieces]
        n_rows = sum(block.n_rows for block in blocks)
        if n_rows <= 1 or blocks[0].quantized:
            return n_rows <= max(1, self.n_quantized)
        return n_rows <= self.n_rows and sum(block.n_bytes for block in blocks) <= self.n_bytes


class KeptRows(RowSum):
    """Rows that are kept, in place of a sum; they may arrive in pieces of any size.

    Parameters
    ----------
    block : array, d x 0
        States their width.
    order : int
        The order of the moment.
    limit : RowLimit, optional
        The most that is kept. Beyond it dense rows are quantized, and then rows are dropped so that those that are kept
        are evenly spaced, whatever the sizes of the pieces.
    """

    def __init__(self, block: FloatArray, order: int, limit: RowLimit | None = None) -> None:
        super().__init__("rows", block, order)
        self.limit = limit

    def update(self, rows: Any) -> None:
        """Keep rows, a dense or CSR array. If one of them is not finite, none is kept."""
        checked, before = self._checked(rows), self.held
        check_size(checked, self.order, of=checked)
        n_new = int(checked.shape[0])
        chosen = selected(before.n_rows, before.n_rows + n_new, before.threshold) - before.n_rows
        self._keep(checked if len(chosen) == n_new else checked[chosen], n_new, before.threshold)

    def append(self, part: Part) -> None:
        """Keep the rows that a worker picked from those that follow."""
        self._keep(part.rows, part.n_rows, part.threshold)

    def _keep(self, rows: Any, n_rows: int, threshold: int) -> None:
        """Keep rows, which are those of the next `n_rows` rows that a threshold selects."""
        before, limit = self.held, self.limit
        first, n_seen = before.n_rows, before.n_rows + n_rows
        if limit is None:
            self.held = before._replace(n_rows=n_seen, waiting=grown(before.waiting, rows.copy()))
            return
        waiting = before.waiting
        if limit.quantizes(n_seen, rows):
            rows = QuantizedRows.of(rows)
            waiting = tuple(map(QuantizedRows.of, waiting))
        if rows.shape[0]:
            waiting = grown(waiting, rows if isinstance(rows, QuantizedRows) else rows.copy(), join_kept)
        places = np.concatenate([before.places, selected(first, n_seen, threshold)])
        held = before._replace(n_rows=n_seen, waiting=waiting, places=places)
        if threshold != before.threshold:
            held = _thinned(held, min(threshold, before.threshold))
        while not limit.allows(held.waiting):
            held = _thinned(held, lowered(held.threshold))
        self.held = held

    def rows(self) -> Any:
        """Return the rows that are kept, as one piece from then on: with its pieces it would take memory twice."""
        self.held = self.held._replace(waiting=(join_kept([*self.held.waiting]),))
        return self.held.waiting[0]


def _thinned(held: Held, threshold: int) -> Held:
    """Return what is left of the rows that are kept when the threshold is lowered."""
    left, waiting = below(held.places, threshold), held.waiting
    if waiting:
        rows = join_kept([*waiting])
        quantized = isinstance(rows, QuantizedRows)
        waiting = (QuantizedRows(rows.codes[left], rows.scales[left]) if quantized else rows[left],)
    return held._replace(waiting=waiting, threshold=threshold, places=held.places[left])


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
