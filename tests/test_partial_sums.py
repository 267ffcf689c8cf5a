"""Sums over parts of the rows, computed by any engine, add up to the moment of all rows."""

from __future__ import annotations

import os
import shutil
import sys

import numpy as np
import pytest
import scipy.sparse as sp

import odeco
from odeco.online import PartialSum

RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((3_000, 6))
QUERY = RNG.standard_normal((6, 4))


@pytest.mark.parametrize("order", [2, 3, 4])
@pytest.mark.parametrize(
    "as_block", [np.asarray, sp.csr_array, lambda rows: [rows[:10], rows[10:]]]
)
def test_partial_sums_add_up_to_the_moment_of_all_rows(order, as_block):
    parts = [
        odeco.partial_sum(as_block(part), QUERY, order=order) for part in np.array_split(ROWS, 7)
    ]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole + part
    assert whole.n_rows == len(ROWS)
    np.testing.assert_allclose(
        whole.mean, ROWS.T @ (ROWS @ QUERY) ** (order - 1) / len(ROWS), rtol=1e-10
    )


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="must be a finite d x L array"):
        odeco.partial_sum(ROWS, QUERY[:, 0])
    with pytest.raises(odeco.SourceError, match="must have 5 columns"):
        odeco.partial_sum(ROWS, QUERY[:5])
    with pytest.raises(odeco.SourceError, match="Row 1 of the array holds NaN in column 0"):
        odeco.partial_sum(np.array([[1.0] * 6, [np.nan] * 6]), QUERY)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_spark_computes_a_query(monkeypatch):
    sql, arrow = pytest.importorskip("pyspark.sql"), pytest.importorskip("pyarrow")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    spark = (
        sql.SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    query = QUERY

    def add_up(batches):
        part = odeco.partial_sum(arrow.Table.from_batches(list(batches)), query)
        yield arrow.record_batch({"n_rows": [part.n_rows], "total": [part.total.tobytes()]})

    try:
        frame = spark.createDataFrame(
            arrow.table({f"x{i}": ROWS[:, i] for i in range(6)}).to_pandas()
        )
        parts = frame.mapInArrow(add_up, "n_rows long, total binary").collect()
    finally:
        spark.stop()
    assert len(parts) == 2
    sums = [
        PartialSum(part.n_rows, np.frombuffer(part.total).reshape(QUERY.shape)) for part in parts
    ]
    whole = sums[0] + sums[1]
    assert whole.n_rows == len(ROWS)
    np.testing.assert_allclose(whole.mean, odeco.partial_sum(ROWS, QUERY).mean, rtol=1e-12)
