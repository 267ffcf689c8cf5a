"""A mixture is learnt under differential privacy: from noisy sums over rows, and from nothing else.

1. The second moment of rows, with their mean: the span of the means of components, and the variance
   around them.
2. The third moment in that span, of rows whitened by what was released. Its components are the
   means.
3. The statistics of one EM iteration. More iterations would share its budget, and give worse
   results.

If no bound on the norm of rows is known, noisy counts of rows by their norm come first, and give
one; or noisy counts of numbers by column, which give centres and scales to standardise rows by.

Everything between the releases is post-processing. The holder of the rows bounds what a row adds to
each sum. The same program on simulated rows is the plan, which needs no real row.

**Never worse than less.** What is released is shrunk by what the noise leaves of it (empirical
Bayes): means of components towards that of all rows, covariances of components towards that within
all components, and this one towards a sphere. If public numbers say that noise would hide
components, the whole budget goes to one; if it would hide only how their covariances differ, they
have one covariance (`budget_of`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from odeco._util.arguments import check_choice, check_count, check_number
from odeco._util.types import FloatArray
from odeco.models.emissions.covariances import COVARIANCE_TYPES, CovarianceType, kind_of
from odeco.models.emissions.gaussians import Gaussians
from odeco.models.engine.moments import SecondMoment
from odeco.models.engine.private import (
    PrivatePlan,
    Releaser,
    Simulated,
    hold_simulated,
    in_units,
    matched_share,
    moment_of_seconds,
    plan_fit,
)
from odeco.models.gmm.start import Span, means_of_core, span_of
from odeco.privacy.guarantee import Guarantee
from odeco.privacy.holders.protocol import NeighbourRelation
from odeco.privacy.holders.rows import (
    CONSTANT,
    BoundedRows,
    UnboundedRows,
    unpacked_cube,
    unpacked_matrix,
)

#: The shares of μ² of the second moment, the third moment and the EM iteration. Covariance matrices
#: depend on the first more than on the others, and one component needs nothing else. Those of
#: spheres were chosen among eight on planted rows (d = 4 to 50, k = 3 to 25, ε = 0.1 to 2): they
#: have the highest likelihood of new rows in most of 19 cases.
_SHARES: dict[CovarianceType, tuple[float, float, float]] = {
    "spherical": (0.3, 0.2, 0.5),
    "diag": (0.35, 0.35, 0.3),
    "full": (0.7, 0.12, 0.18),
}

#: There is one component unless the largest eigenvalue of the noise in the second moment is below
#: this multiple of the mean variance, for rows of the full norm, and n/k rows are at least this
#: multiple of the noise in their number. For spheres, on 25 kinds of planted rows (d = 3 to 60, k =
#: 2 to 17, ten draws each), the mean log-likelihood is above that of one component in all 9 where
#: both hold, and below it in 9 of the 16 others.
_MOST_NOISE: dict[CovarianceType, float] = {"spherical": 1.7, "diag": 1.2, "full": 1.2}
_LEAST_COUNT: dict[CovarianceType, float] = {"spherical": 7.5, "diag": 5.0, "full": 5.0}

#: With covariance matrices, there is one component unless the noise in a mean is below this
#: multiple of the standard deviation of rows. One such matrix describes rows better than one
#: sphere, so that components gain less, and noise in means makes the matrix around them wrong.
#: Chosen on planted rows, ε = 1: at 0.25 the median log-likelihood is above that of one component
#: for four of five pairs of d and k (d = 3, k = 2 has 0.1 less), at 0.5 it is above for two.
_MOST_NOISE_OF_MEANS = 0.3

#: Components have covariances of their own if the noise in their variances is below this multiple
#: of the mean variance.
_MOST_NOISE_OF_OWN = 1.0

#: Directions are amplified less than without noise: a weak one would carry all of it.
_LEAST_SHARE = 0.1

#: In the EM iteration, rows further from the mean than this multiple of the root mean square
#: distance are clipped.
_FAR = 2.0

#: A component is updated if its count exceeds this many deviations of the noise, and this share of
#: n/k rows.
_CLEAR, _LEAST_ROWS = 5.0, 0.02

#: Where covariances are learnt, a variance is at least this many deviations of its noise.
_LEAST_DEVIATIONS = 2.0

#: The variance around means is at least this share of the variance of rows.
_LEAST_VARIANCE = 1e-3


def find_private_mixture(
    held: BoundedRows | UnboundedRows,
    releaser: Releaser,
    n_components: int,
    *,
    covariance_type: CovarianceType = "spherical",
    standardize: bool = False,
    reg_covar: float,
    seed: int,
) -> tuple[Gaussians, FloatArray, int]:
    """Return a mixture that is learnt from noisy sums over rows, scales, and how many components
    stand clear of noise.

    The mixture is that of rows whose columns are divided by the scales, which are 1 if rows are not
    standardised.

    Parameters
    ----------
    held : BoundedRows or UnboundedRows
        The holder of the rows.
    releaser : Releaser
        Releases sums with noise.
    n_components : int
        Number k of components, at most one more than there are features.
    covariance_type : {"spherical", "diag", "full"}
        The kind of covariances. Spheres are all of one variance.
    standardize : bool
        Whether columns are centred and divided by their standard deviations, both chosen under
        privacy.
    reg_covar : float
        The share of the variance of rows that is added to that of components.
    seed : int
        Seed of the decomposition; the noise does not depend on it.
    """
    n, d, k = held.n_records, held.n_features, n_components
    shares, has_own = budget_of(covariance_type, n, d, k, releaser.guarantee.mu)
    held, centre, scale, (of_seconds, of_thirds, of_step) = in_units(
        held, releaser, shares, standardize
    )
    packed, deviation = releaser.release(held.seconds(), share=of_seconds)
    moment, noise = moment_of_seconds(packed, n, d), deviation / n
    span = span_of(moment, k, _LEAST_SHARE)
    # The mean variance of features is known up to the noise in the trace of the second moment.
    unknown = 2 * noise / math.sqrt(d)
    variance = max(
        span.noise,
        _LEAST_VARIANCE * abs(moment.variance),
        unknown,
        float(np.finfo(np.float64).tiny),
    )
    weights, means, n_clear = (
        np.full(k, 1 / k),
        np.tile(clipped_means(moment.mean[None, :]), (k, 1)),
        1,
    )
    within = Within(covariance_type, variance, noise)
    covariances = within.pooled(moment, weights, means)
    if of_step:
        weights, means = _start(held, releaser, span, of_thirds, seed)
        # Components that overlap are told apart by the shape that all have.
        shape = (
            np.full(k, variance)
            if covariance_type == "spherical"
            else within.pooled(moment, weights, means)
        )
        start = Gaussians(weights, clipped_means(means), shape)
        weights, means, covariances, n_clear = _step(
            held, releaser, start, moment, within, has_own, of_step
        )
    floor, bound = reg_covar * max(moment.variance, 0.0), held.norm_bound
    covariances = bound**2 * (
        covariances + floor * (np.eye(d) if covariance_type == "full" else 1.0)
    )
    return Gaussians(weights, bound * means + centre / scale, covariances), scale, n_clear


def budget_of(
    covariance_type: CovarianceType, n_rows: int, n_features: int, n_components: int, mu: float
) -> tuple[tuple[float, float, float], bool]:
    """Return the shares of μ² of the three releases, and whether components get covariances of
    their own.

    Both follow from public numbers, for rows that are replaced, of the full norm 1, so of the mean
    variance 1/d.
    """
    n, d, k, alone = n_rows, n_features, n_components, (1.0, 0.0, 0.0)
    shares = _SHARES[covariance_type]
    roots = [mu * math.sqrt(share) for share in shares]
    of_seconds = d * math.sqrt(2 * d) * math.sqrt(2) * (1 + CONSTANT**2) / (n * roots[0])
    of_counts = 2 / roots[2]
    of_means = _FAR * math.sqrt(d) * of_counts * k / n if covariance_type == "full" else 0.0
    hidden = (
        of_seconds > _MOST_NOISE[covariance_type]
        or n / k < _LEAST_COUNT[covariance_type] * of_counts
    )
    if k == 1 or hidden or of_means > _MOST_NOISE_OF_MEANS:
        return alone, False
    of_own = (
        _FAR**2
        * d
        * math.sqrt(6)
        / roots[2]
        * k
        / n
        * (math.sqrt(2 * d) if covariance_type == "full" else 1.0)
    )
    return shares, covariance_type != "spherical" and of_own < _MOST_NOISE_OF_OWN


def _start(
    held: BoundedRows, releaser: Releaser, span: Span, share: float, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Return weights and means by the noisy third moment.

    Only the coordinates of z that depend on rows are released. With the constant one, the core also
    has the second moment of z and its mean, which are known: rows are whitened, so without the part
    of the noise the second moment is the identity, and the mean is zero.
    """
    width = span.strengths.size
    # Whitened rows are clipped at the root of their expected squared norm: noise grows with the
    # cube of the radius.
    radius = float(np.sqrt(np.sum(1 + span.noise / span.strengths)))
    packed, _ = releaser.release(held.thirds(span.mean, span.whitener, radius), share=share)
    core = np.zeros((width + 1,) * 3)
    core[:-1, :-1, :-1] = unpacked_cube(packed, width) / held.n_records
    identity = np.eye(width)
    core[-1, :-1, :-1] = core[:-1, -1, :-1] = core[:-1, :-1, -1] = identity
    core[-1, -1, -1] = 1.0
    return means_of_core(core, span, seed=seed)


