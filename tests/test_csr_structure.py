"""CSR rows whose parts contradict each other are refused wherever they come in: products would read
other memory.
"""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

import odeco
from odeco._util.files import load_arrays, save_arrays
from odeco.cli import app
from odeco.io.rows import as_rows
from odeco.online import SampleMoment

RNG = np.random.default_rng(0)
WHOLE = sparse.csr_array(sparse.random(300, 50, density=0.1, random_state=0, format="csr"))
PRIVATE = {"epsilon": 1.0, "delta": 1e-6, "norm_bound": 1.0}


def damaged(what):
    """Return rows in which one part is wrong."""
    rows = WHOLE.copy()
    if what == "an index far outside":
        rows.indices[5] = 10**8
    elif what == "an index just outside":
        rows.indices[5] = 53
    elif what == "a negative index":
        rows.indices[5] = -1
    elif what == "pointers that fall":
        rows.indptr[7] = rows.indptr[6] - 3
    elif what == "pointers past the end":
        rows.indptr[-1] += 1000
    elif what == "too few numbers":
        rows.data = rows.data[:-10]
    else:
        rows.indptr[0] = 2
    return rows


DAMAGES = (
    *("an index far outside", "an index just outside", "a negative index", "pointers that fall"),
    *("pointers past the end", "too few numbers", "pointers that do not start at 0"),
)
OPTIONS = ("--epsilon", "1", "--delta", "1e-6", "--norm-bound", "1")
TEXT = r"(Column indices|row pointers) of .* must (be in|start at 0)"


def push(rows):
    odeco.OnlineDecomposer(2, rng=0).partial_fit(rows)


def push_privately(rows):
    odeco.OnlineDecomposer(2, batch_size=100, rng=0, **PRIVATE).partial_fit(rows)


def pull(rows):
    odeco.decompose_stream(rows, 2, rng=0)


def decompose_privately(rows):
    odeco.decompose_privately(rows, 2, unit="record", rng=0, **PRIVATE)


def moment(rows):
    SampleMoment(rows)


@pytest.mark.parametrize("what", DAMAGES)
@pytest.mark.parametrize("entry", [push, pull, moment])
def test_rows_that_contradict_themselves_are_refused(entry, what):
    with pytest.raises(ValueError, match=TEXT):
        entry(damaged(what))


@pytest.mark.parametrize("what", DAMAGES)
@pytest.mark.parametrize("entry", [push_privately, decompose_privately])
def test_private_rows_that_contradict_themselves_are_refused_without_naming_one(entry, what):
    with pytest.raises(
        ValueError, match=r"^Private sparse rows must have indices within their shape\."
    ) as caught:
        entry(damaged(what))
    assert not any(sign.isdigit() for sign in str(caught.value))


@pytest.mark.parametrize("convert", [sparse.csc_array, sparse.coo_array, sparse.bsr_array])
def test_other_sparse_formats_are_checked_before_they_are_converted(convert):
    rows = convert(WHOLE.copy())
    (rows.coords[1] if rows.format == "coo" else rows.indices)[2] = 10**6
    with pytest.raises(ValueError, match=r"(?i)ind(ex|ices)"):
        as_rows(rows)


def test_an_index_far_outside_does_not_end_the_process():
    script = """
import numpy as np, odeco
from scipy import sparse
rows = sparse.csr_array(sparse.random(300, 50, density=0.1, random_state=0, format="csr"))
rows.indices[5] = 10**8
try:
    odeco.OnlineDecomposer(2, rng=0).partial_fit(rows)
except ValueError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert re.match(
        r"Column indices of CSR rows must be in \[0, 49\]\. Row \d holds 100,000,000\.", done.stdout
    )


@pytest.mark.parametrize(
    ("command", "what", "code"),
    [
        (["decompose", "--rows"], "an index far outside", 1),
        (["decompose", "--rows"], "an index just outside", 1),
        (["decompose", "--rows"], "pointers that fall", 1),
        # A record that is not valid counts as zeros, and nothing is said of it.
        (["decompose", "--rows", *OPTIONS], "an index far outside", 0),
        (["decompose", "--rows", *OPTIONS], "an index just outside", 0),
        (["decompose", "--rows", *OPTIONS], "pointers that fall", 1),
    ],
)
def test_the_command_reads_nothing_past_the_end_of_such_rows(command, what, code, tmp_path, capsys):
    rows = damaged(what)
    np.savez(
        tmp_path / "rows.npz",
        data=rows.data,
        indices=rows.indices,
        indptr=rows.indptr,
        shape=np.array(rows.shape),
        format=np.array(b"csr"),
    )
    name, *options = command
    assert app.run([name, str(tmp_path / "rows.npz"), "-k", "2", *options]) == code
    assert "odeco failed" not in capsys.readouterr().err


@pytest.mark.parametrize("what", DAMAGES)
def test_a_checkpoint_with_such_rows_is_refused(what, tmp_path):
    path = tmp_path / "run.ckpt"
    odeco.OnlineDecomposer(2, rng=0).partial_fit(WHOLE).save(path)
    header, arrays = load_arrays(path, "stream run")
    bad = damaged(what)
    parts = {
        f"run.sum.waiting.0.{name}": getattr(bad, name) for name in ("data", "indices", "indptr")
    }
    assert parts.keys() <= arrays.keys()
    save_arrays(path, "stream run", header, {**arrays, **parts})
    with pytest.raises(odeco.FileFormatError, match=r"run\.ckpt"):
        odeco.OnlineDecomposer.load(path)
