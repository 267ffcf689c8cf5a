"""Private k-means of others, written down from their papers; where a paper leaves a choice, it is
in their favour.

Each function returns centres. All rows have a norm of at most `bound`, which is public: longer ones
are clipped. `benchmarks/mixtures.py` and `benchmarks/private_cases.py` compare them with
`TensorMixture`. A neighbour replaces one row, as for `TensorMixture`.
"""

from __future__ import annotations

import math
import os
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import KMeans

from odeco._util.types import FloatArray, IndexArray
from odeco.privacy import gdp_mu

DELTA = 1e-6


def nearest(rows: FloatArray, centres: FloatArray) -> IndexArray:
    """Return the nearest centre of each row."""
    return np.asarray(np.argmin(np.sum(centres**2, axis=1) - 2 * rows @ centres.T, axis=1))


def clipped(rows: FloatArray, bound: float) -> FloatArray:
    """Return rows of a norm of at most `bound`."""
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1) / bound, 1.0)[:, None])


def random_centres(k: int, d: int, bound: float, rng: np.random.Generator) -> FloatArray:
    """Return centres that no row has a say in, evenly within half the bound: what a partition is
    worth by chance.
    """
    centres = rng.standard_normal((k, d))
    centres *= (
        0.5 * bound * rng.random((k, 1)) ** (1 / d) / np.linalg.norm(centres, axis=1, keepdims=True)
    )
    return centres


def private_lloyd(
    rows: FloatArray, k: int, bound: float, epsilon: float, seed: int, n_rounds: int = 5
) -> FloatArray:
    """Return centres after rounds of Lloyd with Gaussian noise; a row adds (1, x/bound) to one
    centre.

    Two rows in one cluster, or in two, move the sums by at most 2: the same accounting as that of
    TensorMixture.
    """
    rng = np.random.default_rng(seed)
    deviation = 2 * np.sqrt(n_rounds) / gdp_mu(epsilon, DELTA)
    unit = clipped(rows, bound) / bound
    centres = random_centres(k, rows.shape[1], 1.0, rng)
    for _ in range(n_rounds):
        centres = _lloyd_round(unit, centres, deviation, rng)
    return bound * centres


def _lloyd_round(
    unit: FloatArray, centres: FloatArray, deviation: float, rng: np.random.Generator
) -> FloatArray:
    """Return the centres of rows of norm 1 that are nearest to each centre, by noisy counts and
    sums.
    """
    (n, _), k = unit.shape, len(centres)
    chosen = (nearest(unit, centres)[:, None] == np.arange(k)).astype(float)
    counts = chosen.sum(axis=0) + deviation * rng.standard_normal(k)
    sums = chosen.T @ unit + deviation * rng.standard_normal(centres.shape)
    moves = counts > max(0.005 * n / k, 5 * deviation)
    centres = np.where(moves[:, None], sums / np.maximum(counts, 1.0)[:, None], centres)
    return np.asarray(centres / np.maximum(np.linalg.norm(centres, axis=1, keepdims=True), 1.0))


# ---- tuples of centres ---------------------------------------------------------------------------

#: How many tuples are made; the best number is taken after the fact, in favour of the method.
N_TUPLES = (100, 200, 500, 1000, 2000)
#: A tuple of k centres is made from at least this many rows for each centre.
_LEAST_ROWS = 3
#: Balls around the centres of a tuple have the distance to the next centre divided by this as
#: radius: two points of one ball are then nearer to each other than points of two balls, so no
#: other partition into balls is possible.
_FAR = 4.0
#: The test of a partition gets this share of ε, and is free otherwise.
_TEST = 0.25
#: The share of the points of a ball that are not clipped.
_INSIDE = 0.9


def tuples_of(rows: FloatArray, k: int, bound: float, seed: int) -> dict[int, FloatArray]:
    """Return t tuples of k centres for each t of `N_TUPLES`, by k-means of t disjoint parts of the
    rows.
    """
    order, unit = np.random.default_rng(seed).permutation(len(rows)), clipped(rows, bound) / bound
    made = {}
    for t in N_TUPLES:
        if len(rows) // t >= _LEAST_ROWS * k:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # fewer different rows than clusters
                made[t] = np.stack(
                    [
                        KMeans(k, n_init=1, random_state=seed).fit(unit[part]).cluster_centers_
                        for part in np.array_split(order, t)
                    ]
                )
    return made


