"""Where the fit starts: all components at once, in the span of the tensor.

*Halfway whitened.* The unfolding of Σ λᵢ aᵢ⊗ᵖ has M Mᵀ = A (λλᵀ ∘ Gᵖ⁻¹) Aᵀ, with the Gram matrix G of the aᵢ.
Coordinates divided by its singular values would make nearly parallel aᵢ nearly orthogonal, and would multiply the noise
in the weakest directions by as much; divided by their roots they do the one well enough and the other far less. There
the power steps of many vectors, all at once, end near components that least squares takes home.

*A pencil.* Two random slices are A D Aᵀ and A E Aᵀ with diagonal D and E, so that the aᵢ are the eigenvectors of
(A D Aᵀ)(A E Aᵀ)⁻¹ = A D E⁻¹ A⁻¹, whatever the signs of the weights (Harshman 1972; Leurgans, Ross and Abel 1993). Noise
mixes those whose eigenvalues lie close, which of many components some always do.

*An exchange.* Of a fit that went wrong, the weakest components give way to stronger ones in what it leaves.

None is always right, so they take turns until two fits agree.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy  # it imports its submodules when they are used

from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray
from odeco.cp.gauss_newton import Fit, refine
from odeco.cp.whitening import Whitened, Whitener
from odeco.power.iteration import normalise
from odeco.tensors.components import Components
from odeco.tensors.dense import DenseTensor, symmetrize
from odeco.tensors.oracle import Oracle

#: Starts that are tried at most.
_MOST_STARTS = 9

#: Steps of least squares from a start.
START_STEPS, START_SHARE = 40, 1e-3

#: Fits whose misfits differ by less than this share are the same.
_SAME = 1e-4

#: A core with more entries than this is not formed.
_MOST_ENTRIES = 2**25

#: A component starts with at least this share of the largest weight, because one of weight zero would never move.
_LEAST_WEIGHT = 1e-2

#: Halfway whitening takes no direction for weaker than this share of the strongest.
_LEAST_STRENGTH = 1e-8

#: Power steps begin at the eigenvectors of so many random slices, and at as many random vectors. Nearly orthogonal
#: components are reached in about log₂ log₂ of the precision plus log₂ k steps.
SLICES, _POWER_STEPS = 2, 20

#: Vectors whose cosine is above this are at, or on their way to, the same component.
_CLOSE = 0.9


def fit_in_span(
    oracle: Oracle, basis: FloatArray, strengths: FloatArray, generator: np.random.Generator, *, whole: float
) -> Fit:
    """Return the best fit of k components, started in the span of k directions with the given strengths.

    `whole` is the squared norm of the tensor, or an estimate.
    """
    reduced = _reduced(oracle, basis)
    known = reduced.squared_norm()
    inside_whole = whole if known is None else known

    def fit_from(start: Components) -> Fit:
        return refine(reduced, start, whole=inside_whole, share=START_SHARE, most_steps=START_STEPS)

    inside = best_of_starts(
        fit_from(_whitened_start(reduced, strengths, generator)),
        lambda attempt, best: fit_from(_next_start(attempt, reduced, strengths, best, generator)),
        whole=inside_whole,
    ).components
    return refine(oracle, Components(inside.weights, basis @ inside.vectors, oracle.order), whole=whole)


def best_of_starts(best: Fit, following: Callable[[int, Fit], Fit], *, whole: float) -> Fit:
    """Return the best of several fits: those that follow the first one, until two agree or one leaves nothing."""
    for attempt in range(1, _MOST_STARTS):
        if whole - best.explained <= _SAME**2 * whole:
            break
        found = following(attempt, best)
        agreed = abs(found.explained - best.explained) <= _SAME * abs(whole - found.explained)
        best = found if found.explained > best.explained else best
        if agreed:
            break
    return best


def _next_start(
    attempt: int, reduced: Oracle, strengths: FloatArray, best: Fit, generator: np.random.Generator
) -> Components:
    if attempt % 3 == 1:
        return _exchanged(reduced, best.components, generator)
    if attempt % 3 == 2:
        return _whitened_start(reduced, strengths, generator)
    return _pencil_start(reduced, generator)


def _exchanged(reduced: Oracle, components: Components, generator: np.random.Generator) -> Components:
    """Return components with the weakest exchanged for stronger ones that are still in what they leave."""
    width = reduced.dimension
    left = reduced - components
    new = climbed(left, generator.standard_normal((width, 2 * SLICES * width)), most=width)
    gains = np.abs(left.value(new))
    return _with_weights(reduced, exchange(components.vectors, removal_costs(components), new, gains))


def exchange(vectors: FloatArray, costs: FloatArray, new: FloatArray, gains: FloatArray) -> FloatArray:
    """Return vectors with those that are cheapest to leave out exchanged for new ones that gain more."""
    weakest = np.argsort(costs)
    count = max(1, int(np.sum(gains > np.sqrt(costs[weakest[: gains.size]]))))
    return np.hstack([np.delete(vectors, weakest[:count], axis=1), new[:, :count]])


def removal_costs(components: Components) -> FloatArray:
    """Return by how much the squared misfit grows if a component is left out and the other weights are fitted anew.

    With the Gram matrix Γ = Gᵖ of the vᵢ⊗ᵖ, powers taken entry by entry, it is λᵢ² over the diagonal of Γ⁻¹.
    """
    with one_blas_thread():
        gram: FloatArray = components.vectors.T @ components.vectors
        inverse = np.linalg.pinv(gram**components.order, hermitian=True)
    costs: FloatArray = components.weights**2 / np.diagonal(inverse)
    return costs


def fitted_weights(oracle: Oracle, vectors: FloatArray) -> FloatArray:
    """Return the weights that fit best for given unit vectors."""
    with one_blas_thread():
        gram: FloatArray = vectors.T @ vectors
        weights: FloatArray = scipy.linalg.lstsq(gram**oracle.order, oracle.value(vectors), cond=1e-12)[0]
    return weights


def _reduced(oracle: Oracle, basis: FloatArray) -> Oracle:
    """Return the tensor in the coordinates of an orthonormal basis, as entries if they are few enough."""
    if basis.shape[1] ** oracle.order > _MOST_ENTRIES:
        return Whitened(oracle, Whitener(basis, basis))
    return DenseTensor(symmetrize(oracle.inside(basis)))


def _whitened_start(reduced: Oracle, strengths: FloatArray, generator: np.random.Generator) -> Components:
    """Return what the power steps of many vectors end at, in coordinates that are whitened halfway."""
    width = reduced.dimension
    scales = halfway(strengths)
    whitened = _reduced_by(reduced, scales)
    with one_blas_thread():
        leading = [np.linalg.eigh(whitened.slice(generator.standard_normal(width)))[1] for _ in range(SLICES)]
    block = np.hstack([*leading, generator.standard_normal((width, SLICES * width))])
    distinct = climbed(whitened, block, most=width)
    filled = np.hstack([distinct, leading[0][:, : width - distinct.shape[1]]])
    return _with_weights(reduced, scales[:, None] * filled)


def halfway(strengths: FloatArray) -> FloatArray:
    """Return by what the coordinates of directions with these strengths are divided to be whitened halfway."""
    scales: FloatArray = np.sqrt(np.maximum(strengths / strengths[0], _LEAST_STRENGTH))
    return scales


def climbed(oracle: Oracle, block: FloatArray, *, most: int) -> FloatArray:
    """Return what vectors end at after power steps, each once, at most `most` of them, the largest values first."""
    block = normalise(block, oracle.parts, block)
    for _ in range(_POWER_STEPS):
        block = normalise(oracle.image(block), oracle.parts, block)
    block = block[:, np.argsort(-np.abs(oracle.value(block)), kind="stable")]
    pieces = np.split(block, np.cumsum(oracle.parts)[:-1])
    close = np.logical_and.reduce([np.abs(piece.T @ piece) * len(pieces) > _CLOSE for piece in pieces])
    kept: list[int] = []
    for index in range(block.shape[1]):
        if len(kept) < most and not np.any(close[index, kept]):
            kept.append(index)
    return block[:, kept]


def _reduced_by(reduced: Oracle, scales: FloatArray) -> Oracle:
    """Return the tensor in coordinates that are divided by `scales`."""
    if not isinstance(reduced, DenseTensor):
        return Whitened(reduced, Whitener(np.diag(1 / scales), np.diag(scales)))
    entries = reduced.entries
    for axis in range(reduced.order):
        entries = entries / scales.reshape((-1,) + (1,) * (reduced.order - 1 - axis))
    return DenseTensor(symmetrize(entries))


def _pencil_start(reduced: Oracle, generator: np.random.Generator) -> Components:
    """Return components that solve the eigenvalue problem of a random pencil of slices."""
    first, second = (reduced.slice(generator.standard_normal(reduced.dimension)) for _ in range(2))
    with one_blas_thread():
        quotient = scipy.linalg.lstsq(second, first)[0].T
        vectors = real_eigenvectors(quotient)
    return _with_weights(reduced, vectors)


def real_eigenvectors(matrix: FloatArray) -> FloatArray:
    """Return eigenvectors, of which noise makes pairs of complex ones. Each pair spans two real directions."""
    vectors = np.linalg.eig(matrix)[1]
    return np.where(np.signbit(vectors.imag), vectors.real - vectors.imag, vectors.real)


def _with_weights(reduced: Oracle, directions: FloatArray) -> Components:
    lengths = np.linalg.norm(directions, axis=0)
    vectors = np.where(lengths > 0, directions / np.where(lengths > 0, lengths, 1.0), np.eye(*directions.shape))
    return Components(movable(fitted_weights(reduced, vectors)), vectors, reduced.order)


def movable(weights: FloatArray) -> FloatArray:
    """Return weights of which none is so small that its component would never move."""
    least = _LEAST_WEIGHT * max(float(np.max(np.abs(weights))), np.finfo(np.float64).tiny)
    return np.where(weights < 0, np.minimum(weights, -least), np.maximum(weights, least))
