"""Sources: every kind gives the same rows in every pass, and says clearly which file and row is at fault."""

import os
import pickle
import subprocess
import sys
import textwrap
import zipfile
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from odeco.sources import BatchSource, SourceError, as_source, rebatch, skip_rows

N_ROWS, N_FEATURES = 23, 5
SUFFIXES = ".npy, .npz, .parquet, .arrow, .feather, .svm, .svmlight, .libsvm, .csv, .tsv"
AGAIN = "Nothing of its block was used; fix or drop the row (the first is row 0) and read again."


def dense_rows():
    return np.random.default_rng(0).standard_normal((N_ROWS, N_FEATURES)).round(6)


def sparse_rows():
    rows = dense_rows()
    rows[np.abs(rows) < 0.6] = 0
    rows[7] = 0  # a row without entries
    rows[0, 0], rows[3, -1] = 1.5, 2.5  # the first and last column are used
    return rows


def to_dense(block):
    return block.toarray() if sp.issparse(block) else np.asarray(block)


def read(source):
    return np.concatenate([to_dense(block) for block in source])


class Sliceable:
    """What h5py and zarr look like from here."""

    def __init__(self, rows, chunks=None):
        self._rows, self.chunks, self.asked = rows, chunks, []

    shape = property(lambda self: self._rows.shape)
    dtype = property(lambda self: self._rows.dtype)

    def __getitem__(self, rows):
        self.asked.append((rows.start, rows.stop))
        return self._rows[rows].tolist()


class Table(Sliceable):
    """What pandas looks like from here: brackets are for columns, and Arrow would give the index too."""

    @property
    def iloc(self):
        return self._rows

    def __getitem__(self, name):
        raise KeyError(name)

    def __arrow_c_stream__(self, schema=None):
        raise AssertionError("the index would become a column")


class OwnSource:
    """The least that a user's own source must have."""

    def __init__(self, blocks):
        self.n_features, self._blocks = N_FEATURES, blocks

    def __iter__(self):
        return iter(self._blocks)


def save_npy(folder, rows, name="rows.npy"):
    np.save(folder / name, rows)
    return folder / name


def save_npz(folder, rows, name="rows.npz", **options):
    sp.save_npz(folder / name, sp.csr_array(rows), **options)
    return folder / name


def save_svmlight(folder, rows, name="rows.svm", base=1):
    lines = [" ".join(["-1", *(f"{i + base}:{float(row[i])}" for i in np.flatnonzero(row))]) for row in rows]
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder / name


def save_csv(folder, rows, name="rows.csv", header="", delimiter=","):
    np.savetxt(folder / name, rows, delimiter=delimiter, header=header, comments="", fmt="%.17g")
    return folder / name


def as_table(rows):
    arrow = pytest.importorskip("pyarrow")
    return arrow.table({f"x{i}": np.ascontiguousarray(rows[:, i]) for i in range(rows.shape[1])})


def save_parquet(folder, rows, name="rows.parquet", row_group_size=7):
    table = as_table(rows)
    pytest.importorskip("pyarrow.parquet").write_table(table, folder / name, row_group_size=row_group_size)
    return folder / name


def save_feather(folder, rows, name="rows.feather", chunksize=9):
    table = as_table(rows)
    pytest.importorskip("pyarrow.feather").write_feather(table, str(folder / name), chunksize=chunksize)
    return folder / name


def save_arrow_stream(folder, rows, name="rows.arrow"):
    table = as_table(rows)
    with pytest.importorskip("pyarrow.ipc").new_stream(folder / name, table.schema) as writer:
        writer.write_table(table, max_chunksize=9)
    return folder / name


def save_parts(folder, rows, save, suffix):
    (folder / "parts").mkdir()
    for start in range(0, N_ROWS, 10):
        save(folder / "parts", rows[start : start + 10], f"part-{start:02}{suffix}")
    (folder / "parts" / "_SUCCESS").touch()
    (folder / "parts" / ".crc").touch()
    return folder / "parts"


def save_memmap(folder, rows):
    return np.load(save_npy(folder, rows), mmap_mode="r")


def save_hdf5(folder, rows):
    file = pytest.importorskip("h5py").File(folder / "rows.h5", "w")
    return file.create_dataset("rows", data=rows, chunks=(4, N_FEATURES))


def cut(rows, step=4):
    return [rows[start : start + step] for start in range(0, len(rows), step)]