def _step(
    held: BoundedRows,
    releaser: Releaser,
    start: Gaussians,
    moment: SecondMoment,
    within: Within,
    has_own: bool,
    share: float,
) -> tuple[FloatArray, FloatArray, FloatArray, int]:
    """Return weights, means and covariances after an EM iteration with noise, and the number of
    clear components.

    Means are shrunk towards that of all rows, and components that are not clear have that mean: a
    mixture that is lost in noise is one cluster.
    """
    (k, d), kind = start.means.shape, within.covariance_type if has_own else "spherical"
    spread = _FAR * float(np.sqrt(d * max(moment.variance, 0.0)))
    # No row is further from the mean than the unit ball allows.
    radius = min(max(spread, 1e-6), 1 + float(np.linalg.norm(moment.mean)))
    query = held.shares(lambda rows: start.posterior(rows)[0], k, moment.mean, radius, kind)
    answer, deviation = releaser.release(query, share=share)
    table = answer.reshape(k, -1)
    least = _LEAST_ROWS * held.n_records / k
    counts = np.maximum(table[:, 0], least)
    moves = table[:, 0] > max(least, _CLEAR * deviation)
    noise = radius * deviation / counts
    steps = radius * table[:, 1 : d + 1] / counts[:, None]
    weights = counts / counts.sum()
    means = clipped_means(
        moment.mean + moves[:, None] * shrunk_steps(steps, start.covariances[0], noise)
    )
    covariances = within.pooled(moment, weights, means, noise)
    if has_own:
        seconds = radius**2 * table[:, d + 1 :] / counts[:, None]
        own = within.of_components(covariances, seconds, steps, noise, radius * noise)
        covariances = np.where(kind_of(own).per_component(moves), own, covariances)
    return weights, means, covariances, int(moves.sum())


