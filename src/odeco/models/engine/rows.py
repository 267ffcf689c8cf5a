"""Rows of numbers, and what they may have: weights, missing values, and columns in different units.

**Weights.** A row of weight w counts as w equal rows. Data with weights travel through the engine
as one object, `Weighted`, which is cut as its rows are. Rows without weights stay plain arrays. A
specification takes both apart with `split`, and gets None for the weights of plain rows. Functions
add up rows with weights or without; without, they do what NumPy does, bit for bit.

**Missing values** are NaN, and the E step of Gaussians expects them (Little and Rubin 2019, section
11.2). Values are missing at random: whether one is missing may depend on observed values, but not
on itself. Then the density of a row is that of its observed columns, and the sufficient statistics
have E[x | observed, h] and E[x xᵀ | observed, h] in the place of x and x xᵀ.

- Columns that are independent within a component h: a missing one says nothing, and adds nothing
  to sums.
- Covariance matrices: let Λ = Σ⁻¹, let m be the missing columns of a row, and let x be the row from
  which μ_h was subtracted, with zeros in m. Then Cov(x_m | observed) = Λ_mm⁻¹ and E(x_m | observed)
  = −Λ_mm⁻¹ (Λ x)_m, and log |Σ_oo| = log |Σ| + log |Λ_mm|. Each pattern of missing columns has its
  own matrix Λ_mm. Patterns with the same number of missing columns are inverted together, and most
  are small, as most rows have few missing values.

**Units.** Models in which distances between rows count, such as mixtures of spheres, depend on the
units of columns. `standardize` divides every column by its standard deviation. With ``"auto"`` this
is tried if the ranges of columns differ by much, and the likelier of both models is taken: both are
densities of the rows in their own units, so they can be compared.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from odeco._util.types import BoolArray, FloatArray, IndexArray
from odeco.errors import DominantColumnWarning
from odeco.models.engine.fit import Fit

#: Models need at least this many rows.
_FEWEST = 2

#: Rows that are worked on at a time: a block with its responsibilities stays in the cache.
BLOCK = 8192


@dataclass(frozen=True, eq=False)
class Weighted:
    """Rows, or data that were prepared from them, and the weight of each."""

    rows: Any
    weights: FloatArray

    def __len__(self) -> int:
        return len(self.weights)

    def __getitem__(self, part: Any) -> Weighted:
        return Weighted(self.rows[part], self.weights[part])


def warn_of_few_rows(weights: FloatArray) -> None:
    """Warn if weights count as fewer rows than there must be: they were probably divided by their
    sum.
    """
    total, n_rows = float(weights.sum()), np.count_nonzero(weights)
    if total < _FEWEST <= n_rows:
        warnings.warn(
            f"A weight is a number of rows, and `sample_weight` sums to {total:.3g}: {n_rows:,} "
            f"rows count as fewer than {_FEWEST}, which tests, criteria and priors take "
            "literally. Multiply weights that were divided by their sum by the number of rows.",
            stacklevel=5,
        )


def with_weights(rows: Any, weights: FloatArray | None) -> Any:
    """Return rows with their weights, and plain rows if all of these are one."""
    return rows if weights is None or bool(np.all(weights == 1)) else Weighted(rows, weights)


def split(data: Any) -> tuple[Any, FloatArray | None]:
    """Return rows, and their weights; None if they have none."""
    return (data.rows, data.weights) if isinstance(data, Weighted) else (data, None)


def mapped(data: Any, function: Callable[[Any], Any]) -> Any:
    """Return a function of rows, with the weights of the rows."""
    return (
        Weighted(function(data.rows), data.weights)
        if isinstance(data, Weighted)
        else function(data)
    )


def count_rows(data: Any) -> float:
    """Return the number of rows, each counted by its weight."""
    return float(data.weights.sum()) if isinstance(data, Weighted) else len(data)


def blocks_of(rows: Any, size: int = BLOCK) -> Iterator[Any]:
    """Yield rows in blocks of one size."""
    return (rows[start : start + size] for start in range(0, len(rows), size))


#: Up to this number of rows, all are put into an order of their own before a fit.
_MOST_ORDERED = 20_000


def own_order(data: Any) -> IndexArray:
    """Return an order of rows that depends on what they hold, and not on how they are listed.

    Rows are sorted by their first column, equal ones by the second, and so on. So the order does
    not depend on the units of columns either. Most rows differ in their first columns, and few
    columns are looked at.
    """
    rows, weights = split(data)
    n_columns = rows.shape[1]
    n_keys = 1
    while True:
        order = np.lexsort(rows.T[:n_keys][::-1])
        ties = np.all(_are_equal(rows[order, :n_keys]), axis=1)
        if n_keys == n_columns or not ties.any():
            break
        n_keys = min(2 * n_keys, n_columns)
    if weights is None or not ties.any():
        return order
    return np.lexsort((weights, *rows.T[::-1]))


def _are_equal(rows: Any) -> BoolArray:
    """Return which numbers equal those in the row before; missing values are equal."""
    return np.asarray((rows[1:] == rows[:-1]) | ((rows[1:] != rows[1:]) & (rows[:-1] != rows[:-1])))


def in_own_order(data: Any) -> Any:
    """Return few rows in their own order, so that a fit does not depend on the order in which they
    are listed.
    """
    return data[own_order(data)] if len(data) <= _MOST_ORDERED else data


def mean_of(data: Any) -> FloatArray:
    """Return the mean of rows."""
    rows, weights = split(data)
    return np.asarray(rows.mean(axis=0) if weights is None else weights @ rows / weights.sum())


def times(values: FloatArray, weights: FloatArray | None) -> FloatArray:
    """Return values, one for each row or a row of them, times the weight of their row."""
    return values if weights is None else values * weights.reshape(-1, *(1,) * (values.ndim - 1))


def weigh(
    shares: FloatArray, likelihoods: FloatArray, weights: FloatArray | None
) -> tuple[float, float, FloatArray]:
    """Return what the statistics of an E step begin with, and the weighted responsibilities.

    Parameters
    ----------
    shares, likelihoods : array, n x k and n
        The responsibilities and the log-likelihood of each row.
    weights : array or None
        The weight of each row.

    Returns
    -------
    n, log_likelihood : float
        Number of rows, and the sum of their log-likelihoods.
    shares : array, n x k
        Responsibilities of which the sums over rows are taken.
    """
    if weights is None:
        return float(len(shares)), float(likelihoods.sum()), shares
    return float(weights.sum()), float(weights @ likelihoods), shares * weights[:, None]


#: Rows are worked on together as long as their matrices Λ_mm and their expected values have about
#: this many numbers.
_NUMBERS_AT_A_TIME = 2**20

_LOG_2_PI = math.log(2 * math.pi)


def has_missing(rows: FloatArray) -> bool:
    """Tell whether a value is missing; all others are finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isnan(rows.sum())) and bool(np.isnan(rows).any())


