"""Rows from outside, made into what the rest of the library works with."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from scipy import sparse

from odeco.errors import BadRowError


def as_rows(rows: Any, n_features: int | None = None) -> Any:
    """Return rows of data as a checked float32 or float64 array or CSR array, without a copy where possible.

    Integers and booleans, as counts often come, are converted to float64.
    """
    if sparse.issparse(rows):
        array: Any = sparse.csr_array(cast("Any", rows))
        stored = array.data
    else:
        array = stored = np.asarray(rows)
    if stored.dtype.kind in "iub":
        array = array.astype(np.float64)
    elif stored.dtype not in (np.float32, np.float64):
        raise TypeError(
            f"Rows must hold float32, float64 or integers. Got {stored.dtype}. Convert them with astype(float)."
        )
    if array.ndim != 2 or array.shape[1] == 0 or (n_features is not None and array.shape[1] != n_features):
        wanted = "(n, d)" if n_features is None else f"(n, {n_features})"
        raise ValueError(f"Rows must have shape {wanted}. Got shape {array.shape}. Pass X[None, :] for a single row.")
    return array


def check_private_rows(rows: Any) -> None:
    """Raise unless rows are an array: the type NumPy gives to a list depends on its values, as would an error."""
    if not (isinstance(rows, np.ndarray) or sparse.issparse(rows)):
        raise TypeError(f"Private rows must be a NumPy array or a CSR array. Got {type(rows).__name__}. Convert them.")


def bad_row_error(rows: Any) -> BadRowError:
    """Say which row is not finite, or that all are and only their products are not."""
    stored = rows if isinstance(rows, np.ndarray) else rows.data
    bad = np.argwhere(~np.isfinite(stored))
    if bad.size == 0:
        largest = float(np.abs(stored).max())
        return BadRowError(
            f"Rows must be small enough for their powers to be finite. The largest entry is {largest:.3g}. "
            "Nothing of this batch was used; divide all rows by a constant."
        )
    first = int(bad[0][0])
    row = first if isinstance(rows, np.ndarray) else int(np.searchsorted(rows.indptr, first, side="right")) - 1
    found = "NaN" if np.isnan(stored[tuple(bad[0])]) else "infinity"
    return BadRowError(
        f"Row {row:,} holds {found}. Nothing of this batch was used; fix or drop the row and call partial_fit again."
    )


def check_same_kind(before: Any, rows: Any) -> None:
    """Raise if rows are of another kind or type than those before them: their sums would not be the same bits."""
    kinds = [f"{'dense' if isinstance(each, np.ndarray) else 'CSR'} {each.dtype}" for each in (before, rows)]
    if kinds[0] != kinds[1]:
        raise ValueError(
            f"All rows of a run must be of one kind. It began with {kinds[0]} rows. Got {kinds[1]}. Convert these rows."
        )
