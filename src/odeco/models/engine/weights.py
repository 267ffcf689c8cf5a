"""Weights of rows: a row of weight w counts as w equal rows.

Data with weights travel through the engine as one object, `Weighted`, which is cut as its rows are. Rows without
weights stay plain arrays. A specification takes both apart with `split`, and gets None for the weights of plain rows.
The functions below add up rows with weights or without; without, they do what NumPy does, bit for bit.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from odeco._util.types import FloatArray

#: Models need at least this many rows.
_FEWEST = 2


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
    """Warn if weights count as fewer rows than there must be: they were probably divided by their sum."""
    total, n_rows = float(weights.sum()), np.count_nonzero(weights)
    if total < _FEWEST <= n_rows:
        warnings.warn(
            f"A weight is a number of rows, and `sample_weight` sums to {total:.3g}: {n_rows:,} rows count as fewer "
            f"than {_FEWEST}, which tests, criteria and priors take literally. Multiply weights that were divided by "
            "their sum by the number of rows.",
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
    return Weighted(function(data.rows), data.weights) if isinstance(data, Weighted) else function(data)


def count_rows(data: Any) -> float:
    """Return the number of rows, each counted by its weight."""
    return float(data.weights.sum()) if isinstance(data, Weighted) else len(data)


def mean_of(data: Any) -> FloatArray:
    """Return the mean of rows."""
    rows, weights = split(data)
    return np.asarray(rows.mean(axis=0) if weights is None else weights @ rows / weights.sum())


def times(values: FloatArray, weights: FloatArray | None) -> FloatArray:
    """Return values, one for each row or a row of them, times the weight of their row."""
    return values if weights is None else values * weights.reshape(-1, *(1,) * (values.ndim - 1))


def weigh(shares: FloatArray, likelihoods: FloatArray, weights: FloatArray | None) -> tuple[float, float, FloatArray]:
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
