"""The private command for people: the plan in plain words, a question before it spends, a ledger
for all runs.
"""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import odeco
from odeco.cli import app
from odeco.cli.app import in_options
from odeco.privacy import LedgerFile, epsilon_of, gdp_mu

PUBLIC = {
    "dimension": 20,
    "n_components": 2,
    "delta": 1e-6,
    "unit": "record",
    "n_units": 6000,
    "norm_bound": 2.0,
}
RUN = [
    "decompose",
    "--rows",
    "rows.npy",
    "-k",
    "2",
    "--epsilon",
    "1",
    "--delta",
    "1e-6",
    "--norm-bound",
    "1",
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", np.eye(6)[np.random.default_rng(0).choice(3, size=3000, p=[0.5, 0.3, 0.2])])
    Path("groups.txt").write_text("".join(f"user{number % 300}\n" for number in range(3000)))
    return tmp_path


def test_the_plan_begins_with_two_sentences_whose_numbers_are_those_of_the_plan():
    plan = odeco.plan_privacy(epsilon=1.0, **PUBLIC)
    twice = odeco.plan_privacy(epsilon=2.0, **PUBLIC)
    signal = plan[plan.best].sure_signal
    found, price = str(plan).splitlines()[:2]
    # A weight is at most 2³ = 8, if all 6,000 records are alike and of norm 2; each of them gives
    # 8/6000.
    alike = int(np.ceil(6000 * signal / 8))
    assert found == (
        f"At this ε, a component must have a weight of {signal:.3g} or more to be found: about "
        f"{alike} identical records of norm 2, of 6,000."
    )
    assert price == (
        "It spends ε = 1 (δ = 1e-06) of the privacy of every record, once and for all; ε = 2 "
        f"would find weights from {twice[plan.best].sure_signal:.3g} on."
    )


def test_the_small_table_compares_budgets_and_the_terms_stand_below():
    plan = odeco.plan_privacy(epsilon=1.0, **PUBLIC)
    text = str(plan)
    assert [prospect.epsilon for prospect in plan.prospects] == [0.5, 1.0, 2.0, 4.0]
    for prospect in plan.prospects:
        other = odeco.plan_privacy(epsilon=prospect.epsilon, **PUBLIC)
        assert prospect.smallest_signals == {
            each.mechanism: each.smallest_signal for each in other.mechanisms
        }
    assert text.count("this run\n") == 1
    for term in ("\nweight ", "\nmu ", "\nreleases ", "\nreplace "):
        assert text.index("finds weights from") < text.index(term)
    assert json.loads(plan.to_json())["prospects"][2]["epsilon"] == 2.0


def test_a_plan_that_finds_nothing_says_so_and_how_many_records_would():
    few = odeco.plan_privacy(epsilon=1.0, **{**PUBLIC, "n_units": 50})
    signal = few[few.best].sure_signal
    assert signal > 8
    needed = int(np.ceil(50 * signal / 8))
    assert f"This run finds nothing: a weight of {signal:.3g} would be needed" in str(few)
    assert f"{needed:,} records would be the fewest to find anything." in str(few)
    # Noise falls as 1/n: with so many records the largest weight is found.
    enough = odeco.plan_privacy(epsilon=1.0, **{**PUBLIC, "n_units": needed + 1})
    assert enough[few.best].sure_signal <= 8 * (1 + 1e-9)
    assert "more than there are" in str(few)


def test_a_plan_for_entries_speaks_of_no_records():
    text = str(odeco.plan_privacy(dimension=10, n_components=2, epsilon=1.0, delta=1e-6))
    assert "record" not in text
    assert "of the privacy of every entry" in text
    assert "\ndistinct " in text


def test_the_words_are_about_the_mechanism_that_is_taken(folder, capsys):
    assert app.run([*RUN, "--mechanism", "joint"]) == 0
    text = capsys.readouterr().out
    plan = odeco.plan_privacy(
        **{**PUBLIC, "dimension": 6, "n_units": 3000, "norm_bound": 1.0}, epsilon=1.0
    )
    assert f"a weight of {plan['joint'].sure_signal:.3g} or more to be found" in text
    assert "this run takes 'joint'" in text


def test_a_ledger_knows_what_the_first_run_has_spent_and_refuses_what_is_too_much(folder, capsys):
    ledger = [*RUN, "--ledger", "data.ledger"]
    assert app.run(ledger) == 2
    assert "--ledger data.ledger is new and needs --budget E" in capsys.readouterr().err
    assert app.run([*ledger, "--budget", "1.3"]) == 0
    assert (
        "data.ledger: earlier runs have spent ε = 0; with this one it will be ε = 1 of 1.3"
        in capsys.readouterr().err
    )
    spent = LedgerFile("data.ledger").mu
    # Releases are charged with the slack of their rounding, which the noise has been made larger
    # for.
    assert spent == pytest.approx(gdp_mu(1.0, 1e-6), rel=1e-6)
    assert app.run([*ledger, "--budget", "9"]) == 2
    assert "--budget must be that of data.ledger, ε = 1.3. Got 9." in capsys.readouterr().err
    assert epsilon_of(np.hypot(spent, gdp_mu(1.0, 1e-6)), 1e-6) > 1.3  # two such runs are too much
    assert app.run(ledger) == 1
    refused = capsys.readouterr().err
    assert (
        "data.ledger allows ε = 1.3 for all runs together. Earlier ones have spent ε = 1, so that "
        "ε = "
    ) in refused
    assert "Nothing was spent. Lower --epsilon." in refused
    assert LedgerFile("data.ledger").mu == spent
    less = [*ledger]
    less[less.index("--epsilon") + 1] = "0.5"
    assert app.run(less) == 0
    assert (
        "earlier runs have spent ε = 1; with this one it will be ε = 1.1" in capsys.readouterr().err
    )
    assert len(LedgerFile("data.ledger").charges) == 2


def on_a_terminal(arguments, answer, folder):
    """Run the command with a terminal as its stdin and stderr, answer its question, and return its
    code and words.
    """
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "odeco", *arguments],
        cwd=folder,
        stdin=terminal,
        stderr=terminal,
        stdout=subprocess.PIPE,
        env={**os.environ, "TERM": "dumb"},
    )
    os.close(terminal)
    if answer is not None:
        os.write(controller, answer)
    output = process.communicate(timeout=60)[0]
    said = b""
    try:
        while part := os.read(controller, 1 << 16):
            said += part
    except OSError:  # the terminal is closed
        pass
    os.close(controller)
    return process.returncode, output.decode(), said.decode()


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "code"), [(b"n\n", 1), (b"\n", 1), (b"y\n", 0)])
def test_on_a_terminal_the_run_asks_before_it_spends(answer, code, folder):
    arguments = [*RUN, "--ledger", "data.ledger", "--budget", "3"]
    returned, output, said = on_a_terminal(arguments, answer, folder)
    assert returned == code, said
    assert "Spend ε = 1 of the privacy of every record? [y/N]" in said
    assert ("noise floor" in output) == (code == 0)
    assert Path("data.ledger").exists() == (code == 0)
    assert ("Nothing was spent. Run again with --yes" in said) == (code == 1)
    assert "Error" not in said


