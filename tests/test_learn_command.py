"""``odeco learn``, in this process: what it reads, what it writes, what it refuses."""

from __future__ import annotations

import base64
import csv
import io
import json
import re

import numpy as np
import pytest
from scipy import io as scipy_io
from scipy import sparse
from scipy.io import wavfile

from odeco.cli.app import run as main
from odeco.cli.files import _MEANINGS
from odeco.cli.inputs import INPUTS
from odeco.cli.learn import make_command
from odeco.cli.models import MODELS
from odeco.io.graphs import read_graph
from odeco.io.tables import number_symbols, order_sequences, read_text_table
from odeco.models import Communities, LatentClasses, TensorHMM, TensorICA, TensorLDA, TensorMixture


def learn(capsys, *arguments, code=0):
    """Run the command; return what it wrote to stdout and to stderr."""
    ended = main(["learn", *map(str, arguments)])
    shown = capsys.readouterr()
    assert ended == code, shown.err
    assert "Traceback" not in shown.err
    return shown.out, " ".join(shown.err.split())


def labels_in(path):
    with path.open(newline="") as file:
        heading, *rows = csv.reader(file)
    return (
        heading,
        [row[0] for row in rows],
        np.array([[float(cell) for cell in row[1:]] for row in rows]),
    )


def agree(found, truth):
    """Whether two partitions are the same, up to names."""
    return len(set(zip(found, truth, strict=True))) == len(set(found)) == len(set(truth))


@pytest.fixture
def clusters(tmp_path):
    """A table of three clusters that no row is between, with a column of numbers that say
    nothing.
    """
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=600)
    rows = np.array([[0, 0, 0], [40, 0, 0], [0, 40, 0]])[truth] + rng.standard_normal((600, 3))
    path = tmp_path / "rows.csv"
    lines = [
        "id,width,height,mass",
        *(f"{i},{a:.6f},{b:.6f},{c:.6f}" for i, (a, b, c) in enumerate(rows)),
    ]
    path.write_text("\n".join(lines))
    return path, truth


@pytest.fixture
def visitors(tmp_path):
    """A table of two groups that differ in a number, a category and a count, with gaps and names."""
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=300)
    path = tmp_path / "visitors.csv"
    lines = ["id,name,age,plan,visits,paid"]
    for row, group in enumerate(truth):
        age = "" if row % 11 == 0 else f"{30 + 30 * group + rng.normal(0, 3):.2f}"
        plan = "NA" if row % 13 == 0 else ("monthly", "yearly")[group ^ (rng.random() < 0.05)]
        visits = rng.poisson((2, 20)[group])
        lines.append(f"{row},visitor {row},{age},{plan},{visits},{rng.random() < 0.5}")
    path.write_text("\n".join(lines))
    return path, truth


def test_a_table_of_several_kinds_is_learnt_and_applied(visitors, tmp_path, capsys):
    path, truth = visitors
    out, labels, page = tmp_path / "model.npz", tmp_path / "labels.csv", tmp_path / "page.html"
    shown, _ = learn(
        capsys, "mixture", path, "-k", 2, "--kinds", "visits=count", "--seed", 0,
        "--out", out, "--labels", labels, "--report", page,
    )  # fmt: skip
    assert "1 of numbers, 1 of counts, 2 of categories" in shown
    assert "Left out: id (it counts the rows), name (300 different texts" in shown
    assert "plan = yearly" in page.read_text()
    _, _, found = labels_in(labels)
    assert agree(found[:, 0].tolist(), truth.tolist())
    model = TensorMixture.load(out)
    assert model.columns_["visits"] == "count"
    assert model.categories_["paid"].tolist() == [False, True]
    # In Python the file, and new rows in another order of columns, say the same.
    again = TensorMixture(2, columns={"visits": "count"}, random_state=0).fit(path)
    np.testing.assert_array_equal(again.predict_proba(path), model.predict_proba(path))
    few = tmp_path / "few.csv"
    few.write_text("visits,plan,age,paid\n1,monthly,31,True\n25,yearly,,False\n")
    assert main(["apply", str(out), str(few)]) == 0
    rows = list(csv.reader(capsys.readouterr().out.splitlines()))[1:]
    assert {rows[0][1], rows[1][1]} == {"0", "1"}


