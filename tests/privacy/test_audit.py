"""The auditor certifies what is right, and catches what is wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest

from odeco import _sensitivity
from odeco.privacy._audit import audit, worst_entries, worst_records
from odeco.privacy._calibration import gdp_mu
from odeco.privacy._entry_level import EntryLevel
from odeco.privacy._noise import SecureNoise, SeededNoiseForTests
from odeco.privacy._record_level import RecordLevel

PAIRS = {
    "literal": lambda: worst_entries(2, "literal"),
    "distinct": lambda: worst_entries(3, "distinct"),
    "replace": lambda: worst_records(2, 7, 1.5, "replace"),
    "add or remove": lambda: worst_records(2, 7, 1.5, "add or remove"),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_correct_code_is_certified_and_five_percent_too_little_noise_is_flagged(pair):
    right = audit(*PAIRS[pair](), mu=2.0, n_runs=100_000, noise=SeededNoiseForTests(0))
    assert not right.violated
    assert right.share >= 0.93
    assert abs(right.claimed_mu / 2.0 - 1) < 1e-6
    assert audit(*PAIRS[pair](), mu=2.0, n_runs=100_000, noise_share=0.95, noise=SeededNoiseForTests(0)).violated


def test_five_percent_are_flagged_in_nineteen_of_twenty_runs_and_correct_code_in_at_most_one():
    pair = PAIRS["literal"]()
    short = [audit(*pair, mu=2.0, n_runs=50_000, noise_share=0.95, noise=SeededNoiseForTests(i)) for i in range(20)]
    right = [audit(*pair, mu=2.0, n_runs=50_000, noise=SeededNoiseForTests(i)) for i in range(20)]
    assert sum(result.violated for result in short) >= 19
    assert sum(result.violated for result in right) <= 1
    assert min(result.share for result in right) >= 0.93


def test_the_noise_of_the_operating_system_is_certified_too():
    result = audit(*PAIRS["replace"](), mu=2.0, n_runs=100_000, confidence=0.9999, noise=SecureNoise())
    assert not result.violated  # false alarms: one in 10,000
    assert result.share >= 0.93


@pytest.mark.slow
def test_a_usual_guarantee_is_certified():
    result = audit(*PAIRS["literal"](), mu=gdp_mu(1.0, 1e-6), n_runs=1_000_000, noise=SeededNoiseForTests(0))
    assert not result.violated
    assert result.share >= 0.93


@pytest.mark.parametrize("constant", [2 * math.sqrt(5), 2 * math.sqrt(3)])
def test_a_wrong_constant_in_place_of_six_is_flagged(monkeypatch, constant):
    true_image = _sensitivity.literal_image
    monkeypatch.setattr(_sensitivity, "literal_image", lambda block, order=3: constant / 6 * true_image(block))
    assert audit(*PAIRS["literal"](), mu=1.0, n_runs=20_000, noise=SeededNoiseForTests(0)).violated


def test_the_sensitivity_of_adding_used_for_replacing_is_flagged():
    first, second, question = PAIRS["replace"]()
    first.neighbour_relation = second.neighbour_relation = "add or remove"
    assert audit(first, second, question, mu=1.0, n_runs=20_000, noise=SeededNoiseForTests(0)).violated


def test_the_weakest_mutant_of_googles_suite_is_flagged():
    pair = PAIRS["literal"]()
    assert audit(*pair, mu=1.0, n_runs=20_000, noise_share=1 / 1.375, noise=SeededNoiseForTests(0)).violated


def test_a_pair_that_is_not_the_worst_is_not_certified():
    first = EntryLevel(np.zeros((3, 3, 3)), neighbour_relation="literal")
    result = audit(first, first, np.eye(3)[:, :1], mu=1.0, n_runs=10_000, noise=SeededNoiseForTests(0))
    assert result.share < 0.1


def test_worst_pairs_attain_the_declared_sensitivity():
    for make in PAIRS.values():
        first, second, question = make()
        moved = np.linalg.norm(first.image(question) - second.image(question))
        assert moved <= first.sensitivity(question)
        assert moved >= 0.999999 * first.sensitivity(question) * (1 if isinstance(first, RecordLevel) else 0.9999)
