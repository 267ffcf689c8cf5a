"""Rows that arrive: sums that no cut changes, searches that are pushed, pulled, stopped and
resumed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from scipy import sparse

import odeco
from odeco.power.tracking import Tracker
from odeco.privacy.noise import SeededNoiseForTests


def planted_rows(n, d=20, k=3, *, noise=0.2, seed=0, basis_seed=0):
    """Skewed sources in Gaussian noise: the third moment is Σ 2 vᵢ⊗³, the noise adds nothing to
    it.
    """
    basis = np.linalg.qr(np.random.default_rng(basis_seed).standard_normal((d, k)))[0]
    generator = np.random.default_rng([seed, 1])
    rows = (
        generator.standard_gamma(1.0, size=(n, k)) - 1
    ) @ basis.T + noise * generator.standard_normal((n, d))
    return rows, odeco.Components(2 * np.ones(k), basis)


@pytest.mark.parametrize("method", ["power", "core", "entries"])
@pytest.mark.parametrize(
    "kind", [np.asarray, sparse.csr_array, lambda rows: np.asarray(rows, np.float32)]
)
def test_pushed_in_any_pieces_equals_pulled_bit_for_bit(method, kind):
    rows, _ = planted_rows(5000)
    settings = {"method": method, "rng": 3}
    settings |= (
        {"batch_size": 150, "n_restarts": 4, "n_iterations": 10} if method == "power" else {}
    )
    needed = 3 * 10 * 150 if method == "power" else 5000
    pulled = odeco.decompose_stream(iter([kind(rows)]), 3, **settings)
    for seed in range(3):
        generator = np.random.default_rng(seed)
        online, start = odeco.OnlineDecomposer(3, **settings), 0
        while start < needed:
            stop = min(needed, start + int(generator.integers(1, 400)))
            online.partial_fit(kind(rows[start:stop]))
            start = stop
        assert np.array_equal(online.result().vectors, pulled.vectors)
        assert np.array_equal(online.result().weights, pulled.weights)


def test_an_online_run_tells_how_far_it_is_and_what_it_has_found():
    rows, truth = planted_rows(6000)
    online = odeco.OnlineDecomposer(
        3, method="power", batch_size=100, n_restarts=5, n_iterations=10, rng=0
    )
    assert online.progress.n_rows_needed == 3000
    with pytest.raises(odeco.NothingFoundError) as caught:
        online.result()
    expected = "At least one component must be finished. None is after 0 rows. All take 3,000 rows."
    assert str(caught.value) == expected
    online.partial_fit(rows[:1250])
    progress = online.progress
    assert progress.stage == "component 2 of 3, iteration 3"
    assert (progress.n_rows, progress.n_rows_needed, progress.fraction) == (1250, 1750, 1250 / 3000)
    assert online.result().weights.shape == (1,)
    online.partial_fit(rows[1250:])
    assert online.progress.stage == "refining"
    result = online.result()
    assert result.weight_errors.shape == result.angle_errors.shape == (3,)
    assert odeco.match(result, truth).cosines.min() > 0.9


def test_rows_that_follow_refine_what_was_found():
    """Errors fall as one over the square root of rows: 64 times the rows, an eighth of the error,
    within a half.
    """
    errors = []
    for n in (4000, 256_000):
        rows, truth = planted_rows(n, d=10)
        online = odeco.OnlineDecomposer(3, method="core", rng=0).partial_fit(rows)
        errors.append(np.mean(odeco.match(online.result(), truth).angles))
    assert 0.5 < errors[1] / errors[0] * 8 < 1.5


@pytest.mark.slow
def test_forgetting_follows_a_distribution_that_drifts():
    early, _ = planted_rows(30_000, d=10, seed=1, basis_seed=1)
    late, new = planted_rows(30_000, d=10, seed=2, basis_seed=1)
    angle = 0.6  # turn the first vector towards a direction that no component has
    free = np.linalg.qr(
        np.hstack([new.vectors, np.random.default_rng(0).standard_normal((10, 1))])
    )[0][:, 3]
    turned = np.cos(angle) * new.vectors[:, 0] + np.sin(angle) * free
    late = late + np.outer(late @ new.vectors[:, 0], turned - new.vectors[:, 0])
    truth = odeco.Components(2 * np.ones(3), np.column_stack([turned, new.vectors[:, 1:]]))
    keeping, following = (
        odeco.OnlineDecomposer(3, method="core", rng=0, **settings)
        .partial_fit(early)
        .partial_fit(late)
        .result()
        for settings in ({}, {"batch_size": 500, "forgetting": 0.8})
    )
    assert odeco.match(following, truth).angles.max() < 0.2
    assert odeco.match(keeping, truth).angles.max() > 0.2


@pytest.mark.slow
@pytest.mark.parametrize("source", ["array", "file", "stream"])
def test_core_finds_what_was_planted_with_honest_standard_errors(source, tmp_path):
    """The root mean square of angle over standard error is one; within a half, over 15 components
    of 29 directions.
    """
    ratios = []
    for seed in range(5):
        rows, truth = planted_rows(20_000, d=30, seed=seed)
        if source == "file":
            np.save(tmp_path / "rows.npy", rows)
        data = {"array": rows, "file": tmp_path / "rows.npy", "stream": iter([rows])}[source]
        result = odeco.decompose_stream(data, 3, method="core", rng=seed)
        matched = odeco.match(result, truth)
        ratios.extend(matched.angles / result.angle_errors[matched.found_index])
        assert np.all(np.abs(matched.weight_errors) < 5 * result.weight_errors[matched.found_index])
    assert 0.5 < np.sqrt(np.mean(np.square(ratios))) < 1.5


@pytest.mark.parametrize("source", ["array", "stream"])
def test_the_whole_moment_at_once_is_decomposed_as_a_tensor_of_the_same_entries_is(source):
    """Both see the same sample, so they differ by less than a tenth of what either errs by."""
    rows, truth = planted_rows(20_000)
    data = rows if source == "array" else iter([rows])
    result = odeco.decompose_stream(data, 3, method="entries", rng=0)
    exact = odeco.decompose(
        np.einsum("ni,nj,nk->ijk", rows, rows, rows, optimize=True) / 20_000, 3, rng=0
    )
    assert (
        odeco.match(result, exact.components).angles.max()
        < 0.1 * odeco.match(result, truth).angles.min()
    )
    assert result.n_rows == 20_000
    assert result.n_passes == (2 if source == "array" else 1)  # one pass more that refines


def test_symmetric_rows_are_sent_to_the_fourth_moment():
    rows = np.random.default_rng(3).laplace(size=(3000, 5))
    with pytest.raises(odeco.RankError, match=r"no odd moments: order=4 with moment='cumulant'"):
        odeco.decompose_stream(rows, "auto", rng=0)
    assert len(odeco.decompose_stream(rows, "auto", order=4, moment="cumulant", rng=0).weights) == 5


@pytest.mark.parametrize("source", ["array", "stream", "core"])
def test_noise_is_not_called_clear(source):
    """Rows that did not find a component exceed 3 standard errors with a chance of 1 in 370; none
    of 18 here.
    """
    for seed in range(6):
        rows = np.random.default_rng([41, seed]).normal(size=(4000, 15))
        data = iter([rows]) if source == "stream" else rows
        found = odeco.decompose_stream(
            data, 3, rng=seed, method="core" if source == "core" else "auto"
        )
        assert not found.clear.any()
        assert "None of them is determined" in found.verdict


def test_the_whole_moment_of_too_many_columns_is_refused():
    with pytest.raises(
        ValueError, match=r"rows must have at most 400 columns\. Got 401\. Take method='core'\."
    ):
        odeco.decompose_stream(np.ones((2, 401)), 1, method="entries")


@pytest.mark.slow
def test_higher_moments_work_too():
    generator = np.random.default_rng(0)
    basis = np.linalg.qr(generator.standard_normal((12, 2)))[0]
    rows = basis.T[generator.choice(2, size=4000, p=[0.6, 0.4])]
    for order in (4, 5):
        result = odeco.decompose_stream(rows, 2, order=order, rng=0)
        np.testing.assert_allclose(result.weights, [0.6, 0.4], atol=5 * np.sqrt(0.24 / 4000))
        assert (
            odeco.match(result, odeco.Components([0.6, 0.4], basis, order)).cosines.min() > 1 - 1e-9
        )


def test_a_stream_that_ends_too_early_says_what_it_found():
    rows, _ = planted_rows(3700)
    with pytest.raises(odeco.StreamEndedError) as caught:
        odeco.decompose_stream(
            rows, 4, method="power", batch_size=100, n_restarts=3, n_iterations=25, rng=0
        )
    assert str(caught.value) == (
        "The stream ended after 37 of the 100 batches this plan needs (4 components x 25 "
        "iterations of 100 rows). 1 component was found; it is in `error.found`. Pass more rows, "
        "or a smaller batch_size."
    )
    assert caught.value.found.n_components == 1
    with pytest.raises(
        odeco.StreamEndedError, match=r"A search for 4 components needs at least 8 rows\. Got 7\."
    ):
        odeco.decompose_stream(iter([rows[:7]]), 4, method="core", rng=0)


def test_a_plan_without_its_batch_size_is_refused():
    with pytest.raises(ValueError, match='`batch_size` must be given for method="power"'):
        odeco.decompose_stream(np.ones((5, 5)), 1, method="power")
    with pytest.raises(
        ValueError,
        match=r"`method` must be one of 'auto', 'core', 'power', 'entries'\. Got 'svd'\.",
    ):
        odeco.decompose_stream(np.ones((5, 5)), 1, method="svd")
    with pytest.raises(ValueError, match=r"`forgetting` must be a number in \(0, 1\]\. Got 0\."):
        odeco.OnlineDecomposer(1, forgetting=0)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"n_restarts": -5},
            (
                "`n_restarts` is not used by method='auto'. Got -5. Leave it out, or pass "
                "method='power'."
            ),
        ),
        (
            {"n_iterations": "x"},
            "`n_iterations` is not used by method='auto'. Got 'x'. Leave it out, or pass method=",
        ),
        (
            {"method": "power", "n_restarts": -5},
            "`n_restarts` must be an int of at least 1. Got -5.",
        ),
        (
            {"method": "power", "n_iterations": "x"},
            "`n_iterations` must be an int of at least 1. Got 'x'.",
        ),
        ({"method": "power"}, '`batch_size` must be given for method="power"'),
        (
            {"forgetting": 0.5},
            "`batch_size` must be given for `forgetting` below 1, whose unit it is. Got None.",
        ),
        (
            {"epsilon": 1.0, "delta": 1e-9, "norm_bound": 1.0},
            "`batch_size` must be given for a private run",
        ),
        (
            {"batch_size": 10},
            "`batch_size` is not used by method='auto': everything depends on the count of rows.",
        ),
        (
            {"method": "entries", "batch_size": 10, "forgetting": 0.5},
            "`forgetting` is not used by method='entries'. Got 0.5. Leave it out, or",
        ),
        ({"memory": 0}, "`memory` must be a number"),
        (
            {"neighbour_relation": "replace"},
            "`neighbour_relation` is for private runs. Got 'replace' without `epsilon`",
        ),
        (
            {"noise": SeededNoiseForTests(0)},
            "`noise` is for private runs. Got one without `epsilon`",
        ),
    ],
)
def test_a_pushed_run_refuses_what_it_would_not_use_and_checks_what_it_uses(settings, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        odeco.OnlineDecomposer(2, **settings)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"batch_size": 7},
            (
                "`batch_size` is not used by method='auto': everything depends on the count of "
                "rows. Got 7. Leave it out."
            ),
        ),
        ({"n_restarts": 3}, "`n_restarts` is not used by method='auto'. Got 3."),
        (
            {"method": "power", "batch_size": 5, "n_passes": 2},
            (
                "`n_passes` must be 1 for method='power', for fourth moments and for data that "
                "can be read once only."
            ),
        ),
        (
            {"method": "entries", "n_restarts": 3},
            "`n_restarts` is not used by method='entries'. Got 3.",
        ),
        (
            {"method": "entries", "order": 5},
            "method='entries' takes moments of order 3 or 4. Got order 5. Take method='core'.",
        ),
        ({"n_passes": 0}, "`n_passes` must be an int of at least 1. Got 0."),
        ({"method": "power", "batch_size": 0}, "`batch_size` must be an int of at least 1. Got 0."),
        (
            {"checkpoint_seconds": -1},
            "`checkpoint_seconds` must be a number of at least 0. Got -1.",
        ),
    ],
)
def test_a_pulled_run_refuses_what_it_would_not_use_and_checks_what_it_uses(settings, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        odeco.decompose_stream(np.eye(5), 2, **settings)
    if "n_passes" in settings and "method" not in settings:
        with pytest.raises(ValueError, match="`n_passes` must be 1 for"):
            odeco.decompose_stream(iter([np.eye(5)]), 2, n_passes=2)


def test_a_pulled_run_goes_on_only_with_its_own_seed(tmp_path):
    rows, _ = planted_rows(500)
    path = tmp_path / "run.ckpt"

    def stop(progress):
        raise InterruptedError

    with pytest.raises(InterruptedError):
        odeco.decompose_stream(rows, 3, checkpoint=path, callback=stop, rng=0)
    with pytest.raises(
        odeco.FileFormatError,
        match=r"must be the checkpoint of this run\. It has seed=\d+, the run seed=",
    ):
        odeco.decompose_stream(rows, 3, checkpoint=path, rng=1)
    with pytest.raises(
        odeco.FileFormatError,
        match=r"It is that of a run that reads its own data\. Pass it to odeco\.dec",
    ):
        odeco.OnlineDecomposer.load(path)
    resumed = odeco.decompose_stream(rows, 3, checkpoint=path, rng=0)
    assert np.array_equal(resumed.vectors, odeco.decompose_stream(rows, 3, rng=0).vectors)


def test_a_bad_row_in_a_push_over_several_batches_changes_nothing():
    rows, _ = planted_rows(2000)
    online = odeco.OnlineDecomposer(
        3, method="power", batch_size=100, n_restarts=3, n_iterations=5, rng=0
    ).partial_fit(rows[:130])
    twin = odeco.OnlineDecomposer(
        3, method="power", batch_size=100, n_restarts=3, n_iterations=5, rng=0
    ).partial_fit(rows[:130])
    spoilt = rows[130:1000].copy()
    spoilt[700, 3] = np.nan
    with pytest.raises(ValueError, match=r"^Row 700 holds NaN in column 3\."):
        online.partial_fit(spoilt)
    assert online.n_rows == 130
    assert np.array_equal(
        online.partial_fit(rows[130:]).result().vectors,
        twin.partial_fit(rows[130:]).result().vectors,
    )


@pytest.mark.parametrize("method", ["power", "core", "entries"])
def test_a_checkpoint_after_any_push_goes_on_to_the_same_bits(method, tmp_path):
    rows, _ = planted_rows(2500)
    settings = {"method": method, "rng": 0}
    settings |= {"batch_size": 100, "n_restarts": 3, "n_iterations": 6} if method == "power" else {}
    expected = odeco.OnlineDecomposer(3, **settings).partial_fit(rows).result()
    online = odeco.OnlineDecomposer(3, **settings)
    for piece in np.array_split(rows, 31):
        online.save(tmp_path / "run.ckpt")
        online = odeco.OnlineDecomposer.load(tmp_path / "run.ckpt").partial_fit(piece)
    assert np.array_equal(online.result().vectors, expected.vectors)
    assert np.array_equal(online.result().angle_errors, expected.angle_errors)


def test_a_checkpoint_of_another_dimension_or_run_is_refused(tmp_path):
    rows, _ = planted_rows(500)
    path = tmp_path / "run.ckpt"
    odeco.OnlineDecomposer(3, rng=0).partial_fit(rows).save(path)
    with pytest.raises(ValueError, match=r"Rows must have shape \(n, 20\)\. Got shape \(1, 21\)\."):
        odeco.OnlineDecomposer.load(path).partial_fit(np.ones((1, 21)))
    with pytest.raises(
        odeco.FileFormatError, match=r"must be the checkpoint of this run\. It has n_passes=1"
    ):
        odeco.decompose_stream(rows, 3, checkpoint=path)
    path.unlink()

    def stop(progress):
        if progress.n_rows > 700:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        odeco.decompose_stream(rows, 3, checkpoint=path, checkpoint_seconds=0, callback=stop, rng=0)
    with pytest.raises(
        odeco.FileFormatError, match=r"It has n_components=3, the run n_components=2\."
    ):
        odeco.decompose_stream(rows, 2, checkpoint=path)
    with pytest.raises(odeco.FileFormatError, match="It has source="):
        odeco.decompose_stream(rows + 1, 3, checkpoint=path)
    resumed = odeco.decompose_stream(rows, 3, checkpoint=path)
    assert np.array_equal(resumed.vectors, odeco.decompose_stream(rows, 3, rng=0).vectors)
    assert not path.exists()


RUN = """
import sys, time, numpy as np, odeco
rows, checkpoint, method, answer = sys.argv[1:]
loop = dict(batch_size=700, n_restarts=8, n_iterations=12) if method == "power" else {}
result = odeco.decompose_stream(rows, 3, method=method, **loop, rng=0,
    checkpoint=checkpoint or None, checkpoint_seconds=0, callback=lambda _: time.sleep(0.05))
