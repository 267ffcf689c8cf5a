"""Starts of EM: the third moment of rows, and k-means++.

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

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.cluster import kmeans_plusplus

from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray, IndexArray
from odeco.cp.small import decompose_whitened
from odeco.models.emissions.parts import squared_norms
from odeco.models.engine.moments import SecondMoment
from odeco.models.engine.rows import blocks_of, count_rows, split, times
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


def third_moment(data: Any, span: Span) -> FloatArray:
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
    for cube, part in map(block_sums, blocks_of(data)):
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


def can_be_spectral(n_components: int, n_features: int) -> bool:
    """Tell whether a third moment identifies k means: they span k − 1 dimensions, of which there
    are d.
    """
    return 1 < n_components <= n_features + 1


def spectral_start(
    data: Any, n_components: int, *, seed: int
) -> tuple[FloatArray, FloatArray, float]:
    """Return weights, means and the variance around them that the third moment gives, for
    components that are spheres.
    """
    span = span_of(SecondMoment.of_block(data), n_components)
    weights, means = means_of_core(third_moment(data, span), span, seed=seed)
    return weights, means, span.noise


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
