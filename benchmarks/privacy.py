"""How much signal, how many records and how much time a private decomposition needs, for every
mechanism.

    python benchmarks/privacy.py [--quick] [--only entries|records|speed] [--seeds 5]

Table 1, entry level: the smallest top weight with which all of k = 3 components are found. Table 2,
record level, single-topic model: the fewest records with which all k topics are found. Both with no
noise but that of privacy, at epsilon 1 and delta 1e-6. Found means a cosine of at least 0.9 for
*every* component.

How it is measured. For every seed (components, starts and noise) the smallest size on a geometric
grid at which everything is found is searched by bisection, between a size that fails and one that
does not; the tables give the median over seeds and the range. Every trial is a call of
`odeco.decompose_privately` on its public path: the ledger is charged, the noise goes through the
grid. Only its source is another: seeded, and scaled. Scaling is exact, because the size enters
nothing but the ratio of noise to signal. A tensor of top weight λ with noise s is λ times one of
top weight 1 with noise s/λ. The mean over n rows of which each of k topics is a share of exactly
1/k is the mean over the k topics, and its sensitivity B³/n is k/n times that of k rows. So the
holder gets the tensor of top weight 1, or one row a topic, and the noise source draws λ or n/k
times less than it is asked for. A check at the end compares this with a run on that many real rows.

One pass over disjoint batches. The r releases of a mechanism then read one batch each and every one
may spend the whole budget, since no record is in two batches. A release that had the share s of μ²
over all n records has noise Δ/(n μ √s); on the share f of the records with all of μ it has Δ/(f n
μ). These are equal for f = √s, so n records become Σ √s n and every release has exactly the noise
that it had: the same run, to the bit. The factor is √(k R) for joint releases of equal shares and
at most √r for the r releases of a core. So these lines are computed, not searched. A stream that
releases the whole moment of its one batch (`OnlineDecomposer(method="entries")`) is searched as the
others are.

Table 3, speed: seconds of a private run (record level, core) at d = 1,000 beside its non-private
twin, `odeco.decompose_stream` by the core method without refinement: the same rows, read as often,
four times. The twin asks for images of single columns instead of slabs of all pairs, some seven
times fewer products. The default of `decompose_stream`, which reads the rows a fifth time to
refine, is given too.
"""

from __future__ import annotations

import argparse
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from typing import Any, Literal, cast

import numpy as np

import odeco
from odeco._util.types import FloatArray
from odeco.datasets import planted_orthogonal
from odeco.errors import ReusedRecordsWarning
from odeco.privacy import PrivacyPlan, noise_multiplier, paper_noise_multiplier
from odeco.privacy.noise import SimulatedNoise
from odeco.private import decompose_privately, plan_privacy
from odeco.private.mechanisms import MECHANISMS
from odeco.private.recipe import DEFAULT_ITERATIONS

EPSILON, DELTA = 1.0, 1e-6
FOUND = 0.9
#: Of Algorithm 3 at entry level: K = k L (R + 1) = 264 for k = 3.
N_RESTARTS, N_ITERATIONS = 8, 10
#: Weights relative to the top one: about equal, so that no component is found long before the
#: others.
WEIGHTS = (1.0, 0.95, 0.9)
ENTRY_CELLS = ((50, 3), (100, 3), (200, 3), (300, 3))
RECORD_CELLS = ((50, 5), (100, 5), (200, 5), (100, 10), (300, 5))
PAPER, EXACT = "paper's Algorithm 3", "Algorithm 3, exact accounting"
#: Input perturbation for the paper's own neighbours, so that the two can be compared like with
#: like.
INPUT_LITERAL = "input, the paper's neighbours"
#: A stream whose one batch releases all distinct entries of the moment.
STREAM = "one pass, the whole moment at once"
LESS_SIGNAL, FEWER_RECORDS, AUTO_SLACK = 30, 250, 1.15
SPEED_AIM = 1.5
TWIN = "decompose_stream, not refined (4 passes)"
REFINED = "decompose_stream, as it comes (5 passes)"

Level = Literal["entry", "record"]


