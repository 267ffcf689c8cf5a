"""A row that cannot be used is named, and the blocks before it are read."""

from __future__ import annotations

import pickle
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from kinds import (
    N_ROWS,
    OwnSource,
    Sliceable,
    as_table,
    cut,
    dense_rows,
    read,
    read_until_error,
    save_csv,
    save_feather,
    save_npy,
    save_npz,
    save_parquet,
    save_parts,
)

from odeco.errors import SourceError
from odeco.io import as_source, skip_rows

AGAIN = "Nothing of its block was used; fix or drop the row (the first is row 0) and read again."


@pytest.mark.parametrize(
    ("bad", "what"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")]
)
@pytest.mark.parametrize(
    "save", [save_npy, save_npz, save_csv, save_parquet, partial(save_feather, chunksize=50)]
)
def test_a_row_that_is_not_finite_is_named_and_the_blocks_before_it_are_read(
    tmp_path, save, bad, what
):
    rows = np.ones((1300, 3))
    rows[1204, 1] = rows[1250, 0] = bad
    path = save(tmp_path, rows)
    n_rows, error = read_until_error(as_source(path, batch_rows=100))
    column = "'x1'" if path.suffix in (".parquet", ".feather") else 1
    assert str(error) == f"Row 1,204 of {path.name} holds {what} in column {column}. {AGAIN}"
    assert (n_rows, error.path, error.row) == (1200, path, 1204)


@pytest.mark.parametrize(
    ("convert", "name"),
    [
        (np.asarray, "the array"),
        (sp.csr_array, "the CSR matrix"),
        (cut, "the stream"),
        (lambda rows: [sp.csr_array(block) for block in cut(rows)], "the stream"),
        (lambda rows: iter(cut(rows)), "the stream"),
        (Sliceable, "the Sliceable"),
        (lambda rows: OwnSource(cut(rows)), "the OwnSource"),
    ],
)
def test_a_row_in_memory_that_is_not_finite_is_named(convert, name):
    rows = dense_rows()
    rows[14, 2] = np.nan
    n_rows, error = read_until_error(as_source(convert(rows), batch_rows=4))
    assert str(error) == f"Row 14 of {name} holds NaN in column 2. {AGAIN}"
    assert (n_rows, error.path, error.row) == (12, None, 14)


def test_rows_are_counted_from_the_start_even_when_some_are_skipped(tmp_path):
    rows = dense_rows()
    rows[14, 2] = np.inf
    for data in (rows, save_npy(tmp_path, rows), save_csv(tmp_path, rows), cut(rows)):
        _, error = read_until_error(skip_rows(data, 9))
        assert error.row == 14


def test_in_a_directory_the_row_is_that_of_the_file(tmp_path):
    rows = dense_rows()
    rows[14, 2] = np.nan
    folder = save_parts(tmp_path, rows, save_npy, ".npy")
    n_rows, error = read_until_error(as_source(folder, batch_rows=2))
    assert str(error) == f"Row 4 of part-10.npy holds NaN in column 2. {AGAIN}"
    assert (n_rows, error.path, error.row) == (14, folder / "part-10.npy", 4)


def test_finite_rows_whose_sum_overflows_are_no_error():
    rows = np.full((3, 4), 1e308)
    np.testing.assert_array_equal(read(as_source(rows)), rows)


def test_an_error_survives_pickling(tmp_path):
    _, error = read_until_error(as_source(save_npy(tmp_path, np.full((2, 2), np.nan))))
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.path, copy.row) == (str(error), error.path, error.row)


def test_a_null_is_named(tmp_path):
    table = as_table(dense_rows()).append_column("n", [[*range(15), None, *range(7)]])
    pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "a.parquet")
    n_rows, error = read_until_error(as_source(tmp_path / "a.parquet", batch_rows=5))
    assert str(error) == (
        "Row 15 of a.parquet holds no number in column 'n' (a null). Nothing of its block was "
        "used; fix or drop the row (the first is row 0) and read again."
    )
    assert (n_rows, error.path, error.row) == (15, tmp_path / "a.parquet", 15)


def test_a_block_of_another_width_is_named():
    n_rows, error = read_until_error(as_source([np.ones((1500, 3)), np.ones((2, 4))]))
    assert (
        str(error)
        == "All rows of the stream must have 3 columns. Row 1,500 has 4. Fix it and read again."
    )
    assert (n_rows, error.row) == (1500, 1500)