DENSE = {
    "array": lambda folder, rows: rows,
    "array by columns": lambda folder, rows: np.asfortranarray(rows),
    "memmap": save_memmap,
    "npy": save_npy,
    "npy by columns": lambda folder, rows: save_npy(folder, np.asfortranarray(rows)),
    "npy of the other byte order": lambda folder, rows: save_npy(folder, rows.astype(">f8")),
    "path as text": lambda folder, rows: str(save_npy(folder, rows)),
    "csv": save_csv,
    "csv with names": lambda folder, rows: save_csv(folder, rows, header="a,b,c,d,e"),
    "csv with blank lines": lambda folder, rows: save_csv(folder, rows, header="\n"),
    "csv with semicolons": lambda folder, rows: save_csv(folder, rows, delimiter=";"),
    "tsv": lambda folder, rows: save_csv(folder, rows, "rows.tsv", delimiter="\t"),
    "parquet": save_parquet,
    "feather": save_feather,
    "arrow stream file": save_arrow_stream,
    "arrow table": lambda folder, rows: as_table(rows),
    "directory of npy": lambda folder, rows: save_parts(folder, rows, save_npy, ".npy"),
    "directory of csv": lambda folder, rows: save_parts(folder, rows, save_csv, ".csv"),
    "directory of parquet": lambda folder, rows: save_parts(folder, rows, save_parquet, ".parquet"),
    "list of paths": lambda folder, rows: [save_npy(folder, rows[:9]), str(save_csv(folder, rows[9:]))],
    "sliceable": lambda folder, rows: Sliceable(rows),
    "sliceable in chunks": lambda folder, rows: Sliceable(rows, (6, 2)),
    "table": lambda folder, rows: Table(rows),
    "hdf5": save_hdf5,
    "iterable": lambda folder, rows: cut(rows),
    "callable": lambda folder, rows: lambda: iter(cut(rows)),
    "own source": lambda folder, rows: OwnSource(cut(rows)),
    "source": lambda folder, rows: as_source(rows),
}
SPARSE = {
    "csr_array": lambda folder, rows: sp.csr_array(rows),
    "csr_matrix": lambda folder, rows: sp.csr_matrix(rows),
    "npz": save_npz,
    "npz not compressed": partial(save_npz, compressed=False),
    "svmlight": save_svmlight,
    "svmlight from 0": partial(save_svmlight, base=0),
    "directory of npz": lambda folder, rows: save_parts(folder, rows, save_npz, ".npz"),
    "directory of svmlight": lambda folder, rows: save_parts(folder, rows, save_svmlight, ".libsvm"),
    "iterable of CSR": lambda folder, rows: [sp.csr_matrix(block) for block in cut(rows)],
    "own source of CSR": lambda folder, rows: OwnSource([sp.csr_array(block) for block in cut(rows)]),
}
KINDS = [(name, make, dense_rows()) for name, make in DENSE.items()]
KINDS += [(name, make, sparse_rows()) for name, make in SPARSE.items()]


@pytest.fixture(params=KINDS, ids=[name for name, _, _ in KINDS])
def held(request, tmp_path):
    """Some data as a user may hold them, and their rows."""
    _, make, rows = request.param
    return make(tmp_path, rows), rows


# Every kind of source


def test_every_source_gives_all_rows_in_order_and_again_in_a_second_pass(held):
    data, rows = held
    source = as_source(data)
    assert isinstance(source, BatchSource)
    assert (source.n_features, source.repeatable, source.n_rows in (N_ROWS, None)) == (N_FEATURES, True, True)
    np.testing.assert_array_equal(read(source), rows)
    np.testing.assert_array_equal(read(source), rows)


def test_every_source_yields_blocks_of_at_most_batch_rows(held):
    data, rows = held
    blocks = list(as_source(data, batch_rows=3))
    assert max(block.shape[0] for block in blocks) <= 3
    assert min(block.shape[0] for block in blocks) >= 1
    assert all(isinstance(block, np.ndarray | sp.csr_array) and block.dtype == np.float64 for block in blocks)
    np.testing.assert_array_equal(read(blocks), rows)


@pytest.mark.parametrize("n", [0, 1, 6, 7, 10, 20, 22])
def test_every_source_can_start_at_any_row(held, n):
    data, rows = held
    np.testing.assert_array_equal(read(skip_rows(as_source(data, batch_rows=4), n)), rows[n:])


def test_every_source_can_start_behind_its_last_row_and_no_further(held):
    data, _ = held
    assert list(skip_rows(as_source(data), N_ROWS)) == []
    with pytest.raises(
        SourceError, match=r"must hold at least the 24 rows to be skipped\. It holds 23\. Pass the data"
    ):
        list(skip_rows(as_source(data), N_ROWS + 1))


def test_every_source_can_be_rebatched(held):
    data, rows = held
    batches = list(rebatch(as_source(data, batch_rows=4), 5))
    assert [batch.shape for batch in batches] == [(5, N_FEATURES)] * 4 + [(3, N_FEATURES)]
    np.testing.assert_array_equal(read(batches), rows)


def test_every_source_has_a_short_fingerprint_that_reading_does_not_change(held):
    data, _ = held
    source = as_source(data)
    before = source.fingerprint()
    list(source)
    assert source.fingerprint() == before
    assert 0 < len(before) < 120
    assert "\n" not in before


