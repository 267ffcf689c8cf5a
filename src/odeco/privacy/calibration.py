"""How much noise a guarantee needs: the exact curve of the Gaussian mechanism, and its inverses.

A release f(D) + σ N(0, I) of sensitivity Δ is *μ-GDP* with μ = Δ/σ: telling two neighbours D, D'
apart from it is exactly as hard as telling N(0, 1) from N(μ, 1) (Dong, Roth and Su, arXiv
1905.02383). Several releases of μ₁, μ₂, … are together √(μ₁² + μ₂² + …)-GDP, with nothing lost, so
one number is all there is to account for. This module turns that number into an (ε, δ), and back;
`Ledger` adds the numbers up.

Every answer is rounded to the safe side: `gdp_mu` never returns too much, `epsilon_of` and
`noise_multiplier` never too little.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtr

from odeco._util.arguments import check_count, check_number
from odeco._util.types import FloatArray

#: `gdp_mu` stays below the exact root by this factor. Whoever plans with it may lose as much to the
#: rounding of sensitivities, scales and shares (all together far below 1e-9) and still keep the
#: guarantee.
ROOM = 2.0**-30

#: log δ is computed to within this much (the tests compare with 60 digits); `epsilon_of` adds it.
_MARGIN = 1e-12

_ROUND_UP = 1 + 2.0**-50

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)


def delta_of(epsilon: float, mu: float) -> float:
    """Return δ(ε) = Φ(−ε/μ + μ/2) − exp(ε) Φ(−ε/μ − μ/2), the exact curve of a μ-GDP mechanism.

    A mechanism is μ-GDP if and only if it is (ε, δ(ε))-differentially private for every ε ≥ 0.

    Parameters
    ----------
    epsilon : float
        ε, at least 0.
    mu : float
        μ, at least 0 (0: nothing is released; infinity: no noise).

    Returns
    -------
    float
        δ, with a relative error below 1e-12 for every δ that a double can hold (0 below that).

    Notes
    -----
    The two terms of the formula agree in almost all digits when δ is small, and exp(ε) overflows
    when ε is large. With a = ε/μ − μ/2 and b = ε/μ + μ/2 we have b² − a² = 2ε, so exp(ε) φ(b) =
    φ(a), and with Mills' ratio R(x) = Φ(−x)/φ(x) the curve is δ = φ(a) (R(a) − R(b)): the factor
    that is tiny stands apart and is kept as a logarithm. Where μ is small, R(a) and R(b) still
    agree in their first digits; there R(x) = ∫ exp(−t²/2 − xt) dt over t > 0 gives R(a) − R(b) = ∫
    exp(−t²/2 − at) (1 − exp(−μt)) dt, an integral of positive numbers.

    Examples
    --------
    >>> from odeco.privacy import delta_of
    >>> round(delta_of(1.0, 1.0), 6)
    0.126937
    """
    epsilon = check_number("epsilon", epsilon, 0, math.inf, closed=True)
    mu = check_number("mu", mu, 0, math.inf, closed=True)
    return math.exp(_log_delta(epsilon, mu))


def epsilon_of(mu: float, delta: float) -> float:
    """Return the smallest ε for which a μ-GDP mechanism is (ε, δ)-differentially private, rounded
    up.

    Parameters
    ----------
    mu : float
        The μ of the mechanism.
    delta : float
        The δ of the guarantee.

    Examples
    --------
    >>> from odeco.privacy import epsilon_of
    >>> round(epsilon_of(1.0, 1e-6), 4)
    4.8866
    """
    mu = check_number("mu", mu, 0, math.inf, closed=True)
    delta = check_delta(delta)
    if math.isinf(mu):
        return math.inf
    target = math.log(delta)

    def holds(epsilon: float) -> bool:
        return _log_delta(epsilon, mu) + _MARGIN <= target

    if holds(0.0):
        return 0.0
    high = max(mu, mu * mu)
    while not holds(high):
        high *= 2
    return _flip(holds, high, 0.0)


def gdp_mu(epsilon: float, delta: float) -> float:
    """Return the largest μ for which a μ-GDP mechanism is (ε, δ)-differentially private, rounded
    down.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee: ε > 0, and δ between 0 and 1.

    Returns
    -------
    float
        μ, below the exact root by a factor 1 − 2⁻³⁰: 1e-9 more noise than necessary buys room for
        every rounding error of a plan, so that a `Ledger` may let pass what exceeds its limit by
        rounding alone.

    Notes
    -----
    δ grows with μ (its derivative is φ(ε/μ − μ/2)), so the root is found by bisection down to
    neighbouring doubles. A relative error in δ moves μ by at most five times as much if δ ≤ 1/2:
    that of `delta_of` is well within the room.

    Examples
    --------
    >>> from odeco.privacy import epsilon_of, gdp_mu
    >>> mu = gdp_mu(1.0, 1e-6)
    >>> round(mu, 4), epsilon_of(mu, 1e-6) <= 1.0
    (0.2367, True)
    """
    target = math.log(check_delta(delta))
    epsilon = check_epsilon(epsilon)
    high = 1.0
    while _log_delta(epsilon, high) <= target:
        high *= 2
    return _flip(lambda mu: _log_delta(epsilon, mu) <= target, 0.0, high) * (1 - ROOM)


def adversary_accuracy(mu: float, delta: float = 0.0) -> float:
    """Return how often the best adversary guesses right between two neighbours: Φ(μ/2) + δ'/2, at
    most 1.

    The adversary knows all of the data except one unit, has two candidates for it that are equally
    likely beforehand, and sees everything that was released. A coin guesses right half of the time.

    Parameters
    ----------
    mu : float
        μ of all releases together.
    delta : float
        δ', what the charges add to the curve of the noise: the sum of `Charge.delta`. It is not the
        δ of a guarantee (ε, δ), which is another way to write μ.

    Notes
    -----
    Whoever guesses the first of two laws P and Q on an event A, and the second otherwise, is right
    with probability (P(A) + 1 − Q(A))/2, at most (1 + TV)/2 with the total variation distance TV of
    P and Q. A μ-GDP mechanism is (0, δ(0))-differentially private, so TV ≤ δ(0) = Φ(μ/2) − Φ(−μ/2)
    = 2 Φ(μ/2) − 1 (`delta_of`), which is reached if the neighbours are as far apart as the
    sensitivity allows. What slips through beside the noise with probability δ' adds at most δ' to
    TV.

    The accuracy that follows from (ε, δ) alone, without knowing that the noise is Gaussian, would
    be larger: (exp(ε) + δ)/(1 + exp(ε)), 73.1 % for ε = 1 where the noise of (1, 1e-6) allows 54.7
    %.

    Examples
    --------
    >>> from odeco.privacy import adversary_accuracy, gdp_mu
    >>> [round(adversary_accuracy(gdp_mu(epsilon, 1e-6)), 3) for epsilon in (0.1, 1, 10)]
    [0.505, 0.547, 0.822]
    """
    mu = check_number("mu", mu, 0, math.inf, closed=True)
    return min(
        1.0, float(ndtr(mu / 2)) + check_number("delta", delta, 0, math.inf, closed=True) / 2
    )


def noise_multiplier(epsilon: float, delta: float, n_releases: int = 1) -> float:
    """Return z = √K/μ: K releases with noise of z times their sensitivity are together (ε,
    δ)-differentially private.

    This is exact: less noise would break the guarantee. The queries may be chosen from earlier
    releases.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee.
    n_releases : int
        The number K of releases.

    Examples
    --------
    >>> from odeco.privacy import noise_multiplier, paper_noise_multiplier
    >>> round(noise_multiplier(1.0, 1e-6, 264), 2), round(paper_noise_multiplier(1.0, 1e-6, 264), 2)
    (68.64, 445.49)
    """
    n_releases = check_count("n_releases", n_releases)
    return math.sqrt(n_releases) / gdp_mu(epsilon, delta) * _ROUND_UP


def paper_noise_multiplier(epsilon: float, delta: float, n_releases: int) -> float:
    """Return ν/6 of Algorithm 3: √(2 ln(1.25/δ'))/ε' with δ' = δ/(2K) and ε' = ε/√(K(4 + ln(2/δ))).

    The paper multiplies it by the sensitivities 6‖u‖∞² and 6‖u‖∞³; here sensitivities are apart.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee that the paper claims.
    n_releases : int
        The number K of releases.

    Notes
    -----
    To the letter of Algorithm 3, line 2, which is more noise than necessary where it is used (4 to
    9 times for ε from 0.1 to 10 and δ = 1e-6), so that the claimed (ε, δ) holds. The proof that the
    paper sketches does not establish it: the constant of line 2 holds for ε' < 1 only, and the
    composition theorem of Dwork and Roth would need ε' √(2K ln(2/δ)) ≤ ε, which fails once ln(2/δ)
    > 4. For a very large ε the claim itself fails (K = 1, δ = 1e-6 and ε = 1000 give μ = 43 where
    40 is the limit). The exact μ of such a run is √K over this multiplier; a `Ledger` with the
    limit `gdp_mu(epsilon, delta)` refuses it where it is not private enough.

    References
    ----------
    Wang and Anandkumar, *Online and differentially-private tensor decomposition*, arXiv 1606.06237.
    """
    epsilon = check_epsilon(epsilon)
    delta = check_delta(delta)
    n_releases = check_count("n_releases", n_releases)
    delta_each = delta / (2 * n_releases)
    epsilon_each = epsilon / math.sqrt(n_releases * (4 + math.log(2 / delta)))
    return math.sqrt(2 * math.log(1.25 / delta_each)) / epsilon_each


def check_epsilon(epsilon: Any) -> float:
    """Return ε as a float if it is positive and below 10¹²; at 10¹⁸ rounding leaves nothing of
    δ.
    """
    return check_number("epsilon", epsilon, 0, 1e12)


def check_delta(delta: Any) -> float:
    """Return δ as a float if it is strictly between 0 and 1."""
    return check_number("delta", delta, 0, 1)


def check_delta_for(delta: float, n_units: int, unit: str) -> None:
    """Raise if δ is not below 1/n: publishing one record in full, at random, would satisfy it."""
    if not delta < 1 / n_units:
        raise ValueError(
            f"`delta` must be below 1/n = {1 / n_units:.3g} for {n_units:,} {unit}s. Got "
            f"{delta!r}. Take one far below, such as 1e-6 or 1/n²."
        )


def _log_delta(epsilon: float, mu: float) -> float:
    if mu == 0:
        return -math.inf
    if math.isinf(mu):
        return 0.0
    a = epsilon / mu - mu / 2
    b = epsilon / mu + mu / 2
    if a > 1e100:
        return -math.inf
    if a < -5:  # δ is near 1: nothing cancels, while Mills' ratio of a would overflow
        return math.log(ndtr(-a) - math.exp(epsilon + log_ndtr(-b)))
    return -a * a / 2 - math.log(math.sqrt(2 * math.pi)) + math.log(_mills_difference(a, b, mu))


def _mills_difference(a: float, b: float, mu: float) -> float:
    """Return R(a) − R(b) for Mills' ratio R and b = a + μ."""
    if mu >= 1:
        return math.sqrt(math.pi / 2) * float(erfcx(a / math.sqrt(2)) - erfcx(b / math.sqrt(2)))
    # The integrand falls below exp(-45) of its start (or peak) where t²/2 + a t = 45.
    root = math.sqrt(a * a + 90)
    end = 90 / (root + a) if a > 0 else root - a
    t: FloatArray = end / 2 * (_NODES + 1)
    return float(end / 2 * np.sum(_WEIGHTS * np.exp(-t * t / 2 - a * t) * -np.expm1(-mu * t)))


def _flip(holds: Callable[[float], bool], inside: float, outside: float) -> float:
    """Return the last number for which `holds` is true between `inside`, where it is, and
    `outside`, where not.
    """
    while True:
        middle = (inside + outside) / 2
        if middle in (inside, outside):
            return inside
        if holds(middle):
            inside = middle
        else:
            outside = middle
