"""The density of each source, by its score: the combination of eight functions that is nearest to −(log p)'.

For a density p with score ψ = −p'/p, partial integration gives E[ψ b] = E[b'] for every function b. So the combination
of functions b₁ … b₈ that is nearest to ψ in mean square has the coefficients Cov(b)⁻¹ E[b'], which are means over rows:
no density is estimated (Pham and Garat 1997; Cox 1985). The functions are y, y³, y/(1+y²)ᵐ for m = 1, 2, 3, and the
even y², 1/(1+y²), 1/(1+y²)². With r = 1/(1+y²), y²r = 1 − r: all products of two of them, and all derivatives, are
combinations of yᵃ and of rᵇ and y rᵇ. So a few sums a source say everything, without a transcendental function.

Functions stay beyond ±4 what they are there. A far row of one source would otherwise decide what the score of another
says, to which a little of it has leaked.
"""

from __future__ import annotations

import numpy as np

from odeco._types import FloatArray

#: The functions yᵃ rᵇ by their exponents.
_FUNCTIONS = ((1, 0), (1, 1), (1, 2), (1, 3), (0, 1), (0, 2), (2, 0), (3, 0))
#: What is summed over rows, of sources cut off at ±4: yᵃ, rᵇ and y rᵇ, by their exponents. The first is their number.
_POWERS = (*((a, 0) for a in range(7)), *((0, b) for b in range(1, 7)), *((1, b) for b in range(1, 6)))
#: Then how many values lie above and below, the sum of values that are not cut off, and of both multiplied.
ABOVE, BELOW, PLAIN, BOTH = range(len(_POWERS), len(_POWERS) + 4)
#: Where the sum of values that are cut off stands.
CUT = _POWERS.index((1, 0))
N_SUMS, N_FUNCTIONS = len(_POWERS) + 4, len(_FUNCTIONS)
_FAR = 4.0
#: Functions are scaled to variance 1, and this is added, so that a source with few values has a score as well.
_RIDGE = 1e-5


def _reduced(a: int, b: int) -> FloatArray:
    """Return yᵃ rᵇ as a combination of what is summed."""
    if a >= 2 and b >= 1:
        return _reduced(a - 2, b - 1) - _reduced(a - 2, b)
    unit: FloatArray = np.eye(N_SUMS)[_POWERS.index((a, b))]
    return unit


def _derivative(a: int, b: int) -> FloatArray:
    """Return (yᵃ rᵇ)' = a yᵃ⁻¹ rᵇ − 2b yᵃ⁺¹ rᵇ⁺¹ as a combination of what is summed."""
    total = np.zeros(N_SUMS)
    if a:
        total += a * _reduced(a - 1, b)
    if b:
        total -= 2 * b * _reduced(a + 1, b + 1)
    near = 1 / (1 + _FAR**2)
    for place, y in ((ABOVE, _FAR), (BELOW, -_FAR)):  # a function that stays what it is has no derivative
        total[place] = -(a * y ** (a - 1) * near**b if a else 0.0) + 2 * b * y ** (a + 1) * near ** (b + 1)
    return total


_MEANS = np.array([_reduced(*each) for each in _FUNCTIONS])
_DERIVATIVES = np.array([_derivative(*each) for each in _FUNCTIONS])
_PRODUCTS = np.array([[_reduced(a + c, b + d) for c, d in _FUNCTIONS] for a, b in _FUNCTIONS])


def sum_powers(sources: FloatArray) -> tuple[FloatArray, tuple[FloatArray, ...]]:
    """Return the sums over rows of sources (k x n, one row a column) and the powers that `score_values` needs."""

    def dot(first: FloatArray, second: FloatArray) -> FloatArray:
        summed: FloatArray = np.einsum("kn,kn->k", first, second)
        return summed

    y = np.clip(sources, -_FAR, _FAR)
    y2 = y * y
    y3 = y2 * y
    r = 1 / (1 + y2)
    r2 = r * r
    r3 = r2 * r
    yr = y * r
    number = np.full(len(y), float(y.shape[1]))
    powers = (number, y.sum(axis=1), dot(y, y), dot(y, y2), dot(y2, y2), dot(y2, y3), dot(y3, y3))
    even = (r.sum(axis=1), dot(r, r), dot(r, r2), dot(r2, r2), dot(r2, r3), dot(r3, r3))
    odd = (dot(y, r), dot(y, r2), dot(y, r3), dot(yr, r3), dot(yr * r, r3))
    beyond = (np.sum(sources > _FAR, axis=1), np.sum(sources < -_FAR, axis=1))
    plain = (sources.sum(axis=1), dot(y, sources))
    return np.array((*powers, *even, *odd, *beyond, *plain)), (y, y2, r, r2, r3)


def fit_scores(sums: FloatArray) -> FloatArray:
    """Return the coefficients of the score of each source, k x 8, from the sums over rows."""
    means = sums / sums[0]
    first = (_MEANS @ means).T
    covariance = np.einsum("pqs,sk->kpq", _PRODUCTS, means) - first[:, :, None] * first[:, None, :]
    scale = np.sqrt(np.maximum(np.einsum("kpp->kp", covariance), np.finfo(np.float64).tiny))
    correlation = covariance / (scale[:, :, None] * scale[:, None, :]) + _RIDGE * np.eye(N_FUNCTIONS)
    derivatives = (_DERIVATIVES @ means).T
    solved: FloatArray = np.linalg.solve(correlation, (derivatives / scale)[:, :, None])[:, :, 0] / scale
    return solved


def score_values(coefficients: FloatArray, powers: tuple[FloatArray, ...]) -> FloatArray:
    """Return ψ of every source and row, k x n, from the powers that `sum_powers` returned."""
    y, y2, r, r2, r3 = powers
    c = coefficients.T[:, :, None]
    values: FloatArray = y * (c[0] + c[1] * r + c[2] * r2 + c[3] * r3 + c[7] * y2)
    values += c[4] * r
    values += c[5] * r2
    values += c[6] * y2
    return values


def score_means(coefficients: FloatArray, sums: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the means of ψ and of its derivative for each source."""
    means = sums / sums[0]
    return np.sum(coefficients.T * (_MEANS @ means), axis=0), np.sum(coefficients.T * (_DERIVATIVES @ means), axis=0)
