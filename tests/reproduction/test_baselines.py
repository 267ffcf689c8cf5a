"""The methods that others use, beside the power method."""

from __future__ import annotations

import numpy as np
import pytest

import odeco
from odeco.datasets import gaussian_noise, planted_orthogonal
from odeco.tensors import DenseTensor
from reproduction.baselines import random_slice, simultaneous_diagonalization, ss_hopm, tensor_pca


@pytest.mark.parametrize("order", [3, 4, 5])
@pytest.mark.parametrize("baseline", [random_slice, simultaneous_diagonalization, tensor_pca])
def test_baselines_recover_an_exact_orthogonal_tensor(baseline, order):
    truth = planted_orthogonal(10, 4, order=order, rng=0)
    matched = odeco.match(baseline(truth.to_dense(), 4, rng=0), truth)
    assert np.all(matched.cosines > 1 - 1e-8)
    assert np.all(np.abs(matched.weight_errors) < 1e-7)


def test_ss_hopm_finds_every_component_of_an_orthogonal_tensor():
    truth = planted_orthogonal(6, 3, rng=0)
    np.testing.assert_allclose(
        ss_hopm(truth, shift=4.0, rng=0).weights[:3], truth.weights, atol=1e-8
    )


def test_many_slices_are_better_than_one_and_the_power_method_is_no_worse_under_noise():
    errors = {name: [] for name in ("power", "many", "one")}
    for seed in range(7):
        truth = planted_orthogonal(30, 3, rng=seed)
        noisy = DenseTensor(truth.to_dense() + 0.005 * gaussian_noise(30, rng=seed).entries)
        errors["power"].append(
            odeco.match(odeco.decompose(noisy, 3, tol=1e-6, rng=seed), truth).angles.max()
        )
        errors["many"].append(
            odeco.match(simultaneous_diagonalization(noisy, 3, rng=seed), truth).angles.max()
        )
        errors["one"].append(odeco.match(random_slice(noisy, 3, rng=seed), truth).angles.max())
    medians = {name: np.median(values) for name, values in errors.items()}
    assert medians["power"] <= medians["many"] < medians["one"]


@pytest.mark.parametrize("order", [3, 4, 5])
def test_the_unfolding_gives_a_start_near_one_strong_component(order):
    # At order 3 the unfolding of noise of standard deviation s has singular values up to about s (d
    # + √d). A weight of ten times that leaves an angle of about 1/10 at the start, and the power
    # iteration brings it to s √d over the weight; the noise is symmetrised, which makes it smaller
    # still.
    d, generator = 12, np.random.default_rng(order)
    spike = planted_orthogonal(d, 1, order=order, weights=[1.0], rng=generator)
    noise = gaussian_noise(d, order=order, rng=generator).entries
    level = 0.1 / (d ** (order // 2) + d ** ((order - order // 2) / 2))
    found = tensor_pca(spike.to_dense() + level * noise, 1, rng=0)
    assert odeco.match(found, spike).angles[0] < level * d**0.5


def test_tensor_pca_finds_negative_weights_of_even_order():
    truth = planted_orthogonal(8, 3, order=4, weights=[3.0, -2.0, 1.0], rng=0)
    np.testing.assert_allclose(
        tensor_pca(truth.to_dense(), 3, rng=0).weights, [3.0, -2.0, 1.0], atol=1e-8
    )


def test_tensor_pca_reads_single_precision_and_one_dimension():
    truth = planted_orthogonal(10, 2, rng=0)
    found = tensor_pca(truth.to_dense().astype(np.float32), 2, tol=1e-5, rng=0)
    assert np.all(odeco.match(found, truth).cosines > 1 - 1e-5)
    assert tensor_pca(np.full((1, 1, 1), -2.0), 1, rng=0).weights == pytest.approx([2.0])
