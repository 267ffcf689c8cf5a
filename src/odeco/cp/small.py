"""Decompositions of a small tensor of entries, by what is known about its components.

* They are orthonormal, because the tensor is whitened: `decompose_whitened`, power steps of all
  components together.
* They are orthogonal, and the noise is strong: `decompose_noisy`, Algorithm 1 with informed starts;
  `decompose_core`, Algorithm 1 alone.
* They are linearly independent: `fit_independent`, the CP fit, where the noise lets it determine
  them; else another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from odeco._util.arguments import norm_exponent
from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray
from odeco.cp.selection import fit_rank
from odeco.cp.symmetric import SymmetricProblem, standard_errors
from odeco.errors import RankError
from odeco.power.power_method import PowerSolver, Schedule, run, step
from odeco.tensors.components import Components
from odeco.tensors.dense import SMALL_DIMENSION, DenseTensor, image_from_slabs, symmetrize

#: Steps of all components together end when the share that they explain has not risen by this much
_GAIN = 1e-4

#: in `_PATIENCE` steps in a row, and in any case after `_MAX_STEPS` steps.
_PATIENCE = 2
_MAX_STEPS = 100

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

    They begin at `start`, or else at the eigenvectors of random slices, of which the one that ends
    with the most explained is kept. Algorithm 1 would find them one by one, and in a noisy tensor
    they come out not quite orthogonal: what noise did to the first is passed on to the rest. Those
    of a whitened moment are orthogonal, so all take the power step together and are replaced by the
    orthogonal matrix nearest to their images. On planted topics that takes away up to a quarter of
    the error, and it takes some twenty steps for any number of components.
    """
    k = core.shape[0]
    rng = np.random.default_rng(seed)
    squared_norm = float(sum(np.sum(np.square(part)) for part in core))
    if not core.any():
        return WhitenedComponents(np.zeros((k, 0)), np.zeros(0), np.zeros(0), 0.0)
    if not 0 < squared_norm < math.inf:
        raise ValueError(
            "A whitened moment must be finite and not vanish. Got a squared norm of "
            f"{squared_norm}. Check the size of the data."
        )

    def ask(vectors: FloatArray) -> tuple[FloatArray, float]:
        images = _images(core, vectors)
        weights = np.sum(images * vectors, axis=0)
        return images * np.where(weights < 0, -1.0, 1.0), float(weights @ weights) / squared_norm

    best = -1.0
    vectors = core[0]
    with one_blas_thread():  # for matrices this small, more threads only get in each other's way
        for _ in range(n_starts if start is None else 1):
            begun = start
            if begun is None:
                matrix = core @ rng.standard_normal(k)
                begun = np.linalg.eigh((matrix + matrix.T) / 2)[1]
            found, explained = orthogonal_iteration(ask, nearest_orthogonal(begun))
            if explained > best:
                vectors = found
                best = explained
        images = _images(core, vectors)
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


def orthogonal_iteration(
    ask: Callable[[FloatArray], tuple[FloatArray, float]], vectors: FloatArray
) -> tuple[FloatArray, float]:
    """Return the orthonormal vectors that explained most during the iteration, and how much they
    explain.

    Parameters
    ----------
    ask : callable
        Takes orthonormal vectors, one per column. Returns the power step of each, with the sign
        that raises what it explains, and the share that all explain together. A gain below 1e-4
        counts as none.
    vectors : array, k x k
        The first vectors.
    """
    best = -np.inf
    best_vectors = vectors
    n_idle = 0
    for _ in range(_MAX_STEPS):
        directions, explained = ask(vectors)
        n_idle = 0 if explained > best + _GAIN else n_idle + 1
        if explained > best:
            best = explained
            best_vectors = vectors
        if n_idle == _PATIENCE:
            break
        vectors = nearest_orthogonal(directions)
    return best_vectors, best


def _images(core: FloatArray, vectors: FloatArray) -> FloatArray:
    """Return T(I, u, u) for every column u of k x L vectors."""
    k = core.shape[0]
    if k > SMALL_DIMENSION:
        return image_from_slabs(
            lambda start, stop: core[start:stop, :stop, :stop], vectors, core.dtype
        )
    pairs = (vectors[:, None, :] * vectors[None, :, :]).reshape(k * k, -1)
    return core.reshape(k, -1) @ pairs


