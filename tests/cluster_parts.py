"""What the tests of clusters share: rows, blocks that end the process of their worker, and a client
to be killed.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

N_ROWS, D, K = 40_000, 20, 3


def planted(n_rows=N_ROWS):
    """Rows of K components; CSR rows have some three numbers."""
    generator = np.random.default_rng(0)
    rows = np.zeros((n_rows, D))
    rows[np.arange(n_rows), generator.choice(K, p=[0.5, 0.3, 0.2], size=n_rows)] = 1.0
    for _ in range(2):
        rows[np.arange(n_rows), generator.integers(D, size=n_rows)] += (
            generator.standard_normal(n_rows) / 4
        )
    return rows


def once(path):
    """Return True the first time that it is called with a path, in any process."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def deadly_block(path, start, stop, sign):
    """Return some rows of a .npy file; the first time, end the process of the worker instead."""
    if once(sign):
        os.kill(os.getpid(), signal.SIGKILL)
    return dense_block(path, start, stop)


def changing_block(n_rows):
    """Return rows that are others each time."""
    return np.random.default_rng().standard_normal((n_rows, D))


def full_block(n_rows, start):
    """Return rows; beyond the first block, raise as a worker without memory does."""
    if start:
        raise MemoryError
    return np.random.default_rng(0).standard_normal((n_rows, D))


def dense_block(path, start, stop):
    """Return some rows of a .npy file."""
    return np.load(path, mmap_mode="r")[start:stop].copy()


def csr_block(path, start, stop):
    """Return some rows of a .npy file as a CSR array."""
    return sparse.csr_array(dense_block(path, start, stop))


def die_in_the_third_pass(progress):
    """End the process that calls back."""
    if progress.n_rows > 2 * N_ROWS:
        os.kill(os.getpid(), signal.SIGKILL)


def run_client(address, path, checkpoint):
    """Run in a process of its own: it is killed in the middle of its run."""
    from distributed import Client

    import odeco

    with Client(address) as client:
        odeco.decompose_stream(
            *(path, K),
            method="core",
            rng=0,
            client=client,
            checkpoint=checkpoint,
            checkpoint_seconds=0,
            callback=die_in_the_third_pass,
        )
    Path(checkpoint).with_suffix(".survived").touch()


@contextmanager
def cluster_of_threads(n_workers=1, threads_per_worker=1):
    """A Dask cluster in this process; its pages have any free port, so that tests may run side by
    side.
    """
    distributed = pytest.importorskip("distributed")
    settings = {"n_workers": n_workers, "threads_per_worker": threads_per_worker}
    with (
        distributed.LocalCluster(**settings, processes=False, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as made,
    ):
        yield made


@contextmanager
def local_cluster(n_workers, allowed_failures):
    """A Dask cluster of worker processes that gives up a task after some deaths of its workers."""
    import dask
    import distributed

    settings = {
        "distributed.scheduler.allowed-failures": allowed_failures,
        "distributed.comm.timeouts.connect": "60s",
        # On a machine that is busy, a worker that was killed may take a while to start again.
        "distributed.deploy.lost-worker-timeout": "1 hour",
    }
    with (
        dask.config.set(settings),
        distributed.LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            dashboard_address=":0",
            silence_logs=50,
            processes=True,
        ) as cluster,
        distributed.Client(cluster) as made,
    ):
        yield made
