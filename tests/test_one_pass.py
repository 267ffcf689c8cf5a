"""One pass over rows: as accurate as they allow, a result at any time, components that come and
go.
"""

from __future__ import annotations

import numpy as np
import pytest
from cluster_parts import cluster_of_threads
from scipy import sparse
from threadpoolctl import threadpool_limits

import odeco
from odeco.online import RowSum, search, tree
from odeco.online.block import RowLimit, first_threshold, selected
from odeco.online.methods import core
from odeco.online.queries import Rows
from odeco.online.search import span_of_components
from odeco.online.sums import Kept
from odeco.online.tree import Part
from odeco.power.tracking import dual_vectors


def sources(n, d=60, k=4, *, cosine=0.0, noise=1.0, seed=0, whitened=False):
    """Centred exponential sources along vectors of one common cosine, in Gaussian noise; and these
    vectors.
    """
    rng = np.random.default_rng(seed)
    gram = cosine + (1 - cosine) * np.eye(k)
    vectors = np.linalg.qr(rng.standard_normal((d, k)))[0] @ np.linalg.cholesky(gram).T
    rows = (rng.exponential(size=(n, k)) - 1) @ vectors.T + noise * rng.standard_normal((n, d))
    if whitened:
        sizes, axes = np.linalg.eigh(vectors @ vectors.T + noise**2 * np.eye(d))
        root = (axes / np.sqrt(sizes)) @ axes.T
        rows, vectors = rows @ root, root @ vectors
        vectors /= np.linalg.norm(vectors, axis=0)
    return rows, vectors


def worst_angle(found, truth):
    return float(np.arccos(np.clip(np.abs(truth.T @ found).max(axis=1).min(), 0, 1)))


def limit(rows, vectors):
    """Return the worst angle of the joint fixed point of the exact moment of the rows, started at
    the truth.
    """
    truth = vectors
    for _ in range(12):
        total = RowSum("image", dual_vectors(vectors), 3)
        total.update(rows)
        vectors = total.mean() / np.linalg.norm(total.mean(), axis=0)
    return worst_angle(vectors, truth)


KINDS = {
    "orthogonal": {},
    "correlated": {"cosine": 0.3},
    "whitened": {"whitened": True},
    "wide": {"d": 200, "n": 20_000},
}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["core", "entries"])
@pytest.mark.parametrize("kind", KINDS)
def test_one_pass_is_at_most_15_percent_worse_than_the_rows_allow(kind, method):
    if (kind, method) == ("wide", "entries"):
        pytest.skip("a moment of 200 columns takes long")
    for seed in range(3):
        settings = {"n": 12_000, **KINDS[kind]}
        rows, vectors = sources(settings.pop("n"), seed=seed, **settings)
        online = odeco.OnlineDecomposer(4, method=method, rng=seed)
        for piece in np.array_split(rows, 23):
            online.partial_fit(piece)
        assert worst_angle(online.result().vectors, vectors) < 1.15 * limit(rows, vectors)


@pytest.mark.slow
@pytest.mark.parametrize("csr", [False, True])
@pytest.mark.parametrize(
    "settings",
    [{"method": "core"}, {"method": "entries"}, {"method": "core", "order": 4}, {"order": 4}],
    ids=str,
)
def test_all_ways_of_reading_once_are_one_run(settings, csr, tmp_path):
    da = pytest.importorskip("dask.array")
    rows, _ = sources(4000, d=20, k=3, noise=0.3)
    rows = np.where(np.abs(rows) > 0.2, rows, 0.0)
    data = sparse.csr_array(rows) if csr else rows
    path = tmp_path / ("rows.npz" if csr else "rows.npy")
    sparse.save_npz(path, data) if csr else np.save(path, data)
    settings = {**settings, "rng": 0}
    pushed, checkpoint = odeco.OnlineDecomposer(3, **settings), tmp_path / "run.ckpt"
    for start in range(0, 4000, 321):
        pushed.partial_fit(data[start : start + 321])
        pushed.save(checkpoint)
        pushed = odeco.OnlineDecomposer.load(checkpoint)
    blocks = da.from_array(rows, chunks=(777, 20))
    blocks = blocks.map_blocks(sparse.csr_array) if csr else blocks
    with cluster_of_threads(n_workers=2) as client:
        on_cluster = odeco.decompose_stream(blocks, 3, n_passes=1, client=client, **settings)
    ways = {
        "an iterator": odeco.decompose_stream(iter([data[:17], data[17:]]), 3, **settings),
        "an array": odeco.decompose_stream(data, 3, n_passes=1, **settings),
        "a file": odeco.decompose_stream(path, 3, n_passes=1, **settings),
        "a cluster": on_cluster,
        "pushes": pushed.result(),
    }
    for name, found in ways.items():
        for field in ("weights", "vectors", "weight_errors", "angle_errors"):
            np.testing.assert_array_equal(
                getattr(found, field), getattr(ways["pushes"], field), err_msg=name
            )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dense", "CSR", "whitened"])