def test_kinds_of_columns_are_checked(visitors, capsys):
    path, _ = visitors
    _, said = learn(capsys, "mixture", path, "--kinds", "visits", code=2)
    assert "must be names and kinds of columns" in said
    _, said = learn(capsys, "mixture", path, "--kinds", "visits=often", code=1)
    assert "must be one of 'number', 'count', 'category', 'ignore'" in said
    private = ["--epsilon", 1, "--delta", 1e-6, "--norm-bound", 5, "-k", 2, "--header"]
    _, said = learn(capsys, "mixture", path, "--kinds", "visits=count", *private, code=2)
    assert "--kinds is not for private rows" in said


@pytest.mark.slow
def test_clusters_of_a_table_with_model_labels_and_page(clusters, tmp_path, capsys):
    path, truth = clusters
    out, labels, page = tmp_path / "model.npz", tmp_path / "labels.csv", tmp_path / "page.html"
    shown, _ = learn(
        capsys,
        "mixture",
        path,
        "--drop",
        "id",
        "--out",
        out,
        "--labels",
        labels,
        "--report",
        page,
        "--threads",
        1,
    )
    assert shown.startswith("3 components, each found again in every half-sample.")
    assert "width" in shown
    assert "Columns used: width, height, mass. Leave one out with --drop." in shown
    assert "rises or falls" not in shown
    assert "id" not in TensorMixture.load(out).feature_names_in_
    heading, names, values = labels_in(labels)
    assert heading == [
        "odeco row",
        "odeco cluster",
        *(f"odeco cluster {number}" for number in range(3)),
    ]
    assert names[:2] == ["0", "1"]
    assert agree(values[:, 0], truth)
    text = page.read_text()
    assert "Clusters of rows.csv" in text
    assert "<svg" in text
    assert "height" in text
    learn(
        capsys, "mixture", path, "--drop", "id", "-k", 3, "--labels", labels
    )  # replaces what odeco wrote
    assert main(["report", str(out), "--out", str(page)]) == 0
    assert "Model in model.npz" in page.read_text()


