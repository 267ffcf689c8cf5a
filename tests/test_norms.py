"""Norms of tensors, and the incoherence of components."""

from __future__ import annotations

import math

import numpy as np
import pytest
from registry import random_symmetric

import odeco
from odeco import Components
from odeco.datasets import gaussian_noise, planted_orthogonal
from odeco.tensors import DenseTensor
from odeco.tensors.oracle import squared_norm


@pytest.mark.parametrize("order", [3, 4, 5])
def test_operator_norm_of_an_orthogonal_tensor_is_its_largest_weight(order):
    truth = planted_orthogonal(8, 4, order=order, weights=[1.0, -3.0, 2.0, 0.5], rng=0)
    assert odeco.operator_norm(truth.to_dense(), rng=0) == pytest.approx(3.0, rel=1e-10)


def test_operator_norm_is_reached_by_no_random_vector():
    tensor = gaussian_noise(10, rng=0)
    vectors = np.random.default_rng(1).standard_normal((10, 2000))
    values = tensor.value(vectors / np.linalg.norm(vectors, axis=0))
    assert np.abs(values).max() < odeco.operator_norm(tensor, rng=0)


@pytest.mark.parametrize("order", [3, 4])
def test_the_norm_of_an_unknown_tensor_is_estimated_without_bias(order):
    known = DenseTensor(random_symmetric(12, order, np.random.default_rng(0)))
    unknown = known + Components([0.0], np.ones((12, 1)), order)
    assert unknown.squared_norm() is None
    estimates = [squared_norm(unknown, rng=seed) for seed in range(40)]
    standard_error = np.std(estimates) / math.sqrt(40)
    assert abs(np.mean(estimates) - known.squared_norm()) < 4 * standard_error
    assert squared_norm(known) == known.squared_norm()


def test_incoherence_lies_between_one_and_d_over_k():
    assert odeco.incoherence(Components(np.ones(2), np.eye(6)[:, :2])) == pytest.approx(3)
    flat = np.linalg.qr(np.array([[1, 1], [1, -1], [1, 1], [1, -1.0]]))[0]
    assert odeco.incoherence(Components(np.ones(2), flat)) == pytest.approx(1)
