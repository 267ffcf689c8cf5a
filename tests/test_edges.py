"""What users bring at the edges: seeds of any kind, tables with mistakes, graphs by name, rows that
arrive.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from command import run_here
from scipy.io import wavfile
from sklearn.exceptions import NotFittedError

import odeco
from odeco.errors import SourceError
from odeco.io import as_source
from odeco.io.source import Selection
from odeco.io.text_rows import CsvStream
from odeco.models import Communities, TensorHMM, TensorLDA, TensorMixture

ROWS = np.random.default_rng(0).standard_normal((60, 3))
TENSOR = odeco.Components([2.0, 1.0], np.eye(4)[:, :2]).to_dense()


SEEDS = [
    lambda: 3,
    lambda: np.random.default_rng(3),
    lambda: np.random.RandomState(3),
    lambda: np.random.SeedSequence(3),
    lambda: np.random.PCG64(3),
]


@pytest.mark.parametrize("seed", SEEDS)
def test_seeds_of_every_kind_give_the_same_result_again(seed):
    first, again = (odeco.decompose(TENSOR, 2, rng=seed()).vectors for _ in range(2))
    assert np.array_equal(first, again)
    models = [TensorMixture(2, random_state=seed()).fit(ROWS) for _ in range(2)]
    assert np.array_equal(models[0].means_, models[1].means_)


def test_a_negative_seed_is_refused_in_words():
    with pytest.raises(ValueError, match="must not be negative"):
        odeco.decompose(TENSOR, 2, rng=-1)
    with pytest.raises(ValueError, match=r"`random_state` must be in"):
        TensorMixture(2, random_state=-1).fit(ROWS)


def test_two_columns_of_one_name_are_refused_by_their_name():
    table = pa.table([pa.array(ROWS[:, 0]), pa.array(ROWS[:, 1])], names=["size", "size"])
    with pytest.raises(ValueError, match=r"different names\. More than one is called 'size'"):
        TensorMixture(2).fit(table)


@pytest.mark.parametrize("dtype", ["float16", ">i4", ">f8"])
def test_numbers_of_any_precision_and_byte_order_are_counts_and_links(dtype):
    topics = np.repeat([[5.0, 0.1], [0.1, 5.0]], 6, axis=1)
    counts = np.random.default_rng(0).poisson(np.repeat(topics, 150, axis=0))
    model = TensorLDA(2, max_iter=0, random_state=0)
    expected = model.fit(counts).topic_word_
    assert np.array_equal(model.fit(counts.astype(dtype)).topic_word_, expected)
    links = nx.to_numpy_array(nx.karate_club_graph(), weight=None)
    labels = Communities(2, random_state=0).fit(links).labels_
    assert np.array_equal(Communities(2, random_state=0).fit(links.astype(dtype)).labels_, labels)


def test_a_table_in_place_of_texts_is_not_read_as_its_column_names():
    table = pd.DataFrame({"text": ["cat mouse"] * 20, "score": range(20)})
    with pytest.raises(TypeError, match=r"with several columns\. Pass the column"):
        TensorLDA(2).fit_text(table)


def test_words_of_a_model_that_is_not_fitted_are_an_error_of_scikit_learn():
    with pytest.raises(NotFittedError):
        TensorLDA(2).top_words()


def test_a_page_of_topics_takes_a_series_of_texts(tmp_path):
    both = [20 * "cat mouse ", 20 * "bond share "]
    texts = pd.Series(200 * both, index=range(5, 405))
    model = TensorLDA(2, max_iter=0, random_state=0)
    model.fit_text(texts, max_share=1.0)
    model.write_report(tmp_path / "page.html", rows=texts)
    assert "cat mouse" in (tmp_path / "page.html").read_text()


def edges_of_a_club():
    graph = nx.karate_club_graph()
    names = [f"member {node}" for node in graph]
    return [(names[first], names[last]) for first, last in graph.edges()]


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_a_table_of_edges_is_a_graph_whose_nodes_have_names(library):
    edges = edges_of_a_club()
    table = library({"from": [first for first, _ in edges], "to": [last for _, last in edges]})
    model = Communities(2, random_state=0).fit(table)
    assert set(model.feature_names_in_) == {node for edge in edges for node in edge}
    assert model.assignments(table).index.tolist() == model.feature_names_in_.tolist()
    matrix = nx.to_scipy_sparse_array(nx.Graph(edges), nodelist=list(model.feature_names_in_))
    assert np.array_equal(Communities(2, random_state=0).fit(matrix).labels_, model.labels_)


def test_weights_of_a_table_of_edges_count():
    table = pd.DataFrame({"a": ["x", "y", "z"], "b": ["y", "z", "x"], "w": [1.0, 2.0, 3.0]})
    model = Communities(1, random_state=0).fit(table)
    expected = Communities(1, random_state=0).fit(np.array([[0, 1, 3], [1, 0, 2], [3, 2, 0]]))
    assert np.array_equal(model.profiles_, expected.profiles_)


def test_lines_that_arrive_are_rows_and_are_read_once():
    text = "a,b,c\n" + "".join(f"{x},{y},{z}\n" for x, y, z in ROWS)
    source = CsvStream(
        iter(text.splitlines(keepends=True)), "lines", Selection.of(["c", "a"], None)
    )
    assert source.columns == ("c", "a")
    assert np.array_equal(np.concatenate(list(source)), ROWS[:, [2, 0]])
    with pytest.raises(SourceError, match="can be read only once"):
        next(iter(source))


def test_lines_that_are_no_rows_are_named():
    lines = iter(["1,2\n", "3,4\n", "5,oops\n"])
    with pytest.raises(SourceError, match=r"Row 2 of lines .*'oops'"):
        list(CsvStream(lines, "lines"))


def skewed_rows(n):
    rng = np.random.default_rng(5)
    return rng.exponential(size=(n, 1)) * [2.0, 1.0, 1.0] + 0.3 * rng.standard_normal((n, 3))


def test_the_standard_input_is_decomposed_as_the_file_is_in_one_pass(tmp_path):
    np.savetxt(tmp_path / "rows.csv", skewed_rows(3_000), delimiter=",")
    command = [sys.executable, "-m", "odeco", "decompose", "--rows", "-k", "1", "--json"]
    lines = (tmp_path / "rows.csv").read_bytes()
    piped = subprocess.run([*command, "-"], input=lines, capture_output=True, check=True)
    of_file = subprocess.run(
        [*command, "--n-passes", "1", str(tmp_path / "rows.csv")], capture_output=True, check=True
    )
    assert piped.stdout == of_file.stdout


@pytest.mark.slow
def test_a_file_that_grows_is_followed_until_an_interrupt(tmp_path):
    rows = skewed_rows(4_000)
    path = tmp_path / "rows.csv"
    np.savetxt(path, rows[:1_000], delimiter=",")
    run = subprocess.Popen(
        [sys.executable, "-m", "odeco", "decompose", "--rows", path, "-k", "1", "--follow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "following rows.csv" in run.stderr.readline()
    with path.open("a") as file:
        np.savetxt(file, rows[1_000:], delimiter=",")
    time.sleep(3)
    run.send_signal(signal.SIGINT)
    shown, _ = run.communicate(timeout=60)
    assert run.returncode == 0
    assert shown.startswith("1 component of the moment, from 4,000 rows")


def test_follow_refuses_what_needs_an_end(tmp_path):
    path = tmp_path / "rows.csv"
    np.savetxt(path, ROWS, delimiter=",")
    result = run_here(
        "decompose", "--rows", path, "-k", 1, "--follow", "--n-passes", 2, cwd=tmp_path
    )
    assert result.returncode == 2
    assert "--follow reads one FILE" in result.stderr


def test_the_samples_of_a_sound_are_rows(tmp_path):
    samples = np.random.default_rng(0).integers(-9_000, 9_000, (2_000, 2)).astype(np.int16)
    wavfile.write(tmp_path / "sound.wav", 8_000, samples)
    source = as_source(tmp_path / "sound.wav")
    assert source.columns == ("channel 0", "channel 1")
    assert np.array_equal(np.concatenate(list(source)), samples)
    (tmp_path / "cut.wav").write_bytes((tmp_path / "sound.wav").read_bytes()[:30])
    with pytest.raises(SourceError, match=r"cut\.wav"):
        as_source(tmp_path / "cut.wav")


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("nonsense://x", "an address begins with one of"),
        ("", "an address has a host and a port"),
        ("localhost", "an address has a host and a port"),
        ("tcp://127.0.0.1:1", "refused"),
    ],
)
def test_a_scheduler_that_is_none_is_an_error_at_once(tmp_path, address, why):
    path = tmp_path / "rows.csv"
    np.savetxt(path, ROWS, delimiter=",")
    started = time.monotonic()
    result = run_here("decompose", "--rows", path, "-k", 1, "--scheduler", address, cwd=tmp_path)
    assert time.monotonic() - started < 8
    assert result.returncode == 1
    assert why in result.stderr
    assert "Traceback" not in result.stderr


def test_the_column_without_a_name_is_dropped_among_others(tmp_path):
    table = pd.DataFrame(ROWS, columns=["a", "b", "c"])
    table.to_csv(tmp_path / "rows.csv")
    result = run_here(
        "learn", "mixture", tmp_path / "rows.csv", "-k", 1, "--drop", ",c", "--json", cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    assert '"feature_names_in_": [\n    "a",\n    "b"\n  ]' in result.stdout


def test_groups_that_are_numbers_stay_numbers(tmp_path):
    (tmp_path / "texts.csv").write_text(
        "text,score\n"
        + "".join(
            f"{'cat mouse dog' if i % 2 else 'bond share bank'},{-3 if i % 2 else 4}\n"
            for i in range(80)
        )
    )
    model = tmp_path / "model.npz"
    options = ["--column", "text", "-k", 2, "--max-share", 1, "--no-check", "--out", model]
    assert (
        run_here("learn", "topics", tmp_path / "texts.csv", *options, cwd=tmp_path).returncode == 0
    )
    result = run_here(
        "apply", model, tmp_path / "texts.csv", "--column", "text", "--by", "score", cwd=tmp_path
    )
    assert [line.split(",")[0] for line in result.stdout.splitlines()] == ["group", "-3", "4"]


def test_states_that_rows_do_not_determine_are_not_split_and_merged(monkeypatch):
    """20 states of 10 symbols have 20·19 + 20·9 + 19 = 579 parameters, and there are 400 rows."""

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("states were split")

    monkeypatch.setattr("odeco.models.hmm.spec.split_merge_starts", fail)
    symbols = np.random.default_rng(0).integers(0, 10, 400)
    assert TensorHMM(20, random_state=0, max_iter=8).fit(symbols).n_components_ == 20
    with pytest.raises(AssertionError, match="states were split"):
        TensorHMM(2, random_state=0, max_iter=8).fit(symbols)


def test_stages_of_a_long_fit_are_messages_of_the_logger(caplog):
    rows = np.random.default_rng(0).standard_normal((300, 2))
    with caplog.at_level("DEBUG", logger="odeco"):
        TensorMixture("auto", random_state=0).fit(rows)
    said = " ".join(caplog.messages)
    assert "fitting 2 components" in said
    assert "EM iteration 3" in said
