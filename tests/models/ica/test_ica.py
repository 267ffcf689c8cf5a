"""Independent sources: what is found, how exactly, and that the estimator behaves."""

import numpy as np
import pandas as pd
import pytest
from interrupts import moments_of, run_traced
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_limits

import odeco
from odeco.models import TensorICA
from odeco.models.engine.spec import Learnt
from odeco.models.ica.assumptions import gaussianity_p_values
from odeco.models.ica.likelihood import HistogramLikelihood, maximize_likelihood, scale_to_unit
from odeco.models.ica.newton import fit_scores, score_means, score_values, sum_powers
from odeco.models.ica.spec import ICASpec
from odeco.models.ica.unmixing import BLOCK

START_ROWS = ICASpec.first_block


def draw(kind, n_rows, rng):
    kinds = {
        "uniform": lambda: rng.uniform(-1, 1, n_rows),
        "laplace": lambda: rng.laplace(size=n_rows),
        "exponential": lambda: rng.exponential(size=n_rows),
        "two humps": lambda: rng.choice([-1.0, 1.0], n_rows) + 0.4 * rng.standard_normal(n_rows),
        "gamma": lambda: rng.gamma(4, size=n_rows),
        "student": lambda: rng.standard_t(3, n_rows),
        "gaussian": lambda: rng.standard_normal(n_rows),
    }
    drawn = kinds[kind]()
    return (drawn - drawn.mean()) / drawn.std()


MIXED = ("uniform", "laplace", "exponential", "two humps", "gamma")


def planted(n_rows, seed, kinds=MIXED):
    rng = np.random.default_rng(seed)
    sources = np.column_stack([draw(kind, n_rows, rng) for kind in kinds])
    mixing = rng.standard_normal((len(kinds), len(kinds)))
    return sources @ mixing.T + 3, mixing


def crosstalk(unmixing, mixing):
    """Return W A with its rows in the order and with the signs and scales that make it nearest to
    I.
    """
    product = unmixing @ mixing
    rows, columns = linear_sum_assignment(-np.abs(product))
    ordered = product[rows[np.argsort(columns)]]
    return ordered / np.diagonal(ordered)[:, None], rows[np.argsort(columns)]


#: What scikit-learn tries with weights that this model cannot do; `test_weights.py` tests what it
#: can.
NOT_WITH_WEIGHTS = {
    "check_sample_weight_equivalence_on_dense_data": (
        "nine different rows of 30 columns do not determine eight sources"
    ),
}


@pytest.mark.slow
@parametrize_with_checks(
    [TensorICA(), TensorICA("auto")], expected_failed_checks=lambda _: NOT_WITH_WEIGHTS
)
def test_scikit_learn_accepts_sources(estimator, check):
    check(estimator)


@pytest.mark.parametrize("in_batches", [False, True])
def test_errors_are_those_of_an_efficient_estimate(in_batches):
    # With scores of information h = E[ψ²] = E[ψ'], the pair of equations has the covariance of its
    # own matrix over n. So the entry (i, j) of W A has the variance h_j / n (h_i h_j − 1). The mean
    # of 3 x 20 squares over their variances is 1 up to four deviations of √(2/60).
    ratios, n_rows = [], 40_000
    for seed in range(3):
        rows, mixing = planted(n_rows, seed)
        model = TensorICA(random_state=0)
        if in_batches:
            for batch in np.array_split(rows, 7):
                model.partial_fit(batch)
        else:
            model.fit(rows)
        errors, order = crosstalk(model.components_, mixing)
        information = model.information_[order]
        variances = information[None, :] / (n_rows * (np.outer(information, information) - 1))
        apart = ~np.eye(len(mixing), dtype=bool)
        ratios.append(np.mean((errors**2 / variances)[apart]))
    assert abs(np.mean(ratios) - 1) < 4 * np.sqrt(2 / 60)


@pytest.mark.parametrize("seed", range(5))
def test_a_heavy_tail_does_not_lead_other_sources_astray(seed):
    # The worst pair is two Gammas with h = 1.9, so an error above 0.05 would be seven deviations of
    # √(1.9/2.6/20000).
    rows, mixing = planted(
        20_000, seed, ("student", "student", "gamma", "gamma", "uniform", "laplace")
    )
    errors, _ = crosstalk(TensorICA(random_state=seed).fit(rows).components_, mixing)
    assert np.abs(errors - np.eye(6)).max() < 0.05


