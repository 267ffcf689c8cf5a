"""Fits: where a rate crosses one half, exponents of powers, and what counts as near."""

from __future__ import annotations

import numpy as np
import pytest

from reproduction import figure1
from reproduction.report import Estimate, Transitions, log_slope, transition


def test_a_transition_is_interpolated_in_the_logarithm_of_the_level():
    # The rate is 0.25 at 1 and 0.75 at 4: halfway in the logarithm is 2.
    assert transition(np.array([0.5, 1.0, 4.0]), np.array([0.0, 0.25, 0.75])) == pytest.approx(2.0)


def test_a_rate_that_falls_back_is_made_to_rise_first():
    # The nearest rising curve to (0, 0.8, 0.4, 1) is (0, 0.6, 0.6, 1), which crosses ½ between the
    # first two levels.
    found = transition(np.array([1.0, 2.0, 4.0, 8.0]), np.array([0.0, 0.8, 0.4, 1.0]))
    assert found == pytest.approx(2 ** (0.5 / 0.6))


@pytest.mark.parametrize("rates", [[0.6, 0.7, 1.0], [0.0, 0.1, 0.4]])
def test_a_rate_that_does_not_cross_one_half_has_no_transition(rates):
    assert np.isnan(transition(np.array([1.0, 2.0, 4.0]), np.array(rates)))


def test_the_exponent_of_a_power_is_found_exactly():
    x = np.array([1.0, 3.0, 10.0])
    assert log_slope(x, 5 * x**-0.75).value == pytest.approx(-0.75)
    assert log_slope(x, 5 * x**-0.75).error == pytest.approx(0.0, abs=1e-12)


def test_curves_that_fall_together_on_one_scaling_have_the_least_spread_there():
    levels = np.geomspace(0.003, 1, 30)
    dimensions = (25, 50, 100, 200)
    # A trial fails from a threshold on that is 2/d, times a factor that varies by 10 %.
    factors = np.random.default_rng(0).normal(1, 0.1, size=(40, 1))
    outcomes = [(levels > 2 * factors / d).astype(float) for d in dimensions]
    found = Transitions.of(dimensions, levels, outcomes)
    spreads = {name: found.spread(scale).value for name, scale in figure1.SCALINGS.items()}
    assert min(spreads, key=spreads.__getitem__) == "σd"
    # Grid steps are a factor of 1.22, so a point is off by at most 0.1 in the logarithm, and the
    # slope over a factor of 8 by 2 · 0.1 / ln 8.
    assert found.exponent().near(-1.0, 0.1)


def test_near_and_at_most_allow_two_standard_errors():
    assert Estimate(1.0, 0.1).near(1.19)
    assert not Estimate(1.0, 0.1).near(1.21)
    assert Estimate(1.0, 0.1).at_most(0.81)
    assert not Estimate(1.0, 0.1).at_most(0.79)
