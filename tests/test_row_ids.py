"""Labels and proportions can be joined back to the rows that they belong to."""

from __future__ import annotations

import csv
import json

import numpy as np
import pandas
import pytest
from sklearn.exceptions import NotFittedError

from odeco import models
from odeco.cli.app import run as run_command
from odeco.cli.models import MODELS

RNG = np.random.default_rng(0)
N = 60
KIND = RNG.integers(0, 2, N)
FRAME = pandas.DataFrame(
    {
        "a": RNG.standard_normal(N) + 9 * KIND,
        "user": [f"-{number}" if number % 2 else f'={number},"x"' for number in RNG.permutation(N)],
        "b": RNG.standard_normal(N) + 9 * KIND,
        "note": ["NA", " kept as it is ", "", "x"] * (N // 4),
    }
)


def write(kind, folder):
    path = folder / f"rows.{kind}"
    FRAME.to_csv(path, index=False) if kind == "csv" else FRAME.to_parquet(path)
    return path


def read(path):
    with path.open(newline="") as file:
        heading, *rows = csv.reader(file)
    return heading, rows


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_id_comes_first_is_not_learnt_from_and_finds_its_row(kind, tmp_path):
    labels = tmp_path / "labels.csv"
    command = ["learn", "mixture", str(write(kind, tmp_path)), "-k", "2", "--labels", str(labels)]
    assert run_command([*command, "--id", "user", "--drop", "note"]) == 0
    heading, rows = read(labels)
    assert heading == ["user", "odeco cluster", "odeco cluster 0", "odeco cluster 1"]
    assert [row[0] for row in rows] == FRAME["user"].tolist()
    found = np.array([int(row[1]) for row in rows])
    assert set(zip(found, KIND, strict=True)) in ({(0, 0), (1, 1)}, {(0, 1), (1, 0)})
    assert (
        run_command([*command, "--id", "user", "--drop", "note"]) == 0
    )  # odeco wrote the file, and may replace it


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_append_keeps_every_cell_of_the_input(kind, tmp_path):
    labels, path = tmp_path / "labels.csv", write(kind, tmp_path)
    chosen = ["--columns", "a,b", "--append", "--id", "user"]
    assert (
        run_command(["learn", "mixture", str(path), "-k", "2", "--labels", str(labels), *chosen])
        == 0
    )
    heading, rows = read(labels)
    assert heading[:4] == ["user", "a", "b", "note"]
    for place, name in enumerate(heading[:4]):
        cells = [row[place] for row in rows]
        if name in "ab":
            np.testing.assert_array_equal(np.array(cells, float), FRAME[name])
        else:
            assert cells == FRAME[name].tolist()


def test_rows_of_sequences_are_joined_in_the_order_of_the_file(tmp_path):
    frame = FRAME[["a", "b", "user"]].assign(run=["x", "y"] * (N // 2))
    frame.to_csv(tmp_path / "rows.csv", index=False)
    labels = tmp_path / "labels.csv"
    command = [
        "learn",
        "hmm",
        str(tmp_path / "rows.csv"),
        "-k",
        "2",
        "--sequence",
        "run",
        "--id",
        "user",
    ]
    assert run_command([*command, "--labels", str(labels)]) == 0
    assert [row[0] for row in read(labels)[1]] == frame["user"].tolist()


def test_mistakes_are_named(tmp_path, capsys):
    path, labels = str(write("csv", tmp_path)), str(tmp_path / "labels.csv")
    for arguments, expected in (
        (["--id", "user"], "are for the rows that --labels FILE writes"),
        (["--id", "usr", "--labels", labels], "'usr'"),
        (["--id", "user", "--labels", path], "--labels"),
    ):
        assert (
            run_command(["learn", "mixture", path, "-k", "2", "--columns", "a,b", *arguments]) != 0
        )
        assert expected in capsys.readouterr().err
    np.save(tmp_path / "rows.npy", FRAME[["a", "b"]].to_numpy())
    assert (
        run_command(
            [
                "learn",
                "mixture",
                str(tmp_path / "rows.npy"),
                "-k",
                "2",
                "--append",
                "--labels",
                labels,
            ]
        )
        != 0
    )
    assert "need columns with names" in capsys.readouterr().err


def test_ids_that_do_not_tell_rows_apart_are_warned_of(tmp_path, capsys):
    labels = str(tmp_path / "labels.csv")
    frame = FRAME.copy()
    command = [
        "learn",
        "mixture",
        str(tmp_path / "rows.csv"),
        "-k",
        "2",
        "--columns",
        "a,b",
        "--labels",
        labels,
    ]
    for ids, expected in (
        (
            [f"u{number // 2}" for number in range(len(frame))],
            "occur more than once, such as 'u0'.",
        ),
        ([None, None, *range(2, len(frame))], "2 rows have none"),
        (list(range(len(frame))), None),
    ):
        frame["user"] = ids
        frame.to_csv(tmp_path / "rows.csv", index=False)
        assert run_command([*command, "--id", "user"]) == 0
        said = capsys.readouterr().err
        assert (expected or "nothing") in said or expected is None
        assert ("does not identify rows" in said) == (expected is not None)


def test_columns_of_an_earlier_run_are_not_written_twice(tmp_path, capsys):
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    command = [
        "learn",
        "mixture",
        str(write("csv", tmp_path)),
        "-k",
        "2",
        "--columns",
        "a,b",
        "--append",
    ]
    assert run_command([*command, "--labels", str(first)]) == 0
    command[2] = str(first)
    assert run_command([*command, "--labels", str(second)]) != 0
    assert "has 'odeco cluster' already" in " ".join(capsys.readouterr().err.split())
    assert not second.exists()
    ica = [
        "learn",
        "ica",
        str(first),
        "-k",
        "2",
        "--columns",
        "a,b",
        "--append",
        "--labels",
        str(second),
    ]
    assert run_command(ica) == 0  # other columns


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_proportions_of_topics_have_the_ids_of_their_documents(kind, tmp_path, capsys):
    words = [["cat", "dog", "mouse", "bird"], ["tax", "bank", "loan", "rate"]]
    texts = [" ".join(RNG.choice(words[number % 2], 12)) for number in range(80)]
    path, model = tmp_path / f"texts.{kind}", tmp_path / "model.npz"
    if kind == "csv":
        pandas.DataFrame({"text": texts, "key": range(100, 180)}).to_csv(path, index=False)
    else:
        path.write_text(
            "\n".join(json.dumps({"text": text, "key": n}) for n, text in enumerate(texts, 100))
        )
    fit = [
        "learn",
        "topics",
        str(path),
        "-k",
        "2",
        "--column",
        "text",
        "--max-share",
        "1",
        "--out",
        str(model),
    ]
    assert run_command(fit) == 0
    capsys.readouterr()
    apply = ["apply", str(model), str(path), "--column", "text", "--id", "key"]
    assert run_command(apply) == 0
    heading, *rows = csv.reader(capsys.readouterr().out.splitlines())
    assert heading == ["key", "odeco topic", "odeco topic 0", "odeco topic 1"]
    assert [row[0] for row in rows] == [str(number) for number in range(100, 180)]
    assert run_command([*apply, "--json"]) != 0


def test_transforms_carry_the_index_of_pandas_and_predictions_are_arrays():
    X = FRAME[["a", "b"]].set_index(FRAME["user"])
    ica = models.TensorICA(2, random_state=0).set_output(transform="pandas").fit(X)
    assert ica.transform(X).index.equals(X.index)
    labels = models.TensorMixture(2, random_state=0).fit(X).predict(X)
    assert isinstance(labels, np.ndarray)
    assert pandas.Series(labels, X.index).index.equals(X.index)


def _rows_for(command):
    """Return rows with an index for a model, and what else it takes."""
    index = pandas.Index([f"-{number}" for number in RNG.permutation(N)], name="user")
    if command == "communities":
        links = np.triu(RNG.random((N, N)) < np.where(KIND[:, None] == KIND, 0.6, 0.05), 1)
        return pandas.DataFrame((links | links.T).astype(float), index, index), {}
    if command == "classes":
        return pandas.DataFrame(
            {f"q{i}": (KIND + (RNG.random(N) < 0.1)) % 2 for i in range(5)}, index
        ), {}
    if command == "topics":
        return pandas.DataFrame(
            RNG.poisson(np.where(KIND[:, None] == np.arange(10) % 2, 4, 0.2)), index
        ), {}
    frame = pandas.DataFrame(
        {"a": RNG.standard_normal(N) + 9 * KIND, "b": RNG.exponential(size=N)}, index
    )
    return frame, {"lengths": [20, 10, 30]} if command == "hmm" else {}


@pytest.mark.parametrize("command", MODELS)
def test_assignments_have_the_index_of_pandas_and_what_the_model_returns(command):
    X, side = _rows_for(command)
    model = MODELS[command].load_estimator()(2, random_state=0).fit(X, **side)
    found = model.assignments(X, **side)
    assert found.index.equals(X.index)
    assert found.index.name == "user"
    shares = (
        model.predict_proba(X, **side) if hasattr(model, "predict_proba") else model.transform(X)
    )
    values = found.iloc[:, -2:]
    np.testing.assert_array_equal(values, shares)
    component = values.columns[0].removesuffix(" 0")
    assert list(found.columns) == [component] * hasattr(model, "predict") + [
        f"{component} 0",
        f"{component} 1",
    ]
    if hasattr(model, "predict"):
        np.testing.assert_array_equal(found[component], model.predict(X, **side))
    joined = X.sample(frac=1, random_state=1).join(found)  # in any order, by the index
    np.testing.assert_array_equal(joined.loc[X.index, values.columns], shares)


def test_assignments_of_an_array_have_the_numbers_of_rows_and_need_a_fitted_model():
    rows = FRAME[["a", "b"]].to_numpy()
    found = models.TensorMixture(2, random_state=0).fit(rows).assignments(rows)
    assert found.index.equals(pandas.RangeIndex(N))
    with pytest.raises(NotFittedError):
        models.TensorMixture(2).assignments(FRAME[["a", "b"]])