def test_the_score_of_a_known_density_is_found():
    # For the logistic density p = 1/(4 cosh²(x/2)), the score is tanh(x/2); its information times
    # variance is π²/9.
    rng = np.random.default_rng(0)
    values = rng.logistic(size=(1, 400_000)) / (np.pi / np.sqrt(3))
    sums, powers = sum_powers(values)
    coefficients = fit_scores(sums)
    near = np.abs(values[0]) < 3
    truth = np.pi / np.sqrt(3) * np.tanh(values[0] * np.pi / np.sqrt(3) / 2)
    # n (h − 1) is off by 77 ± 53 for eight functions fitted to n values (see newton.py), so the
    # mean square of the error of the score is of the order 77/n = 2e-4; its square root 0.014.
    assert np.sqrt(np.mean((score_values(coefficients, powers)[0] - truth)[near] ** 2)) < 0.05
    assert score_means(coefficients, sums)[1][0] == pytest.approx(np.pi**2 / 9, abs=0.01)


def test_sums_over_rows_give_the_products_and_derivatives_of_all_functions():
    rng = np.random.default_rng(1)
    values = rng.standard_t(3, size=(2, 500)) * 1.5
    sums, _ = sum_powers(values)
    y = np.clip(values, -4, 4)
    r = 1 / (1 + y**2)
    functions = np.array([y, y * r, y * r**2, y * r**3, r, r**2, y**2, y**3])
    derivatives = np.array(
        [
            *(1 + 0 * y, r - 2 * y**2 * r**2, r**2 - 4 * y**2 * r**3, r**3 - 6 * y**2 * r**4),
            *(-2 * y * r**2, -4 * y * r**3, 2 * y, 3 * y**2),
        ]
    ) * (np.abs(values) < 4)
    coefficients = rng.standard_normal((2, 8))
    mean, slope = score_means(coefficients, sums)
    np.testing.assert_allclose(mean, np.einsum("kf,fkn->k", coefficients, functions) / 500)
    np.testing.assert_allclose(slope, np.einsum("kf,fkn->k", coefficients, derivatives) / 500)
    for source, fitted in enumerate(fit_scores(sums)):
        covariance = np.cov(functions[:, source], bias=True)
        scale = np.sqrt(np.diagonal(covariance))
        ridge = np.diag(1e-5 * scale**2)
        np.testing.assert_allclose(
            fitted,
            np.linalg.solve(covariance + ridge, derivatives[:, source].mean(axis=1)),
            rtol=1e-5,
        )


@pytest.mark.parametrize("seed", range(4))
def test_auto_keeps_the_sources_that_are_not_gaussian(seed):
    # Gaussians are taken for sources with a chance of at most 1 %, by Holm's rule. A Gamma(4) is
    # the hardest to see: for 3,000 rows its statistic is 379 on average, and 14 is needed.
    rows, mixing = planted(6000, seed, (*MIXED, "gaussian", "gaussian", "gaussian"))
    model = TensorICA("auto", random_state=seed).fit(rows)
    assert model.n_components_ == len(MIXED)
    assert np.abs(model.components_ @ mixing)[:, len(MIXED) :].max() < 0.1
    again = model.inverse_transform(model.transform(rows))
    assert again.shape == rows.shape


def test_the_test_of_gaussians_has_the_size_that_it_claims():
    rng = np.random.default_rng(0)
    chances = gaussianity_p_values(rng.standard_normal((4000, 300)))
    # A uniform chance is below 0.1 in 400 of 4,000 cases, up to four deviations of √(4000 x 0.09) =
    # 19.
    assert abs(np.sum(chances < 0.1) - 400) < 76


def test_fewer_sources_than_columns_go_through_the_strongest_directions():
    rng = np.random.default_rng(3)
    sources = np.column_stack(
        [draw(kind, 30_000, rng) for kind in ("uniform", "laplace", "exponential")]
    )
    mixing = rng.standard_normal((8, 3))
    rows = sources @ mixing.T + 0.01 * rng.standard_normal((30_000, 8))
    whole = TensorICA(3, random_state=0).fit(rows)
    stream = TensorICA(3, random_state=0)
    for batch in np.array_split(rows, 4):
        stream.partial_fit(batch)
    for model in (whole, stream):
        errors, _ = crosstalk(model.components_, mixing)
        assert np.abs(errors - np.eye(3)).max() < 0.05  # seven deviations, as above
        np.testing.assert_allclose(
            model.mixing_, np.linalg.pinv(model.components_), rtol=1e-6, atol=1e-9
        )
        assert model.whitening_.shape == (3, 8)


