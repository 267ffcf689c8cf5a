"""Algorithm 2 on streams: error against rows and dimension (Theorem 3.1 and corollary), memory
(Proposition 3.1), SGD.

A batch has n rows. Algorithm 2 reads k R n rows in all. The core method reads the same n rows
several times.
"""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from odeco import Components, decompose_stream, match
from reproduction import output as _output
from reproduction.arguments import FloatArray
from reproduction.baselines.sgd import online_sgd, tune_learning_rate
from reproduction.report import (
    Estimate,
    Experiment,
    Finding,
    Records,
    Settings,
    generator_for,
    verdict,
)

WEIGHT = 2.0  # the third cumulant of a Gamma(1) variable

GAMMA_FOURTH_MOMENT = 9.0

BLOCK_ROWS = 4096

N_RESTARTS, N_ITERATIONS = 20, 15  # L and R of Algorithm 2

SGD_BATCH, SGD_RESTARTS, SGD_RATES = 100, 8, (0.5, 1.0, 2.0, 3.0, 5.0)


@dataclass(frozen=True)
class SkewedStream:
    """A stream of float32 rows x = V s + σ g.

    V is an orthonormal d x k matrix, the sources s are independent centred Gamma(1) variables, and
    g is Gaussian noise. The third moment of the rows is Σ 2 vᵢ ⊗ vᵢ ⊗ vᵢ.
    """

    dimension: int
    n_components: int
    sigma: float
    seed: int

    @property
    def truth(self) -> Components:
        """The components of the third moment."""
        raw = np.random.default_rng([self.seed, 1]).standard_normal(
            (self.dimension, self.n_components)
        )
        return Components(np.full(self.n_components, WEIGHT), np.linalg.qr(raw)[0])

    def blocks(self, n_rows: int, *, stretch: int = 2) -> Iterator[NDArray[np.float32]]:
        """Yield blocks of rows, the same ones at every call. Another `stretch` gives other rows."""
        generator = np.random.default_rng([self.seed, stretch])
        mixing = self.truth.vectors.T.astype(np.float32)
        for start in range(0, n_rows, BLOCK_ROWS):
            height = min(BLOCK_ROWS, n_rows - start)
            sources = (
                generator.standard_exponential((height, self.n_components), dtype=np.float32) - 1
            )
            noise = generator.standard_normal((height, self.dimension), dtype=np.float32)
            yield sources @ mixing + np.float32(self.sigma) * noise

    def predicted_error(self, n_rows: int) -> float:
        """Return the root mean square angle of the image of a true vector, averaged over `n_rows`
        rows.

        In a direction across v, the variance of (xᵀv)² x is E[(xᵀv)⁴] times the variance of x in
        that direction. The latter is 1 + σ² in the k − 1 directions of other sources, and σ² in all
        others. The root of the sum of these variances, divided by √n and by the weight, is the
        angle.
        """
        along = GAMMA_FOURTH_MOMENT + 6 * self.sigma**2 + 3 * self.sigma**4
        across = (self.n_components - 1) * (1 + self.sigma**2) + (
            self.dimension - self.n_components
        ) * self.sigma**2
        return math.sqrt(along * across / n_rows) / WEIGHT


def algorithm_2(stream: SkewedStream, n_rows: int, n_restarts: int = N_RESTARTS) -> FloatArray:
    """Return the angles of Algorithm 2 with `n_rows` fresh rows for each of its k R images."""
    k, loop = stream.n_components, {"n_restarts": n_restarts, "n_iterations": N_ITERATIONS}
    rows = stream.blocks(n_rows * k * N_ITERATIONS)
    found = decompose_stream(rows, k, method="power", batch_size=n_rows, rng=stream.seed, **loop)  # type: ignore[arg-type]
    return match(found, stream.truth).angles


def core(stream: SkewedStream, n_rows: int) -> FloatArray:
    """Return the angles of the core method in passes over `n_rows` rows."""
    found = decompose_stream(
        np.concatenate(list(stream.blocks(n_rows))), stream.n_components, rng=stream.seed
    )
    return match(found, stream.truth).angles


