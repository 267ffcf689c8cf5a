"""odeco.decompose beside TensorLy and pyttb on planted symmetric CP tensors of any kind, rank given
and rank unknown.

    python benchmarks/any_tensor.py              # a subset, in less than ten minutes
    python benchmarks/any_tensor.py --full       # all cells, 20 seeds
    python benchmarks/any_tensor.py --streams  # rows from planted mixtures, rank unknown (5 seeds)
    python benchmarks/any_tensor.py --data       # measured tensors that come with TensorLy, ranks up to 8

Components have a common cosine, or are random unit vectors (*rnd*); noise is symmetric Gaussian, of
a given share of the tensor's Frobenius norm. Needs an environment with tensorly and pyttb (`make
bench` makes one).

Each line is a cell: the share of runs in which all components have a cosine above 0.95 with the
true ones, for odeco told the rank (*odeco k*), odeco not told it (*auto*; the rank must be right
too), the peers (`any_tensor_methods.py`), and least squares from the truth (*truth*: what can be
recovered). Then the share of runs in which "auto" has the right rank, its smallest confidence,
processor seconds of odeco told the rank over those of the fastest peer that found all components
most often, and wrong ranks. Then come the summaries: rank, calibration, cells behind a peer, time.

With --data: the share of the squared norm that `decompose_asymmetric` explains, the least over
three seeds, beside the best of ten runs of parafac from random starts, processor seconds of one
call and of the ten runs, and the verdict.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
from any_tensor_methods import METHODS, PEERS, Cell, Outcome
from any_tensor_streams import compare_streams
from threadpoolctl import threadpool_limits

import odeco

COSINES = (0.0, None, 0.3, 0.6, 0.9)
NOISES = (0.0, 0.01, 0.05, 0.1)
SIGNS = ("positive", "mixed")
#: For each order, pairs of dimension and number of components.
FULL_SIZES = {
    3: (
        (20, 3),
        (20, 10),
        (20, 20),
        (50, 5),
        (50, 25),
        (50, 50),
        (100, 10),
        (100, 50),
        (200, 20),
        (200, 100),
    ),
    4: ((20, 3), (20, 10), (20, 20), (40, 6), (40, 20)),
}
SUBSET_SIZES = {3: ((20, 3), (20, 10), (20, 20), (50, 10), (100, 10)), 4: ((20, 5),)}
#: In the subset, tensors from this dimension on have weights of both signs only.
LARGE = 50
BINS = (0.0, 0.5, 0.8, 0.95, 0.99, 1.0)

Runs = dict[str, Outcome]


def cells(arguments: argparse.Namespace) -> Iterator[Cell]:
    """Yield the cells that were asked for, the smallest tensors first."""
    sizes = FULL_SIZES if arguments.full else SUBSET_SIZES
    shapes = sorted(
        ((order, *size) for order in arguments.orders for size in sizes[order]),
        key=lambda shape: (shape[1] ** shape[0], shape[2]),
    )
    if arguments.sizes:
        shapes = [(order, *size) for order in arguments.orders for size in arguments.sizes]
    for (order, dimension, k), cosine, noise, signs in itertools.product(
        shapes, arguments.cosines, arguments.noises, arguments.signs
    ):
        if arguments.full or arguments.sizes or dimension < LARGE or signs == "mixed":
            yield Cell(order, dimension, k, cosine, noise, signs)


def line(cell: Cell, runs: list[Runs]) -> str:
    """Return the line of the table for a cell."""
    shares = " ".join(f"{share(runs, name):7.2f}" for name in METHODS if name in runs[0])
    ranks = Counter(run["auto"].rank for run in runs)
    others = ",".join(f"{rank}" for rank, _ in ranks.most_common() if rank != cell.n_components)
    sure = min(run["auto"].confidence for run in runs)
    ratio = time_ratio(runs)
    return (
        f"{cell.order:2d} {cell.dimension:4d} {cell.n_components:4d} {label(cell.cosine):>4} "
        f"{cell.noise:5.0%} {cell.signs:>8} {shares} {ranks[cell.n_components] / len(runs):6.2f} "
        f"{sure:6.3f} {ratio:7.2f}  {others}"
    )


def share(runs: list[Runs], name: str) -> float:
    """Return the share of runs in which a method found all components."""
    return float(np.mean([run[name].found_all for run in runs]))


def seconds(runs: list[Runs], name: str) -> float:
    """Return the processor time of a method over all runs."""
    return sum(run[name].seconds for run in runs)


def time_ratio(runs: list[Runs]) -> float:
    """Return odeco's time over that of the best peer: the fastest of those that found all
    components most often.
    """
    peers = [name for name in PEERS if name in runs[0]]
    if not peers:
        return float("nan")
    best = max(share(runs, name) for name in peers)
    return seconds(runs, "odeco k") / min(
        seconds(runs, name) for name in peers if share(runs, name) == best
    )


def label(cosine: float | None) -> str:
    """Return the cosine as it stands in the table."""
    return "rnd" if cosine is None else f"{cosine:.1f}"


def summarise(table: dict[Cell, list[Runs]]) -> None:
    """Print what the cells say together."""
    pairs = [(cell, run) for cell, runs in table.items() for run in runs]
    recoverable = [(cell, run["auto"]) for cell, run in pairs if run["truth"].found_all]
    right = sum(outcome.rank == cell.n_components for cell, outcome in recoverable)
    listed = sum(
        outcome.rank == cell.n_components or cell.n_components in outcome.candidates
        for cell, outcome in recoverable
    )
    print(
        f"\n{len(pairs)} tensors; least squares from the truth recovers {len(recoverable)} of them"
    )
    if recoverable:
        print(
            f"rank right with 'auto' where it does: {right / len(recoverable):.1%} (right or "
            f"among the candidates: {listed / len(recoverable):.1%})"
        )
    judged = [(cell, run["auto"]) for cell, run in pairs]
    wrong = sum(
        outcome.confidence >= 0.95 and outcome.rank != cell.n_components for cell, outcome in judged
    )
    print(
        f"confident (0.95 or more) and wrong: {wrong} of {len(judged)}, {wrong / len(judged):.1%}"
    )
    print("\ncalibration: confidence, tensors, rank right")
    for low, high in itertools.pairwise(BINS):
        inside = [
            (cell, outcome)
            for cell, outcome in judged
            if low <= outcome.confidence < high or (high == 1.0 and outcome.confidence == 1.0)
        ]
        if inside:
            hits = sum(outcome.rank == cell.n_components for cell, outcome in inside)
            print(f"  {low:.2f} to {high:.2f}  {len(inside):6d}  {hits / len(inside):6.1%}")
    silent = sum(bool(np.isnan(outcome.confidence)) for _, outcome in judged)
    print(f"  not said     {silent:6d}")
    _print_behind(table)
    _print_times(table)


def _print_behind(table: dict[Cell, list[Runs]]) -> None:
    print(
        "\n"
        "cells in which odeco finds all components less often than a peer, or 'auto' a wrong rank "
        "that it could find:"
    )
    for cell, runs in table.items():
        peers = [name for name in PEERS if name in runs[0]]
        best = max((share(runs, name) for name in peers), default=0.0)
        ours, auto = share(runs, "odeco k"), share(runs, "auto")
        misses = [
            (
                f"seed {seed}: rank {run['auto'].rank} ({run['auto'].confidence:.3f}) "
                f"{run['auto'].said[:70]}"
            )
            for seed, run in enumerate(runs)
            if run["truth"].found_all and run["auto"].rank != cell.n_components
        ]
        if ours < best or misses:
            print(
                f"  {asdict(cell)}: odeco k {ours:.2f}, auto {auto:.2f}, best peer {best:.2f}; "
                f"{'; '.join(misses)}"
            )


def _print_times(table: dict[Cell, list[Runs]]) -> None:
    print(
        "\nprocessor seconds, medians over tensors: k given over each peer, and 'auto' over k given"
    )
    shapes: dict[tuple[int, int, int], list[Runs]] = {}
    for cell, runs in table.items():
        shapes.setdefault((cell.order, cell.dimension, cell.n_components), []).extend(runs)
    for (order, dimension, k), runs in shapes.items():
        pairs = [(f"k over {name}", "odeco k", name) for name in PEERS if name in runs[0]]
        ratios = [
            f"{title} {np.median([run[first].seconds / run[second].seconds for run in runs]):.2f}"
            for title, first, second in [*pairs, ("auto over k", "auto", "odeco k")]
        ]
        print(
            f"  order {order}, d = {dimension:3d}, k = {k:3d}: {', '.join(ratios)} ({len(runs)} "
            "tensors)"
        )


def compare_data() -> None:
    """Fit the measured tensors of TensorLy. A cell without a measurement (IL-2) counts as zero for
    both.
    """
    import tensorly
    from tensorly.datasets import load_covid19_serology, load_IL2data, load_kinetic
    from tensorly.decomposition import parafac

    print("tensor      k    odeco  parafac      s  ten runs, s  verdict")
    for name, load, largest in (
        ("covid", load_covid19_serology, 8),
        ("IL-2", load_IL2data, 8),
        ("kinetic", load_kinetic, 3),  # parafac takes minutes for more
    ):
        entries = np.nan_to_num(np.asarray(load().tensor, dtype=np.float64))
        for k in range(1, largest + 1):
            results, best, times = [], 0.0, []
            for seed in range(3):
                start = time.process_time()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", odeco.ConvergenceWarning)
                    results.append(odeco.decompose_asymmetric(entries, k, rng=seed))
                times.append(time.process_time() - start)
            start = time.process_time()
            for seed in range(10):
                fit = parafac(
                    tensorly.tensor(entries),
                    k,
                    n_iter_max=1000,
                    init="random",
                    tol=1e-8,
                    random_state=seed,
                )
                left = np.sum((entries - tensorly.cp_to_tensor(fit)) ** 2)
                best = max(best, float(1 - left / np.sum(entries**2)))
            theirs = time.process_time() - start
            least = min(result.explained or 0.0 for result in results)
            print(
                (
                    f"{name:8} {k:4d} {least:8.5f} {best:8.5f} {np.mean(times):6.2f} "
                    f"{theirs:12.2f}  {results[0].verdict}"
                ),
                flush=True,
            )


def size(text: str) -> tuple[int, int]:
    """Read a size such as 50x10: dimension and number of components."""
    dimension, k = text.split("x")
    return int(dimension), int(k)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="all sizes and 20 seeds")
    parser.add_argument(
        "--streams", action="store_true", help="rows from planted mixtures instead of tensors"
    )
    parser.add_argument(
        "--data", action="store_true", help="measured tensors that come with TensorLy instead"
    )
    parser.add_argument(
        "--seeds", type=int, help="tensors for each cell; by default 1, or 20 with --full"
    )
    parser.add_argument("--orders", type=int, nargs="+", default=[3, 4])
    parser.add_argument(
        "--sizes", type=size, nargs="+", help="for example 20x3 50x10: dimension x components"
    )
    parser.add_argument(
        "--cosines", type=lambda text: None if text == "rnd" else float(text), nargs="+"
    )
    parser.add_argument("--noises", type=float, nargs="+", default=list(NOISES))
    parser.add_argument("--signs", nargs="+", choices=SIGNS, default=list(SIGNS))
    parser.add_argument(
        "--only", nargs="+", choices=list(METHODS), help="leave the other methods out"
    )
    parser.add_argument(
        "--output", type=Path, help="write every outcome to this file, a line of JSON each"
    )
    arguments = parser.parse_args()
    arguments.cosines = list(COSINES) if arguments.cosines is None else arguments.cosines
    n_seeds = arguments.seeds or (20 if arguments.full else 1)
    with threadpool_limits(
        1
    ):  # processor time of a library whose threads wait for one another says nothing
        if arguments.data:
            compare_data()
            return
        if arguments.streams:
            compare_streams(n_seeds if arguments.seeds or arguments.full else 5)
            return
        wanted = {"odeco k", "auto", "truth"} | set(arguments.only or METHODS)
        table = run_all(
            cells(arguments),
            n_seeds,
            [name for name in METHODS if name in wanted],
            arguments.output,
        )
    summarise(table)


def run_all(
    chosen: Iterable[Cell], n_seeds: int, names: list[str], output: Path | None
) -> dict[Cell, list[Runs]]:
    """Run all methods on all tensors, and print the table as it grows."""
    heads = " ".join(f"{name:>7}" for name in names)
    print(
        f" p    d    k  cos noise    signs {heads}   rank   sure    time  wrong ranks", flush=True
    )
    table: dict[Cell, list[Runs]] = {}
    start = time.perf_counter()
    for cell in chosen:
        table[cell] = []
        for seed in range(n_seeds):
            truth, entries = cell.planted(seed)
            run = {name: METHODS[name](entries, truth, seed) for name in names}
            table[cell].append(run)
            if output is not None:
                with output.open("a") as file:
                    for name, outcome in run.items():
                        file.write(
                            json.dumps(
                                {
                                    "cell": asdict(cell),
                                    "seed": seed,
                                    "method": name,
                                    **asdict(outcome),
                                }
                            )
                            + "\n"
                        )
        print(line(cell, table[cell]), flush=True)
    print(f"{time.perf_counter() - start:.0f} s in all")
    return table


if __name__ == "__main__":
    main()
