"""Streams whose components are not orthogonal: found, with honest errors, and to the same bits
however rows are cut.
"""

from __future__ import annotations

import numpy as np
import pytest

import odeco
from odeco.datasets import planted_independent
from odeco.power.steps import gauss_newton_step
from odeco.power.tracking import Tracker

COSINES = (0.0, 0.3, 0.6)


def mixed_rows(n, d=20, k=4, *, cosine, noise=0.2, seed=0):
    """Skewed sources, mixed by vectors of one common cosine, in Gaussian noise: the third moment is
    Σ 2 vᵢ⊗³.
    """
    truth = planted_independent(d, k, coherence=cosine, weights=2 * np.ones(k), rng=seed)
    generator = np.random.default_rng([seed, 1])
    sources = generator.standard_gamma(1.0, size=(n, k)) - 1
    return sources @ truth.vectors.T + noise * generator.standard_normal((n, d)), truth


@pytest.mark.slow
@pytest.mark.parametrize("cosine", COSINES)
@pytest.mark.parametrize("source", ["passes", "stream", "entries", "pushed"])
def test_components_of_any_cosine_are_found_with_honest_standard_errors(source, cosine):
    """The root mean square of angle over standard error is one; within a half, over 20 components
    of 19 directions.

    Taking them to be orthogonal would be wrong by about half of the angle between them, 0.5 rad at
    a cosine of 0.6.
    """
    ratios = []
    for seed in range(5):
        rows, truth = mixed_rows(20_000, cosine=cosine, seed=seed)
        if source == "pushed":
            result = odeco.OnlineDecomposer(4, method="core", rng=seed).partial_fit(rows).result()
        elif source == "stream":
            result = odeco.decompose_stream(iter([rows]), 4, method="core", rng=seed)
        else:
            method = "core" if source == "passes" else "entries"
            result = odeco.decompose_stream(rows, 4, method=method, rng=seed)
        matched = odeco.match(result, truth)
        errors = result.angle_errors[matched.found_index]
        assert errors.max() < 0.1
        ratios.extend(matched.angles / errors)
        # A weight is a third moment of gamma variables, whose few batches spread less than they
        # should.
        assert np.all(np.abs(matched.weight_errors) < 6 * result.weight_errors[matched.found_index])
    assert 0.5 < np.sqrt(np.mean(np.square(ratios))) < 1.5


def test_more_rows_refine_components_that_are_not_orthogonal():
    """Errors fall as one over the square root of rows: 64 times the rows, an eighth of the error,
    within a half.
    """
    errors = []
    for n in (4000, 256_000):
        rows, truth = mixed_rows(n, 10, 3, cosine=0.6)
        online = odeco.OnlineDecomposer(3, method="core", rng=0).partial_fit(rows)
        errors.append(np.mean(odeco.match(online.result(), truth).angles))
    assert 0.5 < errors[1] / errors[0] * 8 < 1.5


def gauss_newton_matrix(points):
    """Return the d k x d k matrix of least squares over p, from the derivatives of Σ xᵢ⊗³ as a
    dense tensor.
    """
    d, k = points.shape

    def change(step):
        pairs = zip(points.T, step.T, strict=True)
        moved = [
            [b if axis == place else a for axis in range(3)] for a, b in pairs for place in range(3)
        ]
        return sum(np.einsum("i,j,k->ijk", *each) for each in moved).ravel()

    derivatives = np.stack([change(each) for each in np.eye(d * k).reshape(d * k, d, k)], axis=1)
    return derivatives.T @ derivatives / 3


def test_the_joint_step_solves_the_system_of_least_squares():
    points, descent = np.random.default_rng(0).standard_normal((2, 5, 3))
    expected = np.linalg.solve(gauss_newton_matrix(points), descent.ravel()).reshape(5, 3)
    found = gauss_newton_step(points, np.ones(3), descent, 3, damping=0.0, tolerance=1e-12)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("cosine", COSINES)
