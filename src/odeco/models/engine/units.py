"""Units of columns: when columns are standardised, and when components are those of one column because of its unit.

Models in which distances between rows count, such as mixtures of spheres, depend on the units of columns. `standardize`
divides every column by its standard deviation. With ``"auto"`` this is tried if the ranges of columns differ by much,
and the likelier of both models is taken: both are densities of the rows in their own units, so they can be compared.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from odeco._util.types import FloatArray
from odeco.errors import DominantColumnWarning
from odeco.models.engine.fit import Fit
from odeco.models.engine.gaussians import blocks_of
from odeco.models.engine.missing import column_moments, column_ranges, has_missing
from odeco.models.engine.weights import count_rows, mean_of, split, times

Standardize = bool | Literal["auto"]

#: With "auto", columns are standardised only if the largest of their ranges is more than this multiple of the smallest.
#: Ranges, and not deviations, because a column that hardly ever changes, such as a pixel at the border of images, has a
#: small deviation but the unit of the others.
MAX_RATIO = 100.0

#: Standard deviations must be in this range, so that their squares are numbers of double precision.
MIN_SCALE, MAX_SCALE = 1e-140, 1e140

#: A column with this share of the variance may decide alone what is found: its deviation is three times that of all
#: others together. It does if components that do not depend on units agree less than this with those found.
_DOMINANT, _AGREEING = 0.9, 0.8


def column_scale(data: Any, standardize: Standardize) -> FloatArray | None:
    """Return the standard deviation of each column, and 1 of columns that do not vary; None to leave rows as they are.

    With ``"auto"``, this is None unless the ranges of columns differ by more than a factor of `MAX_RATIO`.
    """
    if standardize is False:
        return None
    rows, weights = split(data)
    ranges = column_ranges(rows)
    varies = ranges > 0
    if standardize == "auto" and not (varies.any() and ranges.max() > MAX_RATIO * ranges[varies].min()):
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        units = np.where(varies, ranges, 1.0)
        if has_missing(rows):
            squares = column_moments(rows / units, weights)[1]
        else:
            mean = mean_of(data)
            blocks = ((block - mean, own) for block, own in map(split, blocks_of(data)))
            squares = sum(times(np.square(each / units), own).sum(axis=0) for each, own in blocks) / count_rows(data)
        scale = np.where(varies, units * np.sqrt(squares), 1.0)
    usable = (scale > MIN_SCALE) & (scale < MAX_SCALE)
    if usable.all():
        return scale
    if standardize == "auto":
        return None
    column = int(np.argmin(usable))
    raise ValueError(
        f"The standard deviation of a column that varies must be between {MIN_SCALE:g} and {MAX_SCALE:g} to be "
        f"standardised. That of column {column} is {scale[column]:.3g}. Multiply it by a constant."
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
        With "auto", both are fitted if ranges differ by much, and the one with the larger criterion is returned.
    criterion : callable
        Takes a fit and returns the log-likelihood of rows in their own units, penalised if numbers of parameters may
        differ.
    """
    scale = column_scale(data, standardize)
    standardized = fit(scale)
    if scale is None or standardize is True:
        return standardized
    try:
        return max(standardized, fit(None), key=criterion)
    except ValueError:  # beside the column with the largest numbers, others are lost in rounding errors
        return standardized


def warn_of_dominant_column(
    variances: FloatArray, names: Sequence[str], n_components: int, agreement: Callable[[], float]
) -> None:
    """Warn if one column has nearly all of the variance, and components that do not depend on units are others.

    Parameters
    ----------
    variances : array
        The variance of each column.
    names : sequence of str
        The names of the columns, or none.
    n_components : int
        Number of components.
    agreement : callable
        Returns how well the components agree with those of standardised columns; 1 if they are the same.
    """
    column, total = int(np.argmax(variances)), float(variances.sum())
    if len(variances) == 1 or not total > 0 or variances[column] < _DOMINANT * total:
        return
    agreeing = agreement()
    if agreeing < _AGREEING:
        name, share = str(names[column]) if len(names) else None, float(variances[column]) / total
        warnings.warn(DominantColumnWarning(column, name, share, n_components, agreeing), stacklevel=_users_level())


def _users_level() -> int:
    """Return the `stacklevel` of the first caller outside of this package, for a warning of the calling function."""
    frame: Any = sys._getframe(1)
    level = 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("odeco."):
        frame, level = frame.f_back, level + 1
    return level
