"""Mixtures of tables: numbers, categories, counts and gaps together."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import gammaln
from scipy.stats import multivariate_normal
from sklearn.metrics import adjusted_rand_score

from odeco.errors import FileFormatError
from odeco.models import TensorMixture
from odeco.models.emissions.categorical import CategoricalPart
from odeco.models.emissions.located import LocatedPart
from odeco.models.emissions.normal import GaussianPart
from odeco.models.emissions.poisson import PoissonPart
from odeco.models.emissions.product import Product
from odeco.models.emissions.search import TableEM

pandas = pytest.importorskip("pandas")

WEIGHTS = np.array([0.5, 0.3, 0.2])
MEANS = np.array([[0.0, 0.0], [2.5, -1.0], [0.0, 3.0]])
CHANCES = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]])
FLAGS = np.array([0.1, 0.5, 0.9])
RATES = np.array([1.0, 4.0, 10.0])
NAMES = np.array(["Adelie", "Chinstrap", "Gentoo"])
COUNTS = {"visits": "count"}


def planted_table(n, seed=0, gaps=0.0):
    """Return rows of three components that differ in all columns, and the component of each."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(3, n, p=WEIGHTS)
    numbers = MEANS[labels] + rng.standard_normal((n, 2))
    species = [rng.choice(3, p=CHANCES[label]) for label in labels]
    table = pandas.DataFrame(
        {
            "length": 40 + 5 * numbers[:, 0],
            "species": NAMES[species],
            "mass": 4000 + 500 * numbers[:, 1],
            "tagged": rng.random(n) < FLAGS[labels],
            "visits": rng.poisson(RATES[labels]),
        }
    ).astype({"tagged": object, "visits": float})
    return table.mask(rng.random(table.shape) < gaps), labels


def true_labels(table):
    """Return the component of the largest posterior probability by the planted parameters."""
    joint = np.log(WEIGHTS) * np.ones((len(table), 1))
    numbers = np.column_stack([(table["length"] - 40) / 5, (table["mass"] - 4000) / 500])
    joint -= np.nansum((numbers[:, None] - MEANS) ** 2, axis=2) / 2
    for number, name in enumerate(NAMES):
        joint += (table["species"] == name).to_numpy()[:, None] * np.log(CHANCES[:, number])
    joint += (table["tagged"] == True).to_numpy()[:, None] * np.log(FLAGS)  # noqa: E712 - gaps
    joint += (table["tagged"] == False).to_numpy()[:, None] * np.log(1 - FLAGS)  # noqa: E712
    visits = table["visits"].to_numpy(float)[:, None]
    joint += np.nan_to_num(visits * np.log(RATES) - RATES)
    return joint.argmax(axis=1)


def fitted(table, k=3, **how):
    return TensorMixture(k, columns=COUNTS, random_state=0, **how).fit(table)


# What is found -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["spherical", "diag", "full", "auto", None])
def test_planted_components_are_found(kind):
    table, labels = planted_table(900)
    model = fitted(table, covariance_type=kind)
    best = adjusted_rand_score(labels, true_labels(table))
    # Parameters of 900 rows have errors of some 5 %, which moves one row of fifty.
    assert adjusted_rand_score(labels, model.predict(table)) > best - 0.05
    np.testing.assert_allclose(np.sort(model.weights_), np.sort(WEIGHTS), atol=0.06)
    order = np.argsort(model.rates_[:, 0])
    np.testing.assert_allclose(model.rates_[order, 0], RATES, rtol=0.2)
    np.testing.assert_allclose(model.probabilities_["tagged"][order, 1], FLAGS, atol=0.1)
    # Standard errors of means are at most 5 / √180 = 0.4 and 37; there is also some mixing up.
    np.testing.assert_allclose(model.means_[order, 0], 40 + 5 * MEANS[:, 0], atol=2.0)
    np.testing.assert_allclose(model.means_[order, 1], 4000 + 500 * MEANS[:, 1], atol=200)


