"""Rows as a user may hold them: every kind of array, file, stream and table that `as_source`
reads.
"""

from __future__ import annotations

import atexit
import logging
import os
import uuid
from decimal import Decimal
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
    """What pandas looks like from here: brackets are for columns, and Arrow would give the index
    too.
    """

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


def save_csv(folder, rows, name="rows.csv", header="", delimiter=","):
    np.savetxt(folder / name, rows, delimiter=delimiter, header=header, comments="", fmt="%.17g")
    return folder / name


def as_table(rows):
    arrow = pytest.importorskip("pyarrow")
    return arrow.table({f"x{i}": np.ascontiguousarray(rows[:, i]) for i in range(rows.shape[1])})


def save_parquet(folder, rows, name="rows.parquet", row_group_size=7):
    table = as_table(rows)
    pytest.importorskip("pyarrow.parquet").write_table(
        table, folder / name, row_group_size=row_group_size
    )
    return folder / name


def save_feather(folder, rows, name="rows.feather", chunksize=9):
    table = as_table(rows)
    pytest.importorskip("pyarrow.feather").write_feather(
        table, str(folder / name), chunksize=chunksize
    )
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


def save_hive(folder, rows):
    for day, start in enumerate((0, 9, 15)):
        (folder / "hive" / f"year=1/day={day}").mkdir(parents=True)
        save_parquet(folder / "hive" / f"year=1/day={day}", rows[start : (9, 15, N_ROWS)[day]])
    (folder / "hive" / "_SUCCESS").touch()
    return folder / "hive"


def as_lists(rows, kind="fixed"):
    """Return a table whose middle columns are lists, as embeddings are stored."""
    arrow = pytest.importorskip("pyarrow")
    list_type = arrow.list_(arrow.float64(), 3) if kind == "fixed" else arrow.list_(arrow.float64())
    lists = arrow.array(rows[:, 1:4].tolist(), list_type)
    return arrow.table(
        {"a": rows[:, 0], "embedding": lists, "z": arrow.array(rows[:, 4]).dictionary_encode()}
    )


def save_lists(folder, rows, kind):
    pytest.importorskip("pyarrow.parquet").write_table(
        as_lists(rows, kind), folder / "lists.parquet", row_group_size=7
    )
    return folder / "lists.parquet"


def as_other_types(rows):
    """Return a table of decimals, a tensor and plain numbers, as DuckDB and libraries of datasets
    make them.
    """
    arrow = pytest.importorskip("pyarrow")
    exact = [[Decimal(repr(number)) for number in column] for column in rows.T.tolist()]
    tensors = arrow.array(rows[:, 2:4].tolist(), arrow.list_(arrow.float64(), 2))
    return arrow.table(
        {
            "a": arrow.array(exact[0], arrow.decimal128(12, 6)),
            "b": arrow.array(exact[1], arrow.decimal256(60, 6)),
            "c": arrow.ExtensionArray.from_storage(
                arrow.fixed_shape_tensor(arrow.float64(), [2]), tensors
            ),
            "d": rows[:, 4],
        }
    )


def save_other_types(folder, rows):
    pytest.importorskip("pyarrow.parquet").write_table(
        as_other_types(rows), folder / "types.parquet", row_group_size=7
    )
    return folder / "types.parquet"


def as_polars(rows):
    return pytest.importorskip("polars").DataFrame(rows, schema=list("abcde"))


def scan_with_polars(folder, rows):
    return pytest.importorskip("polars").scan_parquet(save_parquet(folder, rows))


def query_with_duckdb(folder, rows):
    return (
        pytest.importorskip("duckdb").connect().sql(f"select * from '{save_parquet(folder, rows)}'")
    )


def in_dataset(folder, rows):
    return pytest.importorskip("pyarrow.dataset").dataset(str(save_parquet(folder, rows)))


