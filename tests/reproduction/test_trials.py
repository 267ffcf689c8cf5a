"""Trials in processes: the same numbers however they are run, and none is run twice.

Every worker process imports this file, so it imports little.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from reproduction import load
from reproduction.report import generator_for, run_trials


def note_trial(settings, seed):
    """A trial that leaves a mark, so that runs can be counted."""
    with Path(settings["marks"]).open("a") as file:
        file.write(f"{settings['number']}\n")
    return [{"draw": generator_for({"number": settings["number"]}, seed).random()}]


def numbered_tasks(folder, n):
    return [{"number": number, "marks": str(folder / "marks")} for number in range(n)]


def test_an_interrupted_run_goes_on_and_runs_nothing_twice(tmp_path):
    tasks = numbered_tasks(tmp_path, 6)

    def interrupt(n_done, _):
        if n_done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_trials("marked", note_trial, tasks, seed=0, folder=tmp_path, progress=interrupt)
    kept = (tmp_path / "marked.trials.jsonl").read_text().splitlines()
    assert len(kept) == 3
    resumed = run_trials("marked", note_trial, tasks, seed=0, folder=tmp_path)
    # Those in the file were not run again; whatever was under way when it was interrupted may have
    # left a mark.
    marks = (tmp_path / "marks").read_text().split()
    assert all(marks.count(str(number)) == 1 for number in range(3))
    assert [record["number"] for record in resumed] == list(range(6))
    assert [record["draw"] for record in resumed] == [
        generator_for({"number": number}, 0).random() for number in range(6)
    ]


def test_a_line_that_a_crash_cut_short_is_run_again(tmp_path):
    tasks = numbered_tasks(tmp_path, 2)
    whole = run_trials("marked", note_trial, tasks, seed=0, folder=tmp_path)
    path = tmp_path / "marked.trials.jsonl"
    os.truncate(path, path.stat().st_size - 5)
    assert run_trials("marked", note_trial, tasks, seed=0, folder=tmp_path) == whole
    assert len([json.loads(line) for line in path.read_text().splitlines()]) == 2


@pytest.mark.slow
def test_another_seed_gives_other_draws_in_the_same_file(tmp_path):
    tasks = numbered_tasks(tmp_path, 1)
    first = run_trials("marked", note_trial, tasks, seed=0, folder=tmp_path)
    second = run_trials("marked", note_trial, tasks, seed=1, folder=tmp_path)
    assert first[0]["draw"] != second[0]["draw"]
    assert run_trials("marked", note_trial, tasks, seed=0, folder=tmp_path) == first


@pytest.mark.slow
def test_results_are_the_same_for_one_and_two_processes(tmp_path):
    tasks = [
        {"noise": noise, "dimension": 12, "trial": trial, "restarts": [4]}
        for noise in ("gaussian", "pull")
        for trial in range(2)
    ]
    found = []
    for n_processes in (1, 2):
        folder = tmp_path / str(n_processes)
        folder.mkdir()
        found.append(
            run_trials(
                "figure1",
                load("figure1").trial,
                tasks,
                seed=3,
                folder=folder,
                n_processes=n_processes,
            )
        )
    assert found[0] == found[1]
