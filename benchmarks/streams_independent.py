"""Streams whose components are not orthogonal: what is found, and whether the standard errors are
honest.

    python benchmarks/streams_independent.py [--quick]

The planted stream: x = V s + σ g, with vectors V (d x k) any two of which have the same cosine,
independent sources s that are centred Gamma(1) variables, and Gaussian noise g. Its third moment is
Σ 2 vᵢ ⊗ vᵢ ⊗ vᵢ.

For each cosine: the worst angle of a component, in radians, median and largest over seeds; the
share of runs in which all components have a cosine above 0.95 with the truth; the root mean square
of angle over standard error, which is 1 if standard errors are honest; seconds. "taken to be
orthogonal" is the core of the same rows, decomposed by power steps.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import odeco
from odeco._util.types import FloatArray
from odeco.datasets import planted_independent
from odeco.decompose import StreamDecomposition
from odeco.online.methods.private import PrivateSpan
from odeco.online.solver import Reply, Where

FOUND_COSINE = 0.95


@dataclass(frozen=True)
class Problem:
    """A planted stream."""

    n_rows: int
    dimension: int
    n_components: int
    sigma: float
    cosine: float
    seed: int

    @property
    def truth(self) -> odeco.Components:
        """The components of the third moment."""
        weights = np.full(self.n_components, 2.0)
        return planted_independent(
            self.dimension, self.n_components, coherence=self.cosine, weights=weights, rng=self.seed
        )

    def rows(self) -> FloatArray:
        """Return the rows."""
        generator = np.random.default_rng([self.seed, 1])
        sources = generator.standard_exponential((self.n_rows, self.n_components)) - 1
        noise = generator.standard_normal((self.n_rows, self.dimension))
        mixed: FloatArray = sources @ self.truth.vectors.T + self.sigma * noise
        return mixed


Found = odeco.Components | StreamDecomposition


def in_passes(problem: Problem, rows: FloatArray) -> Found:
    """Run the core method over rows in memory."""
    return odeco.decompose_stream(rows, problem.n_components, rng=problem.seed)


def in_one_pass(problem: Problem, rows: FloatArray) -> Found:
    """Run the core method over a stream that is read once."""
    return odeco.decompose_stream(iter([rows]), problem.n_components, rng=problem.seed)


def as_orthogonal(problem: Problem, rows: FloatArray) -> Found:
    """Decompose the core as if components were orthogonal."""
    guarantee: dict[str, Any] = {
        "batch_size": 1,
        "epsilon": 1.0,
        "delta": 1e-6,
        "norm_bound": 1.0,
    }  # no noise is added here
    plan = PrivateSpan(n_components=problem.n_components, **guarantee)
    search = plan.bound(Where(problem.dimension, problem.seed)).start()
    for _ in range(plan.n_batches):
        search = search.advance(Reply(search.query.mean_over(rows), 1))
    return search.estimate(None).components


METHODS: dict[str, Callable[[Problem, FloatArray], Found]] = {
    "core, passes": in_passes,
    "core, one pass": in_one_pass,
    "taken to be orthogonal": as_orthogonal,
}


def line(name: str, problems: list[Problem]) -> str:
    """Return one row of the table."""
    worst, found, ratios, seconds = [], [], list[float](), []
    for problem in problems:
        rows = problem.rows()
        start = time.perf_counter()
        result = METHODS[name](problem, rows)
        seconds.append(time.perf_counter() - start)
        matched = odeco.match(result, problem.truth)
        worst.append(float(matched.angles.max()))
        found.append(bool(np.all(matched.cosines > FOUND_COSINE)))
        errors = getattr(result, "angle_errors", None)
        if errors is not None:
            ratios.extend(matched.angles / errors[matched.found_index])
    honest = f"{np.sqrt(np.mean(np.square(ratios))):8.2f}" if ratios else f"{'':8}"
    angles = f"{np.median(worst):8.4f} {max(worst):8.4f}"
    return (
        f"{problems[0].cosine:6.1f}  {name:24s} {angles} {np.mean(found):7.0%} {honest} "
        f"{np.median(seconds):8.3f}"
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one setting and three seeds")
    quick = parser.parse_args().quick
    settings = [(20_000, 30, 6, 0.2), (40_000, 200, 10, 0.3), (3_000, 30, 3, 0.5)]
    for n_rows, dimension, n_components, sigma in settings[: 1 if quick else None]:
        print(
            "\n"
            f"n = {n_rows:,}, d = {dimension}, k = {n_components}, sigma = {sigma}; "
            f"{3 if quick else 20} seeds\n"
        )
        print(
            f"{'cosine':>6}  {'method':24s} {'angle':>8} {'largest':>8} {'found':>7} "
            f"{'/ error':>8} {'seconds':>8}"
        )
        for cosine in (0.0, 0.3, 0.6, 0.9):
            seeds = range(3 if quick else 20)
            problems = [
                Problem(n_rows, dimension, n_components, sigma, cosine, seed) for seed in seeds
            ]
            for name in METHODS:
                print(line(name, problems), flush=True)


if __name__ == "__main__":
    main()
