"""The planner sees public numbers only, shares the whole budget, and predicts what runs then
show.
"""

from __future__ import annotations

import inspect
import json
import math

import numpy as np
import pytest

import odeco
from odeco.datasets import planted_orthogonal
from odeco.privacy import gdp_mu, noise_multiplier
from odeco.privacy.noise import SeededNoiseForTests
from odeco.private import decompose_privately, plan_privacy
from odeco.private.mechanisms import MECHANISMS
from odeco.private.mechanisms.entries import LEAST_SHARE, Core

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
FOR_TENSORS = [each.name for each in MECHANISMS.values() if not each.needs_second_moment]


def found_share(unit, mechanism, make, n_runs, **settings):
    """Return in which share of runs all components were found with cosine 0.9."""
    found = 0
    for seed in range(n_runs):
        data, truth = make(seed)
        result = decompose_privately(
            data,
            3,
            **BUDGET,
            unit=unit,
            mechanism=mechanism,
            rng=seed,
            noise=SeededNoiseForTests(seed),
            **settings,
        )
        found += odeco.match(result, truth).cosines.min() >= 0.9
    return found / n_runs


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", FOR_TENSORS)
def test_entries_above_the_smallest_signal_are_found_and_far_below_it_are_not(mechanism):
    d = 40
    smallest = plan_privacy(dimension=d, n_components=3, neighbour_relation="distinct", **BUDGET)[
        mechanism
    ].smallest_signal

    def make(weight):
        def problem(seed):
            truth = planted_orthogonal(d, 3, weights=weight * np.array([1.05, 1.0, 0.95]), rng=seed)
            return truth.to_dense(), truth

        return problem

    settings = {"neighbour_relation": "distinct"}
    assert found_share("entry", mechanism, make(1.6 * smallest), 8, **settings) >= 0.75
    assert found_share("entry", mechanism, make(0.5 * smallest), 8, **settings) <= 0.25


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_records_above_the_smallest_signal_are_found_and_far_below_it_are_not(mechanism):
    d = 40
    # Single-topic rows have weights of 1/3, and noise falls as 1/n: so many records make it the
    # smallest signal.
    one = plan_privacy(
        dimension=d, n_components=3, unit="record", n_units=1000, norm_bound=1.0, **BUDGET
    )
    needed = 1000 * one[mechanism].smallest_signal / (1 / 3)

    def make(n):
        def problem(seed):
            vectors = np.linalg.qr(np.random.default_rng(seed).standard_normal((d, 3)))[0]
            labels = np.arange(n) % 3
            return vectors[:, labels].T, odeco.Components(np.bincount(labels) / n, vectors)

        return problem

    settings = {"norm_bound": 1.0}
    assert found_share("record", mechanism, make(round(1.6 * needed)), 8, **settings) >= 0.75
    assert found_share("record", mechanism, make(round(0.5 * needed)), 8, **settings) <= 0.25


def test_noise_and_releases_are_those_of_the_run():
    d, k = 20, 2
    T = planted_orthogonal(d, k, weights=[1e4, 9e3], rng=0).to_dense()
    plan = plan_privacy(dimension=d, n_components=k, **BUDGET)
    for mechanism in FOR_TENSORS:
        report = decompose_privately(
            T, k, **BUDGET, mechanism=mechanism, neighbour_relation="distinct", rng=0
        ).privacy
        assert sum(charge.count for charge in report.charges) == plan[mechanism].n_releases
    assert plan["input"].noise == pytest.approx(math.sqrt(2) / gdp_mu(1.0, 1e-6))
    shares = plan["core"].shares
    assert sum(shares) <= 1
    assert sum(shares) > 0.99
    assert min(shares) >= LEAST_SHARE - 0.001
    report = decompose_privately(
        T, k, **BUDGET, mechanism="core", neighbour_relation="distinct", rng=0
    ).privacy
    mus = [charge.mu for charge in report.charges]
    np.testing.assert_allclose(mus, gdp_mu(1.0, 1e-6) * np.sqrt(shares), rtol=1e-6)
    assert plan["core"].gain > 1