@dataclass(frozen=True)
class Within:
    """Covariances around means, by noisy moments.

    Attributes
    ----------
    covariance_type : {"spherical", "diag", "full"}
        Their kind.
    guess : float
        The variance around means, before these are known.
    noise : float
        The noise in each packed entry of the second moment of rows.
    """

    covariance_type: CovarianceType
    guess: float
    noise: float

    def pooled(
        self,
        moment: SecondMoment,
        weights: FloatArray,
        means: FloatArray,
        noise_of_means: FloatArray | float = 0.0,
    ) -> FloatArray:
        """Return the same covariance for each component: that of rows without that of the means.

        Its mean variance is at least half the guess, and it is shrunk towards a sphere. A
        covariance matrix that is too narrow along some axis costs most, so there the noise in means
        counts too. Noise of deviation ν in a mean that is o from the mean of all rows moves w o oᵀ
        by w (o δᵀ + δ oᵀ): an entry has a variance of 4 w² ν² |o|²/d, on average over the diagonal,
        beside that of the moment. It also adds w ν² to the variance of the means along every axis,
        which is subtracted.
        """
        (k, d), offsets = means.shape, means - moment.mean
        of_noise = (
            float(np.sum(weights * noise_of_means**2)) if self.covariance_type == "full" else 0.0
        )
        between = float(weights @ np.sum(np.square(offsets), axis=1)) / d - of_noise
        # A variance that is too small costs more likelihood than one that is too large: one
        # deviation is added.
        variance = max(moment.variance - between, 0.5 * self.guess) + self.noise / math.sqrt(d)
        if self.covariance_type == "spherical":
            return np.full(k, variance)
        shape = moment.covariance - (offsets.T * weights) @ offsets
        if self.covariance_type == "diag":
            return np.tile(
                shrunk_variances(np.diag(shape), np.full(d, variance), self.noise), (k, 1)
            )
        moved = 4 / d * float(np.sum((weights * noise_of_means) ** 2 * np.sum(offsets**2, axis=1)))
        noise = math.hypot(self.noise, math.sqrt(moved))
        return np.tile(
            shrunk_covariance(shape + of_noise * np.eye(d), variance * np.eye(d), noise), (k, 1, 1)
        )

    def of_components(
        self,
        pooled: FloatArray,
        seconds: FloatArray,
        steps: FloatArray,
        noise_of_steps: FloatArray,
        noise: FloatArray,
    ) -> FloatArray:
        """Return the covariance of each component, shrunk towards the pooled one."""
        d, of_steps = (
            steps.shape[1],
            noise_of_steps**2,
        )  # the noise of a step adds its variance to that of the step
        if self.covariance_type == "diag":
            own = seconds - steps**2 + of_steps[:, None]
            return np.stack(list(map(shrunk_variances, own, pooled, noise)))
        own = (
            np.stack([unpacked_matrix(each, d) for each in seconds])
            - steps[:, :, None] * steps[:, None, :]
        )
        own += of_steps[:, None, None] * np.eye(d)
        return np.stack(list(map(shrunk_covariance, own, pooled, noise)))


