"""Where the fit of an asymmetric tensor starts: as in `_starts`, with a span for each axis.

In the spans the tensor is a core of k x k x … entries. Halfway whitened, it has nearly orthogonal terms, which power
steps of all factors find. Of a pencil, two random slices A D Bᵀ and A E Bᵀ give A, and what A⁻¹ makes of the unfolding
has one term in each row, b ⊗ c ⊗ …, whose vectors are the leading ones of its own unfoldings.
"""

from __future__ import annotations

import numpy as np
import scipy  # it imports its submodules when they are used

from odeco._threads import one_blas_thread
from odeco._types import DataArray, FloatArray
from odeco.components import Components
from odeco.fit._gauss_newton import Fit
from odeco.fit._starts import (
    SLICES,
    START_SHARE,
    START_STEPS,
    best_of_starts,
    climbed,
    exchange,
    halfway,
    movable,
    real_eigenvectors,
)
from odeco.fit._terms import (
    as_terms,
    factors_of,
    fitted_term_weights,
    left_by,
    refine_terms,
    term_removal_costs,
    values_of,
)
from odeco.search import normalise
from odeco.tensors import AsymmetricTensor


def fit_terms_in_spans(
    tensor: AsymmetricTensor,
    rank: int,
    leading: list[tuple[FloatArray, FloatArray]],
    generator: np.random.Generator,
    *,
    whole: float,
) -> Fit:
    """Return the best fit of `rank` terms, started in the span of the leading directions of each axis."""
    bases, strengths = [basis for basis, _ in leading], [strength for _, strength in leading]
    core = AsymmetricTensor(_inside(tensor.entries, bases))
    core_whole = float(np.vdot(core.entries, core.entries))
    scales = [halfway(strength) for strength in strengths]

    def fit_from(start: Components) -> Fit:
        return refine_terms(core, start, whole=core_whole, share=START_SHARE, most_steps=START_STEPS)

    def following(attempt: int, best: Fit) -> Fit:
        if attempt % 3 == 1:
            return fit_from(_exchanged(core, best.components, generator))
        if attempt % 3 == 2:
            return fit_from(_whitened_start(core, rank, scales, generator))
        return fit_from(_pencil_start(core, rank, attempt // 3 - 1, generator))

    first = fit_from(_whitened_start(core, rank, scales, generator))
    best = best_of_starts(first, following, whole=core_whole).components
    with one_blas_thread():
        factors = [basis @ factor for basis, factor in zip(bases, factors_of(best, core.parts), strict=True)]
    return refine_terms(tensor, as_terms(factors, best.weights), whole=whole)


def _inside(entries: DataArray, matrices: list[FloatArray]) -> DataArray:
    """Return T(Q₁, Q₂, …)."""
    with one_blas_thread():
        for matrix in matrices:  # each product puts its axis last, so that after all of them the order is the old one
            entries = np.tensordot(entries, matrix, axes=(0, 0))
    return entries


def _whitened_start(
    core: AsymmetricTensor, rank: int, scales: list[FloatArray], generator: np.random.Generator
) -> Components:
    """Return what the power steps of many vectors end at, in coordinates that are whitened halfway."""
    whitened = AsymmetricTensor(_inside(core.entries, [np.diag(1 / scale) for scale in scales]))
    paired = [_pairs(whitened, rank, generator) for _ in range(SLICES)]
    block = np.hstack([*paired, generator.standard_normal((core.dimension, SLICES * rank))])
    distinct = climbed(whitened, block, most=rank)
    filled = np.hstack([distinct, paired[0][:, : rank - distinct.shape[1]]])
    return _with_weights(core, np.concatenate(scales)[:, None] * filled, generator)


def _pairs(tensor: AsymmetricTensor, rank: int, generator: np.random.Generator) -> FloatArray:
    """Return vectors along two axes that belong together in a random slice, and random ones along the others."""
    first, second, *others = (int(axis) for axis in generator.permutation(tensor.order))
    entries = np.moveaxis(tensor.entries, [*others, first, second], range(tensor.order))
    left, right = _singular_vectors(_random_slice(entries, tensor.order - 2, generator))
    pieces = [generator.standard_normal((size, rank)) for size in tensor.parts]
    width = min(rank, left.shape[1])
    pieces[first][:, :width], pieces[second][:, :width] = left[:, :width], right[:, :width]
    return np.concatenate(pieces)


def _random_slice(entries: DataArray, n_axes: int, generator: np.random.Generator) -> DataArray:
    """Contract the first axes with random vectors."""
    with one_blas_thread():
        for _ in range(n_axes):
            entries = np.tensordot(generator.standard_normal(entries.shape[0]), entries, axes=(0, 0))
    return entries


def _singular_vectors(matrix: DataArray) -> tuple[DataArray, DataArray]:
    with one_blas_thread():
        left, _, right = np.linalg.svd(matrix, full_matrices=False)
    return left, right.T


def _exchanged(core: AsymmetricTensor, terms: Components, generator: np.random.Generator) -> Components:
    """Return terms with the weakest exchanged for stronger ones that are still in what they leave."""
    rank, left = terms.n_components, left_by(core, terms)
    new = climbed(left, generator.standard_normal((core.dimension, 2 * SLICES * rank)), most=rank)
    gains = np.abs(values_of(left, new))
    vectors = exchange(terms.vectors, term_removal_costs(terms, core.parts), new, gains)
    return _with_weights(core, vectors, generator)


def _pencil_start(core: AsymmetricTensor, rank: int, turn: int, generator: np.random.Generator) -> Components:
    """Return terms from a random pencil; its eigenvectors are those along one of the axes that have `rank` of them."""
    full = [axis for axis, size in enumerate(core.parts) if size == rank]
    axis = full[turn % len(full)]
    entries: DataArray = np.moveaxis(core.entries, axis, 0)  # the last two axes stay open: the chosen one, and one more
    slices = [_random_slice(np.moveaxis(entries, 0, -1), core.order - 2, generator).T for _ in range(2)]
    with one_blas_thread():
        quotient = scipy.linalg.lstsq(slices[1].T, slices[0].T)[0].T
        own = real_eigenvectors(quotient)
        rows = scipy.linalg.lstsq(own, entries.reshape(rank, -1))[0].reshape(rank, *entries.shape[1:])
        others = []
        for other in range(1, core.order):
            unfolded = np.moveaxis(rows, other, 1).reshape(rank, rows.shape[other], -1)
            others.append(np.linalg.eigh(unfolded @ unfolded.transpose(0, 2, 1))[1][:, :, -1].T)
    others.insert(axis, own)
    return _with_weights(core, np.concatenate(others), generator)


def _with_weights(core: AsymmetricTensor, directions: FloatArray, generator: np.random.Generator) -> Components:
    """Return terms in given directions, random where there is none, with the weights that fit best."""
    random = generator.standard_normal(directions.shape)
    vectors = normalise(directions, core.parts, random)
    return Components(movable(fitted_term_weights(core, vectors)), vectors, core.order)
