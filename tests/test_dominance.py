"""A column that outweighs all others is named, other data are left in peace, and private data
too.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import odeco
from odeco.decompose import StreamDecomposition
from odeco.decompose.page import write_report
from odeco.online.columns import ColumnSquares, dominant_column
from odeco.tensors import Components
from odeco.tensors.components import shown_angle


def skewed(n_rows, dimension, n_components, seed):
    generator = np.random.default_rng(seed)
    vectors = np.linalg.qr(generator.standard_normal((dimension, n_components)))[0]
    sources = generator.gamma(1.0, size=(n_rows, n_components)) - 1
    return sources @ vectors.T + 0.3 * generator.standard_normal((n_rows, dimension))


def with_index(n_rows=5000):
    return np.column_stack([skewed(n_rows, 8, 3, 0), np.arange(n_rows)])


def test_an_index_that_was_left_in_is_named_by_its_number():
    with pytest.warns(odeco.DominantColumnWarning) as caught:
        result = odeco.decompose_stream(with_index(), 3, rng=0)
    assert str(caught[0].message) == (
        "Column 8 outweighs all others: it has 100 % of the second moment of the rows, and "
        "a component is little else. The others lean on it too. Components of other "
        "columns cannot be seen beside it. Drop the column if it is an index or a number that "
        "means nothing here, or bring all columns to one scale."
    )
    assert caught[0].filename == __file__
    assert caught[0].message.column == int(np.argmax(np.abs(result.vectors[:, 0])))


@pytest.mark.parametrize("n_components", [1, 2, 5])
@pytest.mark.parametrize("column", ["index", "shuffled index", "year", "constant"])
def test_columns_of_every_kind_that_dominate_are_seen(column, n_components):
    rows, generator = skewed(3000, 8, 3, 1), np.random.default_rng(2)
    kinds = {
        "index": np.arange(3000),
        "shuffled index": generator.permutation(3000),
        "year": generator.integers(1990, 2020, size=3000),
        "constant": np.full(3000, 100.0),
    }
    with pytest.warns(odeco.DominantColumnWarning, match="^Column 2 outweighs"):
        odeco.decompose_stream(np.insert(rows, 2, kinds[column], axis=1), n_components, rng=0)


@pytest.mark.parametrize("method", ["core", "entries", "power"])
def test_every_method_warns(method):
    settings = {"batch_size": 300, "n_iterations": 5} if method == "power" else {}
    with pytest.warns(odeco.DominantColumnWarning):
        odeco.decompose_stream(with_index(), 2, method=method, rng=0, **settings)


def test_columns_have_the_names_that_files_and_frames_give_them(tmp_path):
    frame = pd.DataFrame(with_index(), columns=[*"abcdefgh", "Unnamed: 0"])
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet")
    frame.to_parquet(tmp_path / "again.parquet")
    paths = [str(tmp_path / "rows.parquet"), str(tmp_path / "again.parquet")]
    import pyarrow as arrow

    for data in (
        frame,
        arrow.table(frame),
        tmp_path / "rows.csv",
        tmp_path / "rows.parquet",
        paths,
    ):
        with pytest.warns(
            odeco.DominantColumnWarning, match="^Column 8, 'Unnamed: 0', outweighs all others"
        ):
            odeco.decompose_stream(data, 3, rng=0)


def test_rows_that_are_pushed_are_looked_at_too():
    frame = pd.DataFrame(with_index(), columns=[*"abcdefgh", "i"])
    online = odeco.OnlineDecomposer(2, rng=0)
    for start in range(0, 5000, 7):
        online.partial_fit(frame[start : start + 7])
    with pytest.warns(odeco.DominantColumnWarning, match="^Column 8, 'i', outweighs") as caught:
        online.result()
    assert caught[0].filename == __file__
    assert "The others lean on it too." in str(caught[0].message)


def test_sparse_rows_and_rows_of_any_size_are_looked_at_too():
    rows = with_index()
    for given in (
        sparse.csr_array(rows),
        rows * 2.0**300,
        rows * 2.0**-300,
        rows.astype(np.float32),
    ):
        with pytest.warns(odeco.DominantColumnWarning, match="^Column 8 "):
            odeco.decompose_stream(given, 2, rng=0)


def test_of_every_block_rows_are_taken_evenly_and_empty_blocks_say_nothing():
    squares = ColumnSquares()
    assert squares.share(0) == 0
    squares.update(np.zeros((0, 2)))
    squares.update(np.zeros((5, 2)))
    assert squares.share(0) == 0
    rows = np.column_stack([np.ones(1000), np.arange(1000) >= 500])
    squares.update(rows)
    assert squares.share(0) == pytest.approx(
        2 / 3
    )  # half of the rows have a one in the other column
    squares.update(np.full((1, 2), 1e200))
    assert (
        squares.share(0) == 0
    )  # their squares are beyond what can be added to the first: nothing is said


def test_a_column_is_said_to_dominate_only_if_all_three_signs_are_there():
    squares = ColumnSquares()
    squares.update(np.array([[10.0, 1.0, 1.0]]))  # 98 %
    leaning, upright = np.array([0.6, 0.8, 0.0]), np.array([0.0, 1.0, 0.0])
    first, mixed = np.array([1.0, 0.0, 0.0]), np.array([0.8, 0.6, 0.0])
    assert dominant_column(np.column_stack([first, leaning]), squares) == 0
    assert dominant_column(np.column_stack([first, upright]), squares) is None
    assert dominant_column(np.column_stack([mixed, leaning]), squares) is None
    assert dominant_column(first[:, None], squares) is None  # alone it needs 99 %
    squares.update(np.array([[1.0, 10.0, 1.0]]))
    assert dominant_column(np.column_stack([first, leaning]), squares) is None


def ordinary_data():
    """Rows of many kinds, none of which has a column in another unit."""
    generator = np.random.default_rng(0)
    for seed in range(12):
        d = int(generator.integers(4, 25))
        yield skewed(2000, d, 3, seed)
        yield generator.standard_normal((500, d)) * generator.uniform(
            0.3, 3, size=d
        ) + generator.uniform(-1, 1, size=d)
        yield generator.gamma(generator.uniform(0.1, 3), size=(1000, d))
        yield np.eye(d)[generator.choice(d, size=1000, p=generator.dirichlet(np.full(d, 0.3)))]
        yield np.eye(d)[
            generator.choice(d, size=1000, p=np.append(0.98, np.full(d - 1, 0.02 / (d - 1))))
        ]
        yield generator.poisson(generator.dirichlet(np.full(d, 2.0)) * 5, size=(1000, d)).astype(
            float
        )
        yield (generator.random((1000, d)) < generator.uniform(0.02, 0.5, size=d)).astype(float)
        yield np.abs(generator.standard_t(4, size=(1000, d)))
        yield np.cumsum(generator.standard_normal((1000, d)), axis=0)


@pytest.mark.slow
def test_ordinary_data_raise_no_false_alarm():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number, rows in enumerate(ordinary_data()):
            odeco.decompose_stream(rows, 1 + number % 3, rng=0)
    assert [
        str(each.message) for each in caught if each.category is odeco.DominantColumnWarning
    ] == []


def test_of_private_rows_nothing_is_kept_and_nothing_said(monkeypatch):
    def look(*_):
        raise AssertionError("private rows were looked at")

    monkeypatch.setattr(ColumnSquares, "update", look)
    online = odeco.OnlineDecomposer(
        2, batch_size=500, epsilon=1.0, delta=1e-6, norm_bound=5000.0, rng=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = online.partial_fit(with_index()).result()
    assert result.n_rows > 0  # it has learnt from rows that it did not look at


def test_an_angle_error_that_cannot_be_is_not_shown_as_a_number(tmp_path):
    assert [shown_angle(each) for each in (0.0, 0.25, 1.57)] == ["0", "0.25", "1.6"]
    assert {shown_angle(each) for each in (np.pi / 2, 1.8e8, np.inf, np.nan)} == {"not determined"}
    components = Components([2.0, 1.0], np.eye(3)[:, :2])
    result = StreamDecomposition(components, np.array([0.1, 0.2]), np.array([0.0123, 1.8e8]), 100)
    write_report(result, tmp_path / "page.html", title="A page")
    page = (tmp_path / "page.html").read_text()
    assert "not determined" in page
    assert "0.012" in page
    assert "e+08" not in page


def test_the_command_names_the_column_and_shows_no_angle_that_cannot_be(tmp_path):
    np.save(tmp_path / "rows.npy", with_index())
    (tmp_path / "names.txt").write_text("\n".join([*"abcdefgh", "row number"]))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "odeco",
            "decompose",
            "--rows",
            "rows.npy",
            "-k",
            "3",
            "--names",
            "names.txt",
        ],
        cwd=tmp_path,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert (
        "Warning: Column 8, 'row number', outweighs all others: it has 100 % of the second"
        in done.stderr
    )
    assert done.stdout.count("not determined") == 3  # in the verdict, and of two components
    assert not re.search(r"e\+\d+ +(yes|no) ", done.stdout)