def k_tuples(
    rows: FloatArray, k: int, bound: float, epsilon: float, seed: int, tuples: dict[int, FloatArray]
) -> Iterator[FloatArray]:
    """Yield for each number of tuples the centres of Cohen et al., or their mean alone if the
    tuples do not agree.

    Cohen, Kaplan, Mansour, Stemmer and Tsfadia, *Differentially-private clustering of easy
    instances*, ICML 2021, arXiv:2112.14445. k-means without privacy on disjoint parts of the rows
    gives tuples of k centres; a row is in one part, so it moves one tuple. If balls around the
    centres of one tuple hold one centre each of nearly all others, the means of the balls are
    released, and one round of Lloyd on all rows follows.

    In favour of the method: more than half of the tuples have to agree, surely but for δ, where the
    paper needs nearly all; the test costs no budget; the ball that holds most points of a cluster
    is known exactly, where the paper searches for it under privacy. Half of μ² is for the means of
    balls, half for the round of Lloyd. The means of k balls move by 2 r √k/t at most, if points are
    clipped to balls of radius r and one tuple is replaced.
    """
    rng, half = np.random.default_rng(seed), gdp_mu(epsilon, DELTA) / math.sqrt(2)
    unit = clipped(rows, bound) / bound
    for t, points in tuples.items():
        matched = max(
            (_matched(points, points[each]) for each in rng.choice(t, 10, replace=False)), key=len
        )
        surely = (
            len(matched)
            + rng.laplace(scale=1 / (_TEST * epsilon))
            - math.log(1 / DELTA) / (_TEST * epsilon)
        )
        if surely <= t / 2:
            yield np.zeros((1, rows.shape[1]))
            continue
        middles = np.median(matched, axis=0)
        distances = np.linalg.norm(matched - middles, axis=2)
        radius = np.quantile(distances, _INSIDE, axis=0)
        inside = (
            middles
            + (matched - middles) * np.minimum(1, radius / np.maximum(distances, 1e-12))[..., None]
        )
        noise = 2 * float(radius.max()) * math.sqrt(k) / (t * half)
        centres = inside.mean(axis=0) + noise * rng.standard_normal(middles.shape)
        yield bound * _lloyd_round(unit, centres, 2 / half, rng)


def _matched(points: FloatArray, balls: FloatArray) -> FloatArray:
    """Return the tuples of which every ball around the centres of one holds exactly one point, in
    their order.
    """
    k = len(balls)
    between = np.linalg.norm(balls[:, None] - balls[None], axis=2) + np.diag(np.full(k, np.inf))
    distances = np.linalg.norm(points[:, None, :, :] - balls[None, :, None, :], axis=3)
    inside = distances <= (between.min(axis=1) / _FAR)[None, :, None]
    agree = (inside.sum(axis=2) == 1).all(axis=1) & (inside.sum(axis=1) == 1).all(axis=1)
    return np.asarray(
        np.take_along_axis(points[agree], inside[agree].argmax(axis=2)[..., None], axis=1)
    )


# ---- separation ----------------------------------------------------------------------------------

#: Settings of DPM's authors: shares of ε for counts, for splits and for means, of δ for counts;
#: levels of splits; what a split at the edge of the central part is worth, and where that part
#: begins; the weight of emptiness.
_OF_COUNTS, _OF_SPLITS, _OF_MEANS, _OF_DELTA = 0.18, 0.18, 0.64, 0.2
_LEVELS, _EDGE, _CENTRAL, _EMPTY = 7, 0.3, 1 / 12, 5.0