def test_sources_come_back_to_rows_and_have_variance_one():
    rows, _ = planted(5000, 0)
    model = TensorICA(random_state=0).fit(rows)
    np.testing.assert_allclose(model.inverse_transform(model.transform(rows)), rows, atol=1e-8)
    np.testing.assert_allclose(model.transform(rows).std(axis=0), 1, rtol=1e-6)
    largest = np.argmax(np.abs(model.mixing_), axis=0)
    assert np.all(model.mixing_[largest, range(5)] > 0)
    assert np.all(np.diff(model.information_) <= 0)


def test_units_of_columns_do_not_matter():
    rows, _ = planted(5000, 0)
    units = np.array([1e-9, 1.0, 1e6, 1e-3, 1e9])
    plain = TensorICA(random_state=0).fit_transform(rows)
    scaled = TensorICA(random_state=0).fit_transform(rows * units)
    correlation = np.abs(np.corrcoef(plain.T, scaled.T)[:5, 5:])
    assert np.sort(correlation.max(axis=0))[0] > 1 - 1e-6


BATCHES = (
    [],
    [1],
    [START_ROWS],
    [100, START_ROWS + 5, START_ROWS + BLOCK],
    list(range(3000, 30_000, 3000)),
)


def test_a_stream_of_sources_does_not_depend_on_where_batches_end():
    rows, _ = planted(30_000, 1)
    found = []
    for cuts in BATCHES:
        model = TensorICA(random_state=0)
        for batch in np.split(rows, cuts):
            model.partial_fit(batch)
        found.append(model.components_)
        assert model.n_samples_seen_ == len(rows)
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


@pytest.mark.parametrize("n_before", [1000, START_ROWS + 100])
def test_a_stream_goes_on_after_a_file_to_the_last_bit(n_before, tmp_path):
    rows, _ = planted(START_ROWS + 2 * BLOCK + 7, 2)
    frame = pd.DataFrame(rows, columns=list("abcde"))
    path = tmp_path / "sources.npz"
    TensorICA(random_state=0).partial_fit(frame[:n_before]).save(path)
    resumed = TensorICA.load(path).partial_fit(frame[n_before:])
    straight = TensorICA(random_state=0).partial_fit(frame)
    np.testing.assert_array_equal(resumed.components_, straight.components_)
    assert list(resumed.feature_names_in_) == list("abcde")
    straight.save(path)
    np.testing.assert_array_equal(TensorICA.load(path).transform(frame), straight.transform(frame))


def test_a_fitted_model_is_read_again_as_it_was_written(tmp_path):
    rows, _ = planted(3000, 2)
    model = TensorICA("auto", random_state=0).fit(rows)
    model.save(tmp_path / "sources.npz")
    again = TensorICA.load(tmp_path / "sources.npz")
    np.testing.assert_array_equal(again.transform(rows), model.transform(rows))
    assert again.summary() == model.summary()
    assert again.get_params() == model.get_params()


@pytest.mark.slow
def test_an_interrupt_leaves_sources_as_they_were_or_as_they_will_be():
    rows, _ = planted(START_ROWS + 2 * BLOCK, 0, ("uniform", "laplace"))
    first, second = rows[: START_ROWS + 10], rows[START_ROWS + 10 :]
    begun = TensorICA(random_state=0).partial_fit(first)
    expected = clone(begun).partial_fit(first).partial_fit(second).components_
    places = ("models/ica/spec.py", "models/engine/stream.py", "models/engine/estimator.py")
    learnt = begun._learnt

    def fresh():
        model = TensorICA(random_state=0)
        model.n_features_in_ = 2
        model._learnt = Learnt(learnt.spec, learnt.seed, None, learnt.stream)
        return model

    moments = moments_of(lambda: fresh().partial_fit(second), places)
    assert len(moments) > 30
    for moment in moments:
        model = fresh()
        run_traced(lambda model=model: model.partial_fit(second), moment, places)
        if model._learnt.stream.n_seen == len(first):
            model.partial_fit(second)
        assert model._learnt.stream.n_seen == len(rows)
        np.testing.assert_array_equal(model.components_, expected)


