"""Bounds on norms that are chosen privately: no unit moves the counts further than declared, and
bounds are useful.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import sparse
from sealing import plain, play_back, record

import odeco
from odeco.errors import BudgetExhausted
from odeco.models import TensorMixture, plan_mixture
from odeco.privacy import Ledger, gdp_mu
from odeco.privacy.guarantee import Guarantee
from odeco.privacy.holders.norms import (
    N_BINS,
    RowNorms,
    bins_of,
    norms_sensitivity,
    norms_share,
    suggested_bound,
)
from odeco.privacy.sums import PrivateSums

N, D = 12, 3
USERS = np.array([0, 0, 0, 1, 1, 2, 3, 3, 3, 3, 3, 4])
BUDGET = {"epsilon": 1.0, "delta": 1e-6}
MU = gdp_mu(**BUDGET)


def random_row(rng):
    """Return a row of any size: huge, subnormal, zero, not finite, along an axis, of either
    sign.
    """
    kind = rng.integers(7)
    direction = rng.standard_normal(D)
    if kind == 0:
        return np.full(
            D, [np.nan, np.inf, -np.inf, 1.7e308, -1.7e308, 5e-324, 0.0][rng.integers(7)]
        )
    if kind == 1:
        return rng.choice([-1, 1]) * 10.0 ** rng.uniform(-300, 300) * np.eye(D)[rng.integers(D)]
    if kind == 2:
        return np.where(
            np.arange(D) == rng.integers(D), [np.nan, 1e308, 5e-324][rng.integers(3)], direction
        )
    return 10.0 ** rng.uniform(-2, 2) * direction


def counts(rows, groups, in_csr):
    rows = sparse.csr_array(rows) if in_csr else rows
    return RowNorms(rows, groups).query().answer()


@pytest.mark.parametrize("in_csr", [False, True])
@pytest.mark.parametrize("groups", [None, USERS], ids=["records", "users"])
@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_no_unit_moves_the_counts_by_more_than_declared(relation, groups, in_csr):
    declared, rng, worst = norms_sensitivity(relation), np.random.default_rng(0), 0.0
    query = RowNorms(np.zeros((N, D)), groups).query()
    n_units = N if groups is None else 5
    assert PrivateSums(
        Guarantee(**BUDGET), n_units, record="row", neighbour_relation=relation
    ).sensitivity(query) == pytest.approx(declared)
    for _ in range(400):
        rows = np.array([random_row(rng) for _ in range(N)])
        other, unit = rows.copy(), rng.integers(n_units)
        own = np.flatnonzero((np.arange(N) if groups is None else groups) == unit)
        # A user may well be so replaced that all rows lie in one bin, which moves the counts
        # furthest.
        new = np.full(D, np.nan) if relation == "add_remove" else random_row(rng)
        other[own] = new
        if rng.random() < 0.5:
            rows[own] = random_row(rng)
        moved = float(np.linalg.norm(counts(rows, groups, in_csr) - counts(other, groups, in_csr)))
        assert moved <= declared  # exactly: sums of multiples of 2⁻²⁰ have no rounding errors
        worst = max(worst, moved)
    assert worst > 0.99 * declared


@pytest.mark.parametrize("groups", [None, USERS], ids=["records", "users"])
def test_what_a_row_adds_depends_on_no_other_row_and_csr_rows_count_as_dense_ones(groups):
    rng = np.random.default_rng(1)
    rows = np.array([random_row(rng) for _ in range(N)])
    order = rng.permutation(N)
    shuffled = counts(rows[order], None if groups is None else groups[order], False)
    np.testing.assert_array_equal(counts(rows, groups, False), shuffled)
    np.testing.assert_array_equal(bins_of(rows), bins_of(sparse.csr_array(rows)))
    twice = sparse.csr_array(
        (np.array([3.0, 4.0]), np.array([1, 1]), np.array([0, 2])), shape=(1, D)
    )
    assert bins_of(twice) == bins_of(
        np.array([[0.0, 7.0, 0.0]])
    )  # an entry that is stored in pieces


def test_a_norm_is_counted_in_its_bin():
    norms = np.array([1.0, 1.2, 2.0, 3.9, 2.0**-200, 2.0**200, 0.0, np.nan, np.inf])
    rows = np.zeros((norms.size, D))
    rows[:, 1] = norms
    bins = bins_of(rows)
    middle = N_BINS // 2
    assert bins.tolist() == [middle, middle + 1, middle + 4, middle + 7, 0, N_BINS - 1, -1, -1, -1]


def test_the_bound_balances_clipping_and_noise():
    # 1,000 rows of norm about 1.1 and 10 of norm about 7: clipping these at 1.19 takes 10 · 7³ from
    # the sum of cubes.
    sizes = np.zeros(N_BINS)
    sizes[N_BINS // 2], sizes[N_BINS // 2 + 11] = 1000, 10
    bounds = [suggested_bound(sizes, 1e-3, 1010, 3, noise) for noise in (1e-6, 1e-3, 1.0)]
    assert bounds == pytest.approx([8.0, 8.0, 2**0.25])
    assert suggested_bound(sizes, 5.0, 1010, 3, 1e-6) == pytest.approx(
        2**0.25
    )  # ten rows do not stand clear of noise
    rng = np.random.default_rng(2)
    for shift in (
        -300,
        -4,
        40,
        300,
    ):  # units do not matter, and noise far from the rows is not taken for rows
        moved = np.roll(sizes, shift) + 5 * rng.standard_normal(N_BINS)
        assert suggested_bound(moved, 5.0, 1010, 3, 1e-6) == pytest.approx(
            2 ** ((shift + 2) / 4), rel=0.5
        )


def test_few_units_and_little_budget_get_a_larger_share_so_that_the_bound_is_never_absurd():
    assert [norms_share(10**6, 0.2), norms_share(10, 0.2)] == [0.05, 0.5]
    rng, n, mu = np.random.default_rng(5), 2000, gdp_mu(0.1, 1e-6)
    share = norms_share(n, mu)
    assert 0.05 < share < 0.5
    rows = rng.standard_normal((n, 4))  # seven in ten have a norm between 1 and 4
    exact, scale = RowNorms(rows).query().answer(), math.sqrt(2) / (mu * math.sqrt(share))
    bounds = [
        suggested_bound(exact + scale * rng.standard_normal(N_BINS), scale, n, 2, 0.1)
        for _ in range(1000)
    ]
    # The fullest pair is 6 deviations above; the noise of 255 others reaches 4 of the difference's
    # now and then.
    assert np.mean((np.array(bounds) >= 0.5) & (np.array(bounds) <= 8)) > 0.99


def rows_of_norm_seven():
    rng = np.random.default_rng(3)
    return 7 * np.repeat(np.eye(5)[:2], 3000, axis=0) + 0.2 * rng.standard_normal((6000, 5))


@pytest.mark.parametrize("mechanism", ["auto", "wang2016", "joint", "core", "subspace"])
@pytest.mark.parametrize("unit", ["record", "user"])
def test_a_decomposition_chooses_its_bound_within_its_budget(mechanism, unit):
    rows = rows_of_norm_seven()
    groups = np.arange(6000) // 2 if unit == "user" else None
    told = []
    result = odeco.decompose_privately(
        rows,
        2,
        **BUDGET,
        unit=unit,
        groups=groups,
        norm_bound="auto",
        mechanism=mechanism,
        rng=0,
        callback=told.append,
    )
    assert result.norm_bound in (8.0, 8 * 2**-0.25)
    first = result.privacy.charges[0]
    assert first.mechanism == "counts of rows by their norm"
    assert first.mu == pytest.approx(MU * math.sqrt(0.05), rel=1e-6)
    assert result.privacy.epsilon_spent <= 1.0
    assert result.privacy.epsilon_spent == pytest.approx(
        1.0, rel=2e-3
    )  # the shares of plans are rounded down
    assert told[-1].fraction == 1.0
    if mechanism == "auto":
        assert result.clear.all()
        assert result.weights == pytest.approx([171.5, 171.5], rel=0.05)


def test_a_plan_with_a_chosen_bound_predicts_the_noise_of_the_run():
    rows = rows_of_norm_seven()
    plan = odeco.plan_privacy(
        dimension=5, n_components=2, n_units=6000, unit="record", norm_bound="auto", **BUDGET
    )
    run = odeco.decompose_privately(
        rows, 2, unit="record", norm_bound="auto", mechanism="input", rng=0, **BUDGET
    )
    # The entries are released in units of which the image has 1/√3.
    predicted = math.sqrt(3) * plan["input"].noise * run.norm_bound**3
    assert run.privacy.charges[1].scale == pytest.approx(predicted, rel=1e-4)
    assert "chosen by the run, from noisy counts with 5% of μ²" in str(plan)


def test_a_mixture_chooses_its_bound_within_its_budget_and_its_plan_says_so():
    rng = np.random.default_rng(4)
    rows = 8 * np.eye(4)[rng.integers(0, 3, 20_000)] + rng.standard_normal((20_000, 4))
    model = TensorMixture(3, epsilon=2.0, delta=1e-6, norm_bound="auto", random_state=0).fit(rows)
    assert model.converged_
    assert model.privacy_.epsilon_spent == pytest.approx(2.0, rel=1e-6)
    plan = plan_mixture(
        3, n_rows=20_000, n_features=4, epsilon=2.0, delta=1e-6, separation=8.0, norm_bound="auto"
    )
    assert [each.what for each in plan.releases] == [
        charge.mechanism for charge in model.privacy_.charges
    ]
    assert plan.releases[0].noise == pytest.approx(model.privacy_.charges[0].scale)
    assert sum(each.share for each in plan.releases) == pytest.approx(1.0)


@pytest.mark.parametrize("other", ["zeros", "NaN", "huge"])
def test_the_same_counts_give_the_same_run_whatever_the_rows_are(other):
    rows = rows_of_norm_seven()
    others = {"zeros": 0 * rows, "NaN": np.full_like(rows, np.nan), "huge": 1e300 * rows}

    def run(data):
        decomposed = odeco.decompose_privately(
            data, 2, **BUDGET, unit="record", norm_bound="auto", rng=0
        )
        bound = odeco.choose_norm_bound(data, **BUDGET)
        subspace = odeco.private_subspace(data, 2, **BUDGET, norm_bound="auto")
        return decomposed.weights, decomposed.norm_bound, decomposed.privacy, bound, vars(subspace)

    result, seen = record(lambda: run(rows))
    played, unseen = play_back(lambda: run(others[other]), seen.released)
    assert seen.scales == unseen.scales
    assert plain(result) == plain(played)


def test_a_ledger_pays_for_the_choice_of_a_bound_before_anything_is_computed():
    ledger = Ledger(0.5 * MU)
    with pytest.raises(BudgetExhausted):
        odeco.choose_norm_bound(np.ones((10, 2)), **BUDGET, ledger=ledger)
    assert ledger.charges == ()
    ledger = Ledger(0.8 * MU)
    with pytest.raises(BudgetExhausted):  # the counts fit into the budget, the rest does not
        odeco.decompose_privately(
            np.ones((10, 2)), 1, **BUDGET, unit="record", norm_bound="auto", ledger=ledger
        )
    assert len(ledger.charges) == 1


def test_what_cannot_have_a_chosen_bound_is_refused():
    empty = np.ones((0, 2))
    for run in (
        lambda: odeco.choose_norm_bound(empty, **BUDGET),
        lambda: odeco.private_subspace(empty, 1, **BUDGET, norm_bound="auto"),
        lambda: odeco.decompose_privately(empty, 1, **BUDGET, unit="record", norm_bound="auto"),
    ):
        with pytest.raises(ValueError, match="Rows must not be empty"):
            run()
    for bound in (-1.0, "Auto"):
        with pytest.raises(ValueError, match="`norm_bound` must be a positive number"):
            plan_mixture(2, n_rows=100, n_features=3, **BUDGET, norm_bound=bound)
    with pytest.raises(ValueError, match="`norm_bound` must go with unit='record' or 'user'"):
        odeco.decompose_privately(np.ones((2, 2, 2)), 1, **BUDGET, unit="entry", norm_bound="auto")
    with pytest.raises(ValueError, match="`norm_bound` must be a positive number"):
        odeco.decompose_privately(np.ones((9, 2)), 1, **BUDGET, unit="record", norm_bound="largest")
    holder = odeco.privacy.RecordLevel(np.ones((9, 2)), norm_bound=1.0)
    with pytest.raises(ValueError, match="must not be given beside a holder"):
        odeco.decompose_privately(holder, 1, **BUDGET, norm_bound="auto")
    with pytest.raises(ValueError, match="`norm_bound` must be a positive number"):
        odeco.OnlineDecomposer(1, batch_size=10, **BUDGET, norm_bound="auto").partial_fit(
            np.ones((9, 2))
        )
