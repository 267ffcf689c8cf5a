"""Packed coordinates of symmetric tensors: one for each sorted tuple of indices, scaled so that
norms are kept.

Tensors of order 4 or more that are given by their flattening, a matrix between packed coordinates
of half their order.

A symmetric tensor S of degree h over d dimensions has C(d+h−1, h) different entries. The coordinate
of the tuple i₀ ≤ i₁ ≤ … is S[i₀, i₁, …] times the root of the number of its arrangements, so that
the inner product of two tensors is that of their coordinates. Tuples are in colexicographic order:
the last index varies slowest.
"""

from __future__ import annotations

import itertools
import math
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, final

import numpy as np

from odeco._util.threads import one_blas_thread
from odeco._util.types import DataArray, FloatArray, IndexArray
from odeco.tensors.oracle import Oracle

if TYPE_CHECKING:
    from odeco.tensors.components import Components


class PackedCoordinates:
    """The packed coordinates of symmetric tensors of one degree.

    Parameters
    ----------
    dimension, degree : int
        The size d of every axis, and the number h of axes, 1 or more.

    Attributes
    ----------
    size : int
        The number C(d+h−1, h) of coordinates.
    tuples : array, h x size
        The sorted indices of each coordinate.
    scales : array
        The root of the number of arrangements of each tuple.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.tensors.coordinates import PackedCoordinates
    >>> pairs = PackedCoordinates(2, 2)
    >>> pairs.powers(np.array([[3.0], [4.0]])).ravel().round(3)  # 9, √2 · 12 and 16
    array([ 9.   , 16.971, 16.   ])
    """

    def __init__(self, dimension: int, degree: int) -> None:
        self.dimension = dimension
        self.degree = degree
        self.size = math.comb(dimension + degree - 1, degree)
        self.tuples = sorted_tuples(dimension, degree)
        self.scales: FloatArray = np.sqrt(n_arrangements(self.tuples))

    def powers(self, block: FloatArray) -> FloatArray:
        """Return the coordinates of u ⊗ … ⊗ u for every column u of a block."""
        products: FloatArray = block[self.tuples[0]] * self.scales[:, None]
        for indices in self.tuples[1:]:
            products *= block[indices]
        return products

    def contract(self, packed: FloatArray, block: FloatArray) -> FloatArray:
        """Return S(I, u, …, u) for every column u of a block and the tensor S in the same column of
        `packed`.
        """
        if self.degree == 1:
            return packed
        powers = self.lower.powers(block) * self.lower.scales[:, None]
        images: FloatArray = np.einsum("ral,rl->al", self._entries(packed), powers)
        return images

    def slices(self, packed: FloatArray, block: FloatArray) -> FloatArray:
        """Return the matrices S(I, I, u, …, u), shape d x d x L; at degree 2 they are the tensors
        themselves.
        """
        lower = self.lower
        entries = self._entries(packed)
        if self.degree == 2:
            return entries
        # Each row S[·, a] is a tensor of one degree less, in packed entries.
        rows = (entries * lower.scales[:, None, None]).reshape(lower.size, -1)
        return lower.contract(rows, np.tile(block, self.dimension)).reshape(
            self.dimension, self.dimension, -1
        )

    def within(self, basis: FloatArray) -> FloatArray:
        """Return the symmetric power of a d x m basis: it maps coordinates of tensors over m
        dimensions to these.
        """
        inner = PackedCoordinates(basis.shape[1], self.degree)
        rows = [basis[indices] for indices in self.tuples]
        total = np.zeros((self.size, inner.size))
        for places in itertools.permutations(range(self.degree)):
            factors = (row[:, inner.tuples[place]] for row, place in zip(rows, places, strict=True))
            total += math.prod(factors, start=np.ones(()))
        total *= self.scales[:, None] * inner.scales / math.factorial(self.degree)
        return total

    def unfolding(self, packed: FloatArray) -> FloatArray:
        """Return S[a] in packed coordinates, a row for each index a, of the tensors S in all
        columns.
        """
        entries = self._entries(packed) * self.lower.scales[:, None, None]
        return entries.transpose(1, 0, 2).reshape(self.dimension, -1)

    def gram_of_unfolding(self, packed: FloatArray) -> FloatArray:
        """Return the d x d matrix of Σ ⟨S[a], S[b]⟩ over the tensors S in all columns."""
        unfolding = self.unfolding(packed)
        return unfolding @ unfolding.T

    @cached_property
    def lower(self) -> PackedCoordinates:
        """The coordinates of one degree less."""
        return PackedCoordinates(self.dimension, self.degree - 1)

    def _entries(self, packed: FloatArray) -> FloatArray:
        """Return S[r, a], for sorted tuples r of one index less and all indices a, of the tensor S
        in each column.
        """
        entries = (packed / self.scales[:, None])[self._places]
        return entries.reshape(self.lower.size, self.dimension, packed.shape[1])

    @cached_property
    def _places(self) -> IndexArray:
        """The place of each tuple of one index less with one more index put in, in the order of
        both.
        """
        rows = self.lower.tuples
        inserted = np.tile(np.arange(self.dimension), rows.shape[1])
        longer = np.concatenate([np.repeat(rows, self.dimension, axis=1), inserted[None, :]])
        return places_of(longer)