def test_exact_images_of_vectors_with_small_errors_lead_to_the_right_ones_up_to_the_square_of_these(
    cosine,
):
    """Vectors that err by δ = 1e-4 are corrected up to the order of δ², of weights that differ and
    have both signs.

    The images of dual vectors err by k terms λⱼ (wᵢᵀvⱼ)², each at most the square of ‖w‖ δ, with
    weights that are at most 3 times apart.
    """
    size, k = 1e-4, 4
    truth = planted_independent(12, k, coherence=cosine, weights=[3.0, 2.0, 1.0, -1.0], rng=0)
    moved = truth.vectors + size * np.random.default_rng(1).standard_normal(
        truth.vectors.shape
    ) / np.sqrt(12)
    wrong = odeco.Components(truth.weights * (1 + size), moved / np.linalg.norm(moved, axis=0))
    tracking = Tracker.start(wrong)
    tracking = tracking.advance(truth.image(tracking.probes), 10)
    left = np.linalg.norm(tracking.components.vectors - truth.vectors, axis=0)
    allowed = 3 * k * np.linalg.norm(np.linalg.pinv(truth.vectors), axis=1).max() ** 2 * size**2
    assert allowed < size / 10
    assert left.max() < allowed
    np.testing.assert_allclose(tracking.components.weights, truth.weights, rtol=3 * allowed)


@pytest.mark.parametrize("method", ["core", "entries"])
def test_cuts_and_checkpoints_change_no_bit_of_components_that_are_not_orthogonal(method, tmp_path):
    rows, _ = mixed_rows(4000, cosine=0.6)
    settings = {"method": method, "rng": 3}
    pulled = odeco.decompose_stream(iter([rows]), 4, **settings)
    online = odeco.OnlineDecomposer(4, **settings)
    for piece in np.array_split(rows, 17):
        online.save(tmp_path / "run.ckpt")
        online = odeco.OnlineDecomposer.load(tmp_path / "run.ckpt").partial_fit(piece)
    assert np.array_equal(online.result().vectors, pulled.vectors)
    assert np.array_equal(online.result().weights, pulled.weights)
    assert np.array_equal(online.result().angle_errors, pulled.angle_errors)


def test_a_run_over_a_file_that_is_stopped_goes_on_to_the_same_bits(tmp_path):
    rows, _ = mixed_rows(5000, cosine=0.6)
    np.save(tmp_path / "rows.npy", rows)
    whole = odeco.decompose_stream(tmp_path / "rows.npy", 4, method="core", rng=0)
    path = tmp_path / "run.ckpt"
    for n_rows in (4000, 7000, 12_000):  # while it takes its sample, and in both passes that refine

        def stop(progress, after=n_rows):
            if progress.n_rows >= after:
                raise InterruptedError

        with pytest.raises(InterruptedError):
            odeco.decompose_stream(
                tmp_path / "rows.npy", 4, method="core", rng=0, checkpoint=path, callback=stop
            )
    resumed = odeco.decompose_stream(
        tmp_path / "rows.npy", 4, method="core", rng=0, checkpoint=path
    )
    assert np.array_equal(resumed.vectors, whole.vectors)
    assert np.array_equal(resumed.angle_errors, whole.angle_errors)


@pytest.mark.slow
# Components that few rows do not show are missing from the sum, which a warning may say.
@pytest.mark.filterwarnings("ignore::odeco.errors.MisfitWarning")
def test_components_that_fit_noise_by_cancelling_each_other_are_not_reported():
    """Of few rows in much noise a fit of independent components has weights that grow without
    bound.

    The largest value of the moment on the sphere bounds what any orthogonal components can have for
    a weight.
    """
    for seed in range(6):
        rows, _ = mixed_rows(300, 20, 5, cosine=0.8, noise=0.5, seed=seed)
        result = odeco.decompose_stream(iter([rows]), 5, method="core", rng=seed)
        assert np.abs(result.weights).max() < np.max(np.linalg.norm(rows, axis=1)) ** 3
