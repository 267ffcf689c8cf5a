"""The subspace power method on flattenings: more components than dimensions, and their number."""

from __future__ import annotations

import numpy as np
import pytest

import odeco
from odeco.cp.spectrum import FlatteningSpectrum
from odeco.cp.subspace_power import largest_rank, subspace_power_method
from odeco.errors import RankError
from odeco.tensors import DenseTensor, FlattenedTensor, PackedTensor, SparseTensor


def planted(dimension, k, *, order=4, noise=0.0, seed=0):
    """Return random components with weights of both signs, and their flattening with symmetric
    Gaussian noise.
    """
    generator = np.random.default_rng(seed)
    weights = generator.uniform(1, 2, k) * generator.choice([-1, 1], k)
    truth = odeco.Components(weights, generator.standard_normal((dimension, k)), order)
    truth = odeco.Components(weights, truth.vectors, order)
    flattening = truth.flattening()
    if noise:
        error = DenseTensor(
            odeco.symmetrize(generator.standard_normal((dimension,) * order))
        ).flattening()
        flattening = flattening + noise * np.linalg.norm(flattening) / np.linalg.norm(error) * error
    return truth, flattening


@pytest.mark.parametrize(("dimension", "order"), [(4, 3), (5, 4), (4, 5), (3, 6), (3, 7)])
def test_every_tensor_of_entries_has_the_same_flattening(dimension, order):
    entries = odeco.symmetrize(np.random.default_rng(0).standard_normal((dimension,) * order))
    flattening = DenseTensor(entries).flattening()
    assert np.isclose(np.linalg.norm(flattening), np.linalg.norm(entries))
    indices = np.unique(np.sort(np.indices(entries.shape).reshape(order, -1).T), axis=0)
    for other in (
        PackedTensor.from_dense(entries),
        SparseTensor(indices, entries[tuple(indices.T)], dimension),
        FlattenedTensor(flattening, dimension, order),
        2.0 * DenseTensor(entries) - DenseTensor(entries),
    ):
        assert np.allclose(other.flattening(), flattening, atol=1e-12)
    truth, of_components = planted(dimension, 3, order=order)
    assert np.allclose(of_components, DenseTensor(odeco.symmetrize(truth.to_dense())).flattening())


@pytest.mark.parametrize(
    ("order", "dimension", "k"),
    [(4, 6, 9), (4, 10, 20), (4, 10, 33), (5, 6, 12), (5, 10, 40), (6, 5, 20), (7, 4, 10)],
)
@pytest.mark.parametrize("noise", [0.0, 1e-4])
def test_more_components_than_dimensions_are_found_and_counted(order, dimension, k, noise):
    truth, flattening = planted(dimension, k, order=order, noise=noise)
    found = subspace_power_method(flattening, dimension, order, "auto", rng=0)
    assert found.n_components == k
    # The span errs by the noise over the smallest singular value, here at most a hundred times the
    # noise.
    assert odeco.match(found, truth).cosines.min() > 1 - max(1e-5, (100 * noise) ** 2)


def test_results_are_repeatable_and_depend_on_the_seed_by_rounding_only():
    truth, flattening = planted(8, 14)
    first, again, other = (
        subspace_power_method(flattening, 8, 4, 14, rng=seed) for seed in (0, 0, 1)
    )
    assert np.array_equal(first.vectors, again.vectors)
    assert odeco.match(first, truth).cosines.min() > 1 - 1e-9
    assert odeco.match(other, truth).cosines.min() > 1 - 1e-9


@pytest.mark.parametrize("n_rows", [15, 55])
@pytest.mark.parametrize("symmetric", [True, False])
def test_noise_alone_has_no_clear_singular_value(n_rows, symmetric):
    # Each draw exceeds the edge with a chance of 1 in 1,000; 200 draws do so twice or more with a
    # chance of 2 %.
    generator, n_bad = np.random.default_rng(3), 0
    for _ in range(200):
        noise = generator.standard_normal((n_rows, n_rows if symmetric else 3 * n_rows))
        noise = noise + noise.T if symmetric else noise
        n_bad += FlatteningSpectrum.of(noise, 1e-16).n_clear > 0
    assert n_bad <= 1


def test_the_largest_rank_is_that_of_the_paper():
    # C(d+h−1, h) − d at order 2h, C(d+h−1, h) at order 2h+1; there is no flattening to search at
    # order 3.
    assert [largest_rank(10, order) for order in (3, 4, 5, 6)] == [0, 45, 55, 210]


def test_too_many_components_are_refused():
    truth, flattening = planted(6, 9)
    with pytest.raises(ValueError, match=r"in \[0, 15\]"):
        subspace_power_method(flattening, 6, 4, 16, rng=0)
    with pytest.raises(RankError, match="rank 9") as caught:
        subspace_power_method(flattening, 6, 4, 10, rng=0)
    assert odeco.match(caught.value.found, truth).cosines.min() > 1 - 1e-9


def test_a_matrix_of_another_shape_is_no_flattening():
    with pytest.raises(ValueError, match="must have shape"):
        FlattenedTensor(np.eye(9), 3, 4)


@pytest.mark.parametrize(("order", "dimension"), [(4, 5), (5, 4), (6, 3), (7, 3)])
def test_a_flattened_tensor_changes_coordinates_as_its_entries_do(order, dimension):
    generator = np.random.default_rng(order)
    entries = odeco.symmetrize(generator.standard_normal((dimension,) * order))
    tensor = FlattenedTensor(DenseTensor(entries).flattening(), dimension, order)
    basis = np.linalg.qr(generator.standard_normal((dimension, 2)))[0]
    inside = DenseTensor(odeco.symmetrize(DenseTensor(entries).inside(basis)))
    np.testing.assert_allclose(tensor.within(basis).matrix, inside.flattening(), atol=1e-12)
    scales, divided = generator.uniform(0.5, 2, dimension), entries
    for axis in range(order):
        divided = divided / np.expand_dims(
            scales, [other for other in range(order) if other != axis]
        )
    np.testing.assert_allclose(
        tensor.divided(scales).matrix, DenseTensor(divided).flattening(), atol=1e-12
    )
    # The packed unfolding has the singular values of the whole one.
    packed = np.linalg.svd(tensor.rows.unfolding(tensor.matrix), compute_uv=False)
    np.testing.assert_allclose(
        packed, np.linalg.svd(entries.reshape(dimension, -1), compute_uv=False), rtol=1e-10
    )