result.components.save(answer)
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["power", "core"])
def test_a_run_killed_at_random_moments_ends_with_the_same_bits(method, tmp_path):
    rows, _ = planted_rows(26_000, d=400)
    np.save(tmp_path / "rows.npy", rows)

    def start(checkpoint, answer):
        command = [sys.executable, "-c", RUN, tmp_path / "rows.npy", checkpoint, method, answer]
        return subprocess.Popen([str(part) for part in command])

    begun = time.monotonic()
    assert start("", tmp_path / "whole.npz").wait() == 0
    duration = time.monotonic() - begun
    whole = odeco.Components.load(tmp_path / "whole.npz")
    generator = np.random.default_rng(0)
    n_kills, checkpoint = 0, tmp_path / "run.ckpt"
    while True:
        process = start(checkpoint, tmp_path / "killed.npz")
        time.sleep(generator.uniform(0.3, 0.9) * duration)
        if n_kills == 8 or process.poll() is not None:
            assert process.wait() == 0
            break
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        n_kills += 1
    killed = odeco.Components.load(tmp_path / "killed.npz")
    assert n_kills >= 1
    assert np.array_equal(killed.vectors, whole.vectors)
    assert np.array_equal(killed.weights, whole.weights)
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith(".")) == [
        "killed.npz",
        "rows.npy",
        "whole.npz",
    ]