def test_the_number_of_threads_changes_no_bit(kind):
    rows, _ = sources(12_000, d=60, k=3, whitened=kind == "whitened")
    data = sparse.csr_array(rows) if kind == "CSR" else rows
    settings = {"method": "core", "rng": 0}
    for n_passes in (1, 3):
        with threadpool_limits(limits=1):
            expected = odeco.decompose_stream(data, 3, n_passes=n_passes, **settings)
        with threadpool_limits(limits=3):
            found = odeco.decompose_stream(data, 3, n_passes=n_passes, **settings)
        for field in ("weights", "vectors", "weight_errors", "angle_errors"):
            assert np.array_equal(getattr(found, field), getattr(expected, field))


def test_there_is_a_result_at_any_time_and_it_says_what_is_determined():
    rows, vectors = sources(6000, d=20, k=3, noise=0.3)
    online = odeco.OnlineDecomposer(3, method="core", rng=0)
    with pytest.raises(odeco.NothingFoundError):
        online.result()
    counts = []
    for n_rows in (40, 700, 1000, 1300, 6000):
        online.partial_fit(rows[online.n_rows : n_rows])
        counts.append(int(online.result().clear.sum()))
        assert online.n_samples_seen_ == n_rows
        assert online.components_.shape == (3, 20)
        assert online.weights_.shape == (3,)
    assert counts[-1] == 3
    assert "not" not in online.result().verdict
    assert worst_angle(online.result().vectors, vectors) < 0.1
    noise = odeco.OnlineDecomposer(2, method="core", rng=0).partial_fit(
        np.random.default_rng(0).normal(size=(3000, 8))
    )
    assert not noise.result().clear.any()
    assert "None of them is determined: pass more rows" in noise.result().verdict
    assert "2 of them not yet determined" in repr(noise)


def test_a_block_that_is_full_before_components_are_clear_is_not_taken_for_certain():
    rows, vectors = sources(8000, d=100, k=3, noise=1.0)
    for seed in range(4):
        online = odeco.OnlineDecomposer(3, method="core", memory=0.3, rng=seed)
        with pytest.warns(RuntimeWarning, match=r"Pass memory=1\.2 or more"):
            small = online.partial_fit(rows).result()
        assert worst_angle(small.vectors, vectors) > 0.5
        assert not small.clear.all() or small.angle_errors.max() > 0.5


@pytest.mark.slow
def test_whitened_rows_are_kept_until_components_are_clear(tmp_path):
    # The third moment shows its components from about 8 d^1.5, 3,700 rows, on.
    for seed in range(3):
        rows, vectors = sources(12_000, seed=seed, whitened=True)
        once = odeco.decompose_stream(iter([rows]), 4, method="core", rng=seed)
        assert once.clear.all()
        assert worst_angle(once.vectors, vectors) < 1.15 * limit(rows, vectors)
        if seed:
            continue
        online = odeco.OnlineDecomposer(4, method="core", rng=seed)
        for start, stop in ((0, 1500), (1500, 3100), (3100, 3333), (3333, 9001), (9001, 12_000)):
            online.partial_fit(rows[start:stop])
            online.result()
            online.save(tmp_path / "run.ckpt")
            online = odeco.OnlineDecomposer.load(tmp_path / "run.ckpt")
        pushed = online.result()
        for name in ("weights", "vectors", "weight_errors", "angle_errors"):
            assert np.array_equal(getattr(pushed, name), getattr(once, name))