def test_clusters_as_json_are_those_of_python(clusters, capsys):
    path, _ = clusters
    shown, _ = learn(
        capsys, "mixture", path, "--columns", "width,height", "-k", 3, "--json", "--threads", 1
    )
    document = json.loads(shown)
    rows = np.loadtxt(path, delimiter=",", skiprows=1)[:, 1:3]
    model = TensorMixture(3, random_state=0).fit(rows)
    assert document["means_"] == model.means_.tolist()
    assert document["feature_names_in_"] == ["width", "height"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--columns", "width", "--drop", "id"], "--columns and --drop must not be given together"),
        (["--drop", "nothing"], "nothing"),
        (["-k", "many"], "neither a whole number nor 'auto'"),
        (
            ["--epsilon", "1", "--delta", "1e-6", "--norm-bound", "50", "--labels", "x.csv"],
            "--labels would reveal",
        ),
        (
            ["-k", "3", "--epsilon", "1", "--delta", "1e-6", "--norm-bound", "50", "--drop", "id"],
            "not for private rows",
        ),
        (["--delta", "1e-6"], "--delta goes with --epsilon"),
        (["-k", "3", "--epsilon", "1", "--delta", "1e-6"], "needs --norm-bound"),
    ],
)
def test_what_cannot_be_done_is_refused_in_the_words_of_the_command(
    clusters, arguments, words, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    _, said = learn(
        capsys, "mixture", clusters[0], *arguments, code=1 if "nothing" in arguments else 2
    )
    assert words in said


def test_private_clusters_have_a_guarantee_on_their_page(clusters, tmp_path, capsys):
    rows = np.loadtxt(clusters[0], delimiter=",", skiprows=1)[:, 1:]
    path, page = tmp_path / "rows.npy", tmp_path / "page.html"
    np.save(path, np.tile(rows, (20, 1)))
    settings = ("-k", 3, "--epsilon", 4, "--delta", 1e-6, "--norm-bound", 50)
    learn(capsys, "mixture", path, *settings, "--report", page, "--out", tmp_path / "model.npz")
    assert "(4, 1e-06)-differentially private" in page.read_text()
    assert "Running this again spends another ε = 4 of the privacy" in page.read_text()
    assert TensorMixture.load(tmp_path / "model.npz").privacy_.epsilon == 4


def test_private_models_of_users_take_a_file_with_the_user_of_each_row(clusters, tmp_path, capsys):
    rows = np.tile(np.loadtxt(clusters[0], delimiter=",", skiprows=1)[:, 1:], (20, 1))
    path, users = tmp_path / "rows.npy", tmp_path / "users.txt"
    np.save(path, rows)
    users.write_text("\n".join(f"user {row // 3}" for row in range(len(rows))))
    settings = ("-k", 3, "--epsilon", 4, "--delta", 1e-6, "--norm-bound", 50)
    shown, said = learn(
        capsys, "mixture", path, *settings, "--groups", users, "--out", tmp_path / "model.npz"
    )
    n_users = -(-len(rows) // 3)
    assert f"is for one user of {n_users:,} users." in said
    assert "knows every other user" in shown
    model = TensorMixture.load(tmp_path / "model.npz")
    assert (model.privacy_.unit, model.n_samples_seen_) == ("user", n_users)
    _, said = learn(capsys, "mixture", path, "-k", 3, "--groups", users, code=2)
    assert "--groups goes with --epsilon" in said
    users.write_text("user 1")
    _, said = learn(capsys, "mixture", path, *settings, "--groups", users, code=1)
    assert "must hold one label per row" in said


def test_classes_of_a_survey_with_empty_cells(tmp_path, capsys):
    rng = np.random.default_rng(1)
    truth = rng.integers(2, size=800)
    favourite = np.array([["yes"] * 9, ["no"] * 9])[truth]
    other = np.array([["no"] * 9, ["yes"] * 9])[truth]
    said = np.where(rng.random((800, 9)) < 0.95, favourite, other)
    said[rng.random((800, 9)) < 0.1] = ""
    said[:3, 0] = "NA"
    path, labels = tmp_path / "survey.csv", tmp_path / "classes.csv"
    path.write_text(
        "\n".join([",".join(f"q{i}" for i in range(9)), *(",".join(row) for row in said)])
    )
    shown, _ = learn(
        capsys, "classes", path, "-k", 2, "--labels", labels, "--out", tmp_path / "model.npz"
    )
    assert shown.startswith("2 classes, each found again in every half-sample.")
    found = labels_in(labels)[2][:, 0]
    # Of nine answers, each given with 95 %, most are those of the class: fewer than 1 respondent in
    # 200 is misplaced.
    assert max(np.mean(found == truth), np.mean(found != truth)) > 0.99
    model = LatentClasses.load(tmp_path / "model.npz")
    assert sorted(map(str, model.categories_[0])) == ["no", "yes"]
    assert list(model.feature_names_in_) == [f"q{i}" for i in range(9)]


@pytest.fixture
def survey(tmp_path):
    """Two classes that answer nine questions with yes or no, 6,000 respondents."""
    rng = np.random.default_rng(1)
    said = np.where(
        (rng.random((6000, 9)) < 0.9) == rng.integers(2, size=6000)[:, None].astype(bool),
        "yes",
        "no",
    )
    path = tmp_path / "survey.csv"
    path.write_text(
        "\n".join([",".join(f"q{i}" for i in range(9)), *(",".join(row) for row in said)])
    )
    return path


PRIVATELY = ("-k", 2, "--epsilon", 4, "--delta", 1e-6)


@pytest.mark.slow
def test_private_classes_have_a_plan_a_ledger_and_a_guarantee_on_their_page(
    survey, tmp_path, capsys
):
    page, ledger, out = tmp_path / "page.html", tmp_path / "survey.ledger", tmp_path / "model.npz"
    settings = (*PRIVATELY, "--answers", "no,yes", "--header", "--ledger", ledger)
    shown, said = learn(
        capsys, "classes", survey, *settings, "--budget", 5, "--report", page, "--out", out
    )
    assert "of 2 classes of simulated respondents 2 would be clear" in shown
    assert "with this one it will be ε = 4 of 5" in said
    assert "(4, 1e-06)-differentially private" in page.read_text()
    assert "Running this again spends another ε = 4 of the privacy" in page.read_text()
    model = LatentClasses.load(out)
    # Two classes that give nine answers with 90 % each: 6,000 respondents at ε = 4 leave no doubt
    # which is which.
    assert np.abs(np.diff([own[:, 1] for own in model.answer_probabilities_])).min() > 0.6
    _, said = learn(capsys, "classes", survey, *settings, code=1)
    assert "Nothing was spent" in said


def test_answers_of_each_question_may_be_in_a_file(survey, tmp_path, capsys):
    (tmp_path / "answers.json").write_text(
        json.dumps({"q3": ["yes", "no"], "q1": ["no", "yes", "perhaps"]})
    )
    shown, _ = learn(
        capsys,
        "classes",
        survey,
        *PRIVATELY,
        "--header",
        "--answers",
        tmp_path / "answers.json",
        "--json",
    )
    document = json.loads(shown)
    assert document["feature_names_in_"] == ["q3", "q1"]
    assert document["categories_"] == [["yes", "no"], ["no", "yes", "perhaps"]]
    (tmp_path / "answers.json").write_text('["yes", "no"]')
    _, said = learn(
        capsys,
        "classes",
        survey,
        *PRIVATELY,
        "--header",
        "--answers",
        tmp_path / "answers.json",
        code=1,
    )
    assert "must hold an object" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-k", 2, "--epsilon", 1], "needs --delta and --answers"),
        (
            ["--epsilon", 1, "--delta", 1e-6, "--answers", "no,yes"],
            "A private model needs a number",
        ),
        ([*PRIVATELY, "--answers", "no,yes", "--labels", "x.csv"], "--labels would reveal"),
        (
            [*PRIVATELY, "--answers", "no,yes", "--header", "--budget", 3],
            "--budget is that of a new --ledger",
        ),
        (
            [*PRIVATELY, "--answers", "no,yes", "--header", "--ledger", "new.ledger"],
            "is new and needs --budget",
        ),
        ([*PRIVATELY, "--answers", "no,yes"], "survey.csv needs --header or --no-header"),
        ([*PRIVATELY, "--answers", "no,yes", "--no-header"], "survey.csv needs a line of names"),
        (["-k", 2, "--header"], "--header goes with --epsilon"),
    ],
)
def test_what_private_classes_cannot_have_is_refused(
    survey, arguments, words, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    _, said = learn(capsys, "classes", survey, *arguments, code=2)
    assert words in said


def test_of_a_private_table_every_record_is_a_respondent_whatever_it_holds(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b'a;b\nx;1\n\n"x\ny;2";3\n;\n\xff;NA\n"y";2\r\n')
    table = read_text_table(path, private=True)
    assert table.columns == ["a", "b"]
    assert table.cells.tolist() == [
        ["x", "1"],
        ["x\ny;2", "3"],
        [None, None],
        ["\ufffd", None],
        ["y", "2"],
    ]
    for malformed in (b'a;b\nx;1\n"secret', b"a;b\nx;1\nsecret", b"a;b\nx;1\n1;secret;3"):
        path.write_bytes(malformed)
        with pytest.raises(ValueError, match="must be well-formed CSV") as error:
            read_text_table(path, private=True)
        assert "secret" not in str(error.value)
    with pytest.raises(ValueError, match=r"private table must be in a \.csv, \.tsv file"):
        read_text_table(tmp_path / "t.parquet", private=True)


def test_a_column_of_texts_in_sequences_of_numbers_says_how_to_name_symbols(tmp_path, capsys):
    path = tmp_path / "log.csv"
    path.write_text("user,event\na,open\na,read\nb,open\n")
    assert main(["learn", "hmm", str(path), "--sequence", "user"]) == 1
    error = capsys.readouterr().err
    assert "Got 'open' in column 'event'" in error
    assert "name their column with --symbol" in error


def test_states_of_symbols_in_several_sequences(tmp_path, capsys):
    rng = np.random.default_rng(2)
    lines = ["who,event"]
    for who in range(30):
        state = 0
        for _ in range(100):
            state = state if rng.random() < 0.95 else 1 - state
            lines.append(f"{who},{rng.choice(['read', 'look'] if state else ['buy', 'pay'])}")
    path = tmp_path / "log.csv"
    path.write_text("\n".join(lines))
    labels = tmp_path / "states.csv"
    settings = ("--symbol", "event", "--sequence", "who", "-k", 2)
    page = tmp_path / "page.html"
    outputs = ("--labels", labels, "--out", tmp_path / "model.npz", "--report", page)
    shown, _ = learn(capsys, "hmm", path, *settings, *outputs)
    assert "Symbols: 0 buy, 1 look, 2 pay, 3 read." in shown
    assert "Symbols: 0 buy" in page.read_text()
    found = labels_in(labels)[2][:, 0]
    truth = [line.split(",")[1] in ("read", "look") for line in lines[1:]]
    assert (
        max(np.mean(found == truth), np.mean(found != truth)) > 0.95
    )  # each symbol is of one state only
    assert "event is" in shown
    assert any(
        f"{name} (5" in shown for name in ("buy", "pay")
    )  # a state has two symbols, of about a half each
    assert TensorHMM.load(tmp_path / "model.npz").symbol_names_ == ["buy", "look", "pay", "read"]


def test_private_states_of_a_log(tmp_path, capsys):
    """Four symbols, of which two belong to each state: a table of 4 x 4 x 4 triples shows them at
    this budget.
    """
    rng = np.random.default_rng(2)
    lines = []
    for who in range(400):
        states = np.cumsum(rng.random(50) > 0.9) % 2
        lines += [
            f"{who:03},{['buy', 'pay', 'read', 'look'][2 * state + rng.integers(2)]}"
            for state in states
        ]
    path, out = tmp_path / "log.csv", tmp_path / "model.npz"
    path.write_text("\n".join(["who,event", *lines, "000,unknown"]))
    table = ("--symbol", "event", "--sequence", "who")
    private = (
        "--epsilon",
        4,
        "--delta",
        1e-6,
        "--symbols",
        "buy,pay,read,look",
        "--length",
        50,
        "--header",
    )
    shown, said = learn(capsys, "hmm", path, "-k", 2, *table, *private, "--out", out)
    assert "400 sequences of about 50 of 4 symbols" in shown
    assert "is for one sequence of 400 sequences" in said
    model = TensorHMM.load(out)
    assert model.privacy_.epsilon == 4
    assert model.symbol_names_ == ["buy", "pay", "read", "look"]
    own = model.emissionprob_[np.argmax(model.emissionprob_[:, 0])]
    assert own[:2].sum() > 0.9
    for wrong in (table[:2], table[2:], (*table, "--time", "who"), (*table, "--drop", "who")):
        _, said = learn(capsys, "hmm", path, "-k", 2, *wrong, *private, code=2)
        assert "with a --symbol and a --sequence column" in said
    path.write_text("\n".join(["who,event", *lines, ",secret"]))
    _, said = learn(capsys, "hmm", path, "-k", 2, *table, *private, code=1)
    assert "nothing was released" in said
    assert "secret" not in said


@pytest.mark.parametrize("symbols", [True, False])
def test_a_log_in_the_order_of_time_gives_the_states_that_sorted_sequences_give(
    symbols, tmp_path, capsys
):
    """Rows of several users are mixed; labels stay with their rows."""
    rng = np.random.default_rng(7)
    lines = []
    for who in range(8):
        states = np.arange(120) // 30 % 2
        values = (
            rng.integers(2, size=120) + 2 * states
            if symbols
            else 9 * states + rng.standard_normal(120)
        )
        lines += [(who, time, value) for time, value in enumerate(values)]
    settings = (
        "--sequence",
        "who",
        "-k",
        2,
        *(("--symbol", "value") if symbols else ()),
        "--drop",
        "time",
    )
    found = {}
    for name, order in {
        "sorted": np.arange(len(lines)),
        "mixed": rng.permutation(len(lines)),
    }.items():
        path, labels = tmp_path / f"{name}.csv", tmp_path / f"{name} labels.csv"
        rows = [lines[place] for place in order]
        path.write_text(
            "\n".join(["who,time,value", *(f"{who},{time},{value}" for who, time, value in rows)])
        )
        shown, _ = learn(capsys, "hmm", path, *settings, "--time", "time", "--labels", labels)
        assert "8 sequences of who, each in the order of time" in " ".join(shown.split())
        found[name] = np.empty(len(lines))
        found[name][order] = labels_in(labels)[2][:, 0]
    np.testing.assert_array_equal(found["sorted"], found["mixed"])


def test_cells_of_numbers_and_symbols_may_be_empty(clusters, tmp_path, capsys):
    path, truth = clusters
    lines = [line.split(",") for line in path.read_text().splitlines()]
    for row, line in enumerate(lines[1:]):
        if row % 4 == 0:
            line[1 + row % 3] = ("", "NA")[row % 8 == 0]
    path.write_text("\n".join(map(",".join, lines)))
    labels = tmp_path / "labels.csv"
    learn(capsys, "mixture", path, "--drop", "id", "-k", 3, "--labels", labels)
    known = np.array([("" not in line) and ("NA" not in line) for line in lines[1:]])
    assert agree(labels_in(labels)[2][known, 0], truth[known])
    shown, _ = learn(capsys, "hmm", path, "--drop", "id", "-k", 3)
    assert "3 states" in shown
    _, error = learn(capsys, "ica", path, "--drop", "id", "-k", 2, code=1)
    assert "Row 0 of rows.csv (line 2) must be all numbers. Got 'NA' in column 'width'" in error
    path.write_text("\n".join(f"{i},,{i}" for i in range(20)).join(["a,b,c\n", ""]))
    _, error = learn(capsys, "mixture", path, "-k", 2, code=1)
    assert "b (column 1) has none in 20 rows" in error

    log = tmp_path / "log.csv"
    log.write_text(
        "event,note\n"
        + "".join(f"{event},x\n" for event in (["a", "b", "", "a"] * 20 + ["c", "", "d", "c"] * 20))
    )
    shown, _ = learn(capsys, "hmm", log, "--symbol", "event", "-k", 2, "--labels", labels)
    assert "Symbols: 0 a, 1 b, 2 c, 3 d." in shown
    found = labels_in(labels)[2][:, 0]
    assert agree(found, np.repeat([0, 1], 80))


def test_sources_of_a_recording(tmp_path, capsys):
    rng = np.random.default_rng(3)
    sources = rng.laplace(size=(5000, 2))
    np.save(tmp_path / "recording.npy", sources @ np.array([[1.0, 0.5], [0.3, 1.0]]).T)
    labels = tmp_path / "sources.csv"
    learn(
        capsys,
        "ica",
        tmp_path / "recording.npy",
        "-k",
        2,
        "--labels",
        labels,
        "--out",
        tmp_path / "model.npz",
    )
    found = labels_in(labels)[2]
    cosines = np.abs(np.corrcoef(found.T, sources.T)[:2, 2:])
    assert cosines.max(axis=1).min() > 0.99
    TensorICA.load(tmp_path / "model.npz")


def test_the_page_of_a_recording_shows_the_sources_over_time_and_plays_them(tmp_path, capsys):
    rng = np.random.default_rng(3)
    recorded = rng.laplace(size=(4000, 2)) @ np.array([[1.0, 0.5], [0.3, 1.0]])
    samples = np.rint(recorded / np.abs(recorded).max() * 30_000).astype(np.int16)
    wavfile.write(tmp_path / "recording.wav", 2_000, samples)
    page = tmp_path / "page.html"
    shown, _ = learn(capsys, "ica", tmp_path / "recording.wav", "-k", 2, "--report", page)
    assert "Leave one out with --drop." in shown
    text = page.read_text()
    assert "Leave one out" not in text
    assert "Sources over time" in text
    played = re.findall(r'src="data:audio/wav;base64,([^"]+)"', text)
    assert len(played) == 2
    model = TensorICA(2, random_state=0).fit(samples.astype(float))
    for each, source in zip(played, model.transform(samples.astype(float)).T, strict=True):
        rate, heard = wavfile.read(io.BytesIO(base64.b64decode(each)))
        assert (rate, len(heard)) == (2_000, 4_000)
        assert np.corrcoef(heard, source)[0, 1] > 0.9999


def block_graph(rng, n_nodes=120):
    truth = np.repeat([0, 1], n_nodes // 2)
    likely = np.where(truth[:, None] == truth[None, :], 0.4, 0.02)
    upper = np.triu(rng.random((n_nodes, n_nodes)) < likely, 1)
    return truth, np.argwhere(upper)


@pytest.mark.parametrize(
    ("text", "n_nodes"),
    [
        ("a,b\n1,2\n2,3\n", 3),  # all other nodes are numbers
        ("person,friend\n1,2\n2,3\n", 3),
        ("one,two,weight\nx,y,2\n", 2),  # the weight is no number
        ("A,B\nanna,ben\nben,cy\n", 3),  # usual names, which do not occur again
        ("a,b\nb,c\na,c\n", 3),  # these are nodes
        ("anna,ben\nben,cy\n", 3),
        ("user,event\n" + "".join(f"u{i},e{i % 3}\n" for i in range(12)), 15),
        ("u0,event\n" + "".join(f"u{i},e{i % 3}\n" for i in range(12)), 16),
        ("1,2\n2,3\n", 3),
    ],
)
def test_the_names_of_columns_are_not_nodes(tmp_path, text, n_nodes):
    path = tmp_path / "edges.csv"
    path.write_text(text)
    assert read_graph(path).adjacency.shape == (n_nodes, n_nodes)


def test_communities_of_a_list_of_edges(tmp_path, capsys):
    truth, edges = block_graph(np.random.default_rng(4))
    path, labels = tmp_path / "edges.csv", tmp_path / "memberships.csv"
    path.write_text("source,target\n" + "\n".join(f"n{a:03d},n{b:03d}" for a, b in edges))
    shown, _ = learn(
        capsys, "communities", path, "-k", 2, "--labels", labels, "--out", tmp_path / "model.npz"
    )
    assert "The first line (source, target) has the names of the columns." in shown
    _, names, values = labels_in(labels)
    assert names == [f"n{i:03d}" for i in range(120)]
    assert max(np.mean(values[:, 0] == truth), np.mean(values[:, 0] != truth)) > 0.97
    Communities.load(tmp_path / "model.npz")


def test_a_graph_is_the_same_from_every_kind_of_file(tmp_path):
    _, edges = block_graph(np.random.default_rng(5), 30)
    matrix = sparse.coo_array((np.ones(len(edges)), edges.T), shape=(30, 30)).tocsr()
    sparse.save_npz(tmp_path / "g.npz", matrix)
    scipy_io.mmwrite(tmp_path / "g.mtx", matrix)
    (tmp_path / "g.tsv").write_text("\n".join(f"{a:02d}\t{b:02d}\t1.0" for a, b in edges))
    (tmp_path / "g.txt").write_text("# edges\n" + "\n".join(f"{a:02d} {b:02d}" for a, b in edges))
    for name in ("g.npz", "g.mtx", "g.tsv", "g.txt"):
        np.testing.assert_array_equal(
            read_graph(tmp_path / name).adjacency.toarray(), matrix.toarray()
        )


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("g.csv", "a,b\nc", "edge 2 has 1 cells"),
        ("g.csv", "", "it has no edges"),
        ("g.csv", "x,y,heavy", "weights of edges"),
        ("g.pdf", "x", "must be a matrix"),
    ],
)
def test_a_graph_that_is_none_is_refused(tmp_path, name, text, words):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=words):
        read_graph(tmp_path / name)


