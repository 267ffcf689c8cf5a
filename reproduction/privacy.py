"""Private decompositions: the signal that each mechanism needs, against d, ε and the incoherence μ₀
(Section 4).

The tensor has k = 3 random orthonormal components with weights λ (1, 0.75, 0.5), and neighbours as
in the paper's Definition 4.2 for every mechanism. For each trial (components, starts and noise
fixed) the smallest λ is searched from which on the first component, or all of them, have a cosine
of at least 0.9. Noise is seeded: these runs are not private, and say so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from odeco import Components, decompose_privately, incoherence, match
from odeco.datasets import APPENDIX_A_WEIGHTS, planted_orthogonal
from odeco.privacy import SimulatedNoise, epsilon_of, paper_noise_multiplier
from reproduction import output as _output
from reproduction.arguments import FloatArray
from reproduction.report import Experiment, Finding, Records, Settings, generator_for, verdict

K, EPSILON, DELTA, FOUND = 3, 1.0, 1e-6, 0.9

N_RESTARTS, N_ITERATIONS = 10, 10

_LOOP = {"n_restarts": N_RESTARTS, "n_iterations": N_ITERATIONS}

MECHANISMS: dict[str, dict[str, Any]] = {
    "Algorithm 3, paper": {"mechanism": "wang2016", "calibration": "paper", **_LOOP},
    "Algorithm 3, exact": {"mechanism": "wang2016", "calibration": "exact", **_LOOP},
    "joint": {"mechanism": "joint", **_LOOP},
    "input": {"mechanism": "input"},
    "core": {"mechanism": "core"},
}

PAPER, EXACT = "Algorithm 3, paper", "Algorithm 3, exact"

#: The search ends at steps of 2^(1/8): an exponent over a factor of 8 or more is off by less than
#: this.
RESOLUTION = 0.05


def tasks(quick: bool) -> list[Settings]:
    """Return the tasks of the three measurements."""
    dimensions, epsilons, supports, n_trials = (
        [25, 50, 100, 200],
        [0.1, 0.3, 1.0, 3.0, 8.0],
        [6, 12, 25, 50],
        5,
    )
    few = list(MECHANISMS)
    if quick:
        dimensions, epsilons, supports, n_trials = [25, 50, 100], [0.1, 8.0], [6, 50], 2
        few = [PAPER, EXACT, "input"]
    listed: list[Settings] = []
    for trial in range(n_trials):
        for mechanism in MECHANISMS:
            task = {
                "mechanism": mechanism,
                "trial": trial,
                "dimension": 50,
                "support": 50,
                "epsilon": EPSILON,
            }
            listed += [
                {**task, "kind": "dimension", "dimension": d, "support": d} for d in dimensions
            ]
            if mechanism in few:
                listed += [{**task, "kind": "epsilon", "epsilon": epsilon} for epsilon in epsilons]
                listed += [
                    {**task, "kind": "incoherence", "support": support} for support in supports
                ]
    return sorted(listed, key=lambda task: -task["dimension"])  # the longest first


def trial(settings: Settings, seed: int) -> list[Settings]:
    """Search the smallest weight with which the first component, and all of them, are found."""
    d, support = settings["dimension"], settings["support"]
    key = {
        "trial": settings["trial"],
        "dimension": d,
        "support": support,
    }  # the same problem for every mechanism
    generator = generator_for(key, seed)
    # Components that live on `support` coordinates: the fewer, the larger μ₀.
    vectors = np.zeros((d, K))
    vectors[:support] = planted_orthogonal(support, K, rng=generator).vectors
    truth = Components(APPENDIX_A_WEIGHTS, vectors)
    entries = truth.to_dense()
    start, noise = (int(number) for number in generator.integers(2**32, size=2))

    @cache
    def cosines(weight: float) -> tuple[float, ...]:
        guarantee: Any = {
            "epsilon": settings["epsilon"],
            "delta": DELTA,
            "neighbour_relation": "literal",
        }
        how: Any = {
            "rng": start,
            "noise": SimulatedNoise(noise),
            **MECHANISMS[settings["mechanism"]],
        }
        found = decompose_privately(entries * weight, K, **guarantee, **how)
        return tuple(match(found, truth).cosines)

    return [
        {
            "mu_0": incoherence(truth),
            "weight_for_first": _smallest(lambda weight: cosines(weight)[0] >= FOUND),
            "weight_for_all": _smallest(lambda weight: min(cosines(weight)) >= FOUND),
        }
    ]


def _smallest(succeeds: Callable[[float], bool]) -> float:
    """Return the smallest weight that succeeds, on a grid of steps 2^(1/8), above one that
    fails.
    """
    high = 80  # 2^10
    while not succeeds(2 ** (high / 8)):
        high += 16
    low = high - 16
    while low > -240 and succeeds(2 ** (low / 8)):
        low, high = low - 16, low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if succeeds(2 ** (middle / 8)) else (middle, high)
    return float(2 ** (high / 8))


def evaluate(records: Records) -> list[Finding]:
    """Return the findings of Section 4."""
    return [
        _check_guarantee(),
        _check_dimension(records),
        _check_parameters(records),
        *_check_input(records),
    ]


def cited_composition(epsilon: float, delta: float, n_releases: int) -> float:
    """Return the ε that advanced composition (Dwork and Roth, Theorem 3.20) gives for the paper's
    ε' and δ/2.

    √(2 K ln(2/δ)) ε' + K ε' (exp(ε') − 1), where ε' = ε / √(K (4 + ln(2/δ))).
    """
    single = epsilon / math.sqrt(n_releases * (4 + math.log(2 / delta)))
    spread = math.sqrt(2 * n_releases * math.log(2 / delta)) * single
    return spread + n_releases * single * math.expm1(single)


def _check_guarantee() -> Finding:
    n_releases = K * N_RESTARTS * (N_ITERATIONS + 1)
    exact = {
        epsilon: epsilon_of(
            math.sqrt(n_releases) / paper_noise_multiplier(epsilon, DELTA, n_releases), DELTA
        )
        for epsilon in (0.1, 1.0, 10.0)
    }
    listed = ", ".join(f"{spent:.2g} for a claim of {claim:g}" for claim, spent in exact.items())
    found = verdict(all(spent <= claim for claim, spent in exact.items()))
    cited = f"{cited_composition(1.0, 1e-5, n_releases):.2f}"
    return Finding.on("privacy", "guarantee", f"Exact ε: {listed}.", found, cited=cited)


def _check_dimension(records: Records) -> Finding:
    chosen = records.select(kind="dimension")
    first = {
        name: chosen.select(mechanism=name).slope("dimension", "weight_for_first")
        for name in MECHANISMS
    }
    all_of = {
        name: chosen.select(mechanism=name).slope("dimension", "weight_for_all")
        for name in (PAPER, EXACT)
    }
    worst = max((first[PAPER], first[EXACT]), key=lambda slope: slope.value)
    mu_0 = chosen.medians("dimension", "mu_0")[1]
    listed = ", ".join(f"{name} {slope}" for name, slope in first.items())
    measured = (
        f"{listed}. All three components: {all_of[PAPER]} and {all_of[EXACT]}. μ₀ of the random "
        f"components: {', '.join(f'{value:.1f}' for value in mu_0)}."
    )
    return Finding.on("privacy", "dimension", measured, worst.verdict_at_most(0.0))


def _check_parameters(records: Records) -> Finding:
    in_epsilon = records.select(kind="epsilon", mechanism=PAPER).slope(
        "epsilon", "weight_for_first"
    )
    in_mu = records.select(kind="incoherence", mechanism=EXACT).slope("mu_0", "weight_for_first")
    found = verdict(in_epsilon.near(-1.0, RESOLUTION) and in_mu.at_most(1.0, RESOLUTION))
    measured = f"{in_epsilon} in ε, {in_mu} in μ₀."
    return Finding.on("privacy", "parameters", measured, found, resolution=RESOLUTION)


def _check_input(records: Records) -> list[Finding]:
    chosen = records.select(kind="dimension")
    slope = chosen.select(mechanism="input").slope("dimension", "weight_for_first")
    dimension = max(chosen.distinct("dimension"))
    largest = {name: float(_medians(chosen, name)[1][-1]) for name in MECHANISMS}
    # From where on input perturbation would need more, with the exponent of the unfolding and one
    # digit.
    crossings = {
        name: dimension * (largest[name] / largest["input"]) ** (4 / 3) for name in (PAPER, EXACT)
    }
    rounded = {name: f"{float(f'{value:.1g}'):,.0f}" for name, value in crossings.items()}
    listed = ", ".join(f"{name} {weight:,.0f}" for name, weight in largest.items())
    compared = (
        f"Weights at d = {dimension}: {listed}. If it grew like d^(3/4) from here, input "
        f"perturbation would fall behind from d ≈ {rounded[PAPER]} on (against exact calibration: "
        f"{rounded[EXACT]})."
    )
    return [
        Finding.on("privacy", "growth", f"Exponent {slope}.", slope.verdict_near(1.0)),
        Finding.on("privacy", "comparison", compared, verdict(largest[PAPER] <= largest["input"])),
    ]


def _medians(
    records: Records, mechanism: str, variable: str = "dimension"
) -> tuple[FloatArray, FloatArray]:
    return records.select(mechanism=mechanism).medians(variable, "weight_for_first")


@_output.styled
def draw(records: Records) -> dict[str, Any]:
    """Return the figures by name."""
    figure, axes = _output.panels(1, 3, height=3.5, sharey=True)
    for name, look in _output.looks(list(MECHANISMS)):
        axes[0][0].plot(*_medians(records.select(kind="dimension"), name), **look)
        axes[0][1].plot(*_medians(records.select(kind="epsilon"), name, "epsilon"), **look)
        if chosen := records.select(kind="incoherence", mechanism=name):
            mu_0, weights = (
                chosen.medians("support", value)[1] for value in ("mu_0", "weight_for_first")
            )
            axes[0][2].plot(mu_0, weights, **look)
    titles = ("Dimension, ε = 1", "Privacy, d = 50", "Incoherence, d = 50, ε = 1")
    for panel, label, title in zip(axes[0], ("d", "ε", "μ₀"), titles, strict=True):
        _output.log_axes(panel)
        panel.set(xlabel=label, title=title)
    _output.plain_ticks(axes[0][0].xaxis, records.select(kind="dimension").distinct("dimension"))
    axes[0][0].set_ylabel("weight needed for the first component")
    figure.legend(
        *axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=len(MECHANISMS)
    )
    return {"privacy": figure}


EXPERIMENT = Experiment(
    "privacy", "Private decompositions (Section 4)", tasks, trial, evaluate, draw
)
