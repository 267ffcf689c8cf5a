"""odeco.decompose beside TensorLy's parafac on symmetric tensors with more components than
dimensions.

    python benchmarks/overcomplete.py                # orders 4 and 3, 20 seeds, odeco alone
    python benchmarks/overcomplete.py --peer         # with parafac; needs tensorly (`make bench`)
    python benchmarks/overcomplete.py --orders 3 --seeds 5 --peer
    python benchmarks/overcomplete.py --cp-spm       # the cases of cp_spm, the subspace power method of Tensor Toolbox

Components are random unit vectors with weights from 1 to 2, of either sign at even orders. Noise is
symmetric Gaussian, of a given share of the tensor's Frobenius norm. All components are found if
each has a cosine above 0.99 with a true one (0.95 at order 3).

At orders 4 and above the number of components is unknown to odeco ("auto"), and known to parafac.
At order 3 it is known to both, and the best of ten runs of parafac counts, with the time of all
ten. Times are processor seconds on one thread. The column "confident and wrong" counts tensors with
a confidence of 0.95 or more, or at order 3 with a residual that looks like noise, of which not all
components were found.

The cases of cp_spm are those of its test (orders 3 and 4, dimensions 6, 10 and 20, ranks 1, 5 and
10 that are unknown, factors uniform or normal, weights 1 or ±1, no noise; ‖T − C‖ must be at most
1e-6) and the example of its documentation (order 3, dimension 10, rank 2, uniform factors and
weights, noise of a tenth of the norm, rank given), with random numbers of our own.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import odeco
from odeco._util.types import DataArray

#: For each order, pairs of dimension and number of components.
SIZES = {
    3: ((10, 15), (10, 20), (20, 30), (20, 40), (20, 50), (30, 60)),
    4: ((10, 20), (15, 50), (20, 100), (30, 250)),
    5: ((10, 40),),
    6: ((6, 30),),
}
NOISES = (0.0, 1e-4, 1e-2)
#: Iterations of alternating least squares at order 3 and above it (the default of parafac, too few
#: to find all of many components), the change of its error at which it stops, and runs at order 3.
N_ITERATIONS, N_ITERATIONS_ABOVE, TOLERANCE, N_RUNS = 1000, 100, 1e-8, 10


@dataclass(frozen=True)
class Outcome:
    """What a method found: the smallest cosine, the number, how certain that is, and processor
    seconds.
    """

    cosine: float
    n_found: int
    confidence: float
    seconds: float


def planted(
    order: int, dimension: int, k: int, noise: float, seed: int
) -> tuple[odeco.Components, DataArray]:
    """Return true components, and the entries of their tensor with noise."""
    generator = np.random.default_rng([seed, order, dimension, k])
    vectors = generator.standard_normal((dimension, k))
    weights = generator.uniform(1, 2, k) * (generator.choice([-1, 1], k) if order % 2 == 0 else 1)
    truth = odeco.Components(weights, vectors / np.linalg.norm(vectors, axis=0), order)
    entries = np.zeros((dimension,) * order)
    for start in range(0, k, 16):  # all at once would take k times the memory of the tensor
        part = slice(start, start + 16)
        entries += odeco.Components(truth.weights[part], truth.vectors[:, part], order).to_dense()
    error = odeco.symmetrize(generator.standard_normal(entries.shape))
    error *= noise * np.sqrt(truth.squared_norm()) / np.linalg.norm(error)
    return truth, odeco.symmetrize(entries + error)


def by_odeco(entries: DataArray, truth: odeco.Components) -> Outcome:
    """Decompose with an unknown number of components, or at order 3 with a known one."""
    k: Any = truth.n_components if truth.order == 3 else "auto"
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", odeco.ConvergenceWarning)
        result = odeco.decompose(entries, k, rng=0)
    seconds = time.process_time() - start
    evidence, structure = result.rank_evidence, result.structure
    # At order 3 the number is given, and a fit is trusted if what it leaves looks like noise.
    confidence = (
        float(structure is not None and structure.left != "more")
        if evidence is None
        else evidence.confidence
    )
    return Outcome(
        float(odeco.match(result, truth).cosines.min()), len(result.weights), confidence, seconds
    )


def by_parafac(entries: DataArray, truth: odeco.Components, iterations: int) -> Outcome:
    """Run parafac with the true number of components: once, or at order 3 ten times, of which the
    best counts.
    """
    import tensorly
    from tensorly.decomposition import parafac

    k, best, seconds = truth.n_components, (np.inf, 0.0), 0.0
    n_runs, n_iterations = (N_RUNS, N_ITERATIONS) if truth.order == 3 else (1, iterations)
    for run in range(n_runs):
        start = time.process_time()
        _, factors = parafac(
            tensorly.tensor(entries),
            k,
            n_iter_max=n_iterations,
            init="random",
            tol=TOLERANCE,
            random_state=run,
        )
        seconds += time.process_time() - start
        error = float(np.linalg.norm(entries - tensorly.cp_to_tensor((None, factors))))
        vectors = np.asarray(factors[0])
        found = odeco.Components(np.ones(k), vectors / np.linalg.norm(vectors, axis=0), truth.order)
        best = min(best, (error, float(odeco.match(found, truth).cosines.min())))
    return Outcome(best[1], k, float("nan"), seconds)


def published_cases(n_seeds: int) -> None:
    """Print in how many of the tensors of cp_spm's test and documentation odeco succeeds."""
    print("order   d    k  factors  weights   within 1e-6  right k  largest error")
    grid = itertools.product((3, 4), (6, 10, 20), (1, 5, 10), ("uniform", "normal"), ("1", "±1"))
    for order, dimension, k, factors, weights in grid:
        if k > math.comb(dimension + order // 2 - 1, order // 2) or (
            factors == "uniform" and weights != "1"
        ):
            continue
        errors, n_right = [], 0
        for seed in range(n_seeds):
            generator = np.random.default_rng([seed, order, dimension, k])
            draw = generator.random if factors == "uniform" else generator.standard_normal
            signs = np.ones(k) if weights == "1" else generator.choice([-1.0, 1.0], k)
            entries = odeco.Components(signs, draw((dimension, k)), order).to_dense()
            result = odeco.decompose(odeco.symmetrize(entries), "auto", rng=0)
            errors.append(float(np.linalg.norm(entries - result.components.to_dense())))
            n_right += len(result.weights) == k
        good = sum(error <= 1e-6 for error in errors)
        print(
            f"{order:5d} {dimension:3d} {k:4d}  {factors:7} {weights:>8} {good:10d}/{n_seeds} "
            f"{n_right:6d}/{n_seeds} {max(errors):14.1e}",
            flush=True,
        )
    cosines, ranks = [], []
    for seed in range(n_seeds):
        generator = np.random.default_rng(seed)
        truth = odeco.Components(generator.random(2), generator.random((10, 2)))
        error = odeco.symmetrize(generator.standard_normal((10,) * 3))
        entries = (
            truth.to_dense() + 0.1 * np.sqrt(truth.squared_norm()) / np.linalg.norm(error) * error
        )
        cosines.append(float(odeco.match(odeco.decompose(entries, 2, rng=0), truth).cosines.min()))
        ranks.append(len(odeco.decompose(entries, "auto", rng=0).weights))
    print(
        f"the example: smallest cosine, median {np.median(cosines):.3f}, least "
        f"{min(cosines):.3f}; 'auto' finds 2 components in {ranks.count(2)} of {n_seeds}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--orders", type=int, nargs="+", default=[4, 3], choices=sorted(SIZES))
    parser.add_argument("--noises", type=float, nargs="+", default=list(NOISES))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--peer", action="store_true", help="run parafac too")
    parser.add_argument(
        "--peer-seeds", type=int, default=3, help="tensors on which parafac runs at orders above 3"
    )
    parser.add_argument(
        "--peer-iterations", type=int, default=N_ITERATIONS_ABOVE, help="of parafac, above order 3"
    )
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument(
        "--sizes", nargs="+", help="for example 20x100; by default those of the order"
    )
    parser.add_argument("--cp-spm", action="store_true", help="the cases of cp_spm instead")
    arguments = parser.parse_args()
    if arguments.cp_spm:
        published_cases(arguments.seeds)
        return
    print(
        "order   d    k  noise   all   right k  confident and wrong  worst cosine  seconds | "
        "parafac all  seconds  ratio"
    )
    for order in arguments.orders:
        given = [tuple(map(int, size.split("x"))) for size in arguments.sizes or ()]
        for dimension, k in given or SIZES[order]:
            for noise in arguments.noises:
                print(line(order, dimension, k, noise, arguments), flush=True)


