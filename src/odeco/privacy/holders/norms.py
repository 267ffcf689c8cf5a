"""A bound on the norm of rows, and centres and scales of columns, that nobody guesses: noisy counts
suggest them.

**Norms.** The real line of norms is cut into the bins of a fixed public grid, `_PER_OCTAVE` for
each power of two. How many rows have their norm in each bin is released once, with noise; the bound
is computed from these noisy counts and from public numbers, so that it is post-processing.

**Sensitivity.** A row adds 1 to one bin: which bin depends on that row alone. A row that is not
finite is blank and adds nothing; nor does a row of zeros, which no bound would clip. The rows of a
user add 1/m each, m being the public number of rows of the user, rounded down to a multiple of
2⁻²⁰: what a user adds has entries of at least 0 and a sum of at most 1, hence a Euclidean norm of
at most 1. Blanking the unit moves the counts by at most 1. Replacing it moves them by at most √2,
since what two units add, u and v, has ⟨u, v⟩ ≥ 0. Sums of multiples of 2⁻²⁰ below 2³³ are exact in
double precision in whatever order they are made, so no rounding error can differ between
neighbours. That a norm is rounded does not matter: it moves a row to another bin, of which there is
still one.

**Columns.** The real line is cut into the bins of a fixed public grid: `_PER_OCTAVE` for each power
of two, below zero and above it. How many numbers of each column are in each bin is released once,
with noise. Centre and spread of a column are computed from its noisy counts, so that they are
post-processing.

**Sensitivity.** A row adds 1 to one bin of each of d columns: which bins depends on that row alone.
So it adds d ones, an array of Euclidean norm √d. A row that is not finite is blank and adds
nothing. The rows of a user add 1/m each, m being the public number of rows of the user, rounded
down to a multiple of 2⁻²⁰: a mean of arrays of norm √d, or less, has no larger norm. Blanking the
unit moves the counts by at most √d. Replacing it moves them by at most √(2d), since what two units
add, u and v, has no negative entry, so that ⟨u, v⟩ ≥ 0. Sums of multiples of 2⁻²⁰ below 2³³ are
exact in double precision in whatever order they are made.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import sparse

from odeco._util.types import BoolArray, FloatArray, IndexArray
from odeco.io.rows import as_rows, is_sparse
from odeco.privacy.holders.lanes import RowLane, is_elsewhere, lane_spans, n_lanes, sum_in_lanes
from odeco.privacy.holders.protocol import NeighbourRelation, unit_weights
from odeco.privacy.holders.records import as_private_rows
from odeco.privacy.release import Releaser
from odeco.privacy.sensitivity import neighbour_factor
from odeco.privacy.sums import Query

#: The value of `norm_bound` that has the bound chosen by the run.
AUTO = "auto"

#: The share of μ² that the counts get where a bound is chosen: this one, and up to the other for
#: few units and little budget.
_SHARE = 0.05
_LARGEST_SHARE = 0.5

#: The n μ of the counts from which on 70 % of the units, in two neighbouring powers of two, are 6
#: deviations of noise: the noise in each of 2 · `_PER_OCTAVE` bins is √2/μ.
_CERTAIN = 6 * math.sqrt(2) * math.sqrt(8) / 0.7

#: The exponents of the smallest and largest norm of the grid. Norms outside of it are counted in
#: its last bins.
_LOWEST = -128
_HIGHEST = 128

#: Number of bins for each power of two.
_PER_OCTAVE = 4

N_BINS = _PER_OCTAVE * (_HIGHEST - _LOWEST)

#: What a row of a user with several rows adds is a multiple of this.
_GRAIN = 2.0**-20

#: A power of two has rows if its count exceeds this many standard deviations of its noise, and if
#: it is within `_REACH` powers of two of the fullest pair: of 18 numbers of noise, one in 16,000 is
#: as large.
_CLEAR = 4.5
_REACH = 8


class RowNorms:
    """The holder of rows whose norms are counted.

    Parameters
    ----------
    rows : array or CSR array, n x d, or SilentRows, or RemoteRows
        The rows, any numbers.
    groups : array of n labels, optional
        Which user each row belongs to; public.
    """

    def __init__(self, rows: Any, groups: Any = None) -> None:
        elsewhere = is_elsewhere(rows)
        self._rows = rows if elsewhere else as_private_rows(rows)
        n_rows, n_features = (rows.n_rows, rows.n_features) if elsewhere else self._rows.shape
        self.n_features = int(n_features)
        weights, self.n_units = unit_weights(groups, int(n_rows))
        self._weights: FloatArray = np.floor(weights / _GRAIN) * _GRAIN

    def query(self) -> Query:
        """Return the query of the counts."""
        return Query(
            "counts of rows by their norm", self._counts, size=N_BINS, bound=1.0, signed=False
        )

    def _counts(self) -> FloatArray:
        n_rows = self._weights.size
        lane = RowLane(_add_counts, (N_BINS,), weights=self._weights)
        return sum_in_lanes(
            self._rows, lane, lane_spans(n_rows, n_lanes(n_rows, N_BINS)), parallel=False
        )


def _add_counts(total: FloatArray, rows: Any, weights: FloatArray, _scratch: FloatArray) -> None:
    bins = bins_of(as_rows(rows))
    total += np.bincount(bins[bins >= 0], weights[bins >= 0], minlength=N_BINS)


@np.errstate(all="ignore")  # a warning about the data would be an answer without noise
def bins_of(rows: Any) -> IndexArray:
    """Return the bin of the norm of each row, dense or CSR, and −1 for rows that are blank or
    zero.
    """
    if is_sparse(rows):
        rows = sparse.csr_array(rows, dtype=np.float64, copy=True)
        rows.has_canonical_format = False  # the flag may be wrong
        rows.sum_duplicates()
        owner = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        largest = np.zeros(rows.shape[0])
        np.maximum.at(largest, owner, np.abs(rows.data))
    else:
        rows = rows.astype(np.float64)
        largest = np.abs(rows).max(axis=1, initial=0.0)
    usable = np.isfinite(largest) & (largest > 0)
    # Times a power of two, the largest entry of a row is between 1/2 and 1: no square over- or
    # underflows.
    exponents = np.frexp(np.where(usable, largest, 1.0))[1].astype(np.int64)
    if is_sparse(rows):
        squares = np.bincount(
            owner, np.ldexp(rows.data, -exponents[owner]) ** 2, minlength=largest.size
        )
    else:
        squares = np.square(np.ldexp(rows, -exponents[:, None])).sum(axis=1)
    logarithms = np.where(usable, exponents + np.log2(np.where(usable, squares, 1.0)) / 2, 0.0)
    bins = np.clip(np.floor(_PER_OCTAVE * (logarithms - _LOWEST)), 0, N_BINS - 1).astype(np.int64)
    return np.where(usable, bins, -1)


def norms_share(n_units: int, mu: float) -> float:
    """Return the share of μ² that the counts get, by public numbers."""
    return min(_LARGEST_SHARE, max(_SHARE, (_CERTAIN / (n_units * mu)) ** 2))


def norms_sensitivity(neighbour_relation: NeighbourRelation) -> float:
    """Return how far a neighbour can move the counts: √2 if a unit is replaced, 1 if it is
    blanked.
    """
    return neighbour_factor(replace=neighbour_relation == "replace", signed=False)


def suggested_bound(
    counts: FloatArray, scale: float, n_units: int, order: int, noise: float
) -> float:
    """Return the bound B that makes the sum of two errors smallest, by noisy counts.

    One is the noise of privacy in the moment of order p, which is `noise` times B^p. The other is
    what clipping takes from the moment, at most (1/n) Σ (|x|^p − B^p) over the rows x that are
    longer than B. Candidates are the upper ends of bins, and rows are taken to be as long as the
    middle of their bin. Only powers of two that certainly have rows count, or else the fullest pair
    of neighbours: beyond them, rows are too few for this budget, and are clipped.

    Parameters
    ----------
    counts : array
        The counts, with noise.
    scale : float
        The standard deviation of the noise in each count.
    n_units : int
        The number of units.
    order : int
        The order p of the moment.
    noise : float
        The noise of privacy in the moment for a bound of 1.
    """
    octaves = counts.reshape(-1, _PER_OCTAVE).sum(axis=1)
    fullest = int(
        (octaves[:-1] + octaves[1:]).argmax()
    )  # with the next one: rows may lie on both sides of a power
    clear = np.flatnonzero(octaves > _CLEAR * math.sqrt(_PER_OCTAVE) * scale)
    near = clear[np.abs(clear - fullest) <= _REACH]
    near = near if near.size else np.array([fullest, fullest + 1])
    bins = np.arange(_PER_OCTAVE * near.min(), _PER_OCTAVE * (near.max() + 1))
    bounds = 2.0 ** ((bins + 1) / _PER_OCTAVE + _LOWEST)
    lengths = 2.0 ** ((bins + 0.5) / _PER_OCTAVE + _LOWEST)
    unit = bounds[-1]  # powers of quotients neither over- nor underflow
    excess = np.maximum((lengths[:, None] / unit) ** order - (bounds / unit) ** order, 0.0)
    clipped = np.maximum(counts[bins] @ excess, 0.0) / n_units
    return float(bounds[np.argmin(noise * (bounds / unit) ** order + clipped)])


def is_auto(norm_bound: Any) -> bool:
    """Return whether a bound is to be chosen by the run."""
    return isinstance(norm_bound, str) and norm_bound == AUTO


def release_bound(
    norms: RowNorms,
    neighbour_relation: NeighbourRelation,
    releaser: Releaser,
    mu: float,
    order: int,
    noise: float,
) -> float:
    """Return the bound that noisy counts suggest; `mu` is that of the release, `noise` as for
    `suggested_bound`.
    """
    query = norms.query()
    counts, scale = releaser.release(
        query.what,
        query.answer,
        size=query.size,
        sensitivity=norms_sensitivity(neighbour_relation),
        noise_multiplier=1 / mu,
    )
    return suggested_bound(counts, scale, norms.n_units, order, noise)


# ---- columns -------------------------------------------------------------------------------------

#: The exponents of the smallest and largest size of the grid. Smaller and larger numbers are in the
#: last bins.
_LOWEST_SIZE = -64
_HIGHEST_SIZE = 64

_N_OCTAVES = 2 * (_HIGHEST_SIZE - _LOWEST_SIZE)

#: Number of bins of a column.
N_COLUMN_BINS = _PER_OCTAVE * _N_OCTAVES

#: A power of two has numbers if its count exceeds this many deviations of its noise: one in 10⁹ of
#: noise does.
_CLEAR_COLUMN = 6.0

#: A power of two with this share of the units should be clear.
_CERTAIN_COLUMN = 0.1


def bins_of_columns(rows: FloatArray) -> IndexArray:
    """Return the bin of each number of dense finite rows: the smaller the number, the lower its
    bin.
    """
    fractions, exponents = np.frexp(np.abs(rows))  # 2^(e − 1) ≤ |x| < 2^e; for 0 both are 0
    steps = np.floor(_PER_OCTAVE * np.log2(np.where(fractions > 0, 2 * fractions, 1.0))).astype(
        np.int64
    )
    octaves = np.where(fractions > 0, exponents.astype(np.int64) - 1 - _LOWEST_SIZE, -1)
    places = np.clip(
        _PER_OCTAVE * octaves + np.clip(steps, 0, _PER_OCTAVE - 1), 0, N_COLUMN_BINS // 2 - 1
    )
    return np.asarray(
        np.where(rows < 0, N_COLUMN_BINS // 2 - 1 - places, N_COLUMN_BINS // 2 + places)
    )


def count_columns(rows: FloatArray, weights: FloatArray) -> FloatArray:
    """Return how many numbers of each column are in each bin, a d x `N_COLUMN_BINS` array, of rows
    that are finite.
    """
    usable: BoolArray = np.asarray(np.isfinite(rows).all(axis=1))
    bins = bins_of_columns(np.where(usable[:, None], rows, 0.0))
    own = np.where(usable, weights, 0.0)
    return np.stack([np.bincount(column, own, minlength=N_COLUMN_BINS) for column in bins.T])


def columns_share(n_units: int, n_features: int, mu: float) -> float:
    """Return the share of μ² that the counts get, by public numbers."""
    needed = (
        _CLEAR_COLUMN * math.sqrt(2 * n_features * _PER_OCTAVE) / (_CERTAIN_COLUMN * n_units * mu)
    )
    return min(_LARGEST_SHARE, max(_SHARE, needed**2))


def suggested_units(counts: FloatArray, scale: float) -> tuple[FloatArray, FloatArray]:
    """Return centre and standard deviation of each column, by noisy counts.

    Only powers of two that certainly have numbers count, with their neighbours; or else the fullest
    pair of neighbours. Numbers are taken to be in the middle of their bin.

    Parameters
    ----------
    counts : array, d x `N_COLUMN_BINS`
        The counts, with noise.
    scale : float
        The standard deviation of the noise in each count.
    """
    octaves = counts.reshape(len(counts), _N_OCTAVES, _PER_OCTAVE).sum(axis=2)
    clear = octaves > _CLEAR_COLUMN * math.sqrt(_PER_OCTAVE) * scale
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
    ends = 2.0 ** (np.arange(N_COLUMN_BINS // 2 + 1) / _PER_OCTAVE + _LOWEST_SIZE)
    ends[0] = 0.0  # smaller numbers are in the first bin
    middles = (ends[:-1] + ends[1:]) / 2
    widths = np.diff(ends)
    return np.concatenate([-middles[::-1], middles]), np.concatenate([widths[::-1], widths])
