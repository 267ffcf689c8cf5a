"""Results that people look at: reprs, notebooks, summaries, frames, pictures, CSV; by name wherever
there are names.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from test_saving import RESULTS, ROWS

import odeco
from odeco.cli import app
from odeco.decompose import PrivateDecomposition, StreamDecomposition
from odeco.display import (
    ConvergenceDisplay,
    CosinesDisplay,
    LeadingDisplay,
    VectorDisplay,
    WeightsDisplay,
)
from odeco.display.tables import leading
from odeco.tensors import Components

pandas = pytest.importorskip("pandas")
NAMES = ["age", "income <b>", "$x_1$", "\x1b[31mred", "e" * 60, "f"]


@pytest.fixture(scope="module")
def results():
    return {kind: make() for kind, make in RESULTS.items()}


def stream_result(k=2, names=NAMES):
    """A result with round numbers: component i lies along coordinate i."""
    components = Components(np.arange(k, 0, -1.0), np.eye(max(k, 6))[:, :k])
    errors = (np.full(k, 0.25), np.full(k, 0.125))
    return StreamDecomposition(components, *errors, 5000, n_passes=4).with_names(names)


@pytest.mark.parametrize("kind", RESULTS)
def test_every_result_has_a_short_repr_that_begins_with_its_verdict(kind, results):
    result = results[kind]
    lines = repr(result).splitlines()
    assert lines[0] == f"{type(result).__name__}: {result.verdict}"
    assert lines[1].split()[:2] == ["#", "weight"]
    assert len(lines) == 2 + len(result.weights)
    assert result.verdict in result.summary()


def test_a_repr_shows_ten_components_and_counts_the_others():
    lines = repr(stream_result(23, None)).splitlines()
    assert len(lines) == 2 + 10 + 1
    assert lines[-1] == "… and 13 more"
    assert (
        stream_result(23, None).summary().splitlines()[24].split()[0] == "22"
    )  # the summary leaves out none


def test_names_are_shown_whole_or_shortened_and_never_obeyed_by_a_terminal():
    components = Components([1.0], np.array([[0.1, 0.2, 0.3, 0.5, 0.6, 0.0]]).T)
    result = StreamDecomposition(components, None, None, 10).with_names(NAMES)
    shown = repr(result)
    assert "\x1b" not in shown
    assert r"\x1b[31mred +0.58" in shown
    assert f"{'e' * 23}… +0.69" in shown
    assert "e" * 60 in result.summary()
    assert "[5]" not in shown


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.words = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)

    def handle_data(self, data):
        self.words.append(data)


@pytest.mark.parametrize("kind", RESULTS)
def test_a_notebook_shows_the_same_with_a_picture_and_obeys_no_name(kind, results):
    result = results[kind]
    if hasattr(result, "names") and result.vectors.shape[0] == len(NAMES):
        result = result.with_names(NAMES)
    page = Tags(result._repr_html_())
    assert "b" not in page.tags
    assert page.tags.count("tr") == 1 + len(result.weights)
    assert page.tags.count("rect") == len(result.weights)
    assert "".join(page.words).startswith(f"{type(result).__name__}: {result.verdict}")


def test_a_summary_counts_rows_once_and_names_passes():
    summary = stream_result().summary()
    assert "2 components of the moment, from 5,000 rows in 4 passes" in summary
    assert "rows read: 5,000, in 4 passes" in summary
    once = replace(stream_result(), n_passes=1)
    assert "rows read: 5,000\n" in once.summary() + "\n"


def test_a_private_result_says_that_clipping_biases_and_that_its_errors_do_not_show_it(results):
    clipped = results["private"].summary()
    assert "every row longer than 1 was scaled down to it, which makes weights too small" in clipped
    assert "± is the noise alone and does not include that" in clipped
    assert "A row twice as long as the bound counts as 1/8 of itself." in clipped
    tensor = odeco.decompose_privately(np.ones((3, 3, 3)), 1, epsilon=1.0, delta=1e-6, rng=0)
    assert tensor.norm_bound is None
    assert "clipped" not in tensor.summary()


def test_a_frame_has_the_numbers_and_the_names():
    frame = stream_result().to_frame()
    assert frame.index.tolist() == [0, 1]  # as in Python
    assert frame.index.name == "component"
    assert frame.to_dict("list") == {
        "weight": [2.0, 1.0],
        "weight_error": [0.25] * 2,
        "angle_error": [0.125] * 2,
        "clear": [True, True],
    }
    vectors = stream_result().to_frame(vectors=True)
    assert vectors.index.tolist() == NAMES
    assert vectors.loc["age"].tolist() == [1.0, 0.0]
    unnamed = stream_result(names=None).to_frame(vectors=True)
    assert unnamed.index.tolist() == list(range(6))


def test_a_frame_of_terms_has_an_axis_and_a_coordinate(results):
    frame = results["asymmetric"].to_frame(vectors=True)
    assert frame.index.names == ["axis", "coordinate"]
    assert len(frame) == 3 + 4 + 5


def test_without_pandas_a_frame_is_refused_with_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(
        ModuleNotFoundError,
        match=r"to_frame\(\) needs pandas. It is not installed. Run: pip install",
    ):
        stream_result().to_frame()


def test_names_must_fit():
    with pytest.raises(
        ValueError, match=r"`names` must have one name for each of the 6 coordinates. Got 2."
    ):
        stream_result().with_names(["a", "b"])
    assert stream_result().with_names(None).names is None
    assert leading(np.array([0.1, -0.9, 0.3]), None, 2) == [("[1]", -0.9), ("[2]", 0.3)]
    assert leading(np.array([0.1, -0.9, 0.3]), ["a", "b", "c"], 2) == [("b", -0.9), ("c", 0.3)]


def texts_of(figure):
    return [text.get_text() for text in figure.findobj(lambda each: hasattr(each, "get_text"))]


@pytest.mark.parametrize("kind", ["loop", "auto", "asymmetric", "stream", "private"])
def test_every_result_can_be_drawn(kind, results, tmp_path):
    result = results[kind]
    figure = result.plot(n_top=3)
    figure.savefig(tmp_path / "all.png")
    texts = texts_of(figure)
    assert "Weights" in texts
    assert ("Cosines" in texts) == (len(result.weights) > 1)
    assert ("Convergence" in texts) == (kind in ("loop", "auto"))
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_a_picture_has_the_names_the_bars_and_the_errors_of_the_result():
    result = stream_result()
    texts = texts_of(result.plot("components", n_top=2))
    assert "age" in texts
    assert "income <b>" in texts
    assert "0: weight 2" in texts
    display = WeightsDisplay.from_result(result).plot()
    assert [bar.get_height() for bar in display.ax_.patches] == [2.0, 1.0]
    assert display.figure_ is display.ax_.get_figure()
    ends = [segment[:, 1].tolist() for segment in display.ax_.collections[0].get_segments()]
    assert ends == [[1.75, 2.25], [0.75, 1.25]]
    bars = LeadingDisplay.of(np.array([0.1, -0.9, 0.3]), ["a", "b", "c"], 2).plot().ax_
    assert [label.get_text() for label in bars.get_yticklabels()] == ["b", "c"]
    assert [bar.get_width() for bar in bars.patches] == [-0.9, 0.3]
    assert VectorDisplay.from_result(result).plot().ax_.get_xlim()[1] > 5


def test_names_with_dollars_are_no_mathematics(tmp_path):
    result = stream_result().with_names(["$", "$x^", "\\frac{", "数", "e", "f"])
    with pytest.warns(
        UserWarning, match="Glyph"
    ):  # the font has no such sign, and says so where a user draws
        result.plot("components", n_top=6).savefig(tmp_path / "figure.png")
    assert result.plot("components", n_top=6)._repr_png_()  # a notebook says nothing


def test_cosines_are_those_between_components_and_of_terms_the_largest_along_an_axis(results):
    vectors = np.array([[1.0, 0.6], [0.0, 0.8]])
    display = CosinesDisplay.from_result(
        StreamDecomposition(Components([2.0, 1.0], vectors), None, None, 1)
    )
    np.testing.assert_allclose(display.cosines, [[1.0, 0.6], [0.6, 1.0]])
    assert ".60" in texts_of(display.plot().figure_)
    assert CosinesDisplay.from_result(results["asymmetric"]).cosines.shape == (1, 1)


def test_a_picture_that_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="what='convergence' needs a history of residuals"):
        stream_result().plot("convergence")
    with pytest.raises(ValueError, match="`what` must be one of"):
        stream_result().plot("pie")
    assert ConvergenceDisplay.from_result(stream_result()).is_empty


def test_a_figure_of_the_user_is_drawn_into():
    from matplotlib.figure import Figure

    own = Figure()
    assert stream_result().plot("weights", figure=own) is own


def test_neither_importing_nor_showing_imports_matplotlib_or_pandas():
    script = (
        "import sys, numpy as np, odeco\n"
        "result = odeco.decompose(odeco.Components([3.0, 2.0], np.eye(5)[:, :2]).to_dense(), 2, "
        "rng=0)\n"
        "repr(result), result._repr_html_(), result.summary()\n"
        "assert not {'matplotlib', 'pandas'} & set(sys.modules)\n"
        "sys.modules['matplotlib'] = None\n"
        "try:\n"
        "    result.plot()\n"
        "except ModuleNotFoundError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert (
        done.stdout
        == "A figure needs matplotlib. It is not installed. Run: pip install 'odeco[plot]'.\n"
    )


# ---- names from end to end -----------------------------------------------------------------------


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A CSV file with an index and six columns that have names, in the working directory."""
    monkeypatch.chdir(tmp_path)
    frame = pandas.DataFrame(ROWS, columns=["a", "b", "=c", "d", "e", "f"])
    frame.insert(0, "id", [f"user{number}" for number in range(len(ROWS))])
    frame.to_csv("rows.csv", index=False)
    return tmp_path