@pytest.mark.parametrize("kind", ["diag", "full"])
def test_gaps_cost_only_what_they_hide(kind):
    table, labels = planted_table(1200, gaps=0.2)
    model = fitted(table, covariance_type=kind)
    best = adjusted_rand_score(labels, true_labels(table))
    assert adjusted_rand_score(labels, model.predict(table)) > best - 0.05


@pytest.mark.slow
def test_auto_selects_the_planted_number():
    table, _ = planted_table(900)
    assert fitted(table, "auto").n_components_ == 3


def test_a_column_that_is_a_name_or_a_counter_changes_nothing():
    table, _ = planted_table(300)
    plain = fitted(table)
    further = table.assign(number=np.arange(300), name=[f"row {n}" for n in range(300)], one="x")
    model = fitted(further)
    np.testing.assert_array_equal(model.predict_proba(further), plain.predict_proba(table))
    assert set(model.left_out_) == {"number", "name", "one"}
    assert "Left out: number (it counts the rows), name" in model.summary()


# Densities ---------------------------------------------------------------------------------------


def test_the_density_of_a_row_with_a_gap_is_the_sum_over_what_could_be_there():
    table, _ = planted_table(400)
    model = fitted(table, covariance_type="full")
    row = table.iloc[[0]]
    gap = row.assign(species=None)
    scores = [model.score_samples(row.assign(species=name))[0] for name in NAMES]
    assert model.score_samples(gap)[0] == pytest.approx(np.logaddexp.reduce(scores), abs=1e-9)
    gap = row.assign(visits=np.nan)
    scores = [model.score_samples(row.assign(visits=float(count)))[0] for count in range(80)]
    assert model.score_samples(gap)[0] == pytest.approx(np.logaddexp.reduce(scores), abs=1e-9)

    def density(mass):
        return float(np.exp(model.score_samples(row.assign(mass=mass))[0]))

    total = quad(density, 0, 9000, limit=200, points=[4000, 5500])[0]
    assert np.log(total) == pytest.approx(model.score_samples(row.assign(mass=np.nan))[0], abs=1e-5)


def test_a_row_of_gaps_has_the_weights_of_the_components():
    table, _ = planted_table(300)
    model = fitted(table)
    nothing = table.iloc[[0]].mask(np.ones((1, 5), bool))
    np.testing.assert_allclose(model.predict_proba(nothing)[0], model.weights_, atol=1e-12)
    assert model.score_samples(nothing)[0] == pytest.approx(0.0, abs=1e-12)


def random_product(k, seed=0):
    rng = np.random.default_rng(seed)
    scatter = rng.standard_normal((k, 2, 2))
    gaussians = GaussianPart(
        rng.standard_normal((k, 2)), scatter @ scatter.transpose(0, 2, 1) + 0.2 * np.eye(2)
    )
    sizes = np.array([3, 2])
    chances = np.hstack([rng.dirichlet(np.ones(size), k) for size in sizes])
    return Product(
        (gaussians, PoissonPart(rng.uniform(0.5, 5, (k, 1))), CategoricalPart(chances, sizes))
    )


def test_every_part_learns_what_it_draws():
    product = random_product(2)
    labels = np.repeat([0, 1], 40_000)
    block = product.draw(labels, np.random.RandomState(0))
    shares = np.eye(2)[labels]
    found = product.m_step(product.sums(block, shares), np.zeros(2))
    # Standard errors are at most 3 / √40,000 = 0.015 of squares of numbers, less of all others.
    for part, own in zip(product.parts, found.parts, strict=True):
        for name in ("means", "covariances", "rates", "probabilities"):
            if hasattr(part, name):
                np.testing.assert_allclose(getattr(own, name), getattr(part, name), atol=0.08)


