"""Trials in processes: their results are the same for any number of processes, and no trial is run twice.

A trial is a function of its settings and a seed, and of nothing else. Its random numbers depend on both, so adding
settings to an experiment changes no other trial. Finished trials are appended to a file, one in each line. A run that
was interrupted reads them and goes on.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from odeco._util.threads import one_blas_thread

#: The settings of a trial: names and numbers, which JSON can hold.
Settings: TypeAlias = dict[str, Any]

#: The measurements of a trial: rows of a table.
Records: TypeAlias = list[dict[str, Any]]

Trial: TypeAlias = Callable[[Settings, int], Records]

Progress: TypeAlias = Callable[[int, int], object]


#: Raise this when the meaning of a trial changes, so that results of older code are not taken for those of newer code.
TRIALS_VERSION = 1


def generator_for(settings: Settings, seed: int) -> np.random.Generator:
    """Return the random generator of one trial, which depends on its settings and the seed alone."""
    words = np.frombuffer(hashlib.sha256(_canonical(settings).encode()).digest(), dtype=np.uint32)
    return np.random.default_rng([seed, *(int(word) for word in words)])


def run_trials(
    name: str,
    trial: Trial,
    tasks: Sequence[Settings],
    *,
    seed: int,
    folder: Path,
    n_processes: int = 1,
    progress: Progress | None = None,
) -> Records:
    """Return the records of all tasks, in the order of the tasks, each with its settings in front.

    Parameters
    ----------
    name : str
        The name of the experiment. Its finished trials are kept in ``<name>.trials.jsonl`` below `folder`.
    trial : callable
        A function of settings and seed, defined at the top of a module so that other processes can import it.
    tasks : sequence of dict
        The settings of every trial.
    seed : int
        The seed of all trials.
    folder : Path
        The folder in which finished trials are kept. It must exist.
    n_processes : int
        The number of worker processes, at least one. Trials always run in processes other than this one, and with one
        thread for linear algebra, so that the number of processes changes no result.
    progress : callable, optional
        A function that receives how many tasks are done, and how many there are.
    """
    path = folder / f"{name}.trials.jsonl"
    finished = dict(_read(path))
    keys = [_key(name, task, seed) for task in tasks]
    missing = [(key, task) for key, task in zip(keys, tasks, strict=True) if key not in finished]
    n_done = len(tasks) - len(missing)
    if progress is not None:
        progress(n_done, len(tasks))
    if missing:
        with path.open("ab") as file, closing(_in_processes(trial, missing, seed, n_processes)) as results:
            for key, records in results:
                file.write(json.dumps({"key": key, "records": records}).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
                finished[key] = records
                n_done += 1
                if progress is not None:
                    progress(n_done, len(tasks))
    return [{**task, **record} for key, task in zip(keys, tasks, strict=True) for record in finished[key]]


def _in_processes(
    trial: Trial, missing: Sequence[tuple[str, Settings]], seed: int, n_processes: int
) -> Generator[tuple[str, Records], None, None]:
    """Yield trials as they finish. No worker process is left behind, however the loop ends."""
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(min(n_processes, len(missing)), mp_context=context, initializer=_start_worker)
    try:
        waiting: dict[Future[str], str] = {pool.submit(_run, trial, task, seed): key for key, task in missing}
        for future in as_completed(waiting):
            yield waiting[future], json.loads(future.result())
    except BaseException:
        for worker in set(multiprocessing.active_children()) - others:
            worker.terminate()  # a trial takes up to a minute, too long to wait for after an interrupt
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process receives it too, and stops
    os.environ["OMP_NUM_THREADS"] = "1"


def _run(trial: Trial, task: Settings, seed: int) -> str:
    # The records go through text, so that a trial read from the file and one just run are bit-identical.
    with one_blas_thread():
        return json.dumps(trial(task, seed))


def _key(name: str, task: Settings, seed: int) -> str:
    text = _canonical({"version": TRIALS_VERSION, "experiment": name, "seed": seed, "task": task})
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _canonical(value: Settings) -> str:
    return json.dumps(value, sort_keys=True)


def _read(path: Path) -> Iterator[tuple[str, Records]]:
    """Yield the finished trials of a file. A last line that a crash cut short is removed from the file."""
    if not path.exists():
        return
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        content = content[: content.rfind(b"\n") + 1]
        os.truncate(path, len(content))
    for line in content.splitlines():
        entry = json.loads(line)
        yield entry["key"], entry["records"]