@lru_cache(maxsize=8)  # solvers ask for the same ones many times
def flattening_coordinates(
    dimension: int, order: int
) -> tuple[PackedCoordinates, PackedCoordinates]:
    """Return the coordinates of the rows and of the columns of a flattening: of degrees ⌊p/2⌋ and
    ⌈p/2⌉.
    """
    rows = PackedCoordinates(dimension, order // 2)
    return rows, rows if order % 2 == 0 else PackedCoordinates(dimension, order - order // 2)


def flattening_of_packed(packed: FloatArray, dimension: int) -> FloatArray:
    """Return the flattening of a symmetric tensor of order 4 that is given in packed coordinates of
    degree 4.
    """
    whole = PackedCoordinates(dimension, 4)
    pairs = PackedCoordinates(dimension, 2)
    first = np.repeat(pairs.tuples, pairs.size, axis=1)
    second = np.tile(pairs.tuples, pairs.size)
    matrix = (packed / whole.scales)[places_of(np.concatenate([first, second]))].reshape(
        pairs.size, pairs.size
    )
    return matrix * pairs.scales[:, None] * pairs.scales


def flattened(entries: DataArray) -> FloatArray:
    """Return the flattening of a symmetric array."""
    rows, columns = flattening_coordinates(entries.shape[0], entries.ndim)
    picked = entries[tuple(rows.tuples)].astype(np.float64)[(slice(None), *columns.tuples)]
    matrix: FloatArray = picked * rows.scales[:, None] * columns.scales
    return matrix


def places_of(indices: IndexArray) -> IndexArray:
    """Return the place of each column of indices, in any order, among the sorted tuples: Σᵣ C(iᵣ +
    r, r + 1).
    """
    ordered = np.sort(indices, axis=0)
    places: IndexArray = sum(
        (binomials(row + r, r + 1) for r, row in enumerate(ordered)),
        np.zeros(indices.shape[1], np.int64),
    )
    return places


def sorted_tuples(dimension: int, length: int) -> IndexArray:
    """Return all i₀ ≤ i₁ ≤ … < `dimension` as the columns of an array, in colexicographic order.

    The tuples of a smaller dimension come first, in the same order.
    """
    tuples = np.arange(dimension)[None, :]
    for shorter in range(1, length):
        counts = [math.comb(last + shorter, shorter) for last in range(dimension)]
        heads = np.concatenate([tuples[:, :count] for count in counts], axis=1)
        tuples = np.concatenate([heads, np.repeat(np.arange(dimension), counts)[None, :]])
    return tuples


def n_arrangements(indices: IndexArray) -> FloatArray:
    """Return in how many orders the entries of each sorted column can be written: p! over the
    factorials of repeats.
    """
    repeats = np.ones(indices.shape[1])
    run = np.ones(indices.shape[1])
    for previous, current in itertools.pairwise(indices):
        run = np.where(previous == current, run + 1, 1)
        repeats *= run
    return math.factorial(indices.shape[0]) / repeats


def binomials(top: IndexArray, bottom: int) -> IndexArray:
    """Return C(top, bottom) for an array of integers, exactly."""
    result = np.ones_like(top)
    for factor in range(bottom):
        result = result * (top - factor) // (factor + 1)
    return result


@final
class FlattenedTensor(Oracle):
    """A symmetric tensor given by its flattening, whose products are matrix products.

    Parameters
    ----------
    flattening : array, C(d+h−1, h) x C(d+g−1, g) with h = ⌊p/2⌋ and g = ⌈p/2⌉
        Entry (I, J) is T[I, J] times the root of the number of arrangements of the sorted tuples I
        and J, in the order of `odeco.tensors.coordinates`. It must come from a symmetric tensor:
        T[I, J] depends on the indices only.
    dimension, order : int
        The d and p of the tensor.
    rounding : float
        The relative rounding error of the entries.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> from odeco.tensors import FlattenedTensor
    >>> truth = odeco.Components([2.0, 1.0], np.eye(3)[:, :2], order=4)
    >>> FlattenedTensor(truth.flattening(), 3, 4).image(np.ones((3, 1))).ravel()
    array([2., 1., 0.])
    """

    def __init__(
        self,
        flattening: Any,
        dimension: int,
        order: int,
        *,
        rounding: float = float(np.finfo(np.float64).eps),
    ) -> None:
        self.matrix: FloatArray = np.asarray(flattening, dtype=np.float64)
        self.dimension = dimension
        self.order = order
        self.rounding = rounding
        self.rows, self.columns = flattening_coordinates(dimension, order)
        if self.matrix.shape != (self.rows.size, self.columns.size):
            raise ValueError(
                f"The flattening must have shape ({self.rows.size}, {self.columns.size}) for a "
                f"tensor of dimension {dimension} and order {order}. Got shape "
                f"{self.matrix.shape}."
            )

    def squared_norm(self) -> float:
        """Return the sum of the squares of all entries."""
        return float(np.vdot(self.matrix, self.matrix))

    def flattening(self) -> FloatArray:
        """Return the matrix."""
        return self.matrix

    def unfolding_gram(self) -> FloatArray:
        """Return M Mᵀ for the d x dᵖ⁻¹ unfolding M."""
        with one_blas_thread():
            gram: FloatArray = self.rows.gram_of_unfolding(self.matrix)
        return gram

    def within(self, basis: FloatArray) -> FlattenedTensor:
        """Return the tensor in the coordinates of an orthonormal basis."""
        with one_blas_thread():
            rows = self.rows.within(basis)
            core = (
                rows.T
                @ self.matrix
                @ (rows if self.columns is self.rows else self.columns.within(basis))
            )
        return FlattenedTensor(core, basis.shape[1], self.order, rounding=self.rounding)

    def divided(self, scales: FloatArray) -> FlattenedTensor:
        """Return the tensor in coordinates that are divided by scales."""
        rows, columns = (
            each.powers(scales[:, None])[:, 0] / each.scales for each in (self.rows, self.columns)
        )
        matrix = self.matrix / rows[:, None] / columns
        return FlattenedTensor(matrix, self.dimension, self.order, rounding=self.rounding)

    def minus(self, components: Components) -> FlattenedTensor:
        """Return the tensor minus components, as a flattening."""
        with one_blas_thread():
            left = self.matrix - components.flattening()
        return FlattenedTensor(left, self.dimension, self.order, rounding=self.rounding)

    def _image(self, block: FloatArray) -> FloatArray:
        return self.rows.contract(self._half(block), block)

    def _value(self, block: FloatArray) -> FloatArray:
        values: FloatArray = np.einsum("il,il->l", self.rows.powers(block), self._half(block))
        return values

    def _slice(self, direction: FloatArray) -> FloatArray:
        block = direction[:, None]
        if self.rows.degree == 1:
            return self.columns.slices(self.matrix.T @ block, block)[:, :, 0]
        return self.rows.slices(self._half(block), block)[:, :, 0]

    def _half(self, block: FloatArray) -> FloatArray:
        """Return T(I, …, I, u, …, u) in the coordinates of the rows."""
        with one_blas_thread():  # results must not depend on the number of threads
            half: FloatArray = self.matrix @ self.columns.powers(block)
        return half


@final
class FactoredTensor(Oracle):
    """A symmetric tensor of even order whose flattening has low rank: it is known by its
    eigenvectors.

    Parameters
    ----------
    vectors : array, C(d+h−1, h) x k with h = p/2
        Orthonormal eigenvectors of the flattening, in packed coordinates.
    values : array
        Its eigenvalues.
    dimension, order : int
        The d and p of the tensor.
    noise : array
        Other eigenvalues, which are noise: the scale for the errors of the vectors.
    """

    rounding = float(np.finfo(np.float64).eps)

    def __init__(
        self,
        vectors: FloatArray,
        values: FloatArray,
        dimension: int,
        order: int = 4,
        noise: Any = (),
    ) -> None:
        self.vectors = vectors
        self.values = values
        self.dimension = dimension
        self.order = order
        self.noise: FloatArray = np.asarray(noise, np.float64)
        self.rows = flattening_coordinates(dimension, order)[0]

    def squared_norm(self) -> float:
        """Return the sum of the squares of all entries."""
        return float(self.values @ self.values)

    def __matmul__(self, packed: FloatArray) -> FloatArray:
        """Return the flattening times vectors in packed coordinates."""
        with one_blas_thread():  # results must not depend on the number of threads
            product: FloatArray = self.vectors @ (self.values[:, None] * (self.vectors.T @ packed))
        return product

    def _image(self, block: FloatArray) -> FloatArray:
        return self.rows.contract(self @ self.rows.powers(block), block)