def test_a_demanded_width_that_a_source_does_not_have_is_an_error(tmp_path):
    path = save_npy(tmp_path, dense_rows())
    with pytest.raises(SourceError) as raised:
        as_source(path, n_features=1)
    assert (
        str(raised.value)
        == "All rows of rows.npy must have 1 column. Row 0 has 5. Fix it and read again."
    )


def test_a_block_of_the_other_kind_is_named():
    _, error = read_until_error(as_source([np.ones((3, 2)), sp.csr_array(np.ones((3, 2)))]))
    assert str(error) == (
        "The blocks of the stream must be all dense or all CSR. Row 3 begins a block of the other "
        "kind. Convert the blocks to one of the two."
    )


SINGLE = "Reshape it, x[None, :] for a single row x."
TENSOR = "If it is a tensor, call odeco.decompose instead; rows are reshaped with X.reshape(-1, d)."


@pytest.mark.parametrize(
    ("block", "shape"), [(np.ones(3), "(3,)"), (None, "()"), (np.ones((1, 2, 3)), "(1, 2, 3)")]
)
def test_a_block_that_is_not_two_dimensional_is_named(block, shape):
    _, error = read_until_error(as_source([np.ones((2, 3)), block]))
    assert str(error) == (
        "The block at row 2 of the stream must be two-dimensional, rows by columns. Got shape "
        f"{shape}. {TENSOR if np.ndim(block) > 2 else SINGLE}"
    )
    assert error.row == 2


def test_a_block_with_rows_of_different_lengths_is_refused():
    with pytest.raises(SourceError) as raised:
        as_source([[[1.0, 2.0], [3.0]]])
    assert str(raised.value) == (
        "The block at row 0 of the stream must hold real numbers: floats of at most 64 bits, "
        "integers or bools. It holds list. Convert it to float64."
    )


@pytest.mark.parametrize(
    "rows", [np.ones((2, 2), complex), np.ones((2, 2), object), np.full((2, 2), "1")]
)
def test_what_is_no_real_number_is_refused(tmp_path, rows):
    text = (
        "must hold real numbers: floats of at most 64 bits, integers or bools. It holds {}. "
        "Convert it to float64."
    )
    with pytest.raises(SourceError) as raised:
        as_source(rows)
    assert str(raised.value) == "The array " + text.format(rows.dtype)
    with pytest.raises(SourceError) as raised:
        list(as_source([rows]))
    assert str(raised.value) == "The stream " + text.format(rows.dtype)
    if rows.dtype != object:
        with pytest.raises(SourceError) as raised:
            as_source(save_npy(tmp_path, rows))
        assert str(raised.value) == "rows.npy " + text.format(rows.dtype)
        assert raised.value.path == tmp_path / "rows.npy"


def test_objects_in_a_file_are_not_unpickled(tmp_path):
    with pytest.raises(SourceError, match=r"^rows.npy cannot be opened: .*Python objects"):
        as_source(save_npy(tmp_path, np.ones((2, 2), object)))


def test_a_column_that_is_no_number_is_named(tmp_path):
    table = as_table(dense_rows()).append_column("label", [["a"] * N_ROWS])
    pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "a.parquet")
    for data, name in ((tmp_path / "a.parquet", "a.parquet"), (table, "the Table")):
        with pytest.raises(SourceError) as raised:
            as_source(data)
        assert str(raised.value) == (
            f"All columns of {name} must hold real numbers: floats of at most 64 bits, integers "
            "or bools, or lists of them. Column 'label' holds string. Convert it to float64, or "
            "leave it out."
        )


def test_a_mask_is_not_lost():
    with pytest.raises(SourceError) as raised:
        as_source(np.ma.masked_invalid([[1.0, np.nan]]))
    assert str(raised.value) == (
        "The array must not be masked. Got a MaskedArray, whose hidden entries would be read as "
        "numbers. Fill them with X.filled(value), or drop those rows."
    )


@pytest.mark.parametrize("shape", [(3,), (2, 3, 4), ()])
def test_an_array_must_have_two_axes(tmp_path, shape):
    remedy = TENSOR if len(shape) > 2 else SINGLE
    text = f"must be two-dimensional, rows by columns. Got shape {shape}. {remedy}"
    with pytest.raises(SourceError) as raised:
        as_source(np.ones(shape))
    assert str(raised.value) == "The array " + text
    with pytest.raises(SourceError) as raised:
        as_source(save_npy(tmp_path, np.ones(shape)))
    assert str(raised.value) == "rows.npy " + text