def test_the_width_can_be_demanded(held):
    data, _ = held
    assert as_source(data, n_features=N_FEATURES).n_features == N_FEATURES


def test_passes_can_be_interleaved(held):
    data, rows = held
    source = as_source(data, batch_rows=4)
    pairs = list(zip(source, source, strict=True))
    np.testing.assert_array_equal(read([first for first, _ in pairs]), rows)
    np.testing.assert_array_equal(read([second for _, second in pairs]), rows)


# Number types and block sizes


@pytest.mark.parametrize(
    ("given_type", "read_type"),
    [("f2", "f4"), ("f4", "f4"), ("f8", "f8"), (">f4", "f4"), ("i1", "f8"), ("u8", "f8"), ("?", "f8")],
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


@pytest.mark.parametrize(("shape", "n_rows"), [((3000, 1000), 524), ((2, 600_000), 1), ((3000, 1), 3000)])
def test_a_dense_block_has_about_four_megabytes_and_at_least_a_row(tmp_path, shape, n_rows):
    rows = np.zeros(shape)
    for data in (rows, save_npy(tmp_path, rows), [rows], Sliceable(np.broadcast_to(0.0, shape))):
        assert next(iter(as_source(data))).shape[0] == n_rows


def test_a_sparse_block_has_about_a_million_numbers(tmp_path):
    n_rows, per_row = 3000, 1000
    pointers = np.arange(0, n_rows * per_row + 1, per_row)
    matrix = sp.csr_array((np.ones(pointers[-1]), np.tile(np.arange(per_row), n_rows), pointers), (n_rows, per_row))
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


# Details of formats


def test_npz_needs_no_format_entry(tmp_path):
    matrix = sp.csr_array(sparse_rows())
    np.savez(tmp_path / "m.npz", data=matrix.data, indices=matrix.indices, indptr=matrix.indptr, shape=matrix.shape)
    np.testing.assert_array_equal(read(as_source(tmp_path / "m.npz")), sparse_rows())


def test_npz_with_more_rows_than_pointers_are_read_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr("odeco.sources._npz._POINTERS_AT_A_TIME", 4)
    source = as_source(save_npz(tmp_path, sparse_rows()))
    np.testing.assert_array_equal(read(source), sparse_rows())
    np.testing.assert_array_equal(read(skip_rows(source, 11)), sparse_rows()[11:])


def test_svmlight_comments_queries_tabs_and_labels_are_passed_over(tmp_path):
    path = tmp_path / "a.svmlight"
    path.write_bytes(b"# made by hand 9:9\r\n\n1,3 qid:7 1:0.5\t3:2 # 8:1\r\n+1\ncat 2:-1e3\n0 qid:2\n")
    np.testing.assert_array_equal(read(as_source(path)), [[0.5, 0, 2], [0, 0, 0], [0, -1000, 0], [0, 0, 0]])


def test_svmlight_may_be_wider_than_its_largest_index(tmp_path):
    path = save_svmlight(tmp_path, sparse_rows())
    assert next(iter(as_source(path, n_features=9))).shape == (N_ROWS, 9)


def test_svmlight_files_share_width_and_first_index(tmp_path):
    (tmp_path / "a.svm").write_text("1 0:1\n")
    (tmp_path / "b.svm").write_text("1 1:1 3:2\n")
    np.testing.assert_array_equal(read(as_source(tmp_path)), [[1, 0, 0, 0], [0, 1, 0, 2]])


def test_svmlight_is_cut_at_line_ends(tmp_path, monkeypatch):
    monkeypatch.setattr("odeco.sources._svmlight.BLOCK_BYTES", 50)
    source = as_source(save_svmlight(tmp_path, sparse_rows()))
    assert len(list(source)) > 5
    np.testing.assert_array_equal(read(source), sparse_rows())
    np.testing.assert_array_equal(read(skip_rows(source, 12)), sparse_rows()[12:])


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
    code = f"import sys, odeco.sources as s; list(s.as_source({str(path)!r})); sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# One-shot iterators and callables


def test_an_iterator_is_read_once_and_loses_nothing():
    source = as_source(block for block in cut(dense_rows()))
    assert not source.repeatable
    assert source.n_rows is None
    np.testing.assert_array_equal(read(source), dense_rows())
    with pytest.raises(SourceError) as raised:
        iter(source)
    assert str(raised.value) == (
        "The stream can be read only once, and a pass over it was started before. "
        "Pass a callable that returns a fresh iterator, a list of arrays, or a file."
    )


def test_an_iterator_left_early_is_not_read_on_by_a_second_pass():
    source = as_source(iter(cut(dense_rows())))
    next(iter(source))
    with pytest.raises(SourceError, match="can be read only once"):
        next(iter(source))


def test_a_callable_that_returns_one_iterator_twice_is_found_out():
    iterator = iter(cut(dense_rows()))
    source = as_source(lambda: iterator)
    list(source)
    with pytest.raises(SourceError, match="can be read only once"):
        iter(source)
    assert not source.repeatable


def test_an_own_source_that_is_its_own_iterator_is_read_once():
    class Once(OwnSource):
        def __iter__(self):
            return self

        def __next__(self):
            return next(self._blocks)

    source = as_source(Once(iter(cut(dense_rows()))))
    assert not source.repeatable
    np.testing.assert_array_equal(read(source), dense_rows())
    with pytest.raises(SourceError, match=r"^The Once can be read only once"):
        iter(source)


def test_a_pass_of_another_length_is_an_error():
    blocks = cut(dense_rows())
    source = as_source(blocks)
    list(source)
    blocks.pop()
    with pytest.raises(SourceError) as raised:
        list(source)
    assert str(raised.value) == (
        "The stream must give the same rows in every pass. It gave 20 rows instead of 23. "
        "Do not change it during a run; as a callable, return a fresh iterator at every call."
    )


def test_a_callable_is_called_once_for_each_pass():
    calls = []
    source = as_source(lambda: calls.append(1) or iter(cut(dense_rows())))
    list(source)
    assert len(calls) == 1
    list(source)
    assert len(calls) == 2


def test_blocks_without_rows_are_passed_over():
    rows = dense_rows()
    blocks = list(as_source([rows[:0], rows[:5], rows[:0], rows[5:]]))
    assert [len(block) for block in blocks] == [5, 18]


# Fingerprints


def test_a_fingerprint_names_kind_shape_type_and_file(tmp_path):
    path = save_npy(tmp_path, dense_rows())
    os.utime(path, ns=(0, 123))
    assert as_source(path).fingerprint() == "npy:23x5:float64:rows.npy:1048:123"


@pytest.mark.parametrize("save", [save_npy, save_npz, save_csv, save_svmlight, save_parquet, save_feather])
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


# Rebatching


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 12), st.booleans(), st.booleans())
def test_rebatched_rows_are_those_of_the_concatenation(sizes, batch_size, sparse, single):
    rows = np.arange(2.0 * sum(sizes)).reshape(-1, 2).astype("f4" if single else "f8")
    blocks = np.split(rows, np.cumsum(sizes)[:-1]) if sizes else []
    batches = list(rebatch(iter([sp.csr_array(block) if sparse else block for block in blocks]), batch_size))
    expected = [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]
    assert [batch.shape for batch in batches] == [batch.shape for batch in expected]
    for batch, wanted in zip(batches, expected, strict=True):
        assert batch.dtype == rows.dtype
        assert isinstance(batch, sp.csr_array if sparse else np.ndarray)
        np.testing.assert_array_equal(to_dense(batch), wanted)


