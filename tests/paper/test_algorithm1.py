"""With ``tol=0`` the library is the paper's Algorithm 1 to the letter."""

from __future__ import annotations

import numpy as np
import pytest
from paper.algorithm1 import robust_tensor_power_method

import odeco
from odeco.datasets import gaussian_noise, planted_orthogonal
from odeco.power import PowerSolver, Schedule, run, step
from odeco.tensors import DenseTensor, PackedTensor


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("noise", [0.0, 0.01])
@pytest.mark.parametrize("kind", [DenseTensor, PackedTensor.from_dense])
def test_same_starts_give_the_same_components(seed, noise, kind):
    d, k, L, R = 12, 4, 6, 15
    T = planted_orthogonal(d, k, rng=seed).to_dense() + noise * gaussian_noise(d, rng=seed).entries
    oracle, plan = kind(T), Schedule(k, L, R)

    starts = []
    search = PowerSolver.start(plan, parts=oracle.parts, rng=seed)
    while not search.done:
        if search.iteration == 0:
            starts.append(search.probes)
        search = step(oracle, search)
    pairs = robust_tensor_power_method(T, k, L, R, lambda i, tau: starts[i][:, tau])

    for found, (weight, vector) in zip(search.found, pairs, strict=True):
        np.testing.assert_allclose(found.weight, weight, atol=1e-12)
        np.testing.assert_allclose(found.vector, vector, atol=1e-12)


def test_decompose_with_zero_tolerance_runs_the_same_search():
    T = planted_orthogonal(8, 3, rng=0).to_dense()
    by_recipe = odeco.decompose(T, 3, n_restarts=5, n_iterations=12, tol=0, rng=7)
    by_loop = run(DenseTensor(T), Schedule(3, 5, 12), rng=7)
    assert set(by_recipe.weights) == set(by_loop.components.weights)
    assert set(by_recipe.n_iterations) == {13}  # R images, and one more for the weight


def test_every_question_is_asked_once():
    class Counting(odeco.Oracle):
        order = 3
        dimension = 5
        n_images = n_values = 0

        def _image(self, block):
            self.n_images += 1
            return block**2

        def _value(self, block):
            self.n_values += 1
            return np.sum(block**3, axis=0)

    k, R = 3, 7
    for weight_from, n_images, n_values in [
        ("image", k * (R + 1), 0),
        ("value", k * R, k),
        ("last_image", k * R, 0),
    ]:
        oracle = Counting()
        run(oracle, Schedule(k, 4, R, weight_from=weight_from), rng=0)
        assert (oracle.n_images, oracle.n_values) == (n_images, n_values), weight_from
