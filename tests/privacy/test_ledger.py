"""The laws of the ledger: reuse adds, disjoint data take the maximum, and the limit is never
passed.
"""

import copy
import json
import math
import os
import pickle
import threading
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odeco.errors import BudgetExhausted, FileFormatError
from odeco.privacy import Charge, Ledger, delta_of, epsilon_of, gdp_mu, noise_multiplier
from odeco.privacy.calibration import ROOM
from odeco.privacy.ledger import ALL_DATA
from odeco.privacy.release import Releaser
from odeco.privacy.report import PrivacyReport

NAMES = st.sampled_from(["batch 1", "batch 2", "batch 3", ALL_DATA])
CHARGES = st.builds(
    Charge,
    mechanism=st.just("image"),
    sensitivity=st.floats(0, 2),
    scale=st.floats(1, 4),
    count=st.integers(1, 5),
    data=st.lists(NAMES, min_size=1, max_size=3),
)
BUDGETS = st.floats(0.5, 5)


def spend(ledger, charge):
    return ledger.charge(
        charge.mechanism, charge.sensitivity, charge.scale, charge.count, charge.data
    )


def total(charges, name):
    named = [charge for charge in charges if name in charge.data or ALL_DATA in charge.data]
    return math.sqrt(math.fsum(charge.mu**2 for charge in named))


@given(st.lists(CHARGES))
def test_the_total_is_the_worst_over_pieces_of_the_root_of_the_sum_of_squares(charges):
    ledger = Ledger(1e9)
    for charge in charges:
        spend(ledger, charge)
    names = {name for charge in charges for name in charge.data} | {ALL_DATA}
    assert ledger.mu == pytest.approx(max(total(charges, name) for name in names), rel=1e-12)
    assert ledger.mu >= max(total(charges, name) for name in names) * (1 - 1e-15)
    for name in (*names, "never named"):
        assert ledger.mu_of(name) == pytest.approx(total(charges, name), rel=1e-12)


@given(st.lists(CHARGES), st.randoms(use_true_random=False))
def test_the_total_does_not_depend_on_the_order_of_charges(charges, shuffler):
    ledgers = [Ledger(1e9), Ledger(1e9)]
    for charge in charges:
        spend(ledgers[0], charge)
    shuffler.shuffle(charges)
    for charge in charges:
        spend(ledgers[1], charge)
    assert ledgers[0].mu == ledgers[1].mu


@given(st.lists(CHARGES), BUDGETS)
def test_the_limit_is_never_passed_and_only_what_would_pass_it_is_refused(charges, limit):
    ledger = Ledger(limit)
    for charge in charges:
        before, mu_before = ledger.charges, ledger.mu
        touched = ledger.data if ALL_DATA in charge.data else charge.data
        would_be = max(total([*before, charge], name) for name in touched)
        if would_be <= limit:
            spend(ledger, charge)
        elif would_be > limit * (1 + ROOM):
            with pytest.raises(BudgetExhausted) as refusal:
                spend(ledger, charge)
            assert refusal.value.mu == pytest.approx(would_be)
            assert (ledger.charges, ledger.mu) == (before, mu_before)
        assert ledger.mu <= limit * (1 + ROOM)


def test_a_charge_for_several_pieces_counts_against_each_and_one_for_all_against_those_to_come():
    ledger = Ledger(1.0)
    ledger.charge("a", 0.3, 1.0, data="batch 1")
    ledger.charge("b", 0.4, 1.0, data=("batch 1", "batch 2"))
    assert ledger.mu_of("batch 1") == pytest.approx(0.5)
    assert ledger.mu_of("batch 2") == pytest.approx(0.4)
    assert ledger.mu == pytest.approx(0.5)
    ledger.charge("c", 0.5, 1.0)
    ledger.charge("d", 0.5, 1.0, data="batch 3")
    assert ledger.mu_of("batch 3") == pytest.approx(math.sqrt(0.5))
    assert ledger.mu == pytest.approx(math.sqrt(0.5))
    assert ledger.data == (ALL_DATA, "batch 1", "batch 2", "batch 3")


