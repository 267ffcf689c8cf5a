"""Tensors given by their entries answer as the entries do, and take the room they promise."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from registry import ORACLES, random_symmetric, sparse_entries

import odeco
from odeco import Components
from odeco.tensors import DenseTensor, PackedTensor, SparseTensor
from odeco.tensors.oracle import slice_by_images


def contract(entries, u):
    for _ in range(entries.ndim - 1):
        entries = entries @ u
    return entries


@pytest.mark.parametrize(
    ("order", "dimension"), [(3, 1), (3, 7), (3, 33), (3, 140), (4, 1), (4, 9), (5, 6), (6, 4)]
)
def test_tensors_answer_as_their_entries(order, dimension):
    generator = np.random.default_rng(dimension)
    entries = random_symmetric(dimension, order, generator)
    block = generator.standard_normal((dimension, 5))
    expected = np.stack([contract(entries, u) for u in block.T], axis=1)
    indices = (
        np.array(list(itertools.combinations_with_replacement(range(dimension), order)))
        if dimension < 40
        else None
    )
    tensors = [
        DenseTensor(entries),
        DenseTensor(np.asfortranarray(entries)),
        PackedTensor.from_dense(entries),
    ]
    if indices is not None:
        tensors.append(SparseTensor(indices, entries[tuple(indices.T)], dimension))
    for tensor in tensors:
        np.testing.assert_allclose(
            tensor.image(block), expected, atol=1e-12 * np.abs(expected).max()
        )
        assert tensor.squared_norm() == pytest.approx(np.sum(entries**2), rel=1e-12)


def test_a_sparse_tensor_accepts_any_permutations_of_its_entries():
    generator = np.random.default_rng(0)
    indices, values = sparse_entries(6, 3, generator)
    shuffled = np.array([generator.permutation(index) for index in indices])
    doubled = np.concatenate([indices, shuffled]), np.concatenate([values, values])
    block = generator.standard_normal((6, 3))
    np.testing.assert_allclose(
        SparseTensor(*doubled, 6).image(block), SparseTensor(indices, values, 6).image(block)
    )


def test_a_packed_tensor_stores_a_sixth_and_a_dense_one_no_copy():
    entries = random_symmetric(60, 3, np.random.default_rng(0))
    assert (
        PackedTensor.from_dense(entries).packed.nbytes
        == 8 * math.comb(62, 3)
        < entries.nbytes / 5.7
    )
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


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("order", [3, 4, 5])
def test_the_slice_of_every_oracle_is_that_of_its_images(name, order):
    oracle = ORACLES[name](np.random.default_rng(order), 4, order)
    direction = np.random.default_rng(1).standard_normal(oracle.dimension)
    matrix = oracle.slice(direction)
    by_images = slice_by_images(oracle.image, direction, oracle.order)
    np.testing.assert_allclose(
        matrix, by_images, atol=1e4 * oracle.rounding * max(1, np.abs(by_images).max())
    )


def test_the_slice_of_sums_and_multiples_is_the_sum_and_the_multiple():
    first, second = (
        Components(np.ones(k), np.random.default_rng(k).standard_normal((6, k))) for k in (4, 5)
    )
    direction = np.random.default_rng(1).standard_normal(6)
    expected = 2 * first.slice(direction) - second.slice(direction)
    np.testing.assert_allclose((2 * first - second).slice(direction), expected, atol=1e-12)
