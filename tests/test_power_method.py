"""Plans, and searches that are saved in the middle and go on as if nothing had happened."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import odeco
from odeco import Components, FileFormatError
from odeco.datasets import gaussian_noise, planted_orthogonal
from odeco.power import PowerSolver, Schedule, run, step
from odeco.power.steps import normalise, uniform_starts


def test_defaults_follow_the_theorem():
    schedule = Schedule.default(100, 10)
    assert schedule.n_restarts == 47  # 2 · 10 · ln 10 = 46.05
    assert schedule.n_iterations == 27  # 10 + log2(100 / 1e-3) = 26.6
    assert Schedule.default(100, 1).n_restarts == 10
    assert Schedule.default(100, 100).n_restarts == 64
    assert (
        Schedule.default(100, 1, tolerance=1e-10).n_iterations == 50
    )  # 10 + log2(100 / 1e-10) = 49.9


@pytest.mark.parametrize(
    ("schedule", "order"),
    [
        (Schedule(3, 4, 6), 3),
        (Schedule(3, 4, 30, tolerance=1e-10), 3),
        (Schedule(2, 4, 30, tolerance=1e-10), 4),
        (Schedule(3, 4, 6, weight_from="value"), 3),
        (Schedule(3, 4, 6, weight_from="last_image"), 3),
    ],
)
def test_a_solver_saved_after_any_reply_ends_with_bit_identical_results(tmp_path, schedule, order):
    tensor = planted_orthogonal(7, 3, order=order, rng=0)
    expected = run(tensor, schedule, rng=1)
    solver = PowerSolver.start(schedule, order=order, parts=tensor.parts, rng=1)
    stages = set()
    while not solver.done:
        solver = step(tensor, solver)
        stages.add(solver.stage)
        solver.save(tmp_path / "solver.npz")
        solver = PowerSolver.load(tmp_path / "solver.npz")
    assert np.array_equal(solver.components.vectors, expected.components.vectors)
    assert np.array_equal(solver.components.weights, expected.components.weights)
    assert [pair.history for pair in solver.found] == [pair.history for pair in expected.found]
    if schedule.tolerance:
        assert "polish" in stages
    if schedule.weight_from == "value":
        assert "weight" in stages


def test_an_exact_tensor_stops_early_and_is_polished():
    tensor = planted_orthogonal(50, 3, rng=0)
    eager = run(tensor, Schedule(3, 10, 500, tolerance=1e-6), rng=0)
    assert all(pair.n_iterations < 40 for pair in eager.found)
    assert all(pair.residual < 1e-14 for pair in eager.found)


def test_a_fixed_count_never_stops_early():
    solver = run(planted_orthogonal(10, 2, rng=0), Schedule(2, 5, 60), rng=0)
    assert [pair.n_iterations for pair in solver.found] == [61, 61]


def test_the_weight_of_algorithm_2_is_read_off_the_last_image():
    tensor = planted_orthogonal(6, 1, rng=0)
    schedule = Schedule(1, 3, 4, weight_from="last_image")
    solver = PowerSolver.start(schedule, parts=(6,), rng=0)
    for _ in range(3):
        solver = step(tensor, solver)
    image = tensor.image(solver.probes)
    values = np.sum(solver.probes * image, axis=0)
    best = int(np.argmax(values))
    found = step(tensor, solver).found[0]
    assert found.weight == pytest.approx(values[best], rel=1e-14)
    np.testing.assert_allclose(
        found.vector, image[:, best] / np.linalg.norm(image[:, best]), rtol=1e-14
    )


def test_starts_are_uniform_on_the_sphere():
    starts = uniform_starts(np.random.default_rng(0), (3,), 20_000)
    np.testing.assert_allclose(np.linalg.norm(starts, axis=0), 1)
    # The coordinates of a uniform point on the sphere in three dimensions are uniform on [-1, 1]
    # (Archimedes): mean 0, variance 1/3, each within five standard errors.
    assert np.all(np.abs(starts.mean(axis=1)) < 5 * np.sqrt(1 / 3 / 20_000))
    assert np.all(np.abs(np.mean(starts**2, axis=1) - 1 / 3) < 5 * np.sqrt(4 / 45 / 20_000))


def test_parts_are_kept_at_equal_length_and_a_zero_part_stays_where_it_was():
    block, fallback = np.array([[3.0], [4.0], [0.0]]), np.array([[1.0], [0.0], [1.0]])
    np.testing.assert_allclose(
        normalise(block, (2, 1), fallback).ravel(), np.array([0.6, 0.8, 1.0]) / np.sqrt(2)
    )
    np.testing.assert_allclose(normalise(block * 1e-200, (3,), fallback).ravel(), [0.6, 0.8, 0])


def test_the_callback_sees_every_state():
    seen = []
    odeco.decompose(planted_orthogonal(5, 2, rng=0), 2, method="power", rng=0, callback=seen.append)
    assert seen[-1].done
    assert [len(solver.found) for solver in seen] == sorted(len(solver.found) for solver in seen)


def test_the_user_s_generator_moves_on():
    generator = np.random.default_rng(0)
    first, second = (
        odeco.decompose(planted_orthogonal(5, 2, rng=0), 2, rng=generator) for _ in range(2)
    )
    np.testing.assert_allclose(first.weights, second.weights)
    assert generator.bit_generator.state != np.random.default_rng(0).bit_generator.state


def test_a_solver_is_read_by_plain_numpy_and_json(tmp_path):
    solver = run(planted_orthogonal(5, 2, rng=0), Schedule(2, 3, 20), rng=0)
    solver.save(tmp_path / "solver.npz")
    with np.load(tmp_path / "solver.npz", allow_pickle=False) as archive:
        header = json.loads(str(archive["header"]))
        np.testing.assert_array_equal(archive["found.1.vector"], solver.components.vectors[:, 1])
        assert archive["schedule.n_components"] == 2
    assert header == {"kind": "power solver", "format_version": 3}


def test_files_of_another_kind_a_newer_version_or_damaged_are_refused(tmp_path):
    path = tmp_path / "file.npz"
    Components([1.0], np.ones((2, 1))).save(path)
    with pytest.raises(FileFormatError, match=r"must hold power solver\. It holds components\."):
        PowerSolver.load(path)
    whole = path.read_bytes()
    for length in (0, 1, 50, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(FileFormatError, match="is not a complete odeco file"):
            Components.load(path)
    np.savez(path, header=np.array(json.dumps({"kind": "components", "format_version": 99})))
    with pytest.raises(
        FileFormatError, match=r"has format version 99\. This odeco reads up to 3\."
    ):
        Components.load(path)
    np.savez(path, header=np.array([{"kind": "components"}], dtype=object))
    with pytest.raises(FileFormatError, match="is not a complete odeco file"):
        Components.load(path)
    with pytest.raises(FileNotFoundError):
        Components.load(tmp_path / "missing.npz")


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "file.npz"
    old = Components([1.0], np.ones((2, 1)))
    old.save(path)
    monkeypatch.setattr(np, "savez", lambda *_, **__: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        Components([2.0], np.ones((2, 1))).save(path)
    assert Components.load(path).weights == old.weights
    assert list(tmp_path.iterdir()) == [path]


THREADS = """
import numpy as np, odeco, sys
from odeco.datasets import gaussian_noise, planted_orthogonal
T = planted_orthogonal(150, 2, rng=0).to_dense() + 0.001 * gaussian_noise(150, rng=0).entries
sys.stdout.write(odeco.decompose(T, 2, rng=0).vectors.tobytes().hex())
"""


@pytest.mark.slow
def test_the_number_of_threads_changes_no_bit():
    outputs = {
        subprocess.run(
            [sys.executable, "-c", THREADS],
            env={**os.environ, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in ("1", "2", "3")
    }
    assert len(outputs) == 1
    assert len(outputs.pop()) == 150 * 2 * 8 * 2


def test_a_noisy_tensor_never_yields_nan():
    for seed in range(5):
        tensor = gaussian_noise(8, rng=seed)
        found = run(tensor, Schedule(8, 5, 100, tolerance=1e-10), rng=seed).components
        assert np.isfinite(found.weights).all()
        assert np.isfinite(found.vectors).all()
