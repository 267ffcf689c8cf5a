"""Private synthetic tables: what a row adds is bounded, noise is as charged, and nothing else is
learnt from.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2
from sealing import plain, play_back, record

import odeco
from odeco.privacy import LedgerFile
from odeco.privacy.guarantee import Guarantee
from odeco.privacy.holders.tables import HeldTable, Levels
from odeco.privacy.sums import PrivateSums

LEVELS = Levels(np.array([2, 3, 2, 4]))
J = LEVELS.n_columns
SCHEMA = {
    "a": [0, None],
    "b": [0, 1, 2],
    "c": ["no", "yes"],
    "d": {"edges": [0, 1, 2, 3], "missing": True},
}
ALONE = np.column_stack([np.arange(J)] * 2)
ASKED = {
    "all pairs": LEVELS.all_pairs(),
    "some pairs and counts": np.array([[0, 1], [1, 3], [2, 2]]),
    "counts": ALONE,
    "one table": np.array([[1, 3]]),
    "the same table twice": np.array([[1, 3], [1, 3]]),
}


def every_row():
    """Return all rows that there can be, a blank one and codes that are none included."""
    return np.array(list(itertools.product(*(range(-1, size + 1) for size in LEVELS.sizes))))


def counted(codes, pairs):
    """Count by hand, in Python."""
    counts = []
    for first, second in pairs.tolist():
        for own in range(LEVELS.sizes[first]):
            others = range(LEVELS.sizes[second]) if first != second else [own]
            counts += [
                sum(int(row[first] == own and row[second] == other) for row in codes)
                for other in others
            ]
    return np.array(counts)


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_no_neighbour_moves_a_query_by_more_than_is_charged_and_some_do_by_as_much(asked, relation):
    """All pairs of rows, and blank ones, beside rows that stay."""
    pairs = ASKED[asked]
    stay = np.random.default_rng(0).integers(0, LEVELS.sizes, size=(5, J))
    sums = PrivateSums(Guarantee(1.0, 1e-6), 6, record="row", neighbour_relation=relation)
    query = HeldTable(stay, LEVELS).tables(pairs)
    answers = np.array(
        [HeldTable(np.vstack([row, stay]), LEVELS).tables(pairs).answer() for row in every_row()]
    )
    blank = HeldTable(np.vstack([np.full(J, -1), stay]), LEVELS).tables(pairs).answer()
    assert answers.shape[1] == query.size
    squares = np.sum((answers - blank) ** 2, axis=1)
    if relation == "replace":
        gram = answers @ answers.T
        norms = np.diag(gram)
        squares = norms[:, None] + norms[None, :] - 2 * gram
    factor = 2 if relation == "replace" else 1
    declared = sums.sensitivity(query)
    assert declared == pytest.approx(math.sqrt(factor * len(pairs)))
    # Two equal tables that are asked for twice move together, no further than two others.
    assert math.sqrt(squares.max()) == pytest.approx(declared, rel=1e-12)


def test_the_sensitivity_of_all_pairs_is_that_of_the_derivation():
    query = HeldTable(np.zeros((3, J), int), LEVELS).tables(LEVELS.all_pairs())
    replaced = PrivateSums(Guarantee(1.0, 1e-6), 3, record="row")
    blanked = PrivateSums(Guarantee(1.0, 1e-6), 3, record="row", neighbour_relation="add_remove")
    assert blanked.sensitivity(query) == math.sqrt(J * (J - 1) / 2)
    assert replaced.sensitivity(query) == pytest.approx(math.sqrt(J * (J - 1)))


@pytest.mark.parametrize("asked", ASKED)
def test_counts_are_exact_whatever_the_codes_are(asked):
    codes = np.random.default_rng(1).integers(-2, 6, size=(9000, J))  # several blocks
    codes[0] = [2**62, -(2**62), 7, -1]
    answer = HeldTable(codes, LEVELS).tables(ASKED[asked]).answer()
    np.testing.assert_array_equal(answer, counted(codes, ASKED[asked]))


def table_of(codes):
    """Return a table with these codes under `SCHEMA`; −1 is what the schema does not list."""
    words = np.array(["no", "yes", "perhaps"], dtype=object)
    return {
        "a": codes[:, 0],
        "b": codes[:, 1],
        "c": words[codes[:, 2]],
        "d": np.where(codes[:, 3] < 3, codes[:, 3] + 0.5, np.nan),
    }


def random_codes(seed, n_rows):
    return np.random.default_rng(seed).integers(0, LEVELS.sizes, size=(n_rows, J))


#: All rows are of two kinds.
TWO_KINDS = np.outer(np.arange(300) % 2, [1, 2, 1, 3])
TABLES = {"independent": random_codes(2, 300), "two kinds": TWO_KINDS}


def made(codes, **settings):
    budget = {"epsilon": 3.0, "delta": 1e-6, "schema": SCHEMA, "rng": 0}
    result = odeco.synthesize(table_of(codes), **(budget | settings))
    return {
        "table": result.table,
        "privacy": result.privacy,
        "errors": result.errors,
        "said": result.summary(),
        "products": result.products,
    }


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("other", [np.full((300, J), -1), np.zeros((300, J), dtype=int)])
def test_the_same_releases_give_the_same_table_whatever_the_rows_are(name, other):
    result, seen = record(lambda: made(TABLES[name]))
    played, unseen = play_back(lambda: made(other), seen.released)
    assert seen.scales == unseen.scales
    assert plain(result) == plain(played)
    assert all(not np.array_equal(a, b) for a, b in zip(seen.exact, unseen.exact, strict=True))


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_every_release_has_the_noise_of_its_charge_and_all_charges_are_the_budget(name, relation):
    result, seen = record(lambda: made(TABLES[name], neighbour_relation=relation))
    report = result["privacy"]
    assert report.private
    assert report.epsilon_spent == pytest.approx(3.0, rel=1e-6)
    assert report.epsilon_spent <= 3.0
    assert seen.scales == [charge.scale for charge in report.charges]
    factor = 2 if relation == "replace" else 1
    # The second release has all tables again, or the counts of four columns.
    n_tables = [6, 6 if name == "two kinds" else 4]
    for charge, n in zip(report.charges, n_tables, strict=True):
        assert charge.sensitivity == pytest.approx(math.sqrt(factor * n), rel=1e-6)
    for exact, scale, released in zip(seen.exact, seen.scales, seen.released, strict=True):
        low, high = chi2.ppf([1e-9, 1 - 1e-9], exact.size)
        assert low < np.sum(((released - exact) / scale) ** 2) < high


def test_one_column_has_the_whole_budget_for_its_counts():
    table = {"b": np.arange(300) % 3}
    settings = {"epsilon": 1.0, "delta": 1e-6, "schema": {"b": [0, 1, 2]}}
    report = odeco.synthesize(table, **settings).privacy
    (charge,) = report.charges
    assert charge.sensitivity == pytest.approx(math.sqrt(2), rel=1e-6)
    assert report.epsilon_spent == pytest.approx(1.0, rel=1e-6)


def test_the_exact_curve_of_dp_accounting_confirms_the_guarantee():
    accounting = pytest.importorskip("dp_accounting")
    report = made(TWO_KINDS, epsilon=1.0)["privacy"]
    events = [
        accounting.GaussianDpEvent(charge.scale / charge.sensitivity) for charge in report.charges
    ]
    accountant = accounting.pld.PLDAccountant(
        accounting.NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=1e-4
    )
    accountant.compose(accounting.ComposedDpEvent(events))
    assert accountant.get_epsilon(1e-6) == pytest.approx(1.0, rel=1e-2)


def test_a_ledger_pays_for_all_tables_together(tmp_path):
    path = tmp_path / "people.ledger"
    LedgerFile.create(path, data="people", unit="record", epsilon=4.0, delta=1e-6)
    made(TWO_KINDS, ledger=path)
    assert len(LedgerFile(path).charges) == 2
    with pytest.raises(RuntimeError, match="Budget exhausted"):
        made(TWO_KINDS, ledger=path)


def test_a_blank_row_adds_nothing_and_no_cell_raises():
    """Cells of any kind: what is not in the schema says nothing or is missing."""
    from odeco.io.schema import as_schema, encode

    class Hostile(float):
        def __float__(self):
            raise RuntimeError("secret")

        __str__ = __float__

    wild = [None, float("nan"), "x", [1], {"a": 1}, b"0", 10**400, Hostile(0), "1e999", "nan", 1j]
    table = {name: list(wild) for name in SCHEMA}
    codes = encode(as_schema(SCHEMA), table)
    assert codes.shape == (len(wild), J)
    assert np.all(codes < LEVELS.sizes)
    assert np.all(codes[0] == -1)  # nothing is known: blank, though two columns may be missing
    known = encode(as_schema(SCHEMA), table | {"b": ["1", *wild[1:]]})
    np.testing.assert_array_equal(known[0], [1, 1, -1, 3])
    np.testing.assert_array_equal(known[1:], codes[1:])


def test_the_level_of_a_cell_depends_on_no_other_cell():
    from odeco.io.schema import as_schema, encode

    schema = as_schema({"n": {"edges": [0, 2**53 - 2, 2**53 - 1]}, "c": [2**53 - 1, 2**53 - 2]})
    own = [2**53 - 1, 2**53 - 2]
    alone = encode(schema, {"n": own, "c": own})
    for other in (None, 0.5, "text", 10**400):
        cells = [*own, other]
        np.testing.assert_array_equal(encode(schema, {"n": cells, "c": cells})[:2], alone)


@pytest.mark.parametrize("name", ["c", "n", "x", "b"])
def test_a_missing_cell_that_changes_the_type_of_a_column_changes_no_other_level(name):
    """pandas makes floats of whole numbers where one is missing, and objects of booleans."""
    from odeco.io.schema import as_schema, encode

    own = {"c": [1, 2, 10**17], "n": [1, 2, 3], "x": [0, 5, 9], "b": [True, False, True]}[name]
    column = {
        "c": ["1", "2", str(10**17)],
        "n": [1, 2, 3],
        "x": {"low": 0, "high": 9, "bins": 3},
        "b": [False, True],
    }[name]
    schema = as_schema({name: column})
    whole = pd.DataFrame({name: [*own, own[0]]})
    missing = pd.DataFrame({name: [*own, None]})
    assert whole.dtypes[name] != missing.dtypes[name]
    codes = encode(schema, whole)[:3]
    assert np.all(codes >= 0)
    np.testing.assert_array_equal(encode(schema, missing)[:3], codes)


@pytest.mark.parametrize(
    "kind",
    [
        *("int64", "float32", "object", "string", "category", "Int64", "Float32"),
        *("int64[pyarrow]", "string[pyarrow]", "bool", "boolean", "datetime64[s]"),
    ],
)
def test_cells_that_are_read_alone_are_those_that_are_read_together(kind):
    from odeco.io.schema import _cell_at

    for values in ([0, 1, 0, 1], [0, None, 1, 1]):
        if None in values and kind in ("int64", "bool"):
            continue
        column = pd.Series(values, dtype="object" if kind == "string" else None).astype(kind)
        alone = [_cell_at(column, place) for place in range(4)]
        assert list(map(repr, alone)) == list(map(repr, column.tolist()))
