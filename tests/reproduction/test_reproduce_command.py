"""The command `odeco reproduce`: it runs trials in processes, keeps them, prints findings and writes files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from odeco.cli import checks as _checks
from odeco.reproduction import load


@pytest.mark.slow
def test_the_command_writes_everything_and_runs_nothing_again(tmp_path, monkeypatch):
    tasks = [{"kind": "noise", "dimension": d, "rank": 3, "trial": 0} for d in (6, 12)]
    tasks += [{"kind": "rank", "dimension": 12, "rank": k, "trial": 0} for k in (2, 6)]
    small = replace(load("whitening"), tasks=lambda quick: tasks if quick else [])
    monkeypatch.setattr(_checks, "load", {"whitening": small}.__getitem__)
    arguments = ["whitening", "--quick", "--processes", "2", "--out", str(tmp_path)]
    printed = CliRunner().invoke(_checks.reproduce, arguments)
    assert printed.exit_code == 0, printed.output
    kept = (tmp_path / "whitening.trials.jsonl").read_text()
    assert len(kept.splitlines()) == len(tasks)
    machine = CliRunner().invoke(_checks.reproduce, [*arguments, "--json"])
    assert machine.exit_code == 0, machine.output
    assert (tmp_path / "whitening.trials.jsonl").read_text() == kept
    document = json.loads(machine.stdout)
    (experiment,) = document["experiments"]
    assert experiment["command"] == "odeco reproduce whitening --quick --seed 0"
    assert experiment["command"] in printed.stdout
    assert [finding["claim"] for finding in experiment["findings"]] == [
        "Proposition B.1",
        "Proposition B.1, number of components",
        "Theorem 2.2, error",
        "Appendix B, comparison",
    ]
    assert {Path(path).suffix for path in document["files"]} == {".csv", ".png", ".svg", ".html"}
    assert all(Path(path).stat().st_size > 1000 for path in document["files"])


def test_an_unknown_experiment_is_a_mistake_in_the_command_line():
    result = CliRunner().invoke(_checks.reproduce, ["figure2"])
    assert result.exit_code == 2
    assert "'figure2' is not one of 'figure1', 'streaming', 'privacy', 'whitening', 'all'" in result.stderr
