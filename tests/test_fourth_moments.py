"""Fourth moments and cumulants of rows in one pass: more components than columns, their number, and
their errors.
"""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest
from cluster_parts import cluster_of_threads
from scipy import sparse

import odeco
from odeco.errors import RankError
from odeco.online.fourth_moment import (
    N_GROUPS,
    PairMoments,
    as_matrix,
    group_numbers,
    jackknife,
    n_entries,
    sum_entries,
    sum_products,
    with_columns,
)
from odeco.online.fourth_solver import FourthMomentSolver
from odeco.tensors.coordinates import PackedCoordinates, flattened


def planted(d, k, n, *, seed=0, noise=0.0, shift=0.0):
    """Laplace sources, of fourth cumulant 12, in random unit directions; Gaussian noise adds
    nothing to cumulants.
    """
    generator = np.random.default_rng(seed)
    vectors = generator.standard_normal((d, k))
    vectors /= np.linalg.norm(vectors, axis=0)
    rows = (
        generator.laplace(size=(n, k)) @ vectors.T
        + noise * generator.standard_normal((n, d))
        + shift
    )
    return rows, odeco.Components(np.full(k, 12.0), vectors, order=4)


def cumulant_of(rows):
    """The fourth cumulant of rows from its definition."""
    centred = rows - rows.mean(axis=0)
    fourth = np.einsum(
        "ni,nj,nk,nl->ijkl", centred, centred, centred, centred, optimize=True
    ) / len(rows)
    second = centred.T @ centred / len(rows)
    for spec in ("ij,kl->ijkl", "ik,jl->ijkl", "il,jk->ijkl"):
        fourth -= np.einsum(spec, second, second)
    return fourth


@pytest.fixture
def frame():
    generator = np.random.default_rng(5)
    return np.hstack([generator.standard_normal((4, 4)), generator.standard_normal((4, 1))])


