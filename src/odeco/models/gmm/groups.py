"""Which components of a mixture are groups of their own, and which may be parts of one group.

A group whose shape is not that of a component (heavy tails, skewness, a cube, a ring) is covered by
several. Between two groups there are fewer rows than at either of them; between two parts of one
group there are not. The test assumes only that a group has a single peak along a line.

**The comparison.** Take the rows of two components, and the line on which these are furthest apart
in units of their own covariances, with means at −1 and 1. The intervals (−3/2, −1/2), (−1/2, 1/2)
and (1/2, 3/2) are neighbours of one width. If the density along the line has a single peak, that of
the middle one is not smaller than both others: of the rows in the middle and at one side, the
middle has at least the share 1/2 for one of the sides. Two groups have the share that the two
components predict. There is a gap if, for both sides, the numbers of rows are likelier by what the
components predict than by 1/2. So neither of the two, a gap that is not seen and one that is not
there, is taken for granted: with 25 rows at each side of a pair that is four deviations apart,
either happens in about a third of cases, with 100 rows in about one of twenty. Where rows are too
few, it is not known whether there is a gap: one is ruled out only if the numbers are likelier by
1/2 by what counts as strong evidence. So there are two numbers of groups, one if all pairs without
a gap are joined, and one if only those are that have none by strong evidence.

Components are laid where rows happen to be dense, so gaps by chance are somewhat more frequent
between them. Those that overlap are therefore joined in any case, and so are those that others
join.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.sparse.csgraph import connected_components
from scipy.special import ndtr, xlogy

from odeco._util.types import FloatArray
from odeco.models.emissions.gaussians import Gaussians
from odeco.models.engine.rows import filled, times

#: Two components overlap if this share of the rows of the smaller one is taken for the other: ∫ pq
#: / (p + q) of two equal Gaussians three deviations apart, between which the density is two thirds
#: of that at their means. Gaussians that EM lays over an even shape lie about that far apart.
_OVERLAPPING = 0.1

#: A difference of log-likelihoods that is strong evidence (Kass and Raftery, Journal of the
#: American Statistical Association 1995).
_STRONG = 3.0


def group_numbers(
    model: Gaussians, rows: FloatArray, posterior: FloatArray, weights: FloatArray | None = None
) -> tuple[int, int]:
    """Return the fewest and the most groups that components form; `weights` are those of the rows,
    if they have any.
    """
    k = posterior.shape[1]
    if k == 1:
        return 1, 1
    shares = times(posterior, weights)
    totals = np.maximum(shares.sum(axis=0), np.finfo(np.float64).tiny)
    joined = shares.T @ posterior > _OVERLAPPING * np.minimum(totals[:, None], totals)
    counted = np.ones(len(rows)) if weights is None else weights
    own = posterior.argmax(axis=1)
    surely = joined.copy()
    for one, other in zip(*np.nonzero(np.tril(~joined, -1)), strict=True):
        both = (own == one) | (own == other)
        evidence = gap_evidence(model, one, other, rows[both], counted[both])
        joined[one, other] = evidence <= 0
        surely[one, other] = evidence < -_STRONG
    fewest, most = (connected_components(pairs, directed=False)[0] for pairs in (joined, surely))
    return int(fewest), int(most)


def groups_sentence(fewest: int, most: int) -> str:
    """Return what follows if components that overlap or touch are taken for parts of one group."""
    number = f"{fewest} to {most} groups"
    if most == fewest:
        number = "1 group" if most == 1 else f"{most} groups"
    return f"Some components overlap or touch; merging those leaves {number}."


def gap_evidence(
    model: Gaussians, one: int, other: int, rows: FloatArray, counted: FloatArray
) -> float:
    """Return by how much a gap between two components makes the numbers of rows likelier, in nats.

    It is that of the side with less evidence; `counted` are weights of rows.
    """
    offset, centre = (
        model.means[other] - model.means[one],
        (model.means[other] + model.means[one]) / 2,
    )
    scatter = (model.covariances[one] + model.covariances[other]) / 2
    line = np.linalg.solve(scatter, offset) if np.ndim(scatter) == 2 else offset / scatter
    half = float(offset @ line) / 2
    if not half > 0:
        return -math.inf
    middles = np.array([-1.0, 0.0, 1.0])
    places = (filled(rows, centre) - centre) @ line / half
    before, between, after = (
        float(counted[np.abs(places - middle) < 0.5].sum()) for middle in middles
    )
    masses = np.zeros(3)
    for component, mean in ((one, -1.0), (other, 1.0)):
        own = model.covariances[component]
        deviation = (
            math.sqrt(float(line @ (own @ line if np.ndim(own) == 2 else own * line))) / half
        )
        inside = ndtr((middles + 0.5 - mean) / deviation) - ndtr((middles - 0.5 - mean) / deviation)
        masses += model.weights[component] * inside
    sides = list[float]()
    for beside, mass in ((before, masses[0]), (after, masses[2])):
        share = float(masses[1] / max(masses[1] + mass, np.finfo(np.float64).tiny))
        is_less = share < 0.5
        sides.append(
            float(xlogy(between, 2 * share) + xlogy(beside, 2 * (1 - share)))
            if is_less
            else -math.inf
        )
    return min(sides)
