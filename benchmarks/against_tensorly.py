"""odeco.decompose beside TensorLy's symmetric power iteration: same tensor, same number of
contractions, one run.

    make bench          # or, in an environment with odeco and tensorly:  python benchmarks/against_tensorly.py

Prints one table: time of each, their ratio, extra memory of each as a share of the tensor's own
bytes, the worst cosine of a recovered component for each; then the share of this machine's
matrix-product peak that an image reaches.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
from tensorly.decomposition import symmetric_parafac_power_iteration

import odeco
from odeco.datasets import planted_orthogonal
from odeco.tensors import DenseTensor

N_RESTARTS = 30
# TensorLy contracts three times in what it calls an iteration, and once more for the score, as we
# do for the weight.
N_TENSORLY_ITERATIONS = 5
N_ITERATIONS = 3 * N_TENSORLY_ITERATIONS


def seconds(work: Callable[[], object], repeats: int) -> float:
    """Return the best time of several calls."""
    times = []
    time.sleep(
        0.1
    )  # threads of the linear algebra library spin for a while after a product; let them sleep
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def extra_bytes(work: Callable[[], object]) -> int:
    """Return the most bytes that a call held beyond what there was before it."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak - before


def compare(dimension: int, n_components: int) -> None:
    """Print one row: both libraries on one planted tensor."""
    truth = planted_orthogonal(dimension, n_components, rng=dimension)
    entries = truth.to_dense()

    def ours() -> odeco.Components:
        return odeco.decompose(
            entries, n_components, n_restarts=N_RESTARTS, n_iterations=N_ITERATIONS, tol=0, rng=0
        ).components

    def theirs() -> odeco.Components:
        np.random.seed(0)  # noqa: NPY002 - the only way to seed TensorLy's starts
        weights, vectors = symmetric_parafac_power_iteration(
            entries, n_components, n_repeat=N_RESTARTS, n_iteration=N_TENSORLY_ITERATIONS
        )
        return odeco.Components(weights, vectors)

    cosine_ours = odeco.match(ours(), truth).cosines.min()
    our_time = seconds(ours, 3)
    start = time.perf_counter()
    cosine_theirs = odeco.match(theirs(), truth).cosines.min()
    their_time = time.perf_counter() - start
    our_memory = extra_bytes(ours) / entries.nbytes
    their_memory = (
        extra_bytes(
            lambda: symmetric_parafac_power_iteration(entries, 1, n_repeat=1, n_iteration=1)
        )
        / entries.nbytes
    )
    print(
        f"{dimension:5d} {n_components:4d} {our_time:9.3f} {their_time:10.2f} "
        f"{their_time / our_time:8.0f} {our_memory:11.2f} {their_memory:11.2f} "
        f"{cosine_ours:12.9f} {cosine_theirs:12.9f}",
        flush=True,
    )


def share_of_peak(dimension: int, n_restarts: int, dtype: type) -> float:
    """Return the rate of an image, counted as the dense unfolding's products, over that of a large
    matrix product.

    Both are measured in turn, several times, and the best of each is taken.
    """
    generator = np.random.default_rng(0)
    square: np.ndarray[tuple[int, ...], np.dtype[Any]] = generator.standard_normal(
        (2000, 2000)
    ).astype(dtype)
    tensor = DenseTensor(
        odeco.symmetrize(generator.standard_normal((dimension,) * 3)).astype(dtype)
    )
    block = generator.standard_normal((dimension, n_restarts))
    best_product = best_image = float("inf")
    for _ in range(10):
        best_product = min(best_product, seconds(lambda: square @ square, 1))
        best_image = min(best_image, seconds(lambda: tensor.image(block), 5))
    return (2 * dimension**3 * n_restarts / best_image) / (2 * 2000**3 / best_product)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dimensions", type=int, nargs="+", default=[50, 100, 200, 400])
    parser.add_argument("--components", type=int, nargs="+", default=[3, 10])
    arguments = parser.parse_args()
    print(
        f"{N_RESTARTS} restarts, {N_ITERATIONS} contractions each, float64; times in seconds; "
        "memory beyond the tensor, in tensors"
    )
    print(
        f"{'d':>5} {'k':>4} {'odeco':>9} {'TensorLy':>10} {'faster':>8} {'odeco mem':>11} "
        f"{'TensorLy':>11} {'odeco cos':>12} {'TensorLy':>12}"
    )
    for dimension in arguments.dimensions:
        for n_components in arguments.components:
            compare(dimension, n_components)
    print(
        "\n"
        "share of the matrix-product peak, counting the products of a dense unfolding, 30 restarts"
    )
    for dimension in arguments.dimensions:
        double, single = (
            share_of_peak(dimension, N_RESTARTS, dtype) for dtype in (np.float64, np.float32)
        )
        print(f"d = {dimension:4d}: float64 {double:5.0%}   float32 {single:5.0%}")


if __name__ == "__main__":
    main()
