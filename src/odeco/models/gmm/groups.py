"""Which components of a mixture are groups of their own, and which may be parts of one group.

A group whose shape is not that of a component (heavy tails, skewness, a cube, a ring) is covered by several. Between
two groups there are fewer rows than at either of them; between two parts of one group there are not. The test assumes
only that a group has a single peak along a line.

**The test.** Take the rows of two components, and the line on which these are furthest apart in units of their own
covariances, with means at −1 and 1. The intervals (−3/2, −1/2), (−1/2, 1/2) and (1/2, 3/2) are neighbours of one width.
If the density along the line has a single peak, that of the middle one is not smaller than both others. So there is a
gap if it is smaller than both: two binomial tests with the chance 1/2, which must both reject at 10 %. Two groups of 25
rows each, four deviations apart, have 8 rows in the middle and 17 at either side, about the least that rejects. For an
even density, the hardest to tell, the differences to the two neighbours have a correlation of 1/2, and both tests
reject in 4 % of cases.

Components are laid where rows happen to be dense, so gaps by chance are somewhat more frequent between them. Those that
overlap are therefore joined in any case, and so are those that others join.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.sparse.csgraph import connected_components
from scipy.special import betainc

from odeco._util.types import FloatArray
from odeco.models.engine.gaussians import Gaussians
from odeco.models.engine.rows import filled, times

#: The chance with which each of two binomial tests rejects.
_LEVEL = 0.1

#: Two components overlap if this share of the rows of the smaller one is taken for the other: ∫ pq / (p + q) of two
#: equal Gaussians three deviations apart, between which the density is two thirds of that at their means. Gaussians
#: that EM lays over an even shape lie about that far apart.
_OVERLAPPING = 0.1


def groups_of(
    model: Gaussians, rows: FloatArray, posterior: FloatArray, weights: FloatArray | None = None
) -> tuple[float, int]:
    """Return how much components overlap, and the number of groups that are left when parts of one are joined.

    The overlap is the mean entropy of the posterior of a row (n x k), divided by log k: 0 if each row has one
    component, 1 if all are equally probable. `weights` are those of the rows, if they have any.
    """
    n, k = len(posterior) if weights is None else float(weights.sum()), posterior.shape[1]
    if k == 1:
        return 0.0, 1
    tiny, shares = np.finfo(np.float64).tiny, times(posterior, weights)
    entropy = -float(np.sum(shares * np.log(np.maximum(posterior, tiny))))
    totals = np.maximum(shares.sum(axis=0), tiny)
    joined = shares.T @ posterior > _OVERLAPPING * np.minimum(totals[:, None], totals)
    counted, own = np.ones(len(rows)) if weights is None else weights, posterior.argmax(axis=1)
    for one, other in zip(*np.nonzero(np.tril(~joined, -1)), strict=True):
        both = (own == one) | (own == other)
        joined[one, other] = joined[other, one] = not has_gap(model, one, other, rows[both], counted[both])
    n_groups, _ = connected_components(joined, directed=False)
    return entropy / (n * math.log(k)), int(n_groups)


def has_gap(model: Gaussians, one: int, other: int, rows: FloatArray, counted: FloatArray) -> bool:
    """Return whether there are fewer rows between two components than at either; `counted` are weights of rows."""
    offset, centre = model.means[other] - model.means[one], (model.means[other] + model.means[one]) / 2
    scatter = (model.covariances[one] + model.covariances[other]) / 2
    line = np.linalg.solve(scatter, offset) if np.ndim(scatter) == 2 else offset / scatter
    half = float(offset @ line) / 2
    if not half > 0:
        return False
    places = (filled(rows, centre) - centre) @ line / half
    before, between, after = (float(counted[np.abs(places - middle) < 0.5].sum()) for middle in (-1.0, 0.0, 1.0))
    # P(X ≤ between) for a binomial X with the chance 1/2, as an incomplete beta function: weights may be no integers.
    return all(beside > 0 and betainc(beside, between + 1, 0.5) < _LEVEL for beside in (before, after))
