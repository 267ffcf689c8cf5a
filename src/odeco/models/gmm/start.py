"""Starts of EM: the third moment of rows, also of rows whitened within components; k-means++;
shells of rows.

The third moment gives means and weights of spheres in one pass, without a random start.

Let x have the mean μ_h with probability w_h, and noise of variance σ² in every direction. Then

- C = Cov(x) = Σ w_h (μ_h − m)(μ_h − m)ᵀ + σ² I. Its k − 1 leading eigenvectors V, of eigenvalues λ
  + σ², span the means; the others have the eigenvalue σ².
- With z = (Λ^(−1/2) Vᵀ(x − m), 1), the means of z are orthogonal: with a_h = (Λ^(−1/2) Vᵀ(μ_h − m),
  1), Σ w_h a_h a_hᵀ is the identity of size k. So b_h = √w_h a_h are orthonormal, and the last
  coordinate of b_h is √w_h.
- E[z⊗z⊗z] = Σ w_h a_h⊗a_h⊗a_h + the part of the noise. That part is Σ over the three places of t ⊗
  N, with N = diag(Λ⁻¹, 0) and t = E[r z], where r is the squared length of x − m outside of V,
  divided by d − k + 1: its mean given h is the variance of component h, so components may even
  differ in it (Hsu and Kakade 2013, arXiv:1206.5766).

The constant coordinate is what lets k means be found in k − 1 dimensions: Hsu and Kakade need k ≤
d.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.cluster import kmeans_plusplus

from odeco._util.threads import map_blocks, one_blas_thread
from odeco._util.types import FloatArray, IndexArray
from odeco.cp.small import decompose_whitened
from odeco.models.emissions.covariances import KINDS, CovarianceType
from odeco.models.emissions.gaussians import (
    Gaussians,
    GaussianStatistics,
    normalize,
    squared_norms,
    weighted_sums,
)
from odeco.models.engine.em import EMResult
from odeco.models.engine.moments import SecondMoment
from odeco.models.engine.rows import (
    blocks_of,
    column_moments,
    count_rows,
    mapped,
    observed_counts,
    split,
    times,
)
from odeco.tensors.dense import sum_of_cubes

#: A direction is amplified no more than if it had this share of the strongest.
LEAST_SHARE = 1e-3

#: No component begins with less than this share of the uniform weight.
_LEAST_WEIGHT = 0.1

#: Starts of the decomposition of the core: it is small, and further starts cost less than an EM
#: iteration.
_STARTS = 5


@dataclass(frozen=True, eq=False)
class Span:
    """The span of the means, by a second moment.

    Attributes
    ----------
    mean : array, d
        The mean of all rows.
    basis : array, d x (k − 1)
        Orthonormal directions of the means.
    strengths : array, k − 1
        The variance of the means along each.
    noise : float
        The variance around the means.
    """

    mean: FloatArray
    basis: FloatArray
    strengths: FloatArray
    noise: float

    @property
    def whitener(self) -> FloatArray:
        """V Λ^(−1/2), which takes x − m to the first coordinates of z."""
        return np.asarray(self.basis / np.sqrt(self.strengths))


def second_moment(data: Any, *, parallel: bool = False) -> SecondMoment:
    """Return the mean and covariance of rows, in two passes: differences of squares would lose
    digits.
    """
    n = count_rows(data)
    mean = (
        sum(
            map_blocks(
                lambda block: times(*split(block)).sum(axis=0), blocks_of(data), parallel=parallel
            )
        )
        / n
    )
    if np.isnan(mean).any():
        return _available_moment(*split(data))

    def scatter(block: Any) -> FloatArray:
        rows, weights = split(block)
        centred = times(rows - mean, None if weights is None else np.sqrt(weights))
        return np.asarray(centred.T @ centred)

    total = sum(map_blocks(scatter, blocks_of(data), parallel=parallel))
    return SecondMoment(np.asarray(mean), np.asarray(total), n)


def _available_moment(rows: FloatArray, weights: FloatArray | None) -> SecondMoment:
    """Return the moment of rows with missing values: observed variances, and a scatter that is one
    of rows.
    """
    n, mean = (
        len(rows) if weights is None else float(weights.sum()),
        column_moments(rows, weights)[0],
    )
    roots = np.sqrt(n / observed_counts(rows, weights))
    centred = np.where(np.isnan(rows), 0.0, rows - mean) * roots
    return SecondMoment(mean, times(centred, weights).T @ centred, n)


def span_of(moment: SecondMoment, n_components: int, least_share: float = LEAST_SHARE) -> Span:
    """Return the k − 1 directions in which rows vary most, and how much means vary there; k − 1 is
    at most d.
    """
    with one_blas_thread():
        values, vectors = np.linalg.eigh(moment.covariance)
    values, vectors, k = values[::-1], vectors[:, ::-1], n_components
    rest = values[k - 1 :]
    # With k − 1 = d no direction is noise alone: half of the least variance is a guess.
    noise = float(rest.mean()) if rest.size else 0.5 * float(values[-1])
    noise = max(noise, 0.0)
    strengths = values[: k - 1] - noise
    # Without any variance of the means, any positive number will do.
    most = float(strengths[0]) if k > 1 and strengths[0] > 0 else 1.0
    return Span(moment.mean, vectors[:, : k - 1], np.maximum(strengths, least_share * most), noise)


def third_moment(data: Any, span: Span, *, parallel: bool = False) -> FloatArray:
    """Return E[z⊗z⊗z] without the part of the noise, a symmetric k x k x k array."""
    n, d = count_rows(data), len(span.mean)
    n_outside, whitener = d - span.basis.shape[1], span.whitener

    def block_sums(block: Any) -> tuple[FloatArray, FloatArray]:
        rows, weights = split(block)
        centred = rows - span.mean
        white = np.hstack([centred @ whitener, np.ones((len(block), 1))])
        outside = squared_norms(centred) - np.square(white[:, :-1]) @ span.strengths
        variances = outside / n_outside if n_outside else np.full(len(block), span.noise)
        roots = None if weights is None else np.cbrt(weights)
        return sum_of_cubes(times(white, roots)), times(variances, weights) @ white

    total, tilt = np.zeros((whitener.shape[1] + 1,) * 3), np.zeros(whitener.shape[1] + 1)
    for cube, part in map_blocks(block_sums, blocks_of(data), parallel=parallel):
        total += cube
        tilt += part
    # The part of the noise: Σ over three places of t ⊗ N, where t = E[r z] and N = diag(Λ⁻¹, 0).
    product = np.multiply.outer(tilt / n, np.diag(np.append(1 / span.strengths, 0.0)))
    return np.asarray(
        total / n - (product + product.transpose(1, 0, 2) + product.transpose(1, 2, 0))
    )


def means_of_core(core: FloatArray, span: Span, *, seed: int) -> tuple[FloatArray, FloatArray]:
    """Return weights and means of the components of a core."""
    k = len(core)
    found = decompose_whitened(core, seed=seed, n_starts=_STARTS)
    vectors = found.vectors
    if (
        vectors.shape[1] < k
    ):  # a core of fewer components: the rest is the complement, whatever it means
        vectors = np.hstack([vectors, np.linalg.svd(vectors)[0][:, vectors.shape[1] :]])
    last = vectors[-1] * np.where(vectors[-1] < 0, -1.0, 1.0)
    signed = vectors[:-1] * np.where(vectors[-1] < 0, -1.0, 1.0)
    roots = np.maximum(last, np.sqrt(_LEAST_WEIGHT / k))
    means = span.mean + (signed / roots).T @ (span.basis * np.sqrt(span.strengths)).T
    return roots**2 / np.sum(roots**2), means


#: Iterations of k-means after the seeds of k-means++.
_ROUNDS = 10

#: Within components no direction counts as narrower than this share of the mean variance of the
#: rows.
_NARROWEST = 1e-6


@dataclass(frozen=True, eq=False)
class Start:
    """Components that all have the same covariance.

    Attributes
    ----------
    weights, means : array
        As of `Gaussians`.
    covariance : array, d x d
        The covariance around every mean.
    name : str
        Where it comes from, in words.
    """

    weights: FloatArray
    means: FloatArray
    covariance: FloatArray
    name: str

    def gaussians(self, kind: CovarianceType, floor: float | FloatArray) -> Gaussians:
        """Return the start with covariances of a kind, to which a floor is added, as in
        `Gaussians.m_step`.
        """
        return Gaussians(
            self.weights, self.means, KINDS[kind].of_matrix(self.covariance, len(self.means), floor)
        )


def can_be_spectral(n_components: int, n_features: int) -> bool:
    """Tell whether a third moment identifies k means: they span k − 1 dimensions, of which there
    are d.
    """
    return 1 < n_components <= n_features + 1


def spectral_start(
    data: Any, moment: SecondMoment, n_components: int, *, seed: int, parallel: bool = False
) -> Start:
    """Return the start that the third moment gives, for components that are spheres."""
    span = span_of(moment, n_components)
    core = third_moment(data, span, parallel=parallel)
    weights, means = means_of_core(core, span, seed=seed)
    return Start(weights, means, span.noise * np.eye(len(moment.mean)), "third moment")


def whitened_start(data: Any, moment: SecondMoment, before: Gaussians, *, seed: int) -> Start:
    """Return the start that the third moment gives after components have been made spheres, on
    average.

    Rows are mapped such that the covariance around the means of an earlier guess, which is that of
    the rows without that of these means, becomes the identity. Components that are elongated alike
    become spheres; others become more like spheres.
    """
    offsets = before.means - moment.mean
    within = moment.covariance - (offsets.T * before.weights) @ offsets
    with one_blas_thread():
        values, vectors = np.linalg.eigh(within)
    roots = np.sqrt(
        np.maximum(values, max(_NARROWEST * moment.variance, np.finfo(np.float64).tiny))
    )
    to_spheres, back = vectors / roots @ vectors.T, vectors * roots @ vectors.T
    white = mapped(data, lambda rows: (rows - moment.mean) @ to_spheres)
    start = spectral_start(white, second_moment(white), len(before.weights), seed=seed)
    return Start(
        start.weights,
        moment.mean + start.means @ back,
        back @ start.covariance @ back,
        "third moment, whitened within",
    )


def seeded_labels(data: Any, n_components: int, rng: np.random.Generator) -> IndexArray:
    """Return the clusters of a few iterations of k-means, seeded by k-means++ (Arthur and
    Vassilvitskii 2007).
    """
    seed, (at, weights) = int(rng.integers(2**31)), split(data)
    with config_context(assume_finite=True, skip_parameter_validation=True):
        centres, _ = kmeans_plusplus(
            at,
            n_components,
            sample_weight=weights,
            x_squared_norms=squared_norms(at),
            random_state=seed,
        )
    for _ in range(_ROUNDS):
        nearest = np.argmin(np.sum(centres**2, axis=1) - 2 * at @ centres.T, axis=1)
        chosen = times((nearest[:, None] == np.arange(n_components)).astype(np.float64), weights)
        counts = chosen.sum(axis=0)[:, None]
        moved = np.where(counts > 0, chosen.T @ at / np.where(counts > 0, counts, 1.0), centres)
        if np.array_equal(moved, centres):
            break
        centres = moved
    return np.asarray(nearest)


def shell_labels(data: Any, n_components: int) -> IndexArray:
    """Return k parts of equal size by the distance of rows from zero: components of one centre that
    differ in scale.
    """
    at, weights = split(data)
    order = np.argsort(squared_norms(at), kind="stable")
    sizes = np.ones(len(at)) if weights is None else weights[order]
    nearer = np.cumsum(sizes) - sizes
    labels = np.empty(len(at), np.int64)
    labels[order] = np.minimum(nearer * n_components // sizes.sum(), n_components - 1)
    return labels


def swapped_labels(shares: FloatArray, at: FloatArray, rng: np.random.Generator) -> IndexArray:
    """Return clusters in which one component is given up, and another is cut in two.

    The rows of the first go to their next component; those of the second to the nearer of two of
    them, in columns with random weights. `shares` are responsibilities, n x k.
    """
    k = shares.shape[1]
    old, cut = rng.choice(k, 2, replace=False)
    left = shares.copy()
    left[:, old] = -1.0
    labels = np.asarray(left.argmax(axis=1))
    own = np.flatnonzero(labels == cut)
    if own.size > 1:
        scaled = at[own] * rng.exponential(1.0, at.shape[1])
        one, two = scaled[rng.choice(own.size, 2, replace=False)]
        is_nearer = squared_norms(scaled - one) < squared_norms(scaled - two)
        labels[own[is_nearer]] = old
    return labels


def whitened(centred: Any, moment: SecondMoment) -> Any:
    """Return rows in coordinates in which the covariance of all rows together is the identity."""
    with one_blas_thread():
        values, vectors = np.linalg.eigh(moment.covariance)
    least = max(_NARROWEST * moment.variance, np.finfo(np.float64).tiny)
    return mapped(centred, lambda rows: rows @ (vectors / np.sqrt(np.maximum(values, least))))


def gaussians_of(
    data: Any, labels: IndexArray, like: Gaussians, floor: float | FloatArray, prior_rows: float
) -> Gaussians:
    """Return the Gaussians of clusters of rows, from which the mean of `like` was subtracted;
    `like` has the kind.

    Each cluster has `prior_rows` further rows with the covariance of all clusters: infinitely many
    give all the same.
    """
    k = len(like.weights)
    centred, weights = split(data)
    chosen = times((labels[:, None] == np.arange(k)).astype(np.float64), weights)
    squares = squared_norms(centred)
    sums = weighted_sums(centred, squares, chosen, like.kind)
    own = like.m_step(GaussianStatistics(float(count_rows(data)), 0.0, *sums, like.origin), floor)
    shared = np.sum(like.kind.per_component(own.weights) * own.covariances, axis=0)
    share = like.kind.per_component(sums[0] / (sums[0] + prior_rows))
    sizes = np.maximum(sums[0], 1.0)
    return replace(
        own, weights=sizes / sizes.sum(), covariances=share * own.covariances + (1 - share) * shared
    )


def em_together(
    data: Any, starts: list[Gaussians], floor: float | FloatArray, *, max_iter: int, tol: float
) -> list[EMResult[Gaussians]]:
    """Run EM from several starts of k components at once, each until it converges; the results are
    those of `em`.

    The components of all starts are one mixture, in which the responsibilities for a row sum to one
    for each start. An iteration takes a few operations on large arrays instead of many on small
    ones.
    """
    k, n, (rows, weights) = len(starts[0].weights), count_rows(data), split(data)
    found, running, before = (
        [EMResult(start) for start in starts],
        np.arange(len(starts)),
        np.full(len(starts), -np.inf),
    )
    shared = Gaussians(
        *(np.concatenate([getattr(each, name) for each in starts]) for name in _FIELDS)
    )
    shared = replace(shared, weights=shared.weights / len(starts))
    for n_iter in range(1, max_iter + 1):
        centred = rows - shared.origin
        squares = squared_norms(centred)
        shares, heights = normalize(shared.log_joint(centred, squares).reshape(-1, k))
        heights = times(heights.reshape(len(rows), -1), weights).sum(axis=0) / n + np.log(
            len(running)
        )
        shares = times(shares.reshape(len(rows), -1), weights)
        sums = weighted_sums(centred, squares, shares, shared.kind)
        shared = shared.m_step(GaussianStatistics(n, 0.0, *sums, shared.origin), floor)
        ended = heights - before < tol
        for place in np.flatnonzero(
            ended if n_iter < max_iter else np.ones(len(running), dtype=bool)
        ):
            own = _components(shared, [place], k)
            found[running[place]] = EMResult(own, float(heights[place]), n_iter, bool(ended[place]))
        running, before = running[~ended], heights[~ended]
        if not running.size:
            break
        if ended.any():
            shared = _components(shared, np.flatnonzero(~ended), k)
    return found


_FIELDS = ("weights", "means", "covariances")


def _components(shared: Gaussians, places: Any, k: int) -> Gaussians:
    """Return the components of the starts at some places as one mixture."""
    chosen = (np.asarray(places)[:, None] * k + np.arange(k)).ravel()
    weights = shared.weights[chosen]
    return Gaussians(weights / weights.sum(), shared.means[chosen], shared.covariances[chosen])
