"""Decompositions of other libraries: converted, read back, and matched with ours."""

from __future__ import annotations

import numpy as np
import pytest
import tensorly
from tensorly.decomposition import parafac

import odeco
from odeco.datasets import planted_independent
from odeco.decompose import AsymmetricDecomposition


@pytest.mark.parametrize("order", [3, 4])
def test_components_are_the_same_tensor_in_other_libraries_and_come_back_bit_by_bit(order):
    components = odeco.Components(
        [2.0, -1.0], np.random.default_rng(0).standard_normal((5, 2)), order
    )
    theirs = components.to_tensorly()
    np.testing.assert_allclose(tensorly.cp_to_tensor(theirs), components.to_dense(), atol=1e-12)
    for again in (
        odeco.Components.from_tensorly(theirs),
        odeco.Components.from_tensorly((components.weights, theirs.factors)),
    ):
        np.testing.assert_array_equal(again.weights, components.weights)
        np.testing.assert_array_equal(again.vectors, components.vectors)
        assert again.order == order


def test_lengths_and_signs_of_factors_become_weights():
    vectors = np.eye(3)[:, :2]
    again = odeco.Components.from_tensorly((None, [vectors * [1, -2], vectors * [-3, 1], vectors]))
    np.testing.assert_array_equal(np.abs(again.weights), [3, 2])
    np.testing.assert_array_equal(
        again.to_dense(), odeco.Components([-3.0, -2.0], vectors).to_dense()
    )


def test_a_fit_of_tensorly_is_read_if_it_is_symmetric():
    truth = planted_independent(8, 3, rng=0)
    fit = parafac(tensorly.tensor(truth.to_dense()), 3, n_iter_max=500, tol=1e-14, init="svd")
    read = odeco.Components.from_tensorly(fit, tol=1e-4)
    assert odeco.match(read, truth).factor_match_score > 1 - 1e-3
    assert odeco.match(fit, truth).factor_match_score > 1 - 1e-3
    asymmetric = AsymmetricDecomposition.from_tensorly(fit)
    assert np.isnan(asymmetric.residuals).all()
    np.testing.assert_allclose(asymmetric.to_dense(), tensorly.cp_to_tensor(fit), atol=1e-9)


def test_terms_that_are_not_symmetric_are_refused_with_the_distance():
    factors = [np.eye(3)[:, :2], np.eye(3)[:, 1:], np.eye(3)[:, :2]]
    with pytest.raises(ValueError, match=r"term 0 along axes 0 and 1 differ by 1\.4e\+00"):
        odeco.Components.from_tensorly((None, factors))
    with pytest.raises(ValueError, match="Axes 0 and 2 have 3 and 4 entries"):
        odeco.Components.from_tensorly((None, [np.eye(3), np.eye(3), np.eye(4)[:, :3]]))
    with pytest.raises(ValueError, match="one column for each weight"):
        odeco.Components.from_tensorly((np.ones(2), [np.eye(3)] * 3))
    with pytest.raises(ValueError, match="finite and not zero"):
        AsymmetricDecomposition.from_tensorly(
            (None, [np.zeros((2, 1)), np.ones((2, 1)), np.ones((2, 1))])
        )


def test_asymmetric_terms_are_converted_and_matched_up_to_order_and_signs():
    generator = np.random.default_rng(0)
    factors = [np.linalg.qr(generator.standard_normal((size, 3)))[0] for size in (4, 5, 6)]
    result = odeco.decompose_asymmetric(
        np.einsum("k,ik,jk,lk", [3.0, -2.0, 1.0], *factors), 3, rng=0
    )
    np.testing.assert_allclose(
        tensorly.cp_to_tensor(result.to_tensorly()), result.to_dense(), atol=1e-12
    )
    again = AsymmetricDecomposition.from_tensorly(result.to_tensorly())
    np.testing.assert_array_equal(again.weights, result.weights)
    np.testing.assert_array_equal(again.factors[2], result.factors[2])
    shuffled = (
        [1.0, 2.0, 3.0],
        [factors[0][:, ::-1], -factors[1][:, ::-1], factors[2][:, ::-1] * [-1, 1, -1]],
    )
    truth = AsymmetricDecomposition.from_tensorly(shuffled)
    matched = odeco.match(result, truth)
    assert list(matched.found_index) == [0, 1, 2]
    np.testing.assert_allclose(matched.cosines, 1, atol=1e-12)
    np.testing.assert_allclose(matched.weight_errors, 0, atol=1e-9)
    assert matched.factor_match_score == pytest.approx(1)
    with pytest.raises(ValueError, match="share their shape"):
        odeco.match(result, odeco.Components([1.0], np.ones((4, 1))))


def test_the_factor_match_score_is_that_of_its_definition():
    first = odeco.Components([4.0, 1.0], np.eye(3)[:, :2])
    turned = np.array([[np.cos(0.1)], [np.sin(0.1)], [0.0]])
    expected = np.cos(0.1) ** 3 * 3 / 4
    # One component has no partner, so that the mean is over two, whichever of the two fits has it.
    assert odeco.match(odeco.Components([3.0], turned), first).factor_match_score == pytest.approx(
        expected / 2
    )
    assert odeco.match(first, odeco.Components([3.0], turned)).factor_match_score == pytest.approx(
        expected / 2
    )
    assert odeco.match(odeco.Components([-3.0], turned), first).factor_match_score == 0
