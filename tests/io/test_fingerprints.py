"""A fingerprint changes when the data change, and only then."""

from __future__ import annotations

import os

import numpy as np
import pytest
import scipy.sparse as sp
from kinds import (
    dense_rows,
    save_csv,
    save_feather,
    save_npy,
    save_npz,
    save_parquet,
    save_parts,
    sparse_rows,
)

from odeco.io import as_source


def test_a_fingerprint_names_kind_shape_type_and_file(tmp_path):
    path = save_npy(tmp_path, dense_rows())
    os.utime(path, ns=(0, 123))
    assert as_source(path).fingerprint() == "npy:23x5:float64:rows.npy:1048:123"


@pytest.mark.parametrize("save", [save_npy, save_npz, save_csv, save_parquet, save_feather])
def test_a_fingerprint_changes_with_the_file(tmp_path, save):
    path = save(tmp_path, sparse_rows())
    before = as_source(path).fingerprint()
    assert as_source(path).fingerprint() == before
    save(tmp_path, -2 * sparse_rows())
    os.utime(path, ns=(0, 123))
    assert as_source(path).fingerprint() != before


def test_a_directory_s_fingerprint_changes_with_any_file_of_it(tmp_path):
    folder = save_parts(tmp_path, dense_rows(), save_npy, ".npy")
    source = as_source(folder)
    before = source.fingerprint()
    assert before.startswith("files:23x5:3:")
    os.utime(folder / "part-10.npy", ns=(0, 123))
    assert source.fingerprint() != before


def test_the_fingerprint_of_rows_in_memory_changes_with_shape_type_and_outer_rows():
    rows = sparse_rows()
    other = rows.copy()
    other[-1] = 3
    held = [rows, rows[:-1], rows.astype("f4"), other, rows[::-1]]
    for convert in (np.asarray, sp.csr_array):
        assert len({as_source(convert(data)).fingerprint() for data in held}) == len(held)
