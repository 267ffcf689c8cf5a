"""Rows and seconds that each streaming method needs, and how errors grow with dimension and shrink
with rows.

    python benchmarks/streaming.py [--quick] [--only methods|scaling]

The planted stream: x = V s + σ g with orthonormal V (d x k), independent sources s that are centred
Gamma(1) variables, and Gaussian noise g. Its third moment is Σ 2 vᵢ ⊗ vᵢ ⊗ vᵢ. Rows are float32.
Making them is not counted in any time: a clock runs only while the library has the rows.

Table 1: the worst angle of a component, in radians, over several seeds, for the core method,
Algorithm 2, and online gradient descent with a learning rate tuned on other rows of the same
number. Table 2: what the core method needs to be as accurate. Tables 3 and 4: error against the
rows n behind each answer and the dimension d, with fitted exponents.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

import odeco
from odeco._util.types import FloatArray
from odeco.tensors.components import HasComponents
from reproduction.baselines import online_sgd, tune_learning_rate
from reproduction.baselines.sgd import DivergedError
from reproduction.report import log_slope
from reproduction.streaming import (
    N_ITERATIONS,
    N_RESTARTS,
    SGD_BATCH,
    SGD_RATES,
    SGD_RESTARTS,
    SkewedStream,
)

GE_RATES = (0.0003, 0.001, 0.003, 0.01, 0.03)
#: Tuning must not see the rows that are decomposed.
TUNING_SEED = 10_000


class Problem(SkewedStream):
    """A planted stream."""

    def rows(self, n_rows: int) -> NDArray[np.float32]:
        """Return rows as one array."""
        return np.concatenate(list(self.blocks(n_rows)))

    @property
    def span(self) -> Problem:
        """The same sources and noise within the span of the components, of dimension k."""
        return Problem(self.n_components, self.n_components, self.sigma, self.seed)

    def angles(self, found: HasComponents) -> FloatArray:
        """Return the angles between found and true vectors."""
        truth = odeco.Components(self.truth.weights, self.truth.vectors, found.order)
        return odeco.match(found, truth).angles


@dataclass
class Clock:
    """Measures seconds except those that a generator took to make its rows."""

    seconds: float = 0.0

    def stream(self, blocks: Iterator[NDArray[np.float32]]) -> Iterator[NDArray[np.float32]]:
        """Yield blocks, and take back the time of making them."""
        while True:
            start = time.perf_counter()
            block = next(blocks, None)
            self.seconds -= time.perf_counter() - start
            if block is None:
                return
            yield block

    def run(self, work: Callable[[], HasComponents]) -> HasComponents:
        """Return what `work` returns, and add its time."""
        start = time.perf_counter()
        result = work()
        self.seconds += time.perf_counter() - start
        return result


@dataclass(frozen=True)
class Outcome:
    """Angles of all components, and seconds, of one run."""

    angles: FloatArray
    seconds: float

    @property
    def worst(self) -> float:
        """The largest angle."""
        return float(self.angles.max())


def core_in_passes(problem: Problem, n_rows: int, n_passes: int = 3) -> Outcome:
    """Run the core method over rows in memory: one pass for a sample, which is searched, and others
    that refine.
    """
    rows, clock = problem.rows(n_rows), Clock()
    run = partial(
        odeco.decompose_stream, rows, problem.n_components, method="core", n_passes=n_passes
    )
    found = clock.run(lambda: run(rng=problem.seed))
    return Outcome(problem.angles(found), clock.seconds)


def core_refined(problem: Problem, n_rows: int) -> Outcome:
    """Run the core method with five refining passes instead of two."""
    return core_in_passes(problem, n_rows, n_passes=6)


def core_in_one_pass(problem: Problem, n_rows: int) -> Outcome:
    """Run the core method over a stream that is read once."""
    clock = Clock()
    stream = clock.stream(problem.blocks(n_rows))
    found = clock.run(
        lambda: odeco.decompose_stream(
            stream, problem.n_components, method="core", rng=problem.seed
        )
    )
    return Outcome(problem.angles(found), clock.seconds)


def algorithm_2(problem: Problem, n_rows: int) -> Outcome:
    """Run Algorithm 2 over a stream of k R batches."""
    clock = Clock()
    stream = clock.stream(problem.blocks(n_rows))
    found = clock.run(
        lambda: odeco.decompose_stream(
            stream,
            problem.n_components,
            method="power",
            batch_size=n_rows // (problem.n_components * N_ITERATIONS),
            n_restarts=N_RESTARTS,
            n_iterations=N_ITERATIONS,
            rng=problem.seed,
        )
    )
    return Outcome(problem.angles(found), clock.seconds)


@dataclass(frozen=True)
class Descent:
    """A variant of online gradient descent, and the stream that it can be applied to."""

    name: str
    variant: Literal["huang2015", "ge2015"]
    learning_rates: tuple[float, ...]
    n_restarts: int

    def applicable(self, problem: Problem) -> Problem:
        """Return the problem itself, or what is left of it for a variant that needs k = d."""
        return problem.span if self.variant == "ge2015" else problem

    def gaussian_variance(self, problem: Problem) -> float:
        """Return the variance of the rows in their span, where the fourth cumulant is wanted."""
        return 1 + problem.sigma**2 if self.variant == "ge2015" else 0.0

    def tuned(self, problem: Problem, n_rows: int) -> float:
        """Return the learning rate with the lowest objective."""
        return tune_learning_rate(
            lambda: self.applicable(problem).blocks(n_rows),
            problem.n_components,
            variant=self.variant,
            batch_size=SGD_BATCH,
            learning_rates=self.learning_rates,
            n_rows=n_rows,
            n_restarts=self.n_restarts,
            gaussian_variance=self.gaussian_variance(problem),
            rng=problem.seed,
        )

    def run(self, problem: Problem, n_rows: int, learning_rate: float) -> Outcome:
        """Descend along a stream; a descent that runs away counts as a right angle."""
        clock, problem = Clock(), self.applicable(problem)
        stream = clock.stream(problem.blocks(n_rows))
        try:
            found = clock.run(
                lambda: online_sgd(
                    stream,
                    problem.n_components,
                    variant=self.variant,
                    batch_size=SGD_BATCH,
                    learning_rate=learning_rate,
                    n_rows=n_rows,
                    n_restarts=self.n_restarts,
                    gaussian_variance=self.gaussian_variance(problem),
                    rng=problem.seed,
                )
            )
        except DivergedError:
            return Outcome(np.full(problem.n_components, np.pi / 2), float("nan"))
        return Outcome(problem.angles(found), clock.seconds)


DESCENTS = (
    Descent("SGD (Huang)", "huang2015", SGD_RATES, SGD_RESTARTS),
    Descent("SGD (Ge), true span", "ge2015", GE_RATES, 1),
)


def report(name: str, n_rows: int, outcomes: list[Outcome]) -> tuple[float, float]:
    """Print one row of table 1 and return the median angle and the median time."""
    worst = np.array([outcome.worst for outcome in outcomes])
    seconds = np.array([outcome.seconds for outcome in outcomes])
    found = np.mean([outcome.angles < np.pi / 4 for outcome in outcomes])
    print(
        f"{name:34s} {n_rows:10,d} {np.median(worst):8.4f}   {worst.min():.4f} to "
        f"{worst.max():.4f} {found:7.0%} {np.median(seconds):9.3f}   {seconds.min():.3f} to "
        f"{seconds.max():.3f}",
        flush=True,
    )
    return float(np.median(worst)), float(np.median(seconds))


def compare(
    dimension: int, n_components: int, sigma: float, totals: list[int], n_seeds: int
) -> None:
    """Print tables 1 and 2."""
    problems = [Problem(dimension, n_components, sigma, seed) for seed in range(n_seeds)]
    core_in_passes(problems[0], 1000)  # threads and libraries start here, not in the first row
    print(
        f"Table 1. d = {dimension}, k = {n_components}, sigma = {sigma}; {n_seeds} seeds. Worst "
        "angle of a component, in radians: median and range.\n"
        f"found: components within 45 degrees. Algorithm 2: L = {N_RESTARTS}, R = {N_ITERATIONS}. "
        f"SGD: {SGD_BATCH} rows a step; Huang et al. 2015 with {SGD_RESTARTS} restarts;\n"
        "Ge et al. 2015 on the fourth cumulant, which needs k = d: it is told the span.\n"
    )
    print(
        f"{'method':34s} {'rows':>10} {'angle':>8}   {'range':16} {'found':>7} {'seconds':>9}   "
        "range"
    )
    for n_rows in (2_000, 20_000):
        report(
            "core, passes over the same rows",
            n_rows,
            [core_in_passes(problem, n_rows) for problem in problems],
        )
    for n_rows in (20_000, 200_000):
        report(
            "core, one pass", n_rows, [core_in_one_pass(problem, n_rows) for problem in problems]
        )
    rivals = []
    for total in totals:
        # Whole batches only.
        n_rows = total // (n_components * N_ITERATIONS) * n_components * N_ITERATIONS
        found = report(
            "Algorithm 2", n_rows, [algorithm_2(problem, n_rows) for problem in problems]
        )
        rivals.append(("Algorithm 2", n_rows, *found))
    for descent in DESCENTS:
        for total in totals:
            rate = descent.tuned(Problem(dimension, n_components, sigma, TUNING_SEED), total)
            name = f"{descent.name}, rate {rate:g}"
            found = report(name, total, [descent.run(problem, total, rate) for problem in problems])
            rivals.append((name, total, *found))
    print(
        "\n"
        "Table 2. The fewest rows, out of 1,000, 1,414, 2,000, ..., with which core in passes has "
        "at most the median angle of its rival.\n"
        "Aims against Algorithm 2: at least 50 times fewer rows, 20 times less time.\n"
    )
    print(
        f"{'rival':30s} {'its rows':>10} {'angle':>8} {'core rows':>10} {'angle':>8} "
        f"{'fewer rows':>11} {'less time':>10}"
    )
    ladder = [int(1000 * 2 ** (step / 2)) for step in range(17)]
    measured: dict[int, tuple[float, float]] = {}
    for name, n_rows, angle, seconds in rivals:
        for candidate in ladder:
            if candidate not in measured:
                outcomes = [core_in_passes(problem, candidate) for problem in problems]
                measured[candidate] = (
                    float(np.median([outcome.worst for outcome in outcomes])),
                    float(np.median([outcome.seconds for outcome in outcomes])),
                )
            if measured[candidate][0] <= angle:
                break
        reached, core_seconds = measured[candidate]
        verdict = "" if reached <= angle else "  (not reached)"
        print(
            f"{name:30s} {n_rows:10,d} {angle:8.4f} {candidate:10,d} {reached:8.4f} "
            f"{n_rows / candidate:11.1f} {seconds / core_seconds:10.1f}{verdict}",
            flush=True,
        )


def fitted_exponent(variable: list[int], value: list[list[float]]) -> tuple[float, float]:
    """Return slope and standard error of a least squares line through logarithms, of all seeds
    together.
    """
    slope = log_slope(np.repeat(variable, [len(each) for each in value]), np.concatenate(value))
    return slope.value, slope.error


def root_mean_square(angles: FloatArray) -> float:
    return float(np.sqrt(np.mean(angles**2)))


Method = Callable[[Problem, int], Outcome]


def scaling(
    rows: list[int], dimensions: list[int], n_seeds: int, n_components: int, sigma: float
) -> None:
    """Print tables 3 and 4."""
    n_batches = n_components * N_ITERATIONS
    methods: list[tuple[str, Method, int]] = [
        ("Algorithm 2", algorithm_2, n_batches),
        ("core, passes", core_in_passes, 1),
        ("core, refined", core_refined, 1),
    ]
    middle_rows, middle_dimension = rows[-1], dimensions[(len(dimensions) - 1) // 2]
    print(
        "\n"
        f"Table 3. Error (root mean square angle; median of {n_seeds} seeds) against rows n "
        f"behind each answer and dimension d; k = {n_components}, sigma = {sigma}.\n"
        f"Algorithm 2 reads {n_batches} n rows, core n, in passes; refined: with four refining "
        "passes instead of one.\n"
        "predicted: derived from the moments of one row, no constant fitted.\n"
    )
    print(f"{'method':14s} {'d':>5} {'n':>9} {'error':>8} {'predicted':>10} {'ratio':>6}")
    summary = []
    for name, method, factor in methods:
        for variable, settings in (
            ("n", [(middle_dimension, n) for n in rows]),
            ("d", [(dimension, middle_rows) for dimension in dimensions]),
        ):
            errors = []
            for dimension, n in settings:
                problems = [
                    Problem(dimension, n_components, sigma, seed) for seed in range(n_seeds)
                ]
                errors.append(
                    [root_mean_square(method(problem, factor * n).angles) for problem in problems]
                )
                typical = float(np.median(errors[-1]))
                expected = Problem(dimension, n_components, sigma, 0).predicted_error(n)
                print(
                    (
                        f"{name:14s} {dimension:5d} {n:9,d} {typical:8.4f} {expected:10.4f} "
                        f"{typical / expected:6.2f}"
                    ),
                    flush=True,
                )
            values = (
                [n for _, n in settings]
                if variable == "n"
                else [dimension for dimension, _ in settings]
            )
            summary.append(
                (
                    name,
                    f"error against {variable}",
                    fitted_exponent(values, errors),
                    variable == "n",
                )
            )
    print("\nTable 4. Fitted exponents beside those of Theorem 3.1: error ~ sigma sqrt(d / n).\n")
    print(f"{'method':14s} {'fit':26s} {'exponent':>9} {'std. error':>11} {'theorem':>8}")
    for name, what, (slope, error), in_rows in summary:
        print(f"{name:14s} {what:26s} {slope:9.3f} {error:11.3f} {-0.5 if in_rows else 0.5:8.1f}")
    for name, method, factor in methods:
        needed = [
            [
                rows_needed(method, factor, Problem(dimension, n_components, sigma, seed))
                for seed in range(n_seeds)
            ]
            for dimension in dimensions
        ]
        slope, error = fitted_exponent(dimensions, needed)
        print(
            f"{name:14s} {'rows for 2/sqrt(d), in d':26s} {slope:9.3f} {error:11.3f} {2.0:8.1f}",
            flush=True,
        )
        listed = ", ".join(
            f"{dimension}: {np.median(each):,.0f}"
            for dimension, each in zip(dimensions, needed, strict=True)
        )
        print(f"{'':14s} n needed, median, at d = {listed}")


def rows_needed(method: Method, factor: int, problem: Problem) -> float:
    """Return the n at which the error falls to 2/√d: doubled from d on, then interpolated in
    logarithms.
    """
    aim, n = 2 / np.sqrt(problem.dimension), problem.dimension
    before = float("nan")
    while True:
        error = root_mean_square(method(problem, factor * n).angles)
        if error <= aim:
            break
        before, n = error, 2 * n
    share = np.log(before / aim) / np.log(before / error) if before > aim else 1.0
    return float(n / 2 * 2**share)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="fewer seeds, rows and dimensions: below one minute"
    )
    parser.add_argument("--only", choices=["methods", "scaling"], help="tables 1 and 2, or 3 and 4")
    arguments = parser.parse_args()
    quick, chosen = arguments.quick, arguments.only
    if chosen in (None, "methods"):
        compare(
            200,
            5,
            0.3,
            totals=[200_000] if quick else [200_000, 2_000_000],
            n_seeds=3 if quick else 5,
        )
    if chosen in (None, "scaling"):
        rows, dimensions = ([1_000, 2_000, 4_000], [25, 50])
        if not quick:
            rows, dimensions = ([2_000, 4_000, 8_000, 16_000], [25, 50, 100, 200])
        scaling(rows, dimensions, n_seeds=2 if quick else 3, n_components=3, sigma=1.0)


if __name__ == "__main__":
    main()