def test_a_search_that_needs_more_memory_says_so():
    rows, _ = sources(
        12_000, whitened=True
    )  # 4 MB hold 2,083 rows for a search, of the 3,700 that it needs
    for data in (iter([rows]), rows):
        with pytest.warns(RuntimeWarning, match="Pass memory=16 or more"):
            odeco.decompose_stream(data, 4, method="core", memory=4, rng=0)


def test_whitened_rows_in_passes_are_searched_in_a_sample(tmp_path):
    for seed in range(3):
        rows, vectors = sources(12_000, seed=seed, whitened=True)
        settings = {"method": "core", "memory": 16, "rng": seed}
        found = odeco.decompose_stream(rows, 4, **settings)
        assert found.n_passes == 3
        assert worst_angle(found.vectors, vectors) < 1.15 * limit(rows, vectors)

    def stop(progress):
        if progress.n_rows > 8000:
            raise KeyboardInterrupt

    np.save(tmp_path / "rows.npy", rows)
    with pytest.raises(KeyboardInterrupt):  # in the first pass, with a sample
        odeco.decompose_stream(
            tmp_path / "rows.npy", 4, checkpoint=tmp_path / "c", callback=stop, **settings
        )
    resumed = odeco.decompose_stream(
        tmp_path / "rows.npy", 4, checkpoint=tmp_path / "c", **settings
    )
    for name in ("weights", "vectors", "weight_errors", "angle_errors"):
        assert np.array_equal(getattr(resumed, name), getattr(found, name))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_sample_of_a_pass_depends_on_the_rows_only(dtype):
    rows = np.random.default_rng(0).standard_normal((3000, 8)).astype(dtype)
    limit = RowLimit(600, 2**15)
    query = Rows(np.empty((8, 0)), 3, limit=limit)
    samples = []
    for seed in range(3):
        generator, start = np.random.default_rng(seed), 0
        kept = query.empty()
        while start < 3000:
            stop = min(3000, start + int(generator.integers(1, 900)))
            if generator.random() < 0.3:  # a worker picks rows
                threshold = first_threshold(3000, limit.n_rows)
                picked = rows[start:stop][selected(start, stop, threshold) - start]
                kept = kept.with_part(
                    query, Part(stop - start, 1, (), rows=picked, threshold=threshold)
                )
            else:
                kept = kept.with_rows(query, rows[start:stop])
            kept = Kept.from_arrays(kept.to_arrays("sum"), "sum")
            kept.check_for(query)
            start = stop
        sample = kept.value(query)
        assert sample.shape[0] > 512 / dtype(0).itemsize / 2
        assert np.array_equal(sample, rows[kept.places])
        samples.append(sample)
    assert all(np.array_equal(sample, samples[0]) for sample in samples)


@pytest.mark.slow
def test_the_unit_of_whitened_rows_does_not_matter():
    rows, _ = sources(6000, d=40, k=3, whitened=True)
    for data in (lambda rows: iter([rows]), np.asarray):  # once, and in passes
        expected = odeco.decompose_stream(data(rows), 3, method="core", rng=0)
        for exponent in (
            20,
            -20,
            60,
            -60,
            100,
        ):  # single precision holds no fourth powers of rows of these sizes
            scaled = odeco.decompose_stream(data(rows * 2.0**exponent), 3, method="core", rng=0)
            assert np.array_equal(scaled.vectors, expected.vectors)


@pytest.mark.slow
@pytest.mark.parametrize(("d", "n"), [(60, 10_000), (60, 60_000), (200, 10_000)])
def test_noise_is_not_taken_for_components_however_well_it_fits_the_rows_that_found_it(d, n):
    rows = np.random.default_rng(0).standard_normal((n, d))
    settings = {"method": "core", "memory": d / 15, "rng": 0}
    for data in (iter([rows]), rows):
        with pytest.warns(RuntimeWarning, match="which leave some in doubt"):
            found = odeco.decompose_stream(data, 3, **settings)
        assert not found.clear.any()


