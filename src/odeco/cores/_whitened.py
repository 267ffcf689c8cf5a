"""The components of a whitened core, which are orthonormal: all of them take the power step together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from odeco._threads import one_blas_thread
from odeco._types import FloatArray
from odeco.tensors import DenseTensor

#: Steps of all components together end when the share that they explain has not risen by this much ...
_GAIN = 1e-4
#: ... for so many steps in a row, and in any case after so many.
_PATIENCE, _MOST_STEPS = 2, 100
#: Squares of singular values down to this share of the largest come out well enough as eigenvalues.
_WELL_CONDITIONED = 1e-8
#: A component with less than this share of the largest weight is rounding error.
_LEAST_WEIGHT = 1e-10


@dataclass(frozen=True, eq=False)
class WhitenedComponents:
    """Orthonormal components of a core, as many as there are.

    Attributes
    ----------
    vectors : array, k x number of components
        The components, with signs that make weights positive.
    weights, residuals : array
        Their weights T(b, b, b), and how far their images are from weight times b.
    explained : float
        Share of the squared norm of the core that they explain.
    """

    vectors: FloatArray
    weights: FloatArray
    residuals: FloatArray
    explained: float


def decompose_whitened(
    core: FloatArray, *, seed: int, start: FloatArray | None = None, n_starts: int = 1
) -> WhitenedComponents:
    """Return the orthonormal components of a symmetric k x k x k core.

    They begin at `start`, or else at the eigenvectors of random slices, of which the one that ends with the most
    explained is kept. Algorithm 1 would find them one by one, and in a noisy tensor they come out not quite orthogonal:
    what noise did to the first is passed on to the rest. Those of a whitened moment are orthogonal, so all take the
    power step together and are replaced by the orthogonal matrix nearest to their images. On planted topics that takes
    away up to a quarter of the error, and it takes some twenty steps for any number of components.
    """
    if not core.any():
        return WhitenedComponents(np.zeros((core.shape[0], 0)), np.zeros(0), np.zeros(0), 0.0)
    tensor, rng = DenseTensor(core), np.random.default_rng(seed)
    best, vectors, images = -1.0, core[0], core[0]
    with one_blas_thread():  # for matrices this small, more threads only get in each other's way
        for _ in range(n_starts if start is None else 1):
            begun = start
            if begun is None:
                begun = np.linalg.eigh(tensor.slice(rng.standard_normal(tensor.dimension)))[1]
            found, explained = climb_together(_asking(tensor), nearest_orthogonal(begun))
            if explained > best:
                vectors, images, best = found, tensor.image(found), explained
    weights = np.sum(images * vectors, axis=0)
    residuals = np.linalg.norm(images - weights * vectors, axis=0)
    real = np.abs(weights) > _LEAST_WEIGHT * np.abs(weights).max()
    vectors = vectors * np.where(weights < 0, -1.0, 1.0)
    return WhitenedComponents(vectors[:, real], np.abs(weights[real]), residuals[real], best)


def nearest_orthogonal(matrix: FloatArray) -> FloatArray:
    """Return the matrix with orthonormal columns that is nearest to a square one."""
    squares, vectors = np.linalg.eigh(matrix.T @ matrix)
    if squares[0] > _WELL_CONDITIONED * squares[-1]:  # a third of the time of singular vectors
        nearest: FloatArray = matrix @ ((vectors / np.sqrt(squares)) @ vectors.T)
    else:
        left, _, right = np.linalg.svd(matrix, full_matrices=False)
        nearest = left @ right
    return nearest


def climb_together(
    ask: Callable[[FloatArray], tuple[FloatArray, float]], vectors: FloatArray
) -> tuple[FloatArray, float]:
    """Return the orthonormal vectors that explained most on the way uphill, and how much.

    Parameters
    ----------
    ask : callable
        Takes orthonormal vectors, one a column, and returns where the power step of each leads, with a sign that raises
        what it explains, and how much all explain together. A gain below 1e-4 counts as none.
    vectors : array, k x k
        Where they begin.
    """
    best, best_vectors, n_idle = -np.inf, vectors, 0
    for _ in range(_MOST_STEPS):
        directions, explained = ask(vectors)
        n_idle = 0 if explained > best + _GAIN else n_idle + 1
        if explained > best:
            best, best_vectors = explained, vectors
        if n_idle == _PATIENCE:
            break
        vectors = nearest_orthogonal(directions)
    return best_vectors, best


def _asking(tensor: DenseTensor) -> Callable[[FloatArray], tuple[FloatArray, float]]:
    whole = tensor.squared_norm()

    def ask(vectors: FloatArray) -> tuple[FloatArray, float]:
        images = tensor.image(vectors)
        weights = np.sum(images * vectors, axis=0)
        return images * np.where(weights < 0, -1.0, 1.0), float(weights @ weights) / whole

    return ask
