"""Components that go on learning say truly how far off they are."""

from __future__ import annotations

import math
import re
import warnings

import numpy as np
import pytest
from scipy import sparse

import odeco
from odeco.datasets import planted_orthogonal
from odeco.power.tracking import Tracker
from odeco.tensors import DenseTensor


@pytest.mark.slow
def test_standard_errors_under_forgetting_are_the_spread_over_independent_streams():
    """The reported standard errors of 100 simulated streams of four components are compared with
    the actual errors.

    A mean that forgets with the factor f gives the batch j steps back the weight fʲ, so its
    variance is Σ f²ʲ / (Σ fʲ)² = (1 − f)/(1 + f) of that of one batch. With fʲ instead of f²ʲ in
    the numerator, the standard errors would be larger by √(1 + f), which is 1.40 here.
    """
    forgetting, n_batches, n_streams, k = 0.95, 120, 100, 4
    truth = planted_orthogonal(5, k, rng=0)
    generator = np.random.default_rng(1)
    # of each coordinate of a batch's image; what is of second order is smaller by this factor
    deviation = 1e-3
    errors, reported = [], []
    for _ in range(n_streams):
        tracking = Tracker.start(truth, forgetting=forgetting)
        for _ in range(n_batches):
            noise = deviation * generator.standard_normal(truth.vectors.shape)
            tracking = tracking.advance(truth.image(tracking.probes) + noise, n_rows=100)
        matched = odeco.match(tracking.components, truth)
        errors.append([matched.weight_errors, matched.angles])
        reported.append(tracking.standard_errors())
    of_weights, of_angles = np.sqrt(
        np.mean(np.square(reported), axis=0) / np.mean(np.square(errors), axis=0)
    )
    # The variance of a batch is estimated from its deviations from a mean that forgets, too. Their
    # mean square is 2f/(1 + f) of that variance, so the standard errors are 1.3 % too small.
    bias = 1 - math.sqrt(2 * forgetting / (1 + forgetting))
    # The root of a mean of n squares of normal errors has a relative standard error of at most
    # 1/√(2n).
    allowed = bias + 4 / math.sqrt(2 * n_streams * k)
    assert abs(np.mean(of_weights) - 1) < allowed
    assert abs(np.mean(of_angles) - 1) < allowed


def sources(n_rows, vectors, seed, mean=0.0):
    """Return rows of skewed sources in Gaussian noise."""
    generator, (d, k) = np.random.default_rng(seed), vectors.shape
    skewed = generator.exponential(size=(n_rows, k)) - 1
    return skewed @ vectors.T + 0.3 * generator.standard_normal((n_rows, d)) + mean


def random_vectors(d, k, seed=0):
    vectors = np.random.default_rng(seed).standard_normal((d, k))
    return vectors / np.linalg.norm(vectors, axis=0)


METHODS = {
    "entries": {},
    "core": {"method": "core"},
    "one pass": {"n_passes": 1},
    "core once": {"n_passes": 1, "method": "core"},
}