@pytest.mark.slow
def test_components_are_clear_beside_one_that_fits_noise():
    rows, vectors = sources(20_000, d=40, k=2)
    for data in (iter([rows]), rows):
        found = odeco.decompose_stream(data, 3, method="core", rng=0)
        assert found.clear.sum() == 2
        assert worst_angle(found.vectors[:, found.clear], vectors) < 0.2


def test_sorted_rows_are_found_in_passes_by_a_sample_of_all_of_them():
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.standard_normal((30, 3)))[0]
    which = np.sort(rng.integers(3, size=60_000))
    rows = (3 * rng.exponential(size=60_000))[:, None] * vectors.T[
        which
    ] + 0.1 * rng.standard_normal((60_000, 30))
    found = odeco.decompose_stream(rows, 3, method="core", memory=4, rng=0)
    assert worst_angle(found.vectors, vectors) < 0.05
    assert found.n_passes == 3


def test_the_method_is_chosen_by_columns_order_and_memory():
    for d, settings, method in ((20, {}, "entries"), (120, {}, "core"), (20, {"order": 4}, "core")):
        online = odeco.OnlineDecomposer(2, rng=0, **settings)
        assert online.method == "auto"
        online.partial_fit(np.random.default_rng(0).exponential(size=(50, d)))
        assert online.method == method
        assert online.method_reason
    online = odeco.OnlineDecomposer(2, memory=0.05, rng=0).partial_fit(np.ones((9, 20)))
    assert (online.method, online.method_reason) == (
        "core",
        "the whole moment does not fit into the memory allowed",
    )


@pytest.mark.parametrize("method", ["core", "entries"])
def test_rows_with_fewer_components_are_taken_in_and_the_result_says_so(method):
    online = odeco.OnlineDecomposer(2, method=method, rng=0).partial_fit(np.ones((1500, 4)))
    assert online.n_rows == 1500
    with pytest.raises(odeco.RankError):
        online.result()
    rows, _ = sources(6000, d=4, k=2, noise=0.1)
    later = online.partial_fit(rows).partial_fit(rows).result()
    assert later.n_rows == 13_500


@pytest.mark.parametrize("scale", [1e-20, 1.0, 3.7, 1e9])
@pytest.mark.parametrize("seed", range(4))
def test_components_that_rounding_makes_are_none(seed, scale):
    # rows along one line: their moment has one component, and rounding makes others of 1e-16 of its
    # weight
    rng = np.random.default_rng(seed)
    rows = np.outer(rng.exponential(size=3000), scale * rng.standard_normal(5 + seed))
    online = odeco.OnlineDecomposer(2, method="core", rng=seed).partial_fit(rows)
    with pytest.raises(odeco.RankError, match="has rank 1, but n_components=2"):
        online.result()


def rows_searched(monkeypatch):
    """Return a list to which each later search adds the number of its rows."""
    sizes = []

    def counted(rows, *arguments, **settings):
        sizes.append(rows.shape[0])
        return search.search_rows(rows, *arguments, **settings)

    monkeypatch.setattr(core, "search_rows", counted)
    return sizes


@pytest.mark.parametrize("csr", [False, True])
def test_passes_search_no_more_of_the_sample_than_shows_the_components(csr, monkeypatch):
    sizes = rows_searched(monkeypatch)
    rows, truth = sources(20_000, d=60, k=4, noise=0.3)
    rows = np.where(np.abs(rows) > 0.1, rows, 0.0) if csr else rows
    given = sparse.csr_array(rows) if csr else rows
    found = odeco.decompose_stream(given, 4, method="core", rng=0)
    assert len(sizes) == 1
    assert sizes[0] <= 4000
    assert worst_angle(found.vectors, truth) < 1.02 * limit(rows, truth)
    assert found.clear.all()


