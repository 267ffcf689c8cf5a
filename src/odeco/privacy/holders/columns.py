"""Centres and scales of columns that nobody guesses: noisy counts of numbers by column, and what they suggest.

The real line is cut into the bins of a fixed public grid: `_PER_OCTAVE` for each power of two, below zero and above it.
How many numbers of each column are in each bin is released once, with noise. Centre and spread of a column are computed
from its noisy counts, so that they are post-processing.

**Sensitivity.** A row adds 1 to one bin of each of d columns: which bins depends on that row alone. So it adds d ones,
an array of Euclidean norm √d. A row that is not finite is blank and adds nothing. The rows of a user add 1/m each, m
being the public number of rows of the user, rounded down to a multiple of 2⁻²⁰: a mean of arrays of norm √d, or less,
has no larger norm. Blanking the unit moves the counts by at most √d. Replacing it moves them by at most √(2d), since
what two units add, u and v, has no negative entry, so that ⟨u, v⟩ ≥ 0. Sums of multiples of 2⁻²⁰ below 2³³ are exact in
double precision in whatever order they are made.
"""

from __future__ import annotations

import math

import numpy as np

from odeco._util.types import BoolArray, FloatArray, IndexArray

#: The exponents of the smallest and largest size of the grid. Smaller and larger numbers are in the last bins.
_LOWEST, _HIGHEST = -64, 64

#: Number of bins for each power of two.
_PER_OCTAVE = 4

_N_OCTAVES = 2 * (_HIGHEST - _LOWEST)

#: Number of bins of a column.
N_BINS = _PER_OCTAVE * _N_OCTAVES

#: A power of two has numbers if its count exceeds this many deviations of its noise: one in 10⁹ of noise does.
_CLEAR = 6.0

#: The share of μ² that the counts get: this one, and up to the other for few units and little budget.
_SHARE, _LARGEST_SHARE = 0.05, 0.5

#: A power of two with this share of the units should be clear.
_CERTAIN = 0.1


def bins_of_columns(rows: FloatArray) -> IndexArray:
    """Return the bin of each number of dense finite rows: the smaller the number, the lower its bin."""
    fractions, exponents = np.frexp(np.abs(rows))  # 2^(e − 1) ≤ |x| < 2^e; for 0 both are 0
    steps = np.floor(_PER_OCTAVE * np.log2(np.where(fractions > 0, 2 * fractions, 1.0))).astype(np.int64)
    octaves = np.where(fractions > 0, exponents.astype(np.int64) - 1 - _LOWEST, -1)
    places = np.clip(_PER_OCTAVE * octaves + np.clip(steps, 0, _PER_OCTAVE - 1), 0, N_BINS // 2 - 1)
    return np.asarray(np.where(rows < 0, N_BINS // 2 - 1 - places, N_BINS // 2 + places))


def count_columns(rows: FloatArray, weights: FloatArray) -> FloatArray:
    """Return how many numbers of each column are in each bin, a d x `N_BINS` array, of rows that are finite."""
    usable: BoolArray = np.asarray(np.isfinite(rows).all(axis=1))
    bins = bins_of_columns(np.where(usable[:, None], rows, 0.0))
    own = np.where(usable, weights, 0.0)
    return np.stack([np.bincount(column, own, minlength=N_BINS) for column in bins.T])


def columns_share(n_units: int, n_features: int, mu: float) -> float:
    """Return the share of μ² that the counts get, by public numbers."""
    needed = _CLEAR * math.sqrt(2 * n_features * _PER_OCTAVE) / (_CERTAIN * n_units * mu)
    return min(_LARGEST_SHARE, max(_SHARE, needed**2))


def suggested_units(counts: FloatArray, scale: float) -> tuple[FloatArray, FloatArray]:
    """Return centre and standard deviation of each column, by noisy counts.

    Only powers of two that certainly have numbers count, with their neighbours; or else the fullest pair of neighbours.
    Numbers are taken to be in the middle of their bin.

    Parameters
    ----------
    counts : array, d x `N_BINS`
        The counts, with noise.
    scale : float
        The standard deviation of the noise in each count.
    """
    octaves = counts.reshape(len(counts), _N_OCTAVES, _PER_OCTAVE).sum(axis=2)
    clear = octaves > _CLEAR * math.sqrt(_PER_OCTAVE) * scale
    wide = _with_neighbours(clear)
    unclear = np.flatnonzero(~clear.any(axis=1))
    fullest = (octaves[:, :-1] + octaves[:, 1:]).argmax(axis=1)[unclear]
    wide[unclear, fullest] = wide[unclear, fullest + 1] = True
    own = np.maximum(counts, 0.0) * np.repeat(wide, _PER_OCTAVE, axis=1)
    own /= np.maximum(own.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    middles, widths = _grid()
    centres = own @ middles
    squares = np.sum(own * (middles - centres[:, None]) ** 2, axis=1) + own @ widths**2 / 12
    return centres, np.sqrt(squares)


def _with_neighbours(clear: BoolArray) -> BoolArray:
    """Return which powers of two are clear, or next to a clear one."""
    wide = clear.copy()
    wide[:, 1:] |= clear[:, :-1]
    wide[:, :-1] |= clear[:, 1:]
    return wide


def _grid() -> tuple[FloatArray, FloatArray]:
    """Return the middle and the width of each bin."""
    ends = 2.0 ** (np.arange(N_BINS // 2 + 1) / _PER_OCTAVE + _LOWEST)
    ends[0] = 0.0  # smaller numbers are in the first bin
    middles, widths = (ends[:-1] + ends[1:]) / 2, np.diff(ends)
    return np.concatenate([-middles[::-1], middles]), np.concatenate([widths[::-1], widths])
