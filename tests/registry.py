"""Every oracle of the library, small enough to be compared with its entries. Add one here and all
laws are tested.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import sparse

from odeco import Components, Oracle, symmetrize
from odeco.cp import Whitened, Whitener
from odeco.datasets import AdversarialNoise, WeaklyCorrelatedNoise, gaussian_noise
from odeco.online import SampleMoment
from odeco.privacy import EntryLevel, RecordLevel
from odeco.tensors import (
    AsymmetricTensor,
    DenseTensor,
    DeviceMoment,
    DeviceTensor,
    FactoredTensor,
    FlattenedTensor,
    PackedTensor,
    SparseAsymmetricTensor,
    SparseTensor,
)
from reproduction.baselines import TensorSketch


def random_symmetric(dimension: int, order: int, generator: np.random.Generator) -> np.ndarray:
    return symmetrize(generator.standard_normal((dimension,) * order))


def sparse_entries(
    dimension: int, order: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    indices = np.unique(
        np.sort(generator.integers(dimension, size=(3 * dimension, order)), axis=1), axis=0
    )
    return indices, generator.standard_normal(len(indices))


def _components(generator, dimension, order):
    return Components(
        generator.standard_normal(3), generator.standard_normal((dimension, 3)), order
    )


def _dense(generator, dimension, order):
    return DenseTensor(random_symmetric(dimension, order, generator))


def _dense_fortran(generator, dimension, order):
    return DenseTensor(np.asfortranarray(random_symmetric(dimension, order, generator)))


def _dense_single(generator, dimension, order):
    return DenseTensor(random_symmetric(dimension, order, generator).astype(np.float32))


def _device(generator, dimension, order):
    return DeviceTensor(
        pytest.importorskip("array_api_strict").asarray(
            random_symmetric(dimension, order, generator)
        )
    )


def _device_single(generator, dimension, order):
    entries = random_symmetric(dimension, order, generator).astype(np.float32)
    return DeviceTensor(pytest.importorskip("torch").asarray(entries))


def _device_rows(generator, dimension, order):
    rows = generator.standard_normal((11, dimension))
    return DeviceMoment(pytest.importorskip("array_api_strict").asarray(rows), order)


def _packed(generator, dimension, order):
    return PackedTensor.from_dense(random_symmetric(dimension, order, generator))


def _flattened(generator, dimension, order):
    return FlattenedTensor(
        DenseTensor(random_symmetric(dimension, order, generator)).flattening(), dimension, order
    )


def _factored(generator, dimension, order):
    # The flattening of an even order, whatever order is asked for.
    flattening = DenseTensor(random_symmetric(dimension, 4, generator)).flattening()
    return FactoredTensor(*np.linalg.eigh(flattening)[::-1], dimension, 4)


def _sparse(generator, dimension, order):
    return SparseTensor(*sparse_entries(dimension, order, generator), dimension)


def _asymmetric(generator, dimension, order):
    sizes = generator.integers(1, dimension + 1, size=order)
    return AsymmetricTensor(generator.standard_normal(sizes))


def _sparse_asymmetric(generator, dimension, order):
    sizes = generator.integers(1, dimension + 1, size=order)
    indices = generator.integers(sizes, size=(3 * dimension, order))
    return SparseAsymmetricTensor(indices, generator.standard_normal(len(indices)), sizes)


def _samples(generator, dimension, order):
    return SampleMoment(generator.standard_normal((11, dimension)), order)


def _samples_csr(generator, dimension, order):
    rows = generator.standard_normal((11, dimension)) * (generator.random((11, dimension)) < 0.5)
    return SampleMoment(sparse.csr_array(rows), order)


def _private_records(generator, dimension, order):
    return RecordLevel(generator.standard_normal((11, dimension)), norm_bound=1.5, order=order)


def _private_users(generator, dimension, order):
    rows = generator.standard_normal((11, dimension)) * (generator.random((11, dimension)) < 0.5)
    groups = generator.integers(4, size=11)
    return RecordLevel(sparse.csr_array(rows), norm_bound=1.5, order=order, groups=groups)


def _private_entries(generator, dimension, order):
    # The order is 3 whatever order is asked for. The limit cuts some entries; what is left is
    # symmetric.
    return EntryLevel(generator.standard_normal((dimension,) * 3), entry_limit=1.5)


def _whitened(generator, dimension, order):
    forward = generator.standard_normal((dimension, min(2, dimension)))
    return Whitened(_dense(generator, dimension, order), Whitener(forward, forward))


def _sum(generator, dimension, order):
    return _dense(generator, dimension, order) + _components(generator, dimension, order)


def _scaled(generator, dimension, order):
    return -2.5 * _dense(generator, dimension, order)


def _difference(generator, dimension, order):
    return _sparse(generator, dimension, order) - _components(generator, dimension, order)


def _gaussian_noise(generator, dimension, order):
    return gaussian_noise(dimension, order=order, rng=generator)


def _adversarial(generator, dimension, order):
    return AdversarialNoise(generator.standard_normal(dimension))


def _weakly_correlated(generator, dimension, order):
    return WeaklyCorrelatedNoise(dimension + 1, 1)


def _sketch(generator, dimension, order):
    entries = random_symmetric(dimension, order, generator)
    return TensorSketch.of_entries(entries, length=50, n_sketches=3, combine="mean", rng=generator)


ORACLES: dict[str, Callable[[np.random.Generator, int, int], Oracle]] = {
    "components": _components,
    "dense": _dense,
    "dense, Fortran order": _dense_fortran,
    "dense, single precision": _dense_single,
    "another library": _device,
    "another library, single precision": _device_single,
    "rows of another library": _device_rows,
    "packed": _packed,
    "flattened": _flattened,
    "flattened, by its eigenvectors": _factored,
    "sparse": _sparse,
    "asymmetric": _asymmetric,
    "asymmetric, sparse": _sparse_asymmetric,
    "samples": _samples,
    "samples, CSR": _samples_csr,
    "private records": _private_records,
    "private records of users, CSR": _private_users,
    "private entries": _private_entries,
    "whitened": _whitened,
    "sum": _sum,
    "scaled": _scaled,
    "difference": _difference,
    "Gaussian noise": _gaussian_noise,
    "adversarial noise": _adversarial,
    "weakly correlated noise": _weakly_correlated,
    "sketch": _sketch,
}