def dpm(
    rows: FloatArray, k: int, bound: float, side: float, width: float, epsilon: float, seed: int
) -> FloatArray:
    """Return at most k centres of DPM, which chooses their number itself (at most 128).

    Liebenow, Schütt, Braun, Gehrke, Thaeter and Mohammadi, *DPM: clustering sensitive data through
    separation*, CCS 2024, arXiv:2307.02969. A set of rows is split where few rows are and where
    many lie on both sides: across the middle of an interval of one feature, chosen by the
    exponential mechanism. Splits end where a part would be small. Noisy sums and counts give the
    centres.

    A row that is added or removed is in one part of each level, so budgets add up over levels. To
    replace a row is to remove one and to add one, so it costs (2ε, (1 + e^ε) δ) where each of these
    costs (ε, δ). The score of an interval with c of n rows and p rows on one side is f(min(p,
    n−p)/n) + 5 (1 − c/n), where f rises linearly from 0 to 0.3 at 1/12 and to 1 at 1/2: it moves by
    at most (0.3 · 12 + 5)/n. For n stands a noisy count, and in the sensitivity one that is surely
    below n but for δ.

    In favour of the method: the width of intervals, half the deviation of a cluster, is given,
    where the paper spends 4 % of ε on it; these are added to the share of means. More than k
    centres are joined by k-means, each with its count as weight, which is post-processing and gives
    better results here.
    """
    epsilon, delta = epsilon / 2, DELTA / (1 + math.exp(epsilon / 2))
    rng, d = np.random.default_rng(seed), rows.shape[1]
    unit, edges = clipped(rows, bound), np.arange(-side, side + width, width)
    growth = np.sqrt(2.0) ** np.arange(_LEVELS + 1)
    of_counts = _OF_COUNTS * epsilon * growth / growth.sum()
    of_splits = _OF_SPLITS * epsilon * growth[:-1] / growth[:-1].sum()
    surely = (
        math.log((_LEVELS + 1) / (2 * _OF_DELTA * delta)) / of_counts
    )  # a Laplace variable exceeds it rarely
    deviation = bound / gdp_mu(_OF_MEANS * epsilon, (1 - _OF_DELTA) * delta)

    def noisy_count(part: IndexArray, level: int) -> float:
        return len(part) + float(rng.laplace(scale=1 / of_counts[level]))

    def split(part: IndexArray, level: int, count: float) -> IndexArray:
        """Return which rows of a part lie beyond the interval that is drawn."""
        counts = np.stack([np.histogram(unit[part, each], edges)[0] for each in range(d)])
        below = np.stack([np.sum(unit[part, each] < edges[0]) for each in range(d)])[:, None]
        before = below + np.cumsum(counts, axis=1) - counts / 2
        sides = np.clip(np.minimum(before, count - before) / count, 0, 0.5)
        scores = np.interp(sides, [0, _CENTRAL, 0.5], [0, _EDGE, 1]) + _EMPTY * np.clip(
            1 - counts / count, 0, 1
        )
        sensitivity = (_EDGE / _CENTRAL + _EMPTY) / max(count - surely[level], 1.0)
        exponents = of_splits[level] * scores.ravel() / (2 * sensitivity)
        feature, place = divmod(
            int(np.argmax(exponents + rng.gumbel(size=exponents.size))), counts.shape[1]
        )
        return np.asarray(unit[part, feature] > edges[place] + width / 2)

    everything = np.arange(len(rows))
    parts, leaves = [(everything, 0, noisy_count(everything, 0))], []
    least = parts[0][2] / 2**_LEVELS
    while parts:
        part, level, count = parts.pop()
        if level < _LEVELS and count > 0:
            beyond = split(part, level, count)
            halves = [
                (each, level + 1, noisy_count(each, level + 1))
                for each in (part[beyond], part[~beyond])
            ]
            if min(half[2] for half in halves) > least:
                parts += halves
                continue
        leaves.append((part, max(count, 1.0)))
    sums = np.stack([unit[part].sum(axis=0) for part, _ in leaves])
    counts = np.array([count for _, count in leaves])
    centres = clipped((sums + deviation * rng.standard_normal(sums.shape)) / counts[:, None], bound)
    if len(centres) <= k:
        return centres
    return np.asarray(
        KMeans(k, n_init=10, random_state=seed).fit(centres, sample_weight=counts).cluster_centers_
    )


# ---- diffprivlib ---------------------------------------------------------------------------------


def diffprivlib_centres(
    python: str, rows: Any, k: int, epsilon: float, side: float, seed: int
) -> Any:
    """Return the centres of diffprivlib's KMeans, by an interpreter that has it; `side` bounds
    every feature.
    """
    script = Path(__file__).with_name("private_kmeans_peer.py")
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/rows.npy", rows)
        arguments = [python, str(script), folder, str(k), str(epsilon), str(side), str(seed)]
        subprocess.run(
            arguments, check=True, env={**os.environ, "PYTHONPATH": "", "OMP_NUM_THREADS": "1"}
        )
        return np.load(f"{folder}/centres.npy")


#: Bounds of features as multiples of their root mean square. Of 4, 3, 2.5, 2 and 1.5, diffprivlib
#: does best with 2 and 1.5; the best of DPM's is taken after the fact.
_SIDE, _SIDES = 2.0, (2.0, 3.0)


def peers_of(
    rows: FloatArray,
    k: int,
    length: float,
    deviation: float,
    epsilon: float,
    seed: int,
    tuples: dict[int, FloatArray],
    python: str | None,
) -> dict[str, list[FloatArray]]:
    """Return the centres of each method, for each of its settings.

    Public are the root mean square `length` of rows, 1.3 times which bounds them, and the
    `deviation` of a cluster.
    """
    bound, side = 1.3 * length, length / math.sqrt(rows.shape[1])
    found = {
        "private Lloyd": [private_lloyd(rows, k, bound, epsilon, seed)],
        "Cohen et al.": list(k_tuples(rows, k, bound, epsilon, seed, tuples)),
        "DPM": [dpm(rows, k, bound, each * side, deviation / 2, epsilon, seed) for each in _SIDES],
    }
    if python is not None:
        found["diffprivlib KMeans"] = [
            diffprivlib_centres(python, rows, k, epsilon, _SIDE * side, seed)
        ]
    return found
