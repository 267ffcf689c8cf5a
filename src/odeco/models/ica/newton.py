"""The density of each source, by its score: the combination of eight functions that is nearest to −(log p)'.

For a density p with score ψ = −p'/p, partial integration gives E[ψ b] = E[b'] for every function b. So the combination
of functions b₁ … b₈ that is nearest to ψ in mean square has the coefficients Cov(b)⁻¹ E[b'], which are means over rows:
no density is estimated (Pham and Garat 1997; Cox 1985). The functions are y, y³, y/(1+y²)ᵐ for m = 1, 2, 3, and the
even y², 1/(1+y²), 1/(1+y²)². With r = 1/(1+y²), y²r = 1 − r: all products of two of them, and all derivatives, are
combinations of yᵃ and of rᵇ and y rᵇ. So a few sums a source say everything, without a transcendental function.

Functions stay beyond ±4 what they are there. A far row of one source would otherwise decide what the score of another
says, to which a little of it has leaked.

The density of each source as a histogram: for likelihoods, for samples and for pictures.

Newton's steps of the likelihood of independent sources, from sums over rows.

The likelihood of an unmixing W is stationary where E[ψᵢ(yᵢ) yⱼ] = 0 for i ≠ j, with y = W x and ψᵢ the score of source
i. Here yⱼ is cut off at ±4, c(yⱼ), which leaves the equation right for independent sources: in a heavy tail, one far
row would otherwise decide. With W replaced by (I + E) W, and sources that are nearly independent, each pair of entries
solves two equations,

    gᵢⱼ + hᵢ vⱼ Eᵢⱼ + dᵢ pⱼ Eⱼᵢ = 0   and   gⱼᵢ + hⱼ vᵢ Eⱼᵢ + dⱼ pᵢ Eᵢⱼ = 0,

where g = E[ψᵢ c(yⱼ)], h = E[ψᵢ'], v = E[c(yⱼ) yⱼ], p is the chance of |yⱼ| < 4 and d = E[ψᵢ yᵢ], which is 1 and is
taken as E[ψᵢ c(yᵢ)] / pᵢ (Pham and Garat 1997, section 4, where c(y) = y). Two Gaussian sources can be turned into each
other without a trace: hᵢhⱼ = 1, and the equations say only that they must not correlate. Where the determinant is not
clear of what noise gives, that is all that is asked of a pair.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from odeco._util.types import BoolArray, FloatArray

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


#: Sources have variance 1. Bins go from −10 to 10; what lies beyond counts in the first or the last.
N_BINS, _REACH = 200, 10.0

_WIDTH = 2 * _REACH / N_BINS

EDGES = np.linspace(-_REACH, _REACH, N_BINS + 1)


def histogram(sources: FloatArray) -> FloatArray:
    """Return how many values of each source (k x n) fall into each bin, k x 200."""
    k = len(sources)
    flat = _bins(sources) + np.arange(k)[:, None] * N_BINS
    counts: FloatArray = np.bincount(flat.ravel(), minlength=k * N_BINS).reshape(k, N_BINS).astype(np.float64)
    return counts


def log_densities(counts: FloatArray, sources: FloatArray) -> FloatArray:
    """Return the logarithm of the density of every value of sources (k x n); one row is spread over all bins."""
    density = (counts + 1 / N_BINS) / ((counts.sum(axis=1, keepdims=True) + 1) * _WIDTH)
    return np.take_along_axis(np.log(density), _bins(sources), axis=1)


def draw_sources(counts: FloatArray, n_rows: int, rng: np.random.RandomState) -> FloatArray:
    """Return n values of each source, k x n, drawn from its histogram."""
    shares = np.cumsum(counts, axis=1) / counts.sum(axis=1, keepdims=True)
    uniform = rng.uniform(size=(len(counts), n_rows))
    bins = np.array([np.searchsorted(row, draws, side="right") for row, draws in zip(shares, uniform, strict=True)])
    drawn: FloatArray = EDGES[np.minimum(bins, N_BINS - 1)] + _WIDTH * rng.uniform(size=bins.shape)
    return drawn


def _bins(sources: FloatArray) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    limited = np.clip((sources + _REACH) / _WIDTH, 0, N_BINS - 1)
    return limited.astype(np.int64)


#: At least this share of a source must lie within ±4; Chebyshev's inequality says 15/16.
_LEAST_WITHIN = 0.5

#: Rows whose sources are raised to powers at a time.
_PIECE = 1024

#: No entry of a step is larger: beyond this the equations say nothing.
_MOST = 0.5

#: A pair is told apart if n (hᵢhⱼ − 1) is above this. Scores that are fitted to n values of a Gaussian have n (h − 1)
#: of 77 ± 53 instead of 0, for any n; so two Gaussians have 154 ± 75, and hardly any pair of them more than 400.
_TOLD_APART = 400.0


@dataclass(frozen=True, eq=False)
class ScoreSums:
    """Sums over rows at one unmixing: those of powers of sources, and Σ ψ(y) c(y)ᵀ for the scores that were given."""

    powers: FloatArray
    cross: FloatArray

    @classmethod
    def of(cls, unmixing: FloatArray, columns: FloatArray, coefficients: FloatArray) -> ScoreSums:
        """Return the sums over the sources W x of rows (d x n, one a column), with scores of these coefficients."""
        total = cls.nothing(len(unmixing))
        for piece in pieces_of(columns):
            sums, powers = sum_powers(unmixing @ piece)
            total = total + cls(sums, score_values(coefficients, powers) @ powers[0].T)
        return total

    @classmethod
    def nothing(cls, n_sources: int) -> ScoreSums:
        """Return the sums over no rows."""
        return cls(np.zeros((N_SUMS, n_sources)), np.zeros((n_sources, n_sources)))

    def __add__(self, other: ScoreSums) -> ScoreSums:
        return ScoreSums(self.powers + other.powers, self.cross + other.cross)


def sum_sources(unmixing: FloatArray, columns: FloatArray) -> FloatArray:
    """Return the sums of powers of the sources W x of rows (d x n, one a column)."""
    total = np.zeros((N_SUMS, len(unmixing)))
    for piece in pieces_of(columns):
        total += sum_powers(unmixing @ piece)[0]
    return total


def pieces_of(columns: FloatArray) -> Iterator[FloatArray]:
    """Yield pieces of some columns each, so that all that is made of one stays in the cache."""
    for first in range(0, columns.shape[1], _PIECE):
        yield columns[:, first : first + _PIECE]


@dataclass(frozen=True, eq=False)
class NewtonStep:
    """A step W → (I + E) W, with rows then scaled so that sources have variance 1.

    Attributes
    ----------
    change : array, k x k
        The matrix E; its diagonal is zero.
    information : array
        E[ψ'] of each source, its Fisher information: 1 for a Gaussian and more for all others.
    told_apart : array of bool, k x k
        Which pairs of sources can be told apart.
    """

    change: FloatArray
    information: FloatArray
    told_apart: BoolArray

    def taken(self, unmixing: FloatArray, covariance: FloatArray | None, share: float = 1.0) -> FloatArray:
        """Return the unmixing after a share of the step, for rows of some covariance; None stands for I.

        The covariance is that of all rows. Scales that came from the rows of one pass would swing with far rows of
        sources with heavy tails, and no density fits at two scales.
        """
        after = unmixing + share * (self.change @ unmixing)
        across = after if covariance is None else after @ covariance
        scaled: FloatArray = after / np.sqrt(np.sum(across * after, axis=1))[:, None]
        return scaled

    @property
    def size(self) -> float:
        """The largest turn of one source towards another, of pairs that can be told apart."""
        return float(np.max(np.abs(self.change), where=self.told_apart, initial=0.0))


def newton_step(
    sums: ScoreSums, coefficients: FloatArray, *, n_seen: float | None = None, pairs: BoolArray | None = None
) -> NewtonStep:
    """Return the step that sums over rows ask for; pairs are told apart by `n_seen` rows, by default these.

    Pairs outside `pairs` are not told apart: two that are nearly Gaussian would otherwise turn for ever.
    """
    n_rows = float(sums.powers[0, 0])
    means = sums.powers / n_rows
    score_mean, information = score_means(coefficients, sums.powers)
    cross = sums.cross / n_rows - np.outer(score_mean, means[CUT])
    variance, within = means[BOTH] - means[CUT] * means[PLAIN], 1 - means[ABOVE] - means[BELOW]
    curvature = np.outer(information, variance)
    exchange = np.outer(np.diagonal(cross) / np.maximum(within, _LEAST_WITHIN), within)
    determinant = curvature * curvature.T - exchange * exchange.T
    told_apart = determinant * (n_rows if n_seen is None else n_seen) > _TOLD_APART
    if pairs is not None:
        told_apart &= pairs
    turn = -(curvature.T * cross - exchange * cross.T) / np.where(told_apart, determinant, 1.0)
    decorrelate = -(cross + cross.T) / (np.abs(curvature + curvature.T) + np.abs(exchange + exchange.T) + 1e-12)
    change = np.clip(np.where(told_apart, turn, decorrelate), -_MOST, _MOST)
    np.fill_diagonal(told_apart, False)
    np.fill_diagonal(change, 0.0)
    return NewtonStep(change, information, told_apart)
