"""A cluster on this machine against one process: time, overhead, bytes through the client, memory, kills.

    python benchmarks/cluster.py                  # workers 1, 2 and 4; files of 1 GB in all, in a temporary folder
    python benchmarks/cluster.py --wide           # one leaf of rows of a million columns
    python benchmarks/cluster.py --kills 20       # random workers are killed during one run: the bits must be the same

Every worker is a process with one thread. A question is an image of 20 candidates over all rows of the files; the plain
run reads the same files in this process, with as many threads as there are workers. Times are the best of three.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from scipy import sparse
from threadpoolctl import threadpool_limits

import odeco
from odeco._util.threads import one_thread
from odeco.io import as_source
from odeco.online import RowSum
from odeco.online.dask import as_cluster_rows
from odeco.online.dask.requests import sum_over_rows
from odeco.online.dask.tasks import ask
from odeco.online.tree import rows_per_chunk

N_CANDIDATES, N_FILES, REPEATS = 20, 4, 3
#: Dask's nanny makes glibc give memory back at once, and so map every temporary array anew: these take that back.
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": 2**30, "MALLOC_MMAP_THRESHOLD_": 2**30}


def write_files(folder: Path, share: float) -> dict[str, str]:
    """Write rows of three kinds, and return the patterns of their files."""
    generator = np.random.default_rng(0)
    for d, n_rows in ((1_000, 100_000), (10_000, 10_000)):
        for number in range(N_FILES):
            rows = generator.standard_normal((int(n_rows * share / N_FILES), d), dtype=np.float32)
            np.save(folder / f"dense-{d}-{number}.npy", rows)
    for number in range(N_FILES):
        n_rows, d, stored = int(500_000 * share / N_FILES), 20_000, 50
        indices = generator.integers(d, size=n_rows * stored, dtype=np.int32)
        data = generator.standard_normal(n_rows * stored, dtype=np.float32)
        pointers = np.arange(0, n_rows * stored + 1, stored)
        rows_of_file = sparse.csr_array((data, indices, pointers), shape=(n_rows, d))
        sparse.save_npz(folder / f"csr-{d}-{number}.npz", rows_of_file, compressed=False)
    return {
        "dense, d = 1,000": str(folder / "dense-1000-*.npy"),
        "dense, d = 10,000": str(folder / "dense-10000-*.npy"),
        "CSR, d = 20,000": str(folder / "csr-20000-*.npz"),
    }


@contextmanager
def cluster_of(n_workers: int, *, allocator: bool) -> Iterator[Any]:
    """Start worker processes with one thread each, and yield their client."""
    dask, distributed = import_module("dask"), import_module("distributed")
    settings: dict[str, Any] = {
        f"distributed.nanny.pre-spawn-environ.{name}": value for name, value in ALLOCATOR.items() if allocator
    }
    settings["distributed.deploy.lost-worker-timeout"] = "1 hour"  # a worker that was killed may take a while to start
    options = {"n_workers": n_workers, "threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": None}
    with (
        dask.config.set(settings),
        distributed.LocalCluster(**options) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def processes_of(client: Any) -> list[psutil.Process]:
    """Return the processes of the workers."""
    return [psutil.Process(number) for number in client.run(os.getpid).values()]


def cpu_of(processes: list[psutil.Process]) -> float:
    """Return the processor time of processes, in seconds."""
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def best(question: Callable[[], object], processes: list[psutil.Process]) -> tuple[float, float]:
    """Return the shortest time of a question, and the least processor time, in seconds."""
    times, cpus = [], []
    for _ in range(REPEATS):
        start, cpu = time.perf_counter(), cpu_of(processes)
        question()
        times.append(time.perf_counter() - start)
        cpus.append(cpu_of(processes) - cpu)
    return min(times), min(cpus)


def plain_question(pattern: str, block: Any) -> Any:
    """Return the sum over the rows of files, added up in this process."""
    source = as_source(pattern)
    if not getattr(source, "sparse", False):
        source = as_source(pattern, batch_rows=rows_per_chunk(source.n_features))
    total = RowSum("image", block, 3)
    for rows in source:
        total.update(rows)
    return total.total()


def cluster_question(rows: Any, block: Any) -> tuple[Any, int]:
    """Return the sum over the rows of files, added up by workers, and the bytes of it that came to the client."""
    total, n_bytes = RowSum("image", block, 3), block.nbytes
    for part, _ in ask(rows, sum_over_rows(rows, "image", block, 3), [(0, 0, rows.n_rows)]):
        if part is not None:
            n_bytes += sum(array.nbytes for array in part.levels if array is not None)
            total.append(part)
    return total.total(), n_bytes


def compare(patterns: dict[str, str], numbers: list[int], *, allocator: bool) -> None:
    """Print times of the plain run and of clusters, as a table."""
    me = psutil.Process()
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}; memory of workers given back late: {allocator}")
    print("| rows | workers | plain s | cluster s | ratio | processor time, ratio | bytes through client | worker MB |")
    print("|---|---|---|---|---|---|---|---|")
    first: dict[str, float] = {}
    for n_workers in numbers:
        with cluster_of(n_workers, allocator=allocator) as client:
            workers = processes_of(client)
            for name, pattern in patterns.items():
                rows = as_cluster_rows(pattern, client)
                block = np.linalg.qr(np.random.default_rng(1).standard_normal((rows.n_features, N_CANDIDATES)))[0]
                with threadpool_limits(n_workers):
                    expected = plain_question(pattern, block)
                    plain, plain_cpu = best(partial(plain_question, pattern, block), [me])
                found, n_bytes = cluster_question(rows, block)
                assert np.array_equal(found, expected), "other bits"
                there, cpu = best(partial(cluster_question, rows, block), [me, *workers])
                memory = max(worker.memory_info().rss for worker in workers) / 2**20
                first.setdefault(name, there)
                gain = f" (efficiency {first[name] / (n_workers * there):.2f})" if n_workers > 1 else ""
                print(
                    f"| {name} | {n_workers} | {plain:.2f} | {there:.2f}{gain} | {there / plain:.2f} "
                    f"| {cpu / plain_cpu:.2f} | {n_bytes:,} | {memory:.0f} |",
                    flush=True,
                )
            small = Path(patterns["dense, d = 1,000"]).parent / "small.npy"
            np.save(small, np.ones((100, 10)))
            rows = as_cluster_rows(small, client)
            empty = sorted(_timed(partial(cluster_question, rows, np.eye(10))) for _ in range(30))
            median, least = 1000 * empty[15], 1000 * empty[0]
            print(f"empty question, {n_workers} workers: {median:.0f} ms (median of 30; the least is {least:.0f})")
    print(f"memory of the client: {me.memory_info().rss / 2**20:.0f} MB")


def wide(d: int = 1_000_000, n_candidates: int = 64, n_rows: int = 2**15, stored: int = 100) -> None:
    """Print how fast one thread adds up one leaf of very wide CSR rows: what the page *Scale* counts with."""
    generator = np.random.default_rng(0)
    indices = generator.integers(d, size=n_rows * stored, dtype=np.int32)
    pointers = np.arange(0, n_rows * stored + 1, stored)
    rows = sparse.csr_array((np.ones(n_rows * stored, np.float32), indices, pointers), shape=(n_rows, d))
    block = generator.standard_normal((d, n_candidates))
    with one_thread():
        RowSum("image", block, 3).update(rows)  # compiles the loop, if there is a compiler
        total, cpu = RowSum("image", block, 3), time.thread_time()
        total.update(rows)
        seconds = time.thread_time() - cpu
        core, cpu = RowSum("core", np.ascontiguousarray(block[:, :64]), 3), time.thread_time()
        core.update(rows)
        core_seconds = time.thread_time() - cpu
    print(
        f"d = {d:,}, {n_candidates} candidates: {rows.nnz / seconds / 1e6:.2f} million stored numbers a second and core"
    )
    print(f"core of {n_candidates} columns: {n_rows / core_seconds:,.0f} rows a second, one core")


def _timed(question: Callable[[], object]) -> float:
    start = time.perf_counter()
    question()
    return time.perf_counter() - start


def soak(pattern: str, n_kills: int) -> None:
    """Kill random workers during one run, and compare its bits with those of a run that was left alone."""
    expected = odeco.decompose_stream(pattern, 5, rng=0, n_passes=14)
    with cluster_of(2, allocator=True) as client:
        over, killed = threading.Event(), 0

        def kill() -> None:
            nonlocal killed
            generator = np.random.default_rng(0)
            while killed < n_kills and not over.wait(float(generator.uniform(1.0, 3.0))):
                # A nanny whose worker dies before it has started does not start another one.
                if len(client.cluster.scheduler.workers) == len(client.cluster.workers):
                    pids = [nanny.pid for nanny in client.cluster.workers.values()]
                    os.kill(int(generator.choice(pids)), signal.SIGKILL)
                    killed += 1

        thread, n_runs = threading.Thread(target=kill, daemon=True), 0
        thread.start()
        while thread.is_alive() or n_runs == 0:
            found = odeco.decompose_stream(pattern, 5, rng=0, n_passes=14, client=client)
            n_runs += 1
            assert np.array_equal(found.vectors, expected.vectors), "other bits"
            assert np.array_equal(found.weights, expected.weights), "other bits"
        over.set()
        thread.join()
    print(f"{killed} workers killed during {n_runs} runs of 16 passes: the same bits")


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--share", type=float, default=1.0, help="of the rows of the full benchmark")
    parser.add_argument("--kills", type=int, default=0, help="kill so many workers instead")
    parser.add_argument("--wide", action="store_true", help="one leaf of CSR rows of a million columns instead")
    parser.add_argument("--plain-allocator", action="store_true", help="leave the workers' memory settings to Dask")
    arguments = parser.parse_args()
    if arguments.wide:
        wide()
        return
    with tempfile.TemporaryDirectory() as folder:
        patterns = write_files(Path(folder), arguments.share)
        if arguments.kills:
            soak(patterns["dense, d = 1,000"], arguments.kills)
        else:
            compare(patterns, arguments.workers, allocator=not arguments.plain_allocator)


if __name__ == "__main__":
    main()
