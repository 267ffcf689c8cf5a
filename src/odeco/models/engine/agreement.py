"""Split-half replication of models: whether a component is found again in fits to random halves of
the records.

The fitted model is compared with fits to three random divisions of the records into halves. Each
half begins from its own starts: one that began at the fit to all records would have seen the other
half, and halves of a single Gaussian then agree (0.52 against 0.04). Two fits are compared on the
same records, those of both halves:

- Models that assign every record to a component: a component is found again if a component of the
  half shares more than half of the records of both together (Jaccard index). At most one can.
  Halves are compared by the adjusted Rand index, which is 0 for partitions that are independent,
  and 1 for equal ones.
- Models whose components are vectors (topics, sources): it is found again if a vector of the half
  has a cosine of at least 0.85 with it, which counts as fair similarity (Lorenzo-Seva and ten Berge
  2006).

Found again in all of six half-samples means found in 95 % of fits to fresh data or more, in one or
none of them in 10 to 20 % (`benchmarks/verdicts.py`). It does not mean that components are groups:
a cut through one skewed group is made again by every half.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from odeco._util.stages import LOG
from odeco._util.types import FloatArray, IndexArray
from odeco.online.halves import ALIKE, SplitHalf, best_cosines

#: A component is found again if it shares more than this part of the records of both together.
_SAME = 0.5

#: More records than this are not needed to see whether halves agree.
MAX_RECORDS = 5_000


@dataclass(frozen=True)
class Records:
    """What can be divided into halves: rows, respondents, sequences, documents or links.

    Attributes
    ----------
    n : int
        Their number.
    take : callable
        Takes the places of some of them; returns the arguments of `fit` for a model of these alone.
    most : int
        The largest number of them that is used.
    """

    n: int
    take: Callable[[IndexArray], tuple[Any, dict[str, Any]]]
    most: int = MAX_RECORDS


#: What a model says about the checked records: a component for each, or the components as columns
#: of an array.
Signature = NDArray[Any]


def divide(
    n: int, n_pairs: int, rng: np.random.Generator
) -> Iterator[tuple[IndexArray, IndexArray]]:
    """Yield random divisions of n records into halves."""
    for _ in range(n_pairs):
        order = rng.permutation(n)
        yield np.sort(order[: n // 2]), np.sort(order[n // 2 :])


def check_halves(
    own: Signature,
    fit_half: Callable[[IndexArray, int], Signature | None],
    k: int,
    n: int,
    *,
    n_pairs: int,
    seed: int,
) -> SplitHalf:
    """Count in how many half-samples each of k components is found again.

    Parameters
    ----------
    own : array
        The signature of the model that was fitted to all records.
    fit_half : callable
        Takes the places of some records and a seed; returns the signature of a model that was
        fitted to these, or None if they are too few for one.
    k : int
        Number of components.
    n : int
        Number of records.
    n_pairs : int
        Number of divisions into halves.
    seed : int
        Draws the divisions.
    """
    rng = np.random.default_rng(seed)
    found_again = np.zeros(k, np.int64)
    agreements: list[float] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit to all records has warned
        for halves in divide(n, n_pairs, rng):
            LOG.info("fitting halves, pair %d of %d", len(agreements) + 1, n_pairs)
            signatures = [fit_half(half, int(rng.integers(2**31))) for half in halves]
            for signature in signatures:
                if signature is not None:
                    found_again += is_found_again(own, signature, k)
            agreements.append(compare(signatures[0], signatures[1], k))
    return SplitHalf(found_again, 2 * n_pairs, float(np.mean(agreements)))


def is_found_again(own: Signature, other: Signature, k: int) -> Any:
    """Return for each of k components of a fit whether another fit has a counterpart."""
    if own.ndim == 1:
        return best_jaccard(own, other, k) > _SAME
    return best_cosines(own, other) >= ALIKE


def compare(one: Signature | None, other: Signature | None, k: int) -> float:
    """Return how well two fits of k components agree: 1 if they are equal, 0 if one of them found
    nothing.
    """
    if one is None or other is None:
        return 0.0
    if one.ndim == 2:
        return float(best_cosines(one, other).mean()) if one.shape[1] else 0.0
    if k > 1 and (np.ptp(one) == 0 or np.ptp(other) == 0):
        return 0.0  # equal partitions with one part each, but no components
    return float(adjusted_rand_score(one, other))


def best_jaccard(own: IndexArray, other: IndexArray, k: int) -> FloatArray:
    """Return for each of k components the largest Jaccard index of its records with those of
    another fit.
    """
    shared = np.zeros((k, int(other.max()) + 1))
    np.add.at(shared, (own, other), 1.0)
    either = shared.sum(axis=1, keepdims=True) + shared.sum(axis=0) - shared
    return np.asarray((shared / np.maximum(either, 1.0)).max(axis=1))
