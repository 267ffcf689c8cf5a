"""What is the same wherever one meets it: integers, shapes, seeds, names of commands, missing
libraries.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import odeco
from odeco.cli import app
from odeco.datasets import planted_orthogonal

COUNTS = np.einsum("i,j,k->ijk", *[np.array([1, 0, 2])] * 3)


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.int32])
def test_tensors_of_integers_are_taken_as_rows_of_integers_are(dtype):
    whole, exact = COUNTS.astype(dtype), COUNTS.astype(float)
    for call in (odeco.decompose, odeco.decompose_asymmetric):
        np.testing.assert_array_equal(call(whole, 1, rng=0).weights, call(exact, 1, rng=0).weights)
    np.testing.assert_array_equal(odeco.symmetrize(whole), exact)
    assert odeco.decompose(COUNTS.astype(bool), 1, rng=0).weights.shape == (1,)


def test_a_tensor_given_to_a_stream_is_led_to_decompose(tmp_path, monkeypatch, capsys):
    with pytest.raises(
        odeco.SourceError, match=r"If it is a tensor, call odeco\.decompose instead"
    ):
        odeco.decompose_stream(COUNTS, 1)
    with pytest.raises(ValueError, match=r"If it is a tensor, call odeco\.decompose\."):
        odeco.OnlineDecomposer(1).partial_fit(COUNTS)
    monkeypatch.chdir(tmp_path)
    np.save("tensor.npy", COUNTS)
    assert app.run(["decompose", "--rows", "tensor.npy", "-k", "1"]) == 1
    assert "If it is a tensor, call odeco.decompose instead" in capsys.readouterr().err


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A folder with a tensor, a graph of three cliques, three clusters, and texts of three
    topics.
    """
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.save("tensor.npy", planted_orthogonal(6, 3, weights=[3.0, 2.0, 1.0], rng=0).to_dense())
    nodes = [f"{letter}{number}" for letter in "abc" for number in range(12)]
    edges = [(one, other) for one in nodes for other in nodes if one < other and one[0] == other[0]]
    Path("edges.csv").write_text("".join(f"{one},{other}\n" for one, other in edges))
    rows = np.repeat(np.diag([40.0, 40.0, 40.0]), 100, axis=0) + rng.standard_normal((300, 3))
    np.savetxt("rows.csv", rows, delimiter=",", header="x,y,z", comments="")
    words = [
        ["apple", "pear", "plum", "fig"],
        ["iron", "zinc", "lead", "tin"],
        ["jazz", "opera", "blues", "swing"],
    ]
    Path("texts.txt").write_text(
        "".join(" ".join(rng.choice(words[i % 3], size=12)) + "\n" for i in range(600))
    )
    return tmp_path


def header_of(path):
    return Path(path).read_text().splitlines()[0].split(",")


def numbers_after(word, text):
    """The numbers that follow a word in a text, such as those of communities."""
    return {int(number) for number in re.findall(rf"\b{word} (\d+)\b", text)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "file", "word"),
    [
        ("communities", "edges.csv", "community"),
        ("mixture", "rows.csv", "cluster"),
        ("ica", "rows.csv", "source"),
    ],
)
def test_components_of_models_are_counted_from_0_everywhere(model, file, word, work, capsys):
    arguments = [
        "learn",
        model,
        file,
        "-k",
        "3",
        "--labels",
        "labels.csv",
        "--report",
        "page.html",
        "--threads",
        "1",
    ]
    assert app.run(arguments) == 0
    shown = capsys.readouterr().out
    columns = [f"odeco {word} {number}" for number in range(3)]
    assert [name for name in header_of("labels.csv") if name in columns] == columns
    for text in (shown, Path("page.html").read_text()):
        table = {
            int(number)
            for number in re.findall(r"(?:^ {2}|<h3>[A-Z]\w+ )(\d)(?: {2}|<)", text, re.MULTILINE)
        }
        assert numbers_after(word, text) | table == {0, 1, 2}


def test_components_and_topics_are_counted_from_0_everywhere(work, capsys):
    decompose = ["decompose", "tensor.npy", "-k", "3"]
    assert app.run([*decompose, "--out", "result.csv", "--report", "page.html"]) == 0
    table = capsys.readouterr().out.splitlines()
    # A narrow terminal wraps cells; lines that go on begin with blanks.
    assert [line.split()[0] for line in table if re.match(r"(#|\d+)\s", line)][-4:] == [
        "#",
        "0",
        "1",
        "2",
    ]
    assert [line.split(",")[0] for line in Path("result.csv").read_text().splitlines()] == [
        "component",
        "0",
        "1",
        "2",
    ]
    assert re.findall(r'data-label="#">(\d+)<', Path("page.html").read_text()) == ["0", "1", "2"]
    assert set(re.findall(r"(\d+): weight ", Path("page.html").read_text())) == {"0", "1", "2"}
    result = odeco.decompose(np.load("tensor.npy"), 3, rng=0)
    assert result.to_frame().index.tolist() == [0, 1, 2]
    learn = ["learn", "topics", "texts.txt", "-k", "3", "--max-iter", "2", "--max-share", "1"]
    assert app.run([*learn, "--out", "model.npz", "--report", "topics.html", "--json"]) == 0
    assert [topic["number"] for topic in json.loads(capsys.readouterr().out)["topics"]] == [0, 1, 2]
    assert re.findall(r"<h3>Topic (\d+)<", Path("topics.html").read_text()) == [
        "0",
        "1",
        "2",
    ]
    assert app.run(["apply", "model.npz", "texts.txt", "--out", "shares.csv"]) == 0
    assert header_of("shares.csv") == [
        "odeco row",
        "odeco topic",
        *(f"odeco topic {number}" for number in range(3)),
    ]
    assert (
        app.run(["apply", "model.npz", "texts.txt", "--out", "shares.csv"]) == 0
    )  # odeco wrote it
    assert app.run(learn) == 0
    table = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in table if re.match(r" *\d+ +\d+[.]", line)][:3] == [
        "0",
        "1",
        "2",
    ]


