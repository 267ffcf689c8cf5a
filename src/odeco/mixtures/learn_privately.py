"""A mixture is learnt under differential privacy: from noisy sums over rows, and from nothing else.

1. The second moment of rows, with their mean: where means of components lie, and the variance around them.
2. The third moment there, of rows whitened by what was released. Its components are the means.
3. A likelihood step: what rows say about the components so far. More steps would share its budget, and lose by that.

All between the releases is post-processing. `bounded_rows` bounds what a row adds to each sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from odeco._types import FloatArray
from odeco.latent.private_sums import NeighbourRelation, PrivateSums
from odeco.mixtures.bounded_rows import Asked, BoundedRows, moment_of_seconds, unpacked_cube
from odeco.mixtures.gaussians import Gaussians
from odeco.mixtures.learn import Learnt, largest_first
from odeco.mixtures.moments import SecondMoment, Span, means_of_core, span_of
from odeco.privacy import Guarantee, NoiseSource, PrivacyReport

#: What `PrivacyReport` calls this.
_MECHANISM = "second moment, whitened third moment, and a likelihood step"
#: Directions are amplified less than without noise: a weak one would carry all of it.
_LEAST_SHARE = 0.1
#: In likelihood steps rows further from the mean than so many times the root mean square distance are clipped.
_FAR = 2.0
#: A component moves in a step if it got this many deviations of noise, and this share of the uniform number of rows.
_CLEAR, _LEAST_ROWS = 5.0, 0.02
#: The variance around means is at least this share of the variance of rows.
_LEAST_VARIANCE = 1e-3


@dataclass(frozen=True)
class ReleasePlan:
    """Which share of μ² each release takes; they sum to one.

    Attributes
    ----------
    seconds, thirds : float
        The moments.
    step : float
        The likelihood step.
    """

    seconds: float
    thirds: float
    step: float


def plan_releases(n_components: int) -> ReleasePlan:
    """Return the shares of the releases for k components. One component needs no more than the second moment."""
    return ReleasePlan(1.0, 0.0, 0.0) if n_components == 1 else ReleasePlan(0.35, 0.35, 0.3)


def learn_privately(
    held: BoundedRows,
    n_components: int,
    *,
    norm_bound: float,
    regularity: float,
    guarantee: Guarantee,
    neighbour_relation: NeighbourRelation,
    seed: int,
    noise: NoiseSource | None = None,
) -> tuple[Learnt, PrivacyReport]:
    """Learn k components such that no row can be told from the result.

    Parameters
    ----------
    held : BoundedRows
        The rows.
    n_components : int
        Number k of components, at most one more than there are features.
    norm_bound : float
        What rows were divided by.
    regularity : float
        The share of the variance of rows that is added to that of components.
    guarantee : Guarantee
        The budget.
    neighbour_relation : {"replace", "add or remove"}
        What a neighbour may do to a row.
    seed : int
        Seed of the decomposition; the noise does not depend on it.
    noise : NoiseSource, optional
        Where the noise comes from; by default from the operating system.
    """
    sums = PrivateSums(guarantee, held.n_rows, record="row", neighbour_relation=neighbour_relation, noise=noise)
    n, d, k, plan = held.n_rows, held.n_features, n_components, plan_releases(n_components)
    packed, _ = released(sums, held.seconds(), plan.seconds)
    moment = moment_of_seconds(packed, n, d)
    span = span_of(moment, k, _LEAST_SHARE)
    variance = max(span.noise, _LEAST_VARIANCE * abs(moment.variance), float(np.finfo(np.float64).tiny))
    model, n_clear = Gaussians(np.ones(1), clipped_means(moment.mean[None, :]), np.full(1, variance)), 1
    if k > 1:
        weights, means = _start(held, sums, span, plan.thirds, seed)
        model = Gaussians(weights, clipped_means(means), np.full(k, variance))
        model, n_clear = _step(held, sums, model, moment, plan.step)
    floor = regularity * max(moment.variance, 0.0)
    model = Gaussians(
        model.weights, norm_bound * model.means, norm_bound**2 * (_variance(moment, model, variance) + floor)
    )
    start = f"noisy third moment; {n_clear} of {k} components stand clear of noise" if k > 1 else "noisy mean"
    learnt = Learnt(largest_first(model), float("nan"), int(k > 1), n_clear == k, start, 0.0)
    return learnt, sums.report(_MECHANISM)


def released(sums: PrivateSums, asked: Asked, share: float) -> tuple[FloatArray, float]:
    """Return a sum over rows with noise, for a share of the budget, and the deviation of the noise."""
    return sums.release(asked.what, asked.answer, size=asked.size, bound=asked.bound, share=share, signed=asked.signed)


def _start(held: BoundedRows, sums: PrivateSums, span: Span, share: float, seed: int) -> tuple[FloatArray, FloatArray]:
    """Return weights and means by the noisy third moment.

    Only the coordinates of z that depend on rows are asked for. With the constant one, the core has the second moment
    of z and its mean beside them, which are known: rows are whitened, so without the part of the noise the second
    moment is the identity, and the mean is zero.
    """
    width = span.strengths.size
    # Whitened rows are clipped at the root of their expected squared norm: noise grows with the cube of the radius.
    radius = float(np.sqrt(np.sum(1 + span.noise / span.strengths)))
    packed, _ = released(sums, held.thirds(span, radius), share)
    core = np.zeros((width + 1,) * 3)
    core[:-1, :-1, :-1] = unpacked_cube(packed, width) / held.n_rows
    identity = np.eye(width)
    core[-1, :-1, :-1] = core[:-1, -1, :-1] = core[:-1, :-1, -1] = identity
    core[-1, -1, -1] = 1.0
    return means_of_core(core, span, seed=seed)


def _step(
    held: BoundedRows, sums: PrivateSums, model: Gaussians, moment: SecondMoment, share: float
) -> tuple[Gaussians, int]:
    """Take a likelihood step with noise; components that it says little about stay, and the others are counted."""
    k, d = model.means.shape
    spread = _FAR * float(np.sqrt(d * max(moment.variance, 0.0)))
    # No row is further from the mean than the unit ball allows.
    radius = min(max(spread, 1e-6), 1 + float(np.linalg.norm(moment.mean)))
    answer, deviation = released(sums, held.shares(model, moment.mean, radius), share)
    table = answer.reshape(k, 1 + d)
    least = _LEAST_ROWS * held.n_rows / k
    counts = np.maximum(table[:, 0], least)
    moves = table[:, 0] > max(least, _CLEAR * deviation)
    means = np.where(moves[:, None], moment.mean + radius * table[:, 1:] / counts[:, None], model.means)
    return Gaussians(counts / counts.sum(), clipped_means(means), model.covariances), int(moves.sum())


def _variance(moment: SecondMoment, model: Gaussians, guess: float) -> FloatArray:
    """Return the variance around the means: what that of the means leaves of the variance of rows, at least a share."""
    d = len(moment.mean)
    between = float(model.weights @ np.sum(np.square(model.means - moment.mean), axis=1)) / d
    within = max(moment.variance - between, 0.5 * guess)
    return np.full(len(model.weights), within)


def clipped_means(means: FloatArray) -> FloatArray:
    """Return means within the unit ball, where rows are."""
    lengths = np.linalg.norm(means, axis=1, keepdims=True)
    return np.asarray(means / np.maximum(lengths, 1.0))
