"""The CP fit of an asymmetric tensor: a component is a term λ a ⊗ b ⊗ …, with one vector per axis.

A term is held as a component with the weight λ and the unit vector (a, b, …)/√p, as the symmetric
embedding has it. With xᵢ = λᵢ^(1/p) aᵢ, yᵢ = λᵢ^(1/p) bᵢ, … the misfit is ½‖T − Σ xᵢ ⊗ yᵢ ⊗ …‖².
Its gradient takes one image. For its Gauss-Newton matrix let G₁, G₂, … be the Gram matrices of the
xᵢ, the yᵢ, …, and W₍ₘ₎, W₍ₘₙ₎ the products, entry by entry, of all of them without the m-th, and
without the m-th and the n-th. Then, for the steps Δ₁ of the xᵢ and so on,

    H(Δ)₁ = Δ₁ W₍₁₎ + X Σₙ W₍₁ₙ₎ ∘ (Δₙᵀ Xₙ),   n = 2, …, p,

and likewise for every axis. Making one factor longer and another one shorter in proportion changes
nothing: conjugate gradients take no step in such a direction.

A tensor that is symmetric along some axes has terms with one vector for all of them, a ⊗ a ⊗ c. If
the tensor and the points are symmetric, so are image and step: a fit that starts there stays there,
and only rounding errors are removed.

A pencil of two random slices A D Bᵀ and A E Bᵀ gives A. The product of A⁻¹ with the unfolding has
one term in each row, b ⊗ c ⊗ …, whose vectors are the leading ones of its own unfoldings.

Of a sparse tensor (`SparseProblem`), images, gradients and a dense core are computed from the
non-zero entries alone.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy  # it imports its submodules when they are used

from odeco._util.threads import one_blas_thread
from odeco._util.types import DataArray, FloatArray
from odeco.cp.fit import real_eigenvectors
from odeco.cp.problem import CPProblem
from odeco.cp.rank import (
    SIGNIFICANCE,
    NoiseLaw,
    n_distinct,
    n_identifiable_terms,
    product_noise,
)
from odeco.cp.spectrum import (
    Spectra,
    spectra_of_axes,
    spectra_of_images,
    spectrum_of_gram,
    tracy_widom_chance,
)
from odeco.power.power_method import Schedule, run
from odeco.power.steps import conjugate_gradients, normalise
from odeco.tensors.asymmetric import (
    AsymmetricTensor,
    EmbeddedTerms,
    SparseAsymmetricTensor,
    as_terms,
    entries_of,
    factors_of,
    split,
    term_weights,
    values_of,
)
from odeco.tensors.components import Components
from odeco.tensors.oracle import Oracle

#: Up to this number of unknowns the step is solved for directly, which is then faster than
#: conjugate gradients.
_MAX_DIRECT = 500

#: Every step is damped by at least this share of its own scale: for lengths shifted between
#: factors, H is zero.
_MIN_DAMPING = 1e-9


class AsymmetricProblem(CPProblem):
    """An asymmetric tensor and the least-squares fit of its terms.

    Attributes
    ----------
    symmetric : tuple of int
        The axes along which the tensor is symmetric, and the vectors of a term are the same; there
        may be none.
    """

    oracle: AsymmetricTensor

    def __init__(self, tensor: AsymmetricTensor, symmetric: tuple[int, ...] = ()) -> None:
        self.oracle = tensor
        self.parts = tensor.parts
        self.order = tensor.order
        self.symmetric = symmetric
        self.whole = float(np.vdot(tensor.entries, tensor.entries))

    @property
    def noise(self) -> NoiseLaw:
        """The law of the largest value of noise at products of unit vectors."""
        return product_noise(self.parts, self.symmetric)

    @property
    def n_identifiable(self) -> int:
        """By `n_identifiable_terms`."""
        return n_identifiable_terms(self.parts, self.symmetric)

    @property
    def _sign_rows(self) -> slice:
        """The place of the piece that has the sign of a weight: that of the first axis without
        symmetry.
        """
        axis = next(axis for axis in range(self.order) if axis not in self.symmetric)
        return slice(sum(self.parts[:axis]), sum(self.parts[: axis + 1]))

    def _shared(self, vectors: FloatArray, *, signed: bool) -> FloatArray:
        """Return vectors with the mean of their pieces along symmetric axes in place of each of
        them.

        If `signed`, pieces get the sign of the first one before, and the other axis that has the
        sign makes up for it.
        """
        if not self.symmetric:
            return vectors
        pieces = split(vectors.copy(), self.parts)
        signs = np.ones(vectors.shape[1])
        first = self.symmetric[0]
        for axis in self.symmetric[1:]:
            if signed:
                flips = np.where(np.sum(pieces[first] * pieces[axis], axis=0) < 0, -1.0, 1.0)
                pieces[axis] = pieces[axis] * flips
                signs = signs * flips
        mean: FloatArray = np.mean([pieces[axis] for axis in self.symmetric], axis=0)
        for axis in self.symmetric:
            pieces[axis] = mean
        shared = np.concatenate(pieces)
        shared[self._sign_rows] *= signs
        return shared

    def as_points(self, components: Components) -> tuple[FloatArray, FloatArray]:
        """Return vectors whose pieces have the p-th root of the weight as their length; one of them
        has the sign.
        """
        points = (
            components.vectors
            * math.sqrt(self.order)
            * np.abs(components.weights) ** (1 / self.order)
        )
        points[self._sign_rows] *= np.where(components.weights < 0, -1.0, 1.0)
        return np.ones_like(components.weights), self._shared(points, signed=True)

    def from_points(self, signs: FloatArray, points: FloatArray) -> Components:  # noqa: ARG002
        """Return the terms that these points stand for."""
        return as_terms(split(points, self.parts))

    def image(self, points: FloatArray) -> FloatArray:
        """Return T(I, y, …), T(x, I, …), …."""
        return self.oracle.image(points) / math.factorial(self.order - 1)

    def gain(self, signs: FloatArray, points: FloatArray, images: FloatArray) -> float:  # noqa: ARG002
        """Return 2⟨T, C⟩ − ‖C‖²."""
        with one_blas_thread():
            squared = float(
                np.sum(_product([piece.T @ piece for piece in split(points, self.parts)]))
            )
        first = self.parts[0]
        return 2 * float(np.vdot(points[:first], images[:first])) - squared

    def descent(self, signs: FloatArray, points: FloatArray, images: FloatArray) -> FloatArray:  # noqa: ARG002
        """Return T(I, y, …) − C(I, y, …), T(x, I, …) − C(x, I, …), …."""
        pieces = split(points, self.parts)
        with one_blas_thread():
            grams = [piece.T @ piece for piece in pieces]
            own = [piece @ _product(grams, axis) for axis, piece in enumerate(pieces)]
        return images - np.concatenate(own)

    def step(
        self,
        signs: FloatArray,  # noqa: ARG002
        points: FloatArray,
        descent: FloatArray,
        damping: float,
    ) -> FloatArray:
        """Return the damped Gauss-Newton step."""
        parts = self.parts
        damping = max(damping, _MIN_DAMPING)
        pieces = split(points, parts)
        axes = range(len(parts))
        with one_blas_thread():  # the bits of a decomposition depend on the number of threads
            grams = [piece.T @ piece for piece in pieces]
            own = [_product(grams, axis) for axis in axes]
            mixed = {(m, n): _product(grams, m, n) for m in axes for n in axes if m != n}
            damped = [each + damping * np.diag(np.diagonal(each)) for each in own]
            if points.size <= _MAX_DIRECT:
                solution = np.linalg.solve(_matrix(pieces, damped, mixed), descent.ravel()).astype(
                    np.float64, copy=False
                )
                return self._shared(solution.reshape(points.shape), signed=False)
            inverses = [np.linalg.pinv(each, hermitian=True) for each in damped]

            def product(step: FloatArray) -> FloatArray:
                steps = split(step, parts)
                overlaps = [each.T @ piece for each, piece in zip(steps, pieces, strict=True)]
                others = [sum(mixed[m, n] * overlaps[n] for n in axes if n != m) for m in axes]
                return np.concatenate([steps[m] @ damped[m] + pieces[m] @ others[m] for m in axes])

            def precondition(residual: FloatArray) -> FloatArray:
                return np.concatenate(
                    [each @ inverses[m] for m, each in enumerate(split(residual, parts))]
                )

            return self._shared(conjugate_gradients(product, descent, precondition), signed=False)

    def residuals(
        self,
        components: Components,
        points: FloatArray,  # noqa: ARG002
        images: FloatArray,  # noqa: ARG002
    ) -> FloatArray:
        """Return the root mean square over the axes of ‖T(I, b, c, …) − C(I, b, c, …)‖."""
        factors = factors_of(components, self.parts)
        with one_blas_thread():
            grams = [factor.T @ factor for factor in factors]
            own = [
                factor @ (components.weights[:, None] * _product(grams, axis))
                for axis, factor in enumerate(factors)
            ]
        misfit = self.image(components.vectors * math.sqrt(self.order)) - np.concatenate(own)
        lengths: FloatArray = np.linalg.norm(misfit, axis=0) / math.sqrt(self.order)
        return lengths

    def gram(self, vectors: FloatArray) -> FloatArray:
        """Return the inner products of the a ⊗ b ⊗ …."""
        return gram_of_terms(vectors, self.parts)

    def values(self, vectors: FloatArray) -> FloatArray:
        """Return T(a, b, …)."""
        return values_of(self.oracle, vectors)

    @property
    def has_entries(self) -> bool:
        """Whether the entries are known in double precision."""
        return bool(self.oracle.rounding <= np.finfo(np.float64).eps)

    def misfit(self, components: Components) -> float:
        """Return ‖T − C‖² from the entries."""
        return float(np.sum((self.oracle.entries - entries_of(components, self.parts)) ** 2))

    def residual(self, components: Components) -> AsymmetricProblem:
        """Return the tensor minus terms."""
        return self._like(self.oracle.entries - entries_of(components, self.parts))

    without = residual

    def test_pairs(self, components: Components, deviation: float) -> tuple[float, float]:
        """Return the probability that noise makes a term look like two, and the resolution.

        A fit of one term to two terms λ/2 whose vectors are a ± t r, b ± u s, c ± … leaves λ (t u r
        ⊗ s ⊗ c + …), one such product for every two axes. So r and s are singular vectors of the
        residual R(I, I, c, …) across a and b. For noise of standard deviation σ this matrix has
        independent entries, and its largest singular value the law of Johnstone (see
        `odeco.cp.spectrum`). The smallest probability is multiplied by the number of tests: terms
        times pairs of axes.

        Across the span of all vectors along each of the two axes, what two terms leave is
        orthogonal to every change of the terms, so that R(r, s, c, …) is λ t u plus noise of
        variance σ², and is at most the largest singular value there. The resolution is for terms
        that differ along at least two axes. It is not stated if there are as many terms as an axis
        has entries, or more.
        """
        k = components.n_components
        smallest = min(self.parts)
        if not self.has_entries or self.symmetric or k == 0 or smallest < 3:
            return super().test_pairs(components, deviation)
        left = self.oracle.entries - entries_of(components, self.parts)
        factors = factors_of(components, self.parts)
        tests = list(itertools.combinations(range(self.order), 2))
        chance = 1.0
        most = np.zeros(k)
        with one_blas_thread():
            spans = [np.linalg.qr(factor)[0] for factor in factors]
            for (m, n), term in itertools.product(tests, range(k)):
                matrix = left
                for axis in reversed(range(self.order)):
                    if axis not in (m, n):
                        matrix = np.tensordot(matrix, factors[axis][:, term], axes=(axis, 0))
                first = factors[m][:, [term]]
                second = factors[n][:, [term]]
                across = _without_spans(matrix, first, second)
                n_rows, n_columns = (math.sqrt(size - 1) for size in across.shape)
                width = (n_rows + n_columns) * (1 / n_rows + 1 / n_columns) ** (1 / 3)
                height = (
                    (np.linalg.norm(across, 2) / deviation) ** 2 - (n_rows + n_columns) ** 2
                ) / width
                chance = min(chance, tracy_widom_chance(float(height)))
                if k < smallest:
                    hidden = float(np.linalg.norm(_without_spans(matrix, spans[m], spans[n]), 2))
                    most[term] = max(
                        most[term], hidden - scipy.special.ndtri(SIGNIFICANCE) * deviation
                    )
        resolution = min(2 * math.sqrt(float(np.max(most / components.weights))), math.pi / 2)
        return min(1.0, k * len(tests) * chance), resolution if k < smallest else math.nan

    def _like(self, entries: DataArray) -> AsymmetricProblem:
        """Return the problem of another tensor with the same symmetry."""
        return AsymmetricProblem(AsymmetricTensor(entries), self.symmetric)

    def run(self, plan: Schedule, generator: np.random.Generator) -> Components:
        """Return what the power method finds in the symmetric embedding."""
        found = run(self.oracle, plan, rng=generator).components
        return Components(term_weights(found.weights, self.order), found.vectors, self.order)

    def spectra(self, width: int, generator: np.random.Generator) -> Spectra:  # noqa: ARG002
        """Return the spectra of the unfoldings along each axis; of symmetric ones they are the
        same.
        """
        spectra = spectra_of_axes(self.oracle.entries, self.oracle.rounding).spectra
        if not self.symmetric:
            return Spectra(spectra)
        # Columns that the symmetry makes equal are counted once; see `odeco.cp.spectrum`.
        first = self.symmetric[0]
        n_shared = len(self.symmetric)
        dimension = self.parts[first]
        each = [
            replace(
                spectrum, n_columns=spectrum.n_columns // dimension**n * n_distinct(dimension, n)
            )
            for axis, spectrum in enumerate(spectra)
            for n in [n_shared - (axis in self.symmetric)]
        ]
        return Spectra(
            tuple(each[first if axis in self.symmetric else axis] for axis in range(self.order))
        )

    def inside(self, bases: Sequence[FloatArray]) -> AsymmetricProblem:
        """Return the tensor in the coordinates of an orthonormal basis for each axis."""
        return self._like(_contract(self.oracle.entries, bases))

    def outside(self, bases: Sequence[FloatArray], components: Components) -> Components:
        """Return terms of the core as terms of the tensor."""
        widths = tuple(basis.shape[1] for basis in bases)
        with one_blas_thread():
            factors = [
                basis @ factor
                for basis, factor in zip(bases, factors_of(components, widths), strict=True)
            ]
        return as_terms(factors, components.weights)

    def divided(self, scales: Sequence[FloatArray]) -> AsymmetricProblem:
        """Return the tensor in coordinates that are divided by the scales of each axis."""
        return self._like(_contract(self.oracle.entries, [np.diag(1 / scale) for scale in scales]))

    def slice_vectors(self, rank: int, generator: np.random.Generator) -> FloatArray:
        """Return vectors along two axes that belong together in a random slice, and random ones
        along the others.
        """
        first, second, *others = (int(axis) for axis in generator.permutation(self.order))
        entries = np.moveaxis(self.oracle.entries, [*others, first, second], range(self.order))
        matrix = _random_slice(entries, self.order - 2, generator)
        with one_blas_thread():
            left, _, right = np.linalg.svd(matrix, full_matrices=False)
        pieces = [generator.standard_normal((size, rank)) for size in self.parts]
        width = min(rank, left.shape[1])
        pieces[first][:, :width] = left[:, :width]
        pieces[second][:, :width] = right.T[:, :width]
        return np.concatenate(pieces)

    def pencil_vectors(self, rank: int, attempt: int, generator: np.random.Generator) -> FloatArray:
        """Return terms from a random pencil; its eigenvectors are those along one of the axes that
        have `rank`.
        """
        full = [axis for axis, size in enumerate(self.parts) if size == rank]
        axis = full[attempt % len(full)]
        entries: DataArray = np.moveaxis(
            self.oracle.entries, axis, 0
        )  # the chosen axis and one more stay open
        slices = [
            _random_slice(np.moveaxis(entries, 0, -1), self.order - 2, generator).T
            for _ in range(2)
        ]
        with one_blas_thread():
            own = real_eigenvectors(scipy.linalg.lstsq(slices[1].T, slices[0].T)[0].T)
            rows = scipy.linalg.lstsq(own, entries.reshape(rank, -1))[0].reshape(
                rank, *entries.shape[1:]
            )
            others = []
            for other in range(1, self.order):
                unfolded = np.moveaxis(rows, other, 1).reshape(rank, rows.shape[other], -1)
                others.append(np.linalg.eigh(unfolded @ unfolded.transpose(0, 2, 1))[1][:, :, -1].T)
        others.insert(axis, own)
        return np.concatenate(others)

    def normalised(self, directions: FloatArray, generator: np.random.Generator) -> FloatArray:
        """Return unit vectors; random ones in place of zeros."""
        random = generator.standard_normal(directions.shape)
        vectors = normalise(directions, self.parts, random)
        if self.symmetric:
            return normalise(self._shared(vectors, signed=True), self.parts, random)
        return vectors


def explained_by_terms(tensor: Oracle, terms: Components) -> float | None:
    """Return 1 − ‖T − C‖² / ‖T‖² for an embedded tensor T and terms C, or None if the norm is not
    known.
    """
    whole = tensor.squared_norm()
    if whole is None:
        return None
    weights = terms.weights
    inner = float(weights @ values_of(tensor, terms.vectors))
    squared = float(weights @ gram_of_terms(terms.vectors, tensor.parts) @ weights)
    return (2 * inner - squared) * math.factorial(tensor.order) / whole


def gram_of_terms(vectors: FloatArray, parts: tuple[int, ...]) -> FloatArray:
    """Return the inner products of the a ⊗ b ⊗ …."""
    with one_blas_thread():
        return _product([len(parts) * (piece.T @ piece) for piece in split(vectors, parts)])


def term_angle_errors(
    terms: Components, parts: tuple[int, ...], deviation: float, symmetric: tuple[int, ...] = ()
) -> list[FloatArray]:
    """Return for each axis the standard errors of the vectors, as angles in radians, at most π/2.

    They are those of a fit in which the other factors are known: what the error of one factor does
    to another is neglected. Between orthogonal terms there is no such effect, and across the span
    of the terms there never is. A vector that m axes share is the mean of m estimates whose errors
    are independent.
    """
    points = terms.vectors * math.sqrt(len(parts)) * np.abs(terms.weights) ** (1 / len(parts))
    pieces = split(points, parts)
    errors = []
    with one_blas_thread():
        grams = [piece.T @ piece for piece in pieces]
        for axis, gram in enumerate(grams):
            inverse = np.linalg.pinv(_product(grams, axis), hermitian=True)
            turned = (parts[axis] - 1) * np.maximum(np.diagonal(inverse), 0.0) / np.diagonal(gram)
            turned = turned / len(symmetric) if axis in symmetric else turned
            errors.append(np.minimum(deviation * np.sqrt(turned), math.pi / 2))
    return errors


def _without_spans(matrix: DataArray, left: FloatArray, right: FloatArray) -> DataArray:
    """Return a matrix across the spans of orthonormal columns on either side."""
    matrix = matrix - left @ (left.T @ matrix)
    return matrix - (matrix @ right) @ right.T


def _product(grams: list[FloatArray], *but: int) -> FloatArray:
    """Return the product of matrices, entry by entry, without some."""
    result: FloatArray = np.prod(
        [gram for axis, gram in enumerate(grams) if axis not in but], axis=0
    )
    return result


def _matrix(
    pieces: list[FloatArray], damped: list[FloatArray], mixed: dict[tuple[int, int], FloatArray]
) -> FloatArray:
    """Return the damped Gauss-Newton matrix for steps that are read row by row."""
    k = pieces[0].shape[1]
    axes = range(len(pieces))
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


def _contract(entries: DataArray, matrices: Sequence[FloatArray]) -> DataArray:
    """Return T(Q₁, Q₂, …)."""
    with one_blas_thread():
        for matrix in (
            matrices
        ):  # each product puts its axis last, so that after all of them the order is the old one
            entries = np.tensordot(entries, matrix, axes=(0, 0))
    return entries


def _random_slice(entries: DataArray, n_axes: int, generator: np.random.Generator) -> DataArray:
    """Contract the first axes with random vectors."""
    with one_blas_thread():
        for _ in range(n_axes):
            entries = np.tensordot(
                generator.standard_normal(entries.shape[0]), entries, axes=(0, 0)
            )
    return entries


#: Up to this size of an axis the Gram matrix of an unfolding is formed.
_MAX_GRAM = 1000


class SparseProblem(AsymmetricProblem):
    """A sparse asymmetric tensor and the least-squares fit of its terms. Only its core is dense."""

    oracle: SparseAsymmetricTensor  # type: ignore[assignment]

    def __init__(self, tensor: SparseAsymmetricTensor) -> None:
        self.oracle = tensor
        self.parts = tensor.parts
        self.order = tensor.order
        self.symmetric = ()
        self.whole = float(tensor.values @ tensor.values)

    @property
    def has_entries(self) -> bool:
        """False: a residual has entries everywhere."""
        return False

    def without(self, components: Components) -> AsymmetricProblem:
        """Return the tensor minus terms, which is not formed; only its images are known."""
        left = copy.copy(self)
        left.oracle = self.oracle - EmbeddedTerms(components, self.parts)  # type: ignore[assignment]
        return left

    def spectra(self, width: int, generator: np.random.Generator) -> Spectra:
        """Return the spectra of the unfoldings, or those of at least `width` images if an axis is
        long.
        """
        if max(self.parts) > _MAX_GRAM:
            return spectra_of_images(self.oracle, width, generator)
        grams = [
            (unfolding @ unfolding.T).toarray()
            for unfolding in map(self.oracle.unfolding, range(self.order))
        ]
        n_columns = [self.noise.n_entries // size for size in self.parts]
        spectra = [
            spectrum_of_gram(*each, self.oracle.rounding)
            for each in zip(grams, n_columns, strict=True)
        ]
        return Spectra(tuple(spectra))

    def inside(self, bases: Sequence[FloatArray]) -> AsymmetricProblem:  # type: ignore[override]
        """Return the core, a dense tensor."""
        return AsymmetricProblem(AsymmetricTensor(self.oracle.contract(bases)))