def test_a_charge_for_all_is_held_against_the_piece_that_paid_most():
    ledger = Ledger(1.0)
    ledger.charge("a", 0.9, 1.0, data="batch 1")
    with pytest.raises(BudgetExhausted):
        ledger.charge("b", 0.5, 1.0)
    ledger.charge("b", 0.5, 1.0, data="batch 2")


def test_no_more_than_rounding_is_let_pass():
    Ledger(1.0).charge("image", 1 + ROOM / 4, 1.0)
    with pytest.raises(
        BudgetExhausted, match=r"bring mu to 1\.000000001, above the limit 1\.000000000\."
    ):
        Ledger(1.0).charge("image", 1 + ROOM, 1.0)


def test_a_name_given_twice_counts_once():
    assert Charge("a", 1.0, 2.0, data=["x", "y", "x"]).data == ("x", "y")


def test_count_stands_for_that_many_charges():
    together, apart = Ledger(10.0), Ledger(10.0)
    together.charge("image", 0.1, 1.0, count=9)
    for _ in range(9):
        apart.charge("image", 0.1, 1.0)
    assert together.mu == pytest.approx(apart.mu, rel=1e-15)
    assert together.charges[0].mu == pytest.approx(0.3)


def test_a_refusal_says_what_would_have_happened_and_leaves_the_ledger_alone():
    ledger = Ledger(0.5)
    ledger.charge("image", 0.4, 1.0)
    before = ledger.to_json()
    with pytest.raises(BudgetExhausted) as refusal:
        ledger.charge("value", 1.0, 3.0, data="batch 1")
    assert str(refusal.value) == (
        "Budget exhausted: this query would bring mu to 0.52, above the limit 0.50. Nothing was "
        "released."
    )
    assert ledger.to_json() == before
    assert ledger.data == (ALL_DATA,)
    ledger.charge("value", 0.3, 1.0)  # what fits still fits, to the last bit


def test_a_refusal_shows_as_many_digits_as_it_takes_to_tell_the_two_numbers_apart():
    with pytest.raises(BudgetExhausted, match=r"bring mu to 0\.0004, above the limit 0\.0003\."):
        Ledger(0.0003).charge("image", 0.0004, 1.0)
    with pytest.raises(BudgetExhausted, match=r"bring mu to 0\.5001, above the limit 0\.5000\."):
        Ledger(0.5).charge("image", 0.5001, 1.0)
    with pytest.raises(BudgetExhausted, match=r"bring mu to inf, above"):
        Ledger(0.5).charge("image", 1e300, 1e-300)


@given(
    st.floats(0.01, 20),
    st.sampled_from([1e-3, 1e-6, 1e-12]),
    st.integers(1, 300),
    st.floats(1e-8, 1e8),
)
def test_a_plan_that_uses_its_budget_exactly_is_accepted_and_keeps_its_guarantee(
    epsilon, delta, n_releases, size
):
    ledger = Ledger(gdp_mu(epsilon, delta))
    scale = noise_multiplier(epsilon, delta, n_releases) * size
    for _ in range(n_releases):
        ledger.charge("image", size, scale)
    assert ledger.epsilon(delta) <= epsilon
    with pytest.raises(BudgetExhausted):
        ledger.charge("image", size * 1e-2, scale)


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=100))
def test_a_budget_split_by_shares_is_accepted_whatever_rounding_did(weights):
    limit = gdp_mu(1.0, 1e-6)
    ledger = Ledger(limit)
    for weight in weights:
        ledger.charge("image", 3.0, 3.0 / (limit * math.sqrt(weight / sum(weights))))
    assert ledger.epsilon(1e-6) <= 1.0


def test_leaving_the_restarts_out_of_k_is_refused_by_the_ledger():
    k, L, R = 3, 8, 10
    scale = noise_multiplier(1.0, 1e-6, k * (R + 1))
    ledger = Ledger(gdp_mu(1.0, 1e-6))
    with pytest.raises(BudgetExhausted):
        ledger.charge("Algorithm 3", 1.0, scale, count=k * L * (R + 1))


