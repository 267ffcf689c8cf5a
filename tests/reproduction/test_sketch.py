"""Tensor sketches: answers compared with brute force, their mean and variance with what is
derived.
"""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from registry import random_symmetric
from scipy import sparse

import odeco
from odeco.datasets import gaussian_noise, planted_orthogonal
from odeco.tensors import DenseTensor, PackedTensor
from reproduction.baselines import TensorSketch, sketched_power_method


def tensor_of(sketch, which):
    """The tensor that one sketch stands for, entry by entry, from its definition."""
    thrown = np.fft.ifft(sketch.transforms[which])
    entries = np.empty((sketch.dimension,) * sketch.order)
    for index in itertools.product(range(sketch.dimension), repeat=sketch.order):
        bucket = sum(sketch.buckets[which, i] for i in index) % thrown.size
        entries[index] = (np.conj(np.prod(sketch.phases[which, list(index)])) * thrown[bucket]).real
    return entries


def thrown_by_hand(entries, sketch, which):
    """The sketch of a tensor by its definition: every entry with sorted indices goes to its
    bucket.
    """
    thrown = np.zeros(sketch.transforms.shape[1], dtype=complex)
    for index in itertools.combinations_with_replacement(range(sketch.dimension), sketch.order):
        bucket = sum(sketch.buckets[which, i] for i in index) % thrown.size
        thrown[bucket] += entries[index] * np.prod(sketch.phases[which, list(index)])
    return thrown


@pytest.mark.parametrize("order", [3, 4, 5])
def test_a_sketch_is_what_its_definition_says(order):
    entries = random_symmetric(4, order, np.random.default_rng(order))
    sketch = TensorSketch.of_entries(entries, length=11, n_sketches=2, rng=0)
    for which in range(2):
        by_hand = thrown_by_hand(entries, sketch, which)
        np.testing.assert_allclose(np.fft.ifft(sketch.transforms[which]), by_hand, atol=1e-14)


@pytest.mark.parametrize("order", [3, 4, 5])
def test_rows_are_sketched_as_the_entries_of_their_moment(order):
    generator = np.random.default_rng(order)
    rows, weights = generator.standard_normal((7, 4)), generator.standard_normal(7)
    entries = odeco.symmetrize(odeco.Components(weights, rows.T, order).to_dense())
    settings = {"length": 13, "n_sketches": 3, "rng": 5}
    expected = TensorSketch.of_entries(entries, **settings).transforms
    for given in (rows, sparse.csr_array(rows)):
        found = TensorSketch.of_rows(given, order=order, weights=weights, **settings)
        np.testing.assert_allclose(found.transforms, expected, atol=1e-12)
    mean = TensorSketch.of_rows(rows, order=order, **settings)
    moment = odeco.symmetrize(odeco.Components(np.full(7, 1 / 7), rows.T, order).to_dense())
    np.testing.assert_allclose(
        mean.transforms, TensorSketch.of_entries(moment, **settings).transforms, atol=1e-12
    )


def test_rows_in_many_chunks_are_sketched_as_rows_in_one(monkeypatch):
    rows = np.random.default_rng(0).standard_normal((20, 5))
    whole = TensorSketch.of_rows(rows, length=17, n_sketches=2, rng=1).transforms
    monkeypatch.setattr("reproduction.baselines.power_methods._CHUNK_SIZE", 100)
    np.testing.assert_allclose(
        TensorSketch.of_rows(rows, length=17, n_sketches=2, rng=1).transforms, whole, atol=1e-12
    )


@pytest.mark.parametrize("order", [3, 4, 5])
@pytest.mark.parametrize("combine", ["median", "mean"])
def test_an_image_is_that_of_the_tensors_the_sketches_stand_for(order, combine):
    entries = random_symmetric(4, order, np.random.default_rng(order))
    sketch = TensorSketch.of_entries(entries, length=11, n_sketches=3, combine=combine, rng=0)
    block = np.random.default_rng(1).standard_normal((4, 3))
    answers = [
        DenseTensor(odeco.symmetrize(tensor_of(sketch, which))).image(block) for which in range(3)
    ]
    combined = np.median(answers, axis=0) if combine == "median" else np.mean(answers, axis=0)
    np.testing.assert_allclose(sketch.image(block), combined, atol=1e-12)


@pytest.mark.parametrize("order", [3, 4, 5])
def test_one_sketch_and_the_mean_of_many_obey_the_laws_of_oracles(order):
    entries = random_symmetric(6, order, np.random.default_rng(order))
    odeco.check_oracle(TensorSketch.of_entries(entries, length=31, n_sketches=1, rng=0))
    odeco.check_oracle(
        TensorSketch.of_entries(entries, length=31, n_sketches=4, combine="mean", rng=0)
    )


def test_the_median_of_many_is_not_quite_symmetric():
    entries = random_symmetric(6, 3, np.random.default_rng(0))
    with pytest.raises(AssertionError, match="Symmetry"):
        odeco.check_oracle(TensorSketch.of_entries(entries, length=31, n_sketches=5, rng=0))


def variance_of_value(entries, vector, length):
    """Σ (e_D² + e_D e_₋D) / 2b over all differences D ≠ 0 of sorted index tuples, as the class
    derives it.
    """
    d, p = entries.shape[0], entries.ndim
    tuples = list(itertools.combinations_with_replacement(range(d), p))
    arrangements = {index: len(set(itertools.permutations(index))) for index in tuples}
    sums = Counter()
    for first, second in itertools.product(tuples, repeat=2):
        difference = np.bincount(second, minlength=d) - np.bincount(first, minlength=d)
        sums[tuple(difference)] += (
            entries[first] * arrangements[second] * np.prod(vector[list(second)])
        )
    pairs = ((sums[each], sums[tuple(-x for x in each)]) for each in list(sums) if any(each))
    return sum(here * here + here * there for here, there in pairs) / (2 * length)


