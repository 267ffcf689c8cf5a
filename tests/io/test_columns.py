"""Columns by their names: which are read, in which order, and what may stand in those that are
not.
"""

from __future__ import annotations

import numpy as np
import pytest

import odeco
from odeco.errors import SourceError
from odeco.io import as_source
from odeco.io.source import names_of
from odeco.privacy.sources import open_private

pandas = pytest.importorskip("pandas")
pyarrow = pytest.importorskip("pyarrow")

FRAME = pandas.DataFrame(np.random.default_rng(0).random((40, 3)), columns=["a", "b", "c"])
FRAME.insert(1, "id", [f"user {number}" for number in range(40)])


def written(kind, folder):
    """Return the table as a file, or as an object."""
    if kind == "pandas":
        return FRAME
    if kind == "pyarrow":
        return pyarrow.Table.from_pandas(FRAME)
    path = folder / f"rows.{kind}"
    if kind == "csv":
        FRAME.to_csv(path, index=False)
    elif kind == "tsv":
        FRAME.to_csv(path, index=False, sep="\t")
    elif kind == "parquet":
        FRAME.to_parquet(path)
    else:
        FRAME.to_feather(path)
    return path


KINDS = ("csv", "tsv", "parquet", "feather", "pandas", "pyarrow")


@pytest.mark.parametrize("kind", KINDS)
def test_chosen_columns_are_read_in_the_order_given_and_the_others_may_hold_texts(kind, tmp_path):
    data = written(kind, tmp_path)
    for selection, expected in (
        ({"drop": "id"}, ("a", "b", "c")),
        ({"drop": ["id", "b"]}, ("a", "c")),
        ({"columns": ["c", "a"]}, ("c", "a")),
    ):
        source = as_source(data, **selection)
        assert source.columns == expected
        assert source.n_features == len(expected)
        np.testing.assert_array_equal(
            np.concatenate(list(source)), FRAME[list(expected)].to_numpy()
        )
        rest = (
            np.concatenate(list(source.iterate_from(30)))
            if kind != "pyarrow"
            else FRAME[list(expected)][30:]
        )
        np.testing.assert_array_equal(rest, FRAME[list(expected)].to_numpy()[30:])


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_another_choice_of_columns_is_other_data(kind, tmp_path):
    data = written(kind, tmp_path)
    prints = {
        as_source(data, columns=chosen).fingerprint()
        for chosen in (["a", "b"], ["b", "a"], ["a", "c"])
    }
    assert len(prints) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_that_is_not_there_is_named_with_what_was_perhaps_meant(kind, tmp_path):
    data = written(kind, tmp_path)
    with pytest.raises(
        SourceError, match=r"must have one column 'idd'\. It has none\. Did you mean 'id'\?"
    ):
        as_source(data, drop="idd")
    with pytest.raises(
        SourceError, match=r"must have one column 'zebra'\. It has none\. It has: a, id, b, c\."
    ):
        as_source(data, columns=["a", "zebra"])
    with pytest.raises(SourceError, match="no other columns than those that are dropped"):
        as_source(data, drop=["a", "b", "c", "id"])


def test_columns_without_names_cannot_be_chosen(tmp_path):
    np.save(tmp_path / "rows.npy", np.ones((3, 2)))
    (tmp_path / "rows.csv").write_text("1,2\n3,4\n")
    for data in (tmp_path / "rows.npy", tmp_path / "rows.csv", np.ones((3, 2)), [np.ones((3, 2))]):
        with pytest.raises(SourceError, match="Columns are chosen by their names"):
            as_source(data, drop="a")


def test_what_is_chosen_is_checked():
    with pytest.raises(ValueError, match="`columns` and `drop` must not be given together"):
        as_source(FRAME, columns=["a"], drop=["b"])
    for wrong in ([], ["a", "a"], [1]):
        with pytest.raises(
            ValueError, match="`columns` must be one or more names of columns, each once"
        ):
            as_source(FRAME, columns=wrong)


