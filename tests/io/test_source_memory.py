"""Memory does not grow with the file that is read."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from odeco.io import as_source

READ_AND_MEASURE = """
import sys, numpy, psutil
from odeco.io import as_source
process = psutil.Process()
before = peak = process.memory_info().rss
data = numpy.load(sys.argv[1], mmap_mode="r") if sys.argv[2] == "map" else sys.argv[1]
n_rows = 0
for block in as_source(data):
    n_rows += len(block)
    peak = max(peak, process.memory_info().rss)
print(n_rows, peak - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("order", "how"), [("C", "path"), ("F", "path"), ("C", "map")])
def test_memory_does_not_grow_with_the_file(tmp_path, order, how):
    pytest.importorskip("psutil")
    if how == "map" and not hasattr(__import__("mmap"), "MADV_DONTNEED"):
        pytest.skip("pages cannot be given back here")
    path = tmp_path / "rows.npy"
    # 300 MB of zeros that take no room on the disk.
    np.lib.format.open_memmap(
        path, "w+", np.float32, (75_000, 1000), fortran_order=order == "F"
    ).flush()
    command = [sys.executable, "-c", textwrap.dedent(READ_AND_MEASURE), str(path), how]
    n_rows, growth = map(
        int, subprocess.run(command, check=True, capture_output=True).stdout.split()
    )
    assert n_rows == 75_000
    # Two stretches of 16 MB; the rest is room for the allocator.
    assert growth < 60e6


READ_A_TABLE = """
import sys, psutil
sys.path.insert(0, sys.argv[3])
import pyarrow.parquet
from odeco.io import as_source
path, how = sys.argv[1:3]
if how == "polars lazy":
    import polars
    data = polars.scan_parquet(path)
elif how == "duckdb":
    import duckdb
    data = duckdb.connect(config={"threads": 2}).sql(f"select * from '{path}'")
elif how == "s3":
    import pathlib
    from kinds import Store
    data = Store.shared().put(pathlib.Path(path))
else:
    data = path
process = psutil.Process()
before = peak = process.memory_info().rss
n_rows = 0
for block in as_source(data):
    n_rows += len(block)
    peak = max(peak, process.memory_info().rss)
print(n_rows, peak - before)
"""

#: Bytes of a whole file as numbers, and of one row group.
_TABLE, _GROUP = 800e6, 8e6


@pytest.mark.slow
@pytest.mark.parametrize("how", ["path", "s3", "polars lazy", "duckdb"])
def test_memory_does_not_grow_with_the_table(tmp_path, how):
    for module in ("psutil", "polars", "duckdb", "moto.server"):
        pytest.importorskip(module)
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "rows.parquet"
    rows = (
        np.random.default_rng(0).integers(0, 9, (10_000, 100)).astype(float)
    )  # small numbers take few bytes
    group = arrow.table({f"x{i}": rows[:, i] for i in range(100)})
    with parquet.ParquetWriter(path, group.schema) as writer:
        for _ in range(round(_TABLE / _GROUP)):
            writer.write_table(group)
    command = [
        sys.executable,
        "-c",
        textwrap.dedent(READ_A_TABLE),
        str(path),
        how,
        str(Path(__file__).parent),
    ]
    last = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[
        -1
    ]
    n_rows, growth = map(int, last.split())
    assert n_rows == 10_000 * round(_TABLE / _GROUP)
    # Half of the table: other libraries keep some row groups per thread, and none of them keeps
    # all.
    assert growth < _TABLE / 2


@pytest.mark.parametrize("n_columns", [3, 40, 300])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_blocks_that_are_kept_stay_as_they_are(tmp_path, n_columns, dtype):
    """Memory of blocks is used again, but never that of a block to which any view still refers."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = np.random.default_rng(0).standard_normal((700, n_columns)).astype(dtype)
    path = tmp_path / "rows.parquet"
    parquet.write_table(
        arrow.table({f"x{i}": rows[:, i] for i in range(n_columns)}), path, row_group_size=150
    )
    np.testing.assert_array_equal(np.concatenate(list(as_source(path, batch_rows=40))), rows)
    views, at = [], 0
    for place, block in enumerate(as_source(path, batch_rows=40)):
        if place % 3:  # of the other blocks nothing is kept
            views.append(
                (at, block.T[1:, ::2].reshape(-1)[:7] if place % 2 else memoryview(block[1]))
            )
        at += len(block)
    for at, view in views:
        if isinstance(view, memoryview):
            np.testing.assert_array_equal(view, rows[at + 1])
        else:
            np.testing.assert_array_equal(view[:5], rows[at : at + 10 : 2, 1])
