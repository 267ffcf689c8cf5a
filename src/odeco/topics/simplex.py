"""An estimate with negative entries is replaced by the nearest distribution."""

from __future__ import annotations

import numpy as np

from odeco._types import FloatArray

#: Newton's method ends after finitely many steps; this many are never needed in practice.
_MOST_STEPS = 100
#: A row is scaled to sum 1, but its positive mass is not made larger than this: beyond it the sum is mostly noise.
_MOST_POSITIVE_MASS = 2.0


def onto_simplex(rows: FloatArray, variances: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Project rows onto the simplex in place, and return with them the share of their mass that was negative.

    A row that is mostly negative is taken with the other sign. Then it is scaled to sum 1 and projected in the norm
    Σ x²ᵥ/variancesᵥ, in which errors of words count by how uncertain they are: x becomes max(x − τ variances, 0), with
    τ such that the sum is 1.
    """
    negative_share = np.empty(rows.shape[0])
    for index, row in enumerate(rows):
        positive = float(np.sum(row, where=row > 0))
        negative = positive - float(np.sum(row))
        if negative > positive:
            np.negative(row, out=row)
            positive, negative = negative, positive
        negative_share[index] = negative / max(positive + negative, np.finfo(np.float64).tiny)
        divisor = max(positive - negative, positive / _MOST_POSITIVE_MASS)
        if divisor > 0:
            np.divide(row, divisor, out=row)
            _project(row, variances)
        else:  # nothing at all was found of this topic
            row[:] = variances
        np.divide(row, row.sum(), out=row)
    return rows, negative_share


def _project(row: FloatArray, variances: FloatArray) -> None:
    """Replace x by max(x − τ v, 0) with sum 1; Newton's method finds τ, and from below it never overshoots."""
    kept = np.flatnonzero(row > 0)
    values, weights = row[kept], variances[kept]
    level = 0.0
    for _ in range(_MOST_STEPS):
        above = values > level * weights
        slope = float(np.sum(weights, where=above))
        excess = float(np.sum(values, where=above)) - level * slope - 1
        if excess <= 1e-12 or slope <= 0:
            break
        level += excess / slope
    row.fill(0)
    row[kept] = np.maximum(values - level * weights, 0)
