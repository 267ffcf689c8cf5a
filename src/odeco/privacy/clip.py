"""Clip rows to a bound on their norm: each row on its own, and without a message about any of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from odeco._util.threads import map_blocks
from odeco._util.types import FloatArray, IndexArray
from odeco.io.rows import is_sparse

#: The scaled norm is below the bound by this factor.
_MARGIN = 1 - 2.0**-32

#: Squares of numbers between 1 over this and this are normal, and so are quotients of two such numbers.
_SURE = 1e100

#: Number of lanes in which dense rows are clipped.
_LANES = 4

#: Numbers of dense rows that are clipped while the cache holds them.
_CACHED_SIZE = 2**17


def clipped_rows(rows: Any, norm_bound: float) -> Any:
    """Return rows in double precision, those that are not finite as zeros and those beyond the bound scaled down to it.

    What becomes of a row depends on that row alone. The scaled norm aims a factor 1 − 2⁻³² below the bound, more than
    the rounding errors of a norm of up to 2²⁰ numbers. Rows so long or so short that their squares, or the factor that
    brings them within the bound, would leave the normal range of double precision are divided by a power of two first.
    """
    if is_sparse(rows):
        return _clipped_sparse(rows, norm_bound)
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


@np.errstate(all="ignore")  # a warning about the data would be an answer without noise
def _clip_dense(rows: Any, data: FloatArray, norm_bound: float) -> None:
    """Write the clipped rows to `data`."""
    data[:] = rows
    allowed = norm_bound * _MARGIN
    squares = np.einsum("ij,ij->i", data, data)
    lengths = np.sqrt(squares)
    # So written that NaN is unsure too.
    sure = (squares > _SURE**-2) & (squares < _SURE**2) & (allowed > 1 / _SURE)
    factors = np.where(lengths > allowed, allowed / lengths, 1.0)
    data *= np.where(sure, factors, 1.0)[:, None]
    if not sure.all():
        some = data[~sure]
        largest = np.abs(some).max(axis=1, initial=0.0)

        def norms(exponents: IndexArray) -> FloatArray:
            lengths: FloatArray = np.linalg.norm(np.ldexp(some, exponents[:, None]), axis=1)
            return lengths

        units, factors = _in_units(largest, norms, allowed)
        scaled = np.where((factors == 0)[:, None], 0.0, np.ldexp(some, units[:, None]) * factors[:, None])
        data[~sure] = np.where(np.isnan(factors)[:, None], some, scaled)


@np.errstate(all="ignore")  # a warning about the data would be an answer without noise
def _clipped_sparse(rows: Any, norm_bound: float) -> Any:
    kept = sparse.csr_array(rows, dtype=np.float64, copy=True)
    kept.has_canonical_format = False  # the flag may be wrong
    kept.sum_duplicates()
    n_rows = kept.shape[0]
    owner = np.repeat(np.arange(n_rows), np.diff(kept.indptr))
    largest = np.zeros(n_rows)
    np.maximum.at(largest, owner, np.abs(kept.data))  # NaN and infinity stay what they are

    def norms(exponents: IndexArray) -> FloatArray:
        return np.sqrt(np.bincount(owner, np.ldexp(kept.data, exponents[owner]) ** 2, minlength=n_rows))

    units, factors = _in_units(largest, norms, norm_bound * _MARGIN)
    scaled = np.ldexp(kept.data, units[owner]) * factors[owner]
    kept.data = np.where(np.isnan(factors[owner]), kept.data, np.where(factors[owner] == 0, 0.0, scaled))
    return kept


def _in_units(
    largest: FloatArray, norms: Callable[[IndexArray], FloatArray], allowed: float
) -> tuple[IndexArray, FloatArray]:
    """Return for rows with these largest entries the exponent of a power of two, and the factor after it.

    Times 2 to that exponent, the largest entry of a row is between 1/2 and 1, and its norm between 1/2 and √d: nothing
    over- or underflows, and the factor is no subnormal number. The factor is NaN for rows within the bound, which stay
    as they are, and 0 for rows that are not finite. `norms` returns the norms of all rows times powers of two.
    """
    usable = np.isfinite(largest)
    exponents = -np.frexp(np.where(usable, largest, 0.0))[1].astype(np.int64)
    lengths = norms(exponents)
    within = np.ldexp(lengths, -exponents) <= allowed
    factors = np.where(usable & np.isfinite(lengths), np.where(within, np.nan, allowed / lengths), 0.0)
    return exponents, factors


def as_probabilities(numbers: FloatArray) -> FloatArray:
    """Return rows of numbers as probabilities whose sum is at most one, whatever the numbers are.

    Not a number and negative count as 0, and a row with a sum above one is divided by it. What becomes of a row depends
    on that row alone. Responsibilities, which have these properties but for rounding, stay as they are.
    """
    with np.errstate(all="ignore"):  # a warning about the data would be an answer without noise
        usable = np.where(numbers > 0, np.minimum(numbers, 1.0), 0.0)
        probabilities: FloatArray = usable / np.maximum(usable.sum(axis=1, keepdims=True), 1.0)
    return probabilities
