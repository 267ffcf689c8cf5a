"""Algorithm 1 beside methods that reduce tensors to matrices, under growing Gaussian noise
(Appendix B).

The components are orthonormal. Their weights are those of Appendix A, or all 1 where k grows. The
noise is scaled to an operator norm. A random slice is the method of Proposition B.1; simultaneous
diagonalisation takes many slices at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from odeco import Components, Oracle, match, operator_norm
from odeco.datasets import APPENDIX_A_WEIGHTS, gaussian_noise, planted_orthogonal
from odeco.power import Schedule, run
from odeco.tensors import HasComponents
from reproduction import output as _output
from reproduction.arguments import FloatArray
from reproduction.baselines.matrices import random_slice, simultaneous_diagonalization
from reproduction.report import (
    Experiment,
    Finding,
    Records,
    Settings,
    generator_for,
    log_slope,
    verdict,
)

Method: TypeAlias = Callable[[Oracle, int, np.random.Generator], HasComponents]

K = len(APPENDIX_A_WEIGHTS)

#: The levels of noise. The first are small enough for first-order perturbation theory at every d;
#: at the last ones methods break down.
LEVELS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)

LINEAR = 0.003

#: The noise and the number of slices that measure the span of a slice. The noise is so small that
#: the error of the span, which has a heavy tail, stays far below 1.
SLICE_NOISE, N_SLICES = 1e-4, 60

#: Over k = 4 … 32 a factor ln k changes an exponent by ln(ln 32 / ln 4) / ln(32 / 4) = 0.44.
ONE_LOG_OF_K = 0.44


METHODS: dict[str, Method] = {
    "Algorithm 1": lambda tensor, k, rng: (
        run(tensor, Schedule.default(tensor.dimension, k), rng=rng).components
    ),
    "random slice": lambda tensor, k, rng: random_slice(tensor, k, rng=rng),
    "simultaneous": lambda tensor, k, rng: simultaneous_diagonalization(tensor, k, rng=rng),
}


def tasks(quick: bool) -> list[Settings]:
    """Return one task for each dimension, or rank, and trial."""
    dimensions, ranks, n_trials = (
        ((20, 40, 80), (4, 12, 32), 4) if quick else ((25, 50, 100), (4, 8, 16, 32), 12)
    )
    listed: list[Settings] = [
        {"kind": "noise", "dimension": d, "rank": K, "trial": trial}
        for d in reversed(dimensions)
        for trial in range(n_trials)
    ]
    return listed + [
        {"kind": "rank", "dimension": 64, "rank": k, "trial": trial}
        for k in ranks
        for trial in range(n_trials)
    ]


def trial(settings: Settings, seed: int) -> list[Settings]:
    """Draw components and noise; measure the span of slices, and every method at every level of
    noise.
    """
    generator = generator_for(settings, seed)
    d, k = settings["dimension"], settings["rank"]
    weights = APPENDIX_A_WEIGHTS if settings["kind"] == "noise" else np.ones(k)
    truth = planted_orthogonal(d, k, weights=weights, rng=generator)
    raw = gaussian_noise(d, rng=generator)
    norm = operator_norm(raw, n_restarts=30, tol=1e-4, rng=generator)
    slightly_noisy = truth + (SLICE_NOISE / norm) * raw
    records = [
        {
            "method": "span of a slice",
            "sigma": SLICE_NOISE,
            "error": span_error(random_slice(slightly_noisy, k, rng=generator), truth),
        }
        for _ in range(N_SLICES)
    ]
    if settings["kind"] == "noise":
        for sigma in LEVELS:
            tensor = truth + (sigma / norm) * raw
            for name, method in METHODS.items():
                angles = match(method(tensor, k, generator), truth).angles
                records.append(
                    {"method": name, "sigma": sigma, "error": float(np.sqrt(np.mean(angles**2)))}
                )
    return records


def span_error(found: HasComponents, truth: Components) -> float:
    """Return ‖Π − Π̂‖, the sine of the largest angle between the spans of two sets of orthonormal
    vectors.
    """
    outside = found.vectors - truth.vectors @ (truth.vectors.T @ found.vectors)
    return float(np.linalg.norm(outside, 2))


def evaluate(records: Records) -> list[Finding]:
    """Return the findings of Appendix B and of Theorem 2.2's error bound."""
    noise = records.select(kind="noise")
    return [
        _check_span(records),
        _check_rank(records),
        _check_error(noise),
        _check_comparison(noise),
    ]