def shrunk_steps(steps: FloatArray, shape: FloatArray, noise: FloatArray) -> FloatArray:
    """Return noisy distances of means from that of all rows, shrunk towards 0 in units of the
    deviations around means.

    Where components are narrow, noise that is small beside the others moves a mean by many of
    these.
    """
    d = steps.shape[1]
    values, vectors = (
        (np.broadcast_to(shape, d), np.eye(d)) if shape.ndim < 2 else np.linalg.eigh(shape)
    )
    roots = np.sqrt(values)
    pairs = zip(steps @ vectors / roots, noise, strict=True)
    shrunk = np.stack(
        [shrunk_ratios(step, np.zeros(d), deviation / roots)[0] for step, deviation in pairs]
    )
    return np.asarray((shrunk * roots) @ vectors.T)


def shrunk_variances(own: FloatArray, target: FloatArray, noise: float) -> FloatArray:
    """Return noisy variances, each shrunk towards that of the target by what the noise leaves."""
    ratios, left = shrunk_ratios(own / target, np.ones(own.size), noise / target)
    return np.asarray(
        target * np.maximum(ratios, np.clip(_LEAST_DEVIATIONS * left, _LEAST_VARIANCE, 0.5))
    )


def shrunk_covariance(own: FloatArray, target: FloatArray, noise: float) -> FloatArray:
    """Return a noisy covariance matrix whose entries are shrunk, in coordinates in which the target
    is the identity.

    Noise with this deviation in every packed entry is the same in all orthonormal bases, so also in
    that of the target. Off the diagonal it has 1/√2 of the deviation, and its largest eigenvalue is
    about √(2d) deviations.
    """
    d = len(own)
    values, vectors = np.linalg.eigh(target)
    roots = np.sqrt(values)
    deviations = noise / np.outer(roots, roots) * np.where(np.eye(d) > 0, 1.0, math.sqrt(0.5))
    ratios, left = shrunk_ratios(
        vectors.T @ own @ vectors / np.outer(roots, roots), np.eye(d), deviations
    )
    least = float(np.clip(math.sqrt(2 / d) * np.linalg.norm(left), _LEAST_VARIANCE, 0.5))
    sizes, axes = np.linalg.eigh((ratios + ratios.T) / 2)
    back = (vectors * roots) @ axes
    return np.asarray((back * np.maximum(sizes, least)) @ back.T)


