"""Data that must be refused with the file, the column or the reason, and not with an error of
another library.
"""

from __future__ import annotations

import numpy as np
import pytest

import odeco
from odeco import models
from odeco.cli.app import run as run_command
from odeco.io.graphs import read_graph
from odeco.io.tables import read_text_table

RNG = np.random.default_rng(0)
NUMBERS = np.ma.masked_array(RNG.normal(size=(60, 4)), mask=RNG.random((60, 4)) < 0.1)
CODES = np.ma.masked_array(RNG.integers(0, 3, size=(60, 4)), mask=NUMBERS.mask)
GRAPH = np.ma.masked_array(np.ones((40, 40)), mask=np.eye(40, dtype=bool))
PRIVATE = {"epsilon": 1.0, "delta": 1e-6}
MASKED = {
    "mixture": lambda: models.TensorMixture(2).fit(NUMBERS),
    "mixture, stream": lambda: models.TensorMixture(2).partial_fit(NUMBERS),
    "mixture, private": lambda: models.TensorMixture(2, norm_bound=1.0, **PRIVATE).fit(NUMBERS),
    "mixture, predict": lambda: (
        models.TensorMixture(2, random_state=0).fit(NUMBERS.data).predict(NUMBERS)
    ),
    "hidden Markov model": lambda: models.TensorHMM(2).fit(NUMBERS),
    "symbols, private": lambda: models.TensorHMM(
        2, emissions="categorical", n_symbols=3, **PRIVATE
    ).fit(CODES[:, :1]),
    "independent components": lambda: models.TensorICA(2).fit(NUMBERS),
    "latent classes": lambda: models.LatentClasses(2).fit(CODES),
    "latent classes, private": lambda: models.LatentClasses(2, **PRIVATE).fit(
        CODES, categories=[3] * 4
    ),
    "topics": lambda: models.TensorLDA(2).fit(CODES),
    "topics, stream": lambda: models.TensorLDA(2).partial_fit(CODES),
    "topics, private": lambda: models.TensorLDA(2, **PRIVATE).fit(CODES),
    "communities": lambda: models.Communities(2).fit(GRAPH),
    "stream": lambda: odeco.decompose_stream(NUMBERS, 2),
    "iterator": lambda: odeco.decompose_stream(iter([NUMBERS]), 2),
    "pushed": lambda: odeco.OnlineDecomposer(2).partial_fit(NUMBERS),
    "private": lambda: odeco.decompose_privately(
        NUMBERS, 2, unit="record", norm_bound=1.0, **PRIVATE
    ),
}


@pytest.mark.parametrize("name", MASKED)
def test_a_masked_array_is_refused_wherever_rows_enter(name):
    with pytest.raises((TypeError, ValueError), match=r"must not be masked\. Got a MaskedArray"):
        MASKED[name]()


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
def test_a_nested_column_of_a_table_is_named(suffix, tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import feather, parquet

    path = tmp_path / f"t{suffix}"
    table = arrow.table({"a": [1.0, 2.0], "b": [{"x": 1}, {"x": 2}], "c": [[1, 2], [3]]})
    parquet.write_table(table, path) if suffix == ".parquet" else feather.write_feather(
        table, str(path)
    )
    with pytest.raises(ValueError, match="Column 'b' holds struct<x: int64>"):
        read_text_table(path)
    with pytest.raises(odeco.SourceError, match="Column 'b' holds struct<x: int64>"):
        odeco.decompose_stream(path, 1)
    with pytest.raises(odeco.SourceError, match="Column 'b' holds struct<x: int64>"):
        odeco.decompose_stream(table, 1)


MODELS = {
    "mixture": models.TensorMixture,
    "hidden Markov model": models.TensorHMM,
    "independent components": models.TensorICA,
    "latent classes": models.LatentClasses,
    "topics": models.TensorLDA,
    "communities": models.Communities,
}


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize("name", MODELS)
def test_a_nested_column_of_a_table_in_memory_is_named_by_every_model(name, method):
    arrow, pandas = pytest.importorskip("pyarrow"), pytest.importorskip("pandas")
    columns = {"a": [1.0, 2.0, 3.0], "c": [[1, 2], [3], []]}
    tables = {
        "list<item: int64>": arrow.table(columns),
        "struct<x: int64>": arrow.table({"a": [1.0, 2.0], "c": [{"x": 1}, {"x": 2}]}),
        "a list": pandas.DataFrame(columns),
    }
    for kind, table in tables.items():
        with pytest.raises(TypeError, match=f"Column 'c' holds {kind}. Write its parts as columns"):
            getattr(MODELS[name](2), method)(table)


@pytest.mark.parametrize("cells", [[[1, 2], [3]], ["x", "y"]])
def test_a_column_of_a_pandas_table_that_holds_no_numbers_is_named_by_streams(cells):
    table = pytest.importorskip("pandas").DataFrame({"a": [1.0, 2.0], "c": cells})
    with pytest.raises(odeco.SourceError, match=r"Column 'c' holds (object|str)"):
        odeco.decompose_stream(table, 1)


def test_texts_in_an_adjacency_matrix_are_refused():
    arrow = pytest.importorskip("pyarrow")
    with pytest.raises(TypeError, match="An adjacency matrix must hold numbers"):
        models.Communities(2).fit(arrow.table({"a": [1.0, 2.0], "b": ["x", "y"]}))


@pytest.mark.parametrize("read", [read_text_table, read_graph])
def test_a_table_that_is_not_utf_8_is_named(read, tmp_path):
    (tmp_path / "t.csv").write_bytes("größe,b\n1,2\n".encode("latin-1"))
    with pytest.raises(
        ValueError, match=r"^t\.csv must be UTF-8 text\. It holds the byte 0xf6 out of place"
    ):
        read(tmp_path / "t.csv")


@pytest.mark.parametrize(
    "arguments",
    [
        ["learn", "topics", "-k", "2"],
        ["learn", "topics", "-k", "2", "--column", "txt"],
        ["learn", "hmm", "--symbol", "txt"],
    ],
)
def test_a_missing_column_lists_those_that_there_are(arguments, tmp_path, capsys):
    path = tmp_path / "t.csv"
    path.write_text("id,text\n1,one word\n2,two words\n")
    assert run_command([*arguments[:-2], str(path), *arguments[-2:]]) != 0
    said = capsys.readouterr().err
    assert "id" in said
    assert "text" in said
