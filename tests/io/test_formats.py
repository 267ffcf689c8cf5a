"""What single formats allow: comments, quotes, missing entries, widths that are given, Arrow and
pandas.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pytest
import scipy.sparse as sp
from kinds import (
    N_ROWS,
    as_table,
    dense_rows,
    read,
    save_hive,
    save_npy,
    save_npz,
    save_parquet,
    save_parts,
    sparse_rows,
)

from odeco.errors import SourceError
from odeco.io import as_source, skip_rows


def test_npz_needs_no_format_entry(tmp_path):
    matrix = sp.csr_array(sparse_rows())
    np.savez(
        tmp_path / "m.npz",
        data=matrix.data,
        indices=matrix.indices,
        indptr=matrix.indptr,
        shape=matrix.shape,
    )
    np.testing.assert_array_equal(read(as_source(tmp_path / "m.npz")), sparse_rows())


def test_npz_with_more_rows_than_pointers_are_read_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr("odeco.io.npy._POINTERS_AT_A_TIME", 4)
    source = as_source(save_npz(tmp_path, sparse_rows()))
    np.testing.assert_array_equal(read(source), sparse_rows())
    np.testing.assert_array_equal(read(skip_rows(source, 11)), sparse_rows()[11:])


def test_csv_fields_may_be_quoted_and_the_file_marked_as_unicode(tmp_path):
    (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbf"a","b"\r\n"1", 2\r\n3,4')
    np.testing.assert_array_equal(read(as_source(tmp_path / "a.csv")), [[1, 2], [3, 4]])


def test_a_pyarrow_dataset_is_read_in_order(tmp_path):
    dataset = pytest.importorskip("pyarrow.dataset")
    folder = save_parts(tmp_path, dense_rows(), save_parquet, ".parquet")
    source = as_source(dataset.dataset(str(folder), format="parquet"), batch_rows=4)
    for _ in range(2):
        np.testing.assert_array_equal(read(source), dense_rows())


def test_an_arrow_reader_can_be_read_once():
    source = as_source(as_table(dense_rows()).to_reader(max_chunksize=6))
    assert not source.repeatable
    np.testing.assert_array_equal(read(source), dense_rows())
    with pytest.raises(SourceError, match=r"^The RecordBatchReader can be read only once"):
        iter(source)


def test_pandas_gives_its_columns_and_not_its_index():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(dense_rows(), index=np.arange(N_ROWS) + 100)
    np.testing.assert_array_equal(read(as_source(table, batch_rows=4)), dense_rows())


def test_arrow_is_not_imported_for_other_files(tmp_path):
    path = save_npy(tmp_path, dense_rows())
    code = (
        f"import sys, odeco.io as s; list(s.as_source({str(path)!r})); sys.exit('pyarrow' in "
        "sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_files_of_float32_and_float64_are_read_together_as_float64(tmp_path):
    rows = dense_rows()
    np.save(tmp_path / "a.npy", rows[:5].astype(np.float32))
    np.save(tmp_path / "b.npy", rows[5:])
    source = as_source([tmp_path / "a.npy", tmp_path / "b.npy"])
    for blocks in (source, pickle.loads(pickle.dumps(source))):  # as a worker of a cluster gets it
        assert {block.dtype for block in blocks} == {np.dtype(np.float64)}
    expected = np.concatenate([rows[:5].astype(np.float32), rows[5:]])
    np.testing.assert_array_equal(read(source), expected)
    assert next(iter(as_source(tmp_path / "a.npy"))).dtype == np.float32


@pytest.mark.parametrize("suffix", ["npy", "npz", "parquet"])
def test_a_file_without_rows_may_be_one_of_several(suffix, tmp_path):
    rows = dense_rows()
    for number, part in enumerate((rows[:0], rows[:5], rows[5:5], rows[5:])):
        folder = tmp_path / f"day={number}"
        folder.mkdir()
        if suffix == "npz":
            sp.save_npz(folder / "rows.npz", sp.csr_array(part))
        else:
            (save_npy if suffix == "npy" else save_parquet)(folder, part)
    source = as_source(tmp_path)
    assert source.n_rows == len(rows)
    np.testing.assert_array_equal(read(source), rows)
    np.testing.assert_array_equal(read(skip_rows(source, 5)), rows[5:])
    with pytest.raises(
        SourceError, match=r"must hold at least one row and one column\. It holds 0 rows"
    ):
        as_source(tmp_path / "day=0")


def test_errors_name_the_folders_of_hive(tmp_path):
    for day, part in enumerate((dense_rows(), dense_rows()[:, 1:])):
        (tmp_path / f"day={day}").mkdir()
        np.save(tmp_path / f"day={day}" / "rows.npy", part)
    with pytest.raises(
        SourceError, match=r"day=0/rows\.npy has \d+ columns, but day=1/rows\.npy has \d+\."
    ):
        as_source(tmp_path)


def test_a_key_of_a_hive_folder_is_said_to_be_no_column(tmp_path):
    save_hive(tmp_path, dense_rows())
    for chosen in ({"columns": ["x0", "day"]}, {"drop": ["year"]}):
        with pytest.raises(
            SourceError, match=r"which is not a column\. Leave it out, or pass polars\.scan_parquet"
        ):
            as_source(tmp_path / "hive", **chosen)


def test_decimals_with_nulls_and_in_lists_are_numbers(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    cells = [Decimal("0.1"), None, Decimal("-2.3")]
    lists = [[Decimal("0.3"), Decimal("1e-3")]] * 3
    table = arrow.table(
        {"a": cells, "b": arrow.array(lists, arrow.list_(arrow.decimal128(9, 3), 2))}
    )
    found = read(as_source(table, nulls_are_nan=True))
    np.testing.assert_array_equal(found, [[0.1, 0.3, 1e-3], [np.nan, 0.3, 1e-3], [-2.3, 0.3, 1e-3]])
    with pytest.raises(
        SourceError, match=r"^Row 1 of the Table holds no number in column 'a' \(a null\)"
    ):
        read(as_source(table))


def test_numbers_and_sums_of_duckdb_are_numbers():
    duckdb = pytest.importorskip("duckdb")
    found = duckdb.connect().sql(
        "select 1.5 as a, sum(range) as b, 0.1::decimal(9, 4) as c from range(4)"
    )
    np.testing.assert_array_equal(read(as_source(found)), [[1.5, 6.0, 0.1]])


def test_a_query_that_fails_says_so(tmp_path):
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    broken = duckdb.connect().sql(
        "select (case when range = 2 then 'x' else '1' end)::double as a from range(3)"
    )
    for query in (broken, polars.LazyFrame({"a": [1.0]}).select("zz")):
        with pytest.raises(
            SourceError, match=r"(?s)must give rows\. It does not: .*Check the query"
        ) as caught:
            read(as_source(query))
        assert caught.value.__cause__ is not None


def test_types_of_pandas_with_a_null_of_their_own_are_numbers():
    pandas = pytest.importorskip("pandas")
    table = (
        pandas.DataFrame(dense_rows())
        .add_prefix("c")
        .astype("Float64")
        .assign(n=np.arange(N_ROWS))
        .convert_dtypes()
    )
    expected = np.column_stack([dense_rows(), np.arange(N_ROWS)])
    np.testing.assert_array_equal(read(as_source(table)), expected)
    table.iloc[7, 1] = pandas.NA
    with pytest.raises(SourceError, match=r"^Row 7 of the DataFrame holds NaN in column 'c1'\."):
        read(as_source(table))
    found = read(as_source(table, nulls_are_nan=True))
    assert np.argwhere(np.isnan(found)).tolist() == [[7, 1]]
