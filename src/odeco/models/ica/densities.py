"""The density of each source: its score function, fitted by regression, and its histogram.

**Score function.** For a density p with score ψ = −p'/p, partial integration gives E[ψ b] = E[b'] for every function b.
So the linear combination of functions b₁ … b₈ that is nearest to ψ in mean square has the coefficients Cov(b)⁻¹ E[b'],
which are means over rows: no density is estimated (Pham and Garat 1997; Cox 1985). The functions are y, y³, y/(1+y²)ᵐ
for m = 1, 2, 3, and the even y², 1/(1+y²), 1/(1+y²)². With r = 1/(1+y²), y²r = 1 − r: all products of two of them, and
all derivatives, are combinations of yᵃ and of rᵇ and y rᵇ. So a few power sums per source are sufficient statistics,
and no transcendental function is needed.

Values are clipped to ±4, so that functions are constant beyond. Otherwise one outlier of one source would decide the
score of another into which a little of it has leaked.

**Histogram.** For likelihoods, samples and pictures, a source has 200 bins from −10 to 10.
"""

from __future__ import annotations

import numpy as np

from odeco._util.types import FloatArray, IndexArray

#: The functions yᵃ rᵇ by their exponents.
_FUNCTIONS = ((1, 0), (1, 1), (1, 2), (1, 3), (0, 1), (0, 2), (2, 0), (3, 0))

#: The powers of clipped sources that are summed over rows, by their exponents: yᵃ, rᵇ and y rᵇ. The first is a count.
_POWERS = (*((a, 0) for a in range(7)), *((0, b) for b in range(1, 7)), *((1, b) for b in range(1, 6)))

#: Further sums: the number of values above and below the limits, the values before clipping, and their products with
#: the clipped values.
ABOVE, BELOW, UNCLIPPED, CROSS = range(len(_POWERS), len(_POWERS) + 4)

#: The place of the sum of clipped values.
CLIPPED = _POWERS.index((1, 0))

N_SUMS, N_FUNCTIONS = len(_POWERS) + 4, len(_FUNCTIONS)

#: Sources are clipped to plus and minus this.
_LIMIT = 4.0

#: Added to the variances of functions scaled to variance 1, so that a source with few distinct values has a score too.
_RIDGE = 1e-5

#: A histogram has this number of bins, from −_RANGE to _RANGE. Values beyond count in the first or the last.
N_BINS, _RANGE = 200, 10.0

_BIN_WIDTH = 2 * _RANGE / N_BINS

EDGES = np.linspace(-_RANGE, _RANGE, N_BINS + 1)


def _reduced(a: int, b: int) -> FloatArray:
    """Return yᵃ rᵇ as a combination of the power sums."""
    if a >= 2 and b >= 1:
        return _reduced(a - 2, b - 1) - _reduced(a - 2, b)
    unit: FloatArray = np.eye(N_SUMS)[_POWERS.index((a, b))]
    return unit


def _derivative(a: int, b: int) -> FloatArray:
    """Return (yᵃ rᵇ)' = a yᵃ⁻¹ rᵇ − 2b yᵃ⁺¹ rᵇ⁺¹ as a combination of the power sums."""
    total = np.zeros(N_SUMS)
    if a:
        total += a * _reduced(a - 1, b)
    if b:
        total -= 2 * b * _reduced(a + 1, b + 1)
    r = 1 / (1 + _LIMIT**2)
    for place, y in ((ABOVE, _LIMIT), (BELOW, -_LIMIT)):  # beyond the limits the derivative is zero
        total[place] = -(a * y ** (a - 1) * r**b if a else 0.0) + 2 * b * y ** (a + 1) * r ** (b + 1)
    return total


_MEANS = np.array([_reduced(*each) for each in _FUNCTIONS])

_DERIVATIVES = np.array([_derivative(*each) for each in _FUNCTIONS])

_PRODUCTS = np.array([[_reduced(a + c, b + d) for c, d in _FUNCTIONS] for a, b in _FUNCTIONS])


def sum_powers(sources: FloatArray) -> tuple[FloatArray, tuple[FloatArray, ...]]:
    """Return the power sums over the rows of sources (k x n, one row per column), and the powers for `score_values`."""

    def dot(first: FloatArray, second: FloatArray) -> FloatArray:
        summed: FloatArray = np.einsum("kn,kn->k", first, second)
        return summed

    y = np.clip(sources, -_LIMIT, _LIMIT)
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
    beyond = (np.sum(sources > _LIMIT, axis=1), np.sum(sources < -_LIMIT, axis=1))
    unclipped = (sources.sum(axis=1), dot(y, sources))
    return np.array((*powers, *even, *odd, *beyond, *unclipped)), (y, y2, r, r2, r3)


def fit_scores(sums: FloatArray) -> FloatArray:
    """Return the coefficients of the score function of each source, k x 8, from its power sums."""
    means = sums / sums[0]
    first = (_MEANS @ means).T
    covariance = np.einsum("pqs,sk->kpq", _PRODUCTS, means) - first[:, :, None] * first[:, None, :]
    scale = np.sqrt(np.maximum(np.einsum("kpp->kp", covariance), np.finfo(np.float64).tiny))
    correlation = covariance / (scale[:, :, None] * scale[:, None, :]) + _RIDGE * np.eye(N_FUNCTIONS)
    derivatives = (_DERIVATIVES @ means).T
    coefficients: FloatArray = np.linalg.solve(correlation, (derivatives / scale)[:, :, None])[:, :, 0] / scale
    return coefficients


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


def histogram(sources: FloatArray) -> FloatArray:
    """Return the number of values of each source (k x n) in each bin, k x 200."""
    k = len(sources)
    flat = _bins(sources) + np.arange(k)[:, None] * N_BINS
    counts: FloatArray = np.bincount(flat.ravel(), minlength=k * N_BINS).reshape(k, N_BINS).astype(np.float64)
    return counts


def log_densities(counts: FloatArray, sources: FloatArray) -> FloatArray:
    """Return the log-density of every value of sources (k x n); one pseudo-row is spread over all bins."""
    density = (counts + 1 / N_BINS) / ((counts.sum(axis=1, keepdims=True) + 1) * _BIN_WIDTH)
    return np.take_along_axis(np.log(density), _bins(sources), axis=1)


def draw_sources(counts: FloatArray, n_rows: int, rng: np.random.RandomState) -> FloatArray:
    """Draw n values of each source from its histogram, k x n."""
    cumulative = np.cumsum(counts, axis=1) / counts.sum(axis=1, keepdims=True)
    uniform = rng.uniform(size=(len(counts), n_rows))
    bins = np.array([np.searchsorted(row, draws, side="right") for row, draws in zip(cumulative, uniform, strict=True)])
    drawn: FloatArray = EDGES[np.minimum(bins, N_BINS - 1)] + _BIN_WIDTH * rng.uniform(size=bins.shape)
    return drawn


def _bins(sources: FloatArray) -> IndexArray:
    limited = np.clip((sources + _RANGE) / _BIN_WIDTH, 0, N_BINS - 1)
    return limited.astype(np.int64)
