"""A mixture is learnt under differential privacy: from noisy sums over rows, and from nothing else.

1. The second moment of rows, with their mean: where means of components lie, and the variance around them.
2. The third moment there, of rows whitened by what was released. Its components are the means.
3. A likelihood step: what rows say about the components so far. More steps would share its budget, and lose by that.

All between the releases is post-processing. `bounded_rows` bounds what a row adds to each sum.

What a private mixture can be expected to find, said before any row is touched.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.optimize import linear_sum_assignment

from odeco._util.arguments import check_count, check_number
from odeco._util.types import FloatArray, IndexArray
from odeco.models.gmm.gaussians import Gaussians
from odeco.models.gmm.holder import Asked, BoundedRows, moment_of_seconds, unpacked_cube
from odeco.models.gmm.spec import Learnt, largest_first
from odeco.models.gmm.start import SecondMoment, Span, means_of_core, span_of
from odeco.privacy.calibration import epsilon_of, gdp_mu
from odeco.privacy.ledger_file import Guarantee
from odeco.privacy.noise import NoiseSource, SeededNoiseForTests
from odeco.privacy.report import PrivacyReport
from odeco.privacy.sums import NeighbourRelation, PrivateSums

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
    neighbour_relation : {"replace", "add_remove"}
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


#: At most so many rows are simulated; with fewer rows than there will be, less noise gives the same picture.
_MOST_SIMULATED = 50_000

#: So many times noise is drawn, and rows; the median is told.
_DRAWS = 3

#: A mixture is called found if so many of its rows are assigned as the truth would assign them.
FOUND = 0.95


@dataclass(frozen=True)
class MixturePlan:
    """What a private `TensorMixture` would release, and what can be expected of it; ``str`` gives a table.

    Attributes
    ----------
    epsilon, delta, mu : float
        The budget.
    n_rows, n_features, n_components : int
        What it was made for.
    separation : float
        The distance between means of simulated components, in standard deviations.
    releases : ReleasePlan
        What is released, with which share of μ².
    noise : tuple of float
        Standard deviation of the noise of the second moment and of the likelihood step; rows are divided by their
        bound. That of the third moment follows from what the second says.
    agreement : float
        The share of simulated rows that the private mixture assigns to the component that the true mixture does.
    """

    unit: ClassVar[str] = "row"

    epsilon: float
    delta: float
    mu: float
    n_rows: int
    n_features: int
    n_components: int
    separation: float
    releases: ReleasePlan
    noise: tuple[float, float]
    agreement: float

    @property
    def found(self) -> bool:
        """Whether a mixture of this kind can be expected to be found."""
        return self.agreement >= FOUND

    def __str__(self) -> str:
        plan = self.releases
        rows = [
            ("second moment", plan.seconds, f"{self.noise[0]:.4g}"),
            ("third moment, whitened", plan.thirds, "follows"),
            ("rows dealt to components", plan.step, f"{self.noise[1]:.4g}"),
        ]
        lines = [
            f"epsilon {self.epsilon:g}, delta {self.delta:g} (mu {self.mu:.4g}); {self.n_rows:,} rows of "
            f"{self.n_features:,} features, divided by the bound of their norm",
            f"{'release':<28}{'share':>7}{'noise':>10}",
        ]
        lines += [f"{what:<28}{share:>7.0%}{noise:>10}" for what, share, noise in rows if share > 0]
        verdict = "would be found" if self.found else "would not be found"
        lines.append(
            f"{self.n_components} simulated spheres, {self.separation:g} deviations apart, {verdict}: "
            f"{self.agreement:.0%} of rows assigned as the truth assigns them"
        )
        return "\n".join(lines)


def plan_mixture(
    n_components: int,
    *,
    n_rows: int,
    n_features: int,
    epsilon: float,
    delta: float,
    separation: float = 6.0,
    neighbour_relation: NeighbourRelation = "replace",
    seed: int = 0,
) -> MixturePlan:
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
    separation = check_number("separation", separation, 0, math.inf)
    mu, releases = gdp_mu(epsilon, delta), plan_releases(k)
    sums = PrivateSums(Guarantee(epsilon, delta), n, record="row", neighbour_relation=neighbour_relation)
    size = min(n, _MOST_SIMULATED)
    # Noise is divided by the number of rows, so with fewer rows the same share of noise needs a larger budget.
    simulated = Guarantee(epsilon_of(mu * n / size, delta), delta)
    rng = np.random.default_rng(seed)
    agreements = [_agreement(k, d, size, separation, simulated, neighbour_relation, rng) for _ in range(_DRAWS)]
    held, nowhere = BoundedRows(np.zeros((1, d)), 1.0), Gaussians(np.full(k, 1 / k), np.zeros((k, d)), np.ones(k))
    asked = ((held.seconds(), releases.seconds), (held.shares(nowhere, np.zeros(d), 1.0), releases.step))
    noise = [
        sums.sensitivity(each.bound, each.size, signed=each.signed) / (mu * math.sqrt(share)) if share else 0.0
        for each, share in asked
    ]
    return MixturePlan(
        epsilon,
        delta,
        mu,
        n,
        d,
        k,
        separation,
        releases,
        (noise[0], noise[1]),
        float(np.median(agreements)),
    )


def _agreement(
    k: int,
    d: int,
    n: int,
    separation: float,
    guarantee: Guarantee,
    relation: NeighbourRelation,
    rng: np.random.Generator,
) -> float:
    """Return how many rows of a simulated mixture are assigned as the truth does, by what is learnt of it privately."""
    means = separation / math.sqrt(2 * d) * rng.standard_normal((k, d))
    truth = Gaussians(np.full(k, 1 / k), means, np.ones(k))
    rows, _ = truth.draw(n, rng)
    bound = float(np.quantile(np.linalg.norm(rows, axis=1), 0.99))
    learnt, _ = learn_privately(
        BoundedRows(rows, bound),
        k,
        norm_bound=bound,
        regularity=1e-6,
        guarantee=guarantee,
        neighbour_relation=relation,
        seed=int(rng.integers(2**31)),
        noise=SeededNoiseForTests(int(rng.integers(2**31))),
    )
    own, found = truth.about(rows)[0].argmax(axis=1), learnt.model.about(rows)[0].argmax(axis=1)
    return _matched(own, found, k)


def _matched(first: IndexArray, second: IndexArray, k: int) -> float:
    """Return the share of rows on which two assignments agree, with components matched such that it is largest."""
    table = np.zeros((k, k))
    np.add.at(table, (first, second), 1)
    return float(table[linear_sum_assignment(-table)].sum() / len(first))
