"""Histograms as densities of sources, their likelihood, and its ascent by L-BFGS.

A source has 200 bins from −10 to 10, for likelihoods, samples and pictures.

**A likelihood with a gradient.** The likelihood of histograms jumps where a value crosses an edge.
Here each value is shared linearly by the two bins whose centres it lies between, c are the shares
of bins, and q = K c with a narrow kernel K is the density. Then L(W) = log |det W| + Σᵢ Σ_b c_ib
log q_ib is continuous, and its slope in a value between the centres of b and b + 1 is (g_{b+1} −
g_b) / width, with g = log q + Kᵀ(c/q): the score function −ψ of the source. The gradient for W → (I
+ E) W is −E[ψᵢ yⱼ]; a change of scale, which keeping variances at 1 undoes, is projected out.

**Ascent.** L-BFGS, whose first approximation of the Hessian is that of independent sources: it
couples Eᵢⱼ and Eⱼᵢ only, by the matrix [[hᵢ, 1], [1, hⱼ]] with h = E[ψ²], whose eigenvalues are
kept away from 0 (Ablin, Cardoso and Gramfort, *Faster independent component analysis by
preconditioning with Hessian approximations*, 2018). Steps are halved until the likelihood rises
(Armijo's rule).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from odeco._util.threads import map_blocks, one_blas_thread
from odeco._util.types import FloatArray, IndexArray
from odeco.models.engine.rows import count_rows, split

#: A histogram has this number of bins, from −_RANGE to _RANGE. Values beyond count in the first or
#: the last.
N_BINS = 200
_RANGE = 10.0
_BIN_WIDTH = 2 * _RANGE / N_BINS
EDGES = np.linspace(-_RANGE, _RANGE, N_BINS + 1)

#: The kernel: (1/4, 1/2, 1/4) convolved with itself this many times.
_N_SMOOTHED = 4

#: Pairs of steps and changes of the gradient that L-BFGS keeps, and the smallest eigenvalue of its
#: first Hessian.
_MEMORY = 7
_MIN_CURVATURE = 0.05

#: The largest entry of a step; halvings of one; the share of the gain that the slope promises
#: (Armijo).
_MAX_CHANGE = 0.5
_N_HALVINGS = 12
_ARMIJO = 1e-4

#: The likelihood no longer rises if this number of steps raise the mean log-likelihood of a row by
#: less than this.
_N_SMALL = 3
_LEAST_GAIN = 1e-6


def histogram(sources: FloatArray, weights: FloatArray | None = None) -> FloatArray:
    """Return the number of values of each source (k x n) in each bin, k x 200, counted by the
    weights of rows.
    """
    k = len(sources)
    flat = _bins(sources) + np.arange(k)[:, None] * N_BINS
    counts = np.bincount(
        flat.ravel(), None if weights is None else np.tile(weights, k), minlength=k * N_BINS
    )
    return np.asarray(counts.reshape(k, N_BINS).astype(np.float64))


def log_densities(counts: FloatArray, sources: FloatArray) -> FloatArray:
    """Return the log-density of every value of sources (k x n); one pseudo-row is spread over all
    bins.
    """
    density = (counts + 1 / N_BINS) / ((counts.sum(axis=1, keepdims=True) + 1) * _BIN_WIDTH)
    return np.take_along_axis(np.log(density), _bins(sources), axis=1)


def draw_sources(counts: FloatArray, n_rows: int, rng: np.random.RandomState) -> FloatArray:
    """Draw n values of each source from its histogram, k x n."""
    cumulative = np.cumsum(counts, axis=1) / counts.sum(axis=1, keepdims=True)
    uniform = rng.uniform(size=(len(counts), n_rows))
    bins = np.array(
        [
            np.searchsorted(row, draws, side="right")
            for row, draws in zip(cumulative, uniform, strict=True)
        ]
    )
    return np.asarray(
        EDGES[np.minimum(bins, N_BINS - 1)] + _BIN_WIDTH * rng.uniform(size=bins.shape)
    )


def _bins(sources: FloatArray) -> IndexArray:
    limited = np.clip((sources + _RANGE) / _BIN_WIDTH, 0, N_BINS - 1)
    return limited.astype(np.int64)


def _kernel() -> FloatArray:
    """Return K, whose columns sum to 1."""
    third = (np.eye(N_BINS) * 2 + np.eye(N_BINS, k=1) + np.eye(N_BINS, k=-1)) / 4
    kernel = np.linalg.matrix_power(third, _N_SMOOTHED)
    return np.asarray(kernel / kernel.sum(axis=0))


_KERNEL = _kernel()


def scale_to_unit(unmixing: FloatArray, covariance: FloatArray | None) -> FloatArray:
    """Return the unmixing matrix with sources of variance 1, for rows of some covariance; None
    stands for I.
    """
    across = unmixing if covariance is None else unmixing @ covariance
    return np.asarray(unmixing / np.sqrt(np.sum(across * unmixing, axis=1))[:, None])


@dataclass(frozen=True, eq=False)
class HistogramLikelihood:
    """The mean log-likelihood of rows as a function of their unmixing matrix, with smoothed
    histograms as densities.

    Attributes
    ----------
    blocks : list of arrays or Weighted
        The rows.
    centre : array
        What is subtracted from rows: their mean.
    covariance : array, or None
        Their covariance; None stands for I.
    """

    blocks: list[Any]
    centre: FloatArray
    covariance: FloatArray | None = None

    def value(self, unmixing: FloatArray) -> float:
        """Return the mean log-likelihood of a row, up to a constant."""
        return self._value(unmixing, self._shares(unmixing))

    def gradient(self, unmixing: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Return the mean log-likelihood, its gradient for W → (I + E) W of variances 1, and E[ψ²]
        of each source.
        """
        shares = self._shares(unmixing)
        density = _smoothed(shares)
        inner = np.log(density) + (shares / density) @ _KERNEL
        table = np.zeros_like(inner)
        table[:, :-1] = (inner[:, :-1] - inner[:, 1:]) / _BIN_WIDTH

        def of_block(sources: FloatArray, weights: FloatArray | None) -> FloatArray:
            scores = np.take_along_axis(table, _centres_below(sources)[0], axis=1)
            counted = scores if weights is None else scores * weights
            return np.column_stack([counted @ sources.T, np.sum(counted * scores, axis=1)])

        means = self._sum(unmixing, of_block) / sum(map(count_rows, self.blocks))
        cross = means[:, :-1]
        curvature = means[:, -1]
        across = unmixing if self.covariance is None else unmixing @ self.covariance
        slope = -cross - (1 - np.diagonal(cross))[:, None] * (across @ unmixing.T)
        np.fill_diagonal(slope, 0.0)
        return self._value(unmixing, shares), slope, curvature

    def _shares(self, unmixing: FloatArray) -> FloatArray:
        return np.asarray(self._sum(unmixing, _shared_counts) / sum(map(count_rows, self.blocks)))

    def _value(self, unmixing: FloatArray, shares: FloatArray) -> float:
        across = unmixing if self.covariance is None else unmixing @ self.covariance
        volume = np.linalg.slogdet(across @ unmixing.T)[1] / 2
        return float(volume + np.sum(shares * np.log(_smoothed(shares) / _BIN_WIDTH)))

    def _sum(
        self, unmixing: FloatArray, function: Callable[[FloatArray, FloatArray | None], FloatArray]
    ) -> FloatArray:
        """Return the sum of a function of the sources and weights of each block, in order, whatever
        the threads.
        """

        def of_block(block: Any) -> FloatArray:
            rows, weights = split(block)
            return function(unmixing @ (rows - self.centre).T, weights)

        with one_blas_thread():
            return reduce(add, map_blocks(of_block, self.blocks, parallel=True))