def test_a_table_of_texts_is_the_same_from_parquet_and_csv(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": ["x", None, "z"], "b": ["1", "2", None]})
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_csv(tmp_path / "t.csv", index=False)
    first, second = (read_text_table(tmp_path / name) for name in ("t.parquet", "t.csv"))
    assert first.columns == second.columns == ["a", "b"]
    assert first.cells.tolist() == second.cells.tolist() == [["x", "1"], [None, "2"], ["z", None]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1", "row 1, .* has 1 of 2 cells"),
        ("a,b", "at least one row"),
        ("", "at least one row"),
    ],
)
def test_a_table_that_is_none_is_refused(tmp_path, text, words):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ValueError, match=words):
        read_text_table(tmp_path / "t.csv")


def test_symbols_are_numbered_in_alphabetical_order():
    codes, names = number_symbols(["b", "a", None, "b"])
    assert names == ["a", "b"]
    np.testing.assert_array_equal(codes, [1, 0, np.nan, 1])


def test_rows_of_a_sequence_need_not_be_neighbours():
    order = order_sequences(["v", "u", "v", "u", "v"], None, 5)
    assert order.permutation.tolist() == [0, 2, 4, 1, 3]
    assert order.lengths.tolist() == [3, 2]
    np.testing.assert_array_equal(order.restore(np.arange(5)), [0, 3, 1, 4, 2])
    assert order_sequences(None, None, 3).lengths.tolist() == [3]
    with pytest.raises(ValueError, match=r"Every row must have a sequence\. Row 2 has none"):
        order_sequences(["u", None], None, 2)


