"""Files from anyone: whatever is wrong with them ends in an odeco error that names them, in little
memory and time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile

import fuzz
import numpy as np
import pytest

import odeco
from odeco._util import state as _rules
from odeco._util.files import load_arrays, save_arrays
from odeco.errors import SourceError
from odeco.io import as_source
from odeco.models import Communities, TensorLDA
from odeco.models.lda.moments import correction_factors

N_CASES = 15


@pytest.mark.slow
@pytest.mark.parametrize("kind", fuzz.KINDS)
def test_damaged_files_are_refused_by_name_or_read_as_other_good_files(kind, tmp_path):
    fuzzer = fuzz.Fuzzer(kind, tmp_path)
    fates = [fuzzer.run(seed) for seed in range(N_CASES)]
    assert len(fates) == N_CASES
    assert "refused" in fates


@pytest.mark.parametrize("name", ["components.weights", "values", "images"])
def test_a_tracker_whose_squares_overflow_is_refused(name, tmp_path):
    path = tmp_path / "run.ckpt"
    fuzz.KINDS["run, tracking"][1](path)
    arrays = dict(np.load(path, allow_pickle=False))
    arrays[f"solver.tracker.{name}"].reshape(-1)[0] = 1e308
    with path.open("wb") as file:
        np.savez(file, **arrays)
    with pytest.raises(odeco.FileFormatError, match=r"run\.ckpt"):
        odeco.OnlineDecomposer.load(path)


def test_a_stream_of_topics_whose_sums_overflow_is_refused(tmp_path):
    path = tmp_path / "topics.npz"
    fuzz.KINDS["topic stream"][1](path)
    arrays = dict(np.load(path, allow_pickle=False))
    arrays["stream.sums.vector"][-1] = 1e308
    np.savez(path, **arrays)
    with pytest.raises(odeco.FileFormatError, match=r"topics\.npz.*finite squares"):
        TensorLDA.load(path)


def test_a_stream_of_topics_without_earlier_coordinates_orders_them_by_size(tmp_path):
    path = tmp_path / "topics.npz"
    fuzz.KINDS["topic stream"][1](path)
    arrays = dict(np.load(path, allow_pickle=False))
    arrays["stream.coordinates"][:] = 0
    np.savez(path, **arrays)
    model = TensorLDA.load(path)
    assert np.all(np.diff(model.diagnostics_.weights) >= 0)


def test_a_concentration_whose_square_overflows_leaves_the_factors_at_their_limits():
    assert correction_factors(1e308) == (1.0, 2.0)
    with pytest.raises(ValueError, match="`concentration` must be a number above 0 and below 1e"):
        Communities(2, concentration=1e308).fit(np.ones((9, 9)))


def run_limited(script, folder, megabytes=1500):
    """Run a script in a process that may take at most this much memory."""
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({megabytes} << 20,) * 2)\n"
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", limit + script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def write_inflated(path, arrays, zeros):
    """Write an archive with some arrays, and some that are nothing but zeros, of any length and
    next to no size.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)
        for name, (count, dtype) in zeros.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                head = {"descr": dtype, "fortran_order": False, "shape": count}
                np.lib.format.write_array_header_1_0(file, head)
                left = int(np.prod(count)) * np.dtype(dtype).itemsize
                while left:
                    step = min(left, 1 << 24)
                    file.write(bytes(step))
                    left -= step


COMMAND = "import sys; from odeco.cli import app; sys.exit(app.run({arguments!r}))"