def test_a_batch_within_one_block_is_not_copied():
    rows = dense_rows()
    assert all(np.shares_memory(batch, rows) for batch in rebatch(rows, 5))


def test_rebatching_reads_no_further_than_it_must():
    taken = []
    blocks = (taken.append(1) or block for block in cut(dense_rows()))
    next(rebatch(blocks, 6))
    assert len(taken) == 2


def test_what_was_skipped_can_be_rebatched():
    batches = list(rebatch(skip_rows(cut(dense_rows()), 9), 6))
    assert [len(batch) for batch in batches] == [6, 6, 2]
    np.testing.assert_array_equal(read(batches), dense_rows()[9:])


def test_dense_and_sparse_rows_are_not_joined():
    blocks = iter([np.ones((3, 2)), sp.csr_array(np.ones((2, 2)))])
    with pytest.raises(SourceError) as raised:
        list(rebatch(blocks, 5))
    assert str(raised.value) == (
        "The blocks of one batch must be all dense or all CSR. Row 3 begins a block of the other kind. "
        "Convert the blocks to one of the two."
    )


@pytest.mark.parametrize("size", [0, -1, 2.0, True, None])
def test_sizes_are_checked_before_reading(size):
    with pytest.raises(ValueError, match=f"^`batch_size` must be an int of at least 1. Got {size!r}.$"):
        rebatch(dense_rows(), size)
    if size is not None:
        with pytest.raises(ValueError, match=f"^`batch_rows` must be an int of at least 1. Got {size!r}.$"):
            as_source(dense_rows(), batch_rows=size)


@pytest.mark.parametrize("n", [-1, 1.0])
def test_the_number_of_rows_to_skip_is_checked_before_reading(n):
    with pytest.raises(ValueError, match=f"^`n` must be an int of at least 0. Got {n!r}.$"):
        skip_rows(dense_rows(), n)


# Rows at fault


def read_until_error(source):
    """Return how many rows came before the error, and the error."""
    n_rows = 0
    try:
        for block in source:
            n_rows += block.shape[0]
    except SourceError as error:
        return n_rows, error
    pytest.fail("no error was raised")