def gradient_descent(stream: SkewedStream, n_rows: int) -> FloatArray:
    """Return the angles of stochastic gradient descent over `n_rows` rows; its rate is tuned on
    other rows.
    """
    k, other_rows = stream.n_components, partial(stream.blocks, n_rows, stretch=3)
    settings: Any = {
        "batch_size": SGD_BATCH,
        "n_rows": n_rows,
        "n_restarts": SGD_RESTARTS,
        "rng": stream.seed,
    }
    rate = tune_learning_rate(other_rows, k, learning_rates=SGD_RATES, **settings)
    found = online_sgd(stream.blocks(n_rows), k, learning_rate=rate, **settings)
    return match(found, stream.truth).angles


K, SIGMA = 3, 1.0

Method: TypeAlias = Callable[[SkewedStream, int], FloatArray]

METHODS: dict[str, Method] = {"Algorithm 2": algorithm_2, "core": core, "SGD": gradient_descent}

#: The number of rows that a method reads in all, divided by the number n of rows in each batch.
ROWS_READ = {"Algorithm 2": K * N_ITERATIONS, "core": 1, "SGD": 1}

MEMORY_RESTARTS, MEMORY_BATCH = 10, 16

#: The noise and the number of restarts that distinguish min from max in Theorem 3.1, for one
#: component. A start needs some σ⁴(1 + σ²)d² rows, and a vector that is near needs some (9 + 6σ² +
#: 3σ⁴)σ²d rows. The noisier the rows, the smaller the d from which on the first number is the
#: larger one.
LONE_SIGMA, FEW_RESTARTS = 1.5, 4

#: A component counts as found within this angle. At less than half a right angle no vector can
#: stand for two of them.
FOUND_ANGLE = math.pi / 4


def tasks(quick: bool) -> list[Settings]:
    """Return the tasks of all five measurements."""
    dimensions, rows, n_trials = [25, 50, 100, 200], [2000, 4000, 8000, 16000], 8
    if quick:
        dimensions, rows, n_trials = [25, 50, 100], [2000, 4000, 8000], 3
    middle, most = dimensions[0 if quick else 1], rows[-1]
    listed: list[Settings] = []
    for trial in range(n_trials):
        for method in ("Algorithm 2", "core"):
            listed += [_task("rows", trial, method=method, dimension=middle, n=n) for n in rows]
            listed += [
                _task("dimension", trial, method=method, dimension=d, n=most) for d in dimensions
            ]
            listed += [_task("needed", trial, method=method, dimension=d) for d in dimensions]
        descents = [n * ROWS_READ["Algorithm 2"] for n in (rows[:-1] if quick else rows)]
        listed += [_task("rows", trial, method="SGD", dimension=middle, n=n) for n in descents]
    lone = [50, 200] if quick else [50, 100, 200, 400]
    listed += [
        _task("found", trial, method="Algorithm 2", dimension=d) for trial in range(5) for d in lone
    ]
    listed += [_task("memory", 0, dimension=d) for d in (2**14, 2**15, 2**16, 2**17)]
    return sorted(
        listed, key=lambda task: -task["dimension"] * task.get("n", 10_000)
    )  # the longest first


def _task(kind: str, trial: int, **settings: Any) -> Settings:
    return {"kind": kind, "trial": trial, **settings}


def trial(settings: Settings, seed: int) -> list[Settings]:
    """Run one method on one stream, or look for the rows it needs, or measure its memory."""
    d = settings["dimension"]
    key = {"trial": settings["trial"], "dimension": d}  # the same rows for all methods and n
    stream = SkewedStream(d, K, SIGMA, int(generator_for(key, seed).integers(2**32)))
    if settings["kind"] == "memory":
        return [_memory(stream)]
    method = METHODS[settings["method"]]
    if settings["kind"] == "needed":
        error = partial(_error, method, stream)
        return [{"rows_needed": _rows_needed(error, 2 / math.sqrt(d), d)}]
    if settings["kind"] == "found":
        few = partial(algorithm_2, n_restarts=FEW_RESTARTS)
        error = partial(_error, few, SkewedStream(d, 1, LONE_SIGMA, stream.seed))
        return [{"rows_needed": _rows_needed(error, FOUND_ANGLE, d)}]
    n = settings["n"]
    angles = method(stream, n)
    found = angles < FOUND_ANGLE
    return [
        {
            "error": _root_mean_square(angles),
            "predicted": stream.predicted_error(n),
            "rows_read": n * ROWS_READ[settings["method"]],
            "share_found": float(np.mean(found)),
            "error_of_found": _root_mean_square(angles[found]) if found.any() else FOUND_ANGLE,
        }
    ]


