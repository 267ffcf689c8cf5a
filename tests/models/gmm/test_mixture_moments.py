"""The third moment of spheres gives their means, and EM iterations raise the likelihood."""

from __future__ import annotations

import numpy as np
import pytest
from planted_mixture import drawn, planted
from scipy.stats import multivariate_normal

from odeco.models.emissions.gaussians import Gaussians
from odeco.models.engine.moments import SecondMoment
from odeco.models.gmm.start import (
    means_of_core,
    second_moment,
    span_of,
    spectral_start,
    third_moment,
    whitened_start,
)
from odeco.tensors.dense import sum_of_cubes

KINDS = ("spherical", "diag", "full")


def with_covariances(truth, kind, seed=0):
    """Return the same means with covariances of a kind."""
    rng = np.random.default_rng(seed)
    k, d = truth.means.shape
    roots = rng.standard_normal((k, d, d)) / np.sqrt(d) + np.eye(d)
    matrices = roots @ roots.transpose(0, 2, 1)
    covariances = {
        "spherical": rng.uniform(0.5, 2, k),
        "diag": rng.uniform(0.5, 2, (k, d)),
        "full": matrices,
    }[kind]
    return Gaussians(truth.weights, truth.means, covariances)


@pytest.mark.parametrize(("k", "d"), [(2, 1), (2, 4), (5, 4), (5, 9), (12, 20)])
def test_exact_moments_give_the_means_and_weights(k, d):
    truth = planted(k, d, 5.0, seed=k + d)
    offsets = truth.means - truth.origin
    covariance = (offsets.T * truth.weights) @ offsets + (np.eye(d) if d >= k else 0.0)
    span = span_of(SecondMoment(truth.origin, covariance), k, 0.0)
    if d < k:  # nothing is left that is noise alone, so the law is taken without noise
        span = type(span)(span.mean, span.basis, np.linalg.eigvalsh(covariance)[::-1], 0.0)
    assert span.noise == pytest.approx(1.0 if d >= k else 0.0)
    white = np.hstack([offsets @ span.whitener, np.ones((k, 1))])
    core = np.einsum("h,hi,hj,hl->ijl", truth.weights, white, white, white)
    weights, means = means_of_core(core, span, seed=0)
    order = np.array([np.argmin(np.linalg.norm(means - mean, axis=1)) for mean in truth.means])
    np.testing.assert_allclose(means[order], truth.means, atol=1e-6)
    np.testing.assert_allclose(weights[order], truth.weights, atol=1e-6)


def test_the_sum_of_cubes_is_symmetric_and_right():
    rows = np.random.default_rng(0).standard_normal((50, 4))
    np.testing.assert_allclose(
        sum_of_cubes(rows), np.einsum("ni,nj,nl->ijl", rows, rows, rows), atol=1e-12
    )


def test_the_part_of_the_noise_is_taken_out_of_the_third_moment_even_if_variances_differ():
    truth = planted(3, 8, 6.0)
    variances = np.array([0.5, 1.0, 2.0])
    n = 200_000
    rows, _ = drawn(Gaussians(truth.weights, truth.means, variances), n)
    span = span_of(second_moment(rows), 3)
    white = np.hstack([(truth.means - span.mean) @ span.whitener, np.ones((3, 1))])
    expected = np.einsum("h,hi,hj,hl->ijl", truth.weights, white, white, white)
    # An entry of the mean of n cubes of z deviates by at most √(E|z|⁶/n), and E|z|⁶ is at most
    # (E|z|¹²)^½.
    inner = np.hstack([(rows - span.mean) @ span.whitener, np.ones((n, 1))])
    deviation = np.sqrt(np.mean(np.sum(inner**2, axis=1) ** 3) / n)
    np.testing.assert_allclose(third_moment(rows, span), expected, atol=5 * deviation)


def test_whitening_within_finds_components_that_are_elongated_alike():
    truth = planted(4, 6, 12.0)
    stretch = np.diag([1, 1, 1, 1, 1, 8.0])
    rows, _ = drawn(truth, 20_000)
    moment = second_moment(rows @ stretch)
    guess = Gaussians(truth.weights, truth.means @ stretch, np.ones(4))
    start = whitened_start(rows @ stretch, moment, guess, seed=0)
    found = start.means @ np.linalg.inv(stretch)
    nearest = np.linalg.norm(found[:, None] - truth.means, axis=2).min(axis=0)
    # In whitened coordinates the problem is the same as without the stretch: as near as the plain
    # start is there.
    plain = spectral_start(rows, second_moment(rows), 4, seed=0)
    assert (
        nearest.max()
        < 2 * np.linalg.norm(plain.means[:, None] - truth.means, axis=2).min(axis=0).max() + 0.1
    )


@pytest.mark.parametrize("kind", KINDS)
def test_densities_are_those_of_scipy(kind):
    model = with_covariances(planted(3, 4, 4.0), kind)
    rows, _ = drawn(model, 40)
    matrices = [
        np.diag(np.broadcast_to(each, 4)) if np.ndim(each) < 2 else each
        for each in model.covariances
    ]
    densities = np.stack(
        [
            w * multivariate_normal(m, c).pdf(rows)
            for w, m, c in zip(model.weights, model.means, matrices, strict=True)
        ]
    ).T
    shares, logs = model.posterior(rows)
    np.testing.assert_allclose(logs, np.log(densities.sum(axis=1)), rtol=1e-10)
    np.testing.assert_allclose(shares, densities / densities.sum(axis=1, keepdims=True), atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_no_step_lowers_the_likelihood(kind):
    truth = with_covariances(planted(4, 5, 3.0), kind)
    rows, _ = drawn(truth, 2000)
    model = Gaussians(np.full(4, 0.25), rows[:4], 2 * truth.covariances)
    before = -np.inf
    for _ in range(15):
        statistics = model.e_step(rows)
        assert statistics.log_likelihood / 2000 >= before - 1e-9
        before = statistics.log_likelihood / 2000
        model = model.m_step(statistics, 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_statistics_may_have_any_origin(kind):
    model = with_covariances(planted(3, 4, 4.0), kind)
    rows, _ = drawn(model, 500)
    statistics = model.e_step(rows)
    there_and_back = statistics.seen_from(
        statistics.origin + np.array([1.0, -2.0, 0.5, 3.0])
    ).seen_from(statistics.origin)
    expected, found = model.m_step(statistics, 0.1), model.m_step(there_and_back, 0.1)
    np.testing.assert_allclose(found.means, expected.means, atol=1e-9)
    np.testing.assert_allclose(found.covariances, expected.covariances, atol=1e-9)


def test_a_component_without_rows_stays_where_it_is():
    rows = np.random.default_rng(0).standard_normal((100, 2))
    model = Gaussians(np.array([0.5, 0.5]), np.array([[0.0, 0.0], [1e3, 1e3]]), np.ones(2))
    after = model.m_step(model.e_step(rows), 1e-6)
    np.testing.assert_array_equal(after.means[1], model.means[1])
    assert after.weights[1] == 0
    assert np.isfinite(after.posterior(rows)[1]).all()
