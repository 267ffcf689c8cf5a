"""odeco.decompose beside the methods of others in `reproduction.baselines`, on orthogonal tensors
with noise.

    python benchmarks/baselines.py

One table: for each method processor seconds, memory beyond the tensor (in tensors) and the worst
angle of a component in radians, each a median over seeds. Noise is symmetric Gaussian; its level is
the standard deviation of an entry before it is made symmetric, times d, over the smallest weight. A
second table: rows are given, and their third moment is never formed; products with the rows beside
a sketch made of them.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
import warnings
from collections.abc import Callable
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits

import odeco
from odeco._util.types import FloatArray
from odeco.datasets import gaussian_noise, planted_orthogonal
from odeco.online import SampleMoment
from odeco.tensors.components import HasComponents
from reproduction.baselines import (
    TensorSketch,
    random_slice,
    simultaneous_diagonalization,
    sketched_power_method,
    tensor_pca,
)

Method = Callable[[FloatArray, int, int], HasComponents]


def sketched(share: float) -> Method:
    """Return the power method on nine sketches that take, all together, a share of the tensor's
    memory.
    """

    def method(entries: FloatArray, k: int, seed: int) -> odeco.Components:
        length = max(50, int(share * entries.nbytes / (16 * 9)))
        return sketched_power_method(entries, k, length=length, n_sketches=9, rng=seed)

    return method


METHODS: dict[str, Method] = {
    "odeco.decompose": lambda entries, k, seed: odeco.decompose(entries, k, tol=1e-6, rng=seed),
    "tensor PCA": lambda entries, k, seed: tensor_pca(entries, k, tol=1e-6, rng=seed),
    "sketch of 1/50 the size": sketched(0.02),
    "sketch of 1/10 the size": sketched(0.1),
    "random slice": lambda entries, k, seed: random_slice(entries, k, rng=seed),
    "simultaneous diagonalisation": lambda entries, k, seed: simultaneous_diagonalization(
        entries, k, rng=seed
    ),
}


def measure(
    method: Method, entries: FloatArray, truth: odeco.Components, seed: int
) -> tuple[float, float, float]:
    """Return processor seconds, memory beyond the tensor over the tensor's, and the worst angle."""
    k = truth.n_components
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", odeco.ConvergenceWarning)
        start = time.process_time()
        found = method(entries, k, seed)
        seconds = time.process_time() - start
        tracemalloc.start()
        method(entries, k, seed)
        memory = tracemalloc.get_traced_memory()[1] / entries.nbytes
        tracemalloc.stop()
    return seconds, memory, float(odeco.match(found, truth).angles.max())


def compare_tensors(dimension: int, n_components: int, level: float, n_seeds: int) -> None:
    """Print the methods' lines for one kind of tensor."""
    runs: dict[str, list[tuple[float, float, float]]] = {name: [] for name in METHODS}
    for seed in range(n_seeds):
        truth = planted_orthogonal(dimension, n_components, rng=seed)
        noise = gaussian_noise(dimension, rng=1000 + seed).entries
        entries = truth.to_dense() + level / dimension * noise
        for name, method in METHODS.items():
            runs[name].append(measure(method, entries, truth, seed))
    for name, measured in runs.items():
        seconds, memory, angle = np.median(np.array(measured), axis=0)
        print(
            (
                f"{dimension:4d} {n_components:3d} {level:6.2f} {name:>30} {seconds:9.3f} "
                f"{memory:8.2f} {angle:11.2e}"
            ),
            flush=True,
        )


def compare_rows(dimension: int, n_components: int, n_rows: int) -> None:
    """Print what it takes to find the components of a moment of rows: by products with the rows,
    and from a sketch.
    """
    generator = np.random.default_rng(0)
    truth = planted_orthogonal(dimension, n_components, weights=np.full(n_components, 2.0), rng=0)
    rows = (generator.gamma(1.0, size=(n_rows, n_components)) - 1) @ truth.vectors.T
    rows += 0.1 * generator.standard_normal(rows.shape)
    ways: dict[str, Callable[[], HasComponents]] = {
        "decompose_stream": lambda: odeco.decompose_stream(rows, n_components, rng=0),
        "decompose(SampleMoment)": lambda: odeco.decompose(
            SampleMoment(rows), n_components, tol=1e-6, rng=0
        ),
    }

    def from_sketch(length: int) -> odeco.Components:
        return sketched_power_method(
            TensorSketch.of_rows(rows, length=length, rng=0), n_components, rng=0
        )

    for length in (1_000, 4_000):
        ways[f"sketch of rows, b = {length:,}"] = partial(from_sketch, length)
    for name, way in ways.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", odeco.ConvergenceWarning)
            start = time.process_time()
            found = way()
            seconds = time.process_time() - start
        angle = float(odeco.match(found, truth).angles.max())
        print(
            f"{dimension:4d} {n_components:3d} {n_rows:8,} {name:>30} {seconds:9.2f} {angle:11.2e}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dimensions", type=int, nargs="+", default=[50, 100])
    parser.add_argument("--levels", type=float, nargs="+", default=[0.1, 1.0])
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    with threadpool_limits(
        1
    ):  # processor time of a library whose threads wait for one another says nothing
        print(
            f"{'d':>4} {'k':>3} {'noise':>6} {'method':>30} {'seconds':>9} {'memory':>8} "
            f"{'worst angle':>11}"
        )
        for dimension in arguments.dimensions:
            for level in arguments.levels:
                compare_tensors(dimension, 5, level, arguments.seeds)
        print(f"\n{'d':>4} {'k':>3} {'rows':>8} {'method':>30} {'seconds':>9} {'worst angle':>11}")
        for dimension in arguments.dimensions:
            compare_rows(dimension, 5, 2_000)


if __name__ == "__main__":
    main()