def _quantiles(records: Records, variable: str) -> tuple[FloatArray, FloatArray]:
    """Return the error of spans that nine slices of ten do not exceed, by trial and value of the
    variable.
    """
    kind = "noise" if variable == "dimension" else "rank"
    records = records.select(kind=kind, method="span of a slice")
    groups = [
        (value, trial)
        for value in records.distinct(variable)
        for trial in records.distinct("trial")
    ]
    nine_tenths = [
        np.quantile([r["error"] for r in records.select(trial=trial, **{variable: value})], 0.9)
        for value, trial in groups
    ]
    return np.array([value for value, _ in groups], float), np.array(nine_tenths)


def _check_span(records: Records) -> Finding:
    slope = log_slope(*_quantiles(records, "dimension"))
    return Finding.on(
        "whitening", "span", f"Exponent {slope}.", verdict(slope.at_most(0.5)), noise=SLICE_NOISE
    )


def _check_rank(records: Records) -> Finding:
    slope = log_slope(*_quantiles(records, "rank"))
    found = verdict(slope.at_most(ONE_LOG_OF_K))
    return Finding.on("whitening", "rank", f"Exponent {slope}.", found, one_log_of_k=ONE_LOG_OF_K)


def _check_error(records: Records) -> Finding:
    ours = records.select(method="Algorithm 1")
    small = Records(r for r in ours if r["sigma"] <= 0.03)
    in_noise = small.slope("sigma", "error")
    in_dimension = ours.select(sigma=LINEAR).slope("dimension", "error")
    found = verdict(in_noise.near(1.0, 0.05) and in_dimension.at_most(0.0, 0.05))
    return Finding.on("whitening", "error", f"{in_noise} in the norm, {in_dimension} in d.", found)


def _check_comparison(records: Records) -> Finding:
    largest = max(records.distinct("dimension"))
    chosen = records.select(dimension=largest)
    errors = {name: chosen.select(method=name).medians("sigma", "error")[1] for name in METHODS}
    best = bool(np.all(errors["Algorithm 1"] <= np.min(list(errors.values()), axis=0)))
    listed = "; ".join(
        f"{name} {', '.join(f'{error:.3g}' for error in errors[name])}" for name in METHODS
    )
    measured = f"Median errors (rad) at σ = {', '.join(f'{s:g}' for s in LEVELS)}: {listed}."
    return Finding.on("whitening", "comparison", measured, verdict(best), dimension=largest)


@_output.styled
def draw(records: Records) -> dict[str, Any]:
    """Return the figures by name."""
    figure, axes = _output.panels(1, 3, height=3.4)
    noise, dimension, rank = axes[0]
    largest = max(records.distinct("dimension"))
    for name, look in _output.looks(list(METHODS)):
        chosen = records.select(kind="noise", method=name)
        noise.plot(*chosen.select(dimension=largest).medians("sigma", "error"), **look)
        sizes, errors = chosen.select(sigma=LINEAR).medians("dimension", "error")
        dimension.plot(sizes, errors / LINEAR, **look)
    for panel, variable, exponent, label in (
        (dimension, "dimension", 0.5, "∝ √d"),
        (rank, "rank", 1.0, "∝ k"),
    ):
        x, y = _quantiles(records, variable)
        medians = [float(np.median(y[x == value])) / SLICE_NOISE for value in np.unique(x)]
        panel.plot(
            np.unique(x),
            medians,
            color=_output.METHOD_COLOURS[3],
            marker="D",
            label="span of a slice, 90 %",
        )
        _output.reference_line(panel, x, (float(x.min()), medians[0]), exponent, label)
    noise.set(
        xlabel="operator norm of the noise",
        ylabel="error (rms angle, rad)",
        title=f"Noise, d = {largest}",
    )
    dimension.set(xlabel="d", ylabel="error / operator norm", title="Dimension, small noise")
    rank.set(
        xlabel="k", ylabel="error of the span / operator norm", title="Rank, d = 64, small noise"
    )
    for panel in axes[0]:
        _output.log_axes(panel)
        panel.legend(loc="best" if panel is not dimension else "upper left")
    dimension.set_ylim(top=12 * dimension.get_ylim()[1])  # room for the legend
    _output.plain_ticks(dimension.xaxis, records.select(kind="noise").distinct("dimension"))
    _output.plain_ticks(rank.xaxis, records.select(kind="rank").distinct("rank"))
    return {"whitening": figure}


EXPERIMENT = Experiment(
    "whitening", "Algorithm 1 beside slices (Appendix B)", tasks, trial, evaluate, draw
)