#: Random starts that are tried beside the informed ones.
_RANDOM_STARTS = 12


def decompose_noisy(
    tensor: DenseTensor, n_components: int, generator: np.random.Generator
) -> Components:
    """Decompose a tensor deep in noise: Algorithm 1, with informed starts beside random ones.

    From a random start the power method needs a weight of order d times the noise of an entry. The
    leading left singular vectors of the d x d² unfolding lean towards the components from d^(3/4)
    on (Montanari and Richard 2014, arXiv 1411.1076), so Algorithm 1 inside their span gives starts
    for Algorithm 1 on the whole tensor.
    """
    d = tensor.dimension
    unfolding: FloatArray = tensor.entries.reshape(d, -1).astype(np.float64)
    basis = leading_directions(unfolding, core_width(d, n_components))
    core: FloatArray = unfolding.reshape(d, d, d)
    for _ in range(3):  # the last axis is contracted and becomes the first
        core = np.moveaxis(core @ basis, -1, 0)
    starts = basis @ decompose_core(DenseTensor(symmetrize(core)), n_components, generator).vectors
    plan = Schedule(n_components, n_components + _RANDOM_STARTS, 40, tolerance=1e-6)
    search = PowerSolver.start(plan, parts=tensor.parts, rng=generator)
    while not search.done:
        if search.iteration == 0:
            search = replace(search, probes=np.hstack([starts, search.probes[:, n_components:]]))
        search = step(tensor, search)
    return search.components


def decompose_core(
    core: DenseTensor, n_components: int, generator: np.random.Generator
) -> Components:
    """Run Algorithm 1 on a noisy core."""
    schedule = Schedule.default(core.dimension, n_components, tolerance=1e-8)
    return run(core, schedule, rng=generator).components


def leading_directions(matrix: FloatArray, width: int) -> FloatArray:
    """Return the leading left singular vectors, from the smaller Gram matrix: noise keeps that well
    conditioned.
    """
    tall = matrix.shape[1] < matrix.shape[0]
    gram: FloatArray = matrix.T @ matrix if tall else matrix @ matrix.T
    with (
        one_blas_thread()
    ):  # matrices this small are slowed down by threads that wait for each other
        leading = np.linalg.eigh(gram)[1][:, -width:]
        if tall:
            return np.linalg.qr(matrix @ leading)[0]
        return leading


#: A component is determined if its weight is this number of standard errors from zero, and its
#: vector errs by less than this angle.
_LEAST_WEIGHT_IN_ERRORS = 2.0
_MOST_ANGLE = math.pi / 4


def fit_independent(
    tensor: DenseTensor,
    n_components: int,
    seed: int,
    fallback: Callable[[DenseTensor, int, np.random.Generator], Components],
) -> Components:
    """Fit linearly independent components; if they are not determined, return what `fallback`
    finds.

    Weights that differ by more than double precision holds are not determined by least squares
    either, while the power method subtracts the large ones before it looks for the small. Deep in
    noise two components can fit it by cancelling each other, with weights that grow without bound.
    Their own standard errors say so. Orthogonal components are then the better guess.
    """
    shift = norm_exponent(tensor.squared_norm())
    try:
        scaled = DenseTensor(np.ldexp(tensor.entries, -shift))
        problem = SymmetricProblem(scaled, scaled.squared_norm())
        selection = fit_rank(problem, n_components, np.random.default_rng(seed))
    except RankError:
        return fallback(tensor, n_components, np.random.default_rng(seed))
    found = selection.fit.components
    if selection.left != "nothing":
        weight_errors, angle_errors = standard_errors(found, selection.deviation)
        determined = (np.abs(found.weights) >= _LEAST_WEIGHT_IN_ERRORS * weight_errors) & (
            angle_errors < _MOST_ANGLE
        )
        if not determined.all():
            return fallback(tensor, n_components, np.random.default_rng(seed))
    return Components(np.ldexp(found.weights, shift), found.vectors, found.order)


def core_width(dimension: int, n_components: int) -> int:
    """Return how many vectors a range finder for k components asks about: 2k + 5, or d if that is
    less.
    """
    return min(dimension, 2 * n_components + 5)
