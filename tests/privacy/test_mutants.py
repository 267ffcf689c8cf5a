"""The list of mutants is up to date: every edit can be made, and the documentation has its
verdict.
"""

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
    text = (ROOT / "src" / "odeco" / mutant.file).read_text(encoding="utf-8")
    assert len(mutant.places(text)) == 1
    assert (ROOT / "tests" / "privacy" / mutant.tests).exists()


def test_the_documentation_shows_the_mutants():
    assert "\n{mutants}\n" in (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8")
    assert len({mutant.breaks for mutant in mutants.MUTANTS}) == len(mutants.MUTANTS)
