"""How many sources there are: those that are clearly not Gaussian, in rows that they were not learnt from.

Gaussian directions can be turned into each other without a trace, so no method finds them; noise is of that kind. Any
direction that was chosen to look least Gaussian does so a little, in the rows that it was chosen by. In other rows it
is a fair test: with y standardised, the means of y e^(−y²/2) and of e^(−y²/2), less their parts along 1, y and y², are
asymptotically independent Gaussians if y is one. Both functions are bounded, so that this holds for few rows as well.

Sources are learnt from all rows at once: whitened, found in the cumulants, and refined by Newton's steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from odeco._util.schema import array, require
from odeco._util.threads import map_blocks, one_blas_thread
from odeco._util.types import FloatArray, IndexArray
from odeco.models.engine.state import State
from odeco.models.ica.moments import BLOCK, SecondMoment, blocks_of, find_sources, in_units, units_of, whitener_of
from odeco.models.ica.newton import N_BINS, NewtonStep, ScoreSums, fit_scores, histogram, newton_step, sum_sources

#: All sources together are taken for non-Gaussian by mistake with at most this chance.
_SIGNIFICANCE = 0.01

#: Variances of the two functions, less their parts along 1, y and y²: E[y²e^(−y²)] − 1/8 and E[e^(−y²)] − 1/2 − 1/16.
_ODD, _EVEN = 1 / (3 * math.sqrt(3)) - 1 / 8, 1 / math.sqrt(3) - 1 / 2 - 1 / 16


def chance_of_gaussian(sources: FloatArray) -> FloatArray:
    """Return for each source (k x n) the chance that n values of a Gaussian look less like one."""
    centred = sources - sources.mean(axis=1, keepdims=True)
    deviation = centred.std(axis=1, keepdims=True)
    y = centred / np.where(deviation > 0, deviation, 1.0)
    bell = np.exp(-y * y / 2)
    # The parts along y and y² have a mean of exactly zero after standardising, so only the constant is subtracted.
    odd, even = np.mean(y * bell, axis=1), np.mean(bell, axis=1) - 1 / math.sqrt(2)
    chances: FloatArray = np.exp(-sources.shape[1] * (odd**2 / _ODD + even**2 / _EVEN) / 2)
    return chances


def count_sources(sources: FloatArray) -> int:
    """Return how many sources are clearly not Gaussian, at least 1; their rows must not be those they were learnt from.

    The j-th least Gaussian of k is compared with j + 1 (Holm 1979), which spares nothing if most of them are.
    """
    chances = np.sort(chance_of_gaussian(sources))
    limits = _SIGNIFICANCE / np.arange(len(chances), 0, -1)
    clear = chances <= limits
    return max(1, int(np.argmin(clear)) if not clear.all() else len(chances))


#: Sources are found in so many rows, and refined by all.
START_ROWS = 5 * BLOCK

#: No double-precision number has a larger exponent.
_MOST_EXPONENT = 1100

#: Steps end if so many in a row are not smaller than one before them.
_PATIENCE = 3


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
        "exponents": array("n_features", kind="i", low=-_MOST_EXPONENT, high=_MOST_EXPONENT),
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


def learn_at_once(rows: FloatArray, settings: Settings, *, seed: int) -> FittedSources:
    """Learn sources from all rows."""
    exponents = units_of(rows, apart=settings.n_components in (None, "auto", rows.shape[1]))
    rows = in_units(rows, exponents)
    moment = SecondMoment.of_all(rows)
    wanted = None if settings.n_components == "auto" else settings.n_components
    with one_blas_thread():
        forward = whitener_of(moment.covariance, wanted).forward
        chosen = rows
        if len(rows) > START_ROWS:
            places = np.random.default_rng([seed, 1]).choice(len(rows), START_ROWS, replace=False)
            chosen = rows[np.sort(places)]
        columns = np.ascontiguousarray(forward.T @ (chosen - moment.mean).T)
        found, n_steps, step, scores = _refined_start(columns, settings, seed=seed)
        n_sources = len(found)
        if settings.n_components == "auto":
            n_sources = _number(columns, settings, seed=seed)
        unmixing = found @ forward.T
    if len(rows) > START_ROWS:

        def sums_at(matrix: FloatArray, coefficients: FloatArray) -> ScoreSums:
            def work(block: FloatArray) -> ScoreSums:
                return ScoreSums.of(matrix, (block - moment.mean).T, coefficients)

            total = ScoreSums.nothing(len(matrix))
            for each in map_blocks(work, blocks_of(rows), parallel=True):
                total = total + each
            return total

        unmixing, more, step, _ = _climb(sums_at, unmixing, scores, settings, len(rows), moment.covariance)
        n_steps += more
    with one_blas_thread():
        unmixing, information = _in_order(unmixing, step.information, n_sources, moment.covariance, exponents)
        counts = histogram(unmixing @ (chosen - moment.mean).T)
    converged = int(step.size <= _small(settings, len(rows)))
    return FittedSources(
        exponents,
        moment.mean,
        moment.covariance,
        unmixing,
        forward.T.copy(),
        information,
        counts,
        len(rows),
        n_steps,
        converged,
    )


def _refined_start(
    columns: FloatArray, settings: Settings, *, seed: int
) -> tuple[FloatArray, int, NewtonStep, FloatArray]:
    """Return the unmixing of whitened rows, the number of steps, the last of them, and the scores of sources."""
    start = find_sources(columns, seed=seed)

    def sums_at(matrix: FloatArray, coefficients: FloatArray) -> ScoreSums:
        return ScoreSums.of(matrix, columns, coefficients)

    first = fit_scores(sum_sources(start, columns))
    return _climb(sums_at, start, first, settings, columns.shape[1])


def _climb(
    sums_at: Callable[[FloatArray, FloatArray], ScoreSums],
    unmixing: FloatArray,
    scores: FloatArray,
    settings: Settings,
    n_rows: int,
    covariance: FloatArray | None = None,
) -> tuple[FloatArray, int, NewtonStep, FloatArray]:
    """Take Newton's steps until one is small, or they get no smaller; return where the smallest of them led.

    The scores of a pass are those that the pass before it fitted.
    """
    pairs, best = None, None
    for number in range(1, settings.max_iter + 1):
        sums = sums_at(unmixing, scores)
        step = newton_step(sums, scores, pairs=pairs)
        pairs = step.told_apart
        unmixing, scores = step.taken(unmixing, covariance), fit_scores(sums.powers)
        if best is None or step.size < best[2].size:
            best, idle = (unmixing, number, step, scores), 0
        else:
            idle += 1
        if step.size <= _small(settings, n_rows) or idle == _PATIENCE:
            break
    return best  # type: ignore[return-value]


def _small(settings: Settings, n_rows: int) -> float:
    """Return the size of a step after which the next is far below what n rows can tell: a step is ten times smaller."""
    return max(settings.tol, 1 / math.sqrt(n_rows))


def _number(columns: FloatArray, settings: Settings, *, seed: int) -> int:
    """Return how many sources, learnt from half of the rows, are not Gaussian in the other half."""
    order = np.random.default_rng([seed, 2]).permutation(columns.shape[1])
    half = len(order) // 2
    if half <= len(columns):
        return len(columns)  # rows are too few to leave some out
    learnt, others = np.ascontiguousarray(columns[:, order[:half]]), columns[:, order[half:]]
    return count_sources(_refined_start(learnt, settings, seed=seed)[0] @ others)


def _in_order(
    unmixing: FloatArray, information: FloatArray, n_sources: int, covariance: FloatArray, exponents: IndexArray
) -> tuple[FloatArray, FloatArray]:
    """Return the least Gaussian sources first, each with the sign that makes its largest mixing weight positive."""
    order = np.argsort(-information, kind="stable")[:n_sources]
    kept = unmixing[order]
    mixing = np.ldexp(mixing_of(kept, covariance), exponents[:, None])
    largest = mixing[np.argmax(np.abs(mixing), axis=0), np.arange(len(kept))]
    return kept * np.where(largest < 0, -1.0, 1.0)[:, None], information[order]
