"""Where likelihood steps start: the third moment, the same with rows whitened within components, and k-means++."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from odeco._threads import one_blas_thread
from odeco._types import FloatArray
from odeco.mixtures.gaussians import CovarianceType, Gaussians, squared_norms
from odeco.mixtures.moments import SecondMoment, means_of_core, second_moment, span_of, third_moment

#: So many rounds of nearest centres follow the seeds of k-means++.
_ROUNDS = 10
#: Within components no direction counts as narrower than this share of the mean variance of the rows.
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

    def gaussians(self, kind: CovarianceType, floor: float) -> Gaussians:
        """Return the start with covariances of a kind, to which a floor is added."""
        k, d = self.means.shape
        if kind == "spherical":
            covariances = np.full(k, np.trace(self.covariance) / d + floor)
        elif kind == "diag":
            covariances = np.tile(np.diag(self.covariance) + floor, (k, 1))
        else:
            covariances = np.tile(self.covariance + floor * np.eye(d), (k, 1, 1))
        return Gaussians(self.weights, self.means, covariances)


def can_be_spectral(n_components: int, n_features: int) -> bool:
    """Tell whether k means can be told from a third moment: they span k − 1 dimensions, of which there are d."""
    return 1 < n_components <= n_features + 1


def spectral_start(
    rows: FloatArray, moment: SecondMoment, n_components: int, *, seed: int, parallel: bool = False
) -> Start:
    """Return what the third moment says, for components that are spheres."""
    span = span_of(moment, n_components)
    core = third_moment(rows, span, parallel=parallel)
    weights, means = means_of_core(core, span, seed=seed)
    return Start(weights, means, span.noise * np.eye(len(moment.mean)), "third moment")


def whitened_start(rows: FloatArray, moment: SecondMoment, before: Gaussians, *, seed: int) -> Start:
    """Return what the third moment says once components have been made spheres, on average.

    The covariance around the means of an earlier guess, which is that of the rows without that of these means, is taken
    to the identity. Elongated components that all lie in one direction become spheres; others come nearer to it.
    """
    within = covariance_within(moment, before)
    with one_blas_thread():
        values, vectors = np.linalg.eigh(within)
    roots = np.sqrt(np.maximum(values, max(_NARROWEST * moment.variance, np.finfo(np.float64).tiny)))
    to_spheres, back = vectors / roots @ vectors.T, vectors * roots @ vectors.T
    white = (rows - moment.mean) @ to_spheres
    start = spectral_start(white, second_moment(white), len(before.weights), seed=seed)
    return Start(
        start.weights, moment.mean + start.means @ back, back @ start.covariance @ back, "third moment, whitened within"
    )


def covariance_within(moment: SecondMoment, model: Gaussians) -> FloatArray:
    """Return the covariance of rows without that of the means of their components."""
    offsets = model.means - moment.mean
    within: FloatArray = moment.covariance - (offsets.T * model.weights) @ offsets
    return within


def seeded_start(rows: FloatArray, moment: SecondMoment, n_components: int, rng: np.random.Generator) -> Start:
    """Return the clusters of nearest centres, seeded by k-means++ (Arthur and Vassilvitskii 2007)."""
    centred = rows - moment.mean
    squares = squared_norms(centred)
    centres = _seeds(centred, squares, n_components, rng)
    counts = np.ones(n_components)
    for _ in range(_ROUNDS):
        nearest = np.argmin(np.sum(centres**2, axis=1) - 2 * centred @ centres.T, axis=1)
        chosen = (nearest[:, None] == np.arange(n_components)).astype(np.float64)
        counts = chosen.sum(axis=0)
        moved = np.where(counts[:, None] > 0, chosen.T @ centred / np.maximum(counts, 1.0)[:, None], centres)
        if np.array_equal(moved, centres):
            break
        centres = moved
    weights = np.maximum(counts, 1.0) / np.maximum(counts, 1.0).sum()
    spread = np.maximum(squares.mean() - weights @ np.sum(centres**2, axis=1), 0.0) / rows.shape[1]
    return Start(weights, moment.mean + centres, spread * np.eye(rows.shape[1]), "nearest centres")


def _seeds(centred: FloatArray, squares: FloatArray, n_components: int, rng: np.random.Generator) -> FloatArray:
    """Choose rows far from those chosen before; each time the best of some that are drawn by squared distance."""
    n_candidates = 2 + int(np.log(n_components))
    centres = [centred[rng.integers(len(centred))]]
    distances = _distances(centred, squares, centres[0][None])[:, 0]
    for _ in range(1, n_components):
        heights = np.cumsum(distances)
        drawn = np.searchsorted(heights, rng.random(n_candidates) * heights[-1])
        drawn = np.minimum(drawn, len(centred) - 1)
        nearer = np.minimum(distances[:, None], _distances(centred, squares, centred[drawn]))
        best = int(np.argmin(nearer.sum(axis=0)))
        centres.append(centred[drawn[best]])
        distances = nearer[:, best]
    return np.stack(centres)


def _distances(centred: FloatArray, squares: FloatArray, centres: FloatArray) -> FloatArray:
    distances: FloatArray = np.maximum(squares[:, None] - 2 * centred @ centres.T + np.sum(centres**2, axis=1), 0.0)
    return distances