def test_a_line_of_another_width_is_an_error_although_its_columns_are_not_read(tmp_path):
    (tmp_path / "rows.csv").write_text("a,b,c\n1,x,2\n3,y,4,5\n")
    with pytest.raises(
        SourceError, match=r"Row 1 of rows.csv \(line 3\) must be 3 fields\. Got '3,y,4,5'\."
    ):
        list(as_source(tmp_path / "rows.csv", drop="b"))
    (tmp_path / "rows.csv").write_text("a,b,c\n1,x,2\n3,y,z\n")
    with pytest.raises(SourceError, match=r"must be all numbers\. Got 'z' in column 'c'\."):
        list(as_source(tmp_path / "rows.csv", drop="b"))


def test_an_error_names_all_columns_that_are_not_numbers(tmp_path):
    (tmp_path / "rows.csv").write_text("id,a,city\nC1,1,Rome\nC2,2,Paris\n")
    with pytest.raises(
        SourceError, match=r"Got 'C1' in column 'id'\. .* leave out 'id', 'city' with `drop`"
    ):
        list(as_source(tmp_path / "rows.csv"))


@pytest.mark.parametrize(
    ("text", "columns", "n_rows"),
    [
        ("0,1,2\n0.5,1,2\n3,4,5\n", ("0", "1", "2"), 2),  # as pandas writes columns without names
        ("0,1,2\n3,4,5\n", None, 2),  # it may be a row of whole numbers
        ("0.0,1.0,2.0\n0.5,1,2\n", None, 2),
        ("0,1\n0.5,1\n", None, 2),  # two columns are too few to tell
    ],
)
def test_positions_of_columns_are_names_and_not_a_row(text, columns, n_rows, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(text)
    source = as_source(path)
    assert (source.columns, sum(len(rows) for rows in source)) == (columns, n_rows)


def test_names_are_those_that_a_user_gave():
    assert names_of(FRAME) == ("a", "id", "b", "c")
    assert (
        names_of(pandas.DataFrame(np.ones((2, 3)))) is None
    )  # 0, 1, 2 is what pandas calls columns without names
    assert names_of(pandas.DataFrame(np.ones((2, 2)), columns=[2010, 2011])) == ("2010", "2011")
    assert names_of(np.ones((2, 2))) is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_of_chosen_columns_has_their_names(kind, tmp_path):
    result = odeco.decompose_stream(written(kind, tmp_path), 1, drop="id", rng=0)
    assert result.names == ("a", "b", "c")
    expected = odeco.decompose_stream(FRAME[["a", "b", "c"]].to_numpy(), 1, rng=0)
    np.testing.assert_allclose(
        result.weights, expected.weights, rtol=1e-12
    )  # sums of 40 numbers, in another order


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_the_index_that_pandas_writes_is_no_column_unless_it_is_chosen(suffix, tmp_path):
    frame = FRAME[["a", "b", "c"]].set_index(np.arange(40) * 3)
    path = tmp_path / f"rows.{suffix}"
    if suffix == "csv":
        frame.to_csv(path)
    else:
        frame.to_parquet(path, index=True)
    assert as_source(path).columns == ("a", "b", "c")
    assert as_source(path, drop="b").columns == ("a", "c")
    np.testing.assert_array_equal(np.concatenate(list(as_source(path))), frame.to_numpy())
    index = "" if suffix == "csv" else "__index_level_0__"
    chosen = np.concatenate(list(as_source(path, columns=[index, "c"])))
    np.testing.assert_array_equal(chosen[:, 0], frame.index)


def test_the_index_of_a_private_table_is_no_column(tmp_path):
    FRAME[["a", "b"]].to_csv(tmp_path / "rows.csv")
    rows = open_private([tmp_path / "rows.csv"], header=True)
    assert rows.columns == ("a", "b")
    assert rows.n_features == 2
    np.testing.assert_array_equal(next(rows.chunks(40)), FRAME[["a", "b"]].to_numpy())