def shrunk_ratios(
    ratios: FloatArray, target: FloatArray, deviations: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return posterior means of numbers with noise of these deviations, and the deviations of the
    noise that is left.

    The prior of each is normal around the target, with the variance that all of them together show
    (empirical Bayes) beyond what noise shows in one of 40 cases: two standard deviations of the
    mean of its squares.
    """
    squares = deviations**2
    chance = 2 * math.sqrt(2 * float(np.sum(squares**2))) / squares.size
    prior = max(float(np.mean((ratios - target) ** 2 - squares)) - chance, 0.0)
    share = prior / np.maximum(prior + squares, np.finfo(np.float64).tiny)
    return target + share * (ratios - target), share * deviations


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
    covariance_type: CovarianceType = "spherical",
    standardize: bool = False,
    norm_bound: float | Literal["auto"] | None = None,
    neighbour_relation: NeighbourRelation = "replace",
    seed: int = 0,
) -> PrivatePlan:
    """Say what a private mixture would release, and simulate how well it would be found; no row is
    needed.

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
    covariance_type : {"spherical", "diag", "full"}
        The kind of covariances that are learnt.
    standardize : bool
        As for `TensorMixture`.
    norm_bound : float or "auto", optional
        As for `TensorMixture`. Rows are simulated in units of the bound, so that only ``"auto"``
        makes a difference.
    neighbour_relation : {"replace", "add_remove"}
        As for `TensorMixture`.
    seed : int
        Of the simulation.

    Notes
    -----
    Simulated are spheres of equal weight with means in random directions, and a bound that one row
    in a hundred exceeds. A bound that is looser by some factor costs as if there were fewer rows by
    its square. Components of real rows may be harder to find, or easier.

    Examples
    --------
    >>> from odeco.models import plan_mixture
    >>> plan_mixture(3, n_rows=20_000, n_features=5, epsilon=1.0, delta=1e-6, separation=8.0).found
    True
    """
    d = check_count("n_features", n_features)
    k, n = check_count("n_components", n_components, 1, d + 1), check_count("n_rows", n_rows, 2)
    separation, guarantee = (
        check_number("separation", separation, 0, math.inf),
        Guarantee(epsilon, delta),
    )
    check_choice("covariance_type", covariance_type, COVARIANCE_TYPES)
    size = min(n, _MAX_SIMULATED)

    def program(simulated: Simulated, rng: np.random.Generator) -> FloatArray:
        means = separation / math.sqrt(2 * d) * rng.standard_normal((k, d))
        truth = Gaussians(np.full(k, 1 / k), means, np.ones(k))
        rows, _ = truth.draw(size, rng)
        held = hold_simulated(rows, "auto" if standardize else norm_bound)
        releaser, seed = simulated(rng)
        settings: Any = {
            "covariance_type": covariance_type,
            "standardize": standardize,
            "reg_covar": 1e-6,
        }
        found, scale, _ = find_private_mixture(held, releaser, k, **settings, seed=seed)
        own = truth.posterior(rows)[0].argmax(axis=1)
        other = found.posterior(rows / scale)[0].argmax(axis=1)
        return np.array([matched_share(own, other, k)])

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
        verdict=f"{k} simulated spheres, {separation:g} deviations apart, {{expected}}: "
        f"{{mean:.0%}} of rows assigned "
        "as the true mixture assigns them",
    )
