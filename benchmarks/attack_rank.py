"""Attack on the rank and the error bars of `odeco.decompose`: is it ever confident and wrong?

Symmetric tensors of orders 3 to 5 whose weights span up to six powers of ten, with one pair of components that is
nearly collinear, with Gaussian noise of a norm from 0 to 1 % of that of the tensor. For each tensor:

* a rank that is stated with a confidence of at least 0.95 must be right. It is stated with a resolution
  (`RankEvidence.resolution`): two components that are closer than this count as one. The table counts such cases
  separately, as "right at its resolution";
* of the stated intervals, ± 1.96 standard errors of a weight, at least 95 % must contain the true weight (a tolerance
  of 1e-6 relative to the weight stands for rounding where errors are stated as zero);
* a vector must be off by at most `ANGLE_FACTOR` times its stated error, plus 1e-5 rad for rounding.

Intervals are counted only for tensors whose rank was found, because without it there is no true weight to cover.

``python benchmarks/attack_rank.py`` attacks with 500 tensors and exits with 1 if one of the bars is missed.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import odeco
from odeco.datasets import gaussian_noise
from odeco.decompose import Decomposition

SPANS = (1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6)
NOISES = (0.0, 1e-12, 1e-9, 1e-6, 1e-4, 1e-3, 1e-2)
COSINES = (None, 0.5, 0.9, 0.99, 0.999)
SIZES = ((3, 12), (4, 7), (5, 5))

#: The confidence from which a rank is stated without reservation.
SURE = 0.95

#: Errors of an angle are lengths of vectors with several coordinates: 3 standard errors are exceeded in well below 1 %.
ANGLE_FACTOR = 3.0


@dataclass(frozen=True)
class Attack:
    """One planted tensor."""

    number: int
    order: int
    span: float
    noise: float
    cosine: float | None
    truth: odeco.Components
    entries: NDArray[np.float64]

    def __str__(self) -> str:
        return (
            f"{self.number}: order {self.order}, k = {self.truth.n_components}, span {self.span:.0e}, "
            f"noise {self.noise:.0e}, cosine {self.cosine}"
        )


def attacks(count: int, seed: int = 0) -> Iterator[Attack]:
    """Yield planted tensors, spread over all spans, levels of noise, cosines and orders."""
    rng = np.random.default_rng(seed)
    grid = list(itertools.product(SPANS, NOISES, COSINES, SIZES))
    chosen = itertools.islice(itertools.cycle(rng.permutation(len(grid))), count)
    for number, index in enumerate(chosen):
        span, noise, cosine, (order, dimension) = grid[index]
        k = int(rng.integers(2, min(5, dimension - 1) + 1))
        vectors = rng.standard_normal((dimension, k))
        vectors /= np.linalg.norm(vectors, axis=0)
        if cosine is not None:
            first, second = rng.permutation(k)[:2]
            across = vectors[:, second] - (vectors[:, second] @ vectors[:, first]) * vectors[:, first]
            across /= np.linalg.norm(across)
            vectors[:, second] = cosine * vectors[:, first] + np.sqrt(1 - cosine**2) * across
        weights = span ** (-np.arange(k) / (k - 1))
        if order % 2 == 0:
            weights = weights * rng.choice([-1.0, 1.0], k)
        truth = odeco.Components(weights, vectors, order)
        entries = truth.to_dense()
        error = gaussian_noise(dimension, order=order, rng=rng).entries
        entries = entries + noise * np.linalg.norm(entries) / np.linalg.norm(error) * error
        yield Attack(number, order, span, noise, cosine, truth, odeco.symmetrize(entries).astype(np.float64))


def outcome(attack: Attack) -> tuple[str, int, int, int]:
    """Return a verdict, the number of intervals, those that cover, and the vectors beyond their errors."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = odeco.decompose(attack.entries, "auto", rng=attack.number)
    except odeco.RankError:
        return "refused", 0, 0, 0
    evidence, k = result.rank_evidence, attack.truth.n_components
    sure = evidence is not None and evidence.confidence >= SURE
    if len(result.weights) == k:
        return "right" if sure else "right, in doubt", *_covered(attack, result)
    if not sure:
        return "wrong, in doubt", 0, 0, 0
    as_stated = len(result.weights) == k - _n_hidden(attack, result)
    return "right at its resolution" if as_stated else "CONFIDENT AND WRONG", 0, 0, 0


def _n_hidden(attack: Attack, result: Decomposition) -> int:
    """Count the pairs of true components for which one was found, and which count as one at the stated resolution."""
    truth, n_hidden, span = attack.truth, 0, np.linalg.qr(result.vectors)[0]
    if result.rank_evidence is None:
        return 0
    nearest = np.argmax(np.abs(truth.vectors.T @ result.vectors), axis=1)
    for i, j in itertools.combinations(range(truth.n_components), 2):
        if nearest[i] != nearest[j]:
            continue
        sign = np.sign(truth.vectors[:, i] @ truth.vectors[:, j])
        apart = truth.vectors[:, i] - sign * truth.vectors[:, j]
        apart = apart - span @ (span.T @ apart)
        first, second = truth.weights[i], truth.weights[j] * sign**truth.order
        spread = abs(first * second) / (first + second) ** 2 * float(apart @ apart)
        n_hidden += int(spread < result.rank_evidence.resolution**2 / 4)
    return n_hidden


def _covered(attack: Attack, result: Decomposition) -> tuple[int, int, int]:
    """Count the intervals, those that cover, and the vectors beyond their errors."""
    truth = attack.truth
    cosines = np.abs(truth.vectors.T @ result.vectors)
    closeness = cosines - np.abs(np.log(np.abs(np.divide.outer(truth.weights, result.weights)))) * 1e-3
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
        - result.vectors[:, columns] * np.sum(truth.vectors[:, rows] * result.vectors[:, columns], axis=0),
        axis=0,
    )
    beyond = np.arcsin(np.minimum(sines, 1.0)) > ANGLE_FACTOR * angle_errors[columns] + 1e-5
    return truth.n_components, int(covers.sum()), int(beyond.sum())


def main() -> None:
    """Attack, print a table, and exit with 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    verdicts: Counter[str] = Counter()
    n_intervals = n_covering = n_beyond = 0
    for attack in attacks(given.count, given.seed):
        verdict, intervals, covering, beyond = outcome(attack)
        verdicts[verdict] += 1
        n_intervals, n_covering, n_beyond = n_intervals + intervals, n_covering + covering, n_beyond + beyond
        if given.verbose or verdict.isupper() or beyond or covering < intervals - 1:
            print(f"{attack}: {verdict}, {covering} of {intervals} covered, {beyond} vectors beyond", flush=True)
    for verdict, number in verdicts.most_common():
        print(f"{verdict:24} {number:5}")
    share = n_covering / max(1, n_intervals)
    print(f"intervals that cover     {100 * share:.1f} % of {n_intervals}")
    print(f"vectors beyond 3 errors  {100 * n_beyond / max(1, n_intervals):.1f} %")
    sys.exit(int(bool(verdicts["CONFIDENT AND WRONG"]) or share < 0.95))


if __name__ == "__main__":
    main()