def test_a_failed_fit_leaves_the_model_as_it_was():
    rows, _ = planted(1000, 0)
    model = TensorICA(random_state=0).fit(rows)
    before = model.transform(rows)
    with pytest.raises(ValueError, match="All rows are equal"):
        model.fit(np.ones((50, 3)))
    np.testing.assert_array_equal(model.transform(rows), before)
    model.partial_fit(rows)
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(rows[:, :3])
    assert model.n_samples_seen_ == 1000


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"n_components": 0},
            '`n_components` must be an int of at least 1, or None, or "auto". Got 0.',
        ),
        (
            {"n_components": "all"},
            "`n_components` must be an int of at least 1, or None, or \"auto\". Got 'all'.",
        ),
        (
            {"n_components": 11},
            "in [1, 10] for the fourth moment of 5 columns: more cannot be told apart. Got 11.",
        ),
        ({"max_iter": 0}, "`max_iter` must be an int of at least 1. Got 0."),
        ({"tol": -1.0}, "`tol` must be a number of at least 0, and finite. Got -1.0."),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, text):
    rows, _ = planted(100, 0)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared below
        TensorICA(**settings).fit(rows)
    assert str(caught.value).endswith(text)


def test_sources_of_another_number_are_refused():
    rows, _ = planted(500, 0)
    model = TensorICA(3, random_state=0).fit(rows)
    with pytest.raises(ValueError, match=r"a column for each of the 3 components\. Got 5 columns"):
        model.inverse_transform(rows)
    with pytest.raises(ValueError, match="`n_samples` must be an int of at least 1"):
        model.sample(0)


def test_columns_that_do_not_vary_are_no_directions():
    rows, _ = planted(2000, 0)
    wide = np.column_stack([rows, np.full(2000, 7.0), rows[:, 0] + rows[:, 1]])
    model = TensorICA(random_state=0).fit(wide)
    assert model.n_components_ == 5
    np.testing.assert_allclose(model.inverse_transform(model.transform(wide)), wide, atol=1e-6)


def test_likelihood_is_a_density_and_prefers_the_right_model():
    rng = np.random.default_rng(0)
    rows, _ = planted(20_000, 0, ("uniform", "exponential"))
    model = TensorICA(random_state=0).fit(rows)
    low, high = rows.min(axis=0) - 3, rows.max(axis=0) + 3
    points = rng.uniform(low, high, size=(200_000, 2))
    density = np.exp(model.score_samples(points)) * np.prod(high - low)
    # The mean over uniform points is the integral, which is 1 up to four standard errors.
    assert abs(density.mean() - 1) < 4 * density.std() / np.sqrt(len(points))
    gaussian = TensorICA(1, random_state=0).fit(rows)
    assert model.score(rows) > gaussian.score(rows)
    new, sources = model.sample(20_000, random_state=0)
    # Two samples of 20,000 have a mean log-likelihood that differs by less than five of its
    # standard errors.
    spread = model.score_samples(rows).std() * np.sqrt(2 / 20_000)
    assert abs(model.score(new) - model.score(rows)) < 5 * spread
    np.testing.assert_allclose(model.transform(new), sources, atol=1e-8)


def test_samples_have_the_covariance_of_rows_if_sources_leave_something():
    rows, _ = planted(20_000, 0)
    new, _ = TensorICA(2, random_state=0).fit(rows).sample(20_000, random_state=0)
    scale = np.sqrt(np.diagonal(np.cov(rows.T)))
    # An entry of a correlation errs by at most about √(kurtosis/n) ≤ √(9/20000) = 0.02 in either
    # sample.
    np.testing.assert_allclose(
        np.cov(new.T) / np.outer(scale, scale), np.corrcoef(rows.T), atol=0.1
    )


def test_tables_go_in_and_come_out():
    rows, _ = planted(1000, 0)
    frame = pd.DataFrame(rows, columns=["a", "b", "c", "d", "e"])
    pipeline = make_pipeline(StandardScaler(), TensorICA(2, random_state=0)).set_output(
        transform="pandas"
    )
    sources = pipeline.fit_transform(frame)
    assert list(sources.columns) == ["tensorica0", "tensorica1"]
    model = TensorICA(random_state=0).fit(frame)
    assert model.summary().startswith("5 sources.")
    assert any(f"{name} " in model.summary() for name in frame.columns)


def test_a_summary_begins_with_a_verdict_and_a_plot_names_columns():
    rows, _ = planted(5000, 0, (*MIXED, "gaussian", "gaussian"))
    model = TensorICA(random_state=0).fit(
        pd.DataFrame(rows, columns=[f"sensor {i}" for i in range(7)])
    )
    assert model.summary().startswith(
        "5 of 7 sources are separated; the other 2 look Gaussian in held-out rows."
    )
    figure = model.plot()
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        f"sensor {i}" for i in range(7)
    ]
    assert TensorICA(random_state=0).fit(planted(5000, 0)[0]).summary().startswith("5 sources.")


