"""Weights of the rows of streams: the moment is Σ w x⊗ᵖ / Σ w, whatever the source, the cuts and the passes."""

import functools

import numpy as np
import pytest
from scipy import sparse

import odeco
from odeco.cli.app import run
from odeco.errors import FileFormatError, RankError, StreamEndedError
from odeco.online.weights import WeightSum

pandas = pytest.importorskip("pandas")

N, D, K = 2000, 8, 3


def planted(seed=0, n_rows=N, kind=np.float64):
    """Return rows around three orthogonal vectors, and weights, some of them zero."""
    rng = np.random.default_rng(seed)
    vectors = np.linalg.qr(rng.standard_normal((D, K)))[0] * [3.0, 2.5, 2.0]
    rows = vectors[:, rng.integers(K, size=n_rows)].T + 0.1 * rng.standard_normal((n_rows, D))
    return rows.astype(kind), rng.integers(0, 4, n_rows)


def assert_same_components(one, other, tolerance):
    np.testing.assert_allclose(one.weights, other.weights, rtol=tolerance)
    np.testing.assert_allclose(np.abs(np.sum(one.vectors * other.vectors, axis=0)), 1, rtol=tolerance)


def assert_identical(one, other):
    np.testing.assert_array_equal(one.weights, other.weights)
    np.testing.assert_array_equal(one.vectors, other.vectors)
    np.testing.assert_array_equal(one.weight_errors, other.weight_errors)


@pytest.mark.parametrize(("order", "method"), [(3, "entries"), (3, "core"), (4, "core")])
@pytest.mark.parametrize("n_passes", [1, None])
def test_a_weight_is_a_number_of_equal_rows(order, method, n_passes):
    rows, weights = planted()
    how = {"order": order, "method": method, "n_passes": n_passes, "rng": 0}
    one = odeco.decompose_stream(rows, K, sample_weight=weights, **how)
    other = odeco.decompose_stream(np.repeat(rows, weights, axis=0), K, **how)
    # The whole moment is the same, to rounding. A block has other rows, and refinement in three passes or in segments
    # of one pass ends within a small part of the standard errors.
    assert_same_components(
        one, other, 1e-10 if method == "entries" else 0.1 * float(np.max(other.weight_errors / other.weights))
    )
    assert one.n_rows == N


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_csr_rows_have_weights(kind):
    rows, weights = planted(kind=kind)
    rows[np.abs(rows) < 0.2] = 0
    one = odeco.decompose_stream(sparse.csr_array(rows), K, sample_weight=weights, rng=0)
    other = odeco.decompose_stream(np.repeat(rows, weights, axis=0), K, rng=0)
    assert_same_components(one, other, 100 * np.finfo(kind).eps)


def test_the_moment_is_that_of_its_definition():
    rows, weights = planted()
    found = odeco.decompose_stream(rows, K, sample_weight=weights, rng=0)
    moment = np.einsum("n,ni,nj,nk->ijk", weights / weights.sum(), rows, rows, rows)
    values = np.einsum("ijk,ia,ja,ka->a", moment, *[found.vectors] * 3)
    # The vectors are orthogonal up to the noise of 0.1 in rows of size 2 to 3, which the fit takes into account.
    np.testing.assert_allclose(found.weights, values, rtol=0.01)
    scaled = odeco.decompose_stream(rows, K, sample_weight=weights * 5.0, rng=0)
    assert_same_components(found, scaled, 1e-12)


def test_a_column_of_any_table_holds_the_weights(tmp_path):
    rows, weights = planted()
    names = [f"x{place}" for place in range(D)]
    table = pandas.DataFrame(rows, columns=names)
    table.insert(3, "count", weights)
    table.to_csv(tmp_path / "rows.csv", index=False)
    given = odeco.decompose_stream(rows, K, sample_weight=weights, rng=0)
    for data, chosen in (
        (table, {}),
        (tmp_path / "rows.csv", {}),
        (table, {"columns": names}),
        (table.assign(index=1.0), {"drop": "index"}),
    ):
        found = odeco.decompose_stream(data, K, sample_weight="count", rng=0, **chosen)
        assert_identical(given, found)
        assert list(found.names) == names
    for data in (rows, iter([rows]), table.drop(columns="count")):
        with pytest.raises(ValueError, match="name of a column of data that can be read again"):
            odeco.decompose_stream(data, K, sample_weight="count", rng=0)


