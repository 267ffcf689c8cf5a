"""Newton's method for the likelihood of an unmixing matrix, with score functions fitted to the sources.

The likelihood of an unmixing matrix W is stationary where E[ψᵢ(yᵢ) yⱼ] = 0 for i ≠ j, with y = W x and ψᵢ the score
function of source i. Here yⱼ is clipped to ±4, c(yⱼ), which keeps the equation valid for independent sources: otherwise
one outlier of a heavy tail would decide. With W replaced by (I + E) W, and sources that are nearly independent, each
pair of entries solves two equations,

    gᵢⱼ + hᵢ vⱼ Eᵢⱼ + dᵢ pⱼ Eⱼᵢ = 0   and   gⱼᵢ + hⱼ vᵢ Eⱼᵢ + dⱼ pᵢ Eᵢⱼ = 0,

where g = E[ψᵢ c(yⱼ)], h = E[ψᵢ'], v = E[c(yⱼ) yⱼ], p is the probability of |yⱼ| < 4 and d = E[ψᵢ yᵢ], which is 1 and is
taken as E[ψᵢ c(yᵢ)] / pᵢ (Pham and Garat 1997, section 4, where c(y) = y). Two Gaussian sources can be rotated into
each other without a trace: hᵢhⱼ = 1, and the equations only say that they must be uncorrelated. Where the determinant
does not stand clear of noise, a pair is only decorrelated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from odeco._util.types import BoolArray, FloatArray
from odeco.models.ica.densities import (
    ABOVE,
    BELOW,
    CLIPPED,
    CROSS,
    N_SUMS,
    UNCLIPPED,
    fit_scores,
    score_means,
    score_values,
    sum_powers,
)

#: At least this share of a source must lie within ±4; Chebyshev's inequality gives 15/16.
_MIN_WITHIN = 0.5

#: Rows whose powers are computed at a time, so that they stay in the cache.
_CACHE_BLOCK = 1024

#: The largest entry of a Newton step: beyond it the linearisation means nothing.
_MAX_CHANGE = 0.5

#: A pair is separable if n (hᵢhⱼ − 1) is above this. Scores that are fitted to n values of a Gaussian have n (h − 1)
#: of 77 ± 53 instead of 0, for any n; so two Gaussians have 154 ± 75, and hardly any pair of them more than 400.
_MIN_SEPARATION = 400.0

#: Iterations end after this number of steps that are not smaller than the smallest so far.
_PATIENCE = 3


@dataclass(frozen=True, eq=False)
class ScoreStatistics:
    """Sums over rows at one unmixing matrix: power sums of sources, and Σ ψ(y) c(y)ᵀ for given score functions."""

    powers: FloatArray
    cross: FloatArray

    @classmethod
    def of_rows(cls, unmixing: FloatArray, columns: FloatArray, coefficients: FloatArray) -> ScoreStatistics:
        """Return the sums over the sources W x of rows (d x n, one row per column)."""
        total = cls.zeros(len(unmixing))
        for first in range(0, columns.shape[1], _CACHE_BLOCK):
            sums, powers = sum_powers(unmixing @ columns[:, first : first + _CACHE_BLOCK])
            total = total + cls(sums, score_values(coefficients, powers) @ powers[0].T)
        return total

    @classmethod
    def zeros(cls, n_sources: int) -> ScoreStatistics:
        """Return the sums over no rows."""
        return cls(np.zeros((N_SUMS, n_sources)), np.zeros((n_sources, n_sources)))

    def __add__(self, other: ScoreStatistics) -> ScoreStatistics:
        return ScoreStatistics(self.powers + other.powers, self.cross + other.cross)


def power_sums(unmixing: FloatArray, columns: FloatArray) -> FloatArray:
    """Return the power sums of the sources W x of rows (d x n, one row per column)."""
    total = np.zeros((N_SUMS, len(unmixing)))
    for first in range(0, columns.shape[1], _CACHE_BLOCK):
        total += sum_powers(unmixing @ columns[:, first : first + _CACHE_BLOCK])[0]
    return total


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

    def apply(self, unmixing: FloatArray, covariance: FloatArray | None, share: float = 1.0) -> FloatArray:
        """Return the unmixing matrix after a share of the step, for rows of some covariance; None stands for I.

        The covariance is that of all rows. Scales from the rows of one pass would fluctuate with the outliers of
        heavy-tailed sources, and no density fits at two scales.
        """
        after = unmixing + share * (self.change @ unmixing)
        across = after if covariance is None else after @ covariance
        scaled: FloatArray = after / np.sqrt(np.sum(across * after, axis=1))[:, None]
        return scaled

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
        Number of rows by which it is decided which pairs are separable; by default the rows of the sums.
    pairs : array of bool, optional
        Pairs outside of these are not separable: two nearly Gaussian sources would otherwise rotate for ever.
    """
    n_rows = float(statistics.powers[0, 0])
    means = statistics.powers / n_rows
    score_mean, information = score_means(coefficients, statistics.powers)
    cross = statistics.cross / n_rows - np.outer(score_mean, means[CLIPPED])
    variance, within = means[CROSS] - means[CLIPPED] * means[UNCLIPPED], 1 - means[ABOVE] - means[BELOW]
    curvature = np.outer(information, variance)
    exchange = np.outer(np.diagonal(cross) / np.maximum(within, _MIN_WITHIN), within)
    determinant = curvature * curvature.T - exchange * exchange.T
    separable = determinant * (n_rows if n_seen is None else n_seen) > _MIN_SEPARATION
    if pairs is not None:
        separable &= pairs
    newton = -(curvature.T * cross - exchange * cross.T) / np.where(separable, determinant, 1.0)
    decorrelate = -(cross + cross.T) / (np.abs(curvature + curvature.T) + np.abs(exchange + exchange.T) + 1e-12)
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
        The last step.
    scores : array, k x 8
        The coefficients of the score functions.
    converged : bool
        Whether the last step was small.
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
    *,
    max_iter: int,
    tol: float,
    n_rows: int,
    covariance: FloatArray | None = None,
) -> NewtonResult:
    """Iterate until a step is small or steps get no smaller; return the result of the smallest step.

    A step is small if it is below `tol` or below 1/√n: the next one, ten times smaller, is then far below what n rows
    determine.

    Parameters
    ----------
    statistics_at : callable
        Takes an unmixing matrix and the coefficients of score functions, and returns the sums over rows.
    unmixing, scores : array
        The start. The scores of each later pass are those that the pass before it fitted.
    max_iter, tol
        The largest number of iterations, and the size of a small step.
    n_rows : int
        Number of rows.
    covariance : array, optional
        The covariance of rows; without it rows are white.
    """
    pairs, best = None, None
    small = max(tol, 1 / math.sqrt(n_rows))
    for n_iter in range(1, max_iter + 1):
        statistics = statistics_at(unmixing, scores)
        step = newton_step(statistics, scores, pairs=pairs)
        pairs = step.separable
        unmixing, scores = step.apply(unmixing, covariance), fit_scores(statistics.powers)
        if best is None or step.size < best.step.size:
            best, n_idle = NewtonResult(unmixing, n_iter, step, scores, step.size <= small), 0
        else:
            n_idle += 1
        if step.size <= small or n_idle == _PATIENCE:
            break
    return best  # type: ignore[return-value]
