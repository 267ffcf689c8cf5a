"""The best fit of an asymmetric tensor: all terms λ a ⊗ b ⊗ … moved together to the least-squares optimum.

A term is held as a component with the weight λ and the unit vector (a, b, …)/√p, as the symmetric embedding has it.
With xᵢ = λᵢ^(1/p) aᵢ, yᵢ = λᵢ^(1/p) bᵢ, … the misfit is ½‖T − Σ xᵢ ⊗ yᵢ ⊗ …‖². Its gradient takes one image. For its
Gauss-Newton matrix let G₁, G₂, … be the Gram matrices of the xᵢ, the yᵢ, …, and W₍ₘ₎, W₍ₘₙ₎ the products, entry by
entry, of all of them without the m-th, and without the m-th and the n-th. Then, for the steps Δ₁ of the xᵢ and so on,

    H(Δ)₁ = Δ₁ W₍₁₎ + X Σₙ W₍₁ₙ₎ ∘ (Δₙᵀ Xₙ),   n = 2, …, p,

and so for every axis. A factor can be made longer and another one shorter in proportion, which changes nothing: steps
of conjugate gradients do not go there.

Where the fit of an asymmetric tensor starts: as in `_starts`, with a span for each axis.

In the spans the tensor is a core of k x k x … entries. Halfway whitened, it has nearly orthogonal terms, which power
steps of all factors find. Of a pencil, two random slices A D Bᵀ and A E Bᵀ give A, and what A⁻¹ makes of the unfolding
has one term in each row, b ⊗ c ⊗ …, whose vectors are the leading ones of its own unfoldings.

How many terms an asymmetric tensor has: the judgement of `_judgement`, with an unfolding for each axis.
"""

from __future__ import annotations

import math

import numpy as np
import scipy  # it imports its submodules when they are used

