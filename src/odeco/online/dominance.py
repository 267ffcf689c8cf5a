"""A column that outweighs all others: an index that was left in, a year, a number in another unit.

Let x_c be such a column, r its root mean square, and q that of all other columns together. Of a moment of order 3 the
entry of c alone is of size r³, and so the leading component is the column itself. The next are not those of the other
columns, of size q³, but what c shares with them: E[x_c x_j x_k], of size r q² wherever the mean of x_c is not zero. The
unit vector u at which u_c uⱼ u_k is largest has u_c² = 1/3 (at order p, 1 − 2/p), so these components lean on column c,
which components beside e_c that are orthogonal to it never do.

So a column is said to dominate if the leading vector is the column, if r > 3q (the moments that it shares with the
others are then three times those of the others alone), and if the other components lean on it on average: deflation
gives most of what c shares to the first of them. With no other component to show that, it must be r > 10q.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from odeco._util.arguments import largest, times_power_of_two, unit_exponent
from odeco._util.types import FloatArray
from odeco.decompose.result import Result
from odeco.errors import DominantColumnWarning
from odeco.io.rows import is_sparse, stored_numbers

#: A vector is a column if the column has this share of its squares.
ALONE = 0.9

#: Components that lean on a column have this share of their squares there. In theory it is a third; noise lowers it.
LEANING = 0.1

#: The share of the second moment that a column must have, where other components lean on it, and where there are none.
MOST, NEARLY_ALL = 0.9, 0.99

#: Rows of a block that are looked at, evenly spaced: shares need few.
ROWS_OF_A_BLOCK = 64


class ColumnSquares:
    """The squares of some rows of every block, added up column by column."""

    def __init__(self) -> None:
        self._squares: FloatArray | None = None
        self._exponent: int | None = None

    def update(self, rows: Any) -> None:
        """Look at some of the rows, dense or CSR."""
        n_rows = int(rows.shape[0])
        if n_rows == 0:
            return
        places = np.unique(np.linspace(0, n_rows - 1, min(n_rows, ROWS_OF_A_BLOCK)).astype(np.int64))
        some = rows[places]
        dense: FloatArray = (some.toarray() if is_sparse(some) else some).astype(np.float64)
        size = largest(stored_numbers(dense))
        if size == 0 or not math.isfinite(size):  # such rows are refused elsewhere
            return
        if self._exponent is None:  # squares of very large and very small numbers are no numbers
            self._exponent = unit_exponent(size, 2, dense.dtype)
        with np.errstate(over="ignore", under="ignore"):
            squares = np.sum(times_power_of_two(dense, -self._exponent) ** 2, axis=0)
            self._squares = squares if self._squares is None else self._squares + squares

    def share(self, column: int) -> float:
        """Return the share of the second moment that a column has; 0 if it is unknown."""
        if self._squares is None or not np.isfinite(total := float(self._squares.sum())) or total == 0:
            return 0.0
        return float(self._squares[column]) / total


def dominant_column(vectors: FloatArray, squares: ColumnSquares) -> int | None:
    """Return the column that dominates, or None; `vectors` are those of the components, the leading one first."""
    column = int(np.argmax(np.abs(vectors[:, 0])))
    on_column = vectors[column] ** 2
    if on_column[0] < ALONE:
        return None
    if on_column.size == 1:
        return column if squares.share(column) >= NEARLY_ALL else None
    return column if squares.share(column) >= MOST and np.mean(on_column[1:]) >= LEANING else None


def warn_of_dominant_column(
    result: Result, squares: ColumnSquares, names: Sequence[object] | None, *, stacklevel: int
) -> None:
    """Warn if a column dominates, by its name if it has one."""
    column = dominant_column(result.components.vectors, squares)
    if column is not None:
        name = str(names[column]) if names is not None and len(names) == result.components.dimension else None
        warning = DominantColumnWarning(column, name, squares.share(column), result.components.n_components)
        warnings.warn(warning, stacklevel=stacklevel + 1)
