"""Some rows of every block of a stream, to warn of a column that outweighs all others, and of a
mean that does.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odeco._util.arguments import largest, times_power_of_two, unit_exponent
from odeco._util.types import FloatArray
from odeco.io.rows import is_sparse, stored_numbers

# Let x_c be such a column, r its root mean square, and q that of all other columns together. Of a
# moment of order 3 the entry of c alone is of size r³, and so the leading component is the column
# itself. The next are not those of the other columns, of size q³, but what c shares with them:
# E[x_c x_j x_k], of size r q² wherever the mean of x_c is not zero. The unit vector u at which u_c
# uⱼ u_k is largest has u_c² = 1/3 (at order p, 1 − 2/p), so these components lean on column c,
# which components beside e_c that are orthogonal to it never do.
#
# So a column dominates if the leading vector is the column, if r > 3q (the moments that it shares
# with the others are then three times those of the others alone), and if the other components lean
# on it on average: deflation gives most of what c shares to the first of them. With no other
# component to show that, it must be r > 10q.

#: A vector is a column if the column has this share of its squares.
ALONE = 0.9

#: Components that lean on a column have this share of their squares there. In theory it is a third;
#: noise lowers it.
LEANING = 0.1

#: The share of the second moment that a column must have, where other components lean on it, and
#: where there are none.
MOST = 0.9
NEARLY_ALL = 0.99

#: The number of rows of a block whose squares are added up, evenly spaced: shares need few.
ROWS_OF_A_BLOCK = 64


class ColumnSquares:
    """Some rows of every block and their squares, added up column by column."""

    def __init__(self) -> None:
        self._squares: FloatArray | None = None
        self._sums: FloatArray | None = None
        self._n_rows = 0
        self._exponent: int | None = None

    def update(self, rows: Any) -> None:
        """Look at some of the rows, dense or CSR."""
        n_rows = int(rows.shape[0])
        places = np.unique(
            np.linspace(0, n_rows - 1, min(n_rows, ROWS_OF_A_BLOCK)).astype(np.int64)
        )
        some = rows[places]
        dense: FloatArray = (some.toarray() if is_sparse(some) else some).astype(np.float64)
        size = largest(stored_numbers(dense))
        if size == 0 or not math.isfinite(size):  # such rows are refused elsewhere
            return
        if self._exponent is None:  # squares of very large and very small numbers are no numbers
            self._exponent = unit_exponent(size, 2, dense.dtype)
        with np.errstate(over="ignore", under="ignore"):
            dense = times_power_of_two(dense, -self._exponent)
            squares = np.sum(dense**2, axis=0)
            sums = np.sum(dense, axis=0)
            self._squares = squares if self._squares is None else self._squares + squares
            self._sums = sums if self._sums is None else self._sums + sums
            self._n_rows += len(dense)

    def share(self, column: int) -> float:
        """Return the share of the second moment that a column has; 0 if it is unknown."""
        if (
            self._squares is None
            or not np.isfinite(total := float(self._squares.sum()))
            or total == 0
        ):
            return 0.0
        return float(self._squares[column]) / total

    @property
    def mean_share(self) -> float:
        """The share of the second moment that the mean has; 0 if it is unknown."""
        if self._sums is None or self._squares is None:
            return 0.0
        with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
            share = float(self._sums @ self._sums) / self._n_rows / float(self._squares.sum())
        if math.isfinite(share):
            return share
        return 0.0


def dominant_column(vectors: FloatArray, squares: ColumnSquares) -> int | None:
    """Return the column that dominates, or None; `vectors` are those of the components.

    The component that is little else than this column need not be the largest: two others may
    nearly cancel each other.
    """
    column = int(np.argmax(np.max(np.abs(vectors), axis=1)))
    on_column = np.sort(vectors[column] ** 2)[::-1]
    if on_column[0] < ALONE:
        return None
    if on_column.size == 1:
        if squares.share(column) >= NEARLY_ALL:
            return column
        return None
    if squares.share(column) >= MOST and np.mean(on_column[1:]) >= LEANING:
        return column
    return None
