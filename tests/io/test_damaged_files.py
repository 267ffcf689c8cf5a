"""A damaged file is an error that names the file, the row and, in text, the line."""

from __future__ import annotations

import gzip
import os
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
from kinds import (
    dense_rows,
    read_until_error,
    save_arrow_stream,
    save_feather,
    save_npy,
    save_npz,
    save_parquet,
    sparse_rows,
)

from odeco.errors import SourceError
from odeco.io import as_source


@pytest.mark.parametrize("save", [save_npy, save_npz, save_parquet, save_feather])
def test_a_file_that_is_something_else_or_cut_short_is_an_error(tmp_path, save):
    path = save(tmp_path, sparse_rows())
    whole = path.read_bytes()
    for damaged in (
        b"",
        b"not what the suffix promises",
        whole[:60],
        whole[: len(whole) // 2],
        whole[:-30],
    ):
        path.write_bytes(damaged)
        _, error = read_until_error(block for source in [path] for block in as_source(source))
        assert error.path == path
        assert str(error).startswith(f"{path.name} cannot be ")
        assert str(error).endswith("write or copy it again.")


def test_the_texts_for_damaged_files(tmp_path):
    path = tmp_path / "a.npz"
    path.write_bytes(b"nonsense")
    with pytest.raises(SourceError) as raised:
        as_source(path)
    assert str(raised.value) == (
        "a.npz cannot be opened: File is not a zip file. It is damaged or holds something else; "
        "write or copy it again."
    )
    path = save_npz(tmp_path, sparse_rows()).rename(tmp_path / "b.npy")
    with pytest.raises(
        SourceError, match=r"^b.npy cannot be opened: the magic string is not correct"
    ):
        as_source(path)


def test_a_file_cut_short_during_a_pass_is_an_error_that_names_the_row(tmp_path):
    path = save_npy(tmp_path, np.ones((4000, 1024)))
    source = as_source(path)
    blocks = iter(source)
    first = next(blocks)
    os.truncate(path, 20_000_000)
    n_rows, error = read_until_error(blocks)
    assert str(error) == (
        "rows.npy must not change while it is read. Its size changed since it was opened. Nothing "
        "after row 512 of it was used; begin again, on a copy that nobody writes to."
    )
    assert (len(first) + n_rows, error.path, error.row) == (512, path, 512)


def test_a_file_stored_by_columns_and_cut_short_during_a_pass_is_an_error_too(tmp_path):
    path = save_npy(tmp_path, np.ones((4000, 1024), order="F"))
    blocks = iter(as_source(path))
    first = next(blocks)
    os.truncate(path, 20_000_000)
    n_rows, error = read_until_error(blocks)
    assert str(error) == (
        "rows.npy must not change while it is read. Its size changed since it was opened. Nothing "
        "after row 512 of it was used; begin again, on a copy that nobody writes to."
    )
    assert (len(first) + n_rows, error.path, error.row) == (512, path, 512)


def test_an_arrow_stream_file_cut_short_is_read_up_to_there(tmp_path):
    path = save_arrow_stream(tmp_path, dense_rows())
    path.write_bytes(path.read_bytes()[:-300])
    n_rows, error = read_until_error(as_source(path))
    assert n_rows == 18
    assert str(error).startswith("rows.arrow cannot be read from row 18 on: ")
    assert error.row == 18


def test_a_damaged_compressed_file_is_found_out_while_reading(tmp_path):
    path = save_npz(tmp_path, np.random.default_rng(0).standard_normal((3000, 300)))
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        start = archive.getinfo("data.npy").header_offset
        middle = start + archive.getinfo("data.npy").compress_size * 3 // 4
    content[middle : middle + 50] = bytes(50)
    path.write_bytes(content)
    source = as_source(path, batch_rows=100)
    n_rows, error = read_until_error(source)
    assert 0 < n_rows < 3000
    assert (error.path, error.row) == (path, n_rows)
    assert str(error).startswith(f"rows.npz cannot be read from row {n_rows:,} on: ")


def save_parts_of_csr(path, **changes):
    matrix = sp.csr_array(sparse_rows())
    parts = {
        "data": matrix.data,
        "indices": matrix.indices,
        "indptr": matrix.indptr,
        "shape": matrix.shape,
    }
    np.savez(path, **(parts | changes))
    return path


def test_row_pointers_that_fall_or_lead_outside_are_named(tmp_path):
    text = (
        "The row pointers of {} must start at 0, never fall and stay within the stored values. "
        "They break this at row {}. The file or matrix is damaged; make it again."
    )
    good = sp.csr_array(sparse_rows())
    for row, change in ((0, (0, 1)), (8, (9, 0)), (11, (12, 1000)), (22, (23, 1000))):
        pointers = good.indptr.copy()
        pointers[change[0]] = change[1]
        path = save_parts_of_csr(tmp_path / "a.npz", indptr=pointers)
        n_rows, error = read_until_error(as_source(path, batch_rows=4))
        assert str(error) == text.format("a.npz", row)
        assert (n_rows, error.path, error.row) == (row // 4 * 4, path, row)
    broken = good.copy()
    broken.indptr[9] = 0
    assert str(read_until_error(as_source(broken, batch_rows=4))[1]) == text.format(
        "the CSR matrix", 8
    )
    assert str(read_until_error(as_source([broken]))[1]) == text.format("the stream", 8)


@pytest.mark.parametrize("index", [-1, 5, 70_000])
def test_a_column_index_outside_the_matrix_is_named(tmp_path, index):
    good = sp.csr_array(sparse_rows())
    indices = good.indices.copy()
    indices[good.indptr[12]] = index
    path = save_parts_of_csr(tmp_path / "a.npz", indices=indices)
    n_rows, error = read_until_error(as_source(path, batch_rows=4))
    assert str(error) == (
        f"Column indices of a.npz must be in [0, 4]. Row 12 holds {index:,}. The file or matrix "
        "is damaged, or its width is wrong; make it again."
    )
    assert (n_rows, error.row) == (12, 12)


def test_parts_of_csr_that_do_not_fit_are_an_error(tmp_path):
    for changes in ({"indices": np.zeros(2, int)}, {"shape": (9, 5)}, {"indptr": np.zeros(24)}):
        with pytest.raises(SourceError) as raised:
            as_source(save_parts_of_csr(tmp_path / "a.npz", **changes))
        assert str(raised.value) == (
            "a.npz cannot be opened: data, indices and indptr do not fit together. It is damaged "
            "or holds something else; write or copy it again."
        )
    with pytest.raises(
        SourceError, match=r"^a.npz cannot be opened: data is not a plain array of numbers"
    ):
        as_source(save_parts_of_csr(tmp_path / "a.npz", data=np.ones((2, 2))))


def test_what_is_not_csr_is_refused(tmp_path):
    text = (
        "{} must be sparse by rows: CSR, or data, indices, indptr and shape in a file. It holds "
        "{}. Convert it with X.tocsr(); save dense rows with numpy.save."
    )
    matrix = sp.csc_array(sparse_rows())
    sp.save_npz(tmp_path / "a.npz", matrix)
    np.savez(tmp_path / "b.npz", dense_rows(), y=1)
    for data, name, what in (
        (matrix, "The sparse matrix", "CSC"),
        (tmp_path / "a.npz", "a.npz", "CSC"),
        (tmp_path / "b.npz", "b.npz", "arr_0, y"),
        ([matrix], "The block at row 0 of the stream", "CSC"),
    ):
        with pytest.raises(SourceError) as raised:
            as_source(data)
        assert str(raised.value) == text.format(name, what)


@pytest.mark.parametrize(
    ("line", "must", "shown"),
    [
        ("1,x", "all numbers", "x"),
        ("1,", "all numbers", ""),
        ("NA,2", "all numbers", "NA"),
        ("1,\x80", "all numbers", "\ufffd"),
        ("1,2,3", "2 numbers", "1,2,3"),
        ("1", "2 numbers", "1"),
        ("1;2", "2 numbers", "1;2"),
    ],
)
def test_a_csv_line_that_cannot_be_parsed_is_named(tmp_path, line, must, shown):
    path = tmp_path / "a.csv"
    path.write_bytes(f"a,b\n1,2\n\n3,4\n{line}\n5,6\n".encode("latin-1"))
    n_rows, error = read_until_error(as_source(path, batch_rows=1))
    if must == "all numbers":
        column = "a" if line.startswith("NA") else "b"
        remedy = f"Fix or drop the line, or leave out {column!r} with `drop`, and read again."
        assert str(error) == (
            f"Row 2 of a.csv (line 5) must be {must}. Got {shown!r} in column {column!r}. {remedy}"
        )
    else:
        assert str(error) == (
            f"Row 2 of a.csv (line 5) must be {must}. Got {shown!r}. Fix or drop the line and "
            "read again."
        )
    assert (n_rows, error.path, error.row) == (2, path, 2)


def test_a_first_line_of_names_and_numbers_is_not_passed_over(tmp_path):
    (tmp_path / "a.csv").write_text("1,,3\n4,5,6\n")
    _, error = read_until_error(as_source(tmp_path / "a.csv"))
    assert str(error) == (
        "Row 0 of a.csv (line 1) must be all numbers. Got ''. Fix or drop the line and read again."
    )


def test_a_compressed_table_that_is_cut_short_or_not_compressed_is_an_error(tmp_path):
    whole = gzip.compress("\n".join(f"{number},{number / 7!r}" for number in range(3000)).encode())
    (tmp_path / "cut.csv.gz").write_bytes(whole[:-3000])
    n_rows, error = read_until_error(as_source(tmp_path / "cut.csv.gz", batch_rows=100))
    assert 0 < n_rows < 3000
    assert "cut.csv.gz cannot be read from row" in str(error)
    assert "ended before the end-of-stream marker" in str(error)
    (tmp_path / "plain.csv.gz").write_text("1,2\n")
    with pytest.raises(SourceError, match=r"^plain\.csv\.gz cannot be opened: Not a gzipped file"):
        as_source(tmp_path / "plain.csv.gz")
    for name in ("rows.npy.gz", "rows.csv.zst"):
        (tmp_path / name).write_bytes(whole)
        with pytest.raises(SourceError, match=r"or in \.csv or \.tsv and \.gz\. Got .*unpack"):
            as_source(tmp_path / name)


def test_a_table_in_utf_16_says_what_to_do(tmp_path):
    (tmp_path / "a.csv").write_bytes("1,2\n3,4\n".encode("utf-16"))
    with pytest.raises(SourceError, match=r"zero bytes, as UTF-16 has; convert it to UTF-8"):
        as_source(tmp_path / "a.csv")


def test_csv_numbers_that_only_python_reads_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("1,2\n1_0,2\n")
    _, error = read_until_error(as_source(tmp_path / "a.csv"))
    assert str(error) == (
        "a.csv cannot be read from row 0 on: its lines are not numbers. The rows before were "
        "read; write or copy it again."
    )
