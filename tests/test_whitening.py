"""Whitening: components that are independent but not orthogonal are recovered."""

from __future__ import annotations

import numpy as np
import pytest
from registry import random_symmetric

import odeco
from odeco.cp import Whitened, Whitener
from odeco.datasets import gaussian_noise, planted_independent
from odeco.tensors import DenseTensor
from odeco.tensors.oracle import slice_by_images


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("order", "dimension", "k"), [(3, 20, 6), (3, 6, 6), (4, 12, 4), (5, 7, 3)]
)
def test_independent_components_are_recovered_exactly(seed, order, dimension, k):
    truth = planted_independent(dimension, k, order=order, coherence=0.4, rng=seed)
    for whiten in ("tensor", "slice", truth.vectors @ truth.vectors.T):
        result = odeco.decompose(truth.to_dense(), k, whiten=whiten, rng=seed)
        matched = odeco.match(result, truth)
        assert np.all(matched.cosines > 1 - 1e-10)
        assert np.all(
            np.abs(matched.weight_errors) < 1e-8
        )  # un-whitening multiplies errors by its condition number
        assert result.explained == pytest.approx(1, abs=1e-10)


def test_without_whitening_the_same_tensor_is_not_recovered():
    truth = planted_independent(20, 6, coherence=0.4, rng=0)
    assert odeco.match(odeco.decompose(truth, 6, method="power", rng=0), truth).cosines.min() < 0.99


def test_signed_weights_at_even_order_are_whitened_too():
    truth = planted_independent(8, 3, order=4, weights=[2.0, -1.5, 1.0], rng=0)
    result = odeco.decompose(truth.to_dense(), 3, whiten="tensor", rng=0)
    np.testing.assert_allclose(result.weights, [2.0, -1.5, 1.0], atol=1e-8)


def test_whitening_makes_components_orthonormal_and_leads_back():
    truth = planted_independent(9, 4, rng=0)
    for whitener in (
        Whitener.from_tensor(truth, 4, rng=0),
        Whitener.from_moment(truth.vectors @ truth.vectors.T, 4),
    ):
        np.testing.assert_allclose(whitener.forward.T @ whitener.backward, np.eye(4), atol=1e-10)
        inside = whitener.forward.T @ truth.vectors
        inside /= np.linalg.norm(inside, axis=0)
        np.testing.assert_allclose(inside.T @ inside, np.eye(4), atol=1e-8)


def test_whitened_is_the_tensor_in_other_coordinates():
    generator = np.random.default_rng(0)
    entries, W = random_symmetric(5, 3, generator), generator.standard_normal((5, 2))
    block = generator.standard_normal((2, 3))
    inside = np.einsum("abc,ai,bj,ck->ijk", entries, W, W, W)
    whitened = Whitened(DenseTensor(entries), Whitener(W, W))
    expected = DenseTensor(odeco.symmetrize(inside))
    np.testing.assert_allclose(whitened.image(block), expected.image(block))
    np.testing.assert_allclose(whitened.slice(block[:, 0]), expected.slice(block[:, 0]))
    np.testing.assert_allclose(whitened.inside(block), expected.inside(block))


def test_slices_of_any_order_are_read_off_images():
    for order in (3, 4, 5, 6):
        generator = np.random.default_rng(order)
        entries, theta = random_symmetric(4, order, generator), generator.standard_normal(4)
        expected = entries
        for _ in range(order - 2):
            expected = expected @ theta
        tensor = DenseTensor(entries)
        for found in (tensor.slice(theta), slice_by_images(tensor.image, theta, order)):
            np.testing.assert_allclose(found, expected, atol=1e-12)


def test_images_give_a_better_whitener_than_one_slice_under_noise():
    """Appendix B reads the span off one slice, whose signal is weaker by 1/√d; medians over seeds,
    so not by chance.
    """
    errors = {"images": [], "slice": []}
    for seed in range(7):
        truth = planted_independent(30, 3, rng=seed)
        noisy = DenseTensor(truth.to_dense() + 0.003 * gaussian_noise(30, rng=seed).entries)
        for span, found in errors.items():
            basis = np.linalg.qr(Whitener.from_tensor(noisy, 3, span=span, rng=seed).forward)[0]
            found.append(np.linalg.norm(truth.vectors - basis @ (basis.T @ truth.vectors)))
    assert np.median(errors["images"]) < np.median(errors["slice"])


def test_after_either_whitening_least_squares_ends_at_the_same_fit():
    truth = planted_independent(30, 3, rng=0)
    noisy = DenseTensor(truth.to_dense() + 0.003 * gaussian_noise(30, rng=0).entries)
    one, other = (
        odeco.decompose(noisy, 3, whiten=whiten, tol=1e-6, rng=0) for whiten in ("tensor", "slice")
    )
    np.testing.assert_allclose(one.weights, other.weights, rtol=1e-5)
    assert one.explained == pytest.approx(odeco.decompose(noisy, 3, rng=0).explained, abs=1e-8)
