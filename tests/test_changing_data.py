"""Data that change: under a run they end it by name, and a run that was interrupted goes on with
the same data only.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

import odeco
from odeco._util.files import load_arrays, save_arrays
from odeco.errors import SourceError
from odeco.io import as_source

ROWS = np.random.default_rng(0).gamma(1.0, size=(4000, 6)) - 1


class StopError(Exception):
    """Ends a run from its callback."""


def stop_after(n_calls):
    calls = []

    def callback(progress):
        calls.append(progress)
        if len(calls) == n_calls:
            raise StopError

    return callback


# ---- files that change under a run ---------------------------------------------------------------

TRUNCATED = """
import os, sys
import numpy as np, odeco
from odeco.errors import SourceError
from odeco.io import as_source
path = sys.argv[1]
data = np.load(path, mmap_mode="r") if sys.argv[2] == "mapped" else path
blocks = iter(as_source(data, batch_rows=100))
next(blocks)
os.truncate(path, 4096)
try:
    for block in blocks:
        block.sum()
except SourceError as error:
    print(error)
"""


@pytest.mark.parametrize("how", ["by its path", "mapped"])
def test_a_file_that_is_cut_short_while_it_is_mapped_does_not_end_the_process(how, tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    arguments = [sys.executable, "-c", TRUNCATED, str(tmp_path / "rows.npy"), how]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "must not change while it is read. Its size changed since it was opened." in done.stdout


@pytest.mark.parametrize("change", ["rewritten", "replaced", "removed"])
@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv"])
def test_a_file_that_changes_between_passes_ends_the_run_by_name(change, suffix, tmp_path):
    path = tmp_path / f"rows{suffix}"

    def write(rows):
        if suffix == ".npy":
            np.save(path, rows)
        elif suffix == ".npz":
            sparse.save_npz(path, sparse.csr_array(rows), compressed=False)
        else:
            np.savetxt(path, rows, delimiter=",", fmt="%.6f")

    write(ROWS[:1000])
    source = as_source(path)
    assert (
        sum(len(block.indptr) - 1 if sparse.issparse(block) else len(block) for block in source)
        == 1000
    )
    status = path.stat()
    if change == "rewritten":
        write(-ROWS[:1000])
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    elif change == "replaced":
        path.rename(tmp_path / "old")
        write(ROWS[:1000])
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    else:
        path.unlink()
    with pytest.raises(
        SourceError, match=rf"^rows\{suffix} must not change while it is read\."
    ) as raised:
        list(source)
    assert raised.value.path == path


def test_a_stream_that_gives_other_rows_in_its_second_pass_ends_a_run_with_a_checkpoint(tmp_path):
    passes = iter([ROWS, np.roll(ROWS, 64, axis=0)])
    with pytest.raises(
        SourceError, match=r"^The data must give the same rows in every pass\. They did not\."
    ):
        odeco.decompose_stream(
            lambda: iter([next(passes, ROWS)]), 2, rng=0, checkpoint=tmp_path / "run.ckpt"
        )


# ---- runs that go on -----------------------------------------------------------------------------


def interrupted(data, path, **settings):
    with pytest.raises(StopError):
        odeco.decompose_stream(data, 2, checkpoint=path, callback=stop_after(3), **settings)


def pieces(rows, n_pieces=40):
    return np.array_split(rows, n_pieces)


CHANGED = ROWS.copy()
CHANGED[5, 3] += 1e-9


@pytest.mark.parametrize("once", [False, True])
def test_a_stream_goes_on_only_with_the_rows_it_began_with(once, tmp_path):
    def data(rows, n_pieces=40):
        return iter(pieces(rows, n_pieces)) if once else (lambda: iter(pieces(rows, n_pieces)))

    settings = {"rng": 0}
    path = tmp_path / "run.ckpt"
    expected = odeco.decompose_stream(data(ROWS), 2, **settings)
    interrupted(data(ROWS), path, **settings)
    for other in (CHANGED, np.roll(ROWS, 1, axis=0)):
        with pytest.raises(
            SourceError,
            match=r"^The data must be those that the interrupted run was reading\. Its first ",
        ):
            odeco.decompose_stream(data(other), 2, checkpoint=path, **settings)
    # The same rows in other pieces are the same rows.
    result = odeco.decompose_stream(data(ROWS, 17), 2, checkpoint=path, **settings)
    np.testing.assert_array_equal(result.vectors, expected.vectors)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_an_array_goes_on_only_with_the_rows_it_began_with(kind, tmp_path):
    path, settings = tmp_path / "run.ckpt", {"rng": 0, "method": "core"}
    middle = ROWS[:1000].copy()
    middle[500, 2] += 1.0  # neither the first row nor the last
    interrupted(lambda: iter(pieces(ROWS[:1000])), tmp_path / "unused.ckpt", **settings)
    many = kind(np.tile(ROWS[:1000], (60, 1)))
    interrupted(many, path, **settings)
    changed = kind(np.tile(middle, (60, 1)))
    with pytest.raises(
        odeco.FileFormatError,
        match=r"run\.ckpt must be the checkpoint of this run\. It has source=",
    ):
        odeco.decompose_stream(changed, 2, checkpoint=path, **settings)


@pytest.mark.parametrize(
    ("other", "name"),
    [
        ({"rng": 1}, "seed"),
        ({"method": "power", "batch_size": 100}, "method"),
        ({"order": 4}, "order"),
        ({"n_passes": 4}, "n_passes"),
    ],
)
def test_another_seed_method_or_setting_is_refused(other, name, tmp_path):
    path = tmp_path / "run.ckpt"
    interrupted(lambda: iter(pieces(ROWS)), path, rng=0)
    with pytest.raises(odeco.FileFormatError, match=rf"It has {name}="):
        odeco.decompose_stream(
            lambda: iter(pieces(ROWS)), 2, checkpoint=path, **{"rng": 0, **other}
        )


def test_a_digest_that_was_tampered_with_is_refused(tmp_path):
    path = tmp_path / "run.ckpt"
    interrupted(lambda: iter(pieces(ROWS)), path, rng=0)
    header, arrays = load_arrays(path, "stream run")
    save_arrays(path, "stream run", {**header, "digest": "1:2:3"}, arrays)
    with pytest.raises(SourceError, match="must be those that the interrupted run was reading"):
        odeco.decompose_stream(lambda: iter(pieces(ROWS)), 2, checkpoint=path, rng=0)
