"""Models in other units: standardised columns, what is said about units, and what private models
refuse.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

import odeco
from odeco.models import TensorHMM, TensorICA, TensorMixture
from odeco.models.engine.rows import MAX_RATIO, column_scale

#: Factors of columns, from 10⁻³ to 10⁶.
FACTORS = 10.0 ** np.array([-3.0, 0.0, 2.5, 6.0, -1.0, 4.0])

LABELS = np.repeat(np.arange(4), [300, 250, 200, 150])


def clusters(seed: int = 0) -> np.ndarray:
    """Four spheres in six columns, 8 deviations apart on average: hardly a row is nearer to another
    centre.
    """
    rng = np.random.default_rng(seed)
    means = 8 / np.sqrt(12) * rng.standard_normal((4, 6))
    return (means[LABELS] + rng.standard_normal((LABELS.size, 6)))[rng.permutation(LABELS.size)]


# ---- mixtures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["spherical", "diag", "full"])
@pytest.mark.parametrize("standardize", [True, "auto"])
def test_a_mixture_of_rescaled_columns_has_equal_labels_and_rescaled_parameters(kind, standardize):
    rows = clusters()
    settings = {"covariance_type": kind, "random_state": 0}
    one = TensorMixture(4, standardize=True, **settings).fit(rows)
    other = TensorMixture(4, standardize=standardize, **settings).fit(rows * FACTORS)
    np.testing.assert_array_equal(one.predict(rows), other.predict(rows * FACTORS))
    # With "auto", columns as they are may be the likelier, by what EM leaves undone: g = 1e-4 nats
    # for each row are √(2 g) = 0.014 deviations.
    exact = 1e-9 if standardize is True else 0.014
    scale = other.scale_ if other.scale_ is not None else (rows * FACTORS).std(axis=0)
    np.testing.assert_allclose(one.means_ * FACTORS / scale, other.means_ / scale, atol=exact)
    both = np.outer(FACTORS, FACTORS) if kind == "full" else FACTORS**2
    units = np.outer(scale, scale) if kind == "full" else scale**2
    np.testing.assert_allclose(
        one.covariances_ * both / units, other.covariances_ / units, atol=exact
    )
    np.testing.assert_allclose(one.weights_, other.weights_, atol=exact)
    volume = np.log(FACTORS).sum()
    np.testing.assert_allclose(
        one.score_samples(rows), other.score_samples(rows * FACTORS) + volume, atol=10 * exact
    )
    assert one.lower_bound_ == pytest.approx(other.lower_bound_ + volume, abs=10 * exact)
    assert one.bic(rows) == pytest.approx(
        other.bic(rows * FACTORS) - 2 * len(rows) * volume, abs=20 * exact * len(rows)
    )
    assert one.summary().splitlines()[0] == other.summary().splitlines()[0]


@pytest.mark.parametrize("kind", ["diag", "full"])
def test_ellipsoids_do_not_depend_on_units_even_if_columns_are_taken_as_they_are(kind):
    """The variance floor is a share of the variance of each column: one of another unit must not be
    flattened.
    """
    rows = clusters()
    models = [
        TensorMixture(4, covariance_type=kind, standardize=False, random_state=0).fit(
            rows * factors
        )
        for factors in (np.ones(6), FACTORS)
    ]
    found = [
        model.predict(rows * factors)
        for model, factors in zip(models, (np.ones(6), FACTORS), strict=True)
    ]
    assert adjusted_rand_score(*found) == 1
    # Both end within `tol`, 1e-4 nats for each row, of the same maximum.
    np.testing.assert_allclose(models[0].means_, models[1].means_ / FACTORS, atol=0.01)
    both = np.outer(FACTORS, FACTORS) if kind == "full" else FACTORS**2
    np.testing.assert_allclose(models[0].covariances_, models[1].covariances_ / both, atol=0.02)


def test_clusters_of_wine_are_found_in_its_own_units():
    rows, kinds = load_wine(return_X_y=True)
    plain = TensorMixture(6, standardize=False, random_state=0, covariance_type="spherical")
    with pytest.warns(odeco.DominantColumnWarning):
        assert adjusted_rand_score(kinds, plain.fit_predict(rows)) < 0.4
    by_hand = TensorMixture(3, random_state=0, covariance_type="spherical").fit_predict(
        StandardScaler().fit_transform(rows)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", odeco.DominantColumnWarning)
        model = TensorMixture(3, random_state=0, covariance_type="spherical").fit(rows)
    assert adjusted_rand_score(kinds, model.predict(rows)) > 0.87
    np.testing.assert_array_equal(model.predict(rows), by_hand)
    np.testing.assert_allclose(model.scale_, rows.std(axis=0))
    assert "Columns were standardised" in model.summary()
    assert model.covariances_.shape == (3, 13)
    # Samples are in the units of the rows: the mean of n has a deviation of scale / √n; five of
    # these.
    sampled, _ = model.sample(20_000, random_state=0)
    assert np.all(
        np.abs(sampled.mean(axis=0) - rows.mean(axis=0)) < 5 * model.scale_ / np.sqrt(20_000)
    )
    assert len(model.plot(rows).axes) == 3


def test_columns_of_similar_scales_are_taken_as_they_are():
    rows = clusters() * np.linspace(1, 3, 6)
    one = TensorMixture(4, random_state=0, covariance_type="spherical").fit(rows)
    other = TensorMixture(4, standardize=False, random_state=0, covariance_type="spherical").fit(
        rows
    )
    assert one.scale_ is None
    assert "standardised" not in one.summary()
    np.testing.assert_array_equal(one.means_, other.means_)


def test_spheres_in_one_unit_are_found_although_one_column_varies_more():
    """Standardised columns would hide three clusters, a thousand deviations apart along the first
    column.
    """
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 200)
    rows = rng.standard_normal((600, 2)) + 1000 * labels[:, None] * [1, 0]
    assert column_scale(rows, "auto") is not None
    with warnings.catch_warnings():
        warnings.simplefilter("error", odeco.DominantColumnWarning)
        model = TensorMixture(3, random_state=0, covariance_type="spherical").fit(rows)
    assert model.scale_ is None
    assert adjusted_rand_score(labels, model.predict(rows)) == 1


def test_the_scale_of_columns():
    rows = np.random.default_rng(0).standard_normal((500, 3)) * [1, 5, 9]
    assert column_scale(rows, "auto") is None
    assert column_scale(rows, False) is None
    assert column_scale(np.ones((5, 2)), "auto") is None
    np.testing.assert_allclose(column_scale(rows, True), rows.std(axis=0))
    scale = column_scale(np.column_stack([rows * [1, 1, MAX_RATIO], np.ones(500)]), "auto")
    assert scale is not None
    assert scale[3] == 1
    for factor in (1e-150, 1e150):
        assert column_scale(rows * [1, 1, factor], "auto") is None
        with pytest.raises(
            ValueError, match="standard deviation of a column that varies must be between"
        ):
            column_scale(rows * [1, 1, factor], True)


def test_a_stream_is_standardised_by_its_first_block_and_files_keep_it(tmp_path):
    rng = np.random.default_rng(0)
    rows = np.concatenate([clusters(0) for _ in range(33)]) + 0.1 * rng.standard_normal((29_700, 6))
    rows *= FACTORS
    one, other = (TensorMixture(4, random_state=0, covariance_type="spherical") for _ in range(2))
    for at in range(0, len(rows), 4_500):
        one.partial_fit(rows[at : at + 4_500])
        if at == 18_000:
            one.save(tmp_path / "model.npz")
            one = TensorMixture.load(tmp_path / "model.npz")
    other.partial_fit(rows[:25_000]).partial_fit(rows[25_000:])
    np.testing.assert_array_equal(one.means_, other.means_)
    np.testing.assert_allclose(one.scale_, rows[:20_000].std(axis=0))
    one.save(tmp_path / "model.npz")
    loaded = TensorMixture.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.predict_proba(rows[:50]), other.predict_proba(rows[:50]))
    found = TensorMixture(4, standardize=True, random_state=0, covariance_type="spherical").fit(
        rows / FACTORS
    )
    # Of 29,700 rows, those between two clusters, one in a thousand, may have another label.
    assert adjusted_rand_score(found.predict(rows / FACTORS), one.predict(rows)) > 0.995


def test_a_stream_of_a_mixture_warns_of_a_column_that_decides_by_its_unit():
    pd = pytest.importorskip("pandas")
    wine = load_wine(as_frame=True).data
    model = TensorMixture(
        3, standardize=False, random_state=0, covariance_type="spherical"
    ).partial_fit(wine)
    with pytest.warns(odeco.DominantColumnWarning, match="'proline', outweighs") as caught:
        model.summary()
    assert caught[0].filename == __file__
    rows = pd.concat([wine] * 120)  # the first block has 20,000 rows
    with pytest.warns(odeco.DominantColumnWarning, match="'proline', outweighs") as caught:
        TensorMixture(
            3,
            standardize=False,
            max_iter=5,
            n_starts=0,
            random_state=0,
            covariance_type="spherical",
        ).partial_fit(rows)
    assert caught[0].filename == __file__


def test_a_private_mixture_is_never_standardised_by_its_rows():
    private = {"epsilon": 5.0, "delta": 1e-4, "norm_bound": 1e7}
    rows = clusters() * FACTORS
    model = TensorMixture(3, random_state=0, covariance_type="spherical", **private).fit(rows)
    assert model.scale_ is None
    with pytest.raises(ValueError, match="must choose its bound itself"):
        TensorMixture(3, standardize=True, **private).fit(rows)


@pytest.mark.parametrize("model", [TensorMixture, TensorICA])
@pytest.mark.parametrize("value", ["yes", 1, None, 0.5])
def test_standardize_is_true_false_or_auto(model, value):
    with pytest.raises(ValueError, match="`standardize` must be True, False or 'auto'"):
        model(2, standardize=value).fit(clusters())


# ---- sources -------------------------------------------------------------------------------------


def mixed(n: int = 4000) -> np.ndarray:
    """Three sources in six columns, with little noise."""
    rng = np.random.default_rng(3)
    sources = np.column_stack([rng.exponential(size=n), rng.uniform(-2, 2, n), rng.laplace(size=n)])
    return sources @ rng.standard_normal((3, 6)) + 0.05 * rng.standard_normal((n, 6))


@pytest.mark.parametrize("standardize", [True, "auto"])
def test_sources_in_the_leading_directions_do_not_depend_on_units(standardize):
    rows = mixed()
    one = TensorICA(3, standardize=True, random_state=0).fit(rows)
    other = TensorICA(3, standardize=standardize, random_state=0).fit(rows * FACTORS)
    # Signs are those that make the largest entry of `mixing_` positive, which depends on units.
    correlations = np.abs(
        np.corrcoef(one.transform(rows).T, other.transform(rows * FACTORS).T)[:3, 3:]
    )
    np.testing.assert_allclose(correlations.max(axis=0), 1, atol=1e-9)
    own = np.abs(one.mixing_ * FACTORS[:, None])[:, correlations.argmax(axis=0)]
    np.testing.assert_allclose(
        own, np.abs(other.mixing_), rtol=1e-6, atol=1e-9 * np.abs(other.mixing_).max()
    )
    assert "standardised columns" in other.summary()


def test_sources_of_columns_of_similar_scales_and_of_all_directions_are_found_as_before():
    rows = mixed()
    for k in (None, 3):
        one, other = (
            TensorICA(k, standardize=each, random_state=0).fit(rows) for each in ("auto", False)
        )
        np.testing.assert_array_equal(one.components_, other.components_)
        assert "standardised" not in one.summary()


def test_a_column_that_decides_by_its_unit_which_sources_are_found_is_named():
    rows = np.column_stack([mixed(), np.random.default_rng(0).permutation(4000)])
    with pytest.warns(odeco.DominantColumnWarning, match="^Column 6 outweighs") as caught:
        TensorICA(2, standardize=False, random_state=0).fit(rows)
    assert caught[0].filename == __file__
    model = TensorICA(2, standardize=False, random_state=0).partial_fit(rows)
    with pytest.warns(odeco.DominantColumnWarning, match="^Column 6 outweighs"):
        model.summary()
    with warnings.catch_warnings():
        warnings.simplefilter("error", odeco.DominantColumnWarning)
        TensorICA(2, standardize=True, random_state=0).fit(rows)
        TensorICA(random_state=0).fit(rows)
        TensorICA(2, standardize=False, random_state=0).fit(rows[:, :6])


def test_directions_that_are_lost_beside_one_column_are_refused_or_found_in_standardised_columns():
    rows = mixed() * [1, 1, 1, 1, 1, 1e9]
    with pytest.raises(ValueError, match=r"must have similar scales .* standardize=True"):
        TensorICA(3, standardize=False, random_state=0).fit(rows)
    assert "standardised columns" in TensorICA(3, random_state=0).fit(rows).summary()


def test_a_stream_of_sources_keeps_the_directions_of_standardised_columns(tmp_path):
    rows = np.concatenate([mixed(22_000), mixed(22_000)[::-1]]) * FACTORS
    whole = TensorICA(3, random_state=0).fit(rows)
    stream = TensorICA(3, random_state=0).partial_fit(rows[:21_000])
    stream.save(tmp_path / "model.npz")
    stream = TensorICA.load(tmp_path / "model.npz").partial_fit(rows[21_000:])
    correlations = np.abs(np.corrcoef(whole.transform(rows).T, stream.transform(rows).T)[:3, 3:])
    assert correlations.max(axis=0).min() > 0.999
    assert "standardised columns" in stream.summary()


# ---- states --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("covariance_type", ["diag", "full"])
def test_states_of_rescaled_columns_have_equal_paths_and_rescaled_parameters(covariance_type):
    rng = np.random.default_rng(0)
    states = np.repeat(np.arange(60) % 3, 20)
    rows = np.array([[0.0, 0, 0], [6, 0, 1], [0, 6, 2]])[states] + rng.standard_normal((1200, 3))
    factors = np.array([1e-3, 1.0, 1e6])
    one, other = (
        TensorHMM(3, covariance_type=covariance_type, random_state=0).fit(rows * each)
        for each in (np.ones(3), factors)
    )
    np.testing.assert_array_equal(one.predict(rows), other.predict(rows * factors))
    np.testing.assert_allclose(one.means_ * factors, other.means_, atol=0, rtol=1e-5)
    both = np.outer(factors, factors) if covariance_type == "full" else factors**2
    np.testing.assert_allclose(one.covars_, other.covars_ / both, atol=1e-6)