def test_the_whole_sample_is_searched_if_no_part_shows_all_components(monkeypatch):
    sizes = rows_searched(monkeypatch)
    rows, truth = sources(4000, d=60, k=4)
    found = odeco.decompose_stream(rows, 4, method="core", rng=0)
    assert sizes[-1] == 4000
    assert sorted(sizes) == sizes
    assert worst_angle(found.vectors, truth) < 1.1 * limit(rows, truth)


@pytest.mark.parametrize("order", [3, 4])
def test_a_part_without_a_rare_component_does_not_end_the_search(order):
    rows = np.zeros((20_000, 120))
    rows[:, 0] = 1.0
    rows[17::5000] = 0.0
    rows[17::5000, 1] = 20.0  # four rows, of which small parts of the sample have none
    found = odeco.decompose_stream(rows, 2, method="core", order=order, rng=0)
    np.testing.assert_allclose(np.abs(found.vectors[:2]).max(axis=1), 1.0)


def test_a_search_that_may_be_repeated_fits_nothing_to_noise(monkeypatch):
    fitted, fit = [], search.fit_independent
    monkeypatch.setattr(
        search, "fit_independent", lambda *given: fitted.append(given) or fit(*given)
    )
    noise = np.random.default_rng(0).standard_normal((4000, 60))
    assert not search.search_rows(noise, 4, 3, 0).complete
    assert not fitted
    assert not search.search_rows(noise, 4, 3, 0, final=True).clear.any()
    assert fitted


def drifting(n, vectors, seed):
    rng = np.random.default_rng(seed)
    draws = rng.exponential(size=(n, vectors.shape[1])) - 1
    return draws @ vectors.T + 0.3 * rng.standard_normal((n, vectors.shape[0]))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [10, 12, 21, 22])
def test_fewer_correlated_components_than_are_asked_for_are_found(seed):
    # with a third one, two would share what belongs to one
    rng = np.random.default_rng(seed)
    basis = (
        np.linalg.qr(rng.standard_normal((12, 3)))[0] @ np.linalg.cholesky(0.3 + 0.7 * np.eye(3)).T
    )
    online = odeco.OnlineDecomposer(3, forgetting=0.8, batch_size=500, rng=seed)
    for present in (2, 3, 1):
        early = online.partial_fit(drifting(10_000, basis[:, :present], seed)).result()
        assert len(early.weights) == early.clear.sum() == present
        assert worst_angle(early.vectors, basis[:, :present]) < 0.2


@pytest.mark.slow
@pytest.mark.parametrize("csr", [False, True])
def test_a_component_that_appears_is_found_and_one_that_vanishes_is_dropped(csr):
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((12, 4)))[0]
    kind = sparse.csr_array if csr else np.asarray
    online = odeco.OnlineDecomposer(3, forgetting=0.8, batch_size=500, rng=0)
    online.partial_fit(kind(drifting(8000, basis[:, :2], 1)))
    early = online.result()
    assert int(early.clear.sum()) == 2
    online.partial_fit(kind(drifting(12_000, basis[:, 1:4], 2)))  # the first vanishes, two appear
    late = online.result()
    assert late.clear.all()
    assert len(late.weights) == 3
    assert worst_angle(late.vectors, basis[:, 1:4]) < 0.2
    online.partial_fit(kind(drifting(12_000, basis[:, 3:4], 3)))
    alone = online.result()
    assert len(alone.weights) == 1
    assert worst_angle(alone.vectors, basis[:, 3:4]) < 0.2


def test_a_stream_that_drifts_does_not_depend_on_cuts_and_can_be_resumed(tmp_path):
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((8, 3)))[0]
    rows = np.vstack([drifting(3000, basis[:, :2], 1), drifting(3000, basis[:, 1:], 2)])
    settings = {"forgetting": 0.7, "batch_size": 300, "rng": 0}
    whole = odeco.OnlineDecomposer(2, **settings).partial_fit(rows).result()
    online = odeco.OnlineDecomposer(2, **settings)
    for piece in np.array_split(rows, 13):
        online.save(tmp_path / "run.ckpt")
        online = odeco.OnlineDecomposer.load(tmp_path / "run.ckpt").partial_fit(piece)
    np.testing.assert_array_equal(online.result().vectors, whole.vectors)
    np.testing.assert_array_equal(online.result().weights, whole.weights)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["core", "entries"])
