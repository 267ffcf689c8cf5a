"""Newton's method for the likelihood of an unmixing matrix, with score functions fitted to the
sources.

**Score function.** For a density p with score ψ = −p'/p, partial integration gives E[ψ b] = E[b']
for every function b. So the linear combination of functions b₁ … b₈ that is nearest to ψ in mean
square has the coefficients Cov(b)⁻¹ E[b'], which are means over rows: no density is estimated (Pham
and Garat 1997; Cox 1985). The functions are y, y³, y/(1+y²)ᵐ for m = 1, 2, 3, and the even y²,
1/(1+y²), 1/(1+y²)². With r = 1/(1+y²), y²r = 1 − r: all products of two of them, and all
derivatives, are combinations of yᵃ and of rᵇ and y rᵇ. So a few power sums per source are
sufficient statistics, and no transcendental function is needed.

Values are clipped to ±4, so that functions are constant beyond. Otherwise one outlier of one source
would decide the score of another into which a little of it has leaked.

**Newton's method.** The likelihood of an unmixing matrix W is stationary where E[ψᵢ(yᵢ) yⱼ] = 0 for
i ≠ j, with y = W x and ψᵢ the score function of source i. Here yⱼ is clipped to ±4, c(yⱼ), which
keeps the equation valid for independent sources: otherwise one outlier of a heavy tail would
decide. With W replaced by (I + E) W, and sources that are nearly independent, each pair of entries
solves two equations,

    gᵢⱼ + hᵢ vⱼ Eᵢⱼ + dᵢ pⱼ Eⱼᵢ = 0   and   gⱼᵢ + hⱼ vᵢ Eⱼᵢ + dⱼ pᵢ Eᵢⱼ = 0,

where g = E[ψᵢ c(yⱼ)], h = E[ψᵢ'], v = E[c(yⱼ) yⱼ], p is the probability of |yⱼ| < 4 and d = E[ψᵢ
yᵢ], which is 1 and is taken as E[ψᵢ c(yᵢ)] / pᵢ (Pham and Garat 1997, section 4, where c(y) = y).
Two Gaussian sources can be rotated into each other without a trace: hᵢhⱼ = 1, and the equations
only say that they must be uncorrelated. Where the determinant does not stand clear of noise, a pair
is only decorrelated.

Where sources depend on each other, as in patches of images, these steps may not settle. The
likelihood itself is then maximised (`odeco.models.ica.likelihood`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from odeco._util.types import BoolArray, FloatArray
from odeco.models.ica.likelihood import HistogramLikelihood, maximize_likelihood, scale_to_unit

#: The functions yᵃ rᵇ by their exponents.
_FUNCTIONS = ((1, 0), (1, 1), (1, 2), (1, 3), (0, 1), (0, 2), (2, 0), (3, 0))

#: The powers of clipped sources that are summed over rows, by their exponents: yᵃ, rᵇ and y rᵇ. The
#: first is a count.
_POWERS = (
    *((a, 0) for a in range(7)),
    *((0, b) for b in range(1, 7)),
    *((1, b) for b in range(1, 6)),
)

#: Further sums: the number of values above and below the limits, the values before clipping, and
#: their products with the clipped values.
ABOVE, BELOW, UNCLIPPED, CROSS = range(len(_POWERS), len(_POWERS) + 4)

#: The place of the sum of clipped values.
CLIPPED = _POWERS.index((1, 0))


N_SUMS = len(_POWERS) + 4
N_FUNCTIONS = len(_FUNCTIONS)

#: Sources are clipped to plus and minus this.
_LIMIT = 4.0

#: A function of a source varies at least this much: of sources with two values some do not, and
#: would get coefficients that overflow.
_LEAST_VARIANCE = 1e-30

#: Added to the variances of functions scaled to variance 1, so that a source with few distinct
#: values has a score too.
_RIDGE = 1e-5


def _reduced(a: int, b: int) -> FloatArray:
    """Return yᵃ rᵇ as a combination of the power sums."""
    if a >= 2 and b >= 1:
        return _reduced(a - 2, b - 1) - _reduced(a - 2, b)
    return np.asarray(np.eye(N_SUMS)[_POWERS.index((a, b))])


def _derivative(a: int, b: int) -> FloatArray:
    """Return (yᵃ rᵇ)' = a yᵃ⁻¹ rᵇ − 2b yᵃ⁺¹ rᵇ⁺¹ as a combination of the power sums."""
    total = np.zeros(N_SUMS)
    if a:
        total += a * _reduced(a - 1, b)
    if b:
        total -= 2 * b * _reduced(a + 1, b + 1)
    r = 1 / (1 + _LIMIT**2)
    for place, y in ((ABOVE, _LIMIT), (BELOW, -_LIMIT)):  # beyond the limits the derivative is zero
        total[place] = -(a * y ** (a - 1) * r**b if a else 0.0) + 2 * b * y ** (a + 1) * r ** (
            b + 1
        )
    return total


