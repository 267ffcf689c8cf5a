"""The estimator of mixtures: what it finds, what it says, and what it refuses."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from planted_mixture import drawn, largest_gap, planted
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from odeco.models import TensorMixture

KINDS = ("spherical", "diag", "full")


@pytest.mark.slow
@parametrize_with_checks([TensorMixture()])
def test_scikit_learn_conventions_hold(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_planted_spheres_are_found_as_well_as_rows_allow(kind, seed):
    k, d, n, m = 8, 10, 6000, 4000
    truth = planted(k, d, 8.0, seed)
    rows, _ = drawn(truth, n, seed)
    judged, _ = drawn(truth, m, seed + 50)
    model = TensorMixture(k, covariance_type=kind, random_state=seed).fit(rows)
    n_parameters = k * (d + {"spherical": 1, "diag": d, "full": d * (d + 1) // 2}[kind]) + k - 1
    assert truth.posterior(judged)[1].mean() - model.score(judged) < largest_gap(n_parameters, n, m)
    assert model.converged_
    assert np.all(np.diff(model.weights_) <= 0)


def test_elongated_components_of_any_direction_are_found_with_full_covariances():
    rng = np.random.default_rng(5)
    truth = planted(5, 6, 8.0)
    roots = np.linalg.qr(rng.standard_normal((5, 6, 6)))[0] * np.exp(rng.uniform(-1, 1, (5, 1, 6)))
    truth = type(truth)(truth.weights, truth.means, roots @ roots.transpose(0, 2, 1))
    rows, _ = drawn(truth, 5000)
    judged, _ = drawn(truth, 3000, 7)
    model = TensorMixture(5, covariance_type="full", random_state=0).fit(rows)
    assert truth.posterior(judged)[1].mean() - model.score(judged) < largest_gap(
        5 * (6 + 21) + 4, 5000, 3000
    )


def test_more_components_than_a_third_moment_tells_apart_are_found_by_other_starts():
    # In a row of seven, 12 deviations apart, in one dimension: the third moment tells apart two.
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 7, 3000)
    rows = (12.0 * labels + rng.standard_normal(3000))[:, None]
    model = TensorMixture(7, random_state=0).fit(rows)
    assert "third moment" not in model.init_
    # A mean of about 430 rows deviates by 0.05; five of these.
    np.testing.assert_allclose(np.sort(model.means_[:, 0]), 12.0 * np.arange(7), atol=0.25)


@pytest.mark.slow
def test_rows_far_from_zero_and_in_other_units_get_the_same_components():
    rows, _ = drawn(planted(4, 5, 6.0), 2000)
    labels = TensorMixture(4, random_state=0).fit_predict(rows)
    for factor, shift in ((1e-8, 0.0), (1e6, 1e12), (1e60, 0.0)):
        np.testing.assert_array_equal(
            TensorMixture(4, random_state=0).fit_predict(factor * rows + shift), labels
        )


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_that_scikit_learn_gives_to_the_same_mixture(kind):
    rows, _ = drawn(planted(3, 4, 5.0), 600)
    model = TensorMixture(3, covariance_type=kind, random_state=0).fit(rows)
    peer = GaussianMixture(3, covariance_type=kind)
    peer.weights_, peer.means_, peer.covariances_ = model.weights_, model.means_, model.covariances_
    if kind == "full":
        lower = np.linalg.cholesky(model.covariances_)
        peer.precisions_cholesky_ = np.stack([np.linalg.inv(each).T for each in lower])
    else:
        peer.precisions_cholesky_ = 1 / np.sqrt(model.covariances_)
    np.testing.assert_allclose(model.score_samples(rows), peer.score_samples(rows), rtol=1e-9)
    np.testing.assert_allclose(model.predict_proba(rows), peer.predict_proba(rows), atol=1e-9)
    assert model.bic(rows) == pytest.approx(peer.bic(rows))
    assert model.aic(rows) == pytest.approx(peer.aic(rows))


@pytest.mark.parametrize("kind", KINDS)
def test_samples_have_the_moments_of_the_mixture(kind):
    rows, _ = drawn(planted(3, 3, 5.0), 900)
    model = TensorMixture(3, covariance_type=kind, random_state=0).fit(rows)
    n = 40_000
    sampled, labels = model.sample(n, random_state=0)
    mean, covariance = model.weights_ @ model.means_, np.cov(rows.T, bias=True)
    # The mixture after a likelihood step has the mean of the rows, and full covariances have
    # theirs.
    np.testing.assert_allclose(mean, rows.mean(axis=0), atol=1e-9)
    deviation = np.sqrt(np.diag(covariance) / n)
    assert np.all(np.abs(sampled.mean(axis=0) - mean) < 5 * deviation)
    assert np.all(np.abs(np.bincount(labels) / n - model.weights_) < 5 * 0.5 / np.sqrt(n))


@pytest.mark.slow
@pytest.mark.parametrize(("k", "d", "separation"), [(1, 4, 1.0), (4, 5, 9.0)])
def test_the_number_of_components_is_found(k, d, separation):
    rows, _ = drawn(planted(k, d, separation, seed=3), 1500)
    model = TensorMixture("auto", random_state=0).fit(rows)
    assert model.n_components_ == k
    assert k in model.selection_scores_
    assert f"Cross-validation chose {k} component" in model.summary()


@pytest.mark.slow
def test_the_result_does_not_depend_on_the_number_of_threads():
    rows, _ = drawn(planted(4, 5, 4.0), 20_000)
    one = TensorMixture(4, random_state=0, n_jobs=1, n_starts=1).fit(rows)
    all_cores = TensorMixture(4, random_state=0, n_starts=1).fit(rows)
    np.testing.assert_array_equal(one.means_, all_cores.means_)
    np.testing.assert_array_equal(one.predict_proba(rows), all_cores.predict_proba(rows))


def corners(n_rows):
    """Return rows around the corners of a simplex, 21 deviations apart: no row is nearer to another
    corner.
    """
    rng = np.random.default_rng(8)
    labels = rng.integers(0, 3, n_rows)
    return 15 * np.eye(3)[labels] + rng.standard_normal((n_rows, 3)), labels


def test_names_of_features_are_in_the_summary_and_the_picture():
    pandas = pytest.importorskip("pandas")
    rows, _ = corners(600)
    table = pandas.DataFrame(rows, columns=["height", "width", "depth"])
    model = TensorMixture(3, random_state=0).fit(table)
    text = model.summary()
    assert text.startswith("3 components.")
    assert "Not checked on halves: model.split_half(X)." in text
    assert "height" in text
    figure = model.plot(table)
    labels = {label.get_text() for axis in figure.axes for label in axis.get_xticklabels()}
    assert {"height", "width", "depth"} <= labels
    assert len(TensorMixture(1).fit(rows[:, :1]).plot().axes) == 3
    assert repr(model) == "TensorMixture(n_components=3, random_state=0)"


def test_it_works_in_a_pipeline_and_as_a_clone():
    rows, labels = corners(500)
    found = make_pipeline(StandardScaler(), clone(TensorMixture(3, random_state=0))).fit_predict(
        rows
    )
    assert len({(a, b) for a, b in zip(labels.tolist(), found.tolist(), strict=True)}) == 3


@pytest.mark.parametrize(
    "rows", [np.ones((20, 3)), np.repeat(np.eye(3), 7, axis=0), np.zeros((9, 1))]
)
@pytest.mark.parametrize("kind", KINDS)
def test_rows_without_variance_are_described_too(rows, kind):
    model = TensorMixture(3, covariance_type=kind, random_state=0).fit(rows)
    assert np.isfinite(model.score(rows))
    np.testing.assert_allclose(model.weights_ @ model.means_, rows.mean(axis=0), atol=1e-9)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"n_components": 0}, "`n_components` must be an int of at least 1. Got 0."),
        ({"n_components": "many"}, "`n_components` must be an int"),
        (
            {"covariance_type": "tied"},
            "`covariance_type` must be one of 'spherical', 'diag', 'full', 'auto'. Got 'tied'.",
        ),
        ({"tol": -1.0}, "`tol` must be a number of at least 0, and finite. Got -1.0."),
        ({"max_iter": 0}, "`max_iter` must be an int of at least 1"),
        ({"reg_covar": -1}, "`reg_covar` must be a number of at least 0"),
        ({"epsilon": 1.0}, "Got no `delta`"),
        ({"epsilon": 1.0, "delta": 1e-6}, "Got no `norm_bound`"),
        ({"ledger": "x.ledger"}, "`ledger` is for private models"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, text):
    with pytest.raises(ValueError, match="^.*" + text.replace("(", r"\(").replace("[", r"\[")):
        TensorMixture(**settings).fit(np.eye(4))


@pytest.mark.parametrize("factor", [1e-100, 1e100])
def test_rows_whose_powers_leave_double_precision_are_standardised_first(factor):
    rows, labels = corners(60)
    model = TensorMixture(3, random_state=0).fit(factor * rows)
    assert adjusted_rand_score(labels, model.predict(factor * rows)) == 1
    with pytest.raises(ValueError, match="standard deviation of a column that varies must be"):
        TensorMixture(3, random_state=0).fit(factor**1.5 * rows)


def test_a_fit_that_fails_leaves_the_model_as_it_was():
    rows, _ = drawn(planted(3, 4, 9.0), 100)
    model = TensorMixture(3, random_state=0).fit(rows)
    means = model.means_
    with pytest.raises(ValueError, match=r"at least as many rows as components\. Got n_samples=2"):
        model.fit(np.ones((2, 7)))
    np.testing.assert_array_equal(model.means_, means)
    assert model.predict(rows).shape == (100,)
    with pytest.raises(AttributeError, match="Only a private model has `privacy_`"):
        _ = model.privacy_


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["spherical", "diag", "full"])
def test_the_kind_of_covariances_is_found(kind):
    # Two components of 300 rows, at least 8 deviations apart. Axes of 1 and 4, or a correlation of
    # 0.9, are worth log(17/8) and 0.8 nats a row; kinds with more freedom than the planted one lose
    # 5/8 for each parameter.
    rng = np.random.default_rng(2)
    shape = {
        "spherical": np.eye(2),
        "diag": np.diag([1.0, 4.0]),
        "full": np.array([[1.0, 0.0], [2.0, 1.0]]),
    }[kind]
    rows = (
        np.repeat([[0.0, 0.0], [32.0, 0.0]], 300, axis=0) + rng.standard_normal((600, 2)) @ shape.T
    )
    model = TensorMixture("auto", covariance_type="auto", standardize=False, random_state=0).fit(
        rows
    )
    assert (model.covariance_type_, model.n_components_) == (kind, 2)
    given = TensorMixture(2, covariance_type="auto", standardize=False, random_state=0).fit(rows)
    assert given.covariance_type_ == kind


@pytest.mark.slow
def test_files_and_streams_keep_the_kind_that_was_selected(tmp_path):
    rows, _ = drawn(planted(2, 3, 8.0, seed=1), 300)
    model = TensorMixture(2, covariance_type="auto", random_state=0).partial_fit(rows)
    model.save(tmp_path / "model.npz")
    again = TensorMixture.load(tmp_path / "model.npz")
    assert again.covariance_type_ == model.covariance_type_
    assert np.array_equal(again.covariances_, model.covariances_)


@pytest.mark.parametrize("kind", ["spherical", "full"])
def test_two_spheres_with_one_centre_are_found(kind):
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((600, 3)) * np.repeat([1.0, 5.0], 300)[:, None]
    model = TensorMixture(2, covariance_type=kind, random_state=0).fit(rows)
    volumes = np.sort(
        model.covariances_ if kind == "spherical" else np.linalg.det(model.covariances_) ** (1 / 3)
    )
    np.testing.assert_allclose(
        volumes, [1, 25], rtol=0.4
    )  # a variance of 900 numbers deviates by 5 %, overlap adds


@pytest.mark.slow
def test_components_that_cover_one_shape_are_reported_as_one_group():
    rng = np.random.default_rng(0)
    bar = np.column_stack([rng.uniform(0, 20, 800), 0.3 * rng.standard_normal(800)])
    model = TensorMixture("auto", covariance_type="diag", standardize=False, random_state=0).fit(
        bar
    )
    assert model.n_components_ > 1
    assert "merging those leaves 1 group." in model.summary()
    apart, _ = drawn(planted(3, 3, 9.0, seed=2), 600)
    assert "merging" not in TensorMixture("auto", random_state=0).fit(apart).summary()


@pytest.mark.slow
def test_a_selected_mixture_does_not_depend_on_threads():
    rows, _ = drawn(planted(3, 4, 5.0, seed=4), 400)
    one, all_cores = (
        TensorMixture("auto", random_state=0, n_jobs=jobs).fit(rows) for jobs in (1, -1)
    )
    assert one.selection_scores_ == all_cores.selection_scores_
    assert np.array_equal(one.means_, all_cores.means_)


def test_a_component_on_equal_rows_does_not_win_among_starts():
    # Half of the rows have one of ten values in a column: a component on one value has any
    # likelihood that the floor allows, and says nothing.
    rng = np.random.default_rng(0)
    rows = np.repeat([[0.0, 0.0], [8.0, 8.0]], 100, axis=0) + rng.standard_normal((200, 2))
    rows[:, 0] = np.round(rows[:, 0])
    model = TensorMixture(2, covariance_type="full", standardize=False, random_state=0).fit(rows)
    assert np.linalg.eigvalsh(model.covariances_).min() > 0.1
    assert sorted(model.weights_.round(2)) == [0.5, 0.5]


@pytest.mark.slow
def test_noise_with_one_wide_column_is_one_component_by_default():
    # Spheres cut the wide column into pieces, each of which held-out rows confirm.
    rows = np.random.default_rng(1).standard_normal((300, 3)) * [1.0, 1.0, 10.0]
    model = TensorMixture("auto", random_state=0).fit(rows)
    assert model.n_components_ == 1
    assert model.covariance_type_ in ("diag", "full")


def test_rows_that_are_repeated_do_not_make_components_of_their_own():
    """Copies of a row are held out together: 40 different rows of two clusters, ten times each."""
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(20, 3)), rng.normal(size=(20, 3)) + 6])
    model = TensorMixture("auto", covariance_type="spherical", random_state=0).fit(
        np.repeat(rows, 10, axis=0)
    )
    assert model.n_components_ == 2
    assert TensorMixture("auto", random_state=0).fit(np.ones((50, 2))).n_components_ == 1


@pytest.mark.parametrize("kind", ["diag", "full"])
def test_single_values_of_a_column_are_no_components(kind):
    """Without the variance of rounding, densities of single values rise with any number of them."""
    rng = np.random.default_rng(2)
    rows = np.column_stack([rng.standard_normal((400, 2)), rng.integers(2, size=400)])
    model = TensorMixture("auto", covariance_type=kind, random_state=0).fit(rows)
    assert model.n_components_ == 1
    variances = model.covariances_[0] if kind == "diag" else np.diag(model.covariances_[0])
    assert variances[2] == pytest.approx(rows[:, 2].var() + 1 / 6)
    # Two normal curves are nearer to the flat law of four values than one is, but each has two.
    rows[:, 2] = rng.integers(4, size=400)
    model = TensorMixture("auto", covariance_type=kind, random_state=0).fit(rows)
    assert model.n_components_ <= 2


def test_a_column_of_two_values_does_not_hide_clusters_of_other_columns():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(600, 4)) + 8 * rng.integers(3, size=(600, 1))
    rows[:, 0] = rng.integers(2, size=600)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = TensorMixture("auto", covariance_type="diag", random_state=0).fit(rows)
    assert model.n_components_ == 3
    assert model.split_half(rows).found_again.tolist() == [6, 6, 6]


@pytest.mark.parametrize("kind", ["diag", "full"])
def test_rows_that_are_zero_in_a_column_of_other_numbers_are_a_component(kind):
    """Half of the customers spent nothing. The mean of that component is a rounding error, and
    shown as zero.
    """
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 3)) + 10
    rows[::2, 0] = 0.0
    model = TensorMixture(2, covariance_type=kind, random_state=0).fit(rows)
    assert adjusted_rand_score(np.arange(400) % 2, model.predict(rows)) == 1
    assert "x0 0 (all" in model.summary()
    assert TensorMixture("auto", covariance_type=kind, random_state=0).fit(rows).n_components_ == 2
