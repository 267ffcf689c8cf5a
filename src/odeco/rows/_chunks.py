"""Rows cut into chunks, always at the same places.

Floating-point sums depend on where they are cut. Rows that arrive in pieces of any size are therefore cut again, at
places that depend only on the rows themselves: so the same rows give the same bits, pushed one by one or read from a
file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from odeco.rows._views import is_sparse, join_rows, row_slice

#: Rows that wait for a chunk to be complete, in pieces; all dense or all CSR, of one width and type.
Waiting: TypeAlias = "tuple[Any, ...]"

#: A dense chunk has about this many numbers, so that the caches hold it between its two products.
_DENSE_SIZE = 2**22
#: A dense chunk has at most this many rows, because sums in single precision suffer beyond it.
_MOST_ROWS = 2**13
#: A dense chunk has at least this many rows, so that the second product pays for adding up its result.
_ENOUGH_ROWS = 768
#: From this dimension on the work is split by columns instead of rows, nothing is added up, and chunks can be small.
WIDE = 2**14
#: Numbers in a chunk of wide rows, and the fewest rows that it has.
_WIDE_SIZE, _FEWEST_ROWS = 2**21, 32
#: A CSR chunk ends with the row that brings it to so many stored numbers, or the sum to a multiple of so many rows.
_SPARSE_SIZE, _SPARSE_ROWS = 2**22, 2**15


def rows_per_chunk(n_features: int) -> int:
    """Return how many dense rows a chunk has."""
    if n_features >= WIDE:
        return max(_FEWEST_ROWS, _WIDE_SIZE // n_features)
    return min(_MOST_ROWS, max(_ENOUGH_ROWS, _DENSE_SIZE // n_features))


def rows_per_unit(n_features: int, *, sparse: bool) -> int:
    """Return after how many rows a chunk ends in any case, counted from the start of a sum: the leaves of its tree."""
    return _SPARSE_ROWS if sparse else rows_per_chunk(n_features)


def cut_chunks(waiting: Waiting, rows: Any, n_before: int) -> Iterator[tuple[Any, Waiting]]:
    """Yield every chunk that `rows` complete, and what waits after it; at last None and what waits in the end.

    `n_before` rows of the sum are in earlier chunks. A chunk is a view of `rows` where nothing was waiting. What waits
    is a copy, since callers may reuse their array.
    """
    start, n_rows = 0, int(rows.shape[0])
    while start < n_rows:
        stop = start + _n_missing(waiting, rows, start, n_before)
        if stop > n_rows:
            waiting = _grown(waiting, row_slice(rows, start, n_rows).copy())
            break
        chunk = join_rows([*waiting, row_slice(rows, start, stop)])
        waiting, start, n_before = (), stop, n_before + int(chunk.shape[0])
        yield chunk, waiting
    yield None, waiting


def _n_missing(waiting: Waiting, rows: Any, start: int, n_before: int) -> int:
    """Return how many rows from `start` on complete the chunk; more than there are if they do not."""
    sparse = is_sparse(rows)
    unit = rows_per_unit(rows.shape[1], sparse=sparse)
    by_rows = unit - n_before % unit - sum(int(piece.shape[0]) for piece in waiting)
    if not sparse:
        return by_rows
    missing_size = _SPARSE_SIZE - sum(int(piece.nnz) for piece in waiting)
    ends = rows.indptr[start + 1 :]
    return min(int(np.searchsorted(ends, rows.indptr[start] + missing_size)) + 1, by_rows)


def _grown(waiting: Waiting, piece: Any) -> Waiting:
    """Return what waits with one more piece.

    A piece is joined with the one before it once it is half as long. So rows that arrive one by one are copied a
    few times each, not once for every row that follows.
    """
    pieces = [*waiting, piece]
    while len(pieces) > 1 and 2 * pieces[-1].shape[0] >= pieces[-2].shape[0]:
        pieces[-2:] = [join_rows(pieces[-2:])]
    return tuple(pieces)