@pytest.mark.slow
def test_yes_asks_nobody(folder):
    returned, output, said = on_a_terminal([*RUN, "--yes"], None, folder)
    assert returned == 0
    assert "[y/N]" not in said
    assert "noise floor" in output


def test_what_is_missing_is_named_by_its_flag(folder, capsys):
    for arguments, words in (
        (RUN[:-2], "Private rows need --norm-bound B"),
        ([*RUN, "--budget", "2"], "--budget is that of a new --ledger FILE"),
    ):
        assert app.run(arguments) == 2
        assert words in capsys.readouterr().err
    assert app.run([*RUN, "--groups", "groups.txt", "--yes"]) == 0


def given(**options):
    """Return the run with some options replaced, or added."""
    arguments = list(RUN)
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if flag in arguments:
            arguments[arguments.index(flag) + 1] = value
        else:
            arguments += [flag, value]
    return arguments


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epsilon": "-1"}, "--epsilon must be"),
        ({"delta": "0.1"}, "--delta must be below 1/n"),
        ({"norm_bound": "-2"}, "--norm-bound must be a positive number"),
        ({"entry_change": "2"}, "--entry-change is about a private tensor"),
        ({"mechanism": "core", "n_restarts": "4"}, "--n-restarts must go with --mechanism"),
        ({"order": "2"}, "--order must be an int of at least 3"),
        ({"n_iterations": "0"}, "--n-iterations must be"),
    ],
)
def test_every_error_speaks_of_flags(options, words, folder, capsys):
    assert app.run(given(**options)) in (1, 2)
    error = capsys.readouterr().err
    assert words in error
    assert "`" not in error


