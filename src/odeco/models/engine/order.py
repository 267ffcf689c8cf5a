"""Whether the order of rows says something, so that they are no independent draws.

The more rows there are, the more certain is a selected number of components; rows that depend on each other count as
fewer: in a series, a held-out row can be predicted from its neighbours. If rows are drawn independently, then those of
one component are in random order, however components were fitted, as long as the fit does not depend on the order. So
within each component the ranks of a column are correlated with those of the next row of the component. Under a random
permutation of m rows, the sum of x_t x_(t+1) over standardised ranks has the mean −1 and a variance of about m. The
variance is taken as at least the sum of squares of what is added up, as ranks of a column with rare values have heavy
tails.

Rows that are sorted by component are in random order within each, and so pass. Rows that are sorted otherwise do not:
they look like a series.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from odeco._util.types import FloatArray, IndexArray

#: The chance of finding an order where there is none.
_LEVEL = 1e-3

#: At most this many numbers of rows are tested, the first ones.
_MAX_NUMBERS = 2**22


def is_ordered(rows: FloatArray, labels: IndexArray) -> bool:
    """Return whether rows of one component are not in random order; `labels` has the component of each row."""
    n = max(_MAX_NUMBERS // rows.shape[1], 1)
    sums, variances = np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
    for label in np.unique(labels[:n]):
        ranks = np.column_stack([_standardized_ranks(column) for column in rows[:n][labels[:n] == label].T])
        products = ranks[1:] * ranks[:-1]
        sums += products.sum(axis=0) + ranks.any(axis=0)
        variances += np.maximum(np.sum(products**2, axis=0), np.sum(ranks**2, axis=0))
    scores = sums / np.sqrt(np.maximum(variances, 1.0))
    return bool(np.max(np.abs(scores)) > -ndtri(_LEVEL / (2 * scores.size)))


def _standardized_ranks(column: FloatArray) -> FloatArray:
    """Return ranks with mean 0 and variance 1, equal ones for equal values; zeros if all are equal."""
    _, places, counts = np.unique(column, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    ranks = ranks - ranks.mean()
    return np.asarray(ranks / (ranks.std() or 1.0))
