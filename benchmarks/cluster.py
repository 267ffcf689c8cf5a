"""A cluster on this machine against one process: time, overhead, bytes through the client, memory,
kills.

    python benchmarks/cluster.py  # workers 1, 2 and 4; files of 1 GB in all, in a temporary folder
    python benchmarks/cluster.py --private        # private runs and topics, and the choice of their number
    python benchmarks/cluster.py --ceiling        # the same sums in two processes that share nothing, without Dask
    python benchmarks/cluster.py --wide           # one leaf of rows of a million columns
    python benchmarks/cluster.py --kills 20       # random workers are killed during one run: the bits must be the same

Every worker is a process with one thread. A question is an image of 20 candidates over all rows of
the files; the plain run reads the same files in this process, with as many threads as there are
workers. Times are the best of three.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import tempfile
import threading
import time
import warnings
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
from odeco.io.documents import text_parts
from odeco.online import RowSum
from odeco.online.dask import as_cluster_rows
from odeco.online.dask.requests import sum_over_rows
from odeco.online.dask.tasks import ask
from odeco.online.queries import Images
from odeco.online.tree import rows_per_chunk
from odeco.privacy import open_private
from odeco.privacy.noise import SeededNoiseForTests

N_CANDIDATES, N_FILES, REPEATS = 20, 4, 3
#: Dask's nanny makes glibc give memory back at once, and so map every temporary array anew: these
#: take that back.
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
        f"distributed.nanny.pre-spawn-environ.{name}": value
        for name, value in ALLOCATOR.items()
        if allocator
    }
    settings["distributed.deploy.lost-worker-timeout"] = (
        "1 hour"  # a worker that was killed may take a while to start
    )
    options = {
        "n_workers": n_workers,
        "threads_per_worker": 1,
        "dashboard_address": ":0",
        "memory_limit": None,
    }
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


def plain_question(paths: Any, block: Any) -> Any:
    """Return the sum over the rows of files, added up in this process."""
    source = as_source(paths)
    if not getattr(source, "sparse", False):
        source = as_source(paths, batch_rows=rows_per_chunk(source.n_features))
    total = RowSum("image", block, 3)
    for rows in source:
        total.update(rows)
    return total.mean()


def cluster_question(rows: Any, block: Any) -> tuple[Any, int]:
    """Return the sum over the rows of files, added up by workers, and the bytes of it that came to
    the client.
    """
    query = Images(block, 3)
    total, n_bytes = query.empty(), block.nbytes
    for part, _ in ask(rows, sum_over_rows(rows, query), [(0, 0, rows.n_rows)]):
        if part is not None:
            n_bytes += sum(array.nbytes for array in part.levels if array is not None)
            total = total.with_part(query, part)
    return total.value(query), n_bytes


def compare(patterns: dict[str, str], numbers: list[int], times: int, *, allocator: bool) -> None:
    """Print times of the plain run and of clusters, as a table; every file is read several times.

    Efficiency is that of two or more workers, compared with one: by elapsed time, which counts all
    that is waited for, and by processor time of the client and all workers, which a busy machine
    does not change.
    """
    me = psutil.Process()
    print(
        f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}; memory of workers given "
        f"back late: {allocator}"
    )
    print(
        "| rows | workers | plain s | cluster s | ratio | processor time, ratio | bytes through "
        "client | worker MB |"
    )
    print("|---|---|---|---|---|---|---|---|")
    first: dict[str, tuple[float, float]] = {}
    for n_workers in numbers:
        with cluster_of(n_workers, allocator=allocator) as client:
            workers = processes_of(client)
            for name, pattern in patterns.items():
                paths = sorted(map(str, Path(pattern).parent.glob(Path(pattern).name))) * times
                rows = as_cluster_rows(paths, client)
                block = np.linalg.qr(
                    np.random.default_rng(1).standard_normal((rows.n_features, N_CANDIDATES))
                )[0]
                with threadpool_limits(n_workers):
                    expected = plain_question(paths, block)
                    plain, plain_cpu = best(partial(plain_question, paths, block), [me])
                found, n_bytes = cluster_question(rows, block)
                assert np.array_equal(found, expected), "other bits"
                there, cpu = best(partial(cluster_question, rows, block), [me, *workers])
                memory = max(worker.memory_info().rss for worker in workers) / 2**20
                alone, alone_cpu = first.setdefault(name, (there, cpu))
                gains = (
                    f" (efficiency {alone / (n_workers * there):.2f}, by processor time "
                    f"{alone_cpu / cpu:.2f})"
                )
                gain = gains if n_workers > 1 else ""
                print(
                    f"| {name} | {n_workers} | {plain:.2f} | {there:.2f}{gain} | "
                    f"{there / plain:.2f} | {cpu / plain_cpu:.2f} | {n_bytes:,} | {memory:.0f} |",
                    flush=True,
                )
            small = Path(patterns["dense, d = 1,000"]).parent / "small.npy"
            np.save(small, np.ones((100, 10)))
            rows = as_cluster_rows(small, client)
            empty = sorted(_timed(partial(cluster_question, rows, np.eye(10))) for _ in range(30))
            median, least = 1000 * empty[15], 1000 * empty[0]
            print(
                f"empty question, {n_workers} workers: {median:.0f} ms (median of 30; the least "
                f"is {least:.0f})"
            )
    print(f"memory of the client: {me.memory_info().rss / 2**20:.0f} MB")


# ---- what two processes can gain on this machine -------------------------------------------------


def _multiply() -> None:
    """Work in registers and the first cache only: no memory, no lock of the interpreter for most of
    the time.
    """
    small = np.ones((96, 96))
    for _ in range(6_000):
        small @ small


def _read_memory(numbers: Any) -> None:
    """Work of the memory bus only: a sum over 400 MB."""
    for _ in range(4):
        np.add.reduce(numbers)


def _work_alone(kind: str, pattern: str, barrier: Any, times: Any) -> None:
    """Time a piece of work in a process with one thread, which begins when all others are ready."""
    numbers = np.ones(50_000_000) if kind == "memory" else None
    with one_thread():
        if kind == "files":
            d = as_source(pattern).n_features
            block = np.linalg.qr(np.random.default_rng(1).standard_normal((d, N_CANDIDATES)))[0]
            work: Callable[[], object] = partial(plain_question, pattern, block)
        else:
            work = _multiply if kind == "registers" else partial(_read_memory, numbers)
        work()
        taken = []
        for _ in range(REPEATS):
            barrier.wait()
            cpu, wall = time.process_time(), time.perf_counter()
            work()
            taken.append((time.perf_counter() - wall, time.process_time() - cpu))
    times.put(np.min(taken, axis=0))


def ceiling(patterns: dict[str, str]) -> None:
    """Print what a second process costs the first: the efficiency that no cluster on this machine
    can exceed.

    Processor time grows while a core waits for memory that another core is reading, and not while a
    process waits for a core. So it shows what the two share besides the cores, also on a machine
    that is busy with other things.
    """
    context = multiprocessing.get_context("spawn")
    print(
        "| work of each process | one, s | two, s | efficiency | one, processor s | two, "
        "processor s | efficiency |"
    )
    print("|---|---|---|---|---|---|---|")
    kinds = {
        "products of 96 x 96 matrices, in the cache": ("registers", ""),
        "sums over 400 MB": ("memory", ""),
    }
    for name, (kind, pattern) in (
        kinds | {name: ("files", pattern) for name, pattern in patterns.items()}
    ).items():
        slowest = []
        for n_processes in (1, 2):
            barrier, times = context.Barrier(n_processes), context.Queue()
            arguments = (kind, pattern, barrier, times)
            processes = [
                context.Process(target=_work_alone, args=arguments) for _ in range(n_processes)
            ]
            for process in processes:
                process.start()
            slowest.append(np.max([times.get() for _ in processes], axis=0))
            for process in processes:
                process.join()
        cells = [
            f"{one:.2f} | {two:.2f} | {one / two:.2f}" for one, two in zip(*slowest, strict=True)
        ]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


# ---- private runs and topics ---------------------------------------------------------------------


def compare_private(folder: Path, share: float) -> None:
    """Print times of private runs and of topics in this process and on two workers; the releases
    are the same.
    """
    # Not in workers, which import this file and measure their memory.
    from odeco.models import TensorLDA
    from odeco.models.lda.cluster import count_words_on_cluster
    from odeco.models.lda.private_vocabulary import keep_words
    from odeco.models.lda.vocabulary import CountedWords, count_words

    me, generator = psutil.Process(), np.random.default_rng(0)
    budget: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-9}
    n_rows, d, n_documents, n_words = int(2_000_000 * share), 60, int(200_000 * share), 2_000
    np.save(folder / "rows.npy", generator.standard_normal((n_rows, d), dtype=np.float32))
    topics = generator.dirichlet(np.full(n_words, 0.05), size=10)
    drawn = [generator.multinomial(n_documents // 10 * 60, topic) for topic in topics]
    columns = np.concatenate(
        [generator.permutation(np.repeat(np.arange(n_words), each)) for each in drawn]
    )
    owners = np.repeat(np.arange(n_documents // 10 * 10), 60)
    counts = sparse.csr_array(
        (np.ones(columns.size), (owners, columns)), shape=(n_documents // 10 * 10, n_words)
    )
    counts = counts[generator.permutation(counts.shape[0])]
    counts.sum_duplicates()
    sparse.save_npz(folder / "counts.npz", counts, compressed=False)
    rows, documents = [folder / "rows.npy"], [folder / "counts.npz"]
    users = generator.permutation(counts.shape[0]) // 5
    for part, some in enumerate(np.array_split(np.arange(counts.shape[0]), 4)):
        texts = (
            " ".join(f"word{place}" for place in np.repeat(*counts_of(counts, row))) for row in some
        )
        (folder / f"texts-{part}.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    parts = text_parts(sorted(folder.glob("texts-*.txt")), None, private=True)

    def entries(client: Any = None) -> Any:
        settings: dict[str, Any] = {
            "unit": "record",
            "norm_bound": 8.0,
            "rng": 0,
            "noise": SeededNoiseForTests(0),
        }
        found = odeco.decompose_privately(
            open_private(rows), 5, **budget, **settings, client=client
        )
        return found.vectors

    def private_topics(client: Any = None, *, groups: Any = None) -> Any:
        model = TensorLDA(
            10, **budget, random_state=0, unit="document" if groups is None else "user"
        )
        given = counts if client is None else open_private(documents)
        return model.fit(
            given, groups=groups, client=client
        ).topic_word_.shape  # the noise differs from run to run

    def private_texts(client: Any = None) -> Any:
        if client is None:
            counted = count_words((text for part in parts for text in part), allow_empty=True)
        else:
            found, words = count_words_on_cluster(parts, private=True, client=client)
            counted = CountedWords(found, words, words.size)
        limits: Any = {"max_words": n_words, "stop_words": (), "min_documents": 1, "max_share": 1.0}
        loose = budget | {
            "epsilon": 50.0
        }  # so that so few documents have words that pass; times do not depend on it
        kept, vocabulary = keep_words(counted, **loose, **limits)
        return (
            TensorLDA(10, **loose, random_state=0)
            .fit(kept.counts, vocabulary=vocabulary)
            .topic_word_.ndim
        )

    def number(client: Any = None) -> Any:
        model = TensorLDA("auto", max_iter=0, random_state=0)
        return model.fit(counts if client is None else str(documents[0]), client=client).topic_word_

    print("| run | plain s | two workers s | ratio | processor time, ratio |")
    print("|---|---|---|---|---|")
    runs: dict[str, Callable[..., Any]] = {
        f"private components of {n_rows:,} rows, d = {d}": entries,
        f"private topics of {counts.shape[0]:,} documents, {n_words:,} words": private_topics,
        "of users with five of them each, together": partial(
            private_topics, groups=np.arange(counts.shape[0]) // 5
        ),
        "of users with five of them each, anywhere": partial(private_topics, groups=users),
        "of the same documents as texts, words by noisy votes": private_texts,
        "topics of the same documents, their number selected": number,
    }
    with cluster_of(2, allocator=True) as client, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        workers = processes_of(client)
        for name, run in runs.items():
            assert np.array_equal(run(), run(client)), "other bits"
            (plain, plain_cpu), (there, cpu) = (
                best(run, [me]),
                best(partial(run, client), [me, *workers]),
            )
            print(
                (
                    f"| {name} | {plain:.2f} | {there:.2f} | {there / plain:.2f} | "
                    f"{cpu / plain_cpu:.2f} |"
                ),
                flush=True,
            )


def counts_of(counts: Any, row: int) -> tuple[Any, Any]:
    """Return the words of a document, and how often it has each."""
    places = slice(*counts.indptr[row : row + 2])
    return counts.indices[places], counts.data[places].astype(int)


def wide(
    d: int = 1_000_000, n_candidates: int = 64, n_rows: int = 2**15, stored: int = 100
) -> None:
    """Print how fast one thread adds up one leaf of very wide CSR rows: what the page *Scale*
    counts with.
    """
    generator = np.random.default_rng(0)
    indices = generator.integers(d, size=n_rows * stored, dtype=np.int32)
    pointers = np.arange(0, n_rows * stored + 1, stored)
    rows = sparse.csr_array(
        (np.ones(n_rows * stored, np.float32), indices, pointers), shape=(n_rows, d)
    )
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
        f"d = {d:,}, {n_candidates} candidates: {rows.nnz / seconds / 1e6:.2f} million stored "
        "numbers a second and core"
    )
    print(f"core of {n_candidates} columns: {n_rows / core_seconds:,.0f} rows a second, one core")


def _timed(question: Callable[[], object]) -> float:
    start = time.perf_counter()
    question()
    return time.perf_counter() - start


def soak(pattern: str, n_kills: int) -> None:
    """Kill random workers during one run, and compare its bits with those of a run that was left
    alone.
    """
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument(
        "--share", type=float, default=1.0, help="of the rows of the full benchmark"
    )
    parser.add_argument(
        "--times", type=int, default=4, help="how often every file is read in one question"
    )
    parser.add_argument("--kills", type=int, default=0, help="kill so many workers instead")
    parser.add_argument("--private", action="store_true", help="private runs and topics instead")
    parser.add_argument("--ceiling", action="store_true", help="two processes without Dask instead")
    parser.add_argument(
        "--wide", action="store_true", help="one leaf of CSR rows of a million columns instead"
    )
    parser.add_argument(
        "--plain-allocator", action="store_true", help="leave the workers' memory settings to Dask"
    )
    arguments = parser.parse_args()
    if arguments.wide:
        wide()
        return
    with tempfile.TemporaryDirectory() as folder:
        if arguments.private:
            compare_private(Path(folder), arguments.share)
            return
        patterns = write_files(Path(folder), arguments.share)
        if arguments.ceiling:
            ceiling(patterns)
        elif arguments.kills:
            soak(patterns["dense, d = 1,000"], arguments.kills)
        else:
            compare(
                patterns,
                arguments.workers,
                arguments.times,
                allocator=not arguments.plain_allocator,
            )


if __name__ == "__main__":
    main()