def public_callables():
    """Yield every public function and class of odeco, by its name."""
    for module in pkgutil.walk_packages(odeco.__path__, "odeco."):
        parts = module.name.split(".")
        if any(part.startswith("_") for part in parts) or parts[1] == "cli":
            continue
        held = importlib.import_module(module.name)
        for name, value in vars(held).items():
            own = getattr(value, "__module__", "") or ""
            is_ours = own.startswith("odeco.") and not own.startswith("odeco._")
            if not name.startswith("_") and callable(value) and is_ours:
                yield f"{module.name}.{name}", value


def test_there_is_one_way_to_seed():
    """Functions take `rng`, estimators `random_state`; a `seed` is for what is written to files and
    for workers.
    """
    wrong = []
    for name, value in public_callables():
        try:
            parameters = inspect.signature(value).parameters
        except (TypeError, ValueError):
            continue
        is_estimator = hasattr(value, "get_params")
        if ("random_state" in parameters) != is_estimator and "random_state" in parameters:
            wrong.append(name)
        if "rng" in parameters and is_estimator:
            wrong.append(name)
    assert not wrong
    for call in (
        odeco.decompose,
        odeco.decompose_asymmetric,
        odeco.decompose_stream,
        odeco.decompose_privately,
    ):
        assert "rng" in inspect.signature(call).parameters
        assert "seed" not in inspect.signature(call).parameters
    assert "rng" in inspect.signature(odeco.OnlineDecomposer).parameters


def test_every_kind_of_seed_gives_the_same_result_twice():
    rows = np.random.default_rng(0).exponential(size=(500, 5))
    for seed in (lambda: 3, lambda: np.random.default_rng(3)):
        first, second = (odeco.decompose_stream(rows, 2, rng=seed()) for _ in range(2))
        np.testing.assert_array_equal(first.vectors, second.vectors)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("decompse", "decompose"),
        ("steam", "decompose --rows"),
        ("topic", "learn topics"),
        ("mixture", "learn mixture"),
    ],
)
def test_a_command_that_is_not_there_is_answered_with_what_was_perhaps_meant(given, meant, capsys):
    assert app.run([given, "file"]) == 2
    error = capsys.readouterr().err
    assert f"No such command '{given}'" in error
    assert f"Did you mean '{meant}'?" in error


def test_a_command_that_is_like_no_other_is_answered_with_the_list(capsys):
    assert app.run(["zzz"]) == 2
    error = capsys.readouterr().err
    assert "No such command 'zzz'" in error
    assert "Did you mean" not in error
    assert "odeco --help lists them" in error


@pytest.mark.parametrize(
    ("shell", "sign"),
    [("bash", "complete -o"), ("zsh", "compdef"), ("fish", "complete --no-files")],
)
def test_shells_are_told_how_to_complete(shell, sign):
    asked = {**os.environ, "_ODECO_COMPLETE": f"{shell}_source"}
    done = subprocess.run(
        [sys.executable, "-c", ODECO], env=asked, capture_output=True, text=True, check=False
    )
    assert sign in done.stdout
    typed = {
        **os.environ,
        "_ODECO_COMPLETE": "bash_complete",
        "COMP_WORDS": "odeco de",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", ODECO], env=typed, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["plain,decompose"]


ODECO = "import sys; sys.argv = ['odeco']; from odeco.cli import main; sys.exit(main())"
MISSING = """
import sys
for module in {missing!r}:
    sys.modules[module] = None
try:
    {statement}
except ModuleNotFoundError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("missing", "statement", "extra"),
    [
        (("sklearn",), "from odeco.models import TensorMixture", "topics"),
        (("numba",), "from odeco.models import TensorLDA", "topics"),
        (("matplotlib",), "from odeco.display.page import Figures", "plot"),
        (("jinja2",), "from odeco.decompose.page import write_report", "plot"),
    ],
)
def test_what_needs_an_extra_says_which(missing, statement, extra):
    script = MISSING.format(missing=missing, statement=statement)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    what = "A page" if extra == "plot" else f"{statement.split()[1]}.{statement.split()[3]}"
    assert done.stdout.startswith(f"{what} needs {missing[0]}. It is not installed. ")
    assert done.stdout.rstrip().endswith(f"pip install 'odeco[{extra}]'.")
