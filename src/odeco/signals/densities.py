"""The density of each source as a histogram: for likelihoods, for samples and for pictures."""

from __future__ import annotations

import numpy as np

from odeco._types import FloatArray

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