def test_densities_are_the_sums_of_those_of_the_columns():
    product = random_product(2, 1)
    block = np.array([[0.3, -0.2, 4.0, 0, 1, 0, 0, 1], [np.nan, 1.0, np.nan, 0, 0, 0, 1, 0]])
    gaussians, counts, categories = product.parts
    joint = product.log_densities(block)
    for h in range(2):
        offset = block[0, :2] - gaussians.means[h]
        covariance = gaussians.covariances[h]
        whole = -0.5 * (
            offset @ np.linalg.solve(covariance, offset)
            + np.linalg.slogdet(2 * np.pi * covariance)[1]
        )
        rate = counts.rates[h, 0]
        whole += 4 * np.log(rate) - rate - gammaln(5)
        whole += np.log(categories.probabilities[h, [1, 4]]).sum()
        assert joint[0, h] == pytest.approx(whole)
        variance = covariance[1, 1]
        gap = -0.5 * ((1.0 - gaussians.means[h, 1]) ** 2 / variance + np.log(2 * np.pi * variance))
        gap += np.log(categories.probabilities[h, 3])
        assert joint[1, h] == pytest.approx(gap)


def test_em_never_lowers_the_height_of_any_start():
    product = random_product(3)
    block = product.draw(np.repeat([0, 1, 2], 60), np.random.RandomState(0))
    block[::7, 0] = np.nan
    block[::5, 2] = np.nan
    one = product.take(np.zeros(1, int)).m_step(
        product.sums(block, np.ones((180, 3)) / 3), np.full(2, 1e-6)
    )
    one = one.take(np.zeros(1, int))
    mean_sums = one.sums(block, np.ones((180, 1)))[:, 0] / 180
    em = TableEM.of(block, one, mean_sums, 0.0, np.zeros(2))
    shares = np.random.default_rng(0).dirichlet(np.ones(3), (180, 4))
    before = em.spread(12)
    heights = np.full(4, -np.inf)
    for _ in range(30):
        before, log_weights = em.m_step(shares, before)
        shares, height = em.e_step(before, log_weights)
        assert np.all(height > heights - 1e-8)
        heights = height
    _, fast, _, converged = em.run(shares, 200, 1e-6)
    assert converged
    assert np.all(fast > heights - 1e-6)


def test_starts_together_are_starts_alone():
    product = random_product(2)
    block = product.draw(np.repeat([0, 1], 100), np.random.RandomState(1))
    one = product.m_step(product.sums(block, np.full((200, 2), 0.5)), np.full(2, 1e-6)).take(
        np.zeros(1, int)
    )
    mean_sums = one.sums(block, np.ones((200, 1)))[:, 0] / 200
    em = TableEM.of(block, one, mean_sums, 1.0, np.full(2, 1e-6))
    shares = np.random.default_rng(0).dirichlet(np.ones(2), (200, 3))
    together = em.run(shares, 50, 1e-3)[1]
    alone = [em.run(shares[:, [start]], 50, 1e-3)[1][0] for start in range(3)]
    np.testing.assert_allclose(together, alone, atol=1e-2)


# Means that depend on a category ---------------------------------------------------------------


def random_located(k, seed=0):
    rng = np.random.default_rng(seed)
    scatter = rng.standard_normal((k, 2, 2))
    covariances = scatter @ scatter.transpose(0, 2, 1) + 0.2 * np.eye(2)
    return LocatedPart(rng.dirichlet(np.ones(3), k), rng.standard_normal((k, 3, 2)), covariances)


def test_located_means_have_the_density_of_their_category_and_gaps_are_summed_over():
    part = random_located(2)
    rng = np.random.default_rng(1)
    numbers = rng.standard_normal((6, 2))
    marked = np.eye(3)[[0, 1, 2, 0, 1, 2]]
    marked[3] = 0
    numbers[4, 0] = np.nan
    numbers[5] = np.nan
    found = part.log_densities(np.hstack([numbers, marked]))

    def density(row, h, value):
        seen = ~np.isnan(row)
        gaussian = multivariate_normal(
            part.means[h, value][seen], part.covariances[h][np.ix_(seen, seen)]
        )
        return part.chances[h, value] * gaussian.pdf(row[seen])

    for h in range(2):
        for place in (0, 1, 2, 4):
            value = int(marked[place].argmax())
            assert found[place, h] == pytest.approx(np.log(density(numbers[place], h, value)))
        either = sum(density(numbers[3], h, value) for value in range(3))
        assert found[3, h] == pytest.approx(np.log(either))
        assert found[5, h] == pytest.approx(np.log(part.chances[h, 2]))


