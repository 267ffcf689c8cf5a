"""Newton's steps of the likelihood of independent sources, from sums over rows.

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

from odeco._types import BoolArray, FloatArray
from odeco.signals.scores import (
    ABOVE,
    BELOW,
    BOTH,
    CUT,
    N_SUMS,
    PLAIN,
    score_means,
    score_values,
    sum_powers,
)

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
