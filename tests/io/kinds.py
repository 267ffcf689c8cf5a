"""Rows as a user may hold them: every kind of array, file, stream and table that `as_source` reads."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp

from odeco.errors import SourceError
from odeco.io import as_source

N_ROWS, N_FEATURES = 23, 5


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


def read_until_error(source):
    """Return how many rows came before the error, and the error."""
    n_rows = 0
    try:
        for block in source:
            n_rows += block.shape[0]
    except SourceError as error:
        return n_rows, error
    pytest.fail("no error was raised")


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