def _error(method: Method, stream: SkewedStream, n_rows: int) -> float:
    return _root_mean_square(method(stream, n_rows))


def _root_mean_square(angles: FloatArray) -> float:
    return float(np.sqrt(np.mean(angles**2)))


def _rows_needed(error: Callable[[int], float], aim: float, start: int) -> float:
    """Return the n at which the error falls to `aim`: n is doubled from `start` on, then
    interpolated in logarithms.
    """
    n, before = start, float("nan")
    while (now := error(n)) > aim:
        before, n = now, 2 * n
    share = math.log(before / aim) / math.log(before / now) if before > aim else 1.0
    return n / 2 * 2**share


def _memory(stream: SkewedStream) -> dict[str, Any]:
    """Return the peak of the memory of Algorithm 2, without the rows given to it, and the rows that
    it read.
    """
    n_rows = MEMORY_BATCH * K * 2
    block = next(stream.blocks(MEMORY_BATCH))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    settings: Any = {"batch_size": MEMORY_BATCH, "n_restarts": MEMORY_RESTARTS, "n_iterations": 2}
    found = decompose_stream(iter([block] * (K * 2)), K, method="power", rng=0, **settings)
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    return {"peak_bytes": round(peak, -4), "rows_read": found.n_rows, "rows_planned": n_rows}


def evaluate(records: Records) -> list[Finding]:
    """Return the findings of Section 3."""
    in_rows, core_rows = _slopes(records, "rows", "n", "error")
    in_dimension, core_dimension = _slopes(records, "dimension", "dimension", "error")
    needed, core_needed = _slopes(records, "needed", "dimension", "rows_needed")
    found = records.select(kind="found").slope("dimension", "rows_needed")
    ratio = np.median(
        [r["error"] / r["predicted"] for r in records.select(kind="rows", method="Algorithm 2")]
    )
    error = (
        f"Algorithm 2: {in_rows} in n, {in_dimension} in d; median error over the one predicted "
        f"from the moments of a row: {ratio:.2f}. Core: {core_rows} in n, {core_dimension} in d."
    )
    rows = (
        f"Algorithm 2: {needed}; core: {core_needed}, with {_median_ratio(records):.0f} times "
        "fewer rows read at the largest d."
    )
    lone = {"sigma": LONE_SIGMA, "n_restarts": FEW_RESTARTS}
    return [
        Finding.on(
            "streaming",
            "error",
            error,
            verdict(in_rows.near(-0.5, 0.05) and in_dimension.near(0.5, 0.05)),
        ),
        Finding.on("streaming", "rows", f"Exponent {found}.", found.verdict_at_most(1.0), **lone),
        Finding.on("streaming", "corollary", rows, needed.verdict_at_most(2.0)),
        _check_memory(records),
        _check_descent(records),
    ]


def _slopes(records: Records, kind: str, variable: str, value: str) -> list[Estimate]:
    """Return the exponents of Algorithm 2 and of the core method."""
    return [
        records.select(kind=kind, method=name).slope(variable, value)
        for name in ("Algorithm 2", "core")
    ]


def _check_memory(records: Records) -> Finding:
    records = records.select(kind="memory")
    slope = records.slope("dimension", "peak_bytes")
    exact = all(record["rows_read"] == record["rows_planned"] for record in records)
    numbers = (
        float(np.polyfit(*records.medians("dimension", "peak_bytes"), 1)[0])
        / 8
        / (K + MEMORY_RESTARTS)
    )
    measured = (
        f"Exponent {slope} (a buffer of constant size lowers it); {numbers:.1f} numbers for each "
        f"of the d(k + L); rows read as stated: {'yes' if exact else 'no'}."
    )
    return Finding.on("streaming", "memory", measured, verdict(slope.at_most(1.0) and exact))


def _check_descent(records: Records) -> Finding:
    rows = records.select(kind="rows")
    counts = rows.select(method="SGD").distinct("rows_read")
    shares = {
        method: [
            _mean(rows.select(method=method, rows_read=count), "share_found") for count in counts
        ]
        for method in ("Algorithm 2", "SGD")
    }
    errors = {
        method: _mean(rows.select(method=method, rows_read=counts[-1]), "error_of_found")
        for method in shares
    }
    most = max(rows.select(method="core").distinct("rows_read"))
    in_passes = rows.select(method="core", rows_read=most)
    holds = all(
        ours >= theirs for ours, theirs in zip(shares["Algorithm 2"], shares["SGD"], strict=True)
    )
    listed = "; ".join(
        (
            f"{method} finds {', '.join(f'{share:.0%}' for share in shares[method])}, the last to "
            f"{errors[method]:.3f} rad"
        )
        for method in shares
    )
    measured = (
        f"At {', '.join(f'{count:,}' for count in counts)} rows: {listed}. Core on {most:,} rows: "
        f"{_mean(in_passes, 'share_found'):.0%}, to {_mean(in_passes, 'error_of_found'):.3f} rad."
    )
    return Finding.on("streaming", "descent", measured, verdict(holds))


