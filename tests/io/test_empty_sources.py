"""A source without rows or without columns is an error."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from kinds import (
    OwnSource,
    Sliceable,
    read_until_error,
    save_arrow_stream,
    save_feather,
    save_npy,
    save_npz,
    save_parquet,
)

from odeco.errors import SourceError
from odeco.io import as_source


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_an_empty_array_is_an_error(tmp_path, shape):
    text = (
        f"must hold at least one row and one column. It holds {shape[0]} rows and {shape[1]} "
        "columns. "
    )
    text += "Check how it was made."
    sources = {
        "The array": lambda: as_source(np.empty(shape)),
        "The CSR matrix": lambda: as_source(sp.csr_array(shape)),
        "rows.npy": lambda: as_source(save_npy(tmp_path, np.empty(shape))),
        "rows.npz": lambda: as_source(save_npz(tmp_path, np.empty(shape))),
        "The Sliceable": lambda: as_source(Sliceable(np.empty(shape))),
    }
    for name, make in sources.items():
        with pytest.raises(SourceError) as raised:
            make()
        assert str(raised.value) == f"{name} {text}"


@pytest.mark.parametrize("data", [[], iter([]), lambda: iter([]), [np.empty((0, 3))]])
def test_an_empty_stream_is_an_error(data):
    with pytest.raises(SourceError) as raised:
        as_source(data)
    assert str(raised.value) == (
        "The stream must hold at least one row and one column. It holds no rows. Check how it was "
        "made."
    )


@pytest.mark.parametrize("text", ["", "\n\n", "a,b\n", "a,b\n\n"])
def test_an_empty_csv_file_is_an_error(tmp_path, text):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(SourceError) as raised:
        as_source(tmp_path / "a.csv")
    assert str(raised.value) == (
        "a.csv must hold at least one row and one column. It holds no rows of numbers. Check how "
        "it was made."
    )


@pytest.mark.parametrize("save", [save_parquet, save_feather])
def test_an_empty_arrow_file_is_an_error(tmp_path, save):
    path = save(tmp_path, np.empty((0, 3)))
    with pytest.raises(SourceError) as raised:
        as_source(path)
    assert str(raised.value) == (
        f"{path.name} must hold at least one row and one column. It holds 0 rows and 3 columns. "
        "Check how it was made."
    )


def test_an_empty_own_source_or_arrow_stream_file_is_an_error_when_read(tmp_path):
    text = "must hold at least one row and one column. It holds no rows. Check how it was made."
    assert str(read_until_error(as_source(OwnSource([])))[1]) == f"The OwnSource {text}"
    path = save_arrow_stream(tmp_path, np.empty((0, 3)))
    assert str(read_until_error(as_source(path))[1]) == f"rows.arrow {text}"