def test_json_round_trip_keeps_every_bit():
    ledger = Ledger(gdp_mu(1.0, 1e-6))
    ledger.charge("image of 10 candidates", 1 / 3, 100 / 7, count=3, data=["batch 1", "batch 2"])
    ledger.charge("value", 0.1, 7.3)
    again = Ledger.from_json(ledger.to_json())
    assert (again.mu_limit, again.charges, again.mu, again.data) == (
        ledger.mu_limit,
        ledger.charges,
        ledger.mu,
        ledger.data,
    )
    document = json.loads(ledger.to_json())
    assert document["charges"][0] == {
        "mechanism": "image of 10 candidates",
        "sensitivity": 1 / 3,
        "scale": 100 / 7,
        "count": 3,
        "data": ["batch 1", "batch 2"],
    }


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d | {"kind": "search"},
        lambda d: d | {"format_version": 2},
        lambda d: d | {"mu_limit": 0.001},
        lambda d: d | {"mu_limit": math.nan},
        lambda d: {key: d[key] for key in d if key != "charges"},
        lambda d: d | {"charges": [d["charges"][0] | {"scale": -1.0}]},
        lambda d: d | {"charges": [d["charges"][0] | {"extra": 1}]},
        lambda d: d | {"charges": [3]},
        lambda d: [d],
    ],
)
def test_a_damaged_or_overdrawn_ledger_is_refused(damage):
    ledger = Ledger(1.0)
    ledger.charge("image", 0.5, 1.0)
    with pytest.raises(
        FileFormatError,
        match=r"^The text must be a privacy ledger of format version 1\. Reading it fail",
    ):
        Ledger.from_json(json.dumps(damage(json.loads(ledger.to_json()))))
    with pytest.raises(FileFormatError):
        Ledger.from_json("{")


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("mechanism", "", "`mechanism` must be a text. Got ''. Say what is released."),
        ("sensitivity", -1.0, "`sensitivity` must be a finite number of at least 0. Got -1.0."),
        ("sensitivity", math.nan, "`sensitivity` must be a finite number of at least 0. Got nan."),
        ("sensitivity", math.inf, "`sensitivity` must be a finite number of at least 0. Got inf."),
        ("scale", 0.0, "`scale` must be a finite number above 0. Got 0.0."),
        ("count", 0, "`count` must be an int of at least 1. Got 0."),
        (
            "data",
            (),
            "`data` must name at least one piece of data. Got (). Leave it out to mean all data.",
        ),
        (
            "data",
            "",
            "`data` must name at least one piece of data. Got ''. Leave it out to mean all data.",
        ),
    ],
)
def test_a_charge_that_makes_no_sense_is_refused_and_not_recorded(field, value, text):
    ledger = Ledger(1.0)
    arguments = {"mechanism": "image", "sensitivity": 1.0, "scale": 2.0, field: value}
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the whole text is compared
        ledger.charge(**arguments)
    assert str(error.value) == text
    assert ledger.charges == ()
    assert ledger.mu == 0


@pytest.mark.parametrize("limit", [0, -1, math.inf, math.nan, None])
def test_a_ledger_needs_a_limit(limit):
    with pytest.raises(ValueError, match=r"^`mu_limit` must be a finite number above 0\. Got "):
        Ledger(limit)


def test_nothing_charged_costs_nothing():
    ledger = Ledger(1.0)
    assert (ledger.mu, ledger.epsilon(1e-9), ledger.charges) == (0.0, 0.0, ())
    ledger.charge("a question whose answer is public", 0.0, 1.0)
    assert ledger.mu == 0


def test_the_curve_of_the_ledger_is_that_of_its_mu():
    ledger = Ledger(2.0)
    ledger.charge("image", 1.0, 1.0)
    assert delta_of(ledger.epsilon(1e-5), 1.0) == pytest.approx(1e-5, rel=1e-6)
    assert ledger.epsilon(1e-5) >= epsilon_of(1.0, 1e-5)