def test_a_damaged_stream_of_sources_is_refused(tmp_path):
    from odeco._util.files import load_arrays, save_arrays

    rows, _ = planted(100, 0)
    path = tmp_path / "sources.npz"
    TensorICA(random_state=0).partial_fit(rows).save(path)
    header, arrays = load_arrays(path, "sources model")
    for name, value in (("stream.n_seen", np.array(99)), ("stream.n_blocks", np.array(3))):
        save_arrays(path, "sources model", header, {**arrays, name: value})
        with pytest.raises(odeco.FileFormatError, match=r"sources\.npz"):
            TensorICA.load(path)
    TensorICA(random_state=0).fit(rows).save(tmp_path / "fitted.npz")
    fitted_header, fitted = load_arrays(tmp_path / "fitted.npz", "sources model")
    skew = fitted["fit.params.covariance"] + np.triu(np.ones((5, 5)), 1)
    for name, value in (
        ("covariance", skew),
        ("covariance", -fitted["fit.params.covariance"]),
        ("unmixing", 0 * fitted["fit.params.unmixing"]),
        ("counts", 0 * fitted["fit.params.counts"]),
    ):
        save_arrays(path, "sources model", fitted_header, {**fitted, f"fit.params.{name}": value})
        with pytest.raises(odeco.FileFormatError, match=r"sources\.npz"):
            TensorICA.load(path)
    save_arrays(path, "sources model", {**header, "n_features": 4}, arrays)
    with pytest.raises(odeco.FileFormatError, match=r"sources\.npz"):
        TensorICA.load(path)


@pytest.mark.parametrize("in_batches", [False, True])
@pytest.mark.parametrize("exponents", [(665,) * 5, (-665,) * 5, (665, -665, 0, 300, -300)])
def test_sources_do_not_depend_on_the_units_of_columns(exponents, in_batches, tmp_path):
    # Factors are powers of two near 1e±200: rows keep all their digits.
    rows, _ = planted(30_000, 0)
    factors = np.ldexp(1.0, exponents)
    plain, scaled = TensorICA(random_state=0), TensorICA(random_state=0)
    if in_batches:
        for part in np.array_split(rows, 3):
            plain.partial_fit(part)
            scaled.partial_fit(part * factors)
    else:
        plain.fit(rows)
        scaled.fit(rows * factors)
    scaled.save(tmp_path / "model.npz")
    scaled = TensorICA.load(tmp_path / "model.npz")
    sources, same = plain.transform(rows), scaled.transform(rows * factors)
    order = np.abs(np.corrcoef(sources.T, same.T)[:5, 5:]).argmax(axis=1)
    # A sign is that of the largest weight, which depends on the unit; all else agrees up to
    # rounding.
    signs = np.sign(np.sum(sources * same[:, order], axis=0))
    np.testing.assert_allclose(same[:, order] * signs, sources, atol=1e-6)
    np.testing.assert_allclose(
        scaled.mixing_[:, order] * signs / factors[:, None], plain.mixing_, atol=1e-6
    )
    np.testing.assert_allclose(
        scaled.components_[order] * signs[:, None] * factors, plain.components_, atol=1e-6
    )
    np.testing.assert_allclose(scaled.mean_ / factors, plain.mean_, atol=1e-9)
    np.testing.assert_allclose(scaled.inverse_transform(same) / factors, rows, atol=1e-6)
    assert scaled.score(rows * factors) == pytest.approx(
        plain.score(rows) - sum(exponents) * np.log(2), rel=1e-9
    )
    assert np.all(np.isfinite(scaled.sample(10)[0]))
    assert scaled.summary()


def test_the_strongest_directions_stay_those_of_the_units_given():
    rows, _ = planted(2000, 0)
    rows[:, 0] *= 1e6
    with pytest.warns(odeco.DominantColumnWarning):
        model = TensorICA(1, standardize=False, random_state=0).fit(rows)
    with pytest.warns(odeco.DominantColumnWarning):
        scaled = TensorICA(1, standardize=False, random_state=0).fit(rows * 2.0**500)
    np.testing.assert_allclose(scaled.components_ * 2.0**500, model.components_, rtol=1e-6)


