"""Exact recovery of tensors whose components are known.

Thresholds: a component that has converged to a residual of a few units of rounding is within a few
hundred roundings of the truth, d = 200 or not; 1e-10 leaves room for that and for nothing else.
"""

from __future__ import annotations

import numpy as np
import pytest

import odeco
from odeco import Components
from odeco.datasets import planted_orthogonal
from odeco.decompose import AsymmetricDecomposition
from odeco.power import Schedule, run
from odeco.tensors import DenseTensor, PackedTensor, SparseTensor

EXACT = 1e-10


def check_recovered(result, truth):
    matched = odeco.match(result, truth)
    assert np.all(matched.cosines > 1 - EXACT)
    assert np.all(np.abs(matched.weight_errors) < EXACT)
    assert np.all(result.converged)
    assert sorted(matched.found_index) == list(range(truth.n_components))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("order", "dimension"), [(3, 2), (3, 30), (4, 2), (4, 15), (5, 2), (5, 10), (6, 6), (7, 4)]
)
def test_orthogonal_tensors_of_full_rank_are_recovered_exactly(seed, order, dimension):
    truth = planted_orthogonal(dimension, dimension, order=order, rng=seed)
    check_recovered(odeco.decompose(truth.to_dense(), dimension, rng=seed), truth)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("order", [3, 4, 5])
def test_rank_one_is_recovered_exactly(seed, order):
    truth = planted_orthogonal(9, 1, order=order, rng=seed)
    check_recovered(odeco.decompose(truth.to_dense(), 1, rng=seed), truth)


@pytest.mark.slow
@pytest.mark.parametrize("order", [3, 4, 5])
def test_two_hundred_components_in_two_hundred_dimensions(order):
    truth = planted_orthogonal(200, 200, order=order, rng=0)
    check_recovered(odeco.decompose(truth, 200, n_restarts=20, rng=0), truth)


@pytest.mark.slow
def test_two_hundred_dimensions_from_entries():
    truth = planted_orthogonal(200, 10, rng=0)
    entries = truth.to_dense()
    for tensor in (DenseTensor(entries), PackedTensor.from_dense(entries)):
        check_recovered(odeco.decompose(tensor, 10, rng=0), truth)


@pytest.mark.parametrize("order", [3, 4, 5])
@pytest.mark.parametrize("seed", range(3))
def test_ties_among_weights_are_no_obstacle(order, seed):
    truth = planted_orthogonal(10, 6, order=order, weights=np.ones(6), rng=seed)
    check_recovered(odeco.decompose(truth.to_dense(), 6, rng=seed), truth)


@pytest.mark.parametrize("seed", range(3))
def test_at_odd_order_the_vector_absorbs_a_negative_weight(seed):
    truth = planted_orthogonal(10, 4, order=3, weights=[2.0, -1.5, 1.0, -0.5], rng=seed)
    result = odeco.decompose(truth.to_dense(), 4, rng=seed)
    assert np.all(result.weights > 0)
    check_recovered(result, truth)


@pytest.mark.parametrize("order", [4, 6])
@pytest.mark.parametrize("seed", range(3))
def test_at_even_order_weights_keep_their_sign(order, seed):
    weights = [2.0, -1.5, 1.0, -0.5]
    truth = planted_orthogonal(7, 4, order=order, weights=weights, rng=seed)
    result = odeco.decompose(truth.to_dense(), 4, rng=seed)
    np.testing.assert_allclose(result.weights, weights, atol=EXACT)  # sorted by absolute value
    check_recovered(result, truth)


def test_single_precision_is_recovered_to_single_precision():
    truth = planted_orthogonal(30, 4, rng=0)
    result = odeco.decompose(truth.to_dense().astype(np.float32), 4, rng=0)
    matched = odeco.match(result, truth)
    assert np.all(matched.cosines > 1 - 1e-6)
    assert np.all(np.abs(matched.weight_errors) < 1e-5)
    assert np.all(result.converged)


@pytest.mark.parametrize("scale", [1e-150, 1e-30, 1e30, 1e100])
def test_the_scale_of_a_tensor_does_not_matter(scale):
    truth = planted_orthogonal(6, 3, rng=0)
    result = odeco.decompose(truth.to_dense() * scale, 3, rng=0)
    np.testing.assert_allclose(result.weights, truth.weights * scale, rtol=1e-10)


def test_a_sparse_tensor_of_a_hundred_thousand_dimensions():
    places = np.array([5, 99_999, 40_000])
    tensor = SparseTensor(np.repeat(places[:, None], 3, axis=1), [3.0, 2.0, 1.0], 100_000)
    result = odeco.decompose(tensor, 3, rng=0)
    np.testing.assert_allclose(result.weights, [3, 2, 1], atol=EXACT)
    assert list(np.abs(result.vectors).argmax(axis=0)) == list(places)


def test_results_are_sorted_and_explain_everything():
    truth = planted_orthogonal(10, 3, weights=[1.0, 3.0, 2.0], rng=0)
    result = odeco.decompose(truth.to_dense(), 3, rng=0)
    np.testing.assert_allclose(result.weights, [3, 2, 1])
    assert result.explained == pytest.approx(1, abs=1e-12)
    assert odeco.decompose(truth.to_dense(), 1, rng=0).explained == pytest.approx(9 / 14, abs=1e-12)
    assert result.n_agreed.min() >= 1
    assert all(history[-1] < 1e-10 for history in result.histories)


def test_same_rng_same_result_and_another_seed_another_search():
    tensor = planted_orthogonal(20, 5, rng=0)
    first, second, other = (
        run(tensor, Schedule(5, 10, 3), rng=seed).components for seed in (4, 4, 5)
    )
    assert np.array_equal(first.vectors, second.vectors)
    assert not np.array_equal(first.vectors, other.vectors)


@pytest.mark.parametrize(
    ("shape", "k"), [((4, 5, 6), 4), ((20, 30, 25), 6), ((3, 4, 5, 6), 3), ((3, 2, 3, 2, 3), 2)]
)
@pytest.mark.parametrize("seed", range(3))
def test_asymmetric_tensors_give_all_their_factors(shape, k, seed):
    generator = np.random.default_rng(seed)
    factors = [np.linalg.qr(generator.standard_normal((size, k)))[0] for size in shape]
    weights = np.linspace(2, 1, k) * generator.choice([-1, 1], k)
    T = AsymmetricDecomposition(weights, tuple(factors), weights, weights > 0).to_dense()
    result = odeco.decompose_asymmetric(T, k, rng=seed)
    np.testing.assert_allclose(result.weights, np.abs(weights), atol=EXACT)
    np.testing.assert_allclose(result.to_dense(), T, atol=EXACT)
    for found, true in zip(result.factors, factors, strict=True):
        np.testing.assert_allclose(np.abs(np.sum(found * true, axis=0)), 1, atol=EXACT)


def test_asymmetric_ties_do_not_return_a_term_twice():
    T = np.zeros((4, 4, 4))
    for i in range(4):
        T[i, (i + 1) % 4, (i + 2) % 4] = 1
    result = odeco.decompose_asymmetric(T, 4, rng=0)
    np.testing.assert_allclose(result.to_dense(), T, atol=EXACT)


def test_components_are_an_answer_that_can_be_subtracted():
    truth = planted_orthogonal(10, 3, rng=0)
    result = odeco.decompose(truth, 3, rng=0)
    assert isinstance(result.components, Components)
    rest = truth - result.components
    assert np.abs(rest.image(np.random.default_rng(0).standard_normal((10, 4)))).max() < 1e-12
