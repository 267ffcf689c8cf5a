"""The list of mutants is up to date: every edit can be made, and the documentation has its verdict."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TOOL = ROOT / "tools" / "mutants.py"

if not TOOL.exists():
    pytest.skip("the tool is not here", allow_module_level=True)
SPEC = importlib.util.spec_from_file_location("mutants", TOOL)
mutants = sys.modules["mutants"] = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(mutants)


@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=lambda mutant: mutant.breaks)
def test_the_text_that_a_mutant_replaces_stands_in_its_file_once(mutant):
    assert (ROOT / "src" / "odeco" / mutant.file).read_text(encoding="utf-8").count(mutant.old) == 1
    assert (ROOT / "tests" / "privacy" / mutant.tests).exists()


def test_the_documentation_has_a_line_for_every_mutant_and_for_no_other():
    text = (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8")
    lines = [f"| {mutant.breaks} | `{mutant.tests}` | killed |" for mutant in mutants.MUTANTS]
    table = text.split("| what the edit breaks |")[1].split("\n\n")[0].splitlines()[2:]
    assert table == lines