@dataclass(frozen=True)
class Cell:
    """One column of a table."""

    level: Level
    dimension: int
    n_components: int

    @property
    def label(self) -> str:
        """How the column is called."""
        return f"d={self.dimension}" + (f",k={self.n_components}" if self.level == "record" else "")

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """What is searched, the paper's first."""
        common = (PAPER, EXACT, "joint", "input", "core")
        return (*common, INPUT_LITERAL) if self.level == "entry" else (*common, "subspace", STREAM)

    @property
    def powers(self) -> dict[str, Any]:
        """L and R: those of the paper's K at entry level, the defaults for records."""
        return (
            {"n_restarts": N_RESTARTS, "n_iterations": N_ITERATIONS}
            if self.level == "entry"
            else {}
        )

    def plan(self, relation: str | None = None) -> PrivacyPlan:
        """Return what the planner says, for weights 1 or for 1,000 records."""
        rows: dict[str, Any] = {} if self.level == "entry" else {"n_units": 1000, "norm_bound": 1.0}
        default = "distinct" if self.level == "entry" else "add_remove"
        return plan_privacy(
            dimension=self.dimension,
            n_components=self.n_components,
            epsilon=EPSILON,
            delta=DELTA,
            unit=self.level,
            neighbour_relation=relation or default,
            **rows,
            **self.powers,
        )

    def predicted(self, mechanism: str) -> float:
        """Return the size that the planner predicts, from where the search starts."""
        by_power = mechanism in (PAPER, EXACT)
        literal = (by_power or mechanism == INPUT_LITERAL) and self.level == "entry"
        own = "input" if mechanism == STREAM else mechanism.split(",")[0]
        entry = self.plan("literal" if literal else None)["wang2016" if by_power else own]
        signal = entry.smallest_signal
        if mechanism == PAPER:
            arguments = (EPSILON, DELTA, entry.n_releases)
            signal *= paper_noise_multiplier(*arguments) / noise_multiplier(*arguments)
        return signal if self.level == "entry" else 1000 * signal * self.n_components


@dataclass(frozen=True)
class ScaledNoise:
    """Seeded noise of which every number is a fixed share of what was asked for."""

    source: SimulatedNoise
    share: float

    def gaussian(self, shape: tuple[int, ...], scale: float) -> FloatArray:
        """Draw N(0, (share · scale)²)."""
        return self.source.gaussian(shape, self.share * scale)


@lru_cache(maxsize=1)
def problem(cell: Cell, seed: int) -> tuple[FloatArray, odeco.Components]:
    """Return the tensor of top weight 1, or one row a topic; and the truth."""
    weights = (
        WEIGHTS if cell.level == "entry" else np.full(cell.n_components, 1 / cell.n_components)
    )
    truth = planted_orthogonal(cell.dimension, cell.n_components, weights=weights, rng=seed)
    return truth.to_dense() if cell.level == "entry" else np.ascontiguousarray(
        truth.vectors.T
    ), truth


def decompose(
    cell: Cell, mechanism: str, seed: int, data: FloatArray, share: float
) -> odeco.PrivateDecomposition:
    """Run one mechanism with noise that is a share of what the data would need."""
    if mechanism == STREAM:
        return decompose_stream(cell, seed, data, share)
    by_power = mechanism in (PAPER, EXACT)
    settings: dict[str, Any] = {"norm_bound": 1.0} if cell.level == "record" else {}
    if cell.level == "record":
        settings["neighbour_relation"] = "add_remove"
    else:
        settings["neighbour_relation"] = (
            "literal" if by_power or mechanism == INPUT_LITERAL else "distinct"
        )
    name = "wang2016" if by_power else mechanism.split(",")[0]
    if name == "auto" or "n_restarts" in MECHANISMS[name].uses:
        settings |= cell.powers
    return decompose_privately(
        data,
        cell.n_components,
        epsilon=EPSILON,
        delta=DELTA,
        unit=cell.level,
        mechanism=name,
        calibration="paper" if mechanism == PAPER else "exact",
        rng=seed,
        noise=ScaledNoise(SimulatedNoise(seed), share),
        **settings,
    )


def decompose_stream(
    cell: Cell, seed: int, data: FloatArray, share: float
) -> odeco.PrivateDecomposition:
    """Push the rows as the one batch of a private stream that releases its whole moment."""
    online = odeco.OnlineDecomposer(
        cell.n_components,
        method="entries",
        batch_size=len(data),
        epsilon=EPSILON,
        delta=DELTA,
        norm_bound=1.0,
        neighbour_relation="add_remove",
        rng=seed,
        noise=ScaledNoise(SimulatedNoise(seed), share),
    )
    return cast(odeco.PrivateDecomposition, online.partial_fit(data).result())