@pytest.mark.parametrize(
    "kind", [np.asarray, sparse.csr_array, lambda rows: np.asarray(rows, np.float32)]
)
def test_sums_over_pairs_are_those_of_their_definition(frame, kind):
    rows = np.random.default_rng(0).standard_normal((70, 4)).astype(np.float32).astype(np.float64)
    coordinates = np.hstack([(rows - frame[:, 4]) @ frame[:, :4], np.ones((70, 1))])
    pairs = PackedCoordinates(5, 2).powers(coordinates.T)
    entries = sum_entries(kind(rows), frame)
    assert entries.shape == (N_GROUPS, n_entries(4))
    for number, matrix in enumerate(entries):
        chosen = pairs[:, group_numbers(kind(rows)) == number]
        assert np.allclose(as_matrix(matrix, 4), chosen @ chosen.T, rtol=1e-12)
    weights = np.random.default_rng(1).standard_normal((10, 3))
    expected = pairs @ np.vstack([weights.T @ pairs[:10], pairs[10:]]).T
    products = sum_products(kind(rows), with_columns(frame, weights)).sum(axis=0)
    assert np.allclose(products, expected, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("cumulant", [True, False])
def test_moments_in_a_frame_are_those_of_the_rows(frame, cumulant):
    rows = np.random.default_rng(0).gamma(1.0, size=(300, 4)) + 3.0
    mean = sum_entries(rows, frame).sum(axis=0) / 300
    whole = PairMoments.of(mean, frame, None, cumulant=cumulant)
    inside = rows @ frame[:, :4]  # the map of a moment is the moment of the mapped rows
    expected = (
        cumulant_of(inside)
        if cumulant
        else np.einsum("ni,nj,nk,nl->ijkl", *[inside] * 4, optimize=True) / 300
    )
    scale = np.abs(expected).max()
    assert np.allclose(whole.flattening, flattened(expected), atol=1e-9 * scale, rtol=1e-9)
    basis = np.linalg.qr(np.random.default_rng(1).standard_normal((10, 3)))[0]
    products = sum_products(rows, with_columns(frame, basis)).sum(axis=0) / 300
    part = PairMoments.of(products.ravel(), frame, basis, cumulant=cumulant)
    assert np.allclose(part.flattening, whole.flattening @ basis, atol=1e-9 * scale)
    assert np.allclose(whole.mean, rows.mean(axis=0))
    if cumulant:
        assert np.allclose(whole.covariance, np.cov(rows.T, bias=True))


def test_the_jackknife_of_a_mean_is_its_standard_error():
    values = np.random.default_rng(0).standard_normal((12, 1))
    parts = np.array([np.delete(values, place, axis=0).mean(axis=0) for place in range(12)])
    expected = values.std(ddof=1) / np.sqrt(12)
    assert jackknife(values.mean(axis=0), parts, np.full(12, 7.0)) == pytest.approx(expected)


@pytest.mark.parametrize("moment", ["raw", "cumulant"])
@pytest.mark.parametrize(
    "kind", [np.asarray, sparse.csr_array, lambda rows: np.asarray(rows, np.float32)]
)
def test_pushed_in_any_pieces_equals_pulled_bit_for_bit(moment, kind, tmp_path):
    rows, _ = planted(4, 5, 9_000)
    settings = {"order": 4, "moment": moment, "rng": 3}
    pulled = odeco.decompose_stream(kind(rows), 5, **settings)
    streamed = odeco.decompose_stream(iter([kind(rows)]), 5, **settings)
    generator, online, start = np.random.default_rng(0), odeco.OnlineDecomposer(5, **settings), 0
    while start < len(rows):
        stop = start + int(generator.integers(1, 1000))
        online.save(tmp_path / "run.ckpt")
        online = odeco.OnlineDecomposer.load(tmp_path / "run.ckpt").partial_fit(
            kind(rows[start:stop])
        )
        start = stop
    results = [streamed, online.result()]
    if kind is np.asarray:
        np.save(tmp_path / "rows.npy", rows)
        results.append(
            odeco.decompose_stream(tmp_path / "rows.npy", 5, checkpoint=tmp_path / "c", **settings)
        )
    for name, result in itertools.product(
        ("weights", "vectors", "weight_errors", "angle_errors"), results
    ):
        assert np.array_equal(getattr(pulled, name), getattr(result, name)), name


def test_a_run_within_little_memory_goes_on_from_a_file_to_the_same_bits(tmp_path):
    rows, truth = planted(24, 8, 24_000)
    settings = {"order": 4, "moment": "cumulant", "memory": 9.0, "rng": 0}
    expected = odeco.OnlineDecomposer(8, **settings).partial_fit(rows)
    assert expected._run.solver.sums.width == 2 * 8 + 5
    online = odeco.OnlineDecomposer(8, **settings)
    for piece in np.array_split(rows, 7):
        online.save(tmp_path / "run.ckpt")
        online = odeco.OnlineDecomposer.load(tmp_path / "run.ckpt").partial_fit(piece)
    assert np.array_equal(online.result().vectors, expected.result().vectors)
    assert odeco.match(online.result(), truth).cosines.min() > 0.99


def test_directions_without_variance_are_left_out():
    rows, truth = planted(24, 8, 24_000)
    found = odeco.decompose_stream(rows, 8, order=4, moment="cumulant", rng=0)
    assert odeco.match(found, truth).cosines.min() > 0.99
    assert len(odeco.decompose_stream(rows, "auto", order=4, moment="cumulant", rng=0).weights) == 8


@pytest.mark.slow
def test_a_cluster_gives_the_bits_of_one_machine():
    da = pytest.importorskip("dask.array")
    rows, _ = planted(24, 8, 40_000)
    with cluster_of_threads(n_workers=2) as client:
        for memory in (256.0, 9.0):
            settings = {"order": 4, "moment": "cumulant", "memory": memory, "rng": 0}
            plain = odeco.decompose_stream(rows, 8, **settings)
            there = odeco.decompose_stream(
                da.from_array(rows, chunks=(7_001, 24)), 8, client=client, **settings
            )
            for name in ("weights", "vectors", "weight_errors", "angle_errors"):
                assert np.array_equal(getattr(plain, name), getattr(there, name)), name


@pytest.mark.parametrize("seed", range(3))
def test_more_components_than_columns_with_honest_errors(seed):
    """The mean square of 12 angles and weights over their errors is 1; 3 is beyond the 99.9 %
    quantile of χ²₁₂/12.
    """
    rows, truth = planted(8, 12, 150_000, seed=seed, noise=0.3, shift=50.0)
    found = odeco.decompose_stream(rows, 12, order=4, moment="cumulant", rng=0)
    matched = odeco.match(found, truth)
    assert matched.cosines.min() > 0.99
    assert found.clear.all()
    order = np.argmax(np.abs(truth.vectors.T @ found.vectors), axis=1)
    angles = matched.angles / found.angle_errors[order]
    weights = (found.weights[order] - 12) / found.weight_errors[order]
    # An angle has d − 1 = 7 degrees of freedom, so its square over that of its error is nearer to
    # 1.
    assert 0.3 < np.mean(angles**2) < 2
    assert np.mean(weights**2) < 3


def test_raw_moments_of_rows_that_are_each_one_of_several_vectors():
    """E[x⊗⁴] = Σ wᵢ aᵢ⊗⁴ without sampling errors across the vectors: recovery up to the shares of
    the rows.
    """
    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((5, 8))
    vectors /= np.linalg.norm(vectors, axis=0)
    rows = vectors.T[generator.integers(8, size=20_000)]
    truth = odeco.Components(np.full(8, 1 / 8), vectors, order=4)
    for number in (8, "auto"):
        found = odeco.decompose_stream(rows, number, order=4, rng=0)
        assert len(found.weights) == 8
        assert odeco.match(found, truth).cosines.min() > 1 - 1e-9
        assert np.all(np.abs(found.weights - 1 / 8) < 5 * np.sqrt(1 / 8 / 20_000))


@pytest.mark.slow
@pytest.mark.parametrize(("d", "k"), [(6, 3), (6, 8), (8, 12)])
def test_the_number_is_selected_and_its_confidence_stated(d, k):
    for seed in range(3):
        rows, _ = planted(d, k, 100_000, seed=10 + seed, noise=0.2)
        found = odeco.decompose_stream(rows, "auto", order=4, moment="cumulant", rng=0)
        assert len(found.weights) == k or k in found.rank_evidence.candidates
        assert found.rank_evidence.rank == len(found.weights)


@pytest.mark.parametrize(("d", "k", "width"), [(8, 10, 0), (24, 8, 53)])
def test_sorted_rows_have_the_number_of_shuffled_ones(d, k, width):
    rows, _ = planted(d, k, 60_000, seed=2, noise=0.2)
    for keys in (rows[:, 0], np.linalg.norm(rows, axis=1)):
        solver = FourthMomentSolver(d, 0, True, width)
        n_first = (
            solver.n_rows_wanted if width else 0
        )  # W is chosen by the first rows, which must be like the others
        later = rows[n_first:][np.argsort(keys[n_first:])]
        whole = np.concatenate([rows[:n_first], later])
        n_first = solver.n_rows_wanted
        solver = solver.advance(whole[:n_first], n_first)
        solver = solver.with_rows(whole[n_first:])
        assert solver.decomposed().rank_evidence.rank == k


def test_as_many_components_as_can_be_told_apart_are_certain():
    rows, _ = planted(4, 6, 400_000, seed=4)
    found = odeco.decompose_stream(rows, "auto", order=4, moment="cumulant", rng=0)
    assert len(found.weights) == 6
    assert found.rank_evidence.confidence > 0.5


def test_raw_moments_of_noisy_rows_are_refused_with_the_advice_to_take_cumulants():
    """Gaussian noise adds to all 55 eigenvalues of the flattening, of which 45 can be told
    apart.
    """
    generator = np.random.default_rng(0)
    rows = np.eye(10)[generator.integers(10, size=20_000)] + 0.3 * generator.standard_normal(
        (20_000, 10)
    )
    with pytest.raises(RankError, match=r"At most 45 .* At least 55 .* moment='cumulant'"):
        odeco.decompose_stream(rows, "auto", order=4, rng=0)


def test_gaussian_rows_have_no_component():
    """Each of 20 runs errs with a chance of 0.005 at most; two of them do with a chance of
    0.005.
    """
    wrong = 0
    for seed in range(20):
        rows = np.random.default_rng(seed).standard_normal((5_000, 5)) @ np.random.default_rng(
            1
        ).standard_normal((5, 5))
        try:
            odeco.decompose_stream(rows, "auto", order=4, moment="cumulant", rng=0)
        except RankError:
            continue
        wrong += 1
    assert wrong <= 1


@pytest.mark.parametrize(
    ("k", "settings", "text"),
    [
        (
            16,
            {"order": 4, "moment": "cumulant"},
            r"in \[1, 15\] for the fourth moment of 6 columns",
        ),
        (3, {"order": 5, "moment": "cumulant"}, "moment='cumulant' takes order=3, or order=4"),
        (3, {"order": 4, "moment": "central"}, "`moment` must be"),
        (
            3,
            {"order": 4, "moment": "cumulant", "method": "core"},
            "or order=4 and method='entries'",
        ),
        (3, {"order": 5, "method": "entries"}, "order 3 or 4"),
        (9, {"order": 4, "memory": 1e-3}, "`memory` must be at least"),
        (9, {"order": 4, "n_passes": 2}, "`n_passes` must be 1"),
    ],
)
def test_what_cannot_be_done_is_refused(k, settings, text):
    rows, _ = planted(6, 3, 2_000)
    with pytest.raises(ValueError, match=text):
        odeco.decompose_stream(rows, k, rng=0, **settings)


def test_bad_rows_change_nothing():
    rows, _ = planted(4, 5, 4_000)
    online = odeco.OnlineDecomposer(5, order=4, rng=0).partial_fit(rows)
    before = online.result().vectors
    for bad in (np.nan, np.inf, 1e200):
        wrong = rows[:2000].copy()
        wrong[1700, 2] = bad
        with pytest.raises(ValueError, match=r"Row 1,700|small enough"):
            online.partial_fit(wrong)
    assert np.array_equal(online.result().vectors, before)
    with pytest.raises(ValueError, match="must have a size between"):
        odeco.decompose_stream(rows * 1e40, 5, order=4, rng=0)
    with pytest.raises(ValueError, match="All rows are equal"):
        odeco.decompose_stream(np.ones((3000, 4)), 2, order=4, moment="cumulant", rng=0)


def test_units_of_columns_do_not_matter():
    rows, truth = planted(5, 7, 60_000)
    units = np.array([1e-9, 1.0, 1e6, 3.0, 1e3])
    plain = odeco.decompose_stream(rows, 7, order=4, moment="cumulant", rng=0)
    scaled = odeco.decompose_stream(rows * units, 7, order=4, moment="cumulant", rng=0)
    back = scaled.vectors / units[:, None]
    back /= np.linalg.norm(back, axis=0)
    assert np.allclose(np.abs(plain.vectors.T @ back).max(axis=0), 1, atol=1e-9)
    assert odeco.match(plain, truth).cosines.min() > 0.99


def test_few_rows_have_components_but_no_errors():
    rows, _ = planted(4, 5, 7)
    found = odeco.decompose_stream(rows, 2, order=4, moment="cumulant", rng=0)
    assert found.weight_errors is None
    assert not found.clear.any()
    assert "determined" in found.verdict


def test_groups_are_alike_whatever_the_order_of_rows():
    """The variance between the means of groups of sorted rows is that of independent ones: χ² with
    9 d.f. over 9.

    Its 0.1 % quantiles are 0.12 and 3.1. Groups of consecutive rows would exceed them, and so would
    groups that are as alike as those of a sample in strata.
    """
    values = np.sort(np.random.default_rng(0).standard_normal(40_000))
    solver = FourthMomentSolver.start(1, 1, seed=0, memory=2**30, cumulant=True)
    pieces = [values[:1000], *np.split(values[1000:], range(8192, 39_000, 8192))]
    for piece in pieces:
        solver = solver.with_rows(piece[:, None])
    counts = solver.groups[:, -1] * solver.n_rows
    assert np.isclose(counts.sum(), 40_000)
    groups = np.concatenate([group_numbers(piece[:, None]) for piece in pieces])
    means = np.array([values[groups == number].mean() for number in range(N_GROUPS)])
    assert np.allclose(counts, np.bincount(groups))
    assert 0.12 < np.var(means, ddof=1) * 40_000 / N_GROUPS < 3.1


PEAK = """
import pathlib, sys, numpy as np, odeco
def peak():
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
block = np.random.default_rng(0).laplace(size=(2000, 14)) @ np.random.default_rng(1).standard_normal((14, 10))
before = peak()
odeco.decompose_stream((block for _ in range(int(sys.argv[1]))), 14, order=4, moment="cumulant", rng=0)
print(peak() - before)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_rows():
    def megabytes(n_blocks):
        command = [sys.executable, "-c", PEAK, str(n_blocks)]
        return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert (
        megabytes(600) < megabytes(100) + 5
    )  # all have full chunks; the rows themselves grow from 16 to 96


def test_a_raw_moment_of_noisy_rows_has_the_components_of_the_moment_itself():
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.standard_normal((8, 3)))[0] * [3.0, 2.5, 2.0]
    rows = vectors[:, rng.integers(3, size=2000)].T + 0.1 * rng.standard_normal((2000, 8))
    moment = np.einsum("ni,nj,nk,nl->ijkl", rows, rows, rows, rows, optimize=True) / len(rows)
    expected = odeco.decompose(moment, 3, rng=0)
    found = odeco.decompose_stream(rows, 3, order=4, method="entries", rng=0)
    np.testing.assert_allclose(found.weights, expected.weights, rtol=1e-6)
    np.testing.assert_allclose(
        np.abs(np.sum(found.vectors * expected.vectors, axis=0)), 1, rtol=1e-6
    )