def _smoothed(shares: FloatArray) -> FloatArray:
    return np.asarray(shares @ _KERNEL.T + np.finfo(np.float64).eps)


def _centres_below(sources: FloatArray) -> tuple[IndexArray, FloatArray]:
    """Return the bin whose centre is the nearest below each value, and the distance from it in
    bins.
    """
    places = np.clip((sources + _RANGE) / _BIN_WIDTH - 0.5, 0, N_BINS - 1)
    below = places.astype(np.int64)
    return below, places - below


def _shared_counts(sources: FloatArray, weights: FloatArray | None) -> FloatArray:
    """Return the number of values of each source (k x n) in each bin, shared between neighbours, k
    x 200.
    """
    k = len(sources)
    below, distance = _centres_below(sources)
    flat = (below + np.arange(k)[:, None] * N_BINS).ravel()
    if weights is None:
        shares = distance
        counted = None
    else:
        shares = distance * weights
        counted = np.tile(weights, k)
    above = np.bincount(flat, shares.ravel(), minlength=k * N_BINS).reshape(k, N_BINS)
    counts = np.bincount(flat, counted, minlength=k * N_BINS).reshape(k, N_BINS) - above
    counts[:, 1:] += above[:, :-1]
    return np.asarray(counts)


@dataclass(frozen=True, eq=False)
class Ascent:
    """The unmixing matrix at the end of an ascent, its steps, and whether the likelihood stopped
    rising.
    """

    unmixing: FloatArray
    n_iter: int
    converged: bool