def test_rows_of_a_sequence_are_in_the_order_of_time():
    for times in (
        ["10", "9", "-1.5", "9"],
        ["2024-05-10", "2024-05-09T23:00", "2023-12-31 07:00:00", "2024-05-09T23:00:00Z"],
    ):
        assert order_sequences(None, times, 4).permutation.tolist() == [2, 1, 3, 0]
        assert order_sequences(["a", "b", "a", "a"], times, 4).permutation.tolist() == [2, 3, 0, 1]
    for bad in ("yesterday", "nan"):
        with pytest.raises(ValueError, match="Times must be"):
            order_sequences(None, ["1", bad], 2)


def test_every_registered_model_has_a_command_a_reader_and_a_meaning():
    estimators = {model.load_estimator() for model in MODELS.values()}
    assert estimators == {
        TensorLDA,
        TensorMixture,
        TensorHMM,
        TensorICA,
        LatentClasses,
        Communities,
    }
    for model in MODELS.values():
        assert model.kind == model.load_estimator()._KIND
        assert model.data in {*INPUTS, "documents"}
        assert model.kind in _MEANINGS
        options = {option.name for option in make_command(model).params}
        assert {"n_components", "seed", "out", "labels_path", "report"} <= options
        assert ("epsilon" in options) == model.is_private