@pytest.mark.parametrize("settings", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("seed", [1, 2])
def test_components_of_a_moment_that_is_their_sum_have_no_misfit(settings, seed):
    rows = sources(8000, random_vectors(12, 4), seed)
    with warnings.catch_warnings():
        warnings.simplefilter("error", odeco.MisfitWarning)
        result = odeco.decompose_stream(rows, 4, rng=0, **settings)
    assert not result.misfit_errors.any()
    assert result.clear.all()


@pytest.mark.parametrize("settings", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("kind", ["mean", "counts", "binary"])
def test_components_of_rows_with_a_mean_are_not_called_clear(settings, kind):
    generator = np.random.default_rng(3)
    rows = {
        "mean": lambda: sources(8000, random_vectors(12, 4), 1, mean=2.0),
        "counts": lambda: generator.poisson(3, size=(8000, 12)).astype(float),
        "binary": lambda: (generator.random((8000, 12)) < 0.3).astype(float),
    }[kind]()
    share = np.sum(rows.mean(axis=0) ** 2) / np.mean(np.sum(rows**2, axis=1))
    with pytest.warns(odeco.MisfitWarning, match="subtract it") as caught:
        result = odeco.decompose_stream(rows, 4, rng=0, **settings)
    assert caught[0].message.mean_share == pytest.approx(share, abs=0.05)
    assert result.misfits
    assert "the moment is not their sum" in result.verdict
    assert np.all(result.angle_errors >= result.misfit_errors)
    with warnings.catch_warnings():
        warnings.simplefilter("error", odeco.MisfitWarning)
        odeco.decompose_stream(rows - rows.mean(axis=0), 4, rng=0, **settings)


def test_pushed_rows_with_a_mean_are_not_called_clear_and_a_checkpoint_keeps_that(tmp_path):
    rows = sources(6000, random_vectors(150, 4), 1, mean=1.0)
    online = odeco.OnlineDecomposer(4, rng=0)
    online.partial_fit(rows[:3500])
    online.save(tmp_path / "run.ckpt")
    again = odeco.OnlineDecomposer.load(tmp_path / "run.ckpt")
    for each in (online, again):
        each.partial_fit(rows[3500:])
    with pytest.warns(odeco.MisfitWarning):
        result = online.result()
    with pytest.warns(odeco.MisfitWarning):
        np.testing.assert_array_equal(result.misfit_errors, again.result().misfit_errors)
    assert result.misfits


def test_components_at_right_angles_that_were_not_asked_for_are_no_misfit():
    orthogonal = np.linalg.qr(random_vectors(15, 4))[0]
    result = odeco.decompose_stream(sources(20_000, orthogonal, 1), 2, rng=0)
    assert not result.misfit_errors.any()


def test_the_misfit_is_what_the_rest_of_the_tensor_is_at_a_vector():
    """A Gaussian tensor is added to a sum of components: the angles by which it turns them are of
    the stated size.
    """
    generator, d, k = np.random.default_rng(0), 20, 4
    truth = odeco.Components(np.full(k, 10.0), np.linalg.qr(random_vectors(d, k))[0])
    turned, stated = [], []
    for _ in range(20):
        rest = DenseTensor(odeco.symmetrize(generator.standard_normal((d, d, d))))
        tracking = Tracker.start(truth, per_pass=True)
        for number in range(24):
            probes = tracking.probes
            noise = 1e-3 * generator.standard_normal((d, probes.shape[1]))
            tracking = tracking.advance(
                truth.image(probes) + 0.2 * rest.image(probes) + noise, n_rows=10
            )
            tracking = tracking.end_pass() if number % 8 == 7 else tracking
        turned.append(odeco.match(tracking.components, truth).angles)
        stated.append(tracking.misfit_errors())
    ratio = np.sqrt(np.mean(np.square(stated)) / np.mean(np.square(turned)))
    assert 0.5 < ratio < 2


@pytest.mark.parametrize("settings", METHODS.values(), ids=METHODS)
def test_the_third_cumulant_is_the_moment_of_rows_without_their_mean(settings, tmp_path):
    rows = sources(6000, random_vectors(12, 4), 1, mean=2.0)
    np.save(tmp_path / "rows.npy", rows)
    np.save(tmp_path / "first.npy", rows[:2500])
    np.save(tmp_path / "rest.npy", rows[2500:])
    found = odeco.decompose_stream(rows, 4, moment="cumulant", rng=0, **settings)
    centred = odeco.decompose_stream(rows - rows.mean(axis=0), 4, rng=0, **settings)
    np.testing.assert_allclose(found.vectors, centred.vectors, atol=1e-9)
    np.testing.assert_allclose(found.weights, centred.weights, rtol=1e-9)
    files = (tmp_path / "rows.npy", [tmp_path / "first.npy", tmp_path / "rest.npy"])
    for data in (*files, lambda: iter(np.array_split(rows, 7))):
        other = odeco.decompose_stream(data, 4, moment="cumulant", rng=0, **settings)
        np.testing.assert_array_equal(other.vectors, found.vectors)
        np.testing.assert_array_equal(other.weights, found.weights)


def test_a_run_for_the_third_cumulant_resumes_from_its_checkpoint(tmp_path):
    rows, path = sources(6000, random_vectors(12, 4), 1, mean=2.0), tmp_path / "run.ckpt"

    def stop(progress):
        if progress.n_rows > 7000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        odeco.decompose_stream(rows, 4, moment="cumulant", rng=0, checkpoint=path, callback=stop)
    with pytest.raises(odeco.FileFormatError):
        odeco.decompose_stream(rows, 4, rng=0, checkpoint=path)  # its rows were not centred
    resumed = odeco.decompose_stream(rows, 4, moment="cumulant", rng=0, checkpoint=path)
    whole = odeco.decompose_stream(rows, 4, moment="cumulant", rng=0)
    np.testing.assert_array_equal(resumed.vectors, whole.vectors)


@pytest.mark.parametrize(
    ("data", "settings", "message"),
    [
        (lambda rows: iter([rows]), {}, "Got rows that can be read once only"),
        (sparse.csr_array, {}, "Got sparse rows"),
        (lambda rows: rows, {"order": 5}, "moment='cumulant' takes order=3, or order=4"),
    ],
)
def test_a_third_cumulant_that_cannot_be_had_is_refused(data, settings, message):
    rows = sources(500, random_vectors(6, 2), 1)
    with pytest.raises(ValueError, match=re.escape(message)):
        odeco.decompose_stream(data(rows), 2, moment="cumulant", rng=0, **settings)


def test_rows_that_are_pushed_have_no_third_cumulant():
    with pytest.raises(ValueError, match="needs the mean of all rows beforehand"):
        odeco.OnlineDecomposer(2, moment="cumulant", rng=0)