PEAK = """
import pathlib, sys, numpy as np, odeco
def peak():
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
before = peak()
d, n = int(sys.argv[1]), int(sys.argv[2])
def rows():
    block = np.random.default_rng(0).standard_normal((200, d), dtype=np.float32)
    for _ in range(n // 200):
        yield block
odeco.decompose_stream(rows(), 4, method="power", batch_size=n // 8, n_restarts=10, n_iterations=2, rng=0)
print(peak() - before)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_rows():
    few, many = (
        float(
            subprocess.run(
                [sys.executable, "-c", PEAK, "2000", n], capture_output=True, text=True, check=True
            ).stdout
        )
        for n in ("64000", "256000")  # both with several full chunks a batch
    )
    assert many < few + 5  # megabytes; the rows themselves grow from 512 to 2,048


def test_tracking_of_a_negative_weight_at_even_order_keeps_its_sign():
    truth = odeco.Components([2.0, -1.0], np.eye(4)[:, :2], order=4)
    tracking = Tracker.start(truth, n_rows=10)
    for _ in range(3):
        tracking = tracking.advance(truth.image(tracking.probes), 10)
    np.testing.assert_allclose(tracking.components.weights, [2, -1])
    np.testing.assert_allclose(tracking.components.vectors, np.eye(4)[:, :2], atol=1e-12)
    weight_errors, angle_errors = tracking.standard_errors()
    np.testing.assert_allclose([*weight_errors, *angle_errors], 0, atol=1e-12)


@pytest.mark.filterwarnings("ignore::odeco.errors.MisfitWarning")
@pytest.mark.parametrize("how", [{"n_passes": 1}, {}])
def test_weights_at_odd_orders_are_positive(how):
    """A component of noise has either sign, and −λ v ⊗ v ⊗ v is λ (−v) ⊗ (−v) ⊗ (−v)."""
    random = np.random.default_rng(0)
    rows = 0.5 * random.laplace(size=(20_000, 20))
    rows[:, :6] += 2 * (random.random((20_000, 1)) < [0.3, 0.2, 0.15, 0.05, 0.02, 0.01])
    result = odeco.decompose_stream(rows, 8, rng=0, **how)
    assert (result.weights > 0).all()
    assert np.mean((rows @ result.vectors[:, 0]) ** 3) > 0