def test_names_of_a_table_reach_the_file_the_page_the_json_and_the_terminal(table, capsys):
    run = ["decompose", "--rows", "rows.csv", "-k", "2", "--drop", "id"]
    assert app.run([*run, "--out", "result.npz", "--report", "page.html"]) == 0
    assert "=c" in capsys.readouterr().out
    result = odeco.load_result("result.npz")
    assert result.names == ("a", "b", "=c", "d", "e", "f")
    assert "=c" in Path("page.html").read_text()
    assert app.run(["report", "result.npz", "--out", "again.html"]) == 0
    assert "=c" in Path("again.html").read_text()
    capsys.readouterr()
    assert app.run(["info", "result.npz", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["names"] == "a, b, =c, d, e, f"
    assert app.run([*run, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["names"] == ["a", "b", "=c", "d", "e", "f"]
    assert (
        app.run(["decompose", "--rows", "rows.csv", "-k", "2", "--columns", "f,a,b", "--json"]) == 0
    )
    assert json.loads(capsys.readouterr().out)["names"] == ["f", "a", "b"]


def test_wrong_columns_are_refused_in_the_words_of_the_command(table, capsys):
    assert (
        app.run(["decompose", "--rows", "rows.csv", "-k", "2", "--columns", "a", "--drop", "b"])
        == 2
    )
    assert "--columns and --drop must not be given together" in capsys.readouterr().err
    assert app.run(["decompose", "--rows", "rows.csv", "-k", "2", "--drop", "ids"]) == 1
    assert "Did you mean 'id'?" in capsys.readouterr().err
    assert app.run(["decompose", "--rows", "rows.csv", "-k", "2"]) == 1
    assert "leave out 'id' with --drop" in capsys.readouterr().err
    assert app.run(["decompose", "--rows", "rows.csv", "-k", "2", "--columns", "a,,b"]) == 1
    assert "must have one column ''" in capsys.readouterr().err


def test_out_writes_a_table_or_a_result_by_its_suffix_and_nothing_else(table, capsys):
    run = ["decompose", "--rows", "rows.csv", "-k", "2", "--drop", "id"]
    assert app.run([*run, "--out", "result.csv"]) == 0
    with Path("result.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert app.run([*run, "--out", "result.npz"]) == 0
    result = odeco.load_result("result.npz")
    assert list(rows[0]) == [
        *("component", "weight", "weight_error", "angle_error", "clear"),
        "a",
        "b",
        "'=c",
        "d",
        "e",
        "f",
    ]
    assert [float(row["weight"]) for row in rows] == result.weights.tolist()
    assert [float(row["b"]) for row in rows] == result.vectors[1].tolist()
    assert app.run([*run, "--out", "result.csv"]) == 0  # odeco wrote it, and may replace it
    for wrong in ("result.json", "result", "result.npz.gz"):
        capsys.readouterr()
        assert app.run([*run, "--out", wrong]) == 2
        assert "--out must end in .npz or .csv" in capsys.readouterr().err
        assert not Path(wrong).exists()


def test_pushed_tables_keep_their_names_in_checkpoints_and_refuse_another_order(tmp_path):
    frame = pandas.DataFrame(ROWS, columns=list("abcdef"))
    online = odeco.OnlineDecomposer(2, rng=0).partial_fit(frame[:2000])
    online.partial_fit(ROWS[2000:2100])  # rows without names are taken as they are
    state = online.n_rows
    with pytest.raises(ValueError, match=r"Column 0 was 'a' and is 'b'. Nothing was taken in"):
        online.partial_fit(frame[["b", "a", *"cdef"]])
    assert online.n_rows == state
    online.save(tmp_path / "run.ckpt")
    again = odeco.OnlineDecomposer.load(tmp_path / "run.ckpt")
    assert again.result().names == online.result().names == tuple("abcdef")
    np.testing.assert_array_equal(
        again.partial_fit(frame).result().weights, online.partial_fit(frame).result().weights
    )


def test_a_checkpoint_with_names_for_other_columns_is_refused(tmp_path):
    from odeco._util.files import load_arrays, save_arrays

    online = odeco.OnlineDecomposer(2, rng=0)
    online.partial_fit(pandas.DataFrame(ROWS, columns=list("abcdef"))).save(tmp_path / "run.ckpt")
    header, arrays = load_arrays(tmp_path / "run.ckpt", "stream run")
    save_arrays(tmp_path / "other.ckpt", "stream run", {**header, "names": ["a"]}, arrays)
    with pytest.raises(odeco.FileFormatError, match="every column must have one name, or none"):
        odeco.OnlineDecomposer.load(tmp_path / "other.ckpt")


def test_a_result_without_names_in_its_file_has_none(tmp_path):
    from odeco._util.files import load_arrays, save_arrays

    odeco.save_result(stream_result(), tmp_path / "with.npz")
    header, arrays = load_arrays(tmp_path / "with.npz", "stream decomposition")
    assert arrays.pop("names").tolist() == NAMES
    save_arrays(tmp_path / "without.npz", "stream decomposition", header, arrays)
    assert odeco.load_result(tmp_path / "without.npz").names is None


def test_a_private_table_has_its_names_and_its_bound(table):
    from odeco.privacy import open_private

    rows = open_private([Path("rows.csv")], header=True)
    assert (
        rows.columns[0] == "id"
    )  # a private run does not choose columns: every record is then no row, and zeros
    frame = pandas.read_csv("rows.csv").drop(columns="id")
    frame.to_parquet("rows.parquet")
    settings = {"epsilon": 1.0, "delta": 1e-6, "unit": "record", "norm_bound": 1.0}
    result = odeco.decompose_privately(open_private([Path("rows.parquet")]), 2, **settings, rng=0)
    assert isinstance(result, PrivateDecomposition)
    assert result.names == ("a", "b", "=c", "d", "e", "f")
    assert result.norm_bound == 1.0


# ---- how far a long call is ----------------------------------------------------------------------


def long_calls(**settings):
    """Every long call of the library, by name."""
    tensor = odeco.Components([3.0, 2.0], np.eye(5)[:, :2]).to_dense()
    guarantee = {"epsilon": 1.0, "delta": 1e-6, "unit": "record", "norm_bound": 1.0, "rng": 0}
    return {
        "decompose": lambda: odeco.decompose(tensor, 2, rng=0, **settings),
        "loop": lambda: odeco.decompose(tensor, 2, method="power", rng=0, **settings),
        "loop to the noise": lambda: odeco.decompose(
            tensor, "auto", method="power", rng=0, **settings
        ),
        "whitened": lambda: odeco.decompose(tensor, 2, whiten="tensor", rng=0, **settings),
        "asymmetric": lambda: odeco.decompose_asymmetric(tensor, 2, rng=0, **settings),
        "asymmetric loop": lambda: odeco.decompose_asymmetric(
            tensor, 2, method="power", rng=0, **settings
        ),
        "stream": lambda: odeco.decompose_stream(ROWS, 2, rng=0, **settings),
        "pushed": lambda: odeco.OnlineDecomposer(2, rng=0, **settings).partial_fit(ROWS).result(),
        **{
            mechanism: lambda mechanism=mechanism: odeco.decompose_privately(
                ROWS, 2, mechanism=mechanism, **guarantee, **settings
            )
            for mechanism in ("input", "core", "joint", "wang2016", "subspace")
        },
    }


CALLS = list(long_calls())


@pytest.mark.parametrize("name", CALLS)
def test_every_long_call_tells_how_far_it_is_and_shows_a_bar(name, capsys):
    seen = []
    long_calls(callback=seen.append, progress=True)[name]()
    assert seen
    assert "100%" in capsys.readouterr().err
    for step in seen:
        assert step.stage if hasattr(step, "stage") and hasattr(step, "fraction") else step.status
    if hasattr(seen[-1], "n_planned"):
        assert [step.n_releases for step in seen] == sorted(step.n_releases for step in seen)
        assert (
            seen[-1].n_releases == seen[-1].n_planned
        )  # a private run makes the releases of its plan
        assert seen[-1].fraction == 1


def test_a_bar_changes_no_bit_and_an_error_passes_through(capsys):
    quiet, shown = long_calls()["stream"](), long_calls(progress=True)["stream"]()
    np.testing.assert_array_equal(quiet.vectors, shown.vectors)

    def stop(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        long_calls(callback=stop, progress=True)["stream"]()


def test_without_rich_a_bar_is_drawn_by_tqdm_and_without_both_stages_are_lines(monkeypatch, capsys):
    import types

    class Bar:
        n, total, said = 0.0, 1.0, []

        def __init__(self, **settings):
            assert settings["total"] == 1.0

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.said.append(self.n)

        def set_description_str(self, text, refresh):
            self.said.append(text)

        def refresh(self):
            pass

    monkeypatch.setitem(sys.modules, "rich.progress", None)
    monkeypatch.setitem(sys.modules, "tqdm.auto", types.SimpleNamespace(tqdm=Bar))
    long_calls(progress=True)["stream"]()
    assert any("pass 2 of" in str(text) for text in Bar.said)
    assert Bar.said[-1] == 1.0
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    capsys.readouterr()
    long_calls(progress=True)["stream"]()
    assert "refining\n" in capsys.readouterr().err


def test_a_decomposer_shows_how_far_it_is_and_what_it_has():
    online = odeco.OnlineDecomposer(2, rng=0)
    assert repr(online) == (
        "OnlineDecomposer: 0 of 2 components found after 0 rows (k = 2, method='auto')"
    )
    online.partial_fit(pandas.DataFrame(ROWS, columns=list("abcdef")))
    lines = repr(online).splitlines()
    assert lines[0] == (
        "OnlineDecomposer: 2 of 2 components found after 4,000 rows (k = 2, method='entries')"
    )
    assert len(lines) == 4
    assert " a +1.00" in lines[2]
    assert "<svg" in online._repr_html_()
    private = odeco.OnlineDecomposer(
        2, batch_size=900, epsilon=1.0, delta=1e-6, norm_bound=1.0, rng=0
    )
    assert "private)" in repr(private)
    assert "<svg" not in private._repr_html_()
