"""Where the fit starts: all components at once, from a pencil of two slices, or one more, from what is left.

Two random slices of Σ λᵢ aᵢ⊗ᵖ are A D Aᵀ and A E Aᵀ with diagonal D and E. If the aᵢ are independent, they are the
eigenvectors of (A D Aᵀ)(A E Aᵀ)⁻¹ = A D E⁻¹ A⁻¹, whatever the signs of the weights (Harshman 1972; Leurgans, Ross and
Abel 1993). Noise spoils some of them where eigenvalues lie close. That is why a start is only a start: least squares
comes after it, and the best of a few pencils is taken.
"""

from __future__ import annotations

import numpy as np
import scipy  # it imports its submodules when they are used

from odeco._threads import one_blas_thread
from odeco._types import FloatArray
from odeco.components import Components
from odeco.fit._gauss_newton import Fit, refine
from odeco.oracle import Oracle
from odeco.search import Plan, run
from odeco.tensors import DenseTensor, symmetrize
from odeco.whitening import Whitened, Whitener

#: Pencils that are tried at most. Two that lead to the same fit are enough.
_MOST_PENCILS = 5
#: Fits whose misfits differ by less than this share are the same.
_SAME = 1e-4
#: A core with more entries than this is not formed.
_MOST_ENTRIES = 2**25
#: A component starts with at least this share of the largest weight, because one of weight zero would never move.
_LEAST_WEIGHT = 1e-2
#: Restarts, and the most steps, of the search for one more component in what is left.
_RESTARTS, _ITERATIONS = 12, 60


def fit_in_span(
    oracle: Oracle, basis: FloatArray, strengths: FloatArray, generator: np.random.Generator, *, whole: float
) -> Fit:
    """Return the best fit of as many components as the basis has columns, started inside its span.

    `whole` is the squared norm of the tensor, or an estimate.
    """
    reduced = _reduced(oracle, basis)
    floor = _SAME * max(0.0, _squared_norm(reduced, whole))
    best: Fit | None = None
    for _ in range(_MOST_PENCILS):
        found = refine(reduced, _pencil_start(reduced, strengths, generator), tolerance=1e-6)
        agreed = best is not None and abs(found.explained - best.explained) <= _SAME * abs(whole - found.explained)
        if best is None or found.explained > best.explained:
            best = found
        if agreed or _squared_norm(reduced, whole) - best.explained <= floor * 1e-6:
            break
    assert best is not None
    inside = best.components
    return refine(oracle, Components(inside.weights, basis @ inside.vectors, oracle.order))


def strongest_left(oracle: Oracle, components: Components, generator: np.random.Generator) -> Components:
    """Return the strongest single component of what `components` leave of a tensor, found by the paper's loop."""
    return run(oracle - components, Plan(1, _RESTARTS, _ITERATIONS, 1e-4), rng=generator).components


def joined(first: Components, second: Components) -> Components:
    """Return the components of both."""
    weights = np.concatenate([first.weights, second.weights])
    return Components(weights, np.concatenate([first.vectors, second.vectors], axis=1), first.order)


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
    return DenseTensor(symmetrize(oracle.core(basis)))


def _squared_norm(oracle: Oracle, otherwise: float) -> float:
    known = oracle.squared_norm()
    return otherwise if known is None else known


def _pencil_start(reduced: Oracle, strengths: FloatArray, generator: np.random.Generator) -> Components:
    """Return components that solve the eigenvalue problem of a random pencil of slices.

    In coordinates divided by the strengths of their directions, components are nearly orthogonal even if they all lean
    to one side: with the Gram matrix G of the λᵢaᵢ the unfolding gives M Mᵀ = A (G ∘ …) Aᵀ, and dividing by it
    """
    width = reduced.dimension
    first, second = (_random_slice(reduced, strengths, generator) for _ in range(2))
    with one_blas_thread():
        quotient = scipy.linalg.lstsq(second.T, first.T, cond=None)[0].T
        vectors = strengths[:, None] * np.linalg.eig(quotient)[1]
    # A pair of complex vectors spans two real directions.
    real = np.where(np.arange(width) % 2 == 0, vectors.real, vectors.real + vectors.imag)
    lengths = np.linalg.norm(real, axis=0)
    real = np.where(lengths > 0, real, generator.standard_normal(real.shape))
    real /= np.linalg.norm(real, axis=0)
    weights = fitted_weights(reduced, real)
    least = _LEAST_WEIGHT * max(float(np.max(np.abs(weights))), np.finfo(np.float64).tiny)
    weights = np.where(weights < 0, np.minimum(weights, -least), np.maximum(weights, least))
    return Components(weights, real, reduced.order)


def _random_slice(reduced: Oracle, strengths: FloatArray, generator: np.random.Generator) -> FloatArray:
    """Return T(I, I, θ, …) for random directions."""
    if not isinstance(reduced, DenseTensor):
        matrix = slice_matrix(reduced, generator.standard_normal(reduced.dimension) / strengths)
    else:
        matrix: FloatArray = reduced.entries
        for _ in range(reduced.order - 2):
            matrix = matrix @ (generator.standard_normal(reduced.dimension) / strengths)
    return matrix / strengths[:, None] / strengths
