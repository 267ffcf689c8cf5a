"""Memory of Algorithm 2 on rows in a file: linear in the dimension, whatever the file's size.

    python benchmarks/memory.py

Each row of the table is a process of its own. It reads rows of float32 from a memory-mapped .npy
file, or CSR rows from an .npz file, with k = 10 components and L = 30 restarts, and prints its peak
resident size above that after the imports.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import odeco

N_COMPONENTS, N_RESTARTS, N_ITERATIONS = 10, 30, 2


def peak_megabytes() -> float:
    """Return the peak resident size of this process so far (Linux; ru_maxrss would start at that of
    the parent).
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def measure(path: str, n_rows: int) -> None:
    """Run in a process of its own: decompose a file and print megabytes and seconds.

    Libraries are loaded when they are first used, so a small run of the same kind comes first.
    """
    small = np.random.default_rng(0).standard_normal((400, 10))
    settings: dict[str, Any] = {
        "method": "power",
        "n_restarts": 2,
        "n_iterations": 2,
        "batch_size": 100,
        "rng": 0,
    }
    odeco.decompose_stream(
        sparse.csr_array(small) if path.endswith(".npz") else small, 1, **settings
    )
    before = peak_megabytes()
    start = time.perf_counter()
    odeco.decompose_stream(
        path,
        N_COMPONENTS,
        method="power",
        batch_size=n_rows // (N_COMPONENTS * N_ITERATIONS),
        n_restarts=N_RESTARTS,
        n_iterations=N_ITERATIONS,
        rng=0,
    )
    print(peak_megabytes() - before, time.perf_counter() - start)


def write_dense(path: Path, n_rows: int, dimension: int) -> None:
    """Write rows of float32 block by block, so that this process stays small too."""
    generator = np.random.default_rng(0)
    array = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n_rows, dimension))
    for start in range(0, n_rows, 50):
        stop = min(start + 50, n_rows)
        array[start:stop] = generator.standard_normal((stop - start, dimension), dtype=np.float32)
    array.flush()


def write_sparse(path: Path, n_rows: int, dimension: int, per_row: int = 100) -> None:
    """Write CSR rows with 100 stored numbers each."""
    generator = np.random.default_rng(0)
    indices = np.sort(
        generator.integers(dimension, size=(n_rows, per_row), dtype=np.int32), axis=1
    ).ravel()
    data = generator.standard_normal(n_rows * per_row, dtype=np.float32)
    pointers = np.arange(0, n_rows * per_row + 1, per_row, dtype=np.int64)
    sparse.save_npz(
        path,
        sparse.csr_array((data, indices, pointers), shape=(n_rows, dimension)),
        compressed=False,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", nargs=2, metavar=("FILE", "ROWS"), help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="smaller files")
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure[0], int(arguments.measure[1]))
        return
    scale = 1 if arguments.quick else 4
    cases = [
        ("dense", d, n * scale)
        for d, n in ((1_000, 20_000), (10_000, 2_000), (100_000, 400), (100_000, 1_000))
    ]
    cases += [
        ("CSR", d, n * scale)
        for d, n in ((1_000, 20_000), (10_000, 20_000), (100_000, 20_000), (100_000, 60_000))
    ]
    print(
        f"Algorithm 2, k = {N_COMPONENTS}, L = {N_RESTARTS}, float32 rows from a file; peak "
        "resident size above the imports"
    )
    print(
        f"{'rows':>6} {'d':>8} {'n':>8} {'file MB':>8} {'peak MB':>8} {'bytes/(d(k+L))':>15} "
        f"{'seconds':>8}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for kind, dimension, n_rows in cases:
            path = Path(folder) / ("rows.npy" if kind == "dense" else "rows.npz")
            (write_dense if kind == "dense" else write_sparse)(path, n_rows, dimension)
            command = [sys.executable, __file__, "--measure", str(path), str(n_rows)]
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            peak, seconds = (float(number) for number in output.split())
            share = peak * 2**20 / (dimension * (N_COMPONENTS + N_RESTARTS))
            size = path.stat().st_size / 2**20
            print(
                (
                    f"{kind:>6} {dimension:8,} {n_rows:8,} {size:8.0f} {peak:8.0f} {share:15.1f} "
                    f"{seconds:8.1f}"
                ),
                flush=True,
            )
            path.unlink()


if __name__ == "__main__":
    main()