from odeco._util.threads import one_blas_thread
from odeco._util.types import DataArray, FloatArray
from odeco.cp.gauss_newton import NEGLIGIBLE, Fit, descend
from odeco.cp.rank import ProductNoise
from odeco.cp.selection import CPFits, Report
from odeco.cp.spectrum import Spectra, spectra_of_axes
from odeco.cp.starts import (
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
from odeco.power.iteration import normalise
from odeco.power.joint_step import conjugate_gradients
from odeco.power.schedule import Plan
from odeco.power.solver import run
from odeco.tensors.asymmetric import AsymmetricTensor
from odeco.tensors.components import Components
from odeco.tensors.oracle import Oracle

#: Up to so many unknowns the step is solved for directly, which is then faster than conjugate gradients.
_MOST_DIRECT = 500

#: The least share of its own scale by which every step is damped: along what can be shifted between factors, H is zero.
_LEAST_DAMPING = 1e-9


def refine_terms(
    tensor: AsymmetricTensor,
    start: Components,
    *,
    whole: float,
    share: float = NEGLIGIBLE,
    most_steps: int = 60,
) -> Fit:
    """Move terms to the nearest least-squares optimum; parameters are those of `refine`."""
    parts, order = tensor.parts, tensor.order
    repeats = math.factorial(order - 1)
    end = descend(
        _as_points(start, parts),
        lambda points: tensor.image(points) / repeats,
        lambda points, images: _gain(points, images, parts),
        lambda points, images, damping: _step(points, images, parts, damping),
        negligible=share / math.prod(parts),
        rounding=tensor.rounding,
        whole=whole,
        most_steps=most_steps,
    )
    terms = as_terms(split(end.points, parts))
    left = tensor.image(terms.vectors * math.sqrt(order)) / repeats - _own_images(terms, parts)
    residuals = np.linalg.norm(left, axis=0) / math.sqrt(order)
    return Fit(terms, end.gain, residuals, end.history)


def split(vectors: FloatArray, parts: tuple[int, ...]) -> list[FloatArray]:
    """Return the pieces of vectors, one matrix for each axis."""
    return np.split(vectors, np.cumsum(parts)[:-1])


def factors_of(terms: Components, parts: tuple[int, ...]) -> list[FloatArray]:
    """Return the unit vectors of terms, one matrix for each axis."""
    return split(terms.vectors * math.sqrt(len(parts)), parts)


def as_terms(pieces: list[FloatArray], weights: FloatArray | None = None) -> Components:
    """Return terms from vectors along each axis; unless weights are given, they are the products of the lengths."""
    lengths = [np.linalg.norm(piece, axis=0) for piece in pieces]
    units = [piece / np.where(length > 0, length, 1.0) for piece, length in zip(pieces, lengths, strict=True)]
    weights = np.prod(lengths, axis=0) if weights is None else weights
    return Components(weights, np.concatenate(units) / math.sqrt(len(pieces)), len(pieces))


def entries_of(terms: Components, parts: tuple[int, ...]) -> FloatArray:
    """Return the sum of terms as an array."""
    first, *others = factors_of(terms, parts)
    last = others.pop()
    products = first * terms.weights
    with one_blas_thread():
        for factor in others:
            products = (products[:, None, :] * factor).reshape(products.shape[0] * factor.shape[0], terms.n_components)
        total: FloatArray = (products @ last.T).reshape(parts)
    return total


def left_by(tensor: AsymmetricTensor, terms: Components) -> AsymmetricTensor:
    """Return what terms leave of a tensor."""
    return AsymmetricTensor(tensor.entries - entries_of(terms, tensor.parts))


def explained_by_terms(tensor: Oracle, terms: Components) -> float | None:
    """Return 1 − ‖T − C‖² / ‖T‖² for an embedded tensor T and terms C, or None if the norm is not known."""
    whole = tensor.squared_norm()
    if whole is None:
        return None
    weights = terms.weights
    inner = float(weights @ values_of(tensor, terms.vectors))
    squared = float(weights @ gram_of_terms(terms.vectors, tensor.parts) @ weights)
    return (2 * inner - squared) * math.factorial(tensor.order) / whole


def values_of(tensor: Oracle, vectors: FloatArray) -> FloatArray:
    """Return T(a, b, …) for the unit vectors (a, b, …)/√p of an embedded tensor."""
    values: FloatArray = tensor.value(vectors) * tensor.order ** (tensor.order / 2) / math.factorial(tensor.order)
    return values


def gram_of_terms(vectors: FloatArray, parts: tuple[int, ...]) -> FloatArray:
    """Return the inner products of the a ⊗ b ⊗ …."""
    with one_blas_thread():
        return _product([len(parts) * (piece.T @ piece) for piece in split(vectors, parts)])


def term_removal_costs(terms: Components, parts: tuple[int, ...]) -> FloatArray:
    """Return by how much the squared misfit grows if a term is left out and the other weights are fitted anew."""
    with one_blas_thread():
        inverse = np.linalg.pinv(gram_of_terms(terms.vectors, parts), hermitian=True)
    costs: FloatArray = terms.weights**2 / np.diagonal(inverse)
    return costs


def fitted_term_weights(tensor: AsymmetricTensor, vectors: FloatArray) -> FloatArray:
    """Return the weights that fit best for given unit vectors (a, b, …)/√p."""
    with one_blas_thread():
        gram = gram_of_terms(vectors, tensor.parts)
        weights: FloatArray = scipy.linalg.lstsq(gram, values_of(tensor, vectors), cond=1e-12)[0]
    return weights


def term_angle_errors(terms: Components, parts: tuple[int, ...], deviation: float) -> list[FloatArray]:
    """Return for each axis the standard errors of the vectors, as angles in radians, at most π/2.

    They are those of a fit in which the other factors are known: what the error of one factor does to another is
    neglected. Between orthogonal terms there is no such effect, and across the span of the terms there never is.
    """
    pieces = split(_as_points(terms, parts), parts)
    errors = []
    with one_blas_thread():
        grams = [piece.T @ piece for piece in pieces]
        for axis, gram in enumerate(grams):
            inverse = np.linalg.pinv(_product(grams, axis), hermitian=True)
            turned = (parts[axis] - 1) * np.maximum(np.diagonal(inverse), 0.0) / np.diagonal(gram)
            errors.append(np.minimum(deviation * np.sqrt(turned), math.pi / 2))
    return errors


def _as_points(terms: Components, parts: tuple[int, ...]) -> FloatArray:
    """Return vectors whose pieces have the p-th root of the weight as their length; the first one takes the sign."""
    order = len(parts)
    points = terms.vectors * math.sqrt(order) * np.abs(terms.weights) ** (1 / order)
    points[: parts[0]] *= np.where(terms.weights < 0, -1.0, 1.0)
    return points


def _product(grams: list[FloatArray], *but: int) -> FloatArray:
    """Return the product of matrices, entry by entry, without some."""
    result: FloatArray = np.prod([gram for axis, gram in enumerate(grams) if axis not in but], axis=0)
    return result


def _own_images(terms: Components, parts: tuple[int, ...]) -> FloatArray:
    """Return C(I, b, c, …), C(a, I, c, …), … at the terms of C themselves."""
    factors = factors_of(terms, parts)
    with one_blas_thread():
        grams = [factor.T @ factor for factor in factors]
        images = [factor @ (terms.weights[:, None] * _product(grams, axis)) for axis, factor in enumerate(factors)]
    return np.concatenate(images)


def _gain(points: FloatArray, images: FloatArray, parts: tuple[int, ...]) -> float:
    """Return 2⟨T, C⟩ − ‖C‖², which is ‖T‖² less the squared misfit."""
    with one_blas_thread():
        squared = float(np.sum(_product([piece.T @ piece for piece in split(points, parts)])))
    first = parts[0]
    return 2 * float(np.vdot(points[:first], images[:first])) - squared


def _step(points: FloatArray, images: FloatArray, parts: tuple[int, ...], damping: float) -> FloatArray:
    """Return the damped Gauss-Newton step."""
    damping = max(damping, _LEAST_DAMPING)
    pieces, axes = split(points, parts), range(len(parts))
    with one_blas_thread():  # the bits of a decomposition depend on the number of threads
        grams = [piece.T @ piece for piece in pieces]
        own = [_product(grams, axis) for axis in axes]
        mixed = {(m, n): _product(grams, m, n) for m in axes for n in axes if m != n}
        descent = images - np.concatenate([piece @ each for piece, each in zip(pieces, own, strict=True)])
        damped = [each + damping * np.diag(np.diagonal(each)) for each in own]
        if points.size <= _MOST_DIRECT:
            return np.linalg.solve(_matrix(pieces, damped, mixed), descent.ravel()).reshape(points.shape)
        inverses = [np.linalg.pinv(each, hermitian=True) for each in damped]

        def product(step: FloatArray) -> FloatArray:
            steps = split(step, parts)
            overlaps = [each.T @ piece for each, piece in zip(steps, pieces, strict=True)]
            others = [sum(mixed[m, n] * overlaps[n] for n in axes if n != m) for m in axes]
            return np.concatenate([steps[m] @ damped[m] + pieces[m] @ others[m] for m in axes])

        def precondition(residual: FloatArray) -> FloatArray:
            return np.concatenate([each @ inverses[m] for m, each in enumerate(split(residual, parts))])

        return conjugate_gradients(product, descent, precondition)


def _matrix(pieces: list[FloatArray], damped: list[FloatArray], mixed: dict[tuple[int, int], FloatArray]) -> FloatArray:
    """Return the damped Gauss-Newton matrix for steps that are read row by row."""
    k, axes = pieces[0].shape[1], range(len(pieces))
    blocks = [
        [
            np.einsum("ab,ij->aibj", np.eye(pieces[m].shape[0]), damped[m])
            if m == n
            else np.einsum("aj,ji,bi->aibj", pieces[m], mixed[m, n], pieces[n])
            for n in axes
        ]
        for m in axes
    ]
    return np.block([[block.reshape(block.shape[0] * k, -1) for block in row] for row in blocks])


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


class TermFits(CPFits):
    """Fits of one asymmetric tensor with different numbers of terms.

    A term λ a ⊗ b ⊗ … is held as a component with the weight λ and the vector (a, b, …)/√p.
    """

    def __init__(self, oracle: Oracle, generator: np.random.Generator, report: Report | None, *, max_rank: int) -> None:
        if not isinstance(oracle, AsymmetricTensor):
            raise TypeError(f"The tensor must be an AsymmetricTensor. Got {type(oracle).__name__}.")
        self.tensor = oracle
        super().__init__(oracle, generator, report, max_rank=max_rank)
        self.noise = ProductNoise(oracle.parts)

    def refined(self, start: Components) -> Fit:
        """Move terms to the nearest least-squares optimum."""
        return refine_terms(self.tensor, start, whole=self.whole)

    def loop(self, plan: Plan, *, without: Components | None = None) -> Components:
        """Return what the paper's loop finds in the tensor, or in what terms leave of it."""
        tensor = self.tensor if without is None else left_by(self.tensor, without)
        found = run(tensor, plan, rng=self.generator).components
        return Components(tensor.term_weights(found.weights), found.vectors, self.order)

    def costs(self, components: Components) -> FloatArray:
        """Return by how much the squared misfit grows if a term is left out."""
        return term_removal_costs(components, self.tensor.parts)

    def _measured(self) -> tuple[float, Spectra]:
        entries = self.tensor.entries
        return float(np.vdot(entries, entries)), spectra_of_axes(entries, self.tensor.rounding)

    def _fit_in_span(self, rank: int) -> Fit:
        leading = self.spectrum.leading(rank)
        return fit_terms_in_spans(self.tensor, rank, leading, self.generator, whole=self.whole)