@pytest.mark.parametrize("in_batches", [False, True])
def test_rows_whose_unmixing_matrix_would_overflow_are_refused(in_batches):
    # The entries of the unmixing matrix are of the order of one over those of rows: 1e310 is too
    # large.
    rows = planted(500, 0)[0] * 1e-155 * 1e-155
    with pytest.raises(ValueError, match="Multiply all rows by a constant"):
        _ = (TensorICA().partial_fit(rows) if in_batches else TensorICA().fit(rows)).components_


def test_more_iterations_never_give_a_less_likely_unmixing_matrix():
    """Sources of these rows share a level, so they are not independent, and steps shrink slowly."""
    generator = np.random.default_rng(0)
    rows = (
        generator.laplace(size=(4000, 6))
        * generator.gamma(1.0, size=(4000, 1))
        @ generator.standard_normal((6, 6))
    )
    models = [
        TensorICA(max_iter=n_iter, tol=1e-9, random_state=0).fit(rows) for n_iter in (1, 3, 10, 100)
    ]
    likelihood = HistogramLikelihood([rows], rows.mean(axis=0), np.cov(rows.T, bias=True))
    heights = [likelihood.value(model.components_) for model in models]
    assert np.all(np.diff(heights) >= -1e-9)
    assert models[-1].converged_
    assert models[-1].n_iter_ <= 100


def test_the_gradient_of_the_likelihood_is_its_derivative():
    """By central differences, for rows of any covariance; variances stay 1."""
    generator = np.random.default_rng(1)
    rows = generator.laplace(size=(5000, 4)) @ generator.standard_normal((4, 4)) + 3
    likelihood = HistogramLikelihood(
        [rows[:3000], rows[3000:]], rows.mean(axis=0), np.cov(rows.T, bias=True)
    )
    unmixing = scale_to_unit(generator.standard_normal((4, 4)), likelihood.covariance)
    slope = likelihood.gradient(unmixing)[1]
    change = generator.standard_normal((4, 4))
    np.fill_diagonal(change, 0)

    def along(share):
        after = unmixing + share * change @ unmixing
        return likelihood.value(scale_to_unit(after, likelihood.covariance))

    assert (along(1e-5) - along(-1e-5)) / 2e-5 == pytest.approx(np.sum(slope * change), rel=1e-2)


def test_the_likelihood_is_climbed_to_a_maximum_whatever_the_threads(monkeypatch):
    """From the same start, and no step of any length along the gradient leads higher than noise."""
    generator = np.random.default_rng(2)
    level = generator.gamma(1.0, size=(9000, 1))
    rows = generator.laplace(size=(9000, 5)) * level @ generator.standard_normal((5, 5))
    likelihood = HistogramLikelihood(
        list(np.array_split(rows, 3)), rows.mean(axis=0), np.cov(rows.T, bias=True)
    )
    start = scale_to_unit(generator.standard_normal((5, 5)), likelihood.covariance)
    found = maximize_likelihood(likelihood, start, max_iter=500)
    assert found.converged
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(3)), raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with threadpool_limits(limits=3):
        np.testing.assert_array_equal(
            maximize_likelihood(likelihood, start, max_iter=500).unmixing, found.unmixing
        )
    height, slope, _ = likelihood.gradient(found.unmixing)
    lengths = np.geomspace(1e-4, 1, 20) / np.abs(slope).max()
    steps = [
        scale_to_unit(found.unmixing + share * slope @ found.unmixing, likelihood.covariance)
        for share in lengths
    ]
    assert max(map(likelihood.value, steps)) < height + 1e-4
    assert likelihood.value(start) < height - 0.1
    assert not maximize_likelihood(likelihood, start, max_iter=3).converged


def test_fewer_rows_than_columns_show_no_source():
    rows = np.random.default_rng(0).laplace(size=(20, 40))
    for k in ("auto", None):
        assert (
            "none of which is known to be a source"
            in TensorICA(k, random_state=0).fit(rows).summary()
        )


def test_a_source_that_is_one_row_is_said_to_be_an_outlier():
    rng = np.random.default_rng(0)
    rows = rng.exponential(size=(2000, 3)) @ rng.normal(size=(3, 3))
    assert "outliers" not in TensorICA(3, random_state=0).fit(rows).summary()
    rows[:, 2] = rows[:, 0] - rows[:, 1]  # a direction without variance, but for one row
    rows[7, 2] += 5
    assert "1 of the sources may be outliers" in TensorICA(random_state=0).fit(rows).summary()
