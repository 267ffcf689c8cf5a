"""When methods that read rows once replace their vectors: whenever the number of rows has
doubled.
"""

from __future__ import annotations

from odeco.online.methods.refine import N_SEGMENTS

#: The fewest rows that are searched before the end of a stream, per column, per component and in
#: all.
_ROWS_PER_COLUMN = 10
_ROWS_PER_COMPONENT = 50
_FEWEST_ROWS = 1000


def first_search(dimension: int, n_components: int | None) -> int:
    """Return the number of rows of the first search, if memory allows it."""
    k = 1 if n_components is None else n_components
    return max(_ROWS_PER_COLUMN * dimension, _ROWS_PER_COMPONENT * k, _FEWEST_ROWS)


def segments(n_rows: int, replaced_at: int) -> list[int]:
    """Return the sizes of the segments up to the next replacement, after the one at `replaced_at`
    rows.
    """
    sizes = []
    while n_rows < 2 * replaced_at:
        place = (n_rows - replaced_at) * N_SEGMENTS // replaced_at + 1
        end = replaced_at + -(-place * replaced_at // N_SEGMENTS)
        sizes.append(end - n_rows)
        n_rows = end
    return sizes
