"""What each mechanism would release, with how much noise, and what it would still find: from public numbers alone.

The *smallest signal* is the weight λ that every one of k components must have to be found with cosine 0.9, for
components in general position (no coordinate stands out) and no noise but that of privacy. Every formula below comes
from one picture. Noise of standard deviation s on each coordinate of an image has length s√d, so an image whose
signal is λc², c the cosine of the question with the component, has the cosine λc²/√(λ²c⁴ + s²d) with it.

They predict; nothing private depends on them. Tests compare them with runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy  # its submodules are imported when they are used: optimize takes longer than all of odeco
from scipy.special import ndtri

from odeco._arguments import check_choice, check_norm_bound, check_number
from odeco._threads import one_blas_thread
from odeco._types import FloatArray
from odeco.privacy import MechanismPlan, PrivacyPlan, _sensitivity, gdp_mu, noise_multiplier

Unit = Literal["entry", "record", "user"]
#: The cosine from which on a component counts as found.
FOUND = 0.9
#: A noisy tensor of this dimension takes half a gigabyte; above it "auto" does not consider input perturbation.
MOST_INPUT_DIMENSION = 400
#: Rounds of images before the core.
CORE_ROUNDS = 3
#: No release gets less of μ², so that weights too are found to some accuracy.
LEAST_SHARE = 0.1
#: In terms of the noise of a coordinate of the image times √d: where input perturbation reaches the cosine 0.9. To
#: first order tan = 1/x gives 2.06; terms of higher order make it 2.5 (measured for d = 50 to 300, see the tests).
_INPUT_ACCURACY = 2.5
#: In terms of the noise of a coordinate times d^(3/4): where the unfolding begins to show the components.
_INPUT_START = 0.75


@dataclass(frozen=True)
class _Setting:
    """The public numbers, and the sensitivities that follow from them for questions in general position."""

    dimension: int
    n_components: int
    n_restarts: int
    n_iterations: int
    order: int
    image: Callable[[FloatArray], float]
    core: Callable[[FloatArray], float]
    slab: Callable[[FloatArray], float]
    entries: float  # sensitivity of an entry with three different indices, times √2: that of the noise in an image
    moment: float | None  # sensitivity of the second moment relative to B² and λ/B; None for tensors

    def random_block(self, width: int, *, orthonormal: bool) -> FloatArray:
        block = np.random.default_rng(0).standard_normal((self.dimension, width))  # public, and the same every time
        if orthonormal:
            return np.linalg.qr(block)[0]
        unit: FloatArray = block / np.linalg.norm(block, axis=0)
        return unit


def plan_mechanisms(
    *,
    dimension: int,
    n_components: int,
    n_restarts: int,
    n_iterations: int,
    epsilon: float,
    delta: float,
    unit: Unit,
    n_units: int | None,
    norm_bound: float | None,
    order: int,
    neighbour_relation: str,
    entry_change: float,
) -> PrivacyPlan:
    """Return the plan for these public numbers; see `odeco.private.plan_privacy`."""
    mu = gdp_mu(epsilon, delta)
    if unit == "entry":
        setting = _of_entries(dimension, n_components, n_restarts, n_iterations, neighbour_relation, entry_change)
    else:
        bound, count = check_norm_bound(norm_bound), int(n_units or 0)
        setting = _of_records(
            dimension, n_components, n_restarts, n_iterations, neighbour_relation, bound, count, order
        )
    with one_blas_thread():  # matrices this small are slowed down by threads that wait for each other
        ranked = _ranked(setting, epsilon, delta, mu)
    best = next(plan.mechanism for plan in ranked if not plan.remark)
    return PrivacyPlan(epsilon, delta, mu, unit, neighbour_relation, dimension, n_components, ranked, best)


def _ranked(setting: _Setting, epsilon: float, delta: float, mu: float) -> tuple[MechanismPlan, ...]:
    plans = [
        _plan_separate(setting, epsilon, delta),
        _plan_joint(setting, epsilon, delta),
    ]
    if setting.order == 3:
        plans += [_plan_input(setting, mu), _plan_core(setting, mu)]
    if setting.order == 3 and setting.moment is not None:
        plans.append(_plan_subspace(setting, mu))
    return tuple(sorted(plans, key=lambda plan: plan.smallest_signal))


def _of_entries(d: int, k: int, n_restarts: int, n_iterations: int, relation: str, change: float) -> _Setting:
    check_choice("neighbour_relation", relation, ("distinct", "literal"))
    change = check_number("entry_change", change, 0, math.inf)
    literal = relation == "literal"
    image = _sensitivity.literal_image if literal else _sensitivity.distinct_entry_image
    core = _sensitivity.literal_core if literal else _sensitivity.distinct_entry_core
    return _Setting(
        d,
        k,
        n_restarts,
        n_iterations,
        3,
        lambda block: change * image(block),
        lambda basis: change * core(basis),
        lambda basis: change * core(basis, open_axis=True),
        math.sqrt(2) * change,
        None,
    )


def _of_records(
    d: int, k: int, n_restarts: int, n_iterations: int, relation: str, bound: float, n_units: int, order: int
) -> _Setting:
    check_choice("neighbour_relation", relation, ("replace", "add or remove"))
    replace = relation == "replace"

    def core(basis: FloatArray, *, open_axis: bool = False) -> float:
        return _sensitivity.record_core(basis, bound, n_units, order=order, replace=replace, open_axis=open_axis)

    return _Setting(
        d,
        k,
        n_restarts,
        n_iterations,
        order,
        lambda block: _sensitivity.record_image(block, bound, n_units, order=order, replace=replace),
        core,
        lambda basis: core(basis, open_axis=True),
        _sensitivity.record_entries(bound, n_units, order=order, replace=replace) / math.sqrt(3),
        # A component of weight λ in the moment of order p has at least λ/B^(p−2) in the second, as |⟨x, v⟩| ≤ B.
        _sensitivity.record_entries(bound, n_units, order=2, replace=replace) * bound ** (order - 2),
    )


# ---- noise at every iteration --------------------------------------------------------------------------------------


def _climbs_from(setting: _Setting, noise: float) -> float:
    """Return the weight from which on the power method climbs out of the noise, and reaches the cosine wanted.

    From c the next cosine is λc²/(s√d), larger than c if λ > s√d/c. Noise throws the dice anew in every iteration, so
    that c is the largest of some LR/2 draws of |N(0, 1)|/√d, in the median g/√d: λ > s d/g. (At order p the signal is
    λ c^(p−1).) To stay at the cosine `FOUND` is a condition too, the weaker one unless d is small.
    """
    d, p = setting.dimension, setting.order
    draws = max(1.0, setting.n_restarts * setting.n_iterations / 2)
    largest = min(float(ndtri((1 + 0.5 ** (1 / draws)) / 2)), 0.9 * math.sqrt(d))
    start = noise * math.sqrt(d) / (largest / math.sqrt(d)) ** (p - 2)
    end = noise * math.sqrt(d) * FOUND / (math.sqrt(1 - FOUND**2) * FOUND ** (p - 1))
    return max(start, end)


def _plan_separate(setting: _Setting, epsilon: float, delta: float) -> MechanismPlan:
    n_releases = setting.n_components * setting.n_restarts * (setting.n_iterations + 1)
    multiplier = noise_multiplier(epsilon, delta, n_releases)
    block = setting.random_block(setting.n_restarts, orthonormal=False)
    single = float(np.median([setting.image(block[:, [column]]) for column in range(block.shape[1])]))
    noise = multiplier * single
    return MechanismPlan("wang2016", n_releases, noise, _climbs_from(setting, noise))


def _plan_joint(setting: _Setting, epsilon: float, delta: float) -> MechanismPlan:
    n_releases = setting.n_components * setting.n_iterations
    block = setting.random_block(setting.n_restarts, orthonormal=False)
    noise = noise_multiplier(epsilon, delta, n_releases) * setting.image(block)
    return MechanismPlan("joint", n_releases, noise, _climbs_from(setting, noise))


# ---- released once ------------------------------------------------------------------------------------------------


def _plan_input(setting: _Setting, mu: float) -> MechanismPlan:
    """Plan input perturbation: the noise is there once, so it must be small enough to start, and to end, well."""
    noise, d = setting.entries / mu, setting.dimension
    signal = noise * max(_INPUT_ACCURACY * math.sqrt(d), _INPUT_START * d**0.75)
    remark = "" if d <= MOST_INPUT_DIMENSION else f"takes {8 * d**3 / 2**30:.1f} GiB"
    return MechanismPlan("input", 1, noise, signal, remark=remark)


def core_widths(dimension: int, n_components: int) -> tuple[int, ...]:
    """Return how many directions each slab asks about, and the core.

    The first is random and the wider the better its signal, at a cost of d m²/2 numbers; later ones only have to hold
    the components.
    """
    wide, narrow = 4 * n_components + 10, 2 * n_components + 5
    return (min(dimension, wide), *(min(dimension, narrow),) * CORE_ROUNDS)


def _plan_core(setting: _Setting, mu: float) -> MechanismPlan:
    """Plan a few slabs T(I, W, W), and the core.

    A slab has the signal λ|Wᵀv|² for a component v: λm/d for m random directions, λc² inside a span that has the
    cosine c with v. A signal of θ times the noise in a d x N matrix gives the leading left singular vectors the
    squared cosine 1 − d(N + θ²)/(θ²(θ² + d)) with v (Benaych-Georges and Nadakuditi 2012). |Wᵀv|² varies by √(2/m) of
    itself, and all k components must pass: the start is taken one such deviation below the mean.
    """
    d = setting.dimension
    widths = core_widths(d, setting.n_components)
    blocks = [setting.random_block(width, orthonormal=True) for width in widths]
    noises = [setting.slab(block) / mu for block in blocks[:-1]]
    core = setting.core(blocks[-1]) / mu

    def reached(weight: float, shares: FloatArray) -> float:
        square = widths[0] / d * (1 - math.sqrt(2 / max(widths[0], 8)))
        for i, noise in enumerate(noises):
            height, n_pairs = (weight * square / noise) ** 2 * shares[i], widths[i] * (widths[i] + 1) / 2
            missing = d * (n_pairs + height) / (height * (height + d))
            square = max(widths[i + 1] / d, 1 - missing)  # a random span has as much
        return math.sqrt(square) * _reached_in_core(weight, core / math.sqrt(shares[-1]), widths[-1])

    return _best_shares("core", reached, CORE_ROUNDS + 1, noises[0])


def _reached_in_core(weight: float, noise: float, width: int) -> float:
    """Return the cosine reached inside a core with noise of this size at every unit vector.

    Noise alone reaches 1.66 √m times its size somewhere, which the weight must exceed; it then turns a
    component by noise √(m/3) across it.
    """
    across, highest = noise * math.sqrt(width / 3), 2 * noise * math.sqrt(width)
    return min(1.0, weight / highest) * weight / math.hypot(weight, across)


def _plan_subspace(setting: _Setting, mu: float) -> MechanismPlan:
    """Plan the second moment and the core.

    The noise of a coordinate of M v is that of the second moment over √2, so the cosine of the span with v is √(1 −
    1/θ²), θ = √2 λ/(s√d) (a spiked Wigner matrix), λ in the scale of the second moment.
    """
    d, k = setting.dimension, setting.n_components
    basis = setting.random_block(k, orthonormal=True)
    moment, core = float(setting.moment or 0.0) / mu, setting.core(basis) / mu

    def reached(weight: float, shares: FloatArray) -> float:
        height = math.sqrt(2) * weight / (moment / math.sqrt(shares[0]) * math.sqrt(d))
        cosine = math.sqrt(max(0.0, 1 - 1 / height**2))
        return cosine * _reached_in_core(weight, core / math.sqrt(shares[1]), k)

    remark = "right only if the components span the leading directions of the second moment"
    return _best_shares("subspace", reached, 2, moment, remark)


def _best_shares(
    mechanism: str, reached: Callable[[float, FloatArray], float], n_releases: int, noise: float, remark: str = ""
) -> MechanismPlan:
    """Share the budget so that the smallest signal is smallest; `reached` is the cosine for a weight and shares."""

    def smallest(shares: FloatArray) -> float:
        low, high = noise * 1e-6, noise * 1e-6
        while reached(high, shares) < FOUND:
            low, high = high, 4 * high
        return float(scipy.optimize.brentq(lambda weight: reached(weight, shares) - FOUND, low, high, xtol=1e-6 * low))

    def shares_of(logits: FloatArray) -> FloatArray:
        exponents = np.exp(np.append(logits, 0.0))
        shares: FloatArray = LEAST_SHARE + (1 - n_releases * LEAST_SHARE) * exponents / exponents.sum()
        return shares

    equal = smallest(np.full(n_releases, 1 / n_releases))
    corners = np.vstack([np.zeros(n_releases - 1), np.eye(n_releases - 1)])

    def loss(logits: FloatArray) -> float:
        return math.log(smallest(shares_of(logits)))

    options: Any = {"xatol": 0.02, "fatol": 1e-4, "maxiter": 400, "initial_simplex": corners}
    best = scipy.optimize.minimize(loss, corners[0], method="Nelder-Mead", options=options)
    # Rounded down to a grid, so that their sum never exceeds 1 and plans read well.
    shares = np.floor(shares_of(best.x) * 1000) / 1000
    signal = smallest(shares)
    first = noise / math.sqrt(float(shares[0]))
    return MechanismPlan(
        mechanism, n_releases, first, signal, tuple(float(share) for share in shares), equal / signal, remark
    )