def line(order: int, dimension: int, k: int, noise: float, arguments: argparse.Namespace) -> str:
    """Return the line of the table for one kind of tensor."""
    threshold = 0.95 if order == 3 else 0.99
    ours, peers = [], []
    for number in range(arguments.seeds):
        truth, entries = planted(order, dimension, k, noise, arguments.first_seed + number)
        ours.append(by_odeco(entries, truth))
        if arguments.peer and (order == 3 or number < arguments.peer_seeds):
            peers.append(by_parafac(entries, truth, arguments.peer_iterations))
    good = [each.cosine > threshold and each.n_found == k for each in ours]
    wrong = sum(
        each.confidence >= 0.95 and not is_good for each, is_good in zip(ours, good, strict=True)
    )
    seconds, n_right = (
        float(np.mean([each.seconds for each in ours])),
        sum(each.n_found == k for each in ours),
    )
    text = (
        f"{order:5d} {dimension:3d} {k:4d} {noise:6.0e} {sum(good):3d}/{len(ours)} "
        f"{n_right:6d}/{len(ours)} {wrong:20d} {min(each.cosine for each in ours):13.5f} "
        f"{seconds:8.3f}"
    )
    if not peers:
        return text
    their_seconds = float(np.mean([each.seconds for each in peers]))
    n_theirs = sum(each.cosine > threshold for each in peers)
    return (
        f"{text} | {n_theirs:7d}/{len(peers)} {their_seconds:9.2f} {their_seconds / seconds:6.1f}"
    )


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
