"""Rows cut into chunks, always at the same places.

Floating-point sums depend on where they are cut. Rows that arrive in pieces of any size are therefore cut again, at
places that depend only on the rows themselves: so the same rows give the same bits, pushed one by one or read from a
file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from odeco.rows._views import join_rows, row_slice

#: A dense chunk has about so many numbers, which the caches hold between its two products,
_DENSE_SIZE = 2**22
#: but not so many rows that sums in single precision suffer,
_MOST_ROWS = 2**13
#: and of wide rows more, so that the second product pays for adding up its result.
_ENOUGH_ROWS = 768
#: From this dimension on lanes split columns instead of rows, nothing is added up, and chunks can be small again.
WIDE = 2**14
_WIDE_SIZE, _FEWEST_ROWS = 2**21, 32
#: Stored numbers and rows that end a CSR chunk.
_SPARSE_SIZE, _SPARSE_ROWS = 2**22, 2**15


def rows_per_chunk(n_features: int) -> int:
    """Return how many dense rows a chunk has."""
    if n_features >= WIDE:
        return max(_FEWEST_ROWS, _WIDE_SIZE // n_features)
    return min(_MOST_ROWS, max(_ENOUGH_ROWS, _DENSE_SIZE // n_features))


class Chunks:
    """Collects rows and gives them back in chunks; what does not fill a chunk waits for more.

    Rows are 2-D arrays, all dense or all CSR, of one width and type.
    """

    def __init__(self) -> None:
        self._waiting: list[Any] = []

    def push(self, rows: Any) -> Iterator[Any]:
        """Yield the chunks that are complete with these rows, as views where nothing was waiting."""
        start = 0
        while start < rows.shape[0]:
            n_rows = self._missing(rows, start)
            stop = start + n_rows
            piece = row_slice(rows, start, min(stop, rows.shape[0]))
            if stop > rows.shape[0]:
                # The caller may reuse its array, so what waits is copied.
                self._waiting.append(piece.copy())
                return
            chunk = join_rows([*self._waiting, piece])
            self._waiting = []
            start = stop
            yield chunk

    def rest(self) -> Any:
        """Return the rows that wait, as one incomplete chunk, or None."""
        if self._waiting:
            self._waiting = [join_rows(self._waiting)]
        return self._waiting[0] if self._waiting else None

    def snapshot(self) -> list[Any]:
        """Return what waits, to be given to `restore`."""
        return list(self._waiting)

    def restore(self, waiting: list[Any]) -> None:
        """Go back to what `snapshot` saw."""
        self._waiting = list(waiting)

    def _missing(self, rows: Any, start: int) -> int:
        """Return how many rows from `start` on complete the chunk; more than there are if they do not."""
        n_waiting = sum(piece.shape[0] for piece in self._waiting)
        if isinstance(rows, np.ndarray):
            return rows_per_chunk(rows.shape[1]) - int(n_waiting)
        missing_size = _SPARSE_SIZE - sum(piece.nnz for piece in self._waiting)
        ends = rows.indptr[start + 1 :]
        by_size = int(np.searchsorted(ends, rows.indptr[start] + missing_size)) + 1
        return min(by_size, _SPARSE_ROWS - int(n_waiting))
