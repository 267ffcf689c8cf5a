"""A mixture is learnt under differential privacy: from noisy sums over rows, and from nothing else.

1. The second moment of rows, with their mean: the span of the means of components, and the variance around them.
2. The third moment in that span, of rows whitened by what was released. Its components are the means.
3. The statistics of one EM iteration. More iterations would share its budget, and give worse results.

If no bound on the norm of rows is known, noisy counts of rows by their norm come first, and give one.

Everything between the releases is post-processing. The holder of the rows bounds what a row adds to each sum. The same
program on simulated rows is the plan, which needs no real row.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from odeco._util.arguments import check_count, check_number
from odeco._util.types import FloatArray
from odeco.models.engine.gaussians import Gaussians
from odeco.models.engine.moments import SecondMoment
from odeco.models.engine.private import (
    MakeReleaser,
    PrivatePlan,
    Releaser,
    assignment_verdict,
    hold_simulated,
    matched_share,
    moment_of_seconds,
    plan_fit,
    within_bound,
)
from odeco.models.gmm.start import Span, means_of_core, span_of
from odeco.privacy.holders.protocol import NeighbourRelation
from odeco.privacy.holders.rows import BoundedRows, UnboundedRows, unpacked_cube
from odeco.privacy.ledger_file import Guarantee

#: The shares of μ² of the second moment, the third moment and the EM iteration. One component needs no more than the
#: second moment.
_SHARES = (0.35, 0.35, 0.3)

#: Directions are amplified less than without noise: a weak one would carry all of it.
_LEAST_SHARE = 0.1

#: In the EM iteration, rows further from the mean than this multiple of the root mean square distance are clipped.
_FAR = 2.0

#: A component is updated if its count exceeds this many deviations of the noise, and this share of n/k rows.
_CLEAR, _LEAST_ROWS = 5.0, 0.02

#: The variance around means is at least this share of the variance of rows.
_LEAST_VARIANCE = 1e-3


def find_private_mixture(
    held: BoundedRows | UnboundedRows, releaser: Releaser, n_components: int, *, reg_covar: float, seed: int
) -> tuple[Gaussians, int]:
    """Return k spheres, learnt from noisy sums over rows, and how many of them stand clear of the noise.

    Parameters
    ----------
    held : BoundedRows or UnboundedRows
        The holder of the rows.
    releaser : Releaser
        Releases sums with noise.
    n_components : int
        Number k of components, at most one more than there are features.
    reg_covar : float
        The share of the variance of rows that is added to that of components.
    seed : int
        Seed of the decomposition; the noise does not depend on it.
    """
    n, d, k = held.n_records, held.n_features, n_components
    held, (of_seconds, of_thirds, of_step) = within_bound(held, releaser, _SHARES if k > 1 else (1.0, 0.0, 0.0))
    packed, deviation = releaser.release(held.seconds(), share=of_seconds)
    moment = moment_of_seconds(packed, n, d)
    span = span_of(moment, k, _LEAST_SHARE)
    # The mean variance of features is known up to the noise in the trace of the second moment.
    unknown = 2 * deviation / (n * math.sqrt(d))
    variance = max(span.noise, _LEAST_VARIANCE * abs(moment.variance), unknown, float(np.finfo(np.float64).tiny))
    model, n_clear = Gaussians(np.ones(1), clipped_means(moment.mean[None, :]), np.full(1, variance)), 1
    if k > 1:
        weights, means = _start(held, releaser, span, of_thirds, seed)
        model = Gaussians(weights, clipped_means(means), np.full(k, variance))
        model, n_clear = _step(held, releaser, model, moment, of_step)
    floor, bound = reg_covar * max(moment.variance, 0.0), held.norm_bound
    covariances = bound**2 * (_variance(moment, model, variance) + floor)
    return Gaussians(model.weights, bound * model.means, covariances), n_clear


def _start(held: BoundedRows, releaser: Releaser, span: Span, share: float, seed: int) -> tuple[FloatArray, FloatArray]:
    """Return weights and means by the noisy third moment.

    Only the coordinates of z that depend on rows are released. With the constant one, the core also has the second
    moment of z and its mean, which are known: rows are whitened, so without the part of the noise the second
    moment is the identity, and the mean is zero.
    """
    width = span.strengths.size
    # Whitened rows are clipped at the root of their expected squared norm: noise grows with the cube of the radius.
    radius = float(np.sqrt(np.sum(1 + span.noise / span.strengths)))
    packed, _ = releaser.release(held.thirds(span.mean, span.whitener, radius), share=share)
    core = np.zeros((width + 1,) * 3)
    core[:-1, :-1, :-1] = unpacked_cube(packed, width) / held.n_records
    identity = np.eye(width)
    core[-1, :-1, :-1] = core[:-1, -1, :-1] = core[:-1, :-1, -1] = identity
    core[-1, -1, -1] = 1.0
    return means_of_core(core, span, seed=seed)


def _step(
    held: BoundedRows, releaser: Releaser, model: Gaussians, moment: SecondMoment, share: float
) -> tuple[Gaussians, int]:
    """Return the model after an EM iteration with noise, and how many components are clear of it.

    Means are shrunk towards that of all rows by what the noise leaves of their distance from it (James and Stein), and
    components that are not clear have that mean: a mixture that is lost in noise is one cluster.
    """
    k, d = model.means.shape
    spread = _FAR * float(np.sqrt(d * max(moment.variance, 0.0)))
    # No row is further from the mean than the unit ball allows.
    radius = min(max(spread, 1e-6), 1 + float(np.linalg.norm(moment.mean)))
    query = held.shares(lambda rows: model.posterior(rows)[0], k, moment.mean, radius)
    answer, deviation = releaser.release(query, share=share)
    table = answer.reshape(k, 1 + d)
    least = _LEAST_ROWS * held.n_records / k
    counts = np.maximum(table[:, 0], least)
    moves = table[:, 0] > max(least, _CLEAR * deviation)
    steps = radius * table[:, 1:] / counts[:, None]
    lengths = np.maximum(np.sum(steps**2, axis=1), np.finfo(np.float64).tiny)
    left = np.maximum(1 - d * (radius * deviation / counts) ** 2 / lengths, 0.0)
    means = moment.mean + np.where(moves, left, 0.0)[:, None] * steps
    return Gaussians(counts / counts.sum(), clipped_means(means), model.covariances), int(moves.sum())


def _variance(moment: SecondMoment, model: Gaussians, guess: float) -> FloatArray:
    """Return the variance around the means: that of rows without that of the means, and at least half the guess."""
    d = len(moment.mean)
    between = float(model.weights @ np.sum(np.square(model.means - moment.mean), axis=1)) / d
    within = max(moment.variance - between, 0.5 * guess)
    return np.full(len(model.weights), within)


def clipped_means(means: FloatArray) -> FloatArray:
    """Return means within the unit ball, where rows are."""
    lengths = np.linalg.norm(means, axis=1, keepdims=True)
    return np.asarray(means / np.maximum(lengths, 1.0))


#: At most this many rows are simulated. The noise is scaled down to their number.
_MAX_SIMULATED = 50_000

#: A mixture counts as found if this share of its rows is assigned as the true mixture assigns them.
_FOUND = 0.95


def plan_mixture(
    n_components: int,
    *,
    n_rows: int,
    n_features: int,
    epsilon: float,
    delta: float,
    separation: float = 6.0,
    norm_bound: float | Literal["auto"] | None = None,
    neighbour_relation: NeighbourRelation = "replace",
    seed: int = 0,
) -> PrivatePlan:
    """Say what a private mixture would release, and simulate how well it would be found; no row is needed.

    Parameters
    ----------
    n_components : int
        Number of components, at most one more than features.
    n_rows, n_features : int
        Number of rows and of features.
    epsilon, delta : float
        The guarantee.
    separation : float
        The distance between means, in standard deviations, on average.
    norm_bound : float or "auto", optional
        As for `TensorMixture`. Rows are simulated in units of the bound, so that only ``"auto"`` makes a difference.
    neighbour_relation : {"replace", "add_remove"}
        As for `TensorMixture`.
    seed : int
        Of the simulation.

    Notes
    -----
    Simulated are spheres of equal weight with means in random directions, and a bound that one row in a hundred
    exceeds. A bound that is looser by some factor costs as if there were fewer rows by its square. Components of real
    rows may be harder to find, or easier.

    Examples
    --------
    >>> from odeco.models import plan_mixture
    >>> plan_mixture(3, n_rows=20_000, n_features=5, epsilon=1.0, delta=1e-6, separation=8.0).found
    True
    """
    d = check_count("n_features", n_features)
    k, n = check_count("n_components", n_components, 1, d + 1), check_count("n_rows", n_rows, 2)
    separation, guarantee = check_number("separation", separation, 0, math.inf), Guarantee(epsilon, delta)
    size = min(n, _MAX_SIMULATED)

    def program(simulated: MakeReleaser, rng: np.random.Generator) -> FloatArray:
        means = separation / math.sqrt(2 * d) * rng.standard_normal((k, d))
        truth = Gaussians(np.full(k, 1 / k), means, np.ones(k))
        rows, _ = truth.draw(size, rng)
        held = hold_simulated(rows, norm_bound)
        seed_of_starts, seed_of_noise = rng.integers(2**31, size=2).tolist()
        releaser = simulated(np.random.default_rng(seed_of_noise))
        found, _ = find_private_mixture(held, releaser, k, reg_covar=1e-6, seed=seed_of_starts)
        own, other = (model.posterior(rows)[0].argmax(axis=1) for model in (truth, found))
        return np.array([matched_share(own, other, k)])

    what = f"{k} simulated spheres, {separation:g} deviations apart"
    return plan_fit(
        program,
        guarantee,
        n,
        size,
        unit="row",
        neighbour_relation=neighbour_relation,
        rng=np.random.default_rng(seed),
        n_components=k,
        threshold=_FOUND,
        records=f"rows of {d:,} features, divided by the bound of their norm",
        verdict=lambda agreements: assignment_verdict(
            agreements, _FOUND, what, "rows assigned as the true mixture assigns them"
        ),
    )
