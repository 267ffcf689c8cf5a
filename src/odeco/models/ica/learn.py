"""Independent component analysis of all rows at once: whitening, a start from cumulants, Newton's method.

**Number of sources.** Gaussian directions can be rotated into each other without a trace, so no method finds them;
noise is of that kind. A direction that was chosen to look non-Gaussian does so a little in the rows that it was chosen
by. On held-out rows there is a fair test: with y standardised, the means of y e^(−y²/2) and of e^(−y²/2), minus their
projections on 1, y and y², are asymptotically independent Gaussians if y is Gaussian. Both functions are bounded, so
this holds for few rows as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from odeco._util.schema import array, require
from odeco._util.threads import map_blocks, one_blas_thread
from odeco._util.types import FloatArray, IndexArray
from odeco.models.engine.latent_model import State
from odeco.models.ica.densities import N_BINS, fit_scores, histogram
from odeco.models.ica.moments import BLOCK, SecondMoment, blocks_of, scaled, unit_exponents, whiten
from odeco.models.ica.newton import NewtonResult, ScoreStatistics, newton, power_sums
from odeco.models.ica.start import cumulant_start

#: The probability that any Gaussian source is taken for non-Gaussian is at most this.
_SIGNIFICANCE = 0.01

#: Variances of the two functions minus their projections on 1, y and y²: E[y²e^(−y²)] − 1/8, E[e^(−y²)] − 1/2 − 1/16.
_ODD_VARIANCE, _EVEN_VARIANCE = 1 / (3 * math.sqrt(3)) - 1 / 8, 1 / math.sqrt(3) - 1 / 2 - 1 / 16


def gaussianity_p_values(sources: FloatArray) -> FloatArray:
    """Return the p-value of each source (k x n) under the hypothesis that it is Gaussian."""
    centred = sources - sources.mean(axis=1, keepdims=True)
    deviation = centred.std(axis=1, keepdims=True)
    y = centred / np.where(deviation > 0, deviation, 1.0)
    bell = np.exp(-y * y / 2)
    # After standardising, the projections on y and y² have mean zero, so only the constant is subtracted.
    odd, even = np.mean(y * bell, axis=1), np.mean(bell, axis=1) - 1 / math.sqrt(2)
    p_values: FloatArray = np.exp(-sources.shape[1] * (odd**2 / _ODD_VARIANCE + even**2 / _EVEN_VARIANCE) / 2)
    return p_values


def count_non_gaussian(sources: FloatArray) -> int:
    """Return the number of sources (k x n, held out) that are significantly non-Gaussian, at least 1 (Holm 1979)."""
    p_values = np.sort(gaussianity_p_values(sources))
    clear = p_values <= _SIGNIFICANCE / np.arange(len(p_values), 0, -1)
    return max(1, int(np.argmin(clear)) if not clear.all() else len(p_values))


#: Sources are found in this number of rows, and refined on all.
START_ROWS = 5 * BLOCK

#: No double-precision number has a larger exponent.
_MAX_EXPONENT = 1100


@dataclass(frozen=True)
class Settings:
    """What was asked for: a number of sources (None: as many as there are directions) and when steps end."""

    n_components: int | Literal["auto"] | None
    max_iter: int
    tol: float


@dataclass(eq=False)
class FittedSources(State):
    """What was learnt of sources, of rows in units of powers of two: column j over 2^exponents[j].

    Attributes
    ----------
    exponents : array
        The units; 0 for columns of ordinary size.
    mean, covariance : arrays
        Those of the rows.
    unmixing : array, k x d
        A row for each source.
    whitening : array, m x d
        The map to the directions in which sources were looked for.
    information : array
        Fisher information of each source: 1 for a Gaussian, and more for all others.
    counts : array, k x 200
        The histogram of each source.
    n_rows, n_iter : int
        Rows learnt from, and Newton's steps.
    converged : int
        Whether the last step was small: 0 or 1.
    """

    RULES: ClassVar = {
        "exponents": array("n_features", kind="i", low=-_MAX_EXPONENT, high=_MAX_EXPONENT),
        "mean": array("n_features"),
        "covariance": array("n_features", "n_features"),
        "unmixing": array("k", "n_features"),
        "whitening": array("m", "n_features"),
        "information": array("k"),
        "counts": array("k", "bins", low=0),
        "n_rows": array(kind="i", low=1),
        "n_iter": array(kind="i", low=1),
        "converged": array(kind="i", low=0, high=1),
    }

    exponents: IndexArray
    mean: FloatArray
    covariance: FloatArray
    unmixing: FloatArray
    whitening: FloatArray
    information: FloatArray
    counts: FloatArray
    n_rows: int
    n_iter: int
    converged: int

    @classmethod
    def from_arrays(cls, prefix: str, arrays: Mapping[str, Any]) -> Self:
        """Return what `to_arrays` wrote; histograms must have all bins."""
        read = super().from_arrays(prefix, arrays)
        require(read.counts.shape[1] == N_BINS, f"its histograms must have {N_BINS} bins")
        return read

    @property
    def mixing(self) -> FloatArray:
        """The d x k regression of rows on sources: the inverse of the unmixing if there are d sources."""
        return mixing_of(self.unmixing, self.covariance)


def mixing_of(unmixing: FloatArray, covariance: FloatArray) -> FloatArray:
    """Return Cov(x, s) Cov(s)⁻¹ for s = W x."""
    across = unmixing @ covariance
    return np.linalg.solve(across @ unmixing.T, across).T.astype(np.float64, copy=False)


def fit_ica(rows: FloatArray, settings: Settings, *, seed: int) -> FittedSources:
    """Learn sources from all rows."""
    exponents = unit_exponents(rows, by_column=settings.n_components in (None, "auto", rows.shape[1]))
    rows = scaled(rows, exponents)
    moment = SecondMoment.of_all(rows)
    wanted = None if settings.n_components == "auto" else settings.n_components
    with one_blas_thread():
        whitener = whiten(moment.covariance, wanted).forward
        chosen = rows
        if len(rows) > START_ROWS:
            places = np.random.default_rng([seed, 1]).choice(len(rows), START_ROWS, replace=False)
            chosen = rows[np.sort(places)]
        columns = np.ascontiguousarray(whitener.T @ (chosen - moment.mean).T)
        found = unmix_whitened(columns, settings, seed=seed)
        n_sources = _select_k(columns, settings, seed=seed) if settings.n_components == "auto" else len(found.unmixing)
        unmixing, n_iter = found.unmixing @ whitener.T, found.n_iter
    if len(rows) > START_ROWS:

        def statistics_at(matrix: FloatArray, coefficients: FloatArray) -> ScoreStatistics:
            def of_block(block: FloatArray) -> ScoreStatistics:
                return ScoreStatistics.of_rows(matrix, (block - moment.mean).T, coefficients)

            return sum(map_blocks(of_block, blocks_of(rows), parallel=True), ScoreStatistics.zeros(len(matrix)))

        found = newton(
            statistics_at,
            unmixing,
            found.scores,
            max_iter=settings.max_iter,
            tol=settings.tol,
            n_rows=len(rows),
            covariance=moment.covariance,
        )
        unmixing, n_iter = found.unmixing, n_iter + found.n_iter
    with one_blas_thread():
        order = np.argsort(-found.step.information, kind="stable")[:n_sources]
        unmixing = with_positive_mixing(unmixing[order], moment.covariance, exponents)
        counts = histogram(unmixing @ (chosen - moment.mean).T)
    return FittedSources(
        exponents,
        moment.mean,
        moment.covariance,
        unmixing,
        whitener.T.copy(),
        found.step.information[order],
        counts,
        len(rows),
        n_iter,
        int(found.converged),
    )


def unmix_whitened(columns: FloatArray, settings: Settings, *, seed: int) -> NewtonResult:
    """Return the unmixing matrix of whitened rows (k x n, one row per column)."""
    start = cumulant_start(columns, seed=seed)
    return newton(
        lambda matrix, coefficients: ScoreStatistics.of_rows(matrix, columns, coefficients),
        start,
        fit_scores(power_sums(start, columns)),
        max_iter=settings.max_iter,
        tol=settings.tol,
        n_rows=columns.shape[1],
    )


def _select_k(columns: FloatArray, settings: Settings, *, seed: int) -> int:
    """Return the number of sources, found in half of the rows, that are not Gaussian in the other half."""
    permutation = np.random.default_rng([seed, 2]).permutation(columns.shape[1])
    half = len(permutation) // 2
    if half <= len(columns):
        return len(columns)  # there are too few rows to hold some out
    training, held_out = np.ascontiguousarray(columns[:, permutation[:half]]), columns[:, permutation[half:]]
    return count_non_gaussian(unmix_whitened(training, settings, seed=seed).unmixing @ held_out)


def with_positive_mixing(unmixing: FloatArray, covariance: FloatArray, exponents: IndexArray) -> FloatArray:
    """Return the unmixing matrix with signs that make the largest mixing weight of each source positive."""
    mixing = np.ldexp(mixing_of(unmixing, covariance), exponents[:, None])
    largest = mixing[np.argmax(np.abs(mixing), axis=0), np.arange(len(unmixing))]
    signed: FloatArray = unmixing * np.where(largest < 0, -1.0, 1.0)[:, None]
    return signed