@pytest.mark.slow
@pytest.mark.filterwarnings("always")
def test_an_index_among_the_columns_is_named_and_warned_of(clusters, capsys):
    for option in ((), ("--standardize", "no")):
        shown, said = learn(
            capsys, "mixture", clusters[0], "-k", 3, "--covariance", "spherical", *option
        )
        assert "Columns used: id, width, height, mass." in shown
        assert "'id' rises or falls with every row, as an id or a time does." in shown
        assert "Column 0, 'id', outweighs all others" in said
    shown, said = learn(
        capsys, "mixture", clusters[0], "-k", 3, "--covariance", "spherical", "--standardize", "yes"
    )
    assert "Columns were standardised" in shown
    assert said == "reading learning checking on halves describing"


@pytest.mark.parametrize(
    "model",
    [each for each in MODELS.values() if each.data not in ("graph", "documents")],
    ids=lambda each: each.command,
)
def test_a_column_holds_the_weights_of_rows(model, tmp_path, capsys):
    rng = np.random.default_rng(0)
    states = np.repeat(rng.integers(2, size=60), 5)
    rows = rng.standard_normal((300, 3)) * [1, 2, 1] + 6 * states[:, None]
    if model.data == "answers":
        rows = (rng.random((300, 6)) < np.where(states, 0.9, 0.1)[:, None]).astype(float)
    weights = np.repeat(rng.integers(0, 3, 30), 10)  # the same within a sequence
    names = [f"x{place}" for place in range(rows.shape[1])]
    cells = [[f"{value:.9g}" for value in row] for row in rows]
    lines = [
        ["run", *names, "count"],
        *([i // 10, *row, w] for i, (row, w) in enumerate(zip(cells, weights, strict=True))),
    ]
    path, out = tmp_path / "rows.csv", tmp_path / "model.npz"
    path.write_text("\n".join(",".join(map(str, line)) for line in lines))
    sequences = ["--sequence", "run"] if model.data == "sequences" else ["--drop", "run"]
    shown, _ = learn(
        capsys,
        model.command,
        path,
        "-k",
        2,
        "--weight",
        "count",
        *sequences,
        "--seed",
        0,
        "--out",
        out,
    )
    assert "count" not in shown.split("Columns used:")[-1].split(".")[0]
    found = model.load_estimator().load(out)
    given = np.array([[float(cell) for cell in row] for row in cells])
    fresh = model.load_estimator()(**found.get_params())
    side = {"lengths": np.full(30, 10)} if model.data == "sequences" else {}
    fresh.fit(
        given.astype(int).astype(str) if model.data == "answers" else given,
        sample_weight=weights,
        **side,
    )
    expected = fresh._learnt.fit.params.to_arrays("")
    for key, value in found._learnt.fit.params.to_arrays("").items():
        np.testing.assert_array_equal(value, expected[key])


def test_bad_and_private_weights_are_refused(clusters, capsys):
    path, _ = clusters
    _, shown = learn(capsys, "mixture", path, "-k", 3, "--weight", "weight", code=1)
    assert "must have one column 'weight'" in shown
    _, shown = learn(capsys, "mixture", path, "-k", 3, "--drop", "id", "--weight", "width", code=1)
    assert "finite and not negative" in shown
    private = ("--epsilon", 1, "--delta", 1e-6, "--norm-bound", 50)
    _, shown = learn(capsys, "mixture", path, "-k", 3, "--weight", "id", *private, "--yes", code=2)
    assert "--weight is not for private rows" in shown