def _mean(records: Records, name: str) -> float:
    return float(np.mean([record[name] for record in records]))


def _median_ratio(records: Records) -> float:
    """Return how many more rows Algorithm 2 reads than the core method at the largest dimension."""
    needed = records.select(kind="needed")
    own, core_rows = (
        needed.select(method=name).medians("dimension", "rows_needed")[1][-1]
        for name in ("Algorithm 2", "core")
    )
    return float(ROWS_READ["Algorithm 2"] * own / core_rows)


@_output.styled
def draw(records: Records) -> dict[str, Any]:
    """Return the figures by name."""
    figure, axes = _output.panels(1, 3, height=3.4)
    rows, dimension, needed = axes[0]
    for method, look in _output.looks(list(METHODS)):
        rows.plot(
            *records.select(kind="rows", method=method).medians("rows_read", "error_of_found"),
            **look,
        )
        if method != "SGD":
            dimension.plot(
                *records.select(kind="dimension", method=method).medians("dimension", "error"),
                **look,
            )
            needed.plot(
                *records.select(kind="needed", method=method).medians("dimension", "rows_needed"),
                **look,
            )
    x, y = records.select(kind="rows", method="Algorithm 2").medians("rows_read", "error")
    _output.reference_line(rows, x, (x[0], y[0]), -0.5, "∝ rows^(−1/2)")
    chosen = records.select(kind="dimension", method="Algorithm 2")
    x, y = chosen.medians("dimension", "predicted")
    dimension.plot(x, y, "--", color=_output.REFERENCE, label="predicted")
    x, y = records.select(kind="found").medians("dimension", "rows_needed")
    needed.plot(x, y, marker="D", color=_output.METHOD_COLOURS[3], label="one component, to 45°")
    _output.reference_line(needed, x, (x[-1], y[-1]), 2.0, "∝ d²")
    middle = records.select(kind="rows")[0]["dimension"]
    rows.set(
        xlabel="rows read",
        ylabel="error of those found (rad)",
        title=f"Error against rows, d = {middle}",
    )
    dimension.set(
        xlabel="d",
        ylabel="error (rms angle, rad)",
        title=f"Error against d, n = {chosen[0]['n']:,}",
    )
    needed.set(
        xlabel="d", ylabel="n: rows in each batch", title="Rows until the error is 2/√d, or 45°"
    )
    for panel in axes[0]:
        _output.log_axes(panel)
    rows.legend()
    dimension.legend()
    needed.legend(loc="upper left")
    needed.set_ylim(top=2.5 * needed.get_ylim()[1])  # room for it
    _output.plain_ticks(dimension.xaxis, chosen.distinct("dimension"))
    _output.plain_ticks(needed.xaxis, records.select(kind="needed").distinct("dimension"))
    return {"streaming": figure, "streaming-memory": _draw_memory(records)}


def _draw_memory(records: Records) -> Any:
    figure, axes = _output.panels(1, 1, width=4.6, height=3.2)
    panel = axes[0][0]
    x, y = records.select(kind="memory").medians("dimension", "peak_bytes")
    panel.plot(
        x, y / 2**20, marker="o", color=_output.METHOD_COLOURS[0], label="peak of Algorithm 2"
    )
    panel.plot(
        x,
        x * (K + MEMORY_RESTARTS) * 8 / 2**20,
        "--",
        color=_output.REFERENCE,
        label="d(k + L) numbers",
    )
    _output.log_axes(panel)
    _output.plain_ticks(panel.xaxis, x)
    panel.set(xlabel="d", ylabel="MiB", title="Memory, k = 3, L = 10")
    panel.legend()
    return figure


EXPERIMENT = Experiment(
    "streaming", "Streams: rows, dimension, memory (Section 3)", tasks, trial, evaluate, draw
)
