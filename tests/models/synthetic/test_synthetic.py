"""Synthetic tables: consistent tables, planted dependence, independent columns, schemas, files."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import check_grad
from scipy.stats import binom

import odeco
from odeco.errors import FileFormatError
from odeco.io.schema import as_schema, encode, to_document
from odeco.models import SyntheticData, plan_synthesis
from odeco.models.synthetic import products as _products
from odeco.models.synthetic.products import Products, mean_of
from odeco.models.synthetic.synthesize import learn
from odeco.models.synthetic.tables import PairTables, Released, nearest_probabilities
from odeco.privacy import gdp_mu
from odeco.privacy.holders.tables import HeldTable, Levels

LEVELS = Levels(np.array([2, 3, 4, 2, 3]))
TRUTH = Products(
    np.array([0.5, 0.3, 0.2]),
    np.concatenate(
        [np.random.default_rng(5).dirichlet(np.full(size, 0.4), 3).T for size in LEVELS.sizes]
    ),
)
SCHEMA = {f"c{j}": list(range(size)) for j, size in enumerate(LEVELS.sizes.tolist())}


def table_of(codes):
    return {f"c{j}": codes[:, j] for j in range(codes.shape[1])}


def total_variations(one, other, levels):
    """Return the total variation of all tables of two columns."""
    pairs = levels.all_pairs()
    places = [levels.places(pair[None]) for pair in pairs]
    tables = [
        [HeldTable(codes, levels).tables(pairs).answer() / len(codes) for codes in (one, other)]
    ][0]
    ends = np.cumsum([rows.size for rows, _ in places])[:-1]
    differences = np.split(np.abs(tables[0] - tables[1]), ends)
    return np.array([each.sum() / 2 for each in differences])


def released(codes, levels, epsilon, seed):
    """Return a function that releases tables with the noise of a blanked row, from a seed."""
    rng = np.random.default_rng(seed)
    held = HeldTable(codes, levels)

    def release(pairs, share):
        query = held.tables(pairs)
        deviation = query.bound / gdp_mu(epsilon, 1e-6) / np.sqrt(share)
        noise = rng.normal(0, deviation, query.size)
        return Released(pairs, query.answer() + noise, deviation)

    return release


def private_independent_rows(codes, levels, epsilon, seed, n_rows):
    """Return rows of independent columns, the counts of which have the whole budget."""
    alone = np.column_stack([np.arange(levels.n_columns)] * 2)
    counts = released(codes, levels, epsilon, seed)(alone, 1.0).counts / len(codes)
    parts = [nearest_probabilities(part) for part in np.split(counts, levels.offsets[1:])]
    one = Products(np.ones(1), np.concatenate(parts)[:, None])
    return one.draw(levels, n_rows, np.random.default_rng(seed))


# ---- tables --------------------------------------------------------------------------------------


def test_the_projection_is_the_nearest_of_all_consistent_tables():
    """Compared with a least-squares problem over margins and tables, written down in full."""
    rng = np.random.default_rng(0)
    levels = Levels(np.array([2, 3, 2]))
    pairs = levels.all_pairs()
    again = np.array([[0, 1], [2, 2]])
    n_rows = 50
    releases = [
        Released(pairs, rng.normal(8, 5, 16), 2.0),
        Released(again, rng.normal(8, 5, 8), 0.5),
    ]
    tables = PairTables.of(releases, levels, n_rows)
    owners = levels.owners
    total = levels.sum_by_column(levels.sum_by_column(tables.counts).T)
    np.testing.assert_allclose(total[~np.eye(3, dtype=bool)], n_rows)
    of_rows = levels.sum_by_column(tables.counts.T).T
    for column in range(3):
        own = owners == column
        for other in {0, 1, 2} - {column}:
            np.testing.assert_allclose(of_rows[own, other], tables.margins[own])

    def misfit(counts, margins):
        matrix = counts + np.diag(margins)
        return sum(
            np.sum((matrix[levels.places(each.pairs)] - each.counts) ** 2) / each.deviation**2
            for each in releases
        )

    best = misfit(tables.counts, tables.margins)
    for _ in range(50):  # any other consistent tables are further away
        moved = Products(np.full(9, 1 / 9), rng.uniform(-1, 1, (7, 9)))
        shares = moved.shares - (levels.sum_by_column(moved.shares) / levels.sizes[:, None])[owners]
        step = np.where(owners[:, None] != owners, (shares * moved.weights) @ shares.T, 0.0)
        margins = rng.normal(size=7)
        margins -= (levels.sum_by_column(margins) / levels.sizes)[owners]
        change = margins[:, None] / levels.sizes[owners] + margins / levels.sizes[owners][:, None]
        step += np.where(owners[:, None] != owners, change, 0.0)
        assert misfit(tables.counts + step, tables.margins + margins) > best
        assert misfit(tables.counts - step, tables.margins - margins) > best


def test_exact_tables_are_not_changed():
    codes = TRUTH.draw(LEVELS, 1000, np.random.default_rng(0))
    pairs = LEVELS.all_pairs()
    exact = HeldTable(codes, LEVELS).tables(pairs).answer()
    tables = PairTables.of([Released(pairs, exact, 1.0)], LEVELS, 1000)
    np.testing.assert_allclose(tables.counts[LEVELS.places(pairs)], exact, atol=1e-9)
    np.testing.assert_allclose(tables.margins.reshape(-1)[:2], np.bincount(codes[:, 0]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "n_rows"), [(0.05, 200), (0.2, 2000), (1.0, 2000), (50.0, 2000)]
)
def test_independent_columns_look_dependent_in_one_of_a_hundred_tables(epsilon, n_rows):
    margins = Products(np.ones(1), TRUTH.shares[:, :1])
    alarms = 0
    n_trials = 200
    for seed in range(n_trials):
        codes = margins.draw(LEVELS, n_rows, np.random.default_rng(seed))
        release = released(codes, LEVELS, epsilon, seed)
        tables = PairTables.of([release(LEVELS.all_pairs(), 1.0)], LEVELS, n_rows)
        alarms += tables.dependence().is_clear
    # Both tests are approximate: twice the nominal rate is allowed for.
    assert alarms <= binom.ppf(0.9999, n_trials, 0.02)


def test_a_pair_that_depends_is_named_and_asked_for_again():
    rng = np.random.default_rng(0)
    codes = np.column_stack([rng.integers(0, size, 5000) for size in LEVELS.sizes])
    codes[:, 3] = codes[:, 0]
    asked = []
    release = released(codes, LEVELS, 1.0, 0)

    def noted(pairs, share):
        asked.append((pairs.tolist(), share))
        return release(pairs, share)

    learnt = learn(noted, LEVELS, 5000, rng)
    assert asked[0] == (LEVELS.all_pairs().tolist(), 0.4)
    again, share = asked[1]
    assert [0, 3] in again
    assert share == 0.6
    # Half of the pairs that are asked for again may be of independent columns.
    assert len([pair for pair in again if pair[0] != pair[1]]) <= 3
    assert {column for pair in again for column in pair} == set(range(5))
    assert learnt.n_clear == 1


# ---- the mixture ---------------------------------------------------------------------------------


def test_the_gradient_is_that_of_the_misfit():
    rng = np.random.default_rng(0)
    codes = TRUTH.draw(LEVELS, 500, rng)
    tables = PairTables.of([released(codes, LEVELS, 1.0, 0)(LEVELS.all_pairs(), 1.0)], LEVELS, 500)
    misfit = _products._Misfit.of(tables, 3, 10)
    variables = rng.normal(size=(15, 3)).ravel()
    error = check_grad(
        lambda x: misfit.value_and_gradient(x)[0],
        lambda x: misfit.value_and_gradient(x)[1],
        variables,
    )
    assert error < 1e-4 * np.linalg.norm(misfit.value_and_gradient(variables)[1])


def test_the_mean_of_mixtures_has_the_mean_of_their_tables():
    mixtures = [Products(np.ones(1), TRUTH.shares[:, :1]), TRUTH]
    expected = sum(each.tables(LEVELS) for each in mixtures) / 2
    np.testing.assert_allclose(mean_of(mixtures).tables(LEVELS), expected)


def test_rows_are_drawn_from_the_mixture():
    codes = TRUTH.draw(LEVELS, 200_000, np.random.default_rng(0))
    pairs = LEVELS.all_pairs()
    shares = HeldTable(codes, LEVELS).tables(pairs).answer() / len(codes)
    expected = TRUTH.tables(LEVELS)[LEVELS.places(pairs)]
    # Six standard deviations of a share.
    assert np.all(np.abs(shares - expected) < 6 * np.sqrt(expected / len(codes)) + 1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_planted_dependence_is_recovered_where_noise_is_small(seed):
    rng = np.random.default_rng(seed)
    codes = TRUTH.draw(LEVELS, 20_000, rng)
    result = odeco.synthesize(table_of(codes), epsilon=10.0, delta=1e-6, schema=SCHEMA, rng=seed)
    drawn = np.column_stack(list(result.table.values()))
    own = total_variations(codes, drawn, LEVELS)
    # Two independent samples of the truth differ by as much as counting alone gives.
    counting = total_variations(codes, TRUTH.draw(LEVELS, 20_000, rng), LEVELS)
    assert own.mean() < 2 * counting.mean()
    assert result.is_dependent
    assert result.n_clear == 10


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_tables_are_never_worse_than_those_of_private_independent_columns(epsilon):
    """Dependent columns, and independent ones: then up to what the first release has cost."""
    rng = np.random.default_rng(0)
    independent = Products(np.ones(1), TRUTH.shares @ TRUTH.weights[:, None])
    for truth, n_rows, allowed in ((TRUTH, 4000, 1.0), (independent, 4000, 1.25)):
        own = []
        others = []
        for seed in range(6):
            codes = truth.draw(LEVELS, n_rows, rng)
            learnt = learn(released(codes, LEVELS, epsilon, seed), LEVELS, n_rows, rng)
            drawn = learnt.products.draw(LEVELS, n_rows, rng)
            other = private_independent_rows(codes, LEVELS, epsilon, seed, n_rows)
            own.append(total_variations(codes, drawn, LEVELS).mean())
            others.append(total_variations(codes, other, LEVELS).mean())
        assert np.mean(own) < allowed * np.mean(others)


def test_columns_that_show_nothing_are_independent_and_said_to_be():
    codes = TRUTH.draw(LEVELS, 200, np.random.default_rng(0))
    result = odeco.synthesize(table_of(codes), epsilon=0.05, delta=1e-6, schema=SCHEMA, rng=0)
    assert not result.is_dependent
    assert result.n_clear == 0
    assert result.summary().startswith("5 independent columns: no dependence")
    charges = result.privacy.charges
    assert charges[1].mechanism.startswith("0 tables of two columns and 5 of one")


def test_errors_are_of_the_size_of_real_errors_from_noise():
    """The fitted tables beside the exact ones of the same rows, over runs."""
    rng = np.random.default_rng(3)
    codes = TRUTH.draw(LEVELS, 20_000, rng)
    exact = HeldTable(codes, LEVELS).tables(LEVELS.all_pairs()).answer() / 20_000
    stated = []
    real = []
    for seed in range(4):
        learnt = learn(released(codes, LEVELS, 0.5, seed), LEVELS, 20_000, rng)
        fitted = learnt.products.tables(LEVELS)[LEVELS.places(LEVELS.all_pairs())]
        real.append(np.abs(fitted - exact).sum() / 2 / 10)
        stated.append(learnt.errors[np.triu_indices(5, 1)].mean())
    assert 0.5 < np.mean(stated) / np.mean(real) < 2


@pytest.mark.parametrize("sizes", [[1, 1], [1, 3], [2], [1], [2, 2]])
def test_columns_with_one_level_and_tables_with_few_columns(sizes):
    codes = np.random.default_rng(0).integers(0, sizes, size=(300, len(sizes)))
    schema = {f"c{j}": list(range(size)) for j, size in enumerate(sizes)}
    result = odeco.synthesize(table_of(codes), epsilon=1.0, delta=1e-6, schema=schema)
    assert all(len(column) == 300 for column in result.table.values())
    assert result.summary()


# ---- tables of users -----------------------------------------------------------------------------

PEOPLE_SCHEMA = {
    "sex": ["female", "male", None],
    "age": {"low": 18, "high": 89, "bins": 4, "whole": True, "missing": True},
    "income": {"edges": [0, 10.5, 100]},
    "smokes": [False, True],
    "grade": [1, 2, 3],
}


def people(n=400):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "sex": pd.Categorical(rng.choice(["female", "male"], n)),
            "age": pd.array(rng.integers(18, 90, n), dtype="Int64"),
            "income": rng.uniform(0, 100, n),
            "smokes": rng.random(n) < 0.3,
            "grade": rng.integers(1, 4, n),
            "name": "secret",
        }
    )
    frame.loc[::5, "sex"] = None
    frame.loc[::7, "age"] = pd.NA
    return frame


def test_a_pandas_table_gives_a_pandas_table_of_its_own_values():
    frame = people()
    result = odeco.synthesize(
        frame, epsilon=20.0, delta=1e-6, schema=PEOPLE_SCHEMA, n_rows=1000, rng=0
    )
    made = result.table
    assert isinstance(made, pd.DataFrame)
    assert list(made) == list(PEOPLE_SCHEMA)
    assert len(made) == 1000
    assert set(made["sex"].dropna()) == {"female", "male"}
    assert 0.1 < made["sex"].isna().mean() < 0.3
    ages = made["age"].dropna()
    assert ages.between(18, 89).all()
    assert (ages == ages.round()).all()
    assert made["income"].between(0, 100).all()
    assert made["smokes"].dtype == bool
    assert set(made["grade"]) == {1, 2, 3}
    assert "secret" not in repr(made.to_numpy().tolist())


def test_texts_of_a_csv_file_mean_what_values_of_a_table_mean():
    frame = people()
    texts = {
        name: [None if pd.isna(cell) else str(cell) for cell in frame[name].tolist()]
        for name in frame
    }
    schema = as_schema(PEOPLE_SCHEMA)
    np.testing.assert_array_equal(encode(schema, frame), encode(schema, texts))
    arrays = {name: frame[name].to_numpy() for name in frame}
    np.testing.assert_array_equal(encode(schema, frame), encode(schema, arrays))


def test_numbers_beyond_the_limits_belong_to_the_nearest_bin():
    schema = as_schema({"x": {"edges": [0, 1, 2]}, "y": [0, 1]})
    cells = [-5, 0, 1, 2, 99, float("inf"), -float("inf")]
    codes = encode(schema, {"x": cells, "y": [0] * 7})
    assert codes[:, 0].tolist() == [0, 0, 1, 1, 1, 1, 0]


def test_further_rows_differ_at_each_call_and_are_those_of_a_seed():
    result = odeco.synthesize(people(), epsilon=1.0, delta=1e-6, schema=PEOPLE_SCHEMA, rng=0)
    assert not result.sample(50).equals(result.sample(50))
    assert result.sample(50, random_state=1).equals(result.sample(50, random_state=1))
    assert result.table is result.table


def test_a_saved_table_is_the_same_when_it_is_loaded(tmp_path):
    result = odeco.synthesize(people(), epsilon=1.0, delta=1e-6, schema=PEOPLE_SCHEMA, rng=0)
    result.save(tmp_path / "people.npz")
    again = SyntheticData.load(tmp_path / "people.npz")
    assert again.table.equals(result.table)
    assert again.privacy == result.privacy
    assert again.summary() == result.summary()


def test_a_damaged_file_is_refused(tmp_path):
    result = odeco.synthesize(people(), epsilon=1.0, delta=1e-6, schema=PEOPLE_SCHEMA, rng=0)
    wrong = Products(result.products.weights, 2 * result.products.shares.clip(0, 0.5))
    odd = [{"products": wrong}, {"schema": as_schema({"x": [0, 1]})}]
    for changes in odd:
        from dataclasses import replace

        replace(result, **changes).save(tmp_path / "odd.npz")
        with pytest.raises(FileFormatError):
            SyntheticData.load(tmp_path / "odd.npz")


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({}, "A schema must have a description"),
        ([1], "A schema must have a description"),
        ({1: ["a"]}, "names of columns must be texts"),
        ({"x": "ab"}, "must be a list of categories"),
        ({"x": []}, "categories of a column must be different"),
        ({"x": ["a", "a"]}, "categories of a column must be different"),
        ({"x": ["a", 1]}, "categories of a column must be different"),
        ({"x": [None, None, 1]}, "categories of a column must be different"),
        ({"x": [1, 1.0]}, "categories of a column must be different"),
        ({"x": [float("inf")]}, "categories of a column must be different"),
        ({"x": {"low": 0, "high": 1}}, "column of numbers must have"),
        ({"x": {"low": 0, "high": 1, "bins": 2, "kind": 3}}, "column of numbers must have"),
        ({"x": {"low": 1, "high": 0, "bins": 2}}, "limits of bins must rise"),
        ({"x": {"low": 0, "high": 1, "bins": 2, "whole": True}}, "limits of bins must rise"),
        ({"x": {"edges": [0, 0.5, 2], "whole": True}}, "limits of bins must rise"),
        ({"x": {"edges": [0, float("inf")]}}, "limits of bins must be numbers"),
        ({"x": {"low": 0, "high": 1, "bins": 0}}, "`bins` must be an int"),
        ({"x": {"low": 0, "high": 1, "bins": 2001}}, "`bins` must be an int"),
        ({"x": list(range(1500)), "y": list(range(1500))}, "at most 2,000 levels"),
    ],
)
def test_a_schema_that_is_none_is_an_error_that_says_what_to_do(schema, message):
    with pytest.raises((ValueError, TypeError), match=message) as raised:
        as_schema(schema)
    assert str(raised.value).count(". ") >= 1


def test_a_schema_is_read_from_json_and_written_to_it(tmp_path):
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(PEOPLE_SCHEMA))
    assert as_schema(path) == as_schema(PEOPLE_SCHEMA)
    assert as_schema(to_document(as_schema(path))) == as_schema(path)
    path.write_text("{")
    with pytest.raises(ValueError, match="must be a JSON file"):
        as_schema(path)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([[1, 2]], "must be a pandas table or a dict"),
        ({"x": [1]}, "must have each column of the schema once"),
        ({"x": [1], "y": [1, 2]}, "same number of rows"),
        ({"x": [], "y": []}, "same number of rows"),
        ({"x": np.ones((2, 2)), "y": [1, 2]}, "must have one axis"),
        ({"x": "ab", "y": [1, 2]}, "A column must be a list"),
        ({"x": np.ma.array([1]), "y": [1]}, "A column must be a list"),
        (pd.DataFrame([[1, 2, 3]], columns=["x", "y", "y"]), "each column of the schema once"),
    ],
)
def test_a_table_that_is_none_is_refused_without_a_cell_in_the_message(table, message):
    settings = {"epsilon": 1.0, "delta": 1e-6, "schema": {"x": [0, 1], "y": [0, 1]}}
    with pytest.raises((ValueError, TypeError), match=message):
        odeco.synthesize(table, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epsilon": 0.0}, "must be a number above 0"),
        ({"delta": 0.5}, "must be below 1/n"),
        ({"delta": 0.0}, "must be a number above 0"),
        ({"neighbour_relation": "none"}, "neighbour_relation"),
        ({"n_rows": 0}, "`n_rows` must be an int"),
    ],
)
def test_what_privacy_cannot_have_is_refused(settings, message):
    given = {"epsilon": 1.0, "delta": 1e-6, "schema": PEOPLE_SCHEMA} | settings
    with pytest.raises(ValueError, match=message):
        odeco.synthesize(people(), **given)


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_the_plan_knows_the_noise_of_a_run(relation):
    how = {"epsilon": 1.0, "delta": 1e-6, "neighbour_relation": relation}
    plan = plan_synthesis(PEOPLE_SCHEMA, n_rows=400, **how)
    charges = odeco.synthesize(people(), schema=PEOPLE_SCHEMA, **how).privacy.charges
    assert charges[0].scale == pytest.approx(plan.releases[0].noise, rel=1e-9)
    assert charges[1].scale <= plan.releases[1].noise * (1 + 1e-9)
    assert sum(each.share for each in plan.releases) == pytest.approx(1)
    assert "54.7 %" in str(plan)
    one = plan_synthesis({"x": [0, 1]}, n_rows=400, **how)
    assert one.releases[0].share == 1


def test_the_noise_is_that_of_the_operating_system():
    one, other = (
        odeco.synthesize(people(), epsilon=1.0, delta=1e-6, schema=PEOPLE_SCHEMA, rng=0)
        for _ in range(2)
    )
    assert one.privacy.private
    assert not one.table.equals(other.table)
