"""Models take the files, queries and lists that streams take, and learn the same from them."""

from __future__ import annotations

import numpy as np
import pytest
from kinds import Store, save_parquet

from odeco import models

RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((300, 3)) + 4 * np.eye(3)[RNG.integers(0, 3, 300)]
MODELS = {
    "mixture": lambda: models.TensorMixture(3, random_state=0),
    "hidden Markov model": lambda: models.TensorHMM(3, emissions="gaussian", random_state=0),
    "independent components": lambda: models.TensorICA(2, random_state=0),
}
SOURCES = {
    "path": save_parquet,
    "url": lambda folder, rows: Store.shared().put(save_parquet(folder, rows)),
    "polars lazy": lambda folder, rows: pytest.importorskip("polars").scan_parquet(save_parquet(folder, rows)),
    "duckdb": lambda folder, rows: pytest.importorskip("duckdb").sql(f"from '{save_parquet(folder, rows)}'"),
    "lists": lambda folder, rows: pytest.importorskip("polars").Series("x", rows).to_frame(),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_learns_the_same_from_every_source(name, source, tmp_path):
    pytest.importorskip("pyarrow")
    data, expected = SOURCES[source](tmp_path, ROWS), MODELS[name]().fit(ROWS)
    model = MODELS[name]().fit(data)
    ask = "transform" if name == "independent components" else "predict"
    np.testing.assert_array_equal(getattr(model, ask)(data), getattr(expected, ask)(ROWS))
