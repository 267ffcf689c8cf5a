"""Attack on the errors that streams state: do two samples agree on components that both call clear?

    python benchmarks/attack_streams.py --count 40 --seed 1

Two streams of every kind are drawn and decomposed, by the method and in the number of passes that
come up. Their components are matched; where both call one clear, their distance is compared with
the root of the sum of both squared errors. Angles of random directions in d dimensions vary little,
so that four such errors are hardly ever exceeded if the errors are true. Where components have
equal weights and fewer are asked for than there are, the samples may find different ones; so as
many are asked for as were planted.

Kinds whose third moment is a sum of k components: skewed sources in Gaussian noise, and rows that
are each one of k vectors. Kinds whose moment is no such sum: the same sources with a mean, counts,
binary columns and positive numbers as they are, which all have a mean.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable

import numpy as np

import odeco
from odeco._util.types import FloatArray
from odeco.decompose import StreamDecomposition

#: How many errors apart clear components of two samples may be.
MOST_ERRORS = 4.0

#: Angles that rounding leaves between equal vectors.
ROUNDING = 1e-6

Draw = Callable[[np.random.Generator], FloatArray]


def sources(rng: np.random.Generator, d: int, k: int, n: int, mean: float) -> Draw:
    """Return a stream of skewed sources in Gaussian noise, with a mean of this length times that of
    the noise.
    """
    vectors = rng.standard_normal((d, k))
    vectors /= np.linalg.norm(vectors, axis=0)
    scales, noise = rng.uniform(0.8, 2, size=k), float(rng.choice([0.1, 0.5]))
    shift = mean * rng.standard_normal(d)

    def draw(rng: np.random.Generator) -> FloatArray:
        values = (rng.exponential(size=(n, k)) - 1) * scales
        return np.asarray(values @ vectors.T + noise * rng.standard_normal((n, d)) + shift)

    return draw


def points(rng: np.random.Generator, d: int, k: int, n: int) -> Draw:
    """Return a stream of rows that are each one of k vectors."""
    vectors = rng.dirichlet(np.full(d, 0.3), size=k)
    return lambda rng: vectors[rng.integers(k, size=n)]


def counts(rng: np.random.Generator, d: int, n: int) -> Draw:
    """Return a stream of independent counts."""
    rates = rng.uniform(0.5, 5, size=d)
    return lambda rng: rng.poisson(rates, size=(n, d)).astype(np.float64)


def binary(rng: np.random.Generator, d: int, n: int) -> Draw:
    """Return a stream of independent binary columns."""
    shares = rng.uniform(0.05, 0.6, size=d)
    return lambda rng: (rng.random((n, d)) < shares).astype(np.float64)


def positive(rng: np.random.Generator, d: int, n: int) -> Draw:
    """Return a stream of independent positive numbers."""
    shapes = rng.uniform(0.5, 3, size=d)
    return lambda rng: rng.gamma(shapes, size=(n, d))


KINDS: dict[str, Callable[[np.random.Generator, int, int, int], Draw]] = {
    "sources": lambda rng, d, k, n: sources(rng, d, k, n, 0.0),
    "points": points,
    "sources, small mean": lambda rng, d, k, n: sources(rng, d, k, n, 0.3),
    "sources, mean": lambda rng, d, k, n: sources(rng, d, k, n, 3.0),
    "counts": lambda rng, d, _, n: counts(rng, d, n),
    "binary": lambda rng, d, _, n: binary(rng, d, n),
    "positive": lambda rng, d, _, n: positive(rng, d, n),
}


def attack(kind: str, seed: int) -> tuple[int, int, int, bool]:
    """Return how many components there were, how many both samples call clear, how many differ, and
    if one misfits.
    """
    rng = np.random.default_rng(seed)
    d, n = int(rng.integers(5, 40)), int(rng.choice([3000, 10_000, 30_000]))
    k = int(rng.integers(2, min(d, 8) + 1))
    draw = KINDS[kind](rng, d, k, n)
    settings = (
        {"n_passes": 1} if rng.random() < 0.3 else {"method": str(rng.choice(["auto", "core"]))}
    )
    found: list[StreamDecomposition] = []
    for number in range(2):
        rows = draw(np.random.default_rng([seed, number]))
        try:
            found.append(odeco.decompose_stream(rows, k, rng=number, **settings))
        except odeco.RankError:
            return k, 0, 0, False
    matched = odeco.match(found[1], found[0])
    other = matched.found_index
    clear = found[0].clear & found[1].clear[other]
    first, second = found[0].angle_errors, found[1].angle_errors
    if first is None or second is None:
        return k, 0, 0, False
    apart = matched.angles > np.maximum(MOST_ERRORS * np.hypot(first, second[other]), ROUNDING)
    return k, int(clear.sum()), int((clear & apart).sum()), found[0].misfits or found[1].misfits


def main() -> None:
    """Attack every kind, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        f"{'kind':22}{'pairs':>8}{'components':>12}{'clear in both':>15}{'of these apart':>16}{'misfit stated':>15}"
    )
    for kind in KINDS:
        results = np.array(
            [attack(kind, given.seed * 10_000 + number) for number in range(given.count)], dtype=int
        )
        k, clear, apart, misfit = results.sum(axis=0)
        print(f"{kind:22}{given.count:8}{k:12}{clear:15}{apart:16}{misfit:15}", flush=True)


if __name__ == "__main__":
    main()