def finds_all(cell: Cell, mechanism: str, seed: int, size: float) -> bool:
    """Say whether every component is found at a top weight, or with a number of records."""
    data, truth = problem(cell, seed)
    share = 1 / size if cell.level == "entry" else cell.n_components / size
    result = decompose(cell, mechanism, seed, data, share)
    return bool(odeco.match(result, truth).cosines.min() >= FOUND)


def smallest(works: Callable[[float], bool], guess: float, ratio: float) -> float:
    """Return the smallest size on the grid guess · ratioⁱ that works, next to one that does not.

    From the guess the steps double until the verdict turns, then the gap is halved.
    """
    low = high = 0
    step = 2
    if works(guess):
        low = -step
        while works(guess * ratio**low):
            high, step = low, 2 * step
            low -= step
    else:
        high = step
        while not works(guess * ratio**high):
            low, step = high, 2 * step
            high += step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if works(guess * ratio**middle) else (middle, high)
    return guess * ratio**high


def search(cell: Cell, mechanism: str, seed: int, ratio: float) -> float:
    """Return the smallest size for one seed."""
    return smallest(
        lambda size: finds_all(cell, mechanism, seed, size), cell.predicted(mechanism), ratio
    )


@contextmanager
def single_threaded_children() -> Iterator[None]:
    """Have processes that are started here use one thread each: they share the cores among
    themselves.
    """
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


Found = dict[tuple[Cell, str], FloatArray]


def search_all(cells: list[Cell], n_seeds: int, ratio: float, n_processes: int) -> Found:
    """Search every cell for every seed, the longest first."""
    jobs = [
        (cell, mechanism, seed)
        for cell in cells
        for mechanism in cell.mechanisms
        for seed in range(n_seeds)
    ]
    jobs.sort(key=lambda job: -(job[0].dimension ** (3 if job[1] in ("input", STREAM) else 2)))
    sizes: dict[tuple[Cell, str, int], float] = {}
    start = time.perf_counter()
    with (
        single_threaded_children(),
        ProcessPoolExecutor(n_processes, mp_context=get_context("spawn")) as pool,
    ):
        waiting = {pool.submit(search, *job, ratio): job for job in jobs}
        for done in as_completed(waiting):
            sizes[waiting[done]] = done.result()
    print(
        f"{len(jobs)} searches took {time.perf_counter() - start:.0f} s in {n_processes} "
        "processes\n"
    )
    return {
        (cell, mechanism): np.array([sizes[cell, mechanism, seed] for seed in range(n_seeds)])
        for cell in cells
        for mechanism in cell.mechanisms
    }


def one_pass(cell: Cell, found: Found) -> dict[str, FloatArray]:
    """Return what disjoint batches need; see the module."""
    n_releases = cell.n_components * DEFAULT_ITERATIONS
    shares = cell.plan()["core"].shares
    return {
        "one pass, disjoint batches, joint": math.sqrt(n_releases) * found[cell, "joint"],
        "one pass, disjoint batches, core": sum(math.sqrt(share) for share in shares)
        * found[cell, "core"],
    }


def spread(sizes: FloatArray) -> str:
    return f"{np.median(sizes):,.0f} ({sizes.min():,.0f}-{sizes.max():,.0f})"


