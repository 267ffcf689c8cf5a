"""The third moment of spheres gives their means, and EM iterations raise the likelihood."""

from __future__ import annotations

import numpy as np
import pytest
from planted_mixture import drawn, planted
from scipy.stats import multivariate_normal

from odeco.models.emissions.gaussians import Gaussians
from odeco.models.emissions.normal import GaussianPart
from odeco.models.emissions.product import ProductMixture
from odeco.models.engine.moments import SecondMoment
from odeco.models.gmm.start import means_of_core, span_of, third_moment
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
    span = span_of(SecondMoment.of_block(rows), 3)
    white = np.hstack([(truth.means - span.mean) @ span.whitener, np.ones((3, 1))])
    expected = np.einsum("h,hi,hj,hl->ijl", truth.weights, white, white, white)
    # An entry of the mean of n cubes of z deviates by at most √(E|z|⁶/n), and E|z|⁶ is at most
    # (E|z|¹²)^½.
    inner = np.hstack([(rows - span.mean) @ span.whitener, np.ones((n, 1))])
    deviation = np.sqrt(np.mean(np.sum(inner**2, axis=1) ** 3) / n)
    np.testing.assert_allclose(third_moment(rows, span), expected, atol=5 * deviation)


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
    part = GaussianPart(rows[:4], 2 * truth.covariances)
    model = ProductMixture((part,), np.full(4, 0.25))
    before = -np.inf
    for _ in range(15):
        shares, scores = model.posterior(rows)
        assert scores.mean() >= before - 1e-9
        before = scores.mean()
        made = model.m_step(model.sums(rows, shares), np.zeros(5))
        model = ProductMixture(made.parts, shares.mean(axis=0))


def test_a_component_without_rows_stays_where_it_is():
    rows = np.random.default_rng(0).standard_normal((100, 2))
    part = GaussianPart(np.array([[0.0, 0.0], [1e3, 1e3]]), np.ones(2))
    shares = np.array([[1.0, 0.0]] * 100)
    after = part.m_step(part.sums(rows, shares), np.full(2, 1e-6))
    np.testing.assert_array_equal(after.means[1], part.means[1])
    mixture = Gaussians(np.array([1.0, 0.0]), after.means, after.covariances)
    assert np.isfinite(mixture.posterior(rows)[1]).all()


def test_densities_of_rows_far_away_are_finite_and_of_narrow_components_exact():
    rng = np.random.default_rng(0)
    root = rng.standard_normal((4, 4)) * 10.0 ** -np.arange(4)[:, None]
    part = GaussianPart(rng.standard_normal((1, 4)), (root @ root.T)[None])
    rows = part.means + rng.standard_normal((50, 4)) @ root.T
    expected = multivariate_normal(part.means[0], part.covariances[0]).logpdf(rows)
    # Terms of x'Λx are at most |x|² |Λ| = 1e8 or so, and are rounded to 16 digits.
    np.testing.assert_allclose(part.log_densities(rows)[:, 0], expected, atol=1e-6)
    assert np.all(part.log_densities(np.full((1, 4), 1e300)) < -1e100)
