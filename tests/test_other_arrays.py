"""Arrays of other libraries: products are made by them, and results are those of NumPy to
rounding.
"""

from __future__ import annotations

import numpy as np
import pytest

import odeco
from odeco._util.arguments import as_numpy, is_foreign
from odeco.datasets import planted_independent
from odeco.online import SampleMoment
from odeco.tensors import AsymmetricTensor, DenseTensor, DeviceMoment, DeviceTensor, PackedTensor
from odeco.tensors import device as module

#: The libraries, and the types of their arrays that are tested. JAX has no double precision unless
#: it is set to.
KINDS = [("array_api_strict", "float64"), ("array_api_strict", "float32"), ("torch", "float64"), ("torch", "float32"),
         ("jax.numpy", "float32")]  # fmt: skip


@pytest.fixture(params=KINDS, ids=" ".join)
def make(request):
    """A function that makes an array of another library of a NumPy array, and the rounding error of
    its type.
    """
    name, dtype = request.param
    library = pytest.importorskip(name)
    if name == "torch":
        library.set_num_threads(1)  # its threads would wait for each other on small products
    return lambda array: library.asarray(np.array(array, dtype=dtype)), float(np.finfo(dtype).eps)


def noisy(dimension=12, order=3, seed=0):
    generator = np.random.default_rng(seed)
    truth = planted_independent(dimension, 4, order=order, rng=generator)
    noise = odeco.symmetrize(generator.standard_normal((dimension,) * order))
    return truth.to_dense() + 1e-3 * noise


@pytest.mark.parametrize("order", [3, 4, 5])
def test_every_product_is_that_of_a_dense_tensor(make, order, monkeypatch):
    make, eps = make
    entries = noisy(6, order)
    block, basis = np.random.default_rng(1).standard_normal((2, 6, 4))
    expected = DenseTensor(entries)
    for at_once in (2**24, 100):  # in one piece, and index by index
        monkeypatch.setattr(module, "_AT_ONCE", at_once)
        tensor = odeco.tensors.as_oracle(make(entries))
        assert isinstance(tensor, DeviceTensor)
        assert tensor.rounding == eps
        for found, true in [
            (tensor.image(block), expected.image(block)),
            (tensor.value(block), expected.value(block)),
            (tensor.slice(block[:, 0]), expected.slice(block[:, 0])),
            (tensor.inside(basis), expected.inside(basis)),
            (tensor.squared_norm(), expected.squared_norm()),
        ]:
            np.testing.assert_allclose(found, true, rtol=0, atol=100 * eps * np.abs(true).max())
        gram = tensor.unfolding_gram()
        if gram is not None:
            np.testing.assert_allclose(
                gram, expected.unfolding_gram(), atol=100 * eps * np.trace(gram)
            )
        odeco.check_oracle(tensor)


@pytest.mark.parametrize("order", [3, 4])
@pytest.mark.parametrize("settings", [{}, {"method": "power"}, {"whiten": "tensor"}], ids=str)
def test_a_decomposition_is_that_of_numpy_to_rounding(make, order, settings):
    make, eps = make
    entries = noisy(order=order)
    expected = odeco.decompose(entries, 4, rng=0, **settings)
    if settings == {"method": "power"}:  # which needs orthogonal components
        entries = odeco.Components([4.0, 3.0, 2.0], np.eye(12)[:, :3], order).to_dense()
        expected = odeco.decompose(entries, 3, rng=0, **settings)
    result = odeco.decompose(make(entries), len(expected.weights), rng=0, **settings)
    # Rounding of the entries moves components by a small multiple of it, however they are reached.
    assert odeco.match(result, expected).angles.max() < 1e4 * eps + 1e-7
    np.testing.assert_allclose(result.weights, expected.weights, rtol=1e3 * eps)


def test_their_number_is_selected(make):
    result = odeco.decompose(make[0](noisy()), "auto", rng=0)
    assert result.rank_evidence.rank == 4


def test_more_components_than_dimensions_are_found(make):
    make, eps = make
    more = odeco.Components(np.ones(8), np.random.default_rng(0).standard_normal((6, 8)), 4)
    result = odeco.decompose(make(more.to_dense()), 8, rng=0)
    # Rounding errors are multiplied by the condition of the flattening, a hundred or so.
    assert odeco.match(result, more).angles.max() < 1e4 * eps + 1e-7


@pytest.mark.parametrize("exponent", [-120, 110])
def test_entries_of_any_size_are_computed_with(make, exponent):
    make, eps = make
    entries = odeco.Components([4.0, 3.0], np.eye(5)[:, :2]).to_dense()
    result = odeco.decompose(make(np.ldexp(entries, exponent)), 2, rng=0)
    np.testing.assert_allclose(np.ldexp(result.weights, -exponent), [4, 3], rtol=100 * eps)


