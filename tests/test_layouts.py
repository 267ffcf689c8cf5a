"""The same bits however rows arrive, and no entry that a mask hides is ever read."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from threadpoolctl import threadpool_limits

import odeco
from odeco.cp import Whitener
from odeco.errors import SourceError
from odeco.io import as_source
from odeco.online import SampleMoment, StreamMoment
from odeco.online import tree as _chunks
from odeco.tensors import AsymmetricTensor, DenseTensor, PackedTensor, SparseTensor

N_ROWS, WIDTH = 230, 5
VALUES = np.random.default_rng(0).gamma(1.0, size=(N_ROWS, WIDTH)) - 1
METHODS = {
    "core": {},
    "power": {"batch_size": 30, "n_restarts": 1, "n_iterations": 3},  # questions of one column
}


def strided(rows):
    wide = np.zeros((2 * rows.shape[0], 3 * rows.shape[1]), rows.dtype)
    wide[::2, ::3] = rows
    return wide[::2, ::3]


def unaligned(rows):
    raw = np.zeros(rows.nbytes + 1, np.uint8)
    held = raw[1:].view(rows.dtype).reshape(rows.shape)
    held[:] = rows
    return held


DENSE_LAYOUTS = {
    "C": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "strided": strided,
    "backwards": lambda rows: np.ascontiguousarray(rows[::-1, ::-1])[::-1, ::-1],
    "transposed": lambda rows: np.ascontiguousarray(rows.T).T,
    "unaligned": unaligned,
    "read-only": lambda rows: np.frombuffer(rows.tobytes(), rows.dtype).reshape(rows.shape),
}
CSR_LAYOUTS = {
    "32-bit indices": sparse.csr_array,
    "64-bit indices": lambda rows: _with_indices(sparse.csr_array(rows), np.int64),
    "matrix": sparse.csr_matrix,
    "spare room": lambda rows: _with_room(sparse.csr_array(rows)),
}


def _with_indices(rows, dtype):
    rows.indices, rows.indptr = rows.indices.astype(dtype), rows.indptr.astype(dtype)
    return rows


def _with_room(rows):
    rows.data = np.append(rows.data, rows.dtype.type(np.nan))
    rows.indices = np.append(rows.indices, 10**6).astype(np.int32)
    return rows


def learn(rows, layouts, cuts, method, threads):
    """Push rows in pieces, each in a layout of its own, and return what was learnt."""
    online = odeco.OnlineDecomposer(2, method=method, rng=0, **METHODS[method])
    with threadpool_limits(limits=threads):
        for number, (start, stop) in enumerate(zip([0, *cuts], [*cuts, N_ROWS], strict=True)):
            if stop > start:
                online.partial_fit(layouts[number % len(layouts)](rows[start:stop]))
    return online.result()


def small_chunks():
    patch = pytest.MonkeyPatch()
    patch.setattr(_chunks, "_DENSE_SIZE", 10)
    patch.setattr(_chunks, "_ENOUGH_ROWS", 16)
    patch.setattr(_chunks, "_SPARSE_ROWS", 16)
    return patch


@pytest.mark.slow
@settings(max_examples=60)
@given(
    dtype=st.sampled_from([np.float32, np.float64]),
    method=st.sampled_from(list(METHODS)),
    kind=st.sampled_from(["dense", "CSR"]),
    names=st.data(),
    cuts=st.lists(st.integers(0, N_ROWS), max_size=6).map(sorted),
    threads=st.sampled_from([1, 2]),
)
def test_layout_pieces_and_threads_change_no_bit(dtype, method, kind, names, cuts, threads):
    layouts = DENSE_LAYOUTS if kind == "dense" else CSR_LAYOUTS
    chosen = names.draw(st.lists(st.sampled_from(list(layouts)), min_size=1, max_size=3))
    rows, plain = VALUES.astype(dtype), next(iter(layouts.values()))
    patch = small_chunks()
    try:
        expected = learn(rows, [plain], [], method, 1)
        result = learn(rows, [layouts[name] for name in chosen], cuts, method, threads)
    finally:
        patch.undo()
    np.testing.assert_array_equal(result.weights, expected.weights)
    np.testing.assert_array_equal(result.vectors, expected.vectors)
    if expected.angle_errors is not None:
        np.testing.assert_array_equal(result.angle_errors, expected.angle_errors)


# ---- masks ---------------------------------------------------------------------------------------

MASKED_ROWS = np.ma.masked_less(VALUES, -0.9)
MASKED_TENSOR = np.ma.masked_equal(np.ones((3, 3, 3)), 2.0)
PRIVATE = {"epsilon": 1.0, "delta": 1e-6, "norm_bound": 1.0}


@pytest.mark.parametrize(
    "use",
    [
        lambda: odeco.decompose(MASKED_TENSOR, 1),
        lambda: odeco.decompose_asymmetric(MASKED_TENSOR, 1),
        lambda: odeco.symmetrize(MASKED_TENSOR),
        lambda: odeco.operator_norm(MASKED_TENSOR),
        lambda: DenseTensor(MASKED_TENSOR),
        lambda: AsymmetricTensor(MASKED_TENSOR),
        lambda: PackedTensor.from_dense(MASKED_TENSOR),
        lambda: PackedTensor(MASKED_TENSOR.ravel()[:10], 3),
        lambda: SparseTensor([[0, 1, 2]], np.ma.array([1.0], mask=[True]), 3),
        lambda: SparseTensor(np.ma.array([[0, 1, 2]], mask=True), [1.0], 3),
        lambda: odeco.OnlineDecomposer(2, rng=0).partial_fit(MASKED_ROWS),
        lambda: odeco.OnlineDecomposer(2, batch_size=40, rng=0, **PRIVATE).partial_fit(MASKED_ROWS),
        lambda: odeco.decompose_privately(MASKED_ROWS, 2, unit="record", **PRIVATE),
        lambda: odeco.decompose_stream(MASKED_ROWS, 2),
        lambda: odeco.decompose_stream(iter([VALUES, MASKED_ROWS]), 2),
        lambda: SampleMoment(MASKED_ROWS),
        lambda: StreamMoment(iter([MASKED_ROWS]), WIDTH, batch_size=40).image(np.eye(WIDTH)),
        lambda: list(as_source([MASKED_ROWS])),
        lambda: odeco.Components(np.ma.array([1.0], mask=True), np.eye(3)[:, :1]),
        lambda: odeco.Components([1.0], np.ma.array(np.eye(3)[:, :1], mask=False)),
        lambda: odeco.Components([1.0], np.eye(3)[:, :1]).image(np.ma.array(np.eye(3), mask=True)),
        lambda: Whitener.from_moment(np.ma.array(np.eye(3), mask=True), 2),
    ],
)
def test_a_masked_array_is_refused_wherever_it_comes_in(use):
    with pytest.raises((TypeError, SourceError), match=r"must not be masked\. Got a MaskedArray"):
        use()