def maximize_likelihood(
    likelihood: HistogramLikelihood, unmixing: FloatArray, *, max_iter: int
) -> Ascent:
    """Maximise the likelihood by L-BFGS, until it no longer rises."""
    height, slope, curvature = likelihood.gradient(unmixing)
    pairs: deque[tuple[FloatArray, FloatArray]] = deque(maxlen=_MEMORY)
    n_small = 0
    for n_iter in range(max_iter):
        direction = _direction(slope, curvature, pairs)
        if np.sum(direction * slope) <= 0:
            pairs.clear()
            direction = _direction(slope, curvature, pairs)
        direction *= min(
            1.0, _MAX_CHANGE / max(float(np.abs(direction).max()), np.finfo(np.float64).tiny)
        )
        promised = float(np.sum(direction * slope))
        for halvings in range(_N_HALVINGS):
            share = 0.5**halvings
            after = scale_to_unit(unmixing + share * (direction @ unmixing), likelihood.covariance)
            there = likelihood.gradient(after)
            if there[0] > height + _ARMIJO * share * promised:
                break
        else:
            if not pairs:  # not even the first Hessian leads upwards
                return Ascent(unmixing, n_iter, converged=True)
            pairs.clear()
            continue
        change = slope - there[1]
        if np.sum(direction * change) > 0:
            pairs.append((share * direction, change))
        n_small = n_small + 1 if there[0] - height < _LEAST_GAIN else 0
        unmixing = after
        height, slope, curvature = there
        if n_small == _N_SMALL:
            return Ascent(unmixing, n_iter + 1, converged=True)
    return Ascent(unmixing, max_iter, converged=False)


def _direction(
    slope: FloatArray, curvature: FloatArray, pairs: deque[tuple[FloatArray, FloatArray]]
) -> FloatArray:
    """Return the direction of L-BFGS, by the recursion over pairs of steps and changes of the
    gradient.
    """
    rest = slope
    parts = list[float]()
    for step, change in reversed(pairs):
        parts.append(float(np.sum(step * rest) / np.sum(step * change)))
        rest = rest - parts[-1] * change
    own = curvature[:, None]
    other = curvature[None, :]
    smallest = (own + other - np.sqrt((own - other) ** 2 + 4)) / 2
    shift = np.maximum(_MIN_CURVATURE - smallest, 0.0)
    own = own + shift
    other = other + shift
    direction = (other * rest - rest.T) / (own * other - 1)
    np.fill_diagonal(direction, 0.0)
    for (step, change), part in zip(pairs, reversed(parts), strict=True):
        direction = direction + (part - np.sum(change * direction) / np.sum(step * change)) * step
    return np.asarray(direction)
