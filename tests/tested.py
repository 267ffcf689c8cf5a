"""Counts for the page *How odeco is tested* (docs/tested.md): how often the tests do what it says.

python tests/tested.py
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import fuzz
import pytest
import test_cluster_faults
import test_csr_structure
import test_hostile_files
import test_interrupts
import test_layouts
import test_outputs
import test_scale
from interrupts import PLACES, moments_of

from odeco.online import tree as _chunks

_HERE = Path(__file__).parent
sys.path += [str(_HERE / "privacy"), str(_HERE / "io"), str(_HERE.parent / "tools")]

import mutants  # noqa: E402 - found by the line above
import test_information_flow  # noqa: E402
import test_raw_errors  # noqa: E402


def n_cases(module: object) -> int:
    """Return how many tests a module has, each set of parameters counted."""
    total = 0
    for name, test in inspect.getmembers(module, inspect.isfunction):
        if name.startswith("test_"):
            cases = 1
            for mark in getattr(test, "pytestmark", []):
                cases *= len(mark.args[1]) if mark.name == "parametrize" else 1
            total += cases
    return total


def n_interrupts() -> int:
    """Return at how many moments runs are interrupted: the first and last time that each line is
    entered.
    """
    patch = pytest.MonkeyPatch()
    for name, value in (("_DENSE_SIZE", 10), ("_ENOUGH_ROWS", 4), ("_SPARSE_ROWS", 4)):
        patch.setattr(_chunks, name, value)
    rows, make = test_interrupts.ROWS, test_interrupts.decomposer
    guarantee = {"epsilon": 2.0, "delta": 1e-6, "norm_bound": 1.0}
    try:
        total = len(moments_of(lambda: make("core").partial_fit(rows[:20])))
        for method, kind in (
            ("core", test_interrupts.np.asarray),
            ("power", test_interrupts.sparse.csr_array),
        ):
            online = make(method).partial_fit(kind(rows[:4]))
            total += len(
                moments_of(lambda online=online, kind=kind: online.partial_fit(kind(rows[4:40])))
            )
        online = make("core", **guarantee).partial_fit(rows[:4])
        total += len(moments_of(lambda: online.partial_fit(rows[4:30]), (*PLACES, "privacy")))
    finally:
        patch.undo()
    return total


def main() -> None:
    layouts = len(test_layouts.DENSE_LAYOUTS) + len(test_layouts.CSR_LAYOUTS)
    lines = {
        "files damaged at random, with a fixed seed": len(fuzz.KINDS) * test_hostile_files.N_CASES,
        "kinds of files among them": len(fuzz.KINDS),
        "tests of other hostile files": n_cases(test_hostile_files) - len(fuzz.KINDS),
        "tests of CSR rows that contradict themselves": n_cases(test_csr_structure),
        "interrupts, each at a different moment": n_interrupts(),
        "scales of tensors": len(test_scale.SCALES) + 2,
        "tests of scale": n_cases(test_scale),
        "layouts of rows": layouts,
        "places at which a masked array is refused": n_cases(test_layouts)
        - 1
        + len(test_raw_errors.MASKED),
        "edits that break a guarantee": len(mutants.MUTANTS),
        "private entry points whose information flow is tested": len(
            test_information_flow.ENTRY_POINTS
        ),
        "pairs of private entry point and data set": test_information_flow.N_PAIRS,
        "commands on a full disk": len(test_outputs.WRITING),
        "tests of faults of a cluster": n_cases(test_cluster_faults),
    }
    for what, count in lines.items():
        print(f"{count:6,}  {what}")


if __name__ == "__main__":
    main()
