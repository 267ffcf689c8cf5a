"""Attack on "auto" of fourth cumulants: is `odeco.decompose_stream` ever confident and wrong about
the number?

    python benchmarks/attack_moments.py --count 200 --seed 1

Rows are Σ aᵢ sᵢ of k independent sources in random unit directions, plus Gaussian noise of a fifth
of their deviation. d is 5 to 12, k from d/2 to the largest number that can be told apart, d(d −
1)/2, and n 20,000 to 200,000. The sources are of the Laplace, the uniform, or Student's law with 3
degrees of freedom, which has no fourth moment; rows come as they are drawn, sorted by their norm,
or sorted by their first column. For each kind the table counts the answers by what was stated. A
number is "right at its resolution" if it is that of the sources when two count as one that are
closer than the stated angle (`RankEvidence.resolution`, in coordinates in which the covariance is
the identity). It exits with 1 if a number was wrong otherwise with a confidence of 0.95 or more.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

import odeco
from odeco._util.types import FloatArray
from odeco.cp.rank import SURE
from odeco.cp.subspace_power import largest_rank

LAWS = ("Laplace", "uniform", "Student t(3)")
ORDERS = ("as drawn", "sorted by norm", "sorted by column")
DIMENSIONS, N_ROWS = (5, 6, 8, 10, 12), (20_000, 60_000, 200_000)

#: The deviation of the Gaussian noise, as a share of that of a source.
NOISE = 0.2

VERDICTS = (
    "right",
    "right at resolution",
    "right, in doubt",
    "wrong, in doubt",
    "refused",
    "CONFIDENT AND WRONG",
)


class Attack(NamedTuple):
    """One planted stream."""

    number: int
    law: str
    arrangement: str
    vectors: FloatArray
    rows: FloatArray

    def __str__(self) -> str:
        d, k = self.vectors.shape
        return (
            f"{self.number}: {self.law}, {self.arrangement}, d = {d}, k = {k}, n = "
            f"{len(self.rows):,}"
        )


def attacks(count: int, seed: int) -> Iterator[Attack]:
    """Yield planted streams, spread over all laws, arrangements and sizes."""
    rng = np.random.default_rng(seed)
    grid = list(itertools.product(LAWS, ORDERS, DIMENSIONS, N_ROWS))
    for number, index in enumerate(
        itertools.islice(itertools.cycle(rng.permutation(len(grid))), count)
    ):
        law, arrangement, d, n = grid[index]
        k = int(rng.integers(d // 2, largest_rank(d, 4) + 1))
        vectors = rng.standard_normal((d, k))
        vectors /= np.linalg.norm(vectors, axis=0)
        if law == "Laplace":
            sources = rng.laplace(size=(n, k)) / np.sqrt(2)
        elif law == "uniform":
            sources = rng.uniform(-1, 1, (n, k)) * np.sqrt(3)
        else:
            sources = rng.standard_t(3, (n, k)) / np.sqrt(3)
        rows = sources @ vectors.T + NOISE * rng.standard_normal((n, d))
        if arrangement != "as drawn":
            keys = np.linalg.norm(rows, axis=1) if arrangement == "sorted by norm" else rows[:, 0]
            rows = rows[np.argsort(keys)]
        yield Attack(number, law, arrangement, vectors, rows)


def verdict(attack: Attack) -> tuple[str, str]:
    """Return the verdict and what was found."""
    try:
        found = odeco.decompose_stream(attack.rows, "auto", order=4, moment="cumulant", rng=0)
    except odeco.RankError:
        return "refused", ""
    evidence, k, true = found.rank_evidence, len(found.weights), attack.vectors.shape[1]
    if evidence is None:
        raise RuntimeError("A number that is selected has evidence.")
    what = (
        f"found {k} with a confidence of {evidence.confidence:.3f} at {evidence.resolution:.2f} rad"
    )
    if k == true:
        return "right" if evidence.confidence >= SURE else "right, in doubt", what
    if evidence.confidence < SURE:
        return "wrong, in doubt", what
    as_stated = k == true - n_hidden(attack.vectors, found.vectors, evidence.resolution)
    return "right at resolution" if as_stated else "CONFIDENT AND WRONG", what


def n_hidden(true: FloatArray, found: FloatArray, resolution: float) -> int:
    """Count the pairs of sources for which one was found, and which count as one at the stated
    resolution.
    """
    whitening = np.linalg.inv(np.linalg.cholesky(true @ true.T + NOISE**2 * np.eye(len(true))))
    white, others = whitening @ true, whitening @ found
    weights = np.linalg.norm(white, axis=0) ** 4  # all sources have the same kurtosis
    white, others = white / np.linalg.norm(white, axis=0), others / np.linalg.norm(others, axis=0)
    nearest = np.argmax(np.abs(white.T @ others), axis=1)
    count = 0
    for i, j in itertools.combinations(range(len(weights)), 2):
        angle = np.linalg.norm(white[:, i] - np.sign(white[:, i] @ white[:, j]) * white[:, j])
        spread = weights[i] * weights[j] / (weights[i] + weights[j]) ** 2 * angle**2
        count += int(nearest[i] == nearest[j] and spread < resolution**2 / 4)
    return count


def main() -> None:
    """Attack, print a table, and exit with 1 if a number was confident and wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for attack in attacks(given.count, given.seed):
        what, details = verdict(attack)
        counts[attack.law, attack.arrangement][what] += 1
        if given.verbose or what.isupper():
            print(f"{attack}: {what}, {details}", flush=True)
    print(f"{'law':14}{'rows':18}" + "".join(f"{each:>21}" for each in VERDICTS))
    for (law, arrangement), row in sorted(counts.items()):
        print(f"{law:14}{arrangement:18}" + "".join(f"{row[each]:21}" for each in VERDICTS))
    sys.exit(int(any(row["CONFIDENT AND WRONG"] for row in counts.values())))


if __name__ == "__main__":
    main()
