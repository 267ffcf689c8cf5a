"""More sources than columns, and none at all."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from odeco.models import TensorICA
from odeco.models.ica.overcomplete import gaussians_of, gibbs_means


def planted(d, k, n, *, seed=0):
    """Laplace sources of variance 2, and a mixing matrix with columns of length 1."""
    generator = np.random.default_rng(seed)
    mixing = generator.standard_normal((d, k))
    mixing /= np.linalg.norm(mixing, axis=0)
    sources = generator.laplace(size=(n, k))
    return sources @ mixing.T + 5.0, mixing * np.sqrt(2), sources / np.sqrt(2)


def matched(model, mixing):
    """Return for each true source the place and the sign of the one found, and the cosine of their
    directions.
    """
    found = model.mixing_ / np.linalg.norm(model.mixing_, axis=0)
    cosines = (mixing / np.linalg.norm(mixing, axis=0)).T @ found
    places = np.abs(cosines).argmax(axis=1)
    chosen = cosines[np.arange(len(places)), places]
    return places, np.sign(chosen), np.abs(chosen)


@pytest.fixture(scope="module")
def fitted():
    rows, mixing, sources = planted(6, 9, 120_000)
    return rows, mixing, sources, TensorICA(9, random_state=0).fit(rows)


def test_the_mixing_matrix_is_found_with_honest_errors():
    """Errors come from 8 to 15 groups, so squares over them have a mean of ν/(ν − 2), 1.2 to 1.4,
    over many data sets.

    The 9 sources of 4 data sets are independent, more or less: a mean beyond 2.2 has a chance below
    1 in 1,000.
    """
    squares = []
    for seed in range(4):
        rows, mixing, _ = planted(6, 9, 60_000, seed=20 + seed)
        model = TensorICA(9, random_state=0).fit(rows)
        places, signs, cosines = matched(model, mixing)
        assert sorted(places) == list(range(9))
        assert cosines.min() > 0.98
        deviations = (model.mixing_[:, places] * signs - mixing) / model.mixing_errors_[:, places]
        squares.append(np.mean(deviations**2))
    assert 0.6 < np.mean(squares) < 2.2


def test_a_model_of_more_sources_describes_itself(fitted):
    _, mixing, _, model = fitted
    assert matched(model, mixing)[2].min() > 0.99
    assert np.allclose(model._learnt.fit.params.kurtosis, 3, atol=1)
    assert model.n_components_ == 9
    assert model.summary().startswith("9 sources of 6 columns; the directions of all are clear.")
    assert len(model.plot().axes) >= 2


def test_posterior_means_are_better_than_any_linear_estimate(fitted):
    rows, mixing, sources, model = fitted
    places, signs, _ = matched(model, mixing)
    posterior = model.transform(rows[:3000])[:, places] * signs
    linear = ((rows[:3000] - model.mean_) @ model.components_.T)[:, places] * signs
    assert np.mean((posterior - sources[:3000]) ** 2) < 0.95 * np.mean(
        (linear - sources[:3000]) ** 2
    )
    left = model.inverse_transform(model.transform(rows[:3000])) - rows[:3000]
    assert np.mean(left**2) < 1e-3 * np.var(
        rows[:3000]
    )  # but for errors of the mixing matrix, sources explain rows
    assert np.allclose(model.transform(rows[:10]), model.transform(rows[:3000])[:10], atol=1e-9)


def test_gibbs_sampling_gives_the_exact_posterior_mean():
    """5³ mixtures of Gaussians are summed exactly; 2,000 sweeps leave a sampling error of some
    1/√2000 of a source.
    """
    generator = np.random.default_rng(0)
    mixing, noise = generator.standard_normal((2, 3)), 0.1 * np.eye(2)
    weights, means, variances = (
        np.array(each) for each in zip(*map(gaussians_of, (3.0, 6.0, -1.2)), strict=True)
    )
    rows = generator.standard_normal((40, 2)) * 1.5
    total, mass = np.zeros((40, 3)), np.zeros(40)
    for choice in itertools.product(range(5), repeat=3):
        own = np.arange(3), list(choice)
        covariance = (mixing * variances[own]) @ mixing.T + noise @ noise.T
        left = rows - means[own] @ mixing.T
        solved = np.linalg.solve(covariance, left.T).T
        density = (
            np.prod(weights[own])
            * np.exp(-np.sum(left * solved, axis=1) / 2)
            / np.sqrt(np.linalg.det(covariance))
        )
        total += density[:, None] * (means[own] + variances[own] * (solved @ mixing))
        mass += density
    found = gibbs_means(rows, mixing, noise, weights, means, variances, n_sweeps=2000)
    assert np.sqrt(np.mean((found - total / mass[:, None]) ** 2)) < 3 / np.sqrt(2000)


@pytest.mark.parametrize("kurtosis", [-1.2, -0.1, 0.0, 0.5, 3.0, 20.0])
def test_densities_have_the_variance_and_the_kurtosis_of_their_source(kurtosis):
    weights, means, variances = gaussians_of(kurtosis)
    assert weights @ (variances + means**2) == pytest.approx(1)
    fourth = weights @ (3 * variances**2 + 6 * variances * means**2 + means**4)
    assert fourth - 3 == pytest.approx(kurtosis, rel=1e-2)


def test_batches_give_the_bits_of_a_fit_and_files_go_on(fitted, tmp_path):
    rows, _, _, model = fitted
    stream, generator, start = TensorICA(9, random_state=0), np.random.default_rng(0), 0
    while start < len(rows):
        stop = start + int(generator.integers(1, 30_000))
        stream.partial_fit(rows[start:stop])
        stream.save(tmp_path / "stream.npz")
        stream, start = TensorICA.load(tmp_path / "stream.npz"), stop
    assert np.array_equal(stream.mixing_, model.mixing_)
    assert np.array_equal(stream.mixing_errors_, model.mixing_errors_)
    model.save(tmp_path / "model.npz")
    loaded = TensorICA.load(tmp_path / "model.npz")
    assert np.array_equal(loaded.transform(rows[:9]), model.transform(rows[:9]))


def test_auto_finds_more_sources_than_columns_only_where_there_are():
    rows, mixing, _ = planted(8, 10, 150_000, seed=3)
    many = TensorICA("auto", random_state=0).fit(rows)
    assert many.mixing_.shape == (8, 10)
    assert matched(many, mixing)[2].min() > 0.99
    generator = np.random.default_rng(0)
    together = generator.laplace(size=(40_000, 6)) * generator.gamma(
        1.0, size=(40_000, 1)
    )  # not independent
    assert TensorICA("auto", random_state=0).fit(together).n_components_ <= 6
    square, _, _ = planted(6, 6, 60_000)
    assert TensorICA("auto", random_state=0).fit(square).mixing_.shape == (6, 6)


def test_gaussian_rows_have_no_source():
    """Each of 20 runs errs with a chance of at most 1 %; three of them do with a chance of
    0.001.
    """
    counts = []
    for seed in range(20):
        generator = np.random.default_rng(seed)
        rows = generator.standard_normal((3_000, 5)) @ generator.standard_normal((5, 5))
        model = TensorICA("auto", random_state=seed).fit(rows)
        counts.append(model.n_components_)
    assert sum(count > 0 for count in counts) <= 2
    model = TensorICA("auto", random_state=0).fit(
        np.random.default_rng(0).standard_normal((3_000, 5))
    )
    assert model.n_components_ == 0
    assert model.transform(np.zeros((4, 5))).shape == (4, 0)
    assert "No source" in model.summary()
    assert np.isfinite(model.score(np.zeros((4, 5))))


def test_what_cannot_be_told_apart_is_refused():
    rows, _, _ = planted(5, 5, 500)
    with pytest.raises(ValueError, match=r"in \[1, 10\] for the fourth moment of 5 columns"):
        TensorICA(11).fit(rows)
    model = TensorICA(7, random_state=0).fit(rows)
    with pytest.raises(ValueError, match="at most as many sources as columns"):
        model.score(rows)
    with pytest.raises(AttributeError):
        _ = TensorICA(3, random_state=0).fit(rows).mixing_errors_
