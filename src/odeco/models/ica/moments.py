"""Mean and covariance of rows, summed block by block; units of columns; whitening."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import add

import numpy as np

from odeco._util.scale import unit_exponent
from odeco._util.threads import map_blocks
from odeco._util.types import FloatArray, IndexArray
from odeco.cp.whitening import Whitener
from odeco.models.engine.moments import SecondMoment

#: Number of rows of a block: their sources stay in the cache.
BLOCK = 4096

#: A direction with less than this share of the largest variance, of columns scaled to variance 1, is rounding error.
_MIN_VARIANCE = 1e-10

#: Number of factors of one column that are multiplied: two in a covariance, and two more in its determinants and
#: inverses.
_FACTORS = 4


def second_moment(rows: FloatArray) -> SecondMoment:
    """Return the moment of all rows, by blocks in their order."""
    return reduce(add, map_blocks(SecondMoment.of_block, blocks_of(rows), parallel=True))


def unit_exponents(rows: FloatArray, *, by_column: bool) -> IndexArray:
    """Return exponents e such that the squares of columns over 2^e neither overflow nor underflow; 0 where possible.

    Without `by_column`, all columns have the same exponent: for the leading directions of the covariance, which depend
    on the units of the columns.
    """
    sizes = np.maximum(rows.max(axis=0), -rows.min(axis=0))
    if not by_column:
        sizes[:] = sizes.max()
    return np.array([unit_exponent(float(size), _FACTORS, rows.dtype) for size in sizes], np.int64)


def scaled(rows: FloatArray, exponents: IndexArray) -> FloatArray:
    """Return the columns of rows over 2^e, which is exact."""
    return np.ldexp(rows, -exponents) if exponents.any() else rows


def log_volume(forward: FloatArray, exponents: IndexArray) -> float:
    """Return the log-determinant of a whitener (d x m) of scaled rows, as a map of rows that are not scaled."""
    if forward.shape[0] == forward.shape[1]:
        return float(np.linalg.slogdet(forward)[1] - exponents.sum() * np.log(2))
    common = int(exponents.min())
    inner = np.ldexp(forward, common - exponents[:, None])
    return float(np.linalg.slogdet(inner.T @ inner)[1] / 2 - common * forward.shape[1] * np.log(2))


def blocks_of(rows: FloatArray) -> Iterator[FloatArray]:
    """Yield blocks of rows."""
    for first in range(0, len(rows), BLOCK):
        yield rows[first : first + BLOCK]


def whiten(covariance: FloatArray, n_directions: int | None) -> Whitener:
    """Return the whitener of the leading directions of the covariance, or of all directions in which rows vary.

    All directions are found in columns of variance 1, so that the units of columns do not matter. The leading
    directions do depend on the units, which are left as they are, as in scikit-learn.
    """
    rank, scale = _rank_and_scale(covariance)
    if n_directions is None or n_directions == rank == len(covariance):
        inner = Whitener.from_moment(covariance / np.outer(scale, scale), rank)
        return Whitener(inner.forward / scale[:, None], inner.backward * scale[:, None])
    if n_directions > rank:
        raise ValueError(
            f"`n_components` must be at most the number of directions in which rows vary. Got {n_directions}, and rows "
            f"vary in {rank}. Lower n_components, or pass None."
        )
    return Whitener.from_moment(covariance, n_directions)


def _rank_and_scale(covariance: FloatArray) -> tuple[int, FloatArray]:
    variances = np.diagonal(covariance)
    scale = np.sqrt(np.where(variances > 0, variances, 1.0))
    values = np.linalg.eigvalsh(covariance / np.outer(scale, scale))
    rank = int(np.sum(values > _MIN_VARIANCE * max(values[-1], 0.0)))
    if rank == 0:
        raise ValueError("Rows must vary for sources to be found. All rows are equal. Pass other rows.")
    return rank, scale
