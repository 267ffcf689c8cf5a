"""Chunks and the tree of their sums: where rows are cut, and in which order sums are added.

Rows are counted from the start of a sum. `unit` rows make a leaf, and `RADIX` nodes of one height make a node of the
next. An unfinished sum holds one array per level: level 0 the unfinished leaf, level h the finished nodes of height
h − 1 that wait for their parent, added up in order. So a worker that adds up the rows of a whole node, from its first
row on, gets the array that a reader of all rows gets there, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from odeco._util.types import DataArray, FloatArray
from odeco.io.rows import is_sparse, join_rows, row_slice

#: The buffer: rows that wait for a chunk to be complete, in pieces; all dense or all CSR, of one width and type.
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

#: A CSR chunk ends with the row that brings it to this many stored numbers, or the sum to a multiple of this many rows.
_SPARSE_SIZE, _SPARSE_ROWS = 2**22, 2**15


def rows_per_chunk(n_features: int) -> int:
    """Return the number of rows in a dense chunk."""
    if n_features >= WIDE:
        return max(_FEWEST_ROWS, _WIDE_SIZE // n_features)
    return min(_MOST_ROWS, max(_ENOUGH_ROWS, _DENSE_SIZE // n_features))


def rows_per_unit(n_features: int, *, sparse: bool) -> int:
    """Return the number of rows in a leaf of the tree: every chunk ends at a multiple of it."""
    return _SPARSE_ROWS if sparse else rows_per_chunk(n_features)


def cut_chunks(waiting: Waiting, rows: Any, n_before: int) -> Iterator[tuple[Any, Waiting]]:
    """Yield every chunk that `rows` complete, and the buffer after it; at last None and the final buffer.

    `n_before` rows of the sum are in earlier chunks. A chunk is a view of `rows` if the buffer was empty. The buffer is
    a copy, since callers may reuse their array.
    """
    start, n_rows = 0, int(rows.shape[0])
    while start < n_rows:
        stop = start + _n_missing(waiting, rows, start, n_before)
        if stop > n_rows:
            waiting = grown(waiting, row_slice(rows, start, n_rows).copy())
            break
        chunk = join_rows([*waiting, row_slice(rows, start, stop)])
        waiting, start, n_before = (), stop, n_before + int(chunk.shape[0])
        yield chunk, waiting
    yield None, waiting


def _n_missing(waiting: Waiting, rows: Any, start: int, n_before: int) -> int:
    """Return the number of rows from `start` on that complete the chunk; more than there are if none do."""
    sparse = is_sparse(rows)
    unit = rows_per_unit(rows.shape[1], sparse=sparse)
    by_rows = unit - n_before % unit - sum(int(piece.shape[0]) for piece in waiting)
    if not sparse:
        return by_rows
    missing_size = _SPARSE_SIZE - sum(int(piece.nnz) for piece in waiting)
    ends = rows.indptr[start + 1 :]
    return min(int(np.searchsorted(ends, rows.indptr[start] + missing_size)) + 1, by_rows)


def grown(waiting: Waiting, piece: Any, join: Callable[[list[Any]], Any] = join_rows) -> Waiting:
    """Return the buffer with one more piece.

    A piece is joined with the one before it once it is half as long. So rows that arrive one by one are copied a few
    times each, not once for every row that follows.
    """
    pieces = [*waiting, piece]
    while len(pieces) > 1 and 2 * pieces[-1].shape[0] >= pieces[-2].shape[0]:
        pieces[-2:] = [join(pieces[-2:])]
    return tuple(pieces)


# The tree -------------------------------------------------------------------------------------------------------------


#: The number of nodes in a node of the next height. Adding up parents takes a seventh of the additions of leaves.
RADIX = 8


#: One array per level; None at a level without nodes.
Levels: TypeAlias = "tuple[FloatArray | None, ...]"

#: Returns the sum of two arrays, in place where it may.
Add: TypeAlias = "Callable[[FloatArray, DataArray], FloatArray]"


#: The threshold that selects all rows, where rows are kept (`odeco.online.kept_rows`).
ALL_ROWS = 2**32


class Part(NamedTuple):
    """The sum over consecutive rows, as workers return it.

    Attributes
    ----------
    n_rows, unit : int
        The number of rows, and the number of rows in a leaf.
    levels : tuple of arrays
        The sums.
    checksum : int
        The sum of the bits of all numbers in the rows, modulo 2⁶⁴; 0 if it is not used.
    rows : array, CSR array, QuantizedRows or None
        Where rows are kept: those that `threshold` selects, counted from the first of the sum; then there are no sums.
    threshold : int
        See `rows`.
    """

    n_rows: int
    unit: int
    levels: Levels
    checksum: int = 0
    rows: Any = None
    threshold: int = ALL_ROWS


def carried(levels: Levels, node: DataArray, level: int, n_rows: int, unit: int, add: Add) -> Levels:
    """Return the levels after one more node at `level`, where `n_rows` rows are in with it.

    Level h is full when the rows fill a node of height h; its array then moves up.
    """
    after, moving = list(levels), node
    while True:
        after += [None] * (level + 1 - len(after))
        held = after[level]
        if held is not None:
            moving = add(held, moving)
        if n_rows % (unit * RADIX**level):
            after[level] = moving.astype(np.float64, copy=False)
            return tuple(after)
        after[level] = None
        level += 1


def joined(parts: list[Part]) -> Part:
    """Return the sum over the rows of consecutive parts, whose arrays are not changed."""
    own: list[FloatArray] = []

    def add(total: FloatArray, node: DataArray) -> FloatArray:
        if any(total is each for each in own):
            return np.add(total, node, out=total)
        own.append(total + node)
        return own[-1]

    whole = Part(0, parts[0].unit, ())
    for part in parts:
        whole = appended(whole, part, add)
    return whole


def appended(whole: Part, part: Part, add: Add) -> Part:
    """Return the sum over consecutive rows: those of `whole`, then those of `part`.

    If the part begins where a node of its height may begin, the result is bit-identical with that of a reader of all
    rows. Otherwise it depends on where the part begins, and on nothing else.
    """
    height = node_rows(part.n_rows, part.unit)
    n_rows, levels = whole.n_rows + part.n_rows, whole.levels
    checksum = (whole.checksum + part.checksum) % 2**64
    held = [(level, array) for level, array in enumerate(part.levels) if array is not None]
    if whole.n_rows % height == 0 and part.n_rows < height:  # below all that the sum holds
        after = [*levels, *[None] * (len(part.levels) - len(levels))]
        for level, array in held:
            before = after[level]
            after[level] = array if before is None else add(before, array)
        return Part(n_rows, part.unit, tuple(after), checksum)
    aligned = whole.n_rows % height == 0
    for level, array in held:
        levels = carried(levels, array, level if aligned else 0, n_rows, part.unit, add)
    return Part(n_rows, part.unit, levels, checksum)


def collected(levels: Levels, rest: DataArray | None, out: FloatArray) -> FloatArray:
    """Add up all levels and the sum over the buffer, the smallest first, in `out`."""
    parts = [part for part in (rest, *levels) if part is not None]
    if not parts:
        out[...] = 0.0
    for number, part in enumerate(parts):
        np.copyto(out, part) if number == 0 else np.add(out, part, out=out)
    return out


def node_rows(n_rows: int, unit: int) -> int:
    """Return the number of rows of the smallest node that holds `n_rows` rows."""
    height = unit
    while height < n_rows:
        height *= RADIX
    return height


def nodes(start: int, stop: int, unit: int, height: int) -> list[tuple[int, int]]:
    """Cut rows from `start` to `stop` into the largest nodes of at most `height` rows; the last may be incomplete.

    `start` is counted from the start of the sum, and must be the first row of a leaf.
    """
    edges = []
    while start < stop:
        size = unit
        while size < height and start % (size * RADIX) == 0 and start + size < stop:
            size *= RADIX
        edges.append((start, min(start + size, stop)))
        start += size
    return edges
