"""A sum over rows as a tree whose shape depends on the number of rows only, wherever its nodes are added up.

Rows are counted from the start of a sum. `unit` of them make a leaf, and `RADIX` nodes of one height make a node of
the next. A sum that is under way holds one array a level: level 0 what there is of the unfinished leaf, level h the
finished nodes of height h − 1 that wait for their parent, added up in order. So whoever adds up the rows of a whole
node from its first row on, on any machine, gets the array that a reader of all rows gets there, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from odeco._types import DataArray, FloatArray

#: So many nodes make one of the next height. Adding up parents takes a seventh of the additions of leaves.
RADIX = 8

#: One array a level; None where nothing waits.
Levels: TypeAlias = "tuple[FloatArray | None, ...]"
#: Returns the sum of two arrays, in place where it may.
Add: TypeAlias = "Callable[[FloatArray, DataArray], FloatArray]"


class Part(NamedTuple):
    """The sum over rows that follow each other, as it travels: how many, how many make a leaf, and the arrays."""

    n_rows: int
    unit: int
    levels: Levels


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
    """Return the sum over the rows of all parts, which follow each other; no array of theirs is written to."""
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
    """Return a sum with the rows of a part that follow its own.

    If the part begins where a node may that is as high as the part, the bits are those of a reader of all rows.
    Otherwise they depend on where it begins, and on nothing else.
    """
    height = node_rows(part.n_rows, part.unit)
    n_rows, levels = whole.n_rows + part.n_rows, whole.levels
    held = [(level, array) for level, array in enumerate(part.levels) if array is not None]
    if whole.n_rows % height == 0 and part.n_rows < height:  # below all that the sum holds
        after = [*levels, *[None] * (len(part.levels) - len(levels))]
        for level, array in held:
            before = after[level]
            after[level] = array if before is None else add(before, array)
        return Part(n_rows, part.unit, tuple(after))
    aligned = whole.n_rows % height == 0
    for level, array in held:
        levels = carried(levels, array, level if aligned else 0, n_rows, part.unit, add)
    return Part(n_rows, part.unit, levels)


def collected(levels: Levels, rest: DataArray | None, out: FloatArray) -> FloatArray:
    """Add up what is held at all levels and the sum over the rows that wait, the smallest first, in `out`."""
    parts = [part for part in (rest, *levels) if part is not None]
    if not parts:
        out[...] = 0.0
    for number, part in enumerate(parts):
        np.copyto(out, part) if number == 0 else np.add(out, part, out=out)
    return out


def node_rows(n_rows: int, unit: int) -> int:
    """Return how many rows the smallest node has that holds so many."""
    height = unit
    while height < n_rows:
        height *= RADIX
    return height


def nodes(start: int, stop: int, unit: int, height: int) -> list[tuple[int, int]]:
    """Cut rows from `start` to `stop` into nodes of at most `height` rows, as large as can be; the last is cut short.

    `start` is counted from the start of the sum, and must be where a leaf begins.
    """
    edges = []
    while start < stop:
        size = unit
        while size < height and start % (size * RADIX) == 0 and start + size < stop:
            size *= RADIX
        edges.append((start, min(start + size, stop)))
        start += size
    return edges
