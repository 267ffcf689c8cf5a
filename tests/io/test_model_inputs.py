"""Models take the files, queries and lists that streams take, and learn the same from them."""

from __future__ import annotations

import numpy as np
import pytest
from kinds import Store, save_parquet

from odeco import models
from odeco.errors import SourceError
from odeco.io import as_source

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
    "polars lazy": lambda folder, rows: pytest.importorskip("polars").scan_parquet(
        save_parquet(folder, rows)
    ),
    "duckdb": lambda folder, rows: pytest.importorskip("duckdb").sql(
        f"from '{save_parquet(folder, rows)}'"
    ),
    "lists": lambda folder, rows: pytest.importorskip("polars").Series("x", rows).to_frame(),
}


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_learns_the_same_from_every_source(name, source, tmp_path):
    pytest.importorskip("pyarrow")
    data, expected = SOURCES[source](tmp_path, ROWS), MODELS[name]().fit(ROWS)
    model = MODELS[name]().fit(data)
    ask = "transform" if name == "independent components" else "predict"
    np.testing.assert_array_equal(getattr(model, ask)(data), getattr(expected, ask)(ROWS))


GAPS = np.where(np.random.default_rng(1).random(ROWS.shape) < 0.2, np.nan, ROWS)


def save_gaps(folder, rows):
    """Write a table with nulls, as Parquet."""
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table(
        {f"x{i}": arrow.array(rows[:, i], mask=np.isnan(rows[:, i])) for i in range(rows.shape[1])}
    )
    pytest.importorskip("pyarrow.parquet").write_table(table, folder / "gaps.parquet")
    return folder / "gaps.parquet"


def save_gaps_as_text(folder, rows, missing=""):
    lines = [
        ",".join(missing if np.isnan(cell) else repr(float(cell)) for cell in row) for row in rows
    ]
    (folder / "gaps.csv").write_text("\n".join(["x0,x1,x2", *lines]))
    return folder / "gaps.csv"


def lists_with_nulls(folder, rows):
    polars = pytest.importorskip("polars")
    cells = [[None if np.isnan(cell) else cell for cell in row] for row in rows]
    return polars.DataFrame({"x": cells}, schema={"x": polars.Array(polars.Float64, rows.shape[1])})


WITH_GAPS = {
    "parquet": save_gaps,
    "csv": save_gaps_as_text,
    "csv with NA": lambda folder, rows: save_gaps_as_text(folder, rows, " NA "),
    "csv with nan": lambda folder, rows: save_gaps_as_text(folder, rows, "nan"),
    "url": lambda folder, rows: Store.shared().put(save_gaps(folder, rows)),
    "polars lazy": lambda folder, rows: pytest.importorskip("polars").scan_parquet(
        save_gaps(folder, rows)
    ),
    "duckdb": lambda folder, rows: pytest.importorskip("duckdb").sql(
        f"from '{save_gaps(folder, rows)}'"
    ),
    "lists": lists_with_nulls,
    "pandas": lambda _, rows: pytest.importorskip("pandas").DataFrame(rows).convert_dtypes(),
}


@pytest.mark.parametrize("source", WITH_GAPS)
@pytest.mark.parametrize("name", MODELS)
def test_missing_values_of_every_source_are_learnt_from_or_refused_by_name(name, source, tmp_path):
    pytest.importorskip("pyarrow")
    data = WITH_GAPS[source](tmp_path, GAPS)
    if name == "independent components":
        place = np.argwhere(np.isnan(GAPS))[0]
        column = "'x' " if source == "lists" else rf"'?x?{place[1]}\b"
        with pytest.raises(ValueError, match=rf"[Rr]ow {place[0]}\b.*column {column}"):
            MODELS[name]().fit(data)
        return
    # Tables come by columns, which changes the last bits of products.
    expected, model = MODELS[name]().fit(GAPS), MODELS[name]().fit(data)
    np.testing.assert_allclose(model.means_, expected.means_, atol=1e-6)
    np.testing.assert_allclose(model.predict_proba(data), expected.predict_proba(GAPS), atol=1e-6)


def test_a_source_reads_missing_values_only_if_it_is_asked_to(tmp_path):
    for save in (save_gaps, save_gaps_as_text):
        path = save(tmp_path, GAPS)
        rows = np.concatenate(list(as_source(path, nulls_are_nan=True, batch_rows=70)))
        np.testing.assert_array_equal(rows, GAPS)
        with pytest.raises(SourceError, match="in column 'x"):
            list(as_source(path))
    path = save_gaps_as_text(tmp_path, GAPS)
    path.write_text(path.read_text() + "\n1,none of it,3")
    with pytest.raises(SourceError, match=r"Row 300 .* Got 'none of it' in column 'x1'"):
        list(as_source(tmp_path / "gaps.csv", nulls_are_nan=True))
    save_gaps_as_text(tmp_path, GAPS, "none of it")
    with pytest.raises(SourceError, match="Got 'none of it' in column 'x"):
        list(as_source(tmp_path / "gaps.csv", nulls_are_nan=True))
    np.save(tmp_path / "rows.npy", np.where(GAPS > 4, np.inf, GAPS))
    with pytest.raises(SourceError, match="holds infinity in column"):
        list(as_source(tmp_path / "rows.npy", nulls_are_nan=True))