@pytest.mark.slow
def test_info_describes_an_inflated_archive_without_unpacking_it(tmp_path):
    write_inflated(tmp_path / "bomb.npz", {}, {"tensor": ((150, 1000, 1000), "<f8")})
    assert (tmp_path / "bomb.npz").stat().st_size < 8e6  # 1.2 GB of noughts
    done = run_limited(COMMAND.format(arguments=["info", "bomb.npz"]), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "150 x 1,000 x 1,000" in done.stdout
    done = run_limited(COMMAND.format(arguments=["info", "--check", "bomb.npz"]), tmp_path)
    assert done.returncode == 1
    assert (
        "An array in bomb.npz must not be far larger than the file. 'tensor' takes 1,200,000,000"
        in done.stderr
    )


@pytest.mark.slow
def test_a_row_that_is_far_larger_than_its_file_is_refused(tmp_path):
    n_stored = 60_000_000
    arrays = {"indptr": np.array([0, n_stored]), "shape": np.array([1, 50])}
    write_inflated(
        tmp_path / "rows.npz",
        arrays,
        {"data": ((n_stored,), "<f8"), "indices": ((n_stored,), "<i4")},
    )
    assert (tmp_path / "rows.npz").stat().st_size < 5e6
    done = run_limited(
        COMMAND.format(arguments=["decompose", "--rows", "rows.npz", "-k", "2"]), tmp_path
    )
    assert done.returncode == 1
    error = (
        "Error: A row of rows.npz must not be far larger than its file. Row 0 takes 720,000,000 "
        "bytes"
    )
    assert done.stderr.splitlines()[-1].startswith(error)


def test_a_checkpoint_with_more_rows_in_its_sum_than_a_batch_holds_is_refused(tmp_path):
    path = tmp_path / "run.ckpt"
    odeco.OnlineDecomposer(2, rng=0).partial_fit(np.eye(6)).save(path)
    header, arrays = load_arrays(path, "stream run")
    save_arrays(path, "stream run", header, {**arrays, "run.sum.n_rows": np.array(1200)})
    with pytest.raises(
        odeco.FileFormatError, match=r"run\.ckpt .*its sum must hold fewer rows than a batch"
    ):
        odeco.OnlineDecomposer.load(path)


@pytest.mark.parametrize(
    "load", [odeco.load_result, odeco.OnlineDecomposer.load, odeco.Components.load]
)
def test_a_pipe_is_refused_and_not_waited_for(load, tmp_path):
    os.mkfifo(tmp_path / "pipe.npz")
    with pytest.raises(
        odeco.FileFormatError,
        match=r"pipe\.npz is not a complete odeco file: it is no regular file",
    ):
        load(tmp_path / "pipe.npz")
    with pytest.raises(SourceError, match=r"^pipe\.npz cannot be opened: it is not a regular file"):
        as_source(tmp_path / "pipe.npz")


def test_a_pipe_in_place_of_a_ledger_is_refused(tmp_path):
    path = tmp_path / "run.ckpt"
    private = {"epsilon": 1.0, "delta": 1e-6, "norm_bound": 1.0}
    odeco.OnlineDecomposer(2, batch_size=10, rng=0, **private).partial_fit(np.eye(6)).save(path)
    (tmp_path / "run.ckpt.ledger").unlink()
    os.mkfifo(tmp_path / "run.ckpt.ledger")
    with pytest.raises(
        odeco.FileFormatError,
        match=r"run\.ckpt\.ledger must be a privacy ledger file\. It is no file",
    ):
        odeco.OnlineDecomposer.load(path)


def test_two_entries_of_one_name_are_refused(tmp_path):
    path = tmp_path / "components.npz"
    odeco.Components([1.0], np.eye(3)[:, :1]).save(path)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("weights.npy", archive.read("weights.npy"))
    with pytest.raises(odeco.FileFormatError, match="it holds two entries of one name"):
        odeco.Components.load(path)


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (_rules.whole(1, 5), [1, 5], [0, 6, 1.0, True, "1", None, 10**30]),
        (_rules.number(0, 1), [0, 1, 0.5], [-0.1, 2, True, "x", float("nan"), None]),
        (_rules.number(), [1e308], [float("inf"), float("nan")]),
        (_rules.text(), ["", "x"], [b"x", 1, None]),
        (_rules.flag(), [True], [1, "true"]),
        (_rules.each(_rules.whole()), [[], [1, 2]], [[1, "x"], {}, "12"]),
        (_rules.record({"a": _rules.whole()}), [{"a": 1}], [{}, {"a": 1, "b": 2}, [1], {"a": "1"}]),
        (
            _rules.array("k"),
            [np.ones(3)],
            [np.ones(3, np.float32), np.ones((1, 3)), np.array([np.nan]), [1.0]],
        ),
        (
            _rules.array(kind="i", low=0),
            [np.array(3)],
            [np.array(-1), np.array(3.0), np.array([3])],
        ),
        (
            _rules.unit_vectors("d", "k"),
            [np.eye(3)],
            [2 * np.eye(3), np.zeros((3, 1)), np.full((3, 3), 1e300)],
        ),
    ],
)
def test_a_rule_takes_what_it_requires_and_nothing_else(rule, good, bad):
    for value in good:
        rule(value, "place", {})
    for value in bad:
        with pytest.raises(ValueError, match="`place"):
            rule(value, "place", {})
