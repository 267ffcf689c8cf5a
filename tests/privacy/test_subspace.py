"""Private subspaces: the sensitivity that is charged holds for all neighbours, and angles are as
large as is said.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from sealing import record

import odeco
from odeco.errors import BudgetExhausted
from odeco.privacy import Ledger, gdp_mu

N, D, BOUND = 6, 4, 2.5
BUDGET = {"epsilon": 1.0, "delta": 1e-6}
SMALL = {"epsilon": 1.0, "delta": 1e-2}


def random_row(rng):
    """Return a row of any size, also one that is not finite, huge, subnormal, or along an axis with
    either sign.
    """
    kind = rng.integers(6)
    direction = rng.standard_normal(D)
    if kind == 0:
        return np.full(D, [np.nan, np.inf, 1.7e308, 5e-324][rng.integers(4)])
    if kind == 1:
        return BOUND * rng.choice([-10, 1, 10]) * np.eye(D)[rng.integers(D)]
    if kind == 2:
        return 1e200 * direction
    return BOUND * rng.uniform(0, 2) * direction / np.linalg.norm(direction)


@pytest.mark.parametrize("groups", [None, np.array([0, 0, 1, 1, 1, 2])], ids=["records", "users"])
@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_no_unit_moves_what_is_released_by_more_than_is_charged(relation, groups):
    rng, worst = np.random.default_rng(0), 0.0
    for _ in range(200):
        rows = np.array([random_row(rng) for _ in range(N)])
        other = rows.copy()
        own = [2] if groups is None else np.flatnonzero(groups == rng.integers(3))
        other[own] = np.nan if relation == "add_remove" else random_row(rng)
        if rng.random() < 0.5:
            rows[own] = random_row(rng)

        def run(data):
            return odeco.private_subspace(
                data, 2, **SMALL, norm_bound=BOUND, groups=groups, neighbour_relation=relation
            )

        (result, one), (_, two) = (record(lambda each=each: run(each)) for each in (rows, other))
        charged = result.privacy.charges[0].sensitivity
        moved = float(np.linalg.norm(one.exact[0] - two.exact[0]))
        assert moved <= charged
        worst = max(worst, moved / charged)
    assert worst > 0.99


@pytest.mark.parametrize("spikes", [(0.0, 0.0), (0.5, 0.3), (6.0, 3.0)])
def test_angles_to_the_true_span_are_within_their_bounds(spikes):
    # Each bound holds with a probability of 99 %: of 40 runs, more than four fail once in 500,000
    # times.
    rng, d, n, k, n_beyond = np.random.default_rng(1), 20, 4000, 2, 0
    rows = rng.standard_normal((n, d))
    rows[:, :2] *= np.sqrt(1 + np.array(spikes))
    rows /= np.maximum(
        1, np.linalg.norm(rows, axis=1, keepdims=True) / 6
    )  # as clipping leaves them
    truth = np.linalg.eigh(rows.T @ rows)[1][:, -k:]
    clear = []
    for _ in range(40):
        found = odeco.private_subspace(rows, k, epsilon=4.0, delta=1e-6, norm_bound=6.0)
        sines = np.linalg.norm(found.basis - truth @ (truth.T @ found.basis), axis=0)
        n_beyond += bool(np.any(sines > np.sin(found.angle_bounds) + 1e-6))
        clear.append(found.clear)
    assert n_beyond <= 4
    if spikes[0] != 0.5:  # between the extremes, noise decides
        assert np.mean(clear) == (1.0 if spikes[0] == 6.0 else 0.0)


def test_a_plan_predicts_the_noise_and_what_is_found():
    d, n = 50, 20_000
    known = {"dimension": d, "n_components": 1, "n_units": n, "norm_bound": 1.0, **BUDGET}
    plan = odeco.plan_subspace(**known)
    # As many rows along one direction as the smallest signal has; all others are spread exactly
    # evenly over the axes.
    rows, direction, cosines = np.tile(np.eye(d), (n // d, 1)), np.full(d, d**-0.5), []
    rows[-round(plan.smallest_signal * n) :] = direction
    for _ in range(20):
        found = odeco.private_subspace(rows, 1, norm_bound=1.0, **BUDGET)
        cosines.append(abs(float(direction @ found.basis[:, 0])))
    assert found.privacy.charges[0].scale == pytest.approx(plan.noise, rel=1e-4)
    assert np.mean(cosines) == pytest.approx(0.9, abs=0.05)
    assert "hides" not in str(plan)
    assert "once and for all" in str(plan)
    blanked = odeco.plan_subspace(**known, neighbour_relation="add_remove")
    assert blanked.noise == pytest.approx(plan.noise / math.sqrt(2))


def test_a_ledger_pays_and_bad_arguments_are_refused():
    rows = np.eye(4)
    settings = {"epsilon": 1.0, "delta": 1e-2, "norm_bound": 1.0}
    ledger = Ledger(gdp_mu(1.0, 1e-2))
    odeco.private_subspace(rows, 2, **settings, ledger=ledger)
    with pytest.raises(BudgetExhausted):
        odeco.private_subspace(rows, 2, **settings, ledger=ledger)
    with pytest.raises(ValueError, match="n_components"):
        odeco.private_subspace(rows, 5, **settings)
    with pytest.raises(ValueError, match="delta"):
        odeco.private_subspace(rows, 2, epsilon=1.0, delta=0.5, norm_bound=1.0)
    for bound in (None, 0, "largest"):
        with pytest.raises(ValueError, match="`norm_bound` must be a positive number"):
            odeco.private_subspace(rows, 2, epsilon=1.0, delta=1e-2, norm_bound=bound)
    assert (
        odeco.private_subspace(rows, 4, **settings).angle_bounds.tolist() == [0.0] * 4
    )  # all there is
