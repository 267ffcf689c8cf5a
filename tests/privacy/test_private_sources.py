"""Private sources: no row moves a moment by more than declared, and nothing is learnt but from what
is released.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from neighbours import check_blank_rows, largest_move
from scipy.stats import chi2
from sealing import plain, play_back, record

from odeco.errors import BudgetExhausted
from odeco.models import TensorICA, plan_sources
from odeco.models.ica.private import Cumulants, clipped_gaussian, matched_correlations
from odeco.privacy import LedgerFile
from odeco.privacy.guarantee import Guarantee
from odeco.privacy.holders.rows import CONSTANT, BoundedRows
from odeco.privacy.sums import PrivateSums

D, K = 4, 3
BOUND, RADIUS, LAST = 2.5, 1.7, 0.8
RELEASED = np.random.default_rng(9)
MEAN, WHITENER = RELEASED.uniform(-0.2, 0.2, D), 3 * RELEASED.standard_normal((D, K))
QUESTIONS = {
    "whitened seconds": lambda held: held.seconds(MEAN, WHITENER),
    "fourths": lambda held: held.fourths(MEAN, WHITENER, RADIUS, LAST),
}
BUDGET = {"epsilon": 2.0, "delta": 1e-6, "norm_bound": 6.0}


def hold(rows):
    return BoundedRows(rows, BOUND)


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_no_row_moves_a_moment_by_more_than_declared(question, relation):
    assert (
        largest_move(QUESTIONS[question], hold, relation, bound=BOUND, centre=MEAN) > 0.9
    )  # the bound is no idle one


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_worst_neighbours_reach_what_is_declared(question):
    """Rows at the radius on both sides, turned such that the products of (z, c) vanish: c² + ⟨z, v⟩
    = 0.
    """
    radius, constant = {"whitened seconds": (1.0, CONSTANT), "fourths": (RADIUS, LAST)}[question]
    angle = math.acos(-((constant / radius) ** 2))
    white = 1.001 * radius * np.array([[1.0, 0, 0], [math.cos(angle), math.sin(angle), 0]])
    rows = BOUND * (MEAN + white @ np.linalg.pinv(WHITENER))
    assert np.linalg.norm(rows, axis=1).max() < BOUND
    asked = [QUESTIONS[question](BoundedRows(row[None], BOUND)) for row in rows]
    declared = PrivateSums(Guarantee(1.0, 1e-6), 1, record="row").sensitivity(asked[0])
    moved = np.linalg.norm(asked[0].answer() - asked[1].answer())
    assert 0.999 * declared < moved <= declared


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_blank_row_adds_nothing_and_a_row_depends_on_no_other(question):
    check_blank_rows(QUESTIONS[question], hold, D)


def test_cumulants_are_those_of_the_whitened_rows():
    """Without noise, in coordinates in which the rows are white, by sums over the rows
    themselves.
    """
    rng = np.random.default_rng(3)
    rows = 0.1 * (rng.exponential(size=(200, K)) @ rng.standard_normal((K, K)))
    packed = BoundedRows(rows, 10.0).fourths(np.zeros(K), np.eye(K), 5.0, 0.3).answer() / 200
    found = Cumulants.of(packed, K, 0.3, 1e-12, 200)
    white = (rows / 10 - found.mean) @ found.forward
    np.testing.assert_allclose(found.mean, rows.mean(axis=0) / 10, atol=1e-12)
    np.testing.assert_allclose(white.T @ white / 200, np.eye(K), atol=1e-6)
    third = np.einsum("na,nb,nc->abc", white, white, white) / 200
    fourth = np.einsum("na,nb,nc,nd->abcd", white, white, white, white) / 200
    pairs = np.multiply.outer(np.eye(K), np.eye(K))
    fourth -= pairs + pairs.transpose(0, 2, 1, 3) + pairs.transpose(0, 2, 3, 1)
    np.testing.assert_allclose(found.third, third, atol=1e-5)
    np.testing.assert_allclose(found.fourth, fourth, atol=1e-4)


def test_the_variances_of_cumulants_are_those_of_the_noise():
    """Gaussian moments plus noise in packed coordinates, 400 times; a variance errs by a tenth
    (√(2/400) is 7 %).
    """
    rng, n, constant, noise = np.random.default_rng(4), 20_000, 1.5, 0.02
    exact = BoundedRows(rng.standard_normal((n, K)) / 100, 1.0).fourths(
        np.zeros(K), 100 * np.eye(K), 50.0, constant
    )
    packed, direction = exact.answer() / n, np.array([[0.6], [0.0], [0.8]])
    drawn = [
        Cumulants.of(packed + noise * rng.standard_normal(packed.size), K, constant, noise, n)
        for _ in range(400)
    ]
    values = np.array(
        [
            (
                np.einsum("abc,a,b,c", each.third, *[turned] * 3),
                np.einsum("abcd,a,b,c,d", each.fourth, *[turned] * 4),
            )
            for each in drawn
            for turned in [np.linalg.solve(each.forward, direction[:, 0])]
        ]
    )
    declared = np.array(drawn[0].variances(np.linalg.solve(drawn[0].forward, direction)))[:, 0]
    sampled = np.array([6, 24]) / n  # the rows are the same in all draws
    np.testing.assert_allclose(values.var(axis=0), declared - sampled, rtol=0.3)


def mixed(n, rng):
    sources = np.column_stack(
        [
            rng.uniform(-1, 1, n) * math.sqrt(3),
            rng.laplace(size=n) / math.sqrt(2),
            rng.exponential(size=n) - 1,
        ]
    )
    return sources @ np.array([[2.0, 1.0, 0.5], [0.0, 1.0, 1.0], [1.0, 0.0, 1.0]]), sources


def tables():
    rows = mixed(300, np.random.default_rng(4))[0]
    return rows, np.zeros((300, 3)), np.full((300, 3), np.nan), 1e300 * rows


def private_model(rows, k=None, **settings):
    model = TensorICA(k, **(BUDGET | settings), random_state=0).fit(rows)
    names = (
        "components_",
        "mixing_",
        "mean_",
        "whitening_",
        "information_",
        "converged_",
        "privacy_",
    )
    return {name: getattr(model, name) for name in names}


@pytest.mark.parametrize("other", [1, 2, 3])
@pytest.mark.parametrize(("k", "norm_bound"), [(None, 6.0), (1, 6.0), (2, "auto")])
def test_the_same_releases_give_the_same_sources_whatever_the_rows_are(k, norm_bound, other):
    data = tables()
    model, seen = record(lambda: private_model(data[0], k, norm_bound=norm_bound))
    played, unseen = play_back(
        lambda: private_model(data[other], k, norm_bound=norm_bound), seen.released
    )
    assert seen.scales == unseen.scales
    assert plain(model) == plain(played)
    assert any(not np.array_equal(a, b) for a, b in zip(seen.exact, unseen.exact, strict=True))


@pytest.mark.parametrize("norm_bound", [6.0, "auto"])
def test_every_release_of_sources_has_the_noise_that_its_charge_says(norm_bound):
    model, seen = record(lambda: private_model(tables()[0], norm_bound=norm_bound))
    report = model["privacy_"]
    assert seen.scales == [charge.scale for charge in report.charges]
    assert len(seen.scales) == 3 + (norm_bound == "auto")
    assert report.epsilon_spent == pytest.approx(2.0, rel=1e-6)
    assert report.epsilon_spent <= 2.0
    for exact, scale, released in zip(seen.exact, seen.scales, seen.released, strict=True):
        low, high = chi2.ppf(
            [1e-9, 1 - 1e-9], exact.size
        )  # the noise is that of the operating system
        assert low < np.sum(((released - exact) / scale) ** 2) < high


def test_private_sources_are_those_of_the_plan(tmp_path):
    # By the plan for these numbers, which the rows are not asked for, all three are found.
    n = 20_000
    assert plan_sources(3, n_rows=n, n_features=3, epsilon=2.0, delta=1e-6, norm_bound="auto").found
    rows, sources = mixed(n, np.random.default_rng(5))
    model = TensorICA(epsilon=2.0, delta=1e-6, norm_bound="auto", random_state=0).fit(rows)
    assert matched_correlations(model.transform(rows), sources).min() > 0.95
    assert model.converged_
    assert model.summary().startswith("3 sources.")
    assert "Private: epsilon 2" in model.summary()
    assert model.sample(5)[0].shape == (5, 3)
    assert np.isfinite(model.score_samples(rows)).all()
    model.save(tmp_path / "model.npz")
    again = TensorICA.load(tmp_path / "model.npz")
    assert again.privacy_ == model.privacy_
    np.testing.assert_array_equal(again.components_, model.components_)


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0])
def test_gaussian_rows_have_no_source(epsilon):
    # What noise reaches is exceeded with a chance of at most 1 %, in each of both cumulants.
    rows = np.random.default_rng(6).standard_normal((20_000, 4)) @ np.random.default_rng(
        7
    ).standard_normal((4, 4))
    model = TensorICA(epsilon=epsilon, delta=1e-6, norm_bound="auto", random_state=0).fit(rows)
    assert model.summary().startswith(
        "0 of 4 sources are separated; the other 4 do not stand clear of noise."
    )
    assert not model.converged_
    assert model.information_.tolist() == [1.0] * 4


def test_what_clipping_does_to_gaussian_rows_is_known():
    # 400,000 rows of 3 coordinates: the mean square errs by 0.003, the kurtosis by 0.01.
    rows = np.random.default_rng(1).standard_normal((400_000, 3))
    rows *= np.minimum(1, 1.5 / np.linalg.norm(rows, axis=1, keepdims=True))
    variance, excess = clipped_gaussian(3, 1.5)
    assert np.mean(rows**2) == pytest.approx(variance, abs=0.005)
    assert np.mean(rows**4) / np.mean(rows**2) ** 2 - 3 == pytest.approx(excess, abs=0.02)


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_gaussian_directions_beside_heavy_tails_are_not_called_sources(epsilon):
    rng = np.random.default_rng(9)
    sources = np.column_stack([rng.laplace(size=(50_000, 2)), rng.standard_normal((50_000, 3))])
    rows = sources @ rng.standard_normal((5, 5))
    model = TensorICA(epsilon=epsilon, delta=1e-6, norm_bound="auto", random_state=0).fit(rows)
    assert model.summary().startswith(
        "2 of 5 sources are separated; the other 3 do not stand clear of noise."
    )
    correlations = np.abs(np.corrcoef(model.transform(rows)[:, :2].T, sources[:, :2].T)[:2, 2:])
    assert correlations.max(axis=0).min() > 0.95


def test_few_sources_of_many_columns_are_those_of_the_leading_directions():
    rng = np.random.default_rng(8)
    sources = rng.laplace(size=(50_000, 2)) / math.sqrt(2)
    mixing = np.linalg.qr(rng.standard_normal((6, 2)))[0] * [3.0, 2.0]
    rows = sources @ mixing.T + 0.1 * rng.standard_normal((50_000, 6))
    model = TensorICA(2, epsilon=2.0, delta=1e-6, norm_bound=12.0, random_state=0).fit(rows)
    assert matched_correlations(model.transform(rows), sources).min() > 0.95
    assert model.components_.shape == (2, 6)


def test_a_plan_knows_that_less_budget_finds_less():
    plans = [
        plan_sources(4, n_rows=20_000, n_features=4, epsilon=each, delta=1e-6)
        for each in (0.05, 8.0)
    ]
    assert plans[0].agreement < plans[1].agreement
    assert plans[1].found
    assert not plans[0].found
    model = TensorICA(**BUDGET).fit(tables()[0])
    plan = plan_sources(n_rows=300, n_features=3, epsilon=2.0, delta=1e-6)
    # All radii follow from the number of sources, so the noise of every release is known
    # beforehand.
    charges = model.privacy_.charges
    assert [each.mechanism for each in charges] == [each.what for each in plan.releases]
    assert [each.scale for each in charges] == pytest.approx(
        [each.noise for each in plan.releases], rel=1e-9
    )


def test_a_shared_ledger_pays_for_sources_until_it_is_used_up(tmp_path):
    path = tmp_path / "rows.ledger"
    LedgerFile.create(path, data="people", unit="record", epsilon=2.5, delta=1e-6)
    TensorICA(**BUDGET, ledger=path).fit(tables()[0])
    with pytest.raises(BudgetExhausted):
        TensorICA(**BUDGET, ledger=path).fit(tables()[0])


def test_standardised_sources_do_not_depend_on_the_units_of_columns():
    """Columns in other units, far from zero: the sources are found as without, by the plan of these
    numbers.
    """
    rows, sources = mixed(50_000, np.random.default_rng(5))
    settings = {"epsilon": 4.0, "delta": 1e-6, "norm_bound": "auto", "standardize": True}
    assert plan_sources(
        3, n_rows=50_000, n_features=3, epsilon=4.0, delta=1e-6, standardize=True
    ).found
    model = TensorICA(3, **settings, random_state=0).fit(
        rows * [1e-3, 1.0, 1e4] + [0.01, -5.0, 2e4]
    )
    assert model.privacy_.charges[0].mechanism == "counts of numbers by column"
    assert model.privacy_.epsilon_spent <= 4.0
    found = model.transform(rows * [1e-3, 1.0, 1e4] + [0.01, -5.0, 2e4])
    assert matched_correlations(found, sources).min() > 0.95
    np.testing.assert_allclose(found.mean(axis=0), 0.0, atol=0.1)
    np.testing.assert_allclose(found.std(axis=0), 1.0, atol=0.15)


def test_what_private_sources_cannot_do_is_refused():
    rows = tables()[0]
    model = TensorICA(**BUDGET).fit(rows)
    with pytest.raises(
        ValueError, match=r"^The score of a private model must not choose between models"
    ):
        model.score(rows)
    with pytest.raises(ValueError, match="is fitted to all rows at once"):
        TensorICA(**BUDGET).partial_fit(rows)
    with pytest.raises(ValueError, match="must be an int for a private model"):
        TensorICA("auto", **BUDGET).fit(rows)
    with pytest.raises(ValueError, match="must choose its bound itself"):
        TensorICA(2, standardize=True, **BUDGET).fit(rows)
    with pytest.raises(ValueError, match="at most as many sources as columns"):
        TensorICA(4, **BUDGET).fit(rows)
    with pytest.raises(ValueError, match="at most 50"):
        TensorICA(**BUDGET).fit(np.zeros((300, 51)))
    with pytest.raises(TypeError, match="must be a NumPy array or a table"):
        TensorICA(**BUDGET).fit(rows.tolist())
    with pytest.raises(ValueError, match="A private model needs"):
        TensorICA(epsilon=1.0, delta=1e-6).fit(rows)
