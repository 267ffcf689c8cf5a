"""Rows brought within a bound on their norm, one row at a time and without a word about any of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from odeco._threads import map_blocks
from odeco._types import FloatArray

#: Dense rows are clipped in so many lanes.
_LANES = 4
#: Numbers of dense rows that are clipped while the cache holds them.
_CACHED_SIZE = 2**17


def clipped_rows(rows: Any, norm_bound: float) -> Any:
    """Return rows in double precision, those that are not finite as zeros and those beyond the bound scaled down to it.

    What becomes of a row depends on that row alone. The scaled norm aims a factor 1 − 2⁻³² below the bound, more than
    the rounding errors of a norm of up to 2²⁰ numbers.
    """
    if isinstance(rows, np.ndarray):
        data = np.empty(rows.shape)
        height = max(1, _CACHED_SIZE // max(1, rows.shape[1]))
        starts = range(0, rows.shape[0], height)

        def clip(lane: int) -> None:
            for start in starts[lane::_LANES]:
                part = slice(start, start + height)
                _clip_dense(rows[part], data[part], norm_bound)

        for _ in map_blocks(clip, range(_LANES), parallel=len(starts) >= _LANES):
            pass
        return data
    return _clipped_sparse(rows, norm_bound)


@np.errstate(all="ignore")  # a warning about the data would be an answer without noise
def _clip_dense(rows: Any, data: FloatArray, norm_bound: float) -> None:
    """Write the clipped rows to `data`."""
    data[:] = rows
    squares = np.einsum("ij,ij->i", data, data)
    unsure = ~((squares > 1e-200) & (squares < 1e200))  # zero, too small or large to be squared, or not finite
    lengths = np.sqrt(squares)
    if unsure.any():
        some = data[unsure]
        some[~np.isfinite(some).all(axis=1)] = 0.0
        data[unsure] = some
        lengths[unsure] = _lengths(
            np.abs(some).max(axis=1, initial=0.0), lambda unit: np.linalg.norm(some * unit, axis=1)
        )
    data *= _shrinkage(lengths, norm_bound)


@np.errstate(all="ignore")  # a warning about the data would be an answer without noise
def _clipped_sparse(rows: Any, norm_bound: float) -> Any:
    kept = sparse.csr_array(rows, dtype=np.float64, copy=True)
    kept.sum_duplicates()
    owner = np.repeat(np.arange(kept.shape[0]), np.diff(kept.indptr))
    bad = np.zeros(kept.shape[0], bool)
    bad[owner[~np.isfinite(kept.data)]] = True
    kept.data[bad[owner]] = 0.0
    largest = np.zeros(kept.shape[0])
    np.maximum.at(largest, owner, np.abs(kept.data))

    def norms(unit: FloatArray) -> FloatArray:
        squares = np.bincount(owner, (kept.data * unit[owner, 0]) ** 2, minlength=kept.shape[0])
        return np.sqrt(squares)

    kept.data *= _shrinkage(_lengths(largest, norms), norm_bound)[owner, 0]
    return kept


def _lengths(largest: FloatArray, norms: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """Return the norms of rows with these largest entries; `norms` takes those of rows times a factor each."""
    unit = 1 / np.where(largest > 0, largest, 1.0)  # largest entry 1: squares cannot overflow
    unit = np.where(np.isfinite(unit), unit, 1.0)
    return norms(unit[:, None]) / unit


def _shrinkage(lengths: FloatArray, norm_bound: float) -> FloatArray:
    """Return the factor, at most 1, that brings each row within the bound."""
    allowed = norm_bound * (1 - 2.0**-32)
    factors: FloatArray = np.where(lengths > allowed, allowed / np.where(lengths > 0, lengths, 1.0), 1.0)
    return factors[:, None]
