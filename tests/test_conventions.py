"""Conventions of Python and of the command line that users take for granted, a test for each."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import scipy
from command import run_here

import odeco
from odeco.models import TensorMixture

ROWS = np.vstack([np.random.default_rng(0).normal(mean, 1, (100, 3)) for mean in (0, 5, 10)])

#: A generator of every kind that NumPy and scikit-learn have (SPEC 7).
GENERATORS = {
    "int": lambda: 7,
    "Generator": lambda: np.random.default_rng(7),
    "RandomState": lambda: np.random.RandomState(7),
    "SeedSequence": lambda: np.random.SeedSequence(7),
    "BitGenerator": lambda: np.random.PCG64(7),
}


@pytest.fixture
def folder(tmp_path):
    names = "a,b,c"
    np.savetxt(tmp_path / "rows.csv", ROWS, delimiter=",", header=names, comments="")
    return tmp_path


@pytest.mark.parametrize("kind", GENERATORS)
def test_a_seed_may_be_a_generator_of_any_kind_and_repeats_a_result(kind):
    streams = [odeco.decompose_stream(ROWS, 2, rng=GENERATORS[kind]()) for _ in range(2)]
    np.testing.assert_array_equal(streams[0].vectors, streams[1].vectors)
    models = [TensorMixture(3, random_state=GENERATORS[kind]()).fit(ROWS) for _ in range(2)]
    np.testing.assert_array_equal(models[0].means_, models[1].means_)


def test_rows_of_the_array_api_are_a_stream():
    strict = pytest.importorskip("array_api_strict")
    found = odeco.decompose_stream(strict.asarray(ROWS), 2, rng=0)
    np.testing.assert_array_equal(found.vectors, odeco.decompose_stream(ROWS, 2, rng=0).vectors)


@pytest.mark.skipif(
    tuple(map(int, scipy.__version__.split(".")[:2])) < (1, 14),
    reason="scikit-learn dispatches from SciPy 1.14 on",
)
def test_scikit_learn_may_dispatch_on_the_array_api():
    """SciPy reads its setting when it is imported, so this takes a process of its own."""
    text = (
        "import numpy, sklearn; from odeco.models import TensorMixture\n"
        "sklearn.set_config(array_api_dispatch=True)\n"
        "rows = numpy.random.default_rng(0).normal(size=(60, 2))\n"
        "print(TensorMixture(1).fit(rows).predict(rows).sum())"
    )
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    done = subprocess.run(
        [sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("0\n", 0), done.stderr


def test_results_are_tables_of_arrow_data():
    polars = pytest.importorskip("polars")
    result = odeco.decompose_stream(ROWS, 2, rng=0)
    table = polars.DataFrame(result)
    assert table.columns[:2] == ["component", "weight"]
    np.testing.assert_array_equal(table["weight"].to_numpy(), result.weights)


@pytest.mark.parametrize("word", ["help", "--help", "-h"])
def test_help_has_the_usual_names(word, folder):
    done = run_here(word, cwd=folder)
    assert done.returncode == 0
    assert "Commands:" in done.stdout
    assert "--covariance" in run_here("help", "learn", "mixture", cwd=folder).stdout


def test_the_version_has_the_usual_names(folder):
    assert run_here("-V", cwd=folder).stdout == run_here("--version", cwd=folder).stdout


@pytest.mark.parametrize("before", [True, False])
def test_a_quiet_command_shows_results_and_errors_only(before, folder):
    learn = ["learn", "mixture", "rows.csv", "-k", "3", "--no-check"]
    said = run_here(*(["-q", *learn] if before else [*learn, "--quiet"]), cwd=folder)
    assert said.stderr == ""
    assert said.stdout.startswith("3 components")
    wrong = run_here("-q", "learn", "mixture", "missing.csv", cwd=folder)
    assert "missing.csv" in wrong.stderr


def test_the_standard_input_is_a_file(folder):
    text = (folder / "rows.csv").read_text()
    learn = ["-k", "3", "--no-check", "--out"]
    from_file = run_here("learn", "mixture", "rows.csv", *learn, "one.npz", cwd=folder)
    from_input = run_here("learn", "mixture", "-", *learn, "two.npz", cwd=folder, text=text)
    assert from_input.stdout == from_file.stdout
    applied = [
        run_here("apply", "one.npz", name, cwd=folder, text=text).stdout
        for name in ("rows.csv", "-")
    ]
    assert applied[0] == applied[1]
    private = ["--epsilon", "1", "--delta", "1e-6", "--norm-bound", "9", "--header", "-k", "2"]
    refused = run_here("learn", "mixture", "-", *private, cwd=folder, text=text)
    assert refused.returncode == 2
    assert "not the standard input" in refused.stderr


def test_a_piped_table_has_no_colours_and_no_more_lines(folder):
    command = ["decompose", "--rows", "rows.csv", "-k", "2"]
    plain = run_here(*command, cwd=folder)
    assert run_here(*command, cwd=folder, FORCE_COLOR="1").stdout == plain.stdout