@pytest.mark.parametrize(("bad", "what"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")])
@pytest.mark.parametrize(
    "save", [save_npy, save_npz, save_csv, save_svmlight, save_parquet, partial(save_feather, chunksize=50)]
)
def test_a_row_that_is_not_finite_is_named_and_the_blocks_before_it_are_read(tmp_path, save, bad, what):
    rows = np.ones((1300, 3))
    rows[1204, 1] = rows[1250, 0] = bad
    path = save(tmp_path, rows)
    n_rows, error = read_until_error(as_source(path, batch_rows=100))
    assert str(error) == f"Row 1,204 of {path.name} holds {what}. {AGAIN}"
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
    assert str(error) == f"Row 14 of {name} holds NaN. {AGAIN}"
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
    assert str(error) == f"Row 4 of part-10.npy holds NaN. {AGAIN}"
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
        "Row 15 of a.parquet holds no number in column 'n' (a null). Nothing of its block was used; "
        "fill or drop the row (the first is row 0) and read again."
    )
    assert (n_rows, error.path, error.row) == (15, tmp_path / "a.parquet", 15)


def test_a_block_of_another_width_is_named():
    n_rows, error = read_until_error(as_source([np.ones((1500, 3)), np.ones((2, 4))]))
    assert str(error) == "All rows of the stream must have 3 columns. Row 1,500 has 4. Fix it and read again."
    assert (n_rows, error.row) == (1500, 1500)


def test_a_demanded_width_that_a_source_does_not_have_is_an_error(tmp_path):
    path = save_npy(tmp_path, dense_rows())
    with pytest.raises(SourceError) as raised:
        as_source(path, n_features=1)
    assert str(raised.value) == "All rows of rows.npy must have 1 column. Row 0 has 5. Fix it and read again."


def test_a_block_of_the_other_kind_is_named():
    _, error = read_until_error(as_source([np.ones((3, 2)), sp.csr_array(np.ones((3, 2)))]))
    assert str(error) == (
        "The blocks of the stream must be all dense or all CSR. Row 3 begins a block of the other kind. "
        "Convert the blocks to one of the two."
    )


@pytest.mark.parametrize(("block", "shape"), [(np.ones(3), "(3,)"), (None, "()"), (np.ones((1, 2, 3)), "(1, 2, 3)")])
def test_a_block_that_is_not_two_dimensional_is_named(block, shape):
    _, error = read_until_error(as_source([np.ones((2, 3)), block]))
    assert str(error) == (
        f"The block at row 2 of the stream must be two-dimensional, rows by columns. Got shape {shape}. "
        "Reshape it, x[None, :] for a single row x."
    )
    assert error.row == 2


def test_a_block_with_rows_of_different_lengths_is_refused():
    with pytest.raises(SourceError) as raised:
        as_source([[[1.0, 2.0], [3.0]]])
    assert str(raised.value) == (
        "The block at row 0 of the stream must hold real numbers: floats of at most 64 bits, integers or bools. "
        "It holds list. Convert it to float64."
    )


@pytest.mark.parametrize("rows", [np.ones((2, 2), complex), np.ones((2, 2), object), np.full((2, 2), "1")])
def test_what_is_no_real_number_is_refused(tmp_path, rows):
    text = "must hold real numbers: floats of at most 64 bits, integers or bools. It holds {}. Convert it to float64."
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
    for data, name in ((tmp_path / "a.parquet", "a.parquet"), (table, "The Table")):
        with pytest.raises(SourceError) as raised:
            as_source(data)
        assert str(raised.value) == (
            f"{name} must hold real numbers: floats of at most 64 bits, integers or bools. "
            "It holds string in column 'label'. Convert it to float64."
        )


def test_a_mask_is_not_lost():
    with pytest.raises(SourceError) as raised:
        as_source(np.ma.masked_invalid([[1.0, np.nan]]))
    assert str(raised.value) == (
        "The array must not be masked. Got a MaskedArray, whose hidden entries would be read as numbers. "
        "Fill them with X.filled(value), or drop those rows."
    )


@pytest.mark.parametrize("shape", [(3,), (2, 3, 4), ()])
def test_an_array_must_have_two_axes(tmp_path, shape):
    text = f"must be two-dimensional, rows by columns. Got shape {shape}. Reshape it, x[None, :] for a single row x."
    with pytest.raises(SourceError) as raised:
        as_source(np.ones(shape))
    assert str(raised.value) == "The array " + text
    with pytest.raises(SourceError) as raised:
        as_source(save_npy(tmp_path, np.ones(shape)))
    assert str(raised.value) == "rows.npy " + text


# Nothing to read


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_an_empty_array_is_an_error(tmp_path, shape):
    text = f"must hold at least one row and one column. It holds {shape[0]} rows and {shape[1]} columns. "
    text += "Check how it was made."
    sources = {
        "The array": lambda: as_source(np.empty(shape)),
        "The CSR matrix": lambda: as_source(sp.csr_array(shape)),
        "rows.npy": lambda: as_source(save_npy(tmp_path, np.empty(shape))),
        "rows.npz": lambda: as_source(save_npz(tmp_path, np.empty(shape))),
        "The Sliceable": lambda: as_source(Sliceable(np.empty(shape))),
    }
    for name, make in sources.items():
        with pytest.raises(SourceError) as raised:
            make()
        assert str(raised.value) == f"{name} {text}"


@pytest.mark.parametrize("data", [[], iter([]), lambda: iter([]), [np.empty((0, 3))]])
def test_an_empty_stream_is_an_error(data):
    with pytest.raises(SourceError) as raised:
        as_source(data)
    assert str(raised.value) == (
        "The stream must hold at least one row and one column. It holds no rows. Check how it was made."
    )


@pytest.mark.parametrize("text", ["", "\n\n", "a,b\n", "a,b\n\n"])
def test_an_empty_csv_file_is_an_error(tmp_path, text):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(SourceError) as raised:
        as_source(tmp_path / "a.csv")
    assert str(raised.value) == (
        "a.csv must hold at least one row and one column. It holds no rows of numbers. Check how it was made."
    )


@pytest.mark.parametrize(("text", "n_rows"), [("", 0), ("# 1:2\n", 0), ("1\n-1\n", 2)])
def test_an_empty_svmlight_file_is_an_error(tmp_path, text, n_rows):
    (tmp_path / "a.svm").write_text(text)
    with pytest.raises(SourceError) as raised:
        as_source(tmp_path / "a.svm")
    assert str(raised.value) == (
        f"a.svm must hold at least one row and one column. It holds {n_rows} rows and 0 columns. Check how it was made."
    )


@pytest.mark.parametrize("save", [save_parquet, save_feather])
def test_an_empty_arrow_file_is_an_error(tmp_path, save):
    path = save(tmp_path, np.empty((0, 3)))
    with pytest.raises(SourceError) as raised:
        as_source(path)
    assert str(raised.value) == (
        f"{path.name} must hold at least one row and one column. It holds 0 rows and 3 columns. Check how it was made."
    )


def test_an_empty_own_source_or_arrow_stream_file_is_an_error_when_read(tmp_path):
    text = "must hold at least one row and one column. It holds no rows. Check how it was made."
    assert str(read_until_error(as_source(OwnSource([])))[1]) == f"The OwnSource {text}"
    path = save_arrow_stream(tmp_path, np.empty((0, 3)))
    assert str(read_until_error(as_source(path))[1]) == f"rows.arrow {text}"


# Damaged files


@pytest.mark.parametrize("save", [save_npy, save_npz, save_parquet, save_feather])
def test_a_file_that_is_something_else_or_cut_short_is_an_error(tmp_path, save):
    path = save(tmp_path, sparse_rows())
    whole = path.read_bytes()
    for damaged in (b"", b"not what the suffix promises", whole[:60], whole[: len(whole) // 2], whole[:-30]):
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
        "a.npz cannot be opened: File is not a zip file. It is damaged or holds something else; write or copy it again."
    )
    path = save_npz(tmp_path, sparse_rows()).rename(tmp_path / "b.npy")
    with pytest.raises(SourceError, match=r"^b.npy cannot be opened: the magic string is not correct"):
        as_source(path)


def test_a_file_cut_short_during_a_pass_is_an_error_that_names_the_row(tmp_path):
    path = save_npy(tmp_path, np.ones((4000, 1024)))
    source = as_source(path)
    blocks = iter(source)
    first = next(blocks)
    os.truncate(path, 20_000_000)
    n_rows, error = read_until_error(blocks)
    assert str(error) == (
        "rows.npy must not change while it is read. Its size changed since it was opened. Nothing after row 512 of it "
        "was used; begin again, on a copy that nobody writes to."
    )
    assert (len(first) + n_rows, error.path, error.row) == (512, path, 512)


def test_a_file_stored_by_columns_and_cut_short_during_a_pass_is_an_error_too(tmp_path):
    path = save_npy(tmp_path, np.ones((4000, 1024), order="F"))
    blocks = iter(as_source(path))
    first = next(blocks)
    os.truncate(path, 20_000_000)
    n_rows, error = read_until_error(blocks)
    assert str(error) == (
        "rows.npy must not change while it is read. Its size changed since it was opened. Nothing after row 512 of it "
        "was used; begin again, on a copy that nobody writes to."
    )
    assert (len(first) + n_rows, error.path, error.row) == (512, path, 512)


def test_an_arrow_stream_file_cut_short_is_read_up_to_there(tmp_path):
    path = save_arrow_stream(tmp_path, dense_rows())
    path.write_bytes(path.read_bytes()[:-300])
    n_rows, error = read_until_error(as_source(path))
    assert n_rows == 18
    assert str(error).startswith("rows.arrow cannot be read from row 18 on: ")
    assert error.row == 18


def test_a_text_file_that_lost_lines_since_it_was_scanned_is_an_error(tmp_path):
    path = save_svmlight(tmp_path, sparse_rows())
    source = as_source(path)
    path.write_text("1 1:1\n")
    n_rows, error = read_until_error(source)
    assert str(error) == (
        "rows.svm must not change while it is read. Its size changed since it was opened. Nothing after row 0 of it "
        "was used; begin again, on a copy that nobody writes to."
    )
    assert (n_rows, error.path, error.row) == (0, path, 0)


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
    parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": matrix.shape}
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
    assert str(read_until_error(as_source(broken, batch_rows=4))[1]) == text.format("the CSR matrix", 8)
    assert str(read_until_error(as_source([broken]))[1]) == text.format("the stream", 8)


@pytest.mark.parametrize("index", [-1, 5, 70_000])
def test_a_column_index_outside_the_matrix_is_named(tmp_path, index):
    good = sp.csr_array(sparse_rows())
    indices = good.indices.copy()
    indices[good.indptr[12]] = index
    path = save_parts_of_csr(tmp_path / "a.npz", indices=indices)
    n_rows, error = read_until_error(as_source(path, batch_rows=4))
    assert str(error) == (
        f"Column indices of a.npz must be in [0, 4]. Row 12 holds {index:,}. "
        "The file or matrix is damaged, or its width is wrong; make it again."
    )
    assert (n_rows, error.row) == (12, 12)


def test_a_svmlight_index_beyond_the_demanded_width_is_named(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1\n1 2:1 4:1\n")
    _, error = read_until_error(as_source(tmp_path / "a.svm", n_features=3))
    assert str(error).startswith("Column indices of a.svm must be in [0, 2]. Row 1 holds 3.")


def test_parts_of_csr_that_do_not_fit_are_an_error(tmp_path):
    for changes in ({"indices": np.zeros(2, int)}, {"shape": (9, 5)}, {"indptr": np.zeros(24)}):
        with pytest.raises(SourceError) as raised:
            as_source(save_parts_of_csr(tmp_path / "a.npz", **changes))
        assert str(raised.value) == (
            "a.npz cannot be opened: data, indices and indptr do not fit together. "
            "It is damaged or holds something else; write or copy it again."
        )
    with pytest.raises(SourceError, match=r"^a.npz cannot be opened: data is not a plain array of numbers"):
        as_source(save_parts_of_csr(tmp_path / "a.npz", data=np.ones((2, 2))))


def test_what_is_not_csr_is_refused(tmp_path):
    text = (
        "{} must be sparse by rows: CSR, or data, indices, indptr and shape in a file. It holds {}. "
        "Convert it with X.tocsr(); save dense rows with numpy.save."
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
    ("line", "shown"),
    [
        ("1 2:x", "1 2:x"),
        ("1 2:1 2:1", "1 2:1 2:1"),
        ("1 3:1 2:1", "1 3:1 2:1"),
        ("1 2:1:1", "1 2:1:1"),
        ("1 2 3", "1 2 3"),
        ("1 2: 3", "1 2: 3"),
        ("1 -2:3", "1 -2:3"),
        ("1 1.5:3", "1 1.5:3"),
        ("1:2 2:3", "1:2 2:3"),
        ("1:2", "1:2 "),
        ("1 " + "x" * 50, "1 " + "x" * 35 + "..."),
    ],
)
def test_a_svmlight_line_that_cannot_be_parsed_is_named(tmp_path, line, shown):
    path = tmp_path / "a.svm"
    path.write_text(f"1 1:1 3:1\n\n# nothing\n1 1:1\n{line}\n1 3:1\n")
    _, error = read_until_error(as_source(path))
    assert str(error) == (
        "Row 2 of a.svm (line 5) must be 'label index:value index:value …' with indices that rise. "
        f"Got {shown!r}. Fix or drop the line and read again."
    )
    assert (error.path, error.row) == (path, 2)


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
    assert str(error) == (
        f"Row 2 of a.csv (line 5) must be {must}. Got {shown!r}. Fix or drop the line and read again."
    )
    assert (n_rows, error.path, error.row) == (2, path, 2)


def test_a_first_line_of_names_and_numbers_is_not_passed_over(tmp_path):
    (tmp_path / "a.csv").write_text("1,,3\n4,5,6\n")
    _, error = read_until_error(as_source(tmp_path / "a.csv"))
    assert str(error) == "Row 0 of a.csv (line 1) must be all numbers. Got ''. Fix or drop the line and read again."


def test_csv_numbers_that_only_python_reads_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("1,2\n1_0,2\n")
    _, error = read_until_error(as_source(tmp_path / "a.csv"))
    assert str(error) == (
        "a.csv cannot be read from row 0 on: its lines are not numbers. "
        "The rows before were read; write or copy it again."
    )


# Paths and other things


def test_a_missing_file_is_a_missing_file(tmp_path):
    for suffix in SUFFIXES.split(", "):
        if suffix in (".parquet", ".arrow", ".feather"):
            pytest.importorskip("pyarrow")
        with pytest.raises(FileNotFoundError, match=f"nowhere{suffix}"):
            as_source(tmp_path / f"nowhere{suffix}")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        as_source(tmp_path / "nowhere")


def test_an_unknown_suffix_is_refused(tmp_path):
    (tmp_path / "a.npy.gz").touch()
    for data in (tmp_path / "a.npy.gz", tmp_path):
        with pytest.raises(SourceError) as raised:
            as_source(data)
        assert str(raised.value) == (
            f"The name of a data file must end in one of {SUFFIXES}. Got a.npy.gz. "
            "Rename or convert it; in a directory, move it elsewhere or pass the list of the files to read."
        )


def test_an_empty_directory_is_an_error(tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / ".hidden.npy").touch()
    with pytest.raises(SourceError) as raised:
        as_source(tmp_path / "parts")
    assert str(raised.value) == (
        f"The directory parts must hold files of the kinds {SUFFIXES}. It holds none. Check the path."
    )


def test_files_that_do_not_fit_together_are_named(tmp_path):
    text = "Files that are read together must agree in {}. a{}, but b{}. Leave one out or make them alike."
    save_npy(tmp_path, np.ones((3, 1200)), "a.npy")
    save_npy(tmp_path, np.ones((3, 2)), "b.npy")
    save_npz(tmp_path, np.ones((3, 2)), "b.npz")
    save_csv(tmp_path, np.ones((3, 2)), "a.csv", header="x,y")
    save_csv(tmp_path, np.ones((3, 2)), "b.csv", header="x,z")
    for first, second, expected in (
        ("a.npy", "b.npy", text.format("width", ".npy has 1,200 columns", ".npy has 2")),
        ("a.csv", "b.npz", text.format("kind", ".csv has dense rows", ".npz has sparse rows")),
        ("a.csv", "b.csv", text.format("their columns", ".csv has 'y' in column 1", ".csv has 'z'")),
    ):
        with pytest.raises(SourceError) as raised:
            as_source([tmp_path / first, tmp_path / second])
        assert str(raised.value) == expected
        assert raised.value.path == tmp_path / second


@pytest.mark.parametrize("data", [3, None, {"a": 1}, b"rows.npy", {1, 2}])
def test_what_is_no_data_is_refused(data):
    with pytest.raises(TypeError) as raised:
        as_source(data)
    assert str(raised.value) == (
        "`data` must be a 2-D array, a CSR matrix, the path of a file or directory, a list of paths, an Arrow table or "
        "stream, an iterable of 2-D arrays, or a callable that returns a fresh iterator of them. "
        f"Got {type(data).__name__}. Convert it with numpy.asarray."
    )


def test_without_pyarrow_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "a.parquet").touch()
    with pytest.raises(ModuleNotFoundError) as raised:
        as_source(tmp_path / "a.parquet")
    assert str(raised.value) == (
        "Reading a.parquet needs pyarrow. It is not installed. Run: pip install 'odeco[arrow]'."
    )


# Memory

READ_AND_MEASURE = """
import sys, numpy, psutil
from odeco.sources import as_source
process = psutil.Process()
before = peak = process.memory_info().rss
data = numpy.load(sys.argv[1], mmap_mode="r") if sys.argv[2] == "map" else sys.argv[1]
n_rows = 0
for block in as_source(data):
    n_rows += len(block)
    peak = max(peak, process.memory_info().rss)
print(n_rows, peak - before)
"""


@pytest.mark.parametrize(("order", "how"), [("C", "path"), ("F", "path"), ("C", "map")])
def test_memory_does_not_grow_with_the_file(tmp_path, order, how):
    pytest.importorskip("psutil")
    if how == "map" and not hasattr(__import__("mmap"), "MADV_DONTNEED"):
        pytest.skip("pages cannot be given back here")
    path = tmp_path / "rows.npy"
    # 300 MB of zeros that take no room on the disk.
    np.lib.format.open_memmap(path, "w+", np.float32, (75_000, 1000), fortran_order=order == "F").flush()
    command = [sys.executable, "-c", textwrap.dedent(READ_AND_MEASURE), str(path), how]
    n_rows, growth = map(int, subprocess.run(command, check=True, capture_output=True).stdout.split())
    assert n_rows == 75_000
    # Two stretches of 16 MB; the rest is room for the allocator.
    assert growth < 60e6
