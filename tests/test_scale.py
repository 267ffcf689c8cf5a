"""The same digits at every scale: data times a power of two give the same result times that power,
or are refused.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import odeco
from odeco.online import RowSum, SampleMoment
from odeco.tensors import DenseTensor, PackedTensor, SparseTensor

TENSOR = odeco.Components([3.0, 2.0], np.eye(8)[:, :2]).to_dense() + 0.01 * odeco.symmetrize(
    np.random.default_rng(0).normal(size=(8, 8, 8))
)
ASYMMETRIC = np.einsum(
    "i,j,k->ijk", np.arange(3.0), np.ones(4), np.arange(5.0)
) + 0.01 * np.random.default_rng(0).normal(size=(3, 4, 5))
ROWS = np.random.default_rng(1).gamma(1.0, size=(2000, 5)) - 1
SCALES = (-300, -201, -100, -13, -1, 1, 14, 100, 201, 300)


def assert_scaled(result, expected, exponent):
    """Compare two decompositions of tensors, one 2^exponent times the other, to the last bit."""
    for name in ("weights", "residuals"):
        np.testing.assert_array_equal(
            np.ldexp(getattr(result, name), -exponent), getattr(expected, name)
        )
    np.testing.assert_array_equal(result.converged, expected.converged)


def from_coordinates(entries):
    places = np.argwhere(np.ones(entries.shape, bool))
    return SparseTensor(places, entries[tuple(places.T)], entries.shape[0])


@pytest.mark.parametrize(
    "hold", [np.asarray, DenseTensor, PackedTensor.from_dense, from_coordinates]
)
@pytest.mark.parametrize("exponent", [*SCALES, -900, 900])
def test_a_tensor_decomposes_alike_at_every_scale(hold, exponent):
    expected = odeco.decompose(hold(TENSOR), 2, tol=1e-6, rng=0)
    result = odeco.decompose(hold(np.ldexp(TENSOR, exponent)), 2, tol=1e-6, rng=0)
    assert_scaled(result, expected, exponent)
    np.testing.assert_array_equal(result.vectors, expected.vectors)
    assert result.explained == expected.explained
    assert result.histories == expected.histories


@pytest.mark.parametrize("exponent", [-100, -60, 60, 110])
def test_a_tensor_in_single_precision_decomposes_alike_at_every_scale(exponent):
    expected = odeco.decompose(TENSOR.astype(np.float32), 2, tol=1e-3, rng=0)
    result = odeco.decompose(np.ldexp(TENSOR.astype(np.float32), exponent), 2, tol=1e-3, rng=0)
    assert_scaled(result, expected, exponent)
    np.testing.assert_array_equal(result.vectors, expected.vectors)


@pytest.mark.parametrize("exponent", SCALES)
def test_asymmetric_whitened_automatic_and_implicit_tensors_do_too(exponent):
    expected = odeco.decompose_asymmetric(ASYMMETRIC, 1, tol=1e-6, rng=0)
    result = odeco.decompose_asymmetric(np.ldexp(ASYMMETRIC, exponent), 1, tol=1e-6, rng=0)
    assert_scaled(result, expected, exponent)
    whitened = odeco.decompose(TENSOR, 2, whiten="tensor", tol=1e-6, rng=0)
    again = odeco.decompose(np.ldexp(TENSOR, exponent), 2, whiten="tensor", tol=1e-6, rng=0)
    np.testing.assert_array_equal(np.ldexp(again.weights, -exponent), whitened.weights)
    automatic = odeco.decompose(TENSOR, "auto", tol=1e-6, rng=0)
    again = odeco.decompose(np.ldexp(TENSOR, exponent), "auto", tol=1e-6, rng=0)
    assert_scaled(again, automatic, exponent)
    np.testing.assert_array_equal(again.rank_evidence.chances, automatic.rank_evidence.chances)
    weights = np.array([2.0, 1.0])
    expected, implicit = (
        odeco.decompose(odeco.Components(np.ldexp(weights, each), np.eye(5)[:, :2]), 2, rng=0)
        for each in (0, exponent)
    )
    np.testing.assert_allclose(expected.weights, weights, rtol=1e-14)
    np.testing.assert_array_equal(np.ldexp(implicit.weights, -exponent), expected.weights)
    assert implicit.explained == expected.explained


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "exponent"),
    [
        *((np.float64, exponent) for exponent in SCALES),
        *((np.float32, e) for e in (-100, -66, -53, -20, 20, 60, 110)),
    ],
)
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("method", ["core", "power"])
def test_rows_decompose_alike_at_every_scale(dtype, exponent, kind, method):
    power = {"batch_size": 100, "n_restarts": 3, "n_iterations": 3} if method == "power" else {}
    settings = {"method": method, "rng": 0, **power}
    expected = odeco.decompose_stream(kind(ROWS.astype(dtype)), 2, **settings)
    result = odeco.decompose_stream(kind(np.ldexp(ROWS.astype(dtype), exponent)), 2, **settings)
    np.testing.assert_array_equal(np.ldexp(result.weights, -3 * exponent), expected.weights)
    np.testing.assert_array_equal(result.vectors, expected.vectors)
    if expected.angle_errors is not None:
        np.testing.assert_array_equal(result.angle_errors, expected.angle_errors)
        np.testing.assert_array_equal(
            np.ldexp(result.weight_errors, -3 * exponent), expected.weight_errors
        )


@pytest.mark.parametrize("exponent", [-300, 300])
def test_a_pushed_run_keeps_its_unit_in_its_checkpoint_and_in_what_an_error_has_found(
    exponent, tmp_path
):
    def push(rows, path=None):
        online = odeco.OnlineDecomposer(2, method="core", rng=0).partial_fit(rows[:1111])
        if path is not None:
            online.save(path)
            online = odeco.OnlineDecomposer.load(path)
        return online.partial_fit(rows[1111:]).result()

    expected, result = push(ROWS), push(np.ldexp(ROWS, exponent), tmp_path / "run.ckpt")
    np.testing.assert_array_equal(np.ldexp(result.weights, -3 * exponent), expected.weights)
    np.testing.assert_array_equal(result.angle_errors, expected.angle_errors)
    settings = {"method": "power", "batch_size": 100, "n_restarts": 3, "n_iterations": 15, "rng": 0}
    with pytest.raises(odeco.StreamEndedError) as at_one:
        odeco.decompose_stream(ROWS, 2, **settings)
    with pytest.raises(odeco.StreamEndedError) as at_scale:
        odeco.decompose_stream(np.ldexp(ROWS, exponent), 2, **settings)
    np.testing.assert_array_equal(
        np.ldexp(at_scale.value.found.weights, -3 * exponent), at_one.value.found.weights
    )


def test_rows_of_ordinary_size_after_a_chunk_of_tiny_ones_are_not_lost():
    tiny = np.ldexp(ROWS.astype(np.float32), -60)
    total = RowSum("image", np.eye(5), 3)
    total.update(np.tile(tiny, (5, 1)))  # more than a chunk
    total.update(ROWS.astype(np.float32))
    # In whatever order n terms are added up in single precision, the sum errs by n units of
    # roundoff at most.
    terms = np.einsum("ni,nj->ij", np.abs(ROWS), ROWS**2)
    assert np.all(
        np.abs(total.total() - np.einsum("ni,nj->ij", ROWS, ROWS**2)) <= 4000 * 2.0**-24 * terms
    )


@pytest.mark.parametrize("exponent", [-340, 345])
def test_rows_whose_moment_no_number_can_hold_are_refused_by_name(exponent):
    with pytest.raises(
        odeco.errors.BadRowError, match=r"^Rows must be (large|small) enough for their powers"
    ):
        odeco.OnlineDecomposer(2, method="core", rng=0).partial_fit(np.ldexp(ROWS, exponent))


def test_answers_and_norms_that_no_number_can_hold_are_refused_by_name():
    large, small = DenseTensor(np.full((4, 4, 4), 1e308)), DenseTensor(TENSOR * 1e-200)
    with pytest.raises(
        ValueError, match=r"^The entries of an image must be numbers that double precision can hold"
    ):
        large.image(np.ones((4, 1)))
    with pytest.raises(
        ValueError,
        match=r"^The squares of the entries must be numbers that double precision can hold",
    ):
        small.squared_norm()


def test_a_moment_of_tiny_rows_in_memory_is_answered_in_full():
    question = np.eye(5)[:, :2]
    expected = SampleMoment(ROWS.astype(np.float32)).image(question)
    answer = SampleMoment(np.ldexp(ROWS.astype(np.float32), -53)).image(question)
    np.testing.assert_array_equal(np.ldexp(answer, 3 * 53), expected)