def print_table(cells: list[Cell], found: Found, aim: float, what: str) -> None:
    """Print all mechanisms, what "auto" takes, and how both compare with the paper's and with the
    best.
    """
    rows = {
        mechanism: [found[cell, mechanism] for cell in cells] for mechanism in cells[0].mechanisms
    }
    if cells[0].level == "record":
        passes = [one_pass(cell, found) for cell in cells]
        rows |= {name: [each[name] for each in passes] for name in passes[0]}
    chosen = [cell.plan().best for cell in cells]
    rows["auto"] = [found[cell, mechanism] for cell, mechanism in zip(cells, chosen, strict=True)]
    print(f"{'mechanism':36s}" + "".join(f"{cell.label:>30}" for cell in cells))
    for name, sizes in rows.items():
        print(f"{name:36s}" + "".join(f"{spread(each):>30}" for each in sizes))
    print(f"{'auto takes':36s}" + "".join(f"{name:>30}" for name in chosen))
    medians = {name: [float(np.median(each)) for each in sizes] for name, sizes in rows.items()}
    own = [
        name for name in cells[0].mechanisms if name not in (PAPER, EXACT, INPUT_LITERAL, STREAM)
    ]
    best = [min(own, key=lambda name: medians[name][i]) for i in range(len(cells))]
    gains = [medians[PAPER][i] / medians[name][i] for i, name in enumerate(best)]
    slack = [medians["auto"][i] / medians[name][i] for i, name in enumerate(best)]
    predicted = [
        cell.predicted(name) / np.median(found[cell, name])
        for cell, name in zip(cells, chosen, strict=True)
    ]
    print(f"{'best':36s}" + "".join(f"{name:>30}" for name in best))
    print(f"{f'{what} than the paper, times':36s}" + "".join(f"{gain:>30.1f}" for gain in gains))
    if cells[0].level == "entry":
        alike = [found[cell, PAPER] / found[cell, INPUT_LITERAL] for cell in cells]
        listed = "".join(
            f"{f'{np.median(each):.1f} ({each.min():.1f}-{each.max():.1f})':>30}" for each in alike
        )
        print(f"{'like with like, seed by seed':36s}{listed}")
    print(f"{'auto over best':36s}" + "".join(f"{each:>30.2f}" for each in slack))
    print(
        f"{'planned over measured, of auto':36s}" + "".join(f"{each:>30.2f}" for each in predicted)
    )
    print(
        "\n"
        f"aim: at least {aim:g} times {what} in every cell: "
        f"{'met' if min(gains) >= aim else 'MISSED'}"
    )
    if cells[0].level == "entry":
        same = [medians[PAPER][i] / medians[INPUT_LITERAL][i] for i in range(len(cells))]
        listed = ", ".join(f"{each:.1f}" for each in same)
        print(
            f"the same, like with like (by medians: {listed}): "
            f"{'met' if min(same) >= aim else 'MISSED'}"
        )
    print(
        "aim: auto within 15 % of the best in every cell: "
        f"{'met' if max(slack) <= AUTO_SLACK else 'MISSED'}\n"
    )