def test_error_bars_cover(method):
    """Over 120 components, angles are within two standard errors in at least 90 %, weights in 85 %.

    Weights are means of cubes of exponential variables, whose spread few rows show too small.
    """
    angles, weights = [], []
    for seed in range(40):
        rows, vectors = sources(6000, d=15, k=3, noise=0.5, cosine=0.2, seed=seed)
        found = odeco.OnlineDecomposer(3, method=method, rng=seed).partial_fit(rows).result()
        matched = odeco.match(found, odeco.Components(np.full(3, 2.0), vectors))
        order = matched.found_index
        angles += list(matched.angles < 2 * found.angle_errors[order])
        weights += list(np.abs(matched.weight_errors) < 2 * found.weight_errors[order])
    assert np.mean(angles) >= 0.9
    assert np.mean(weights) >= 0.85


@pytest.mark.parametrize("few", [True, False])
def test_the_span_is_found_by_pairs_of_different_rows_however_many_there_are(few):
    rows, vectors = (
        sources(150, d=400, k=2, noise=0.02) if few else sources(3000, d=30, k=2, noise=0.3)
    )
    basis = span_of_components(rows, 4, 3, 0)
    np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-8)
    assert np.linalg.norm(vectors - basis @ (basis.T @ vectors), axis=0).max() < 0.2
    as_csr = span_of_components(sparse.csr_array(rows), 4, 3, 0)
    np.testing.assert_allclose(
        as_csr @ (as_csr.T @ vectors), basis @ (basis.T @ vectors), atol=0.05
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_images_of_csr_rows_in_one_loop_are_those_of_two_products_bit_for_bit(
    dtype, index, monkeypatch
):
    pytest.importorskip("numba")
    monkeypatch.setattr(tree, "_ENOUGH_WORK", 0)
    monkeypatch.setattr(tree, "_CACHED_BYTES", 0)
    rng = np.random.default_rng(0)
    rows = sparse.csr_array(
        np.where(rng.random((300, 40)) < 0.2, rng.standard_normal((300, 40)), 0.0).astype(dtype)
    )
    rows.indices, rows.indptr = rows.indices.astype(index), rows.indptr.astype(index)
    block = rng.standard_normal((40, 7)).astype(dtype)
    found = tree._fused_image(rows, block)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, rows.T @ (rows @ block) ** 2)


@pytest.mark.slow
@pytest.mark.parametrize("d", [2, 15, 40])
def test_the_whole_moment_of_noise_determines_nothing(d):
    # Noise has maxima, which rows that found them bear out: in passes all rows did. In one pass
    # later rows did not. A component of noise counts as clear in one of 90 cases at most (Borell),
    # or of 370 (three standard errors).
    n_clear, n_found = 0, 0
    for seed in range(8):
        rows = np.random.default_rng([d, seed]).standard_normal((3000, d))
        for found in (
            odeco.decompose_stream(rows, min(d, 3), rng=0),
            odeco.OnlineDecomposer(min(d, 3), rng=0).partial_fit(rows).result(),
            odeco.OnlineDecomposer(min(d, 3), rng=0).partial_fit(rows[:1250]).result(),
        ):
            n_clear, n_found = n_clear + int(found.clear.sum()), n_found + len(found.weights)
    assert n_clear <= 2  # 72 components or fewer, of which 0.8 are expected; 3 have a chance of 5 %
    assert n_found >= 40


def test_the_whole_moment_determines_what_is_there():
    # Three components with weight 2; the limit of their angle is about 0.13 rad, below that of
    # noise, 0.27 at d = 50.
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.standard_normal((50, 3)))[0]
    rows = (rng.exponential(size=(12_500, 3)) - 1) @ vectors.T + rng.standard_normal((12_500, 50))
    for found in (
        odeco.decompose_stream(rows, 3, rng=0),
        odeco.OnlineDecomposer(3, rng=0).partial_fit(rows).result(),
    ):
        assert found.clear.all()
        assert np.all(found.angle_errors < 0.25)
