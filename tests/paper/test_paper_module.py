"""`odeco.paper` and the solvers are two programs for the same algorithms: results are
bit-identical.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import odeco
from odeco.datasets import gaussian_noise, planted_orthogonal
from odeco.paper import (
    online_tensor_power_method,
    private_tensor_power_method,
    robust_tensor_power_method,
)
from odeco.power import Schedule, run
from odeco.privacy import EntryLevel, Ledger
from odeco.privacy.noise import SeededNoiseForTests
from odeco.tensors import DenseTensor, PackedTensor

D, K, L, R, N = 9, 3, 5, 8, 40


def assert_bit_identical(found, result):
    order = found.largest_first()
    assert np.array_equal(found.weights[order], result.weights)
    assert np.array_equal(found.vectors[:, order], result.vectors)


@pytest.mark.filterwarnings("ignore::odeco.ConvergenceWarning")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("noise", [0.0, 0.05])
@pytest.mark.parametrize("kind", [np.asarray, DenseTensor, PackedTensor.from_dense])
def test_algorithm_1_is_decompose_with_zero_tolerance(seed, noise, kind):
    T = kind(
        planted_orthogonal(D, K, rng=seed).to_dense() + noise * gaussian_noise(D, rng=seed).entries
    )
    found = robust_tensor_power_method(T, K, L, R, rng=seed)
    assert_bit_identical(
        found, odeco.decompose(T, K, n_restarts=L, n_iterations=R, tol=0, rng=seed)
    )
    solved = run(odeco.tensors.as_oracle(T), Schedule(K, L, R), rng=seed).components
    assert np.array_equal(found.weights, solved.weights)  # in the order of discovery too
    assert np.array_equal(found.vectors, solved.vectors)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_algorithm_2_is_a_stream_with_the_power_method(seed, kind):
    generator = np.random.default_rng(seed)
    basis = np.linalg.qr(generator.standard_normal((D, K)))[0]
    rows = (generator.standard_gamma(1.0, size=(K * R * N + 7, K)) - 1) @ (basis * [2, 1.5, 1]).T
    signed = online_tensor_power_method(kind(rows), K, L, R, N, rng=seed)
    found = signed.positive().sorted_by_weight()
    settings = {"method": "power", "batch_size": N, "n_restarts": L, "n_iterations": R, "rng": seed}
    assert_bit_identical(found, odeco.decompose_stream(kind(rows), K, **settings))
    online = odeco.OnlineDecomposer(K, **settings)
    for block in np.array_split(rows[: K * R * N], 11):
        online.partial_fit(kind(block))
    assert_bit_identical(found, online.result())
    blocks = iter([kind(block) for block in np.array_split(rows, 13)])
    assert np.array_equal(
        online_tensor_power_method(blocks, K, L, R, N, rng=seed).vectors, signed.vectors
    )


def test_algorithm_2_ends_with_the_stream():
    with pytest.raises(odeco.StreamEndedError, match="ended after 100"):
        online_tensor_power_method(np.ones((100, D)), K, L, R, N, rng=0)


@pytest.mark.parametrize("seed", range(4))
def test_algorithm_3_is_wang2016_with_the_calibration_of_the_paper(seed):
    T = planted_orthogonal(D, K, weights=[6e4, 5e4, 4e4], rng=seed).to_dense()
    outer = Ledger(10.0)
    settings = {"epsilon": 1.0, "delta": 1e-6, "rng": seed}
    found = private_tensor_power_method(
        T, K, L, R, ledger=outer, noise=SeededNoiseForTests(seed), **settings
    )
    result = odeco.decompose_privately(
        T,
        K,
        mechanism="wang2016",
        calibration="paper",
        n_restarts=L,
        n_iterations=R,
        noise=SeededNoiseForTests(seed),
        **settings,
    )
    assert_bit_identical(found, result)
    assert sum(charge.count for charge in outer.charges) == K * L * (R + 1)
    holder = EntryLevel(T, neighbour_relation="literal")
    again = private_tensor_power_method(
        holder, K, L, R, noise=SeededNoiseForTests(seed), **settings
    )
    assert np.array_equal(again.vectors, found.vectors)


def test_algorithm_3_draws_its_noise_from_the_operating_system():
    T = planted_orthogonal(D, K, rng=0).to_dense()
    first, second = (private_tensor_power_method(T, 1, 2, 2, 1.0, 1e-6, rng=0) for _ in range(2))
    assert not np.array_equal(first.vectors, second.vectors)


def test_algorithm_3_refuses_an_epsilon_for_which_its_noise_is_too_small():
    with pytest.raises(odeco.errors.BudgetExhausted):
        private_tensor_power_method(np.zeros((D, D, D)), 1, 1, 1, epsilon=1000.0, delta=1e-6, rng=0)


@pytest.mark.parametrize(
    ("changed", "fragment"),
    [({"k": 0}, "`k`"), ({"k": D + 1}, "`k`"), ({"L": 0}, "`L`"), ({"R": 1.5}, "`R`")],
)
def test_counts_are_checked(changed, fragment):
    T, counts = np.ones((D, D, D)), {"k": K, "L": L, "R": R} | changed
    with pytest.raises(ValueError, match=fragment):
        robust_tensor_power_method(T, **counts)
    with pytest.raises(ValueError, match=fragment):
        online_tensor_power_method(np.ones((10, D)), n=5, **counts)
    with pytest.raises(ValueError, match=fragment):
        private_tensor_power_method(T, epsilon=1.0, delta=1e-6, **counts)


def test_the_paper_is_about_order_three():
    with pytest.raises(ValueError, match="order 3"):
        robust_tensor_power_method(np.ones((4,) * 4), 1, 1, 1)