def test_located_means_are_learnt():
    part = random_located(2)
    labels = np.repeat([0, 1], 40_000)
    block = part.draw(labels, np.random.RandomState(0))
    found = part.m_step(part.sums(block, np.eye(2)[labels]), np.zeros(2))
    np.testing.assert_allclose(found.chances, part.chances, atol=0.02)
    # The rarest category has some hundreds of rows: standard errors of 0.1.
    np.testing.assert_allclose(found.covariances, part.covariances, atol=0.15)
    often = part.chances > 0.1
    np.testing.assert_allclose(found.means[often], part.means[often], atol=0.15)
    marginal = part.marginal
    for h in range(2):
        own = block[labels == h, :2]
        np.testing.assert_allclose(marginal.means[h], own.mean(axis=0), atol=0.05)
        np.testing.assert_allclose(marginal.covariances[h], np.cov(own.T), atol=0.15)


def birds(n, seed=0):
    """Return rows of two groups, in each of which one sex is larger by more than groups differ."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(2, size=n)
    male = rng.random(n) < 0.5
    offsets = 3.0 * labels[:, None] * [1, -1] + 4.0 * male[:, None]
    numbers = offsets + rng.standard_normal((n, 2))
    table = pandas.DataFrame({"bill": numbers[:, 0], "wing": numbers[:, 1]})
    return table.assign(sex=np.where(male, "male", "female")), labels


def test_auto_finds_groups_whose_sizes_depend_on_a_category(tmp_path):
    table, labels = birds(400)
    table = table.mask(np.random.default_rng(1).random(table.shape) < 0.05)
    plain = TensorMixture(2, random_state=0).fit(table)
    model = TensorMixture(2, covariance_type="auto", random_state=0).fit(table)
    # Groups are 3 √2 deviations apart: 1.7 % of complete rows are on the wrong side.
    assert adjusted_rand_score(labels, model.predict(table)) > 0.85
    assert adjusted_rand_score(labels, plain.predict(table)) < 0.5
    assert "means of numbers depend on sex" in model.summary()
    assert set(model.probabilities_) == {"sex"}
    model.save(tmp_path / "model.npz")
    again = TensorMixture.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.predict_proba(table), model.predict_proba(table))
    drawn, _ = model.sample(20_000, random_state=0)
    for sex in ("male", "female"):
        own = table[table["sex"] == sex]["bill"].mean()
        # 200 rows with a deviation of 1.8 have a standard error of 0.13.
        assert drawn[drawn["sex"] == sex]["bill"].mean() == pytest.approx(own, abs=0.3)


def test_auto_takes_no_category_where_means_do_not_depend_on_one():
    table, _ = planted_table(400)
    model = fitted(table, covariance_type="auto")
    assert model._learnt.fit.context.located == ""


# Weights, streams, files -------------------------------------------------------------------------


def test_weights_are_repeated_rows():
    table, _ = planted_table(200)
    weights = np.random.default_rng(1).integers(0, 4, 200)
    repeated = table.loc[table.index.repeat(weights)]
    how = {"tol": 1e-9, "max_iter": 2000, "covariance_type": "diag"}
    model = TensorMixture(3, columns=COUNTS, random_state=0, **how)
    model.fit(table, sample_weight=weights)
    again = fitted(repeated, **how)
    # Starts differ, maxima do not.
    np.testing.assert_allclose(model.weights_, again.weights_, atol=1e-3)
    np.testing.assert_allclose(model.predict_proba(table), again.predict_proba(table), atol=1e-2)
    score = model.score(table, sample_weight=weights)
    assert score == pytest.approx(model.score(repeated), abs=1e-9)


def test_a_stream_does_not_depend_on_batches_and_few_rows_are_a_fit(tmp_path):
    table, _ = planted_table(300)
    stream = TensorMixture(3, columns=COUNTS, random_state=0)
    for start in (0, 100, 250):
        stream.partial_fit(table[start : start + (100, 150, 50)[(start > 0) + (start > 100)]])
        stream.save(tmp_path / "stream.npz")
        stream = TensorMixture.load(tmp_path / "stream.npz")
    assert stream.n_samples_seen_ == 300
    np.testing.assert_array_equal(stream.predict_proba(table), fitted(table).predict_proba(table))


@pytest.mark.slow
def test_a_long_stream_learns_the_components():
    table, labels = planted_table(45_000)
    whole = TensorMixture(3, columns=COUNTS, random_state=0).partial_fit(table)
    cut = TensorMixture(3, columns=COUNTS, random_state=0)
    for start in range(0, 45_000, 9_000):
        cut.partial_fit(table[start : start + 9_000])
    np.testing.assert_array_equal(cut.predict_proba(table[:99]), whole.predict_proba(table[:99]))
    best = adjusted_rand_score(labels, true_labels(table))
    assert adjusted_rand_score(labels, whole.predict(table)) > best - 0.01


def test_files_hold_all_of_a_model(tmp_path):
    table, _ = planted_table(300, gaps=0.1)
    model = fitted(table)
    model.split_half(table, n_pairs=1)
    model.save(tmp_path / "model.npz")
    again = TensorMixture.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.predict_proba(table), model.predict_proba(table))
    assert again.summary() == model.summary()
    assert again.columns == COUNTS
    assert again.columns_ == model.columns_


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("fit.params.parts.1.type", lambda _: np.array("CategoricalPart")),
        ("fit.params.parts.2.probabilities", lambda value: 2 * value),
        ("fit.context.prior", lambda value: value[:-1]),
        ("fit.context.columns.kinds", lambda value: np.full_like(value, "number")),
        ("fit.context.columns.sizes", lambda value: value + 1),
        ("fit.context.scale", lambda value: 0 * value),
        ("fit.context.kind", lambda _: np.array("cubic")),
    ],
)
def test_files_that_contradict_themselves_are_refused(tmp_path, name, change):
    model = fitted(planted_table(100)[0])
    model.save(tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz") as file:
        arrays = dict(file)
    arrays[name] = change(arrays[name])
    np.savez(tmp_path / "model.npz", **arrays)
    with pytest.raises(FileFormatError):
        TensorMixture.load(tmp_path / "model.npz")


# Tables ------------------------------------------------------------------------------------------


def test_columns_are_found_by_their_names():
    table, _ = planted_table(300)
    model = fitted(table)
    other = table[table.columns[::-1]].assign(further=1)
    np.testing.assert_array_equal(model.predict_proba(other), model.predict_proba(table))
    with pytest.raises(ValueError, match="It has no 'mass'"):
        model.predict(table.drop(columns="mass"))
    with pytest.raises(ValueError, match="must be a table with its columns: length, species"):
        model.predict(table.to_numpy())


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_new_rows_may_be_a_file_of_numbers_alone(tmp_path, suffix):
    table, _ = planted_table(200)
    table = table.assign(year=np.arange(200) % 3).drop(columns=["species", "tagged"])
    path = tmp_path / f"rows.{suffix}"
    if suffix == "csv":
        table.to_csv(path, index=False)
    else:
        table.to_parquet(path)
    model = fitted(path)
    assert model.columns_ == {
        "length": "number",
        "mass": "number",
        "visits": "count",
        "year": "category",
    }
    np.testing.assert_allclose(model.predict_proba(path), model.predict_proba(table), atol=1e-9)
    array = TensorMixture(3, random_state=0).fit(path)
    assert array.columns_ == {}


def test_unknown_categories_count_as_missing_and_are_named():
    table, _ = planted_table(300)
    model = fitted(table)
    foreign = table.iloc[:2].assign(species="Emperor")
    with pytest.warns(UserWarning, match="species has 'Emperor' in row 0"):
        found = model.predict_proba(foreign)
    np.testing.assert_array_equal(found, model.predict_proba(foreign.assign(species=None)))


def test_a_table_of_numbers_is_an_array():
    rows = np.random.default_rng(0).standard_normal((200, 3)) + np.repeat([[0], [5]], 100, axis=0)
    table = pandas.DataFrame(rows, columns=["a", "b", "c"])
    one = TensorMixture(2, random_state=0).fit(table)
    other = TensorMixture(2, random_state=0).fit(rows)
    np.testing.assert_array_equal(one.means_, other.means_)
    assert one.columns_ == {}
    counted = TensorMixture(2, random_state=0).fit(table.assign(id=np.arange(200)))
    np.testing.assert_array_equal(counted.means_, other.means_)
    assert counted.left_out_ == {"id": "it counts the rows"}
    counted.split_half(table.assign(id=0), n_pairs=1)


def test_arrays_have_no_kinds_and_private_rows_neither():
    rows = np.random.default_rng(0).standard_normal((50, 2))
    with pytest.raises(ValueError, match=r"names columns of a table\. Got rows without names"):
        TensorMixture(2, columns={"a": "count"}).fit(rows)
    private = TensorMixture(2, columns={"a": "count"}, epsilon=1.0, delta=1e-6, norm_bound=5.0)
    with pytest.raises(ValueError, match="A private mixture is one of numbers"):
        private.fit(rows)
    with pytest.raises(ValueError, match="must be a dict of the names"):
        TensorMixture(2, columns=["a"]).fit(rows)


def test_a_table_of_categories_alone_has_components():
    table, _ = planted_table(2000)
    table = table[["species", "tagged"]].assign(other=table["species"])
    model = TensorMixture(2, random_state=0).fit(table)
    assert model.means_.shape == (2, 0)
    assert model.rates_.shape == (2, 0)
    assert np.unique(model.predict(table)).size == 2


def test_samples_have_the_types_of_the_table_and_differ_from_call_to_call():
    table, _ = planted_table(600)
    model = fitted(table.astype({"tagged": bool, "species": "category"}))
    rows, labels = model.sample(500)
    assert list(rows.columns) == list(table.columns)
    assert rows["tagged"].dtype == bool
    assert isinstance(rows["species"].dtype, pandas.CategoricalDtype)
    assert labels.shape == (500,)
    assert not rows.equals(model.sample(500)[0])
    assert model.sample(50, random_state=1)[0].equals(model.sample(50, random_state=1)[0])
    # Means of 20,000 rows have standard errors of 0.05; species some 0.004.
    many = model.sample(20_000, random_state=0)[0]
    assert many["length"].mean() == pytest.approx(
        float(model.weights_ @ model.means_[:, 0]), abs=0.3
    )
    share = float(model.weights_ @ model.probabilities_["species"][:, 0])
    assert (many["species"] == "Adelie").mean() == pytest.approx(share, abs=0.02)


def test_pages_and_summaries_show_numbers_and_categories(tmp_path):
    table, _ = planted_table(300)
    model = fitted(table)
    assert "2 of numbers, 1 of counts, 2 of categories" in model.summary()
    assert "species = Gentoo" in model.summary()
    model.write_report(tmp_path / "page.html", rows=table)
    page = (tmp_path / "page.html").read_text()
    for text in ("species = Gentoo", "mass", "visits", "Columns, component by component"):
        assert text in page
    assert model.assignments(table).index.equals(table.index)
    assert model.bic(table) > model.aic(table)


def test_halves_have_the_kinds_of_all_rows():
    table, _ = planted_table(60)
    model = fitted(table)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        halves = model.split_half(table, n_pairs=1)
    assert halves.found_again.size == 3


def test_a_prior_of_no_rows_is_maximum_likelihood():
    table, _ = planted_table(500)
    how = {"covariance_type": "diag", "tol": 1e-8, "max_iter": 3000}
    likely = fitted(table, smoothing=0.0, **how)
    cautious = fitted(table, smoothing=5.0, **how)
    assert likely.score(table) > cautious.score(table)
    spec = likely._learnt.spec
    fit = likely._learnt.fit
    data = spec.prepare(likely._encode(table, fit.context)[0], fit.context)
    more, _ = spec.step_on(data, fit.context)(fit.params)
    score = np.mean(spec.posterior(more, data, fit.context)[1])
    assert score == pytest.approx(likely.score(table), abs=1e-6)
    assert replace(fit.params, weights=fit.params.weights).part(PoissonPart) is not None