@pytest.mark.parametrize("order", [3, 4])
def test_a_value_has_the_mean_and_the_variance_that_are_derived_at_every_length(order):
    # Over n independent sketches the mean is off by more than 5 standard errors in one case of a
    # million. The variance is a mean of squares; their own spread, from the sample, says how far it
    # may be off.
    n, generator = 2_000, np.random.default_rng(order)
    entries = random_symmetric(3, order, generator)
    vector = generator.standard_normal(3)
    vector /= np.linalg.norm(vector)
    truth = float(DenseTensor(entries).value(vector[:, None])[0])
    for length in (7, 35, 125):
        sketches = TensorSketch.of_entries(entries, length=length, n_sketches=n, rng=length)
        values = sketches._replies(vector[:, None])[:, :, 0] @ vector
        expected = variance_of_value(entries, vector, length)
        assert abs(values.mean() - truth) < 5 * np.sqrt(expected / n)
        squares = (values - truth) ** 2
        assert abs(squares.mean() - expected) < 5 * squares.std() / np.sqrt(n)


def test_lengths_are_rounded_up_to_small_primes_above_the_order():
    for order, length, rounded in (
        (3, 2, 5),
        (3, 1000, 1001),
        (4, 8, 11),
        (5, 8, 11),
        (5, 14, 49),
        (13, 5, 14),
    ):
        sketch = TensorSketch.of_rows(np.eye(2), length=length, n_sketches=1, order=order, rng=0)
        assert sketch.transforms.shape == (1, rounded)


def test_the_error_of_an_image_falls_with_the_root_of_the_length():
    # The variance is a constant over b, so 16 times the length has a quarter of the error. From n
    # independent squared errors whose standard deviation is about their mean, their root is known
    # to 1 / 2√n: 3 % for 300.
    entries = planted_orthogonal(20, 3, rng=0).to_dense()
    vector = np.full((20, 1), 20**-0.5)
    exact = DenseTensor(entries).image(vector)
    errors, lengths = [], []
    for length in (125, 2000):
        sketches = TensorSketch.of_entries(entries, length=length, n_sketches=300, rng=length)
        errors.append(np.sqrt(np.mean((sketches._replies(vector) - exact) ** 2)))
        lengths.append(sketches.transforms.shape[1])
    assert errors[0] / errors[1] == pytest.approx((lengths[1] / lengths[0]) ** 0.5, rel=0.15)


def test_components_are_taken_out_of_a_sketch_with_all_that_they_put_in():
    truth = planted_orthogonal(10, 3, rng=0)
    sketch = TensorSketch.of_entries(truth.to_dense(), length=31, n_sketches=3, rng=0)
    assert np.abs(sketch.without(truth).transforms).max() < 1e-12 * np.abs(sketch.transforms).max()


@pytest.mark.parametrize("order", [3, 4])
def test_the_power_method_on_a_sketch_finds_the_components(order):
    # The error of a value is about ‖T‖ / √b: 3 % of the smallest weight here, and the median of
    # nine is better.
    truth = planted_orthogonal(20, 3, order=order, rng=1)
    found = sketched_power_method(
        truth.to_dense(), 3, length=8000, n_restarts=5, n_iterations=12, rng=0
    )
    matched = odeco.match(found, truth)
    assert np.all(matched.cosines > 0.99)
    assert np.all(np.abs(matched.weight_errors) < 0.1)


@pytest.mark.slow
def test_a_longer_sketch_is_better_and_the_tensor_itself_is_best():
    truth = planted_orthogonal(20, 3, rng=2)
    noisy = DenseTensor(truth.to_dense() + 0.003 * gaussian_noise(20, rng=2).entries)
    worst = {
        length: [
            odeco.match(
                sketched_power_method(noisy, 3, length=length, n_restarts=5, rng=seed), truth
            ).angles.max()
            for seed in range(3)
        ]
        for length in (250, 4000)
    }
    best = odeco.match(odeco.decompose(noisy, 3, tol=1e-6, rng=0), truth).angles.max()
    assert best < np.median(worst[4000]) < np.median(worst[250])


def test_packed_dense_and_plain_arrays_give_the_same_sketch():
    entries = random_symmetric(6, 3, np.random.default_rng(0))
    sketches = [
        TensorSketch.of_entries(each, length=11, rng=0).transforms
        for each in (entries, DenseTensor(entries), PackedTensor.from_dense(entries))
    ]
    assert np.array_equal(sketches[0], sketches[1])
    assert np.array_equal(sketches[0], sketches[2])


def test_what_a_sketch_refuses():
    entries = random_symmetric(4, 3, np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"`length` must be an int of at least 2\. Got 1\."):
        TensorSketch.of_entries(entries, length=1)
    with pytest.raises(
        ValueError, match=r"`combine` must be one of 'median', 'mean'\. Got 'sum'\."
    ):
        TensorSketch.of_entries(entries, length=11, combine="sum")
    with pytest.raises(
        ValueError, match=r"`weights` must hold one number for each of 4 rows\. Got shape \(3,\)\."
    ):
        TensorSketch.of_rows(np.eye(4), length=11, weights=np.ones(3))
    with pytest.raises(
        ValueError, match="`length` must be given for a tensor that is no sketch yet"
    ):
        sketched_power_method(entries, 2)
