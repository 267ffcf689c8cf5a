"""Attack on the rank and the error bars of `odeco.decompose`: is it ever confident and wrong?

Symmetric tensors of orders 3 to 5 whose weights span up to six powers of ten, with one pair of
components that is nearly collinear, with Gaussian noise of a norm from 0 to 1 % of that of the
tensor. For each tensor:

* a rank that is stated with a confidence of at least 0.95 must be right. It is stated with a
  resolution (`RankEvidence.resolution`): two components that are closer than this count as one. The
  table counts such cases separately, as "right at its resolution";
* of the stated intervals, ± 1.96 standard errors of a weight, at least 95 % must contain the true
  weight (a tolerance of 1e-6 relative to the weight stands for rounding where errors are stated as
  zero);
* a vector must be off by at most `ANGLE_FACTOR` times its stated error, plus 1e-5 rad for rounding.

Intervals are counted only for tensors whose rank was found, because without it there is no true
weight to cover.

    python benchmarks/attack_rank.py  # 500 tensors with at most as many components as dimensions
    python benchmarks/attack_rank.py --overcomplete   # more components than dimensions, weights that span up to ten
    python benchmarks/attack_rank.py --asymmetric     # asymmetric, the pair collinear along all axes, or all but one

It exits with 1 if one of the bars is missed. Asymmetric results state no intervals.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

import odeco
from odeco._util.types import FloatArray
from odeco.datasets import gaussian_noise
from odeco.decompose import AsymmetricDecomposition, Decomposition

SPANS = (1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6)
NOISES = (0.0, 1e-12, 1e-9, 1e-6, 1e-4, 1e-3, 1e-2)
COSINES = (None, 0.5, 0.9, 0.99, 0.999)
SIZES = ((3, 12), (4, 7), (5, 5))

#: More components than dimensions: spans, orders and dimensions.
OVERCOMPLETE_SPANS, OVERCOMPLETE_SIZES = (1.0, 3.0, 10.0), ((4, 7), (4, 9), (5, 5))

#: Shapes of asymmetric tensors.
SHAPES = ((7, 9, 12), (6, 6, 6), (20, 6, 8), (5, 6, 7, 6))

#: The confidence from which a rank is stated without reservation.
SURE = 0.95

#: Errors of an angle are lengths of vectors with several coordinates: 3 standard errors are
#: exceeded in well below 1 %.
ANGLE_FACTOR = 3.0


@dataclass(frozen=True)
class Attack:
    """One planted tensor, with the unit vectors of its components along each axis; along one if it
    is symmetric.
    """

    number: int
    kind: str
    weights: FloatArray
    factors: tuple[FloatArray, ...]
    entries: FloatArray

    def __str__(self) -> str:
        return f"{self.number}: {self.kind}, k = {self.weights.size}"

    @property
    def asymmetric(self) -> bool:
        """Whether the tensor is asymmetric."""
        return len(self.factors) > 1


def with_pair(vectors: FloatArray, cosine: float | None, first: int, second: int) -> FloatArray:
    """Return unit vectors of which two have a given cosine."""
    vectors = vectors / np.linalg.norm(vectors, axis=0)
    if cosine is not None:
        across = vectors[:, second] - (vectors[:, second] @ vectors[:, first]) * vectors[:, first]
        across /= np.linalg.norm(across)
        vectors[:, second] = cosine * vectors[:, first] + np.sqrt(1 - cosine**2) * across
    return vectors


def attacks(count: int, seed: int = 0, *, overcomplete: bool = False) -> Iterator[Attack]:
    """Yield planted tensors, spread over all spans, levels of noise, cosines and orders."""
    rng = np.random.default_rng(seed)
    spans, sizes = (OVERCOMPLETE_SPANS, OVERCOMPLETE_SIZES) if overcomplete else (SPANS, SIZES)
    grid = list(itertools.product(spans, NOISES, COSINES, sizes))
    chosen = itertools.islice(itertools.cycle(rng.permutation(len(grid))), count)
    for number, index in enumerate(chosen):
        span, noise, cosine, (order, dimension) = grid[index]
        fewest, most = (
            (dimension + 1, 2 * dimension) if overcomplete else (2, min(5, dimension - 1))
        )
        k = int(rng.integers(fewest, most + 1))
        vectors = rng.standard_normal((dimension, k))
        first, second = rng.permutation(k)[:2] if cosine is not None else (0, 1)
        vectors = with_pair(vectors, cosine, first, second)
        weights = span ** (-np.arange(k) / (k - 1))
        if order % 2 == 0:
            weights = weights * rng.choice([-1.0, 1.0], k)
        truth = odeco.Components(weights, vectors, order)
        entries = truth.to_dense()
        error = gaussian_noise(dimension, order=order, rng=rng).entries
        entries = entries + noise * np.linalg.norm(entries) / np.linalg.norm(error) * error
        kind = (
            f"order {order}, d = {dimension}, span {span:.0e}, noise {noise:.0e}, cosine {cosine}"
        )
        yield Attack(
            number,
            kind,
            truth.weights,
            (truth.vectors,),
            odeco.symmetrize(entries).astype(np.float64),
        )


def asymmetric_attacks(count: int, seed: int = 0) -> Iterator[Attack]:
    """Yield planted asymmetric tensors, whose pair is collinear along every axis, or along all but
    one.
    """
    rng = np.random.default_rng(seed)
    grid = list(itertools.product(SPANS, NOISES, COSINES, SHAPES, (True, False)))
    chosen = itertools.islice(itertools.cycle(rng.permutation(len(grid))), count)
    for number, index in enumerate(chosen):
        span, noise, cosine, shape, everywhere = grid[index]
        k = int(rng.integers(2, min(5, min(shape) - 1) + 1))
        first, second = rng.permutation(k)[:2]
        free = -1 if everywhere else int(rng.integers(len(shape)))
        factors = tuple(
            with_pair(
                rng.standard_normal((size, k)), None if axis == free else cosine, first, second
            )
            for axis, size in enumerate(shape)
        )
        weights = span ** (-np.arange(k) / (k - 1))
        unknown = np.zeros(k)
        entries = AsymmetricDecomposition(weights, factors, unknown, unknown > 0).to_dense()
        error = rng.standard_normal(shape)
        entries = entries + noise * np.linalg.norm(entries) / np.linalg.norm(error) * error
        kind = (
            f"shape {shape}, span {span:.0e}, noise {noise:.0e}, cosine {cosine}, free axis {free}"
        )
        yield Attack(number, kind, weights, factors, entries)


def outcome(attack: Attack) -> tuple[str, int, int, int]:
    """Return a verdict, the number of intervals, those that cover, and the vectors beyond their
    errors.
    """
    decompose = odeco.decompose_asymmetric if attack.asymmetric else odeco.decompose
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = decompose(attack.entries, "auto", rng=attack.number)
    except odeco.RankError:
        return "refused", 0, 0, 0
    evidence, k = result.rank_evidence, attack.weights.size
    sure = evidence is not None and evidence.confidence >= SURE
    if len(result.weights) == k:
        intervals = _covered(attack, result) if isinstance(result, Decomposition) else (0, 0, 0)
        return "right" if sure else "right, in doubt", *intervals
    if evidence is None or not sure:
        return "wrong, in doubt", 0, 0, 0
    found = result.factors if isinstance(result, AsymmetricDecomposition) else (result.vectors,)
    as_stated = len(result.weights) == k - _n_hidden(attack, found, evidence.resolution)
    return "right at its resolution" if as_stated else "CONFIDENT AND WRONG", 0, 0, 0


def _n_hidden(attack: Attack, found: Sequence[FloatArray], resolution: float) -> int:
    """Count the pairs of true components for which one was found, and which count as one at the
    stated resolution.

    The angle of a symmetric pair counts twice, that of an asymmetric one along the two axes where
    it is largest.
    """
    n_hidden = 0
    cosines = [np.abs(true.T @ each) for true, each in zip(attack.factors, found, strict=True)]
    nearest = np.argmax(np.prod(cosines, axis=0), axis=1)
    for i, j in itertools.combinations(range(attack.weights.size), 2):
        if nearest[i] != nearest[j]:
            continue
        angles, sign = [], 1.0
        for true, each in zip(attack.factors, found, strict=True):
            turn = float(np.sign(true[:, i] @ true[:, j]))
            apart = true[:, i] - turn * true[:, j]
            if each.shape[1] < each.shape[0]:  # otherwise the resolution is for any direction
                span = np.linalg.qr(each)[0]
                apart = apart - span @ (span.T @ apart)
            angles.append(float(np.linalg.norm(apart)))
            sign *= turn
        *_, second_largest, largest = sorted(angles) if attack.asymmetric else angles * 2
        order = 1 if attack.asymmetric else attack.entries.ndim
        first, second = attack.weights[i], attack.weights[j] * sign**order
        spread = abs(first * second) / (first + second) ** 2 * second_largest * largest
        n_hidden += int(spread < resolution**2 / 4)
    return n_hidden


def _covered(attack: Attack, result: Decomposition) -> tuple[int, int, int]:
    """Count the intervals, those that cover, and the vectors beyond their errors."""
    truth = odeco.Components(attack.weights, attack.factors[0], attack.entries.ndim)
    cosines = np.abs(truth.vectors.T @ result.vectors)
    closeness = (
        cosines - np.abs(np.log(np.abs(np.divide.outer(truth.weights, result.weights)))) * 1e-3
    )
    rows: list[int] = []
    columns: list[int] = []
    for _ in range(truth.n_components):  # greedy assignment
        row, column = np.unravel_index(int(np.argmax(closeness)), closeness.shape)
        rows.append(int(row))
        columns.append(int(column))
        closeness[row], closeness[:, column] = -np.inf, -np.inf
    weight_errors, angle_errors = np.asarray(result.weight_errors), np.asarray(result.angle_errors)
    off = np.abs(np.abs(truth.weights[rows]) - np.abs(result.weights[columns]))
    covers = off <= 1.96 * weight_errors[columns] + 1e-6 * np.abs(truth.weights[rows])
    sines = np.linalg.norm(
        truth.vectors[:, rows]
        - result.vectors[:, columns]
        * np.sum(truth.vectors[:, rows] * result.vectors[:, columns], axis=0),
        axis=0,
    )
    beyond = np.arcsin(np.minimum(sines, 1.0)) > ANGLE_FACTOR * angle_errors[columns] + 1e-5
    return truth.n_components, int(covers.sum()), int(beyond.sum())


def main() -> None:
    """Attack, print a table, and exit with 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--overcomplete", action="store_true", help="more components than dimensions"
    )
    parser.add_argument("--asymmetric", action="store_true", help="asymmetric tensors")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    planted = attacks(given.count, given.seed, overcomplete=given.overcomplete)
    if given.asymmetric:
        planted = asymmetric_attacks(given.count, given.seed)
    verdicts: Counter[str] = Counter()
    n_intervals = n_covering = n_beyond = 0
    for attack in planted:
        verdict, intervals, covering, beyond = outcome(attack)
        verdicts[verdict] += 1
        n_intervals, n_covering, n_beyond = (
            n_intervals + intervals,
            n_covering + covering,
            n_beyond + beyond,
        )
        if given.verbose or verdict.isupper() or beyond or covering < intervals - 1:
            print(
                f"{attack}: {verdict}, {covering} of {intervals} covered, {beyond} vectors beyond",
                flush=True,
            )
    for verdict, number in verdicts.most_common():
        print(f"{verdict:24} {number:5}")
    share = n_covering / n_intervals if n_intervals else 1.0
    print(f"intervals that cover     {100 * share:.1f} % of {n_intervals}")
    print(f"vectors beyond 3 errors  {100 * n_beyond / max(1, n_intervals):.1f} %")
    sys.exit(int(bool(verdicts["CONFIDENT AND WRONG"]) or share < 0.95))


if __name__ == "__main__":
    main()
