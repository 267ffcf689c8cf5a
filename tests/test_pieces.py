"""The smaller pieces: entries, whitening, rank, norms, metrics, planted problems, baselines."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from registry import random_symmetric, sparse_entries

import odeco
from odeco import Components
from odeco.baselines import random_slice, simultaneous_diagonalization, ss_hopm
from odeco.datasets import (
    AdversarialNoise,
    WeaklyCorrelatedNoise,
    appendix_a,
    gaussian_noise,
    planted_independent,
    planted_orthogonal,
)
from odeco.norms import squared_norm
from odeco.rank import ground_state, judge_rank
from odeco.tensors import DenseTensor, PackedTensor, SparseTensor
from odeco.whitening import Whitened, Whitener, slice_matrix


def contract(entries, u):
    for _ in range(entries.ndim - 1):
        entries = entries @ u
    return entries


@pytest.mark.parametrize(("order", "dimension"), [(3, 1), (3, 7), (3, 33), (3, 140), (4, 1), (4, 9), (5, 6), (6, 4)])
def test_tensors_answer_as_their_entries(order, dimension):
    generator = np.random.default_rng(dimension)
    entries = random_symmetric(dimension, order, generator)
    block = generator.standard_normal((dimension, 5))
    expected = np.stack([contract(entries, u) for u in block.T], axis=1)
    indices = (
        np.array(list(itertools.combinations_with_replacement(range(dimension), order))) if dimension < 40 else None
    )
    tensors = [DenseTensor(entries), DenseTensor(np.asfortranarray(entries)), PackedTensor.from_dense(entries)]
    if indices is not None:
        tensors.append(SparseTensor(indices, entries[tuple(indices.T)], dimension))
    for tensor in tensors:
        np.testing.assert_allclose(tensor.image(block), expected, atol=1e-12 * np.abs(expected).max())
        assert tensor.squared_norm() == pytest.approx(np.sum(entries**2), rel=1e-12)


def test_a_sparse_tensor_accepts_any_permutations_of_its_entries():
    generator = np.random.default_rng(0)
    indices, values = sparse_entries(6, 3, generator)
    shuffled = np.array([generator.permutation(index) for index in indices])
    doubled = np.concatenate([indices, shuffled]), np.concatenate([values, values])
    block = generator.standard_normal((6, 3))
    np.testing.assert_allclose(SparseTensor(*doubled, 6).image(block), SparseTensor(indices, values, 6).image(block))


def test_a_packed_tensor_stores_a_sixth_and_a_dense_one_no_copy():
    entries = random_symmetric(60, 3, np.random.default_rng(0))
    assert PackedTensor.from_dense(entries).packed.nbytes == 8 * math.comb(62, 3) < entries.nbytes / 5.7
    for layout in (entries, np.asfortranarray(entries), entries.astype(np.float32)):
        layout.flags.writeable = False
        assert np.shares_memory(DenseTensor(layout).entries, layout)
    strided = np.zeros((60, 60, 120))[:, :, ::2]
    strided[...] = entries
    assert DenseTensor(strided).entries.flags.c_contiguous


@given(seed=st.integers(0, 2**32 - 1), order=st.integers(3, 5))
def test_symmetrize_is_the_mean_over_permutations_and_leaves_a_symmetric_tensor_alone(seed, order):
    entries = np.random.default_rng(seed).standard_normal((3,) * order)
    permutations = list(itertools.permutations(range(order)))
    mean = sum(entries.transpose(p) for p in permutations) / len(permutations)
    np.testing.assert_allclose(odeco.symmetrize(entries), mean, atol=1e-14)
    np.testing.assert_allclose(odeco.symmetrize(mean), mean, atol=1e-14)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("order", "dimension", "k"), [(3, 20, 6), (3, 6, 6), (4, 12, 4), (5, 7, 3)])
def test_independent_components_are_recovered_exactly(seed, order, dimension, k):
    truth = planted_independent(dimension, k, order=order, coherence=0.4, rng=seed)
    for whiten in ("tensor", "slice", truth.vectors @ truth.vectors.T):
        result = odeco.decompose(truth.to_dense(), k, whiten=whiten, rng=seed)
        matched = odeco.match(result, truth)
        assert np.all(matched.cosines > 1 - 1e-10)
        assert np.all(np.abs(matched.weight_errors) < 1e-8)  # un-whitening multiplies errors by its condition number
        assert result.explained == pytest.approx(1, abs=1e-10)


def test_without_whitening_the_same_tensor_is_not_recovered():
    truth = planted_independent(20, 6, coherence=0.4, rng=0)
    assert odeco.match(odeco.decompose(truth, 6, rng=0), truth).cosines.min() < 0.99


def test_signed_weights_at_even_order_are_whitened_too():
    truth = planted_independent(8, 3, order=4, weights=[2.0, -1.5, 1.0], rng=0)
    result = odeco.decompose(truth.to_dense(), 3, whiten="tensor", rng=0)
    np.testing.assert_allclose(result.weights, [2.0, -1.5, 1.0], atol=1e-8)


def test_whitening_makes_components_orthonormal_and_leads_back():
    truth = planted_independent(9, 4, rng=0)
    for whitener in (Whitener.from_tensor(truth, 4, rng=0), Whitener.from_moment(truth.vectors @ truth.vectors.T, 4)):
        np.testing.assert_allclose(whitener.forward.T @ whitener.backward, np.eye(4), atol=1e-10)
        inside = whitener.forward.T @ truth.vectors
        inside /= np.linalg.norm(inside, axis=0)
        np.testing.assert_allclose(inside.T @ inside, np.eye(4), atol=1e-8)


def test_slices_of_any_order_are_read_off_images():
    for order in (3, 4, 5, 6):
        generator = np.random.default_rng(order)
        entries, theta = random_symmetric(4, order, generator), generator.standard_normal(4)
        expected = entries
        for _ in range(order - 2):
            expected = expected @ theta
        np.testing.assert_allclose(slice_matrix(DenseTensor(entries), theta), expected, atol=1e-12)


def test_images_give_a_better_whitener_than_one_slice_under_noise():
    """Appendix B reads the span off one slice, whose signal is weaker by 1/√d; medians over seeds, so not by chance."""
    errors = {"tensor": [], "slice": []}
    for seed in range(7):
        truth = planted_independent(30, 3, rng=seed)
        noisy = DenseTensor(truth.to_dense() + 0.003 * gaussian_noise(30, rng=seed).entries)
        for whiten, found in errors.items():
            result = odeco.decompose(noisy, 3, whiten=whiten, tol=1e-6, rng=seed)
            found.append(odeco.match(result, truth).angles.max())
    assert np.median(errors["tensor"]) < np.median(errors["slice"])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("dimension", "k", "order"), [(30, 4, 3), (40, 1, 3), (5, 5, 3), (10, 10, 3), (12, 3, 4)])
def test_auto_finds_the_rank_of_an_exact_tensor(seed, dimension, k, order):
    truth = planted_orthogonal(dimension, k, order=order, weights=np.ones(k), rng=seed)
    result = odeco.decompose(truth.to_dense(), "auto", rng=seed)
    assert result.weights.size == k
    assert result.rank_evidence.confidence > 0.999


@pytest.mark.parametrize("seed", range(5))
def test_auto_finds_the_rank_in_noise_and_says_how_sure_it_is(seed):
    d, k = 30, 4
    noise = gaussian_noise(d, rng=seed)
    truth = planted_orthogonal(d, k, rng=seed)
    # Noise with a standard deviation of s at each unit vector reaches 1.657 √d s: here 0.5, half the smallest weight.
    deviation = 0.5 / (ground_state(3) * math.sqrt(d))
    scale = deviation / math.sqrt(noise.squared_norm() / math.comb(d + 2, 3))
    for tensor in (DenseTensor(truth.to_dense() + scale * noise.entries), truth + scale * noise):
        result = odeco.decompose(tensor, "auto", n_restarts=20, tol=1e-5, rng=seed)
        assert result.weights.size == k
        evidence = result.rank_evidence
        assert evidence.confidence > 0.999
        assert np.all(evidence.chances[k:] > 1e-3)
        np.testing.assert_allclose(evidence.noise_levels[k - 1], 0.5, rtol=0.1)


def test_pure_noise_has_no_component():
    """A false alarm has a chance of at most 1e-3 a tensor, so one among ten would be a mistake in the theory."""
    for seed in range(10):
        with pytest.raises(odeco.RankError, match="At least one component must stand clear of the noise"):
            odeco.decompose(gaussian_noise(25, rng=seed), "auto", n_restarts=20, tol=1e-4, rng=seed)


def test_the_ground_state_is_the_published_one():
    # Auffinger, Ben Arous and Černý 2013: E0(3) = 1.657; at order 2 it would be √2, the edge of the semicircle.
    assert ground_state(3) == pytest.approx(1.657, abs=5e-4)
    assert judge_rank(np.array([1.0]), np.array([0.0]), 10, 3).rank == 1


def test_auto_refuses_an_oracle_that_cannot_be_asked_again():
    tensor = planted_orthogonal(5, 2, rng=0)
    object.__setattr__(tensor, "exact", False)
    with pytest.raises(ValueError, match=r"Components is not exact\. Pass n_components as an int\."):
        odeco.decompose(tensor, "auto")


@pytest.mark.parametrize("order", [3, 4, 5])
def test_operator_norm_of_an_orthogonal_tensor_is_its_largest_weight(order):
    truth = planted_orthogonal(8, 4, order=order, weights=[1.0, -3.0, 2.0, 0.5], rng=0)
    assert odeco.operator_norm(truth.to_dense(), rng=0) == pytest.approx(3.0, rel=1e-10)


def test_operator_norm_is_reached_by_no_random_vector():
    tensor = gaussian_noise(10, rng=0)
    vectors = np.random.default_rng(1).standard_normal((10, 2000))
    values = tensor.value(vectors / np.linalg.norm(vectors, axis=0))
    assert np.abs(values).max() < odeco.operator_norm(tensor, rng=0)


def test_incoherence_lies_between_one_and_d_over_k():
    assert odeco.incoherence(Components(np.ones(2), np.eye(6)[:, :2])) == pytest.approx(3)
    flat = np.linalg.qr(np.array([[1, 1], [1, -1], [1, 1], [1, -1.0]]))[0]
    assert odeco.incoherence(Components(np.ones(2), flat)) == pytest.approx(1)


@pytest.mark.parametrize("order", [3, 4])
def test_the_norm_of_an_unknown_tensor_is_estimated_without_bias(order):
    known = DenseTensor(random_symmetric(12, order, np.random.default_rng(0)))
    unknown = known + Components([0.0], np.ones((12, 1)), order)
    assert unknown.squared_norm() is None
    estimates = [squared_norm(unknown, rng=seed) for seed in range(40)]
    standard_error = np.std(estimates) / math.sqrt(40)
    assert abs(np.mean(estimates) - known.squared_norm()) < 4 * standard_error
    assert squared_norm(known) == known.squared_norm()


def test_match_pairs_up_to_order_and_sign_and_tolerates_missing_ones():
    truth = planted_orthogonal(6, 3, rng=0)
    shuffled = Components(-truth.weights[[2, 0]], -truth.vectors[:, [2, 0]])
    matched = odeco.match(shuffled, truth)
    assert list(matched.found_index) == [1, -1, 0]
    np.testing.assert_allclose(matched.cosines, [1, 0, 1], atol=1e-12)
    np.testing.assert_allclose(matched.weight_errors, [0, -truth.weights[1], 0], atol=1e-12)
    even = Components(truth.weights, truth.vectors, 4)
    flipped = Components(truth.weights, -truth.vectors, 4)
    np.testing.assert_allclose(odeco.match(flipped, even).weight_errors, 0, atol=1e-12)


def test_the_noise_models_of_appendix_a_are_what_the_paper_writes():
    d = 6
    unit = np.eye(d)
    v = unit[1]
    adversarial = sum(
        np.einsum("a,b,c->abc", v, e, e) + np.einsum("a,b,c->abc", e, v, e) + np.einsum("a,b,c->abc", e, e, v)
        for e in unit
    )
    weak = sum(np.einsum("a,b,c->abc", e, e, e) for e in unit[3:])
    block = np.random.default_rng(0).standard_normal((d, 4))
    for noise, entries in [(AdversarialNoise(v), adversarial), (WeaklyCorrelatedNoise(d, 3), weak)]:
        np.testing.assert_allclose(noise.image(block), DenseTensor(entries).image(block), atol=1e-12)
        assert noise.squared_norm() == pytest.approx(np.sum(entries**2))
    assert odeco.operator_norm(AdversarialNoise(v), rng=0) == pytest.approx(3)
    assert odeco.operator_norm(WeaklyCorrelatedNoise(d, 3), rng=0) == pytest.approx(1)


@pytest.mark.parametrize("noise", ["gaussian", "adversarial", "weakly correlated"])
def test_appendix_a_scales_the_noise_to_its_operator_norm(noise):
    tensor, truth = appendix_a(12, noise, 0.05, rng=0)
    assert odeco.operator_norm(tensor - truth, rng=1) == pytest.approx(0.05, rel=1e-6)
    assert odeco.match(odeco.decompose(tensor, 3, tol=1e-6, rng=0), truth).cosines.min() > 0.9


@pytest.mark.parametrize("order", [3, 4, 5])
@pytest.mark.parametrize("baseline", [random_slice, simultaneous_diagonalization])
def test_baselines_recover_an_exact_orthogonal_tensor(baseline, order):
    truth = planted_orthogonal(10, 4, order=order, rng=0)
    matched = odeco.match(baseline(truth.to_dense(), 4, rng=0), truth)
    assert np.all(matched.cosines > 1 - 1e-8)
    assert np.all(np.abs(matched.weight_errors) < 1e-7)


def test_ss_hopm_finds_every_component_of_an_orthogonal_tensor():
    truth = planted_orthogonal(6, 3, rng=0)
    np.testing.assert_allclose(ss_hopm(truth, shift=4.0, rng=0).weights[:3], truth.weights, atol=1e-8)


def test_many_slices_are_better_than_one_and_the_power_method_is_no_worse_under_noise():
    errors = {name: [] for name in ("power", "many", "one")}
    for seed in range(7):
        truth = planted_orthogonal(30, 3, rng=seed)
        noisy = DenseTensor(truth.to_dense() + 0.005 * gaussian_noise(30, rng=seed).entries)
        errors["power"].append(odeco.match(odeco.decompose(noisy, 3, tol=1e-6, rng=seed), truth).angles.max())
        errors["many"].append(odeco.match(simultaneous_diagonalization(noisy, 3, rng=seed), truth).angles.max())
        errors["one"].append(odeco.match(random_slice(noisy, 3, rng=seed), truth).angles.max())
    medians = {name: np.median(values) for name, values in errors.items()}
    assert medians["power"] <= medians["many"] < medians["one"]


def test_components_survive_a_file_bit_for_bit_and_cannot_be_changed(tmp_path):
    truth = planted_orthogonal(6, 3, order=4, rng=0)
    truth.save(tmp_path / "truth.npz")
    again = Components.load(tmp_path / "truth.npz")
    assert np.array_equal(again.weights, truth.weights)
    assert np.array_equal(again.vectors, truth.vectors)
    assert again.order == 4
    with pytest.raises(ValueError, match="read-only"):
        truth.weights[0] = 5


def test_a_vector_that_is_not_of_unit_length_moves_its_length_into_the_weight():
    tensor = Components([1.0], [[0.0], [2.0]], order=4)
    np.testing.assert_allclose(tensor.weights, [16.0])
    np.testing.assert_allclose(tensor.vectors.ravel(), [0.0, 1.0])


def test_whitened_is_the_tensor_in_other_coordinates():
    generator = np.random.default_rng(0)
    entries, W = random_symmetric(5, 3, generator), generator.standard_normal((5, 2))
    block = generator.standard_normal((2, 3))
    inside = np.einsum("abc,ai,bj,ck->ijk", entries, W, W, W)
    whitened = Whitened(DenseTensor(entries), Whitener(W, W))
    np.testing.assert_allclose(whitened.image(block), DenseTensor(odeco.symmetrize(inside)).image(block))
