"""Rows a second from every kind of store and table, beside the same bytes read with pyarrow, polars
or DuckDB alone.

    python benchmarks/sources.py [--rows N] [--columns D] [--repeats R]

Ours yields checked float64 blocks of rows. The other side reads every record batch of the same
source with the library that owns it, one batch after the other, and makes no rows of them
("alone"); "as rows" also makes a row-major float64 array of every batch, which is the least that an
algorithm over rows needs. A DataFrame of polars is in memory already, so there is nothing to read,
and "alone" is its own `to_numpy(order="c")`. CPU and elapsed times of both sides are taken in turn,
and the best of each counts. The S3 endpoint is moto's server in a process of its own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars
import pyarrow as arrow
from pyarrow import dataset, fs, parquet

from odeco.io import as_source

_SERVE = """
import logging, sys, time
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""

_GROUP = 20_000


def write(folder: Path, n_rows: int, n_columns: int) -> None:
    """Write the same rows as one Parquet file, as a file of lists, and as a Hive folder."""
    generator = np.random.default_rng(0)
    rows = generator.standard_normal((n_rows, n_columns))
    plain = arrow.table({f"x{i}": rows[:, i] for i in range(n_columns)})
    lists = arrow.table(
        {"x": arrow.FixedSizeListArray.from_arrays(arrow.array(rows.ravel()), n_columns)}
    )
    options = {"row_group_size": _GROUP, "use_dictionary": False, "compression": "snappy"}
    parquet.write_table(plain, folder / "rows.parquet", **options)
    parquet.write_table(lists, folder / "lists.parquet", **options)
    step = -(-n_rows // 4)
    for day in range(4):
        (folder / "hive" / f"day={day}").mkdir(parents=True)
        parquet.write_table(
            plain.slice(day * step, step),
            folder / "hive" / f"day={day}" / "rows.parquet",
            **options,
        )


def read_parquet(*files: Any) -> Iterator[Any]:
    """Read Parquet files with pyarrow alone, one row group at a time."""
    for file in files:
        yield from parquet.ParquetFile(file, pre_buffer=not isinstance(file, Path)).iter_batches(
            _GROUP
        )


def as_rows(batch: Any) -> Any:
    """Return a record batch as a row-major array."""
    if isinstance(batch, np.ndarray):
        return batch
    first = batch.column(0)
    if hasattr(first, "flatten") and hasattr(first.type, "list_size"):
        return first.flatten().to_numpy().reshape(batch.num_rows, -1).copy()
    return np.column_stack([column.to_numpy(zero_copy_only=False) for column in batch.columns])


def seconds(run: Callable[[], int]) -> tuple[float, float]:
    """Return CPU and elapsed seconds of a run."""
    cpu, wall = time.process_time(), time.perf_counter()
    run()
    return time.process_time() - cpu, time.perf_counter() - wall


def compare(
    name: str,
    n_rows: int,
    data: Callable[[], Any],
    alone: Callable[[], Iterator[Any]],
    repeats: int,
) -> None:
    """Print one row of the table."""
    runs: list[Callable[[], int]] = [
        lambda: sum(len(block) for block in as_source(data())),
        lambda: sum(batch.shape[0] for batch in alone()),
        lambda: sum(len(as_rows(batch)) for batch in alone()),
    ]
    assert {run() for run in runs} == {n_rows}
    taken = np.array([[seconds(run) for run in runs] for _ in range(repeats)]).min(axis=0)
    cpu, wall = taken[1:, 0] / taken[0, 0], taken[1:, 1] / taken[0, 1]
    print(
        (
            f"{name:>22} {n_rows / taken[0, 1] / 1e6:14.3f} {wall[0]:18.2f} {cpu[0]:8.2f} "
            f"{wall[1]:18.2f} {cpu[1]:8.2f}"
        ),
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    os.environ |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    print(
        f"{given.rows:,} rows of {given.columns} float64 columns; others' time / ours, elapsed "
        "and CPU"
    )
    print(
        f"{'source':>22} {'million rows/s':>14} {'alone':>18} {'CPU':>8} {'alone, as rows':>18} "
        f"{'CPU':>8}"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, given.rows, given.columns)
        hive = sorted((folder / "hive").rglob("*.parquet"))
        plain, lists = folder / "rows.parquet", folder / "lists.parquet"

        def show(name: str, data: Callable[[], Any], alone: Callable[[], Iterator[Any]]) -> None:
            compare(name, given.rows, data, alone, given.repeats)

        show("Parquet", lambda: plain, lambda: read_parquet(plain))
        show("Parquet, lists", lambda: lists, lambda: read_parquet(lists))
        show("Hive folder", lambda: folder / "hive", lambda: read_parquet(*hive))
        show(
            "pyarrow dataset",
            lambda: dataset.dataset(plain),
            lambda: dataset.dataset(plain).to_batches(),
        )
        frame = polars.read_parquet(plain)
        show("polars DataFrame", lambda: frame, lambda: iter([frame.to_numpy(order="c")]))
        show("polars LazyFrame", lambda: polars.scan_parquet(plain), lambda: _of_polars(plain))
        show(
            "DuckDB relation",
            lambda: _query(plain),
            lambda: iter(_query(plain).to_arrow_reader(_GROUP)),
        )
        with subprocess.Popen(
            [sys.executable, "-c", _SERVE], stdin=-1, stdout=-1, text=True
        ) as server:
            assert server.stdout is not None
            port = _port(server.stdout)
            files = fs.S3FileSystem(
                endpoint_override=f"127.0.0.1:{port}",
                scheme="http",
                region="us-east-1",
                allow_bucket_creation=True,
            )
            files.create_dir("bucket")
            with files.open_output_stream("bucket/rows.parquet") as out:
                out.write(plain.read_bytes())
            url = f"s3://bucket/rows.parquet?endpoint_override=127.0.0.1%3A{port}&scheme=http&region=us-east-1"
            show(
                "S3",
                lambda: url,
                lambda: read_parquet(files.open_input_file("bucket/rows.parquet")),
            )
            server.terminate()


def _port(lines: Any) -> int:
    return next(int(line) for line in lines if line.strip().isdigit())


def _query(path: Path) -> Any:
    return duckdb.connect().sql(f"from '{path}'")


def _of_polars(path: Path) -> Iterator[Any]:
    for frame in polars.scan_parquet(path).collect_batches(chunk_size=_GROUP):
        yield from frame.to_arrow().to_batches()


if __name__ == "__main__":
    main()