_MEANS = np.array([_reduced(*each) for each in _FUNCTIONS])


_DERIVATIVES = np.array([_derivative(*each) for each in _FUNCTIONS])


_PRODUCTS = np.array([[_reduced(a + c, b + d) for c, d in _FUNCTIONS] for a, b in _FUNCTIONS])


def sum_powers(
    sources: FloatArray, weights: FloatArray | None = None
) -> tuple[FloatArray, tuple[FloatArray, ...]]:
    """Return the power sums over the rows of sources (k x n, one row per column), and the powers
    for `score_values`.

    `weights` are those of the rows, if they have any.
    """

    def total(values: FloatArray | BoolArray) -> FloatArray:
        return np.asarray(values.sum(axis=1) if weights is None else values @ weights)

    def dot(first: FloatArray, second: FloatArray) -> FloatArray:
        return np.asarray(
            np.einsum("kn,kn->k", first if weights is None else first * weights, second)
        )

    y = np.clip(sources, -_LIMIT, _LIMIT)
    y2 = y * y
    y3 = y2 * y
    r = 1 / (1 + y2)
    r2 = r * r
    r3 = r2 * r
    yr = y * r
    number = np.full(len(y), float(y.shape[1] if weights is None else weights.sum()))
    powers = (number, total(y), dot(y, y), dot(y, y2), dot(y2, y2), dot(y2, y3), dot(y3, y3))
    even = (total(r), dot(r, r), dot(r, r2), dot(r2, r2), dot(r2, r3), dot(r3, r3))
    odd = (dot(y, r), dot(y, r2), dot(y, r3), dot(yr, r3), dot(yr * r, r3))
    beyond = (total(sources > _LIMIT), total(sources < -_LIMIT))
    unclipped = (total(sources), dot(y, sources))
    return np.array((*powers, *even, *odd, *beyond, *unclipped)), (y, y2, r, r2, r3)


def fit_scores(sums: FloatArray) -> FloatArray:
    """Return the coefficients of the score function of each source, k x 8, from its power sums."""
    means = sums / sums[0]
    first = (_MEANS @ means).T
    covariance = np.einsum("pqs,sk->kpq", _PRODUCTS, means) - first[:, :, None] * first[:, None, :]
    scale = np.sqrt(np.maximum(np.einsum("kpp->kp", covariance), _LEAST_VARIANCE))
    correlation = covariance / (scale[:, :, None] * scale[:, None, :]) + _RIDGE * np.eye(
        N_FUNCTIONS
    )
    derivatives = (_DERIVATIVES @ means).T
    return np.asarray(
        np.linalg.solve(correlation, (derivatives / scale)[:, :, None])[:, :, 0] / scale
    )


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
    return np.sum(coefficients.T * (_MEANS @ means), axis=0), np.sum(
        coefficients.T * (_DERIVATIVES @ means), axis=0
    )


#: At least this share of a source must lie within ±4; Chebyshev's inequality gives 15/16.
_MIN_WITHIN = 0.5

#: Rows whose powers are computed at a time, so that they stay in the cache.
_CACHE_BLOCK = 1024

