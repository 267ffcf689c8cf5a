"""An asymmetric tensor, dense or sparse, as a symmetric one of dimension d₁ + d₂ + …, of which no
entry is formed.

The value of this embedding at u = (x, y, …) is p! T(x, y, …), and the part of its image that
belongs to x is (p−1)! T(I, y, …). A term λ a ⊗ b ⊗ … of T makes (a, b, …)/√p an eigenvector of the
embedding, with the eigenvalue λ (p−1)! p^(1−p/2). Other signs of a, b, … give 2ᵖ⁻¹ − 1 more
eigenvectors, up to a common sign, whose eigenvalues have the same absolute value (Ragnarsson and
Van Loan 2013).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, final

import numpy as np
from scipy.sparse import csr_array

from odeco._util.arguments import check_count, times_power_of_two
from odeco._util.threads import map_blocks, one_blas_thread
from odeco._util.types import DataArray, FloatArray, IndexArray
from odeco.tensors.components import Components
from odeco.tensors.entries import EntryTensor, as_coordinates, as_entries, as_values, check_finite
from odeco.tensors.oracle import Oracle

#: Numbers in the intermediate products of one block of leading indices.
_BLOCK_SIZE = 2**19


@final
class AsymmetricTensor(EntryTensor):
    """The symmetric embedding of a d₁ x d₂ x … x dₚ array T; see `odeco.tensors.asymmetric`.

    Parameters
    ----------
    entries : array, d₁ x d₂ x … x dₚ
        The array, of float32, float64 or integers, with p of 3 or more.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.tensors import AsymmetricTensor
    >>> tensor = AsymmetricTensor(np.ones((2, 3, 4)))
    >>> tensor.dimension, tensor.parts
    (9, (2, 3, 4))
    """

    def __init__(self, entries: Any) -> None:
        self.entries: DataArray = np.ascontiguousarray(as_entries(entries, equal_sizes=False))
        self._scaled = self._scale(self.entries)
        self._parts = self.entries.shape
        self.order = self.entries.ndim
        self.dimension = sum(self.entries.shape)
        self.rounding = float(np.finfo(self.entries.dtype).eps)

    def _unit_squared_norm(self) -> float:
        """Return p! times the sum of the squares of the entries, because the embedding holds each
        entry p! times.
        """
        squares = sum(np.sum(np.square(part, dtype=np.float64)) for part in self._scaled)
        return math.factorial(self.order) * float(squares)

    def over_power_of_two(self, exponent: int) -> AsymmetricTensor:
        """Return the tensor over 2^exponent, in double precision."""
        scaled = AsymmetricTensor(times_power_of_two(self.entries.astype(np.float64), -exponent))
        scaled.rounding = self.rounding
        return scaled

    def _unit_image(self, block: FloatArray) -> FloatArray:
        n_columns = block.shape[1]
        parts = [piece.astype(self.entries.dtype) for piece in split(block, self.parts)]
        row_size = math.prod(self.parts[1:-1]) * n_columns
        height = max(1, _BLOCK_SIZE // max(1, row_size))
        blocks = [slice(start, start + height) for start in range(0, self.parts[0], height)]
        total = [np.zeros((size, n_columns)) for size in self.parts]
        images = map_blocks(
            lambda rows: _leave_one_out(self._scaled[rows], [parts[0][rows], *parts[1:]]),
            blocks,
            parallel=True,
        )
        for rows, (first, *others) in zip(blocks, images, strict=True):
            total[0][rows] = first
            for axis, piece in enumerate(others, start=1):
                total[axis] += piece
        return math.factorial(self.order - 1) * np.concatenate(total)


@final
class SparseAsymmetricTensor(EntryTensor):
    """The symmetric embedding of a d₁ x d₂ x … x dₚ tensor that stores its non-zero entries.

    Time and memory are proportional to their number.

    Parameters
    ----------
    indices : array of integers, n x p
        Each row holds the coordinates of one entry. Entries that are listed several times are added
        up.
    values : array of n numbers
        The entries, float32 or float64.
    shape : tuple of int
        The sizes d₁, d₂, …, dₚ.

    Examples
    --------
    >>> from odeco.tensors import SparseAsymmetricTensor
    >>> tensor = SparseAsymmetricTensor(
    ...     [[0, 1, 2], [3, 1, 0]], [1.0, 2.0], shape=(10_000, 20, 3_000)
    ... )
    >>> tensor.dimension, tensor.squared_norm() / 6
    (13020, 5.0)
    """

    def __init__(self, indices: Any, values: Any, shape: Sequence[int]) -> None:
        self._parts = tuple(check_count("shape", size) for size in shape)
        coordinates = as_coordinates(indices, self._parts)
        checked = as_values(
            values, coordinates.shape[:1], "values", "hold one number for each row of `indices`"
        )
        self.order = len(self._parts)
        self.dimension = sum(self._parts)
        self.rounding = float(np.finfo(checked.dtype).eps)
        distinct, which = np.unique(coordinates, axis=0, return_inverse=True)
        self.indices: IndexArray = distinct.T
        self.values: FloatArray = np.bincount(which.ravel(), weights=checked).astype(
            np.float64, copy=False
        )
        check_finite(self.values, "tensor")
        self._scaled = self._scale(self.values)

    def over_power_of_two(self, exponent: int) -> SparseAsymmetricTensor:
        """Return the tensor over 2^exponent."""
        scaled = SparseAsymmetricTensor(
            self.indices.T, times_power_of_two(self.values, -exponent), self.parts
        )
        scaled.rounding = self.rounding
        return scaled

    def unfolding(self, axis: int) -> csr_array[Any, Any]:
        """Return the unfolding along an axis, without the columns that are zero."""
        others = np.delete(self.indices, axis, axis=0)
        columns = np.unique(others, axis=1, return_inverse=True)[1].ravel()
        return csr_array(
            (self._scaled, (self.indices[axis], columns)),
            shape=(self.parts[axis], int(columns.max()) + 1),
        )

    def contract(self, matrices: Sequence[FloatArray]) -> FloatArray:
        """Return the dense tensor T(Q₁, Q₂, …), with the entries in their unit."""
        widths = tuple(matrix.shape[1] for matrix in matrices)
        total = np.zeros((widths[0], math.prod(widths[1:])))
        length = max(1, _BLOCK_SIZE // total.shape[1])
        chunks = [slice(start, start + length) for start in range(0, self._scaled.size, length)]

        def part(chunk: slice) -> FloatArray:
            products = matrices[1][self.indices[1, chunk]]
            for matrix, index in zip(matrices[2:], self.indices[2:], strict=True):
                products = (products[:, :, None] * matrix[index[chunk]][:, None, :]).reshape(
                    products.shape[0], -1
                )
            first: FloatArray = matrices[0][self.indices[0, chunk]] * self._scaled[chunk, None]
            return first.T @ products

        for each in map_blocks(part, chunks, parallel=len(chunks) > 1):
            total += each
        return total.reshape(widths)

    def _unit_squared_norm(self) -> float:
        return math.factorial(self.order) * float(self._scaled @ self._scaled)

    def _unit_image(self, block: FloatArray) -> FloatArray:
        pieces = split(block, self.parts)

        def of_axis(axis: int) -> FloatArray:
            products = np.repeat(self._scaled[:, None], block.shape[1], axis=1)
            for other, piece in enumerate(pieces):
                if other != axis:
                    products *= piece[self.indices[other]]
            return self._rows_of[axis] @ products

        images = list(
            map_blocks(
                of_axis,
                range(self.order),
                parallel=self._scaled.size * block.shape[1] > _BLOCK_SIZE,
            )
        )
        return math.factorial(self.order - 1) * np.concatenate(images)

    @cached_property
    def _rows_of(self) -> list[csr_array[Any, Any]]:
        """For each axis the matrix of zeros and ones that adds up what belongs to the same
        index.
        """
        n_entries = self.values.size
        return [
            csr_array((np.ones(n_entries), (index, np.arange(n_entries))), shape=(size, n_entries))
            for index, size in zip(self.indices, self.parts, strict=True)
        ]


@final
class EmbeddedTerms(Oracle):
    """The symmetric embedding of the sum of terms λ a ⊗ b ⊗ …, whose vectors are (a, b, …)/√p."""

    def __init__(self, terms: Components, parts: tuple[int, ...]) -> None:
        self.terms = terms
        self._parts = parts
        self.order = len(parts)
        self.dimension = sum(parts)

    def _image(self, block: FloatArray) -> FloatArray:
        factors = factors_of(self.terms, self.parts)
        overlaps = [
            factor.T @ piece
            for factor, piece in zip(factors, split(block, self.parts), strict=True)
        ]
        images = []
        for axis, factor in enumerate(factors):
            others = np.prod([each for other, each in enumerate(overlaps) if other != axis], axis=0)
            images.append(factor @ (self.terms.weights[:, None] * others))
        return math.factorial(self.order - 1) * np.concatenate(images)


def split(vectors: FloatArray, parts: tuple[int, ...]) -> list[FloatArray]:
    """Return the pieces of vectors, one matrix for each axis."""
    return np.split(vectors, np.cumsum(parts)[:-1])


def factors_of(terms: Components, parts: tuple[int, ...]) -> list[FloatArray]:
    """Return the unit vectors of terms, one matrix for each axis."""
    return split(terms.vectors * math.sqrt(len(parts)), parts)


def as_terms(pieces: list[FloatArray], weights: FloatArray | None = None) -> Components:
    """Return terms from vectors along each axis; unless weights are given, they are the products of
    the lengths.
    """
    lengths = [np.linalg.norm(piece, axis=0) for piece in pieces]
    units = [
        piece / np.where(length > 0, length, 1.0)
        for piece, length in zip(pieces, lengths, strict=True)
    ]
    weights = np.prod(lengths, axis=0) if weights is None else weights
    return Components(weights, np.concatenate(units) / math.sqrt(len(pieces)), len(pieces))


def entries_of(terms: Components, parts: tuple[int, ...]) -> FloatArray:
    """Return the sum of terms as an array."""
    first, *others = factors_of(terms, parts)
    last = others.pop()
    products = first * terms.weights
    with one_blas_thread():
        for factor in others:
            products = (products[:, None, :] * factor).reshape(
                products.shape[0] * factor.shape[0], terms.n_components
            )
        total: FloatArray = (products @ last.T).reshape(parts)
    return total


def values_of(tensor: Oracle, vectors: FloatArray) -> FloatArray:
    """Return T(a, b, …) for the unit vectors (a, b, …)/√p of an embedded tensor."""
    values: FloatArray = (
        tensor.value(vectors) * tensor.order ** (tensor.order / 2) / math.factorial(tensor.order)
    )
    return values


def split_terms(vectors: FloatArray, parts: tuple[int, ...]) -> tuple[FloatArray, ...]:
    """Return the unit vectors a, b, … that the columns (a, b, …)/√p of `vectors` are made of."""
    return tuple(piece / np.linalg.norm(piece, axis=0) for piece in split(vectors, parts))


def term_weights(eigenvalues: FloatArray, order: int) -> FloatArray:
    """Return the weights λ of the terms whose embeddings have the given eigenvalues."""
    factor: float = order ** (order / 2 - 1) / math.factorial(order - 1)
    return eigenvalues * factor


def sign_variants(components: Components, parts: tuple[int, ...]) -> Components:
    """Return the symmetric embedding of the terms that components of p parts, (a, b, …)/√p, stand
    for.

    The embedding of a term is a sum over 2ᵖ⁻¹ sign variants (±a, ±b, …)/√p, one of each pair of
    opposites, each weighted by the product of its signs. The variants are not orthogonal: an
    eigenvalue λ at one of them means weights of ±λ pᵖ⁻¹ / (2ᵖ⁻¹ (p−1)!).
    """
    order = components.order
    factor = order ** (order - 1) / (2 ** (order - 1) * math.factorial(order - 1))
    choices = [(1.0, *signs) for signs in itertools.product((1.0, -1.0), repeat=order - 1)]
    variants = [components.vectors * np.repeat(signs, parts)[:, None] for signs in choices]
    weights = [math.prod(signs) * factor * components.weights for signs in choices]
    return Components(np.concatenate(weights), np.concatenate(variants, axis=1), order)


def _leave_one_out(entries: DataArray, parts: list[DataArray]) -> list[DataArray]:
    """Return T(I, y, z, …), T(x, I, z, …), … for every column of the blocks x, y, z, ….

    The indices are treated from the last to the first. The product that leaves an index open has
    all parts before it as factors. Then this index is contracted with its own part.
    """
    n_columns = parts[0].shape[1]
    before = [parts[0]]
    for part in parts[1:-1]:
        before.append((before[-1][:, None, :] * part).reshape(-1, n_columns))
    products_open = [entries.reshape(-1, parts[-1].shape[0]).T @ before[-1]]
    rest = entries.reshape(-1, parts[-1].shape[0]) @ parts[-1]
    for part, products in zip(reversed(parts[1:-1]), reversed(before[:-1]), strict=True):
        rest = rest.reshape(-1, part.shape[0], n_columns)
        products_open.append(np.einsum("nl,nrl->rl", products, rest))
        rest = np.einsum("nrl,rl->nl", rest, part)
    return [rest, *reversed(products_open)]