def test_advice_becomes_options_only_where_there_are_some():
    options = {"unit": "--unit", "n_restarts": "--n-restarts", "n_components": "-k"}
    text = (
        "`n_restarts` must go with unit='entry'. Got n_restarts=5 with unit=\"user\". Not "
        "my_unit='x', nor `other`."
    )
    assert in_options(text, options) == (
        "--n-restarts must go with --unit 'entry'. Got --n-restarts 5 with --unit \"user\". Not "
        "my_unit='x', nor `other`."
    )


def test_a_command_can_be_repeated_with_the_same_budget(folder, capsys):
    run = [*RUN, "--ledger", "data.ledger", "--budget", "2"]
    assert app.run(run) == 0
    assert app.run(run) == 0
    assert len(LedgerFile("data.ledger").charges) == 2
    capsys.readouterr()
    assert app.run([*run[:-1], "3"]) == 2
    assert "--budget must be that of data.ledger, ε = 2. Got 3." in capsys.readouterr().err


def test_a_ledger_of_the_command_knows_its_data_by_the_names_of_files(folder, capsys):
    ledger = ["--ledger", "data.ledger", "--budget", "4"]
    assert app.run([*RUN, *ledger]) == 0
    before = Path("data.ledger").read_bytes()
    assert (LedgerFile("data.ledger").data, LedgerFile("data.ledger").unit) == (
        "rows.npy",
        "record",
    )
    np.save("other.npy", np.load("rows.npy"))
    other = ["other.npy" if each == "rows.npy" else each for each in RUN]
    mixture = ["learn", "mixture", *other[2:]]
    capsys.readouterr()
    for arguments in ([*other, *ledger], [*mixture, *ledger]):
        assert app.run(arguments) == 1
        said = capsys.readouterr().err
        assert (
            "must be the budget of the data that are used, 'other.npy'. It is that of 'rows.npy'."
            in said
        )
        assert "pass that name as --data" in said
    assert app.run([*RUN, *ledger, "--groups", "groups.txt"]) == 1
    assert "for unit 'user'" in capsys.readouterr().err
    assert Path("data.ledger").read_bytes() == before
    assert app.run([*mixture, *ledger, "--data", "rows.npy"]) == 0
    capsys.readouterr()
    assert app.run(["ledger", "data.ledger", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["data"], shown["unit"], shown["neighbours"]) == ("rows.npy", "record", "replace")
    assert app.run([*RUN, "--data", "rows.npy"]) == 2
    assert "--data names the data of a --ledger FILE" in capsys.readouterr().err


def test_a_run_without_a_ledger_says_in_one_line_how_to_keep_one(folder, capsys):
    assert app.run(RUN) == 0
    (line,) = [
        line for line in capsys.readouterr().err.splitlines() if "--ledger FILE --budget E" in line
    ]
    assert "add up" in line


def test_info_reads_ledgers(folder, capsys):
    assert app.run([*RUN, "--ledger", "data.ledger", "--budget", "2"]) == 0
    capsys.readouterr()
    assert app.run(["ledger", "data.ledger", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    ledger = LedgerFile("data.ledger")
    left = np.sqrt(ledger.mu_limit**2 - ledger.mu**2)
    assert shown["holds"] == "shared privacy ledger"
    assert shown["budget"] == "ε = 2 at δ = 1e-06"
    assert shown["epsilon_spent"] == pytest.approx(1.0, rel=1e-3)
    assert shown["epsilon_left"] == pytest.approx(epsilon_of(left, 1e-6), rel=1e-3)
    assert list(shown["epsilon_spent_by"].values()) == [shown["epsilon_spent"]]
    online = odeco.OnlineDecomposer(
        2, epsilon=1.0, delta=1e-6, norm_bound=1.0, batch_size=100, rng=0
    )
    online.partial_fit(np.load("rows.npy")[:300]).save("run.ckpt")
    assert app.run(["info", "run.ckpt.ledger", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["holds"], shown["releases"]) == ("privacy ledger of a run", 3)
    Path("data.ledger").write_bytes(Path("data.ledger").read_bytes() + b"nonsense\n")
    assert app.run(["info", "data.ledger"]) == 1
    assert "must be a shared privacy ledger" in capsys.readouterr().err