@pytest.mark.parametrize("method", ["entries", "core"])
def test_batches_do_not_change_a_bit(method, tmp_path):
    rows, weights = planted(n_rows=9000)
    whole = odeco.OnlineDecomposer(K, method=method, rng=0).partial_fit(rows, sample_weight=weights)
    cut = odeco.OnlineDecomposer(K, method=method, rng=0)
    for start, stop in ((0, 1), (1, 700), (700, 4096), (4096, 8500)):
        cut.partial_fit(rows[start:stop], sample_weight=weights[start:stop])
    cut.save(tmp_path / "run.npz")
    cut = odeco.OnlineDecomposer.load(tmp_path / "run.npz")
    cut.partial_fit(rows[8500:], sample_weight=weights[8500:])
    assert_identical(whole.result(), cut.result())
    pulled = odeco.decompose_stream(iter([rows]), K, method=method, sample_weight=weights, rng=0)
    assert_identical(whole.result(), pulled)


def test_batches_with_weights_and_without_follow_each_other():
    rows, weights = planted()
    weights[:500] = 1
    mixed = (
        odeco.OnlineDecomposer(K, rng=0).partial_fit(rows[:500]).partial_fit(rows[500:], sample_weight=weights[500:])
    )
    given = odeco.OnlineDecomposer(K, rng=0).partial_fit(rows, sample_weight=weights)
    assert_identical(mixed.result(), given.result())
    of_ones = odeco.OnlineDecomposer(K, rng=0).partial_fit(rows, sample_weight=np.ones(N))
    assert_identical(of_ones.result(), odeco.OnlineDecomposer(K, rng=0).partial_fit(rows).result())


def test_a_killed_run_goes_on_and_other_weights_are_refused(tmp_path):
    rows, weights = planted()
    how = {"rng": 0, "checkpoint": tmp_path / "run.npz", "checkpoint_seconds": 0}

    def stop(progress):
        if progress.n_rows > N // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        odeco.decompose_stream(rows, K, sample_weight=weights, callback=stop, **how)
    with pytest.raises(FileFormatError, match="must be the checkpoint of this run"):
        odeco.decompose_stream(rows, K, sample_weight=weights + 1, **how)
    found = odeco.decompose_stream(rows, K, sample_weight=weights, **how)
    assert_identical(found, odeco.decompose_stream(rows, K, sample_weight=weights, rng=0))


@pytest.mark.slow
@pytest.mark.parametrize("dependent", [False, True])
def test_errors_of_weights_are_upper_bounds(dependent):
    # 60 draws of rows and weights; the deviation of a component's weight over draws is known to within 1/√120 = 9 %,
    # so with three times that room the stated error, averaged over draws, must not be below it.
    found, stated = [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        labels = rng.integers(2, size=1000)
        rows = np.eye(4)[labels] * rng.uniform(1, 2, 1000)[:, None] + 0.05 * rng.standard_normal((1000, 4))
        weights = rng.exponential(size=1000) * (np.where(labels == 0, 0.2, 2.0) if dependent else 1.0)
        result = odeco.decompose_stream(rows, 2, sample_weight=weights, rng=0)
        order = np.argsort(np.abs(result.vectors[0]))  # the component of the first column is last
        found.append(result.weights[order])
        stated.append(result.weight_errors[order])
    assert np.all(np.mean(stated, axis=0) > np.std(found, axis=0) * (1 - 0.27))


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (np.full(N, -1.0), "not negative"),
        (np.full(N, np.nan), "must be finite"),
        (np.ones(N - 1), "one number for each row"),
        (np.ones((N, 1)), "one number for each row"),
    ],
)
def test_bad_weights_are_refused(bad, says):
    rows, weights = planted()
    with pytest.raises(ValueError, match=says):
        odeco.decompose_stream(rows, K, sample_weight=bad, rng=0)
    run = odeco.OnlineDecomposer(K, rng=0).partial_fit(rows, sample_weight=weights)
    before = run.result()
    with pytest.raises(ValueError, match=says):
        run.partial_fit(rows, sample_weight=bad)
    assert_identical(before, run.result())
    assert run.n_rows == N