def test_events_give_dp_accounting_the_same_epsilon_for_every_piece():
    import dp_accounting

    ledger = Ledger(5.0)
    ledger.charge("moments", 2.0, 6.0, data="batch 1")
    ledger.charge("image", 1.0, 5.0, count=12, data=("batch 1", "batch 2"))
    ledger.charge("core", 1.0, 4.0)
    ledger.charge("nothing", 0.0, 4.0)
    events = ledger.to_dp_events()
    assert list(events) == [ALL_DATA, "batch 1", "batch 2"]
    spent = {}
    for name, event in events.items():
        relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
        accountant = dp_accounting.pld.PLDAccountant(relation, 1e-3).compose(event)
        spent[name] = accountant.get_epsilon(1e-6)  # rounded up to its grid
        ours = epsilon_of(ledger.mu_of(name), 1e-6)
        assert ours <= spent[name] * (1 + 1e-6)
        assert ours == pytest.approx(spent[name], rel=3e-3)
        assert ours == pytest.approx(
            dp_accounting.get_epsilon_gaussian(1 / ledger.mu_of(name), 1e-6), rel=1e-6
        )
    assert ledger.epsilon(1e-6) == pytest.approx(max(spent.values()), rel=3e-3)


def test_events_of_other_libraries_are_charged_as_one_and_come_back_as_they_were():
    import dp_accounting as dp

    first = Ledger(5.0)
    first.charge("moments", 2.0, 6.0)
    first.charge("image", 1.0, 5.0, count=12)
    event = first.to_dp_events()[ALL_DATA]
    second = Ledger(5.0)
    charge = second.charge_dp_event(
        "a run of another library", dp.ComposedDpEvent([event, dp.NoOpDpEvent()])
    )
    assert first.mu <= charge.mu <= first.mu * (1 + 1e-12)  # rounded up, never down
    assert charge.count == 1
    replaced = Ledger(5.0).charge_dp_event("the same, a record replaced", event, sensitivity=2.0)
    assert replaced.mu == pytest.approx(2 * first.mu)
    small = Ledger(0.5 * first.mu)
    with pytest.raises(BudgetExhausted):
        small.charge_dp_event("too much", event)
    assert small.charges == ()
    for other in (
        dp.LaplaceDpEvent(1.0),
        dp.GaussianDpEvent(0.0),
        dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(1)),
        dp.GaussianDpEvent(1e-200),
        dp.GaussianDpEvent(1e200),
    ):
        with pytest.raises(ValueError, match="An event must be Gaussian"):
            second.charge_dp_event("no mu", dp.ComposedDpEvent([dp.GaussianDpEvent(9.0), other]))
    for count in (-3, 0.25, math.nan):  # less than nothing would pay for other events
        repeated = dp.SelfComposedDpEvent(dp.GaussianDpEvent(1.0), count)
        with pytest.raises(ValueError, match="`count` must be"):
            second.charge_dp_event(
                "less than nothing", dp.ComposedDpEvent([dp.GaussianDpEvent(0.4), repeated])
            )
    with pytest.raises(ValueError, match="must be a release"):
        second.charge_dp_event("nothing", dp.NoOpDpEvent())
    assert len(second.charges) == 1


def test_rho_is_that_of_gaussian_releases_and_bounds_epsilon():
    import dp_accounting

    report = PrivacyReport.of(
        Releaser(Ledger(1.0)),
        epsilon=1.0,
        delta=1e-6,
        unit="record",
        neighbours="one row",
        mechanism="none",
    )
    assert report.rho == 0.0
    ledger = Ledger(1.0)
    ledger.charge("image", 1.0, 5.0, count=12)
    settings = {
        "epsilon": 4.0,
        "delta": 1e-6,
        "unit": "record",
        "neighbours": "one row",
        "mechanism": "images",
    }
    report = PrivacyReport.of(Releaser(ledger), **settings)
    assert report.rho == pytest.approx(12 / (2 * 25))  # K/(2 z²)
    assert json.loads(report.to_json())["rho"] == report.rho
    assert PrivacyReport.from_json(report.to_json()) == report
    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    renyi = dp_accounting.rdp.RdpAccountant(neighboring_relation=relation).compose(
        ledger.to_dp_events()[ALL_DATA]
    )
    assert ledger.epsilon(1e-6) <= renyi.get_epsilon(
        1e-6
    )  # what follows from rho is never better than what is exact
    assert ledger.epsilon(1e-6) <= report.rho + 2 * math.sqrt(report.rho * math.log(1e6))


