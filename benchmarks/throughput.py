"""Rows a second of an image over rows, beside the two bare matrix products that it consists of.

    python benchmarks/throughput.py

The bare products are X U and Xᵀ (X U)², on the same rows with the same number of threads, measured
in turn with ours; the best time of each counts. Ours also checks that every row is finite and adds
up in double precision.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from scipy import sparse

from odeco.online import RowSum

N_CANDIDATES = 32


def rows_beside_products(rows: Any, repeats: int) -> tuple[float, float]:
    """Return the best seconds of the two bare products, and of an image of the rows' moment,
    measured in turn.
    """
    block = np.random.default_rng(0).standard_normal((rows.shape[1], N_CANDIDATES))
    typed = block.astype(rows.dtype)
    bare_seconds = []
    own_seconds = []
    for _ in range(repeats):
        time.sleep(0.1)  # threads of the linear algebra library spin for a while after a product
        begun = time.perf_counter()
        overlaps = rows @ typed
        rows.T @ np.square(overlaps, out=overlaps)
        bare_seconds.append(time.perf_counter() - begun)
        time.sleep(0.1)
        begun = time.perf_counter()
        total = RowSum("image", block, order=3)
        total.update(rows)
        total.total()
        own_seconds.append(time.perf_counter() - begun)
    return min(bare_seconds), min(own_seconds)


def compare(name: str, rows: Any, repeats: int) -> None:
    """Print one row of the table."""
    theirs, own = rows_beside_products(rows, repeats)
    print(
        (
            f"{name:>8} {rows.dtype!s:>8} {rows.shape[1]:7,} {rows.shape[0] / own / 1e6:14.3f} "
            f"{theirs / own:18.2f}"
        ),
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    repeats = parser.parse_args().repeats
    generator = np.random.default_rng(0)
    print(f"{N_CANDIDATES} candidates")
    print(f"{'rows':>8} {'type':>8} {'d':>7} {'million rows/s':>14} {'bare time / ours':>18}")
    for dtype in (np.float32, np.float64):
        for dimension, n_rows in ((100, 400_000), (1_000, 40_000), (10_000, 6_000)):
            compare("dense", generator.standard_normal((n_rows, dimension)).astype(dtype), repeats)
    n_rows, per_row, dimension = 100_000, 100, 20_000
    indices = np.sort(
        generator.integers(dimension, size=(n_rows, per_row), dtype=np.int32), axis=1
    ).ravel()
    pointers = np.arange(0, n_rows * per_row + 1, per_row, dtype=np.int32)
    for dtype in (np.float32, np.float64):
        data = generator.standard_normal(n_rows * per_row).astype(dtype)
        compare(
            "CSR",
            sparse.csr_array((data, indices, pointers), shape=(n_rows, dimension)),
            max(3, repeats // 3),
        )


if __name__ == "__main__":
    main()