def test_what_is_not_a_symmetric_tensor_is_refused_as_numpy_arrays_are(make):
    make, _ = make
    for broken, message in [
        (np.ones((2, 3, 3)), "equal sizes"),
        (np.ones((2, 2)), "order 3 or more"),
        (np.zeros((2, 2, 2)), "non-zero entry"),
        (np.ones((0, 0, 0)), "must not be empty"),
        (np.arange(8.0).reshape(2, 2, 2), r"T\[0, 1, 0\] = 2 but T\[1, 0, 0\] = 4"),
        (
            np.where(np.arange(8).reshape(2, 2, 2) == 3, np.nan, 1.0),
            r"must be finite. Got T\[0, 1, 1\] = nan",
        ),
        (
            np.where(np.arange(8).reshape(2, 2, 2) == 7, np.inf, 1.0),
            r"must be finite. Got T\[1, 1, 1\] = inf",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            odeco.decompose(make(broken), 1)


def test_types():
    torch = pytest.importorskip("torch")
    cube = np.ones((2, 2, 2))
    assert odeco.decompose(
        torch.ones((2, 2, 2), dtype=torch.int32), 1, rng=0
    ).weights == pytest.approx([8**0.5])
    with_gradient = torch.asarray(cube).requires_grad_()
    assert odeco.decompose(with_gradient, 1, rng=0).weights == pytest.approx([8**0.5])
    for wrong in (torch.complex64, torch.float16):
        with pytest.raises(TypeError, match="float32, float64 or integers"):
            odeco.decompose(torch.ones((2, 2, 2), dtype=wrong), 1)


def test_a_nan_in_a_later_slab_is_found(monkeypatch):
    strict = pytest.importorskip("array_api_strict")
    monkeypatch.setattr(module, "_AT_ONCE", 4)
    entries = np.ones((3, 3, 3))
    entries[2, 2, 2] = np.nan
    with pytest.raises(ValueError, match=r"T\[2, 2, 2\] = nan"):
        DeviceTensor(strict.asarray(entries))


def test_other_oracles_copy_the_array(make):
    make, eps = make
    entries, block = noisy(6), np.random.default_rng(0).standard_normal((6, 2))
    for oracle in (PackedTensor.from_dense, DenseTensor):
        np.testing.assert_allclose(
            oracle(make(entries)).image(block), DenseTensor(entries).image(block), rtol=1e3 * eps
        )
    assert AsymmetricTensor(make(entries)).parts == (6, 6, 6)


@pytest.mark.slow
@pytest.mark.parametrize("order", [3, 4])
def test_a_moment_of_rows_is_summed_on_their_device(make, order, monkeypatch):
    make, eps = make
    generator = np.random.default_rng(0)
    rows = (generator.exponential(size=(5000, 3)) - 1) @ generator.standard_normal((3, 7))
    rows = rows.astype(np.float32)
    expected, (block, basis) = (
        SampleMoment(rows.astype(np.float64), order),
        generator.standard_normal((2, 7, 3)),
    )
    for at_once in (2**24, 100):
        monkeypatch.setattr(module, "_AT_ONCE", at_once)
        moment = DeviceMoment(make(rows[: 5000 if at_once > 100 else 200]), order)
        known = expected if at_once > 100 else SampleMoment(rows[:200].astype(np.float64), order)
        for found, true in [
            (moment.image(block), known.image(block)),
            (moment.value(block), known.value(block)),
            (moment.slice(block[:, 0]), known.slice(block[:, 0])),
            (moment.inside(basis), known.inside(basis)),
        ]:
            # Each of at most 5,000 terms of a sum is rounded a few times.
            np.testing.assert_allclose(found, true, rtol=0, atol=1000 * eps * np.abs(true).max())
    monkeypatch.undo()
    found, true = (
        odeco.decompose(each, 3, rng=0) for each in (DeviceMoment(make(rows), order), expected)
    )
    # The rounding of rows, and the condition of three components that are not orthogonal.
    assert odeco.match(found, true).angles.max() < 1e5 * eps + 1e-7


def test_rows_on_a_device_are_checked(make):
    make, eps = make
    for broken, message in [
        (np.ones(3), "shape"),
        (np.ones((0, 3)), "shape"),
        (np.array([[1.0, np.nan]]), "finite"),
    ]:
        with pytest.raises(ValueError, match=message):
            DeviceMoment(make(broken))
    largest = 1e30 if eps > 1e-10 else 1e200
    with pytest.raises(ValueError, match="multiply all of them by a constant"):
        DeviceMoment(make([[1.0, largest]]))


@pytest.mark.parametrize("name", ["torch", "jax.numpy"])
def test_rows_are_copied_block_by_block(name):
    make, eps = pytest.importorskip(name).asarray, float(np.finfo(np.float32).eps)
    block = np.random.default_rng(0).standard_normal((6, 2))
    rows = np.random.default_rng(0).gamma(1.0, size=(50, 6)).astype(np.float32)
    expected = SampleMoment(rows).image(block)
    np.testing.assert_allclose(SampleMoment(make(rows)).image(block), expected, rtol=1e3 * eps)
    result = odeco.decompose_stream(make(rows), 2, rng=0)
    np.testing.assert_array_equal(result.weights, odeco.decompose_stream(rows, 2, rng=0).weights)


def test_what_is_foreign():
    assert not any(
        is_foreign(each) for each in (np.ones(2), np.float64(1), [1.0], 1.0, None, memoryview(b"a"))
    )
    np.testing.assert_array_equal(as_numpy([1.0, 2.0]), [1.0, 2.0])

    class OfGpu:  # as CuPy has it: no implicit conversion
        __module__ = "cupy"

        def __array__(self, *_):
            raise TypeError("Implicit conversion to a NumPy array is not allowed")

        def get(self):
            return np.ones(3)

    np.testing.assert_array_equal(as_numpy(OfGpu()), np.ones(3))