def test_deltas_of_thresholds_add_and_are_taken_off_the_delta_of_the_noise():
    ledger = Ledger(2.0, delta_limit=3e-7)
    ledger.charge("image", 1.0, 2.0, data="batch 1")
    ledger.charge("words", 1.0, 2.0, delta=1e-7, data="batch 2")
    before = ledger.to_json()
    ledger.charge("words", 1.0, 2.0, delta=2e-7)
    assert ledger.delta == pytest.approx(3e-7, rel=1e-12)
    assert ledger.delta >= 3e-7
    # Half each for two pieces that one charge of all data joins: mu = √(1/4 + 1/4).
    assert ledger.epsilon(1e-6) == pytest.approx(epsilon_of(math.sqrt(0.5), 7e-7), rel=1e-9)
    assert ledger.epsilon(1e-6) > epsilon_of(math.sqrt(0.5), 1e-6)
    assert ledger.epsilon(3e-7) == math.inf
    again = Ledger.from_json(ledger.to_json())
    assert again.charges == ledger.charges
    assert again.delta_limit == 3e-7
    assert "delta" not in json.loads(before)["charges"][0]  # as in files from before there was one


def test_a_delta_beyond_its_limit_is_refused_and_nothing_is_charged():
    outer = Ledger(1.0, delta_limit=1e-7)
    ledger = Ledger(1.0, delta_limit=1e-6, within=outer)
    ledger.charge("words", 1.0, 4.0, delta=1e-7)
    for where in (ledger, outer, Ledger(1.0)):
        charges = where.charges
        with pytest.raises(
            BudgetExhausted, match=r"would bring delta to .*, above the limit"
        ) as caught:
            where.charge("words", 1.0, 4.0, delta=1e-8)
        assert caught.value.name == "delta"
        assert where.charges == charges
    with pytest.raises(ValueError, match="`delta` must be a finite number of at least 0"):
        Charge("words", 1.0, 1.0, delta=-1e-9)


def test_events_with_a_delta_give_dp_accounting_the_same_epsilon():
    import dp_accounting

    ledger = Ledger(5.0, delta_limit=1e-6)
    ledger.charge("words", 1.0, 2.0, delta=4e-7)
    ledger.charge("core", 1.0, 3.0)
    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    accountant = dp_accounting.pld.PLDAccountant(relation, 1e-4).compose(
        ledger.to_dp_events()[ALL_DATA]
    )
    assert ledger.epsilon(1e-6) == pytest.approx(
        accountant.get_epsilon(1e-6 - ledger.delta), rel=1e-3
    )


def test_threads_together_spend_no_more_than_the_limit():
    ledger = Ledger(1.0)
    refusals = []

    def work():
        for _ in range(50):
            try:
                ledger.charge("image", 0.1, 1.0)
            except BudgetExhausted:
                refusals.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ledger.charges) == 100  # 100 times 0.1² is 1, up to rounding
    assert len(refusals) == 300


def test_a_charge_is_checked_and_recorded_under_the_lock(monkeypatch):
    ledger = Ledger(1.0)
    held = []
    monkeypatch.setattr(ledger, "_record", lambda entry: held.append(ledger._lock.locked()))
    ledger.charge("image", 0.1, 1.0)
    assert held == [True]


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_ledger_cannot_be_duplicated(duplicate):
    with pytest.raises(TypeError, match=r"^A ledger must stay one of a kind"):
        duplicate(Ledger(1.0))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_cannot_spend_the_budget_of_its_parent():
    ledger = Ledger(1.0)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # newer Pythons warn of threads; the child starts none
        child = os.fork()
    if child == 0:
        try:
            ledger.charge("image", 0.1, 1.0)
        except RuntimeError:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ledger.charge("image", 0.1, 1.0)