def check_auto_and_rows(cell: Cell) -> None:
    """Compare "auto" with what it takes, and scaled noise with real rows; raise if they differ."""
    data, truth = problem(cell, 0)
    size = cell.predicted("input")
    n = math.ceil(size / cell.n_components) * cell.n_components
    share = 1 / size if cell.level == "entry" else cell.n_components / n
    auto, taken = (decompose(cell, name, 0, data, share) for name in ("auto", cell.plan().best))
    if not np.array_equal(auto.vectors, taken.vectors):
        raise RuntimeError('"auto" must be the mechanism that the plan says. It was another.')
    if cell.level == "record":
        real = decompose(cell, "auto", 0, np.tile(data, (n // cell.n_components, 1)), 1.0)
        gap = float(np.abs(real.vectors - auto.vectors).max())
        if not gap < 1e-5:
            raise RuntimeError(
                f"{n} rows must answer as scaled noise does. They were {gap:.1e} apart."
            )
        print(
            f"check: {n} real rows give the same components as {len(truth.weights)} with scaled "
            f"noise, to {gap:.0e}\n"
        )


# ---- speed ---------------------------------------------------------------------------------------


def compare_speed(n_rows: int, repeats: int, dimension: int = 1000, n_components: int = 5) -> None:
    """Print seconds of a private run and of its non-private twins, in turn."""
    generator = np.random.default_rng(0)
    topics = planted_orthogonal(dimension, n_components, rng=0).vectors.T
    rows = topics[np.arange(n_rows) % n_components] + 0.02 * generator.standard_normal(
        (n_rows, dimension)
    )
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)

    def private() -> object:
        return decompose_privately(
            rows,
            n_components,
            epsilon=EPSILON,
            delta=DELTA,
            unit="record",
            norm_bound=1.0,
            neighbour_relation="add_remove",
            mechanism="core",
            rng=0,
        )

    runs: dict[str, Callable[[], object]] = {
        "private, core": private,
        TWIN: lambda: odeco.decompose_stream(rows, n_components, method="core", n_passes=2, rng=0),
        REFINED: lambda: odeco.decompose_stream(rows, n_components, method="core", rng=0),
    }
    elapsed: dict[str, list[float]] = {name: [] for name in runs}
    worked: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(repeats + 1):
        for name, run in runs.items():
            time.sleep(
                0.1
                # threads of the linear algebra library spin for a while after a product; let them sleep
            )
            start, work = time.perf_counter(), time.process_time()
            run()
            if repeat:  # the first starts threads and libraries
                elapsed[name].append(time.perf_counter() - start)
                worked[name].append(time.process_time() - work)
    print(
        f"Table 3. Seconds at d = {dimension:,}, k = {n_components}, {n_rows:,} rows of float64, "
        f"in turn; best of {repeats}.\n"
        "CPU: seconds of all cores together, which hardly depend on what else the machine does.\n"
    )
    print(
        f"{'run':44s} {'seconds':>8} {'CPU':>7}   private over it: seconds, CPU; range over repeats"
    )
    for name in runs:
        ratios = np.array(elapsed["private, core"]) / np.array(elapsed[name])
        print(
            f"{name:44s} {min(elapsed[name]):8.3f} {min(worked[name]):7.3f}   "
            f"{min(elapsed['private, core']) / min(elapsed[name]):.2f}, "
            f"{min(worked['private, core']) / min(worked[name]):.2f}; {ratios.min():.2f} to "
            f"{ratios.max():.2f}"
        )
    for name in (TWIN, REFINED):
        ratio = min(elapsed["private, core"]) / min(elapsed[name])
        print(f"aim: at most {SPEED_AIM} times {name}: {'met' if ratio <= SPEED_AIM else 'MISSED'}")
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="fewer cells, seeds and repeats: below one minute"
    )
    parser.add_argument("--only", choices=["entries", "records", "speed"], help="table 1, 2 or 3")
    parser.add_argument("--seeds", type=int, help="how often every search is repeated")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    warnings.simplefilter(
        "ignore", ReusedRecordsWarning
    )  # several methods are compared on the same records
    quick, chosen = arguments.quick, arguments.only
    n_seeds, ratio = arguments.seeds or (3 if quick else 5), 1.1 if quick else 1.05
    entries = [Cell("entry", *each) for each in (ENTRY_CELLS[:2] if quick else ENTRY_CELLS)]
    records = [Cell("record", *each) for each in (RECORD_CELLS[:2] if quick else RECORD_CELLS)]
    if chosen in (None, "speed"):  # first, while nothing else of ours runs
        compare_speed(10_000 if quick else 40_000, 3 if quick else 7)
    settings = f"median (range) of {n_seeds} seeds, on a grid of ratio {ratio}"
    if chosen in (None, "entries"):
        print(
            "Table 1. Smallest top weight with which all of k = 3 components have a cosine of at "
            f"least {FOUND}; {settings}.\n"
            f"epsilon {EPSILON:g}, delta {DELTA:g}; weights 1, 0.95 and 0.9 of the top one; L = "
            f"{N_RESTARTS}, R = {N_ITERATIONS}, so K = 264. Neighbours: Definition 4.2 of the "
            "paper\n"
            "for Algorithm 3, one distinct entry for the others; like with like: input "
            "perturbation for the paper's neighbours too."
        )
        print_table(
            entries, search_all(entries, n_seeds, ratio, arguments.processes), LESS_SIGNAL, "less"
        )
        check_auto_and_rows(entries[0])
    if chosen in (None, "records"):
        print(
            "Table 2. Records needed, single-topic model: all k topics, equally frequent, have a "
            f"cosine of at least {FOUND}; {settings}.\n"
            f"epsilon {EPSILON:g}, delta {DELTA:g}; privacy noise only; neighbours: one row added "
            "or removed. To replace one takes twice as many for every mechanism\n"
            "(subspace: up to that)."
        )
        print_table(
            records,
            search_all(records, n_seeds, ratio, arguments.processes),
            FEWER_RECORDS,
            "fewer",
        )
        check_auto_and_rows(records[0])


if __name__ == "__main__":
    main()
