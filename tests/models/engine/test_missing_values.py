"""Missing values in mixtures: the E step is exact, likelihoods never fall, and what is planted is
found.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.impute import SimpleImputer
from sklearn.mixture import GaussianMixture

from odeco.models import TensorICA, TensorMixture
from odeco.models.emissions.gaussians import Gaussians
from odeco.models.emissions.product import ProductMixture
from odeco.models.engine import rows as engine_rows
from odeco.models.gmm.spec import MixtureSpec

KINDS = ("spherical", "diag", "full")


def with_gaps(rows, share, seed=0):
    """Return rows with a share of their values missing completely at random."""
    return np.where(np.random.default_rng(seed).random(rows.shape) < share, np.nan, rows)


def some_gaussians(kind, k=3, d=5, seed=0):
    """Return a mixture with strong correlations, if its kind has any."""
    rng = np.random.default_rng(seed)
    roots = rng.standard_normal((k, d, d))
    full = roots @ roots.transpose(0, 2, 1) + 0.05 * np.eye(d)
    covariances = {
        "full": full,
        "diag": np.einsum("kii->ki", full),
        "spherical": np.arange(1.0, k + 1),
    }[kind]
    return Gaussians(rng.dirichlet(np.ones(k)), 3 * rng.standard_normal((k, d)), covariances)


def as_matrix(covariance, d):
    return covariance if np.ndim(covariance) == 2 else np.diag(np.broadcast_to(covariance, d))


def brute_force(model, rows):
    """Return posterior, log-densities, and expected sums of x and x xᵀ, row by row."""
    (n, d), k = rows.shape, len(model.weights)
    joint, expected, spread = np.zeros((n, k)), np.zeros((n, k, d)), np.zeros((n, k, d, d))
    for i, row in enumerate(rows):
        seen = ~np.isnan(row)
        for h in range(k):
            mean, matrix = model.means[h], as_matrix(model.covariances[h], d)
            joint[i, h] = np.log(model.weights[h])
            slope = np.zeros((d - seen.sum(), 0))
            if seen.any():
                own = matrix[np.ix_(seen, seen)]
                joint[i, h] += multivariate_normal(mean[seen], own).logpdf(row[seen])
                slope = matrix[np.ix_(~seen, seen)] @ np.linalg.inv(own)
            expected[i, h, seen] = row[seen]
            expected[i, h, ~seen] = mean[~seen] + slope @ (row[seen] - mean[seen])
            spread[i, h][np.ix_(~seen, ~seen)] = (
                matrix[np.ix_(~seen, ~seen)] - slope @ matrix[np.ix_(seen, ~seen)]
            )
    scores = np.logaddexp.reduce(joint, axis=1)
    shares = np.exp(joint - scores[:, None])
    seconds = np.einsum("nk,nkd,nke->kde", shares, expected, expected) + np.einsum(
        "nk,nkde->kde", shares, spread
    )
    return shares, scores, np.einsum("nk,nkd->kd", shares, expected), seconds


@pytest.mark.parametrize("kind", KINDS)
def test_the_e_step_is_that_of_the_observed_columns(kind, monkeypatch):
    monkeypatch.setattr(engine_rows, "_NUMBERS_AT_A_TIME", 300)  # in several parts
    model = some_gaussians(kind)
    rows = with_gaps(3 * np.random.default_rng(1).standard_normal((200, 5)), 0.4)
    rows[0], rows[1] = np.nan, 1.0
    shares, scores, firsts, seconds = brute_force(model, rows)
    found, found_scores = model.posterior(rows)
    sums = model.part.sums(rows, found)
    if kind == "full":
        expected = [shares.sum(axis=0)[None], firsts.T, seconds.reshape(3, -1).T]
    else:  # a missing number adds nothing
        seen = ~np.isnan(rows)
        numbers = np.where(seen, rows, 0.0)
        expected = [seen.T @ shares, numbers.T @ shares, (numbers**2).T @ shares]
    np.testing.assert_allclose(found, shares, atol=1e-10)
    np.testing.assert_allclose(found_scores, scores, atol=1e-9)
    np.testing.assert_allclose(sums, np.vstack(expected), atol=1e-8)
    np.testing.assert_allclose(
        found[0], model.weights, rtol=1e-12
    )  # nothing is known about an empty row


def test_parts_of_rows_have_few_numbers(monkeypatch):
    monkeypatch.setattr(engine_rows, "_NUMBERS_AT_A_TIME", 1000)
    rows = with_gaps(np.zeros((500, 12)), 0.5)
    parts = list(engine_rows.parts_of(rows, 3))
    assert np.array_equal(np.concatenate([np.arange(500)[part] for part in parts]), np.arange(500))
    numbers = [3 * (12 + np.isnan(rows[part]).sum(axis=1) ** 2) for part in parts]
    assert (
        max(each.sum() - each.max() for each in numbers)
        <= 1000
        < sum(each.sum() for each in numbers)
    )


def test_densities_do_not_depend_on_units():
    model, scale = some_gaussians("full"), 10.0 ** np.array([40, -40, 0, 7, -3])
    rows = with_gaps(3 * np.random.default_rng(1).standard_normal((100, 5)), 0.4)
    volumes = ~np.isnan(rows) @ np.log(scale)
    shares, scores = model.posterior(rows)
    other, other_scores = model.moved(np.zeros(5), scale).posterior(rows * scale)
    np.testing.assert_allclose(other, shares, atol=1e-9)
    np.testing.assert_allclose(other_scores + volumes, scores, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.1, 0.4, 0.7])
def test_no_em_iteration_lowers_the_likelihood(kind, share):
    rows = with_gaps(some_gaussians("full").draw(300, np.random.default_rng(2))[0], share)
    given, scores = some_gaussians(kind, seed=5), []
    model = ProductMixture((given.part,), given.weights)
    for _ in range(40):
        shares, own = model.posterior(rows)
        scores.append(own.mean())
        made = model.m_step(model.sums(rows, shares), np.zeros(5))
        model = ProductMixture(made.parts, shares.mean(axis=0))
    assert np.all(np.diff(scores) > -1e-10)
    assert scores[-1] > scores[0] + 0.1


def planted_rows(n, seed):
    """Return rows of three components with correlations of ±0.8 in pairs of columns, their means
    and covariances.
    """
    rng = np.random.default_rng(seed)
    means = np.array([[0.0, 0, 0, 0], [8, 8, 0, 0], [0, 8, 8, 8]])
    pairs = np.kron(np.eye(2), [[0.0, 0.8], [0.8, 0.0]])
    covariances = np.eye(4) + np.array([1, -1, 1])[:, None, None] * pairs
    labels = np.arange(n) % 3
    noise = np.einsum(
        "nij,nj->ni", np.linalg.cholesky(covariances)[labels], rng.standard_normal((n, 4))
    )
    return means[labels] + noise, means, covariances


@pytest.mark.parametrize("seed", range(3))
def test_planted_parameters_are_found_within_standard_errors_and_imputed_means_are_not(seed):
    # A component has n/3 rows, of which 80 % have a column and 64 % two. Five standard errors: of a
    # mean √(1/0.8n'), of a covariance of correlated normal variables at most √(2/0.64n'). What
    # observed columns say about missing ones only makes errors smaller.
    n = 6000
    rows, means, covariances = planted_rows(n, seed)
    gaps, own = with_gaps(rows, 0.2, seed), n / 3
    mean_error, covariance_error = 5 / np.sqrt(0.8 * own), 5 * np.sqrt(2 / (0.64 * own))

    def errors(found_means, found_covariances):
        order = [int(np.argmin(np.abs(found_means - mean).sum(axis=1))) for mean in means]
        return np.abs(found_means[order] - means).max(), np.abs(
            found_covariances[order] - covariances
        ).max()

    model = TensorMixture(3, covariance_type="full", random_state=0).fit(gaps)
    ours = errors(model.means_, model.covariances_)
    assert ours[0] < mean_error
    assert ours[1] < covariance_error
    imputed = GaussianMixture(3, random_state=0, n_init=3).fit(SimpleImputer().fit_transform(gaps))
    assert errors(imputed.means_, imputed.covariances_)[1] > covariance_error


def test_what_is_missing_may_depend_on_what_is_observed():
    # The second column, of correlation 0.8 with the first, is missing where the first is positive.
    # The mean of those that are observed is −0.8 √(2/π) = −0.64. Regression on half of the rows:
    # the error of the mean at 0 has a variance of at most (1 − 0.64)(1/n + 2/n + E[x | x < 0]² /
    # (n/2 Var[x | x < 0])) = 4.8 · 0.36/n.
    n, rng = 4000, np.random.default_rng(0)
    first = rng.standard_normal(n)
    second = 0.8 * first + 0.6 * rng.standard_normal(n)
    rows = np.column_stack([first, np.where(first > 0, np.nan, second)])
    model = TensorMixture(1, covariance_type="full", max_iter=1000, tol=1e-9, random_state=0).fit(
        rows
    )
    error = np.sqrt(1 / n + 4.8 * 0.36 / n)
    assert abs(model.means_[0, 1]) < 5 * error
    assert abs(np.nanmean(rows[:, 1])) > 5 * error


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS, "auto"])
def test_rows_without_any_value_have_the_probabilities_of_components(kind):
    rows = with_gaps(planted_rows(300, 0)[0], 0.2)
    rows[7] = np.nan
    model = TensorMixture(3, covariance_type=kind, random_state=0).fit(rows)
    np.testing.assert_allclose(model.predict_proba(rows)[7], model.weights_, rtol=1e-10)
    np.testing.assert_allclose(model.score_samples(rows)[7], 0.0, atol=1e-10)
    scores = model.score_samples(rows)
    n_parameters = {"spherical": 17, "diag": 26, "full": 44}[model.covariance_type_]
    assert model.score(rows) == pytest.approx(scores.mean())
    assert model.bic(rows) == pytest.approx(-2 * scores.sum() + n_parameters * np.log(300))
    assert model.aic(rows) == pytest.approx(-2 * scores.sum() + 2 * n_parameters)
    assert np.bincount(model.predict(rows)).tolist() == pytest.approx([100] * 3, abs=15)


@pytest.mark.slow
def test_number_and_kind_are_selected_in_spite_of_gaps():
    rows = with_gaps(planted_rows(900, 1)[0], 0.2)
    model = TensorMixture("auto", random_state=0).fit(rows)
    assert (model.n_components_, model.covariance_type_) == (3, "full")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["spherical", "full"])
def test_scores_of_standardised_columns_are_in_the_units_of_rows(kind):
    rows, scale = with_gaps(planted_rows(300, 0)[0], 0.2), np.array([1.0, 1e3, 1e-2, 1.0])
    how = {"covariance_type": kind, "standardize": True, "random_state": 0}
    model, other = TensorMixture(3, **how).fit(rows), TensorMixture(3, **how).fit(rows * scale)
    volumes = ~np.isnan(rows) @ np.log(scale)
    np.testing.assert_allclose(
        other.score_samples(rows * scale) + volumes, model.score_samples(rows), atol=1e-6
    )
    np.testing.assert_allclose(other.means_, model.means_ * scale, rtol=1e-6)
    np.testing.assert_allclose(model.scale_, np.nanstd(rows, axis=0))
    auto = TensorMixture(3, covariance_type=kind, standardize="auto", random_state=0).fit(
        rows * scale
    )
    assert auto.score(rows * scale) >= other.score(rows * scale) - 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["diag", "full"])
def test_a_stream_does_not_depend_on_batches_and_goes_on_after_a_file(kind, monkeypatch, tmp_path):
    monkeypatch.setattr(MixtureSpec, "first_block", 300)
    monkeypatch.setattr(MixtureSpec, "next_block", 100)
    rows = with_gaps(planted_rows(640, 0)[0], 0.3)
    rows[310] = np.nan
    whole = TensorMixture(3, covariance_type=kind, random_state=0).partial_fit(rows)
    pieces = TensorMixture(3, covariance_type=kind, random_state=0).partial_fit(rows[:333])
    pieces.save(tmp_path / "model.npz")
    pieces = TensorMixture.load(tmp_path / "model.npz").partial_fit(rows[333:])
    np.testing.assert_array_equal(whole.means_, pieces.means_)
    np.testing.assert_array_equal(whole.covariances_, pieces.covariances_)
    few = TensorMixture(3, covariance_type=kind, random_state=0)
    np.testing.assert_array_equal(few.partial_fit(rows[:200]).means_, few.fit(rows[:200]).means_)


def test_a_column_without_any_value_is_named_and_the_model_stays():
    pandas = pytest.importorskip("pandas")
    rows = planted_rows(60, 0)[0]
    table = pandas.DataFrame(rows, columns=["a", "b", "c", "d"])
    model = TensorMixture(2, random_state=0).fit(table)
    before = model.means_.copy()
    with pytest.raises(ValueError, match=r"c \(column 2\) has none in 60 rows"):
        model.fit(table.assign(c=np.nan))
    np.testing.assert_array_equal(model.means_, before)
    with pytest.raises(ValueError, match="Column 2 has none"):
        TensorMixture(2).fit(np.where(np.arange(4) == 2, np.nan, rows))
    with pytest.raises(ValueError, match="infinity: row 0, column a"):
        model.predict(table.replace(table.iloc[0, 0], np.inf))


def test_models_without_an_e_step_for_gaps_name_the_column():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(planted_rows(60, 0)[0], columns=["a", "b", "c", "d"])
    table.loc[17, "c"] = np.nan
    with pytest.raises(ValueError, match="contains NaN: row 17, column c"):
        TensorICA(2).fit(table)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.3])
def test_a_figure_and_a_page_have_rows_with_gaps(share, tmp_path):
    rows = with_gaps(planted_rows(90, 0)[0], share)
    model = TensorMixture(3, random_state=0).fit(rows)
    model.write_report(tmp_path / "page.html", rows=rows)
    assert "3 components" in (tmp_path / "page.html").read_text()
