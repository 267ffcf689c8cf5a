"""One pass over many rows: time, memory, and the same bits after the process was killed and
resumed.

    python benchmarks/model_streams.py [--kill] [--rows N] [--only MODEL]

Every model that learns in one pass (mixture, hmm, ica, classes) runs in a process of its own, which
draws batches of 50,000 rows, feeds them to `partial_fit` and saves the model after every fourth.
The table has the seconds of processor time in `partial_fit`, on one thread, and the largest
resident memory after the first batches and at the end. With --kill the process is killed (SIGKILL)
at two random moments; each time another goes on from the last file. The arrays of its last file
must be those of the run that was left alone.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from odeco.models import LatentClasses, TensorHMM, TensorICA, TensorMixture

BATCH, SAVED_EVERY = 50_000, 4
N_KILLS = 2


@dataclass(frozen=True)
class Kind:
    """A model before it has seen rows, its class, and the rows of a batch by their number."""

    model: Callable[[], Any]
    read: Callable[[Path], Any]
    draw: Callable[[np.random.Generator], Any]


def mixture_rows(rng: np.random.Generator) -> Any:
    centres = np.random.default_rng(0).normal(0, 4, (5, 10))
    return centres[rng.integers(5, size=BATCH)] + rng.standard_normal((BATCH, 10))


def symbols(rng: np.random.Generator) -> Any:
    """Ten states that last some rows, each with ten of fifty symbols, of which five are those of
    the next state too.
    """
    states = np.repeat(rng.integers(10, size=BATCH // 4), 4)
    return (5 * states + rng.integers(10, size=BATCH)) % 50


def mixed_sources(rng: np.random.Generator) -> Any:
    sources = np.column_stack(
        [rng.uniform(-1, 1, BATCH), rng.laplace(size=BATCH), rng.exponential(size=BATCH)]
    )
    return sources @ np.random.default_rng(0).standard_normal((3, 3))


def answers(rng: np.random.Generator) -> Any:
    chances = np.random.default_rng(0).random((4, 12))
    return (rng.random((BATCH, 12)) < chances[rng.integers(4, size=BATCH)]).astype(np.int64)


KINDS = {
    "mixture": Kind(lambda: TensorMixture(5, random_state=0), TensorMixture.load, mixture_rows),
    "hmm": Kind(lambda: TensorHMM(10, n_symbols=50, random_state=0), TensorHMM.load, symbols),
    "ica": Kind(lambda: TensorICA(random_state=0), TensorICA.load, mixed_sources),
    "classes": Kind(lambda: LatentClasses(4, random_state=0), LatentClasses.load, answers),
}


def peak_megabytes() -> float:
    """Return the peak resident size of this process so far (Linux; ru_maxrss would start at that of
    the parent).
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def learn(name: str, path: Path, n_batches: int) -> None:
    """Run in a process of its own: go on from the file, if there is one, to the last batch."""
    kind = KINDS[name]
    model = kind.read(path) if path.exists() else kind.model()
    first = model.n_samples_seen_ // BATCH if path.exists() else 0
    seconds, early = 0.0, 0.0
    for number in range(first, n_batches):
        rows = kind.draw(np.random.default_rng([1, number]))
        told = {"goes_on": True} if name == "hmm" else {}
        began = time.process_time()
        model.partial_fit(rows, **told)
        seconds += time.process_time() - began
        if (number + 1) % SAVED_EVERY == 0 or number + 1 == n_batches:
            model.save(path)
            early = early or peak_megabytes()
    print(seconds, early, peak_megabytes())


def started(name: str, path: Path, n_batches: int) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--child", name, str(path), str(n_batches)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def finished(process: subprocess.Popen[str]) -> list[float]:
    output, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"A process ended with {process.returncode}.")
    return [float(number) for number in output.split()]


def killed(name: str, path: Path, n_batches: int, rng: random.Random, whole: float) -> int:
    """Start a process and kill it at a random moment; return how many batches its last file has."""
    process = started(name, path, n_batches)
    while not path.exists() and process.poll() is None:
        time.sleep(0.01)
    time.sleep(rng.uniform(0, whole / 2))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return int(KINDS[name].read(path).n_samples_seen_) // BATCH


def same_arrays(one: Path, other: Path) -> bool:
    """Return whether two files hold the same arrays, to the last bit."""
    with np.load(one) as first, np.load(other) as second:
        return set(first.files) == set(second.files) and all(
            first[each].dtype == second[each].dtype
            and first[each].tobytes() == second[each].tobytes()
            for each in first.files
        )


def measure(name: str, n_batches: int, *, kill: bool, seed: int) -> bool:
    """Print the row of a model; return whether the killed run ended in the same bits, if there was
    one.
    """
    with tempfile.TemporaryDirectory() as folder:
        alone, resumed = Path(folder) / "alone.npz", Path(folder) / "resumed.npz"
        began = time.perf_counter()
        seconds, early, late = finished(started(name, alone, n_batches))
        whole = time.perf_counter() - began
        line = (
            f"{name:8s} {n_batches * BATCH:12,d} rows {seconds:7.1f} s {early:7.0f} MB then "
            f"{late:5.0f} MB"
        )
        if not kill:
            print(line, flush=True)
            return True
        rng = random.Random(seed)
        places = [killed(name, resumed, n_batches, rng, whole) for _ in range(N_KILLS)]
        finished(started(name, resumed, n_batches))
        same = same_arrays(alone, resumed)
        print(
            f"{line}   killed, resumed at batches {places}: identical {'yes' if same else 'NO'}",
            flush=True,
        )
        return same


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        learn(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--only", choices=tuple(KINDS))
    parser.add_argument(
        "--seed", type=int, default=None, help="of the moments at which processes are killed"
    )
    given = parser.parse_args()
    seed = random.randrange(2**32) if given.seed is None else given.seed
    names = [given.only] if given.only else list(KINDS)
    same = [measure(name, -(-given.rows // BATCH), kill=given.kill, seed=seed) for name in names]
    if not all(same):
        raise SystemExit(f"A killed run ended in other bits (--seed {seed}).")


if __name__ == "__main__":
    main()
