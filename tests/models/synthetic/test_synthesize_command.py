"""``odeco synthesize``: files, the budget, and what is said before it is spent."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from odeco.cli import synthesize as _synthesize
from odeco.cli.app import run as main
from odeco.models import SyntheticData

SCHEMA = {
    "smokes": ["no", "yes"],
    "age": {"low": 18, "high": 89, "bins": 6, "whole": True, "missing": True},
    "height": {"edges": [1.0, 1.5, 1.75, 2.25]},
}
BUDGET = ("--epsilon", "1", "--delta", "1e-6")


@pytest.fixture
def people(tmp_path, monkeypatch):
    """A private table and its schema, in a folder that is the current one."""
    rng = np.random.default_rng(0)
    smokes = rng.random(2000) < 0.3
    rows = [
        f"{'yes' if own else 'no'},{rng.integers(18, 90) if rng.random() < 0.8 else ''},{rng.normal(1.6 + 0.3 * own, 0.1):.2f},secret"
        for own in smokes
    ]
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text("\n".join(["smokes,age,height,name", *rows]))
    Path("schema.json").write_text(json.dumps(SCHEMA))
    return tmp_path / "people.csv"


def run(capsys, *arguments, code=0):
    """Run the command; return what it wrote to stdout and to stderr."""
    ended = main(["synthesize", *map(str, arguments)])
    shown = capsys.readouterr()
    assert ended == code, shown.err
    assert "Traceback" not in shown.err
    assert "secret" not in shown.out + shown.err
    return shown.out, " ".join(shown.err.split())


def usual(file, *more):
    return (file, "--header", "--schema", "schema.json", *BUDGET, *more)


def test_a_synthetic_table_is_written_with_what_it_guarantees(people, capsys):
    out, err = run(capsys, *usual(people, "--out", "out.csv", "--model", "model.npz"))
    with Path("out.csv").open(newline="") as file:
        heading, *rows = csv.reader(file)
    assert heading == list(SCHEMA)
    assert len(rows) == 2000
    columns = dict(zip(heading, zip(*rows, strict=True), strict=True))
    assert set(columns["smokes"]) == {"no", "yes"}
    ages = [int(cell) for cell in columns["age"] if cell]
    assert 18 <= min(ages) <= max(ages) <= 89
    assert 0.1 < columns["age"].count("") / 2000 < 0.3
    heights = np.array(columns["height"], dtype=float)
    own = np.array(columns["smokes"]) == "yes"
    assert heights[own].mean() > heights[~own].mean() + 0.2
    assert "(1, 1e-06)-differentially private for one row" in out
    assert "clear of noise" in out
    assert "The guarantee (ε = 1, δ = 1e-06) is for one row of 2,000 rows." in err
    assert "wrote out.csv" in err
    made = SyntheticData.load("model.npz")
    assert made.summary() in out
    assert made.table["smokes"].tolist() == list(columns["smokes"])


def test_the_plan_and_its_warning_stand_before_anything_is_spent(people, capsys, monkeypatch):
    def refuse(*_, **__):
        raise RuntimeError("nothing may be computed")

    monkeypatch.setattr(_synthesize, "synthesize_table", refuse)
    out, _ = run(capsys, *usual(people, "--out", "out.csv", "--epsilon", 30), code=1)
    assert "3 tables of two columns" in out
    assert "hardly any protection" in out
    assert not Path("out.csv").exists()


def test_a_plan_needs_no_table(people, capsys):
    plan = ["plan", "synthesize", *BUDGET, "--n-records", "2000"]
    assert main([*plan, "--schema", "schema.json"]) == 0
    planned = capsys.readouterr().out
    out, _ = run(capsys, *usual(people, "--out", "out.csv"))
    assert planned.strip() in out
    assert main(plan) == 2
    assert "needs --schema" in capsys.readouterr().err
    assert main([*plan, "--schema", "schema.json", "-k", "2"]) == 2
    assert "-k is not for the plan of synthesize" in capsys.readouterr().err
    assert main(["plan", "decompose", *BUDGET, "--dimension", "5", "--unit", "entry"]) == 2
    assert "The plan of decompose needs -k" in capsys.readouterr().err


def test_as_json_it_is_one_document(people, capsys):
    out, _ = run(capsys, *usual(people, "--out", "out.csv", "--rows", 50, "--json"))
    document = json.loads(out)
    assert document["columns"] == list(SCHEMA)
    assert document["n_rows"] == 50
    assert document["privacy"]["epsilon"] == 1.0
    assert np.array(document["errors"]).shape == (3, 3)


def test_a_ledger_pays_and_refuses_before_anything_is_computed(people, capsys):
    ledger = ("--ledger", "people.ledger")
    _, err = run(capsys, *usual(people, "--out", "one.csv", *ledger, "--budget", 1.2))
    assert "with this one it will be ε = 1 of 1.2" in err
    _, err = run(capsys, *usual(people, "--out", "two.csv", *ledger), code=1)
    assert "Nothing was spent" in err
    assert not Path("two.csv").exists()
    blanked = ("--neighbours", "add_remove", "--epsilon", 0.1)
    _, err = run(capsys, *usual(people, "--out", "two.csv", *ledger, *blanked), code=1)
    assert "neighbours" in err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((), "needs --header or --no-header"),
        (("--no-header",), "needs a line of names"),
        (("--header", "--out", "people.csv"), "--out must be another file"),
        (("--header", "--out", "schema.json", "--force"), "--out must be another file"),
        (("--header", "--out", "out.npz"), "--out must end in .csv"),
        (("--header", "--rows", "0"), "--rows"),
        (("--header", "--epsilon", "-1"), "must be a number above 0"),
        (("--header", "--delta", "0.5"), "must be below 1/n"),
        (("--header", "--data", "x"), "--data names the data of a --ledger"),
    ],
)
def test_what_cannot_be_done_is_refused(people, capsys, change, message):
    arguments = (people, "--schema", "schema.json", *BUDGET, "--out", "out.csv", *change)
    code = main(["synthesize", *map(str, arguments)])
    err = " ".join(capsys.readouterr().err.split())
    assert code in (1, 2)
    assert message in err
    assert "secret" not in err
    assert not Path("out.csv").exists()


def test_no_error_quotes_a_cell(people, capsys):
    Path("schema.json").write_text(json.dumps({"salary": [1, 2]}))
    _, err = run(capsys, *usual(people, "--out", "out.csv"), code=1)
    assert "'salary'" in err
    text = people.read_text().splitlines()
    Path("headless.csv").write_text("\n".join(text[1:]))
    Path("schema.json").write_text(json.dumps({"yes": ["no", "yes"]}))
    _, err = run(capsys, *usual("headless.csv", "--out", "out.csv"), code=1)
    assert "looks like data" in err
    Path("odd.csv").write_text("\n".join([*text, "yes,secret"]))
    _, err = run(capsys, *usual("odd.csv", "--out", "out.csv"), code=1)
    assert "well-formed" in err


def test_a_result_is_delivered_even_if_its_file_cannot_be_written(people, capsys, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_synthesize, "write_text", full)
    monkeypatch.setattr(sys.modules["tempfile"], "gettempdir", lambda: str(people.parent))
    _, err = run(capsys, *usual(people, "--out", "out.csv"), code=1)
    assert "could not be written" in err
    assert "instead: copy it from there" in err
    assert "ε = 1 is spent all the same" in err
    (saved,) = people.parent.glob("odeco-*/synthetic.npz")
    assert SyntheticData.load(saved).n_rows == 2000
