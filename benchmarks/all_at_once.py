"""All components at once beside the paper's loop: same tensors, same tolerance, side by side.

    python benchmarks/all_at_once.py                       d = 100, k = 50, noise from none to what the loop bears
    python benchmarks/all_at_once.py --d 200 --k 100       larger, some minutes

Tensors have k orthonormal components with weights from 2 to 1 (or all 1), and symmetric noise whose entries off the
diagonals have the standard deviation that is printed. Time is CPU time, because other work on a machine shifts the
clock more than that. A component is found if its cosine with the true one is above 0.9; `apart` is the largest angle
between what both have found, in radians.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import numpy as np

import odeco
from odeco.datasets import gaussian_noise, planted_orthogonal
from odeco.power import Plan, Search, Together, run, run_together
from odeco.tensors import DenseTensor

TOLERANCE = 1e-10


def timed(work: Callable[[], Search | Together]) -> tuple[float, Search | Together]:
    """Return the CPU seconds of a call, and its result."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def compare(dimension: int, k: int, name: str, weights: list[float], sigma: float, seed: int) -> None:
    """Print one row: both on one tensor."""
    truth = planted_orthogonal(dimension, k, weights=weights, rng=seed)
    vectors = truth.vectors
    pairs = (vectors[:, None, :] * vectors[None, :, :]).reshape(-1, k)
    entries = ((vectors * truth.weights) @ pairs.T).reshape((dimension,) * 3)
    if sigma:  # symmetrising divides the variance of an entry with three distinct indices by 6
        entries += math.sqrt(6) * sigma * gaussian_noise(dimension, rng=seed + 1).entries
    tensor = DenseTensor(entries)
    tensor.image(np.eye(dimension)[:, :2])  # threads are made at the first call
    fast, together = timed(lambda: run_together(tensor, k, tolerance=TOLERANCE, rng=seed))
    slow, loop = timed(lambda: run(tensor, Plan.default(dimension, k, tolerance=TOLERANCE), rng=seed))
    found = [int(np.sum(odeco.match(each.components, truth).cosines > 0.9)) for each in (together, loop)]
    apart = float(odeco.match(together.components, loop.components).angles.max())
    residual = max((pair.residual or 0) / abs(pair.weight) for pair in together.found)
    print(
        f"{dimension:4} {k:4}  {name:<8} {sigma:8g} {found[0]:8} {found[1]:6} {fast:10.2f} {slow:8.2f} "
        f"{slow / fast:6.0f} {apart:9.1e} {residual:9.1e}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--d", type=int, default=100)
    parser.add_argument("--k", type=int, default=50)
    parser.add_argument("--noise", nargs="+", type=float, default=[0, 1e-4, 1e-3, 5e-3, 1e-2, 2e-2])
    parser.add_argument("--weights", nargs="+", choices=["2 to 1", "equal"], default=["2 to 1", "equal"])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print("                              components found      CPU seconds")
    print("   d    k  weights     noise at once   loop    at once     loop  ratio     apart  residual")
    for name in options.weights:
        weights = (np.linspace(2, 1, options.k) if name == "2 to 1" else np.ones(options.k)).tolist()
        for sigma in options.noise:
            compare(options.d, options.k, name, weights, sigma, options.seed)


if __name__ == "__main__":
    main()