def test_weights_that_are_all_zero_are_refused_when_there_is_nothing_else():
    rows, weights = planted()
    with pytest.raises(ValueError, match="at least one weight above zero"):
        odeco.decompose_stream(rows, K, sample_weight=0 * weights, rng=0)
    run = odeco.OnlineDecomposer(K, rng=0).partial_fit(rows[:100], sample_weight=np.zeros(100))
    run.partial_fit(rows, sample_weight=weights)
    assert_same_components(run.result(), odeco.decompose_stream(iter([rows]), K, sample_weight=weights, rng=0), 1e-10)


def test_weights_in_a_column_and_for_a_stream_are_checked_while_they_are_read():
    rows, weights = planted()
    table = pandas.DataFrame(rows).rename(columns=str).assign(w=np.where(np.arange(N) == 1500, -2.0, weights))
    with pytest.raises(ValueError, match=r"must not be negative.*row 1,500"):
        odeco.decompose_stream(table, K, sample_weight="w", rng=0)
    for size in (N - 1, N + 1):
        with pytest.raises(ValueError, match="one number for each row"):
            odeco.decompose_stream(iter([rows]), K, sample_weight=np.ones(size), rng=0)


def test_a_bad_row_leaves_the_weights_as_they_were():
    rows, weights = planted()
    run = odeco.OnlineDecomposer(K, rng=0).partial_fit(rows, sample_weight=weights)
    before = run.result()
    broken = rows.copy()
    broken[7, 2] = np.inf
    with pytest.raises(ValueError, match="7"):
        run.partial_fit(broken, sample_weight=weights + 5)
    assert_identical(before, run.result())
    run.partial_fit(rows, sample_weight=weights)
    together = odeco.OnlineDecomposer(K, rng=0)
    together.partial_fit(np.concatenate([rows, rows]), sample_weight=np.concatenate([weights, weights]))
    assert_identical(together.result(), run.result())


def test_what_has_no_weights_says_so():
    rows, weights = planted()
    for k, how in ((K, {"moment": "cumulant"}), ("auto", {"method": "entries"})):
        with pytest.raises(ValueError, match="raw moments over all rows"):
            odeco.decompose_stream(rows, k, order=4, sample_weight=weights, rng=0, **how)
    forgetting = odeco.OnlineDecomposer(K, method="core", forgetting=0.9, batch_size=100, rng=0)
    with pytest.raises(ValueError, match="raw moments over all rows"):
        forgetting.partial_fit(rows, sample_weight=weights)
    private = odeco.OnlineDecomposer(K, epsilon=1.0, delta=1e-6, norm_bound=4.0, batch_size=500, rng=0)
    with pytest.raises(ValueError, match="runs without privacy"):
        private.partial_fit(rows, sample_weight=weights)
    assert private.n_rows == 0


def test_the_sum_of_weights_does_not_depend_on_cuts():
    weights = np.random.default_rng(0).exponential(size=30_000)
    whole = WeightSum().after(weights).sum.total()
    cut = functools.reduce(WeightSum.after, np.split(weights, [1, 5, 8192, 20_000]), WeightSum()).sum.total()
    np.testing.assert_array_equal(whole, cut)
    np.testing.assert_allclose(whole.ravel(), [weights @ weights, weights.sum()], rtol=1e-12)