def column_ranges(rows: FloatArray) -> FloatArray:
    """Return the range of the observed values of each column."""
    with np.errstate(over="ignore"):
        return np.asarray(np.fmax.reduce(rows, axis=0) - np.fmin.reduce(rows, axis=0))


def column_moments(
    rows: FloatArray, weights: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return mean and variance of the observed values of each column; zeros if there are none."""
    if not has_missing(rows):
        means = np.average(rows, axis=0, weights=weights)
        return means, np.average(np.square(rows - means), axis=0, weights=weights)
    missing, counts = np.isnan(rows), observed_counts(rows, weights)
    means = times(np.where(missing, 0.0, rows), weights).sum(axis=0) / counts
    return means, times(np.square(np.where(missing, 0.0, rows - means)), weights).sum(
        axis=0
    ) / counts


def observed_counts(rows: FloatArray, weights: FloatArray | None = None) -> FloatArray:
    """Return the number of observed values of each column, counted by the weights of rows; 1 if
    there are none.
    """
    counts = times((~np.isnan(rows)).astype(np.float64), weights).sum(axis=0)
    return np.where(counts > 0, counts, 1.0)


def filled(rows: FloatArray, by: Any) -> FloatArray:
    """Return rows with other values in the place of missing ones."""
    return np.where(np.isnan(rows), by, rows) if has_missing(rows) else rows


def parts_of(rows: FloatArray, n_components: int) -> Iterator[slice]:
    """Yield parts of rows for which `Correlated` needs little memory."""
    n_missing = np.isnan(rows).sum(axis=1)
    numbers = np.cumsum(n_components * (rows.shape[1] + n_missing**2))
    ends = np.append(np.flatnonzero(np.diff(numbers // _NUMBERS_AT_A_TIME)) + 1, len(rows))
    return (
        slice(first, end)
        for first, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)
    )


@dataclass(frozen=True, eq=False)
class _Group:
    """Rows with one number q of missing values.

    Attributes
    ----------
    rows : array, r
        Their places.
    patterns : array, r
        The pattern of each.
    columns : array, p x q
        The missing columns of each pattern.
    covariances : array, k x p x q x q
        The covariance of the missing values of each pattern, given the observed ones.
    """

    rows: IndexArray
    patterns: IndexArray
    columns: IndexArray
    covariances: FloatArray


class Correlated:
    """What the observed values of rows say about each component, and about what is missing, for
    components with covariance matrices.

    Attributes
    ----------
    log_densities : array, n x k
        The log-density of the observed values of each row in each component.
    """

    def __init__(self, rows: FloatArray, means: FloatArray, factors: FloatArray) -> None:
        missing = np.isnan(rows)
        precisions = factors @ factors.transpose(0, 2, 1)
        # In units in which precisions have a unit diagonal, inverses do not depend on the units of
        # columns.
        units = np.sqrt(np.einsum("kii->ki", precisions))
        scaled = factors / units[:, :, None]
        precisions = precisions / (units[:, :, None] * units[:, None, :])
        offsets = np.where(missing, 0.0, (rows - means[:, None]) * units[:, None])
        slopes = offsets @ precisions
        halves = (
            0.5 * _LOG_2_PI * (~missing).sum(axis=1)
            - np.log(np.einsum("kii->ki", factors)).sum(axis=1)[:, None]
        )
        self._groups: list[_Group] = []
        for at, patterns, columns in _groups(missing):
            own = precisions[:, columns[:, :, None], columns[:, None, :]]
            inverses = np.linalg.inv(own)
            own_slopes = slopes[:, at[:, None], columns[patterns]]
            offsets[:, at[:, None], columns[patterns]] = -(
                inverses[:, patterns] @ own_slopes[..., None]
            )[..., 0]
            own_units = units[:, columns]
            log_determinants = np.linalg.slogdet(own)[1] + 2 * np.log(own_units).sum(axis=2)
            halves[:, at] += 0.5 * log_determinants[:, patterns]
            inverses /= own_units[..., :, None] * own_units[..., None, :]
            self._groups.append(_Group(at, patterns, columns, inverses))
        white = offsets @ scaled
        self.log_densities = (-0.5 * np.einsum("kij,kij->ki", white, white) - halves).T
        self._expected = offsets / units[:, None] + means[:, None]  # k x n x d

    def sums(self, shares: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the expectations of Σ r_h, Σ r_h x and Σ r_h x xᵀ for responsibilities r (n x
        k).
        """
        k, d = len(self._expected), self._expected.shape[2]
        weighted = self._expected * shares.T[:, :, None]
        seconds = weighted.transpose(0, 2, 1) @ self._expected
        for group in self._groups:
            places = (group.columns[:, :, None] * d + group.columns[:, None, :]).ravel()
            for component, own in enumerate(group.covariances):
                counts = np.bincount(
                    group.patterns, shares[group.rows, component], minlength=len(group.columns)
                )
                unseen = np.bincount(places, (counts[:, None, None] * own).ravel(), minlength=d * d)
                seconds[component] += unseen.reshape(d, d)
        return shares.sum(axis=0), weighted.sum(axis=1), seconds.reshape(k, d, d)


def _groups(missing: BoolArray) -> Iterator[tuple[IndexArray, IndexArray, IndexArray]]:
    """Yield rows with the same number of missing values: their places, their patterns, and the
    columns of patterns.
    """
    n_missing = missing.sum(axis=1)
    for number in np.unique(n_missing[n_missing > 0]).tolist():
        at = np.flatnonzero(n_missing == number)
        columns = np.nonzero(missing[at])[1].reshape(-1, number)
        patterns = columns.astype(np.int32).view(f"V{4 * number}").ravel()
        _, firsts, numbers = np.unique(patterns, return_index=True, return_inverse=True)
        yield at, numbers.ravel(), columns[firsts]


Standardize = bool | Literal["auto"]

#: With "auto", columns are standardised only if the largest of their ranges is more than this
#: multiple of the smallest. Ranges, and not deviations, because a column that hardly ever changes,
#: such as a pixel at the border of images, has a small deviation but the unit of the others.
MAX_RATIO = 100.0

#: Standard deviations must be in this range, so that their squares are numbers of double precision.
MIN_SCALE, MAX_SCALE = 1e-140, 1e140

#: A column with this share of the variance may decide alone what is found: its deviation is three
#: times that of all others together. It does if components that do not depend on units agree less
#: than this with those found.
_DOMINANT, _AGREEING = 0.9, 0.8


def column_scale(data: Any, standardize: Standardize) -> FloatArray | None:
    """Return the standard deviation of each column, and 1 of columns that do not vary; None to
    leave rows as they are.

    With ``"auto"``, this is None unless the ranges of columns differ by more than a factor of
    `MAX_RATIO`.
    """
    if standardize is False:
        return None
    rows, weights = split(data)
    ranges = column_ranges(rows)
    varies = ranges > 0
    if standardize == "auto" and not (
        varies.any() and ranges.max() > MAX_RATIO * ranges[varies].min()
    ):
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        units = np.where(varies, ranges, 1.0)
        if has_missing(rows):
            squares = column_moments(rows / units, weights)[1]
        else:
            mean = mean_of(data)
            blocks = ((block - mean, own) for block, own in map(split, blocks_of(data)))
            squares = sum(
                times(np.square(each / units), own).sum(axis=0) for each, own in blocks
            ) / count_rows(data)
        scale = np.where(varies, units * np.sqrt(squares), 1.0)
    usable = (scale > MIN_SCALE) & (scale < MAX_SCALE)
    if usable.all():
        return scale
    if standardize == "auto":
        return None
    column = int(np.argmin(usable))
    raise ValueError(
        f"The standard deviation of a column that varies must be between {MIN_SCALE:g} and "
        f"{MAX_SCALE:g} to be standardised. That of column {column} is {scale[column]:.3g}. "
        "Multiply it by a constant."
    )


def fit_in_units(
    fit: Callable[[FloatArray | None], Fit],
    data: Any,
    standardize: Standardize,
    criterion: Callable[[Fit], float],
) -> Fit:
    """Return the fit to standardised columns, or to columns as they are, as `standardize` says.

    Parameters
    ----------
    fit : callable
        Takes the scale of every column, or None for columns as they are; returns a fit.
    data : array or Weighted
        The rows.
    standardize : bool or "auto"
        With "auto", both are fitted if ranges differ by much, and the one with the larger criterion
        is returned.
    criterion : callable
        Takes a fit and returns the log-likelihood of rows in their own units, penalised if numbers
        of parameters may differ.
    """
    scale = column_scale(data, standardize)
    standardized = fit(scale)
    if scale is None or standardize is True:
        return standardized
    try:
        return max(standardized, fit(None), key=criterion)
    except (
        ValueError
    ):  # beside the column with the largest numbers, others are lost in rounding errors
        return standardized


def warn_of_dominant_column(
    variances: FloatArray, names: Sequence[str], n_components: int, agreement: Callable[[], float]
) -> None:
    """Warn if one column has nearly all of the variance, and components that do not depend on units
    are others.

    Parameters
    ----------
    variances : array
        The variance of each column.
    names : sequence of str
        The names of the columns, or none.
    n_components : int
        Number of components.
    agreement : callable
        Returns how well the components agree with those of standardised columns; 1 if they are the
        same.
    """
    column, total = int(np.argmax(variances)), float(variances.sum())
    if len(variances) == 1 or not total > 0 or variances[column] < _DOMINANT * total:
        return
    agreeing = agreement()
    if agreeing < _AGREEING:
        name, share = str(names[column]) if len(names) else None, float(variances[column]) / total
        warnings.warn(
            DominantColumnWarning(column, name, share, n_components, agreeing),
            stacklevel=users_level(),
        )


def users_level() -> int:
    """Return the `stacklevel` of the first caller outside of this package, for a warning of the
    calling function.
    """
    frame: Any = sys._getframe(1)
    level = 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("odeco."):
        frame, level = frame.f_back, level + 1
    return level