#: The largest entry of a Newton step: beyond it the linearisation means nothing.
_MAX_CHANGE = 0.5

#: A pair is separable if n (hᵢhⱼ − 1) is above this. Scores that are fitted to n values of a
#: Gaussian have n (h − 1) of 77 ± 53 instead of 0, for any n; so two Gaussians have 154 ± 75, and
#: hardly any pair of them more than 400.
_MIN_SEPARATION = 400.0

#: Newton steps settle if this number of them at least halves their size; with independent sources
#: one does.
_N_TO_HALVE = 4


@dataclass(frozen=True, eq=False)
class ScoreStatistics:
    """Sums over rows at one unmixing matrix: power sums of sources, and Σ ψ(y) c(y)ᵀ for given
    score functions.
    """

    powers: FloatArray
    cross: FloatArray

    @classmethod
    def of_rows(
        cls,
        unmixing: FloatArray,
        columns: FloatArray,
        coefficients: FloatArray,
        weights: FloatArray | None = None,
    ) -> ScoreStatistics:
        """Return the sums over the sources W x of rows (d x n, one row per column) with these
        weights.
        """
        total = cls.zeros(len(unmixing))
        for block, own in _cache_blocks(columns, weights):
            sums, powers = sum_powers(unmixing @ block, own)
            scores = score_values(coefficients, powers)
            total = total + cls(sums, (scores if own is None else scores * own) @ powers[0].T)
        return total

    @classmethod
    def zeros(cls, n_sources: int) -> ScoreStatistics:
        """Return the sums over no rows."""
        return cls(np.zeros((N_SUMS, n_sources)), np.zeros((n_sources, n_sources)))

    def __add__(self, other: ScoreStatistics) -> ScoreStatistics:
        return ScoreStatistics(self.powers + other.powers, self.cross + other.cross)


def power_sums(
    unmixing: FloatArray, columns: FloatArray, weights: FloatArray | None = None
) -> FloatArray:
    """Return the power sums of the sources W x of rows (d x n, one row per column) with these
    weights.
    """
    total = np.zeros((N_SUMS, len(unmixing)))
    for block, own in _cache_blocks(columns, weights):
        total += sum_powers(unmixing @ block, own)[0]
    return total


def _cache_blocks(
    columns: FloatArray, weights: FloatArray | None
) -> Iterator[tuple[FloatArray, FloatArray | None]]:
    """Yield some rows (d x n, one row per column) at a time, and their weights."""
    for first in range(0, columns.shape[1], _CACHE_BLOCK):
        own = slice(first, first + _CACHE_BLOCK)
        yield columns[:, own], None if weights is None else weights[own]


@dataclass(frozen=True, eq=False)
class NewtonStep:
    """A step W → (I + E) W, after which the rows of W are scaled so that sources have variance 1.

    Attributes
    ----------
    change : array, k x k
        The matrix E; its diagonal is zero.
    information : array
        E[ψ'] of each source, its Fisher information: 1 for a Gaussian and more for all others.
    separable : array of bool, k x k
        Which pairs of sources can be separated.
    """

    change: FloatArray
    information: FloatArray
    separable: BoolArray

    def apply(
        self, unmixing: FloatArray, covariance: FloatArray | None, share: float = 1.0
    ) -> FloatArray:
        """Return the unmixing matrix after a share of the step, for rows of some covariance; None
        stands for I.

        The covariance is that of all rows. Scales from the rows of one pass would fluctuate with
        the outliers of heavy-tailed sources, and no density fits at two scales.
        """
        return scale_to_unit(unmixing + share * (self.change @ unmixing), covariance)

    @property
    def size(self) -> float:
        """The largest entry of the step among separable pairs."""
        return float(np.max(np.abs(self.change), where=self.separable, initial=0.0))


