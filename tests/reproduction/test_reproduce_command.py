"""`python -m reproduction`: it runs trials in processes, keeps them, prints findings and writes
files.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from reproduction import __main__ as command
from reproduction import load


@pytest.mark.slow
def test_the_command_writes_everything_and_runs_nothing_again(tmp_path, monkeypatch, capsys):
    tasks = [{"kind": "noise", "dimension": d, "rank": 3, "trial": 0} for d in (6, 12)]
    tasks += [{"kind": "rank", "dimension": 12, "rank": k, "trial": 0} for k in (2, 6)]
    small = replace(load("whitening"), tasks=lambda quick: tasks if quick else [])
    monkeypatch.setattr(command, "load", {"whitening": small}.__getitem__)
    arguments = ["whitening", "--quick", "--processes", "2", "--out", str(tmp_path)]
    assert command.main(arguments) == 0
    printed = capsys.readouterr().out
    kept = (tmp_path / "whitening.trials.jsonl").read_text()
    assert len(kept.splitlines()) == len(tasks)
    assert command.main([*arguments, "--json"]) == 0
    assert (tmp_path / "whitening.trials.jsonl").read_text() == kept
    (experiment,) = json.loads(capsys.readouterr().out)["experiments"]
    assert experiment["command"] == "python -m reproduction whitening --quick --seed 0"
    assert experiment["command"] in printed
    assert [finding["claim"] for finding in experiment["findings"]] == [
        "Proposition B.1",
        "Proposition B.1, number of components",
        "Theorem 2.2, error",
        "Appendix B, comparison",
    ]
    written = {path.suffix: path.stat().st_size for path in tmp_path.iterdir()}
    assert set(written) == {".csv", ".png", ".svg", ".html", ".jsonl"}
    assert min(written.values()) > 500


def test_an_unknown_experiment_is_a_mistake_in_the_command_line(capsys):
    with pytest.raises(SystemExit, match="2"):
        command.main(["figure2"])
    assert "invalid choice: 'figure2'" in capsys.readouterr().err
