"""What the columns of a table are, and how tables of all libraries are encoded."""

import numpy as np
import pytest

from odeco.errors import SourceError
from odeco.io.kinds import Columns, as_table
from odeco.io.mixed import read_table

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
pyarrow = pytest.importorskip("pyarrow")

N = 60


def columns(n=N):
    """One column of each kind; every third text, year and number is missing in some row."""
    rng = np.random.default_rng(0)
    made = {
        "id": list(range(100, 100 + n)),
        "species": ["Adelie", "Gentoo", None] * (n // 3),
        "length": rng.standard_normal(n).tolist(),
        "year": [2007, 2008, None] * (n // 3),
        "tagged": [True, False] * (n // 2),
        "island": ["Biscoe"] * n,
        "name": [f"bird {number}" for number in range(n)],
        "visits": rng.integers(0, 50, n).tolist(),
    }
    made["length"][5] = None
    return made


LIBRARIES = {
    "dict": lambda cells: cells,
    "pandas": pandas.DataFrame,
    "nullable pandas": lambda cells: pandas.DataFrame(cells).convert_dtypes(),
    "polars": polars.DataFrame,
    "polars lazy": polars.LazyFrame,
    "pyarrow": pyarrow.table,
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_library_has_the_same_columns_and_codes(library):
    table = as_table(LIBRARIES[library](columns()))
    known = Columns.of(table, {})
    wanted = as_table(columns())
    assert dict(zip(known.names.tolist(), known.kinds.tolist(), strict=True)) == {
        "species": "category",
        "length": "number",
        "year": "category",
        "tagged": "category",
        "visits": "number",
    }
    assert known.left_out.tolist() == ["id", "island", "name"]
    rows, unknown = known.encode(table)
    assert not unknown
    np.testing.assert_array_equal(rows, Columns.of(wanted, {}).encode(wanted)[0])
    assert {name: own.tolist() for name, own in known.categories.items()} == {
        "species": ["Adelie", "Gentoo"],
        "year": [2007, 2008],
        "tagged": [False, True],
    }


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_files_are_read_as_tables_are(tmp_path, suffix):
    table = pandas.DataFrame(columns())
    path = tmp_path / f"birds.{suffix}"
    if suffix == "csv":
        table.to_csv(path, index=False)
    else:
        table.to_parquet(path)
    known = Columns.of(as_table(table), {})
    np.testing.assert_allclose(
        known.encode(read_table(path, {}))[0], known.encode(as_table(table))[0], rtol=1e-12
    )


def test_a_user_says_what_columns_are():
    table = as_table(columns())
    asked = {"visits": "count", "year": "number", "name": "category", "tagged": "ignore"}
    known = Columns.of(table, asked)
    kinds = dict(zip(known.names.tolist(), known.kinds.tolist(), strict=True))
    assert kinds["visits"] == "count"
    assert kinds["year"] == "number"
    assert kinds["name"] == "category"
    assert "tagged" not in kinds
    with pytest.raises(ValueError, match=r"must name columns of the table\. Got 'visit'"):
        Columns.of(table, {"visit": "count"})
    with pytest.raises(ValueError, match="must be one of 'number', 'count', 'category', 'ignore'"):
        Columns.of(table, {"visits": "counts"})
    with pytest.raises(ValueError, match=r"cells of the column species must be numbers\."):
        Columns.of(table, {"species": "number"}).encode(table)
    with pytest.raises(ValueError, match=r"Counts must be whole numbers from 0 on\."):
        Columns.of(table, {"length": "count"}).encode(table)


def test_dates_are_left_out_and_so_are_all_columns_only_with_an_error():
    days = pandas.date_range("2020-01-01", periods=N)
    known = Columns.of(as_table(pandas.DataFrame(columns()).assign(day=days)), {})
    assert "day" in known.left_out.tolist()
    with pytest.raises(ValueError, match="All of its columns are left out: day"):
        Columns.of(as_table({"day": days.to_numpy()}), {})


def test_a_column_without_values_or_with_too_many_categories_is_refused_by_name():
    with pytest.raises(ValueError, match="void has none in 60 rows"):
        Columns.of(as_table(columns() | {"void": [None] * N}), {})
    names = {"name": [f"bird {number}" for number in range(300)]}
    with pytest.raises(ValueError, match=r"at most 250 categories\. name has 300"):
        Columns.of(as_table(names), {"name": "category"})


def test_categories_keep_the_order_of_a_categorical():
    sizes = pandas.Categorical(["small", "large"] * 30, ["small", "large"], ordered=True)
    known = Columns.of(as_table(pandas.DataFrame({"size": sizes})), {})
    assert known.categories["size"].tolist() == ["small", "large"]
    drawn = known.as_table(np.array([[1.0], [0.0]]))
    assert drawn["size"].tolist() == ["large", "small"]
    assert isinstance(drawn["size"].dtype, pandas.CategoricalDtype)


@pytest.mark.parametrize("library", ["dict", "pandas", "polars", "pyarrow"])
def test_decoded_rows_have_the_types_of_the_table(library):
    table = LIBRARIES[library](columns())
    known = Columns.of(as_table(table), {})
    again = Columns.from_arrays(known.to_arrays("columns"), "columns")
    rows = known.encode(as_table(table))[0]
    complete = rows[~np.isnan(rows).any(axis=1)]
    made = as_table(again.as_table(complete))
    np.testing.assert_array_equal(again.encode(made)[0], complete)
    assert type(again.as_table(complete)) is type(table)


def test_a_mistake_in_a_column_of_numbers_is_named(tmp_path):
    path = tmp_path / "table.csv"
    lines = ["size,kind", *(f"{number}.5,{'ab'[number % 2]}" for number in range(40)), "3o,a"]
    path.write_text("\n".join(lines))
    with pytest.raises(SourceError, match="size holds numbers and '3o' in row 40"):
        read_table(path, {})
    assert read_table(path, {"size": "category"}).columns["size"].dtype == object


def test_a_category_of_texts_stays_one_where_all_texts_are_numbers(tmp_path):
    # The codes of a file that was fitted hold a letter; new rows happen to have digits only.
    known = Columns.of(as_table({"code": ["12", "x"] * 30}), {})
    rows, unknown = known.encode(as_table({"code": ["12"] * 3}))
    assert rows.tolist() == [[0.0]] * 3
    assert not unknown


def test_texts_that_are_dates_are_left_out_and_others_are_not():
    days = [f"2024-01-{1 + number % 28:02d}" for number in range(200)]
    moments = [f"{day}T12:30:00" for day in days]
    codes = [f"2024010{number % 7}" for number in range(200)]
    table = as_table({"day": days, "moment": moments, "code": codes, "mixed": [*days[1:], "never"]})
    columns = Columns.of(table, {"mixed": "category"})
    assert columns.left_out.tolist() == ["day", "moment"]
    assert set(columns.reasons) == {"dates and times"}
    assert columns.names.tolist() == ["code", "mixed"]