def newton_step(
    statistics: ScoreStatistics,
    coefficients: FloatArray,
    *,
    n_seen: float | None = None,
    pairs: BoolArray | None = None,
) -> NewtonStep:
    """Return the Newton step for sums over rows.

    Parameters
    ----------
    statistics : ScoreStatistics
        The sums.
    coefficients : array, k x 8
        The score functions.
    n_seen : float, optional
        Number of rows by which it is decided which pairs are separable; by default the rows of the
        sums.
    pairs : array of bool, optional
        Pairs outside of these are not separable: two nearly Gaussian sources would otherwise rotate
        for ever.
    """
    n_rows = float(statistics.powers[0, 0])
    means = statistics.powers / n_rows
    score_mean, information = score_means(coefficients, statistics.powers)
    cross = statistics.cross / n_rows - np.outer(score_mean, means[CLIPPED])
    variance = means[CROSS] - means[CLIPPED] * means[UNCLIPPED]
    within = 1 - means[ABOVE] - means[BELOW]
    curvature = np.outer(information, variance)
    exchange = np.outer(np.diagonal(cross) / np.maximum(within, _MIN_WITHIN), within)
    determinant = curvature * curvature.T - exchange * exchange.T
    separable = determinant * (n_rows if n_seen is None else n_seen) > _MIN_SEPARATION
    if pairs is not None:
        separable &= pairs
    newton = -(curvature.T * cross - exchange * cross.T) / np.where(separable, determinant, 1.0)
    decorrelate = -(cross + cross.T) / (
        np.abs(curvature + curvature.T) + np.abs(exchange + exchange.T) + 1e-12
    )
    change = np.clip(np.where(separable, newton, decorrelate), -_MAX_CHANGE, _MAX_CHANGE)
    np.fill_diagonal(separable, False)
    np.fill_diagonal(change, 0.0)
    return NewtonStep(change, information, separable)


@dataclass(frozen=True, eq=False)
class NewtonResult:
    """The unmixing matrix after Newton iterations.

    Attributes
    ----------
    unmixing : array
        The matrix.
    n_iter : int
        Number of iterations until then.
    step : NewtonStep
        The last step, whose information is that of the sources.
    scores : array, k x 8
        The coefficients of the score functions.
    converged : bool
        Whether the last step was small, or the likelihood no longer rose.
    """

    unmixing: FloatArray
    n_iter: int
    step: NewtonStep
    scores: FloatArray
    converged: bool


def newton(
    statistics_at: Callable[[FloatArray, FloatArray], ScoreStatistics],
    unmixing: FloatArray,
    scores: FloatArray,
    likelihood: HistogramLikelihood,
    *,
    max_iter: int,
    tol: float,
) -> NewtonResult:
    """Iterate until a step is small; where steps do not settle, maximise the likelihood.

    Parameters
    ----------
    statistics_at : callable
        Takes an unmixing matrix and the coefficients of score functions, and returns the sums over
        rows.
    unmixing, scores : array
        The start. The scores of each later pass are those that the pass before it fitted.
    likelihood : HistogramLikelihood
        The likelihood of the rows; it knows their covariance.
    max_iter, tol
        The largest number of iterations, and the size of a small step.
    """
    start = (unmixing, scores)
    pairs = None
    sizes = list[float]()
    for n_iter in range(1, max_iter + 1):
        statistics = statistics_at(unmixing, scores)
        step = newton_step(statistics, scores, pairs=pairs)
        pairs = step.separable
        unmixing = step.apply(unmixing, likelihood.covariance)
        scores = fit_scores(statistics.powers)
        if step.size <= tol:
            return NewtonResult(unmixing, n_iter, step, scores, converged=True)
        sizes.append(step.size)
        if n_iter > _N_TO_HALVE and sizes[-1] > sizes[-1 - _N_TO_HALVE] / 2:
            break
    unmixing, scores = max(start, (unmixing, scores), key=lambda each: likelihood.value(each[0]))
    ascent = maximize_likelihood(likelihood, unmixing, max_iter=max_iter - n_iter)
    statistics = statistics_at(ascent.unmixing, scores)
    step = newton_step(statistics, scores)
    return NewtonResult(
        ascent.unmixing, n_iter + ascent.n_iter, step, scores, converged=ascent.converged
    )
