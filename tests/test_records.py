"""Records of benchmarks: each belongs to a declared benchmark, and is shown with its day and
commit.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOOL = ROOT / "benchmarks" / "run.py"

if not TOOL.exists():
    pytest.skip("the benchmarks are not here", allow_module_level=True)
SPEC = importlib.util.spec_from_file_location("benchmark_records", TOOL)
records = sys.modules["benchmark_records"] = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(records)

NAMES = sorted(path.stem for path in records.RESULTS.glob("*.json"))


def test_every_benchmark_has_a_script_and_packages_that_exist():
    for claim in records.read_claims().values():
        assert (TOOL.parent / claim["command"].split()[0]).is_file()
        for package in claim["concerns"]:
            assert (ROOT / records._path_of(package)).is_dir()


@pytest.mark.parametrize("name", NAMES)
def test_a_record_shows_its_figures_its_day_and_its_commit(name):
    record = records.Record.load(name)
    shown = record.to_markdown()
    assert record.lines[-1] in shown
    assert record.date in shown
    assert record.commit[:8] in shown
    assert record.name in records.read_claims()


def test_the_documentation_shows_only_records_that_exist():
    for page in (ROOT / "docs").rglob("*.md"):
        shown = re.findall(r"(?m)^\{record\} (\S+)$", page.read_text(encoding="utf-8"))
        assert set(shown) <= set(NAMES)


def test_a_record_that_is_older_than_its_code_says_so(monkeypatch):
    record = records.Record.load(NAMES[0])
    monkeypatch.setattr(records, "stale_packages", lambda _: ["cp"])
    assert "Older than the code of cp" in record.to_markdown()


def test_a_record_of_a_commit_that_is_not_there_counts_as_old():
    record = dataclasses.replace(records.Record.load(NAMES[0]), commit="0" * 40)
    if records._git("rev-parse", "HEAD"):
        assert records.stale_packages(record) == records.read_claims()[record.name]["concerns"]
