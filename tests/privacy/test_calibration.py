"""The curve against high precision, its inverses against dp-accounting, and always on the safe
side.
"""

import math

import mpmath
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from odeco.privacy import delta_of, epsilon_of, gdp_mu, noise_multiplier, paper_noise_multiplier
from odeco.privacy.calibration import ROOM

EPSILONS = [1e-3, 0.1, 1.0, 10.0, 100.0, 300.0]
DELTAS = [0.1, 1e-6, 1e-12, 1e-30, 1e-200]

exactly = mpmath.MPContext()
exactly.dps = 400  # exp(300) times a tail of 1e-200 still leaves a hundred digits


def exact_delta(epsilon, mu):
    epsilon, mu = exactly.mpf(epsilon), exactly.mpf(mu)

    def tail(x):
        return exactly.erfc(x / exactly.sqrt(2)) / 2

    return tail(epsilon / mu - mu / 2) - exactly.exp(epsilon) * tail(epsilon / mu + mu / 2)


@given(st.floats(-7, 2.6), st.floats(-7, 1.7))
def test_the_curve_agrees_with_four_hundred_digits(log_epsilon, log_mu):
    epsilon, mu = 10**log_epsilon, 10**log_mu
    computed = delta_of(epsilon, mu)
    assume(computed > 1e-300)
    assert abs(exactly.mpf(computed) / exact_delta(epsilon, mu) - 1) < 1e-12


def test_the_curve_has_the_right_limits():
    assert delta_of(1.0, 0.0) == 0
    assert delta_of(1.0, math.inf) == 1
    assert delta_of(0.0, 1.0) == pytest.approx(math.erf(0.5 / math.sqrt(2)), rel=1e-14)
    assert delta_of(1.0, 1e-8) == 0
    assert delta_of(1.0, 60.0) == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_gdp_mu_is_just_below_the_largest_mu_that_keeps_the_guarantee(epsilon, delta):
    mu = gdp_mu(epsilon, delta)
    assert exact_delta(epsilon, mu * (1 + ROOM / 2)) <= exactly.mpf(
        delta
    )  # as far as a ledger may let it go
    assert exact_delta(epsilon, mu * (1 + 2 * ROOM)) > exactly.mpf(delta)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("mu", [1e-4, 0.01, 0.3, 1.0, 5.0, 20.0])
def test_epsilon_of_is_just_above_the_smallest_epsilon_that_holds(mu, delta):
    epsilon = epsilon_of(mu, delta)
    assert exact_delta(epsilon, mu) <= exactly.mpf(delta)
    if epsilon > 0:
        assert exact_delta(epsilon * (1 - 1e-9), mu) > exactly.mpf(delta)


def test_epsilon_of_has_the_right_limits():
    assert epsilon_of(0.0, 1e-6) == 0
    assert epsilon_of(1e-9, 1e-6) == 0
    assert epsilon_of(math.inf, 1e-6) == math.inf


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_what_was_calibrated_never_reports_more_than_was_asked(epsilon, delta):
    mu = gdp_mu(epsilon, delta)
    assert epsilon * (1 - 1e-6) <= epsilon_of(mu * (1 + ROOM / 2), delta) <= epsilon


@pytest.mark.parametrize("n_releases", [1, 7, 264, 10_000])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-10])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 3.0, 10.0])
def test_noise_multiplier_equals_that_of_dp_accounting_and_is_never_below_the_exact_one(
    epsilon, delta, n_releases
):
    import dp_accounting

    ours = noise_multiplier(epsilon, delta, n_releases)
    theirs = dp_accounting.get_sigma_gaussian(epsilon, delta) * math.sqrt(n_releases)
    assert ours == pytest.approx(theirs, rel=1e-6)
    assert epsilon_of(math.sqrt(n_releases) / theirs, delta) == pytest.approx(epsilon, rel=1e-6)
    assert exact_delta(epsilon, exactly.sqrt(n_releases) / exactly.mpf(ours)) <= exactly.mpf(delta)


def test_the_paper_s_noise_is_algorithm_3_to_the_letter():
    k, L, R, epsilon, delta = 3, 8, 10, 0.7, 1e-6
    K = k * L * (R + 1)
    delta_prime = exactly.mpf(delta) / (2 * K)
    epsilon_prime = epsilon / exactly.sqrt(K * (4 + exactly.log(2 / exactly.mpf(delta))))
    nu = 6 * exactly.sqrt(2 * exactly.log(exactly.mpf("1.25") / delta_prime)) / epsilon_prime
    assert 6 * paper_noise_multiplier(epsilon, delta, K) == pytest.approx(float(nu), rel=1e-14)


def test_leaving_the_restarts_out_of_k_gives_too_little_noise():
    assert (
        paper_noise_multiplier(1.0, 1e-6, 3 * 11)
        < paper_noise_multiplier(1.0, 1e-6, 3 * 8 * 11) / 2.5
    )
    too_little = noise_multiplier(1.0, 1e-6, 3 * 11)
    assert (
        delta_of(1.0, math.sqrt(3 * 8 * 11) / too_little) > 1e-3
    )  # a thousand times the δ that was promised


@pytest.mark.parametrize("n_releases", [1, 10, 264, 10_000])
@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-12])
@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 10.0, 30.0])
def test_the_paper_s_noise_is_enough_where_it_is_used(epsilon, delta, n_releases):
    ratio = paper_noise_multiplier(epsilon, delta, n_releases) / noise_multiplier(
        epsilon, delta, n_releases
    )
    assert ratio > 1
    if delta == 1e-6 and 0.1 <= epsilon <= 10:
        assert 4 < ratio < 9


def test_the_paper_s_noise_is_not_enough_for_a_huge_epsilon():
    assert paper_noise_multiplier(1000.0, 1e-6, 1) < noise_multiplier(1000.0, 1e-6, 1)
    assert exact_delta(1000, 1 / paper_noise_multiplier(1000.0, 1e-6, 1)) > 1e-2


@pytest.mark.parametrize("epsilon", [0, -1.0, 1e18, math.inf, math.nan, None, "1", True])
@pytest.mark.parametrize(
    "function",
    [gdp_mu, lambda e, d: noise_multiplier(e, d, 1), lambda e, d: paper_noise_multiplier(e, d, 1)],
)
def test_epsilon_must_be_positive_and_not_too_large_to_compute_with(function, epsilon):
    with pytest.raises(
        ValueError, match=r"^`epsilon` must be a number above 0 and below 1e\+12\. Got "
    ):
        function(epsilon, 1e-6)


@pytest.mark.parametrize("delta", [0, 1, 1.0, -1e-6, math.nan, None])
@pytest.mark.parametrize(
    "function", [gdp_mu, epsilon_of, lambda e, d: paper_noise_multiplier(e, d, 1)]
)
def test_delta_must_be_strictly_between_0_and_1(function, delta):
    with pytest.raises(ValueError, match=r"^`delta` must be a number above 0 and below 1. Got "):
        function(1.0, delta)


def test_a_negative_mu_and_no_release_are_refused():
    with pytest.raises(ValueError, match=r"^`mu` must be a number of at least 0\. Got -1\.$"):
        delta_of(1.0, -1)
    with pytest.raises(ValueError, match=r"^`n_releases` must be an int of at least 1\. Got 0\.$"):
        noise_multiplier(1.0, 1e-6, 0)