def test_auto_takes_the_best_that_assumes_nothing():
    plan = plan_privacy(
        dimension=100, n_components=5, unit="record", n_units=5000, norm_bound=1.0, **BUDGET
    )
    signals = [each.smallest_signal for each in plan.mechanisms]
    assert signals == sorted(signals)
    assert plan.best == next(
        each.mechanism for each in plan.mechanisms if each.mechanism != "subspace"
    )
    assert plan_privacy(dimension=1000, n_components=3, **BUDGET).best != "input"  # 7.5 GiB


def test_everything_scales_as_it_must():
    one = plan_privacy(
        dimension=50, n_components=3, unit="record", n_units=1000, norm_bound=1.0, **BUDGET
    )
    more = plan_privacy(
        dimension=50, n_components=3, unit="record", n_units=4000, norm_bound=1.0, **BUDGET
    )
    larger = plan_privacy(
        dimension=50, n_components=3, unit="record", n_units=1000, norm_bound=2.0, **BUDGET
    )
    for each in one.mechanisms:
        assert more[each.mechanism].smallest_signal == pytest.approx(
            each.smallest_signal / 4, rel=0.01
        )
        assert larger[each.mechanism].smallest_signal == pytest.approx(
            each.smallest_signal * 8, rel=0.01
        )
    doubled = plan_privacy(dimension=50, n_components=3, entry_change=2.0, **BUDGET)
    for each in plan_privacy(dimension=50, n_components=3, **BUDGET).mechanisms:
        assert doubled[each.mechanism].smallest_signal == pytest.approx(
            2 * each.smallest_signal, rel=0.01
        )


def test_a_plan_is_a_table_and_json():
    plan = plan_privacy(dimension=100, n_components=3, **BUDGET)
    lines = str(plan).splitlines()
    assert lines[1].startswith("It spends ε = 1 (δ = 1e-06) of the privacy of every entry")
    first = lines.index("Mechanisms for d = 100, k = 3; this run takes 'input':")
    assert lines[first + 1].split() == [
        "mechanism",
        "releases",
        "noise",
        "finds",
        "weights",
        "from",
        "budget",
    ]
    assert [line.split()[0] for line in lines[first + 2 : first + 2 + len(plan.mechanisms)]] == [
        each.mechanism for each in plan.mechanisms
    ]
    document = json.loads(plan.to_json())
    assert document["best"] == plan.best
    assert [each["mechanism"] for each in document["mechanisms"]] == [
        each.mechanism for each in plan.mechanisms
    ]
    assert plan["joint"].n_releases == 30
    assert (
        plan["wang2016"].noise / plan["joint"].noise
        > noise_multiplier(1, 1e-6, 330) / noise_multiplier(1, 1e-6, 30) / 3
    )


def test_no_data_can_be_given():
    assert "data" not in inspect.signature(plan_privacy).parameters
    assert Core.widths(5, 3) == (5, 5, 5, 5)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"unit": "record", "norm_bound": 1.0}, r"^`n_units` must be an int of at least 1"),
        ({"unit": "record", "n_units": 10}, r"^`norm_bound` must be a positive number"),
        ({"unit": "record", "n_units": 10**7, "norm_bound": 1.0}, r"^`delta` must be below 1/n"),
        ({"epsilon": 0}, r"^`epsilon` must be a number above 0"),
        (
            {"neighbour_relation": "replace"},
            r"^`neighbour_relation` must be one of 'distinct', 'literal'",
        ),
        ({"dimension": 0}, r"^`dimension` must be an int of at least 1"),
    ],
)
def test_what_is_missing_or_wrong_is_refused(settings, text):
    with pytest.raises(ValueError, match=text):
        plan_privacy(**{"dimension": 10, "n_components": 2, **BUDGET, **settings})
