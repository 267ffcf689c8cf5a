"""Soak: millions of rows pushed in pieces of random size by processes that are killed at random;
nothing is lost.

    python benchmarks/soak.py --rows 10000000

A worker pushes rows of a fixed stream to an OnlineDecomposer and saves a checkpoint now and then;
the parent kills it without warning again and again, and starts the next. At the end the components
must equal, bit for bit, those of a run that was left alone, and the worker's memory must not have
grown.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import odeco

DIMENSION, N_COMPONENTS, BLOCK, BATCH = 50, 4, 10_000, 20_000


def block_of_rows(number: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return the given block of the stream: skewed sources in Gaussian noise."""
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((DIMENSION, N_COMPONENTS)))[0]
    generator = np.random.default_rng([1, number])
    sources = generator.standard_gamma(1.0, size=(BLOCK, N_COMPONENTS)) - 1
    rows: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = sources @ basis.T
    return rows + 0.3 * generator.standard_normal((BLOCK, DIMENSION))


def resident_megabytes() -> float:
    """Return the resident size of this process now."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def work(checkpoint: Path, n_rows: int, answer: Path) -> None:
    """Push rows from where the checkpoint left off, in pieces of random size."""
    if checkpoint.exists():
        online = odeco.OnlineDecomposer.load(checkpoint)
    else:
        online = odeco.OnlineDecomposer(
            N_COMPONENTS, method="power", batch_size=BATCH, n_iterations=15, rng=0
        )
    pieces, saved, sizes = (
        np.random.default_rng(os.getpid()),
        time.monotonic(),
        [resident_megabytes()],
    )
    while online.n_rows < n_rows:
        number, offset = divmod(online.n_rows, BLOCK)
        rows = block_of_rows(number)[offset:]
        while len(rows):
            size = int(pieces.integers(1, 4000))
            online.partial_fit(rows[:size])
            rows = rows[size:]
        if time.monotonic() - saved > 0.5:
            online.save(checkpoint)
            saved = time.monotonic()
            sizes.append(resident_megabytes())
    online.result().components.save(answer)
    print(max(sizes[len(sizes) // 2 :]) - max(sizes[: len(sizes) // 2 + 1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--work", nargs=2, type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    n_rows = arguments.rows // BLOCK * BLOCK
    if arguments.work:
        work(arguments.work[0], n_rows, arguments.work[1])
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def start(checkpoint: str, answer: str) -> subprocess.Popen[str]:
            paths = [str(folder / checkpoint), str(folder / answer)]
            command = [sys.executable, __file__, "--rows", str(n_rows), "--work", *paths]
            return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

        begun = time.monotonic()
        alone = start("alone.ckpt", "alone.npz")
        growth = alone.communicate()[0]
        seconds = time.monotonic() - begun
        generator, n_kills = np.random.default_rng(0), 0
        while True:
            process = start("killed.ckpt", "killed.npz")
            try:
                process.wait(timeout=max(2.0, generator.uniform(0.02, 0.15) * seconds))
                break
            except subprocess.TimeoutExpired:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
                n_kills += 1
        whole, killed = (
            odeco.Components.load(folder / f"{name}.npz") for name in ("alone", "killed")
        )
        same = np.array_equal(whole.vectors, killed.vectors) and np.array_equal(
            whole.weights, killed.weights
        )
    print(
        f"{n_rows:,} rows in {seconds:.0f} s left alone; killed {n_kills} times; bit-identical: "
        f"{same}"
    )
    print(f"resident size grew by {float(growth):.1f} MB over the second half of the run")
    if not same:
        sys.exit(1)


if __name__ == "__main__":
    main()