def test_the_command_reads_a_column_of_weights(tmp_path, capsys):
    rows, weights = planted()
    table = pandas.DataFrame(rows, columns=[f"x{place}" for place in range(D)]).assign(count=weights)
    table.to_csv(tmp_path / "rows.csv", index=False, float_format="%.17g")
    out = tmp_path / "found.npz"
    arguments = ["stream", str(tmp_path / "rows.csv"), "-k", str(K), "--seed", "0", "--out", str(out)]
    assert run([*arguments, "--weight", "count"]) == 0
    found, given = odeco.load_result(out), odeco.decompose_stream(rows, K, sample_weight=weights, rng=0)
    np.testing.assert_array_equal(found.weights, given.weights)
    assert list(found.names) == list(table.columns[:-1])
    capsys.readouterr()
    assert run([*arguments, "--weight", "nothing"]) == 1
    assert "name of a column" in " ".join(capsys.readouterr().err.split())


def test_the_whole_fourth_moment_is_that_of_repeated_rows():
    rng = np.random.default_rng(3)
    vectors = rng.standard_normal((4, 6)) / 2.0  # more components than columns
    rows, weights = vectors[:, rng.integers(6, size=N)].T, rng.integers(0, 4, N)
    one = odeco.decompose_stream(rows, 6, order=4, sample_weight=weights, rng=0)
    other = odeco.decompose_stream(np.repeat(rows, weights, axis=0), 6, order=4, rng=0)
    # Both fits end at machine precision; the moments differ by rounding, which a fit of 6 components enlarges.
    assert_same_components(one, other, 1e-6)
    assert np.all(np.isfinite(one.weight_errors))
    pushed = odeco.OnlineDecomposer(6, order=4, rng=0).partial_fit(rows, sample_weight=weights)
    assert_identical(one, pushed.result())


@pytest.mark.parametrize("pushed", [False, True])
def test_components_in_an_error_are_those_of_weighted_rows(pushed):
    rows, weights = planted()
    how = {"method": "power", "batch_size": 200, "n_restarts": 5, "n_iterations": 5, "rng": 0}
    # Ten batches are one component, and half of the next.
    twice = {}
    for factor in (1.0, 8.0):  # whose cube root is exact, so that nothing else changes
        weighted = np.where(weights > 1, factor, 0.0)
        if pushed:
            online = odeco.OnlineDecomposer(K, **how)
            twice[factor] = online.partial_fit(rows, sample_weight=weighted)._run.components
        else:
            with pytest.raises(StreamEndedError) as caught:
                odeco.decompose_stream(iter([rows]), K, sample_weight=weighted, **how)
            twice[factor] = caught.value.found
    assert twice[1.0].n_components >= 1
    np.testing.assert_allclose(twice[1.0].weights, twice[8.0].weights, rtol=1e-12)


def test_the_weights_in_a_rank_error_are_those_of_weighted_rows():
    rng = np.random.default_rng(0)
    rows, texts = rng.standard_normal((4000, 12)), set()
    for factor in (1.0, 8.0):
        with pytest.raises(RankError) as caught:
            odeco.decompose_stream(rows, "auto", sample_weight=np.full(4000, factor), rng=0)
        texts.add(str(caught.value))
    assert len(texts) == 1


@pytest.mark.slow
@pytest.mark.parametrize("once", [False, True])
def test_weighted_noise_is_not_called_clear(once):
    # Nine of ten rows count for nothing. Errors of Gaussian rows of one size would be ten times too small.
    n_clear = 0
    for seed in range(4):
        rng = np.random.default_rng([21, seed])
        rows, weights = rng.standard_normal((4000, 110)), (rng.random(4000) < 0.1).astype(float)
        found = odeco.decompose_stream(iter([rows]) if once else rows, 3, rng=0, sample_weight=weights)
        n_clear += int(found.clear.sum())
    assert n_clear == 0  # of 12, each with a chance of 1 in 370