class OnlyAStream:
    """What the Arrow stream protocol asks for, and nothing else."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, schema=None):
        return self._table.__arrow_c_stream__(schema)


class Store:
    """A bucket of an S3 endpoint on this machine; the process that serves it is started when it is
    first used.
    """

    _server = None

    @classmethod
    def start(cls):
        moto = pytest.importorskip("moto.server")
        os.environ |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        server = moto.ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
        server.start()
        atexit.register(server.stop)
        return cls(server)

    @classmethod
    def shared(cls):
        if cls._server is None:
            cls._server = cls.start()
        return cls._server

    def __init__(self, server):
        self.server = server
        host, port = server.get_host_and_port()
        self.query = f"?endpoint_override={host}%3A{port}&scheme=http&region=us-east-1"
        fs = pytest.importorskip("pyarrow.fs")
        options = {"endpoint_override": f"{host}:{port}", "scheme": "http", "region": "us-east-1"}
        self.files = fs.S3FileSystem(
            allow_bucket_creation=True, allow_bucket_deletion=True, **options
        )

    def put(self, path):
        """Copy a file or folder into a bucket of its own, and return its URL."""
        fs = pytest.importorskip("pyarrow.fs")
        bucket = f"bucket-{uuid.uuid4().hex}"
        self.files.create_dir(bucket)
        if path.is_dir():
            fs.copy_files(str(path), f"{bucket}/{path.name}", None, self.files)
        else:
            with self.files.open_output_stream(f"{bucket}/{path.name}", compression=None) as file:
                file.write(path.read_bytes())
        return f"s3://{bucket}/{path.name}{self.query}"


def in_store(save):
    """Return what saves rows in an object store instead."""
    return lambda folder, rows: Store.shared().put(save(folder, rows))


def in_memory_store(folder, rows):
    """Save rows in a file system of fsspec, as those of hf:// and https:// are."""
    files = pytest.importorskip("fsspec").filesystem("memory")
    files.pipe(f"{folder}/rows.parquet", save_parquet(folder, rows).read_bytes())
    return f"memory://{folder}/rows.parquet"


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
    "csv with gzip": lambda folder, rows: save_csv(folder, rows, "rows.csv.gz"),
    "tsv with gzip": lambda folder, rows: save_csv(
        folder, rows, "rows.tsv.gz", delimiter="\t", header="a\tb\tc\td\te"
    ),
    "parquet": save_parquet,
    "feather": save_feather,
    "arrow stream file": save_arrow_stream,
    "arrow table": lambda folder, rows: as_table(rows),
    "arrow table of lists": lambda folder, rows: as_lists(rows),
    "object with a stream": lambda folder, rows: OnlyAStream(as_table(rows)),
    "arrow dataset": in_dataset,
    "parquet of fixed-size lists": partial(save_lists, kind="fixed"),
    "parquet of lists": partial(save_lists, kind="any"),
    "parquet of decimals and tensors": save_other_types,
    "arrow table of decimals and tensors": lambda folder, rows: as_other_types(rows),
    "hive folder": save_hive,
    "polars": lambda folder, rows: as_polars(rows),
    "polars lazy": scan_with_polars,
    "duckdb": query_with_duckdb,
    "s3 parquet": in_store(save_parquet),
    "s3 parquet of lists": in_store(partial(save_lists, kind="any")),
    "s3 feather": in_store(save_feather),
    "s3 arrow stream": in_store(save_arrow_stream),
    "s3 npy": in_store(save_npy),
    "s3 npy by columns": in_store(lambda folder, rows: save_npy(folder, np.asfortranarray(rows))),
    "s3 csv": in_store(save_csv),
    "s3 csv with gzip": in_store(lambda folder, rows: save_csv(folder, rows, "rows.csv.gz")),
    "s3 directory": in_store(lambda folder, rows: save_parts(folder, rows, save_npy, ".npy")),
    "s3 hive folder": in_store(save_hive),
    "s3 pattern": lambda folder, rows: in_store(save_hive)(folder, rows).replace(
        "?", "/year=*/day=*/*.parquet?"
    ),
    "fsspec parquet": in_memory_store,
    "directory of npy": lambda folder, rows: save_parts(folder, rows, save_npy, ".npy"),
    "directory of csv": lambda folder, rows: save_parts(folder, rows, save_csv, ".csv"),
    "directory of parquet": lambda folder, rows: save_parts(folder, rows, save_parquet, ".parquet"),
    "list of paths": lambda folder, rows: [
        save_npy(folder, rows[:9]),
        str(save_csv(folder, rows[9:])),
    ],
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
    "s3 npz": in_store(save_npz),
    "s3 npz not compressed": in_store(partial(save_npz, compressed=False)),
    "directory of npz": lambda folder, rows: save_parts(folder, rows, save_npz, ".npz"),
    "iterable of CSR": lambda folder, rows: [sp.csr_matrix(block) for block in cut(rows)],
    "own source of CSR": lambda folder, rows: OwnSource(
        [sp.csr_array(block) for block in cut(rows)]
    ),
}
KINDS = [(name, make, dense_rows()) for name, make in DENSE.items()]
KINDS += [(name, make, sparse_rows()) for name, make in SPARSE.items()]
