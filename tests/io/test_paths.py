"""Paths, directories, and what is no data at all."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from kinds import save_csv, save_npy, save_npz

from odeco.errors import SourceError
from odeco.io import as_source

SUFFIXES = ".npy, .npz, .parquet, .arrow, .feather, .wav, .csv, .tsv"


def test_a_missing_file_is_a_missing_file(tmp_path):
    for suffix in SUFFIXES.split(", "):
        if suffix in (".parquet", ".arrow", ".feather"):
            pytest.importorskip("pyarrow")
        with pytest.raises(FileNotFoundError, match=f"nowhere{suffix}"):
            as_source(tmp_path / f"nowhere{suffix}")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        as_source(tmp_path / "nowhere")


def test_an_unknown_suffix_is_refused(tmp_path):
    (tmp_path / "a.npy.gz").touch()
    for data in (tmp_path / "a.npy.gz", tmp_path):
        with pytest.raises(SourceError) as raised:
            as_source(data)
        assert str(raised.value) == (
            f"The name of a data file must end in one of {SUFFIXES}, or in .csv or .tsv and .gz. "
            "Got a.npy.gz. Rename, unpack or convert it; in a directory, move it elsewhere or "
            "pass the list of the files to read."
        )


def test_an_empty_directory_is_an_error(tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / ".hidden.npy").touch()
    with pytest.raises(SourceError) as raised:
        as_source(tmp_path / "parts")
    assert str(raised.value) == (
        f"The directory parts must hold files of the kinds {SUFFIXES}. It holds none. Check the "
        "path."
    )


def test_files_that_do_not_fit_together_are_named(tmp_path):
    text = (
        "Files that are read together must agree in {}. a{}, but b{}. Leave one out or make them "
        "alike."
    )
    save_npy(tmp_path, np.ones((3, 1200)), "a.npy")
    save_npy(tmp_path, np.ones((3, 2)), "b.npy")
    save_npz(tmp_path, np.ones((3, 2)), "b.npz")
    save_csv(tmp_path, np.ones((3, 2)), "a.csv", header="x,y")
    save_csv(tmp_path, np.ones((3, 2)), "b.csv", header="x,z")
    for first, second, expected in (
        ("a.npy", "b.npy", text.format("width", ".npy has 1,200 columns", ".npy has 2")),
        ("a.csv", "b.npz", text.format("kind", ".csv has dense rows", ".npz has sparse rows")),
        (
            "a.csv",
            "b.csv",
            text.format("their columns", ".csv has 'y' in column 1", ".csv has 'z'"),
        ),
    ):
        with pytest.raises(SourceError) as raised:
            as_source([tmp_path / first, tmp_path / second])
        assert str(raised.value) == expected
        assert raised.value.path == tmp_path / second


@pytest.mark.parametrize("data", [3, None, {"a": 1}, b"rows.npy", {1, 2}])
def test_what_is_no_data_is_refused(data):
    with pytest.raises(TypeError) as raised:
        as_source(data)
    assert str(raised.value) == (
        "`data` must be a 2-D array, a CSR matrix, the path of a file or directory, a list of "
        "paths, an Arrow table or stream, an iterable of 2-D arrays, or a callable that returns "
        f"a fresh iterator of them. Got {type(data).__name__}. Convert it with numpy.asarray."
    )


def test_without_pyarrow_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "a.parquet").touch()
    with pytest.raises(ModuleNotFoundError) as raised:
        as_source(tmp_path / "a.parquet")
    assert str(raised.value) == (
        "Reading a.parquet needs pyarrow. It is not installed. Run: pip install 'odeco[arrow]'."
    )
