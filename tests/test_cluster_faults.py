"""What a cluster can do wrong: workers that die, a scheduler that is lost, memory, partitions that
change.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import time

import numpy as np
import pytest
from cluster_parts import D, K, changing_block, deadly_block, full_block, local_cluster, planted

import odeco
import odeco.online.dask
from odeco.cli.app import run as run_command
from odeco.errors import ClusterError

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

EDGES = (0, 1_000, 4_000)
ROWS = planted(EDGES[-1])


@pytest.fixture
def path(tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    return tmp_path / "rows.npy"


@pytest.fixture
def strict_client():
    """A cluster that gives up a task as soon as one worker dies under it."""
    with local_cluster(1, allowed_failures=0) as made:
        yield made


def array_of(make, *arguments):
    """A Dask array whose blocks a function makes."""
    cuts = list(itertools.pairwise(EDGES))
    blocks = [dask.delayed(make, pure=True)(*(each(cut) for each in arguments)) for cut in cuts]
    lazy = [
        da.from_delayed(block, (cut[1] - cut[0], D), float)
        for block, cut in zip(blocks, cuts, strict=True)
    ]
    return da.concatenate(lazy)


@pytest.mark.slow
def test_a_block_of_a_dask_array_whose_worker_died_is_computed_again(strict_client, path, tmp_path):
    sign = str(tmp_path / "dead")
    rows = array_of(
        deadly_block, lambda _: str(path), lambda cut: cut[0], lambda cut: cut[1], lambda _: sign
    )
    held = strict_client.compute(
        rows.blocks[0]
    )  # somebody else wants the block, so that its failure is remembered
    distributed.wait(held)
    assert held.status == "error"
    (tmp_path / "dead").unlink()  # the next attempt kills its worker too
    found = odeco.decompose_stream(rows, K, rng=0)
    plain = odeco.decompose_stream(ROWS, K, rng=0)
    np.testing.assert_array_equal(found.vectors, plain.vectors)
    again = odeco.decompose_stream(
        rows, K, rng=0
    )  # the failure of the first keys is still remembered
    np.testing.assert_array_equal(again.vectors, plain.vectors)


def test_partitions_that_differ_each_time_are_refused(client):
    rows = array_of(changing_block, lambda cut: cut[1] - cut[0])
    with pytest.raises(
        odeco.SourceError, match="must give the same rows each time they are computed"
    ):
        odeco.decompose_stream(rows, K, rng=0)


def test_a_task_without_memory_says_so_and_names_the_checkpoint(client):
    rows = array_of(full_block, lambda cut: cut[1] - cut[0], lambda cut: cut[0])
    with pytest.raises(ClusterError, match="memory") as error:
        odeco.decompose_stream(rows, K, rng=0)
    assert "`checkpoint`" in str(error.value)
    with pytest.raises(ClusterError, match="memory"):
        odeco.online.dask.from_delayed([dask.delayed(full_block)(1000, 1)])


@pytest.mark.slow
def test_a_scheduler_that_is_lost_ends_the_run_with_its_checkpoint(path, tmp_path):
    checkpoint = tmp_path / "run.ckpt"
    address = tmp_path / "scheduler.json"
    programs = {
        "dask_scheduler": ["--port", "0", "--no-dashboard"],
        "dask_worker": ["--no-dashboard", "--nthreads", "1"],
    }
    scheduler, worker = (
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                f"distributed.cli.{name}",
                "--scheduler-file",
                str(address),
                *options,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for name, options in programs.items()
    )
    client = distributed.Client(scheduler_file=str(address), set_as_default=False, timeout=60)

    def lose(progress):
        if progress.n_rows > 2 * EDGES[-1]:
            scheduler.kill()

    begun = time.monotonic()
    with pytest.raises(ClusterError, match="is not reachable") as error:
        odeco.decompose_stream(
            path,
            K,
            rng=0,
            n_passes=4,
            client=client,
            checkpoint=checkpoint,
            checkpoint_seconds=1e9,
            callback=lose,
        )
    assert str(checkpoint) in str(error.value)
    assert time.monotonic() - begun < 60
    client.close(timeout=1)
    for process in (scheduler, worker):
        process.kill()
        process.wait()
    seen = []
    found = odeco.decompose_stream(
        path, K, rng=0, n_passes=4, checkpoint=checkpoint, callback=seen.append
    )
    assert seen[0].n_rows > 2 * EDGES[-1]
    plain = odeco.decompose_stream(path, K, rng=0, n_passes=4)
    np.testing.assert_array_equal(found.vectors, plain.vectors)


@pytest.mark.slow
@pytest.mark.parametrize("address", ["nonsense://x", "tcp://127.0.0.1:9", "nothing"])
def test_a_scheduler_that_cannot_be_reached_is_named_soon(address, path, capsys):
    begun = time.monotonic()
    assert run_command(["decompose", "--rows", str(path), "-k", "3", "--scheduler", address]) == 1
    assert time.monotonic() - begun < 30
    said = capsys.readouterr().err
    assert address in said
    assert "--scheduler" in said
    assert "Traceback" not in said
