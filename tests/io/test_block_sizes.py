"""The number types and the sizes of the blocks that sources yield."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from kinds import N_ROWS, Sliceable, as_table, dense_rows, read, save_npy, save_npz, sparse_rows

from odeco.io import as_source, skip_rows


@pytest.mark.parametrize(
    ("given_type", "read_type"),
    [
        ("f2", "f4"),
        ("f4", "f4"),
        ("f8", "f8"),
        (">f4", "f4"),
        ("i1", "f8"),
        ("u8", "f8"),
        ("?", "f8"),
    ],
)
def test_number_types_become_float32_or_float64(tmp_path, given_type, read_type):
    rows = np.arange(6).reshape(3, 2).astype(given_type)
    for source in (as_source(rows), as_source(save_npy(tmp_path, rows)), as_source([rows])):
        assert {block.dtype for block in source} == {np.dtype(read_type)}
        np.testing.assert_array_equal(read(source), rows.astype(read_type))


@pytest.mark.parametrize("given_type", ["f4", "f8", "i4", "?"])
def test_sparse_number_types_become_float32_or_float64(tmp_path, given_type):
    rows = np.array([[0, 1], [2, 0]]).astype(given_type)
    for source in (as_source(sp.csr_array(rows)), as_source(save_npz(tmp_path, rows))):
        assert {block.dtype for block in source} == {np.dtype("f4" if given_type == "f4" else "f8")}
        np.testing.assert_array_equal(read(source), rows)


def test_arrow_columns_that_are_all_single_precision_stay_so():
    pytest.importorskip("pyarrow")
    assert next(iter(as_source(as_table(dense_rows().astype("f4"))))).dtype == np.float32
    mixed = as_table(dense_rows().astype("f4")).append_column("count", [list(range(N_ROWS))])
    assert next(iter(as_source(mixed))).dtype == np.float64


@pytest.mark.parametrize(
    ("shape", "n_rows"), [((3000, 1000), 524), ((2, 600_000), 1), ((3000, 1), 3000)]
)
def test_a_dense_block_has_about_four_megabytes_and_at_least_a_row(tmp_path, shape, n_rows):
    rows = np.zeros(shape)
    for data in (rows, save_npy(tmp_path, rows), [rows], Sliceable(np.broadcast_to(0.0, shape))):
        assert next(iter(as_source(data))).shape[0] == n_rows


def test_a_sparse_block_has_about_a_million_numbers(tmp_path):
    n_rows, per_row = 3000, 1000
    pointers = np.arange(0, n_rows * per_row + 1, per_row)
    matrix = sp.csr_array(
        (np.ones(pointers[-1]), np.tile(np.arange(per_row), n_rows), pointers), (n_rows, per_row)
    )
    sp.save_npz(tmp_path / "rows.npz", matrix, compressed=False)
    for data in (matrix, tmp_path / "rows.npz"):
        assert [block.shape[0] for block in as_source(data)] == [1048, 1048, 904]


def test_blocks_of_arrays_are_views():
    rows, matrix = dense_rows(), sp.csr_array(sparse_rows())
    assert np.shares_memory(next(iter(as_source(rows, batch_rows=4))), rows)
    assert np.shares_memory(next(iter(as_source(matrix, batch_rows=4))).data, matrix.data)


def test_a_chunk_of_a_file_is_read_once():
    data = Sliceable(np.zeros((20, 2)), chunks=(8, 2))
    blocks = list(as_source(data, batch_rows=3))
    assert data.asked == [(0, 8), (8, 16), (16, 20)]
    assert [len(block) for block in blocks] == [3, 3, 2, 3, 3, 2, 3, 1]


def test_seeking_reads_nothing_before_the_row():
    data = Sliceable(np.zeros((20, 2)), chunks=(8, 2))
    list(skip_rows(data, 17))
    assert data.asked == [(17, 20)]
