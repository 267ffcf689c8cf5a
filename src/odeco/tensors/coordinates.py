"""Packed coordinates of symmetric tensors: one for each sorted tuple of indices, scaled so that norms are kept.

A symmetric tensor S of degree h over d dimensions has C(d+h−1, h) different entries. The coordinate of the tuple
i₀ ≤ i₁ ≤ … is S[i₀, i₁, …] times the root of the number of its arrangements, so that the inner product of two
tensors is that of their coordinates. Tuples are in colexicographic order: the last index varies slowest.
"""

from __future__ import annotations

import itertools
import math
from functools import cached_property, lru_cache

import numpy as np

from odeco._util.types import DataArray, FloatArray, IndexArray


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
        self.dimension, self.degree = dimension, degree
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
        """Return S(I, u, …, u) for every column u of a block and the tensor S in the same column of `packed`."""
        if self.degree == 1:
            return packed
        powers = self.lower.powers(block) * self.lower.scales[:, None]
        images: FloatArray = np.einsum("ral,rl->al", self._entries(packed), powers)
        return images

    def slices(self, packed: FloatArray, block: FloatArray) -> FloatArray:
        """Return the matrices S(I, I, u, …, u), shape d x d x L; at degree 2 they are the tensors themselves."""
        lower, entries = self.lower, self._entries(packed)
        if self.degree == 2:
            return entries
        # Each row S[·, a] is a tensor of one degree less, in packed entries.
        rows = (entries * lower.scales[:, None, None]).reshape(lower.size, -1)
        return lower.contract(rows, np.tile(block, self.dimension)).reshape(self.dimension, self.dimension, -1)

    def within(self, basis: FloatArray) -> FloatArray:
        """Return the symmetric power of a d x m basis: it maps coordinates of tensors over m dimensions to these."""
        inner = PackedCoordinates(basis.shape[1], self.degree)
        rows, total = [basis[indices] for indices in self.tuples], np.zeros((self.size, inner.size))
        for places in itertools.permutations(range(self.degree)):
            factors = (row[:, inner.tuples[place]] for row, place in zip(rows, places, strict=True))
            total += math.prod(factors, start=np.ones(()))
        total *= self.scales[:, None] * inner.scales / math.factorial(self.degree)
        return total

    def unfolding(self, packed: FloatArray) -> FloatArray:
        """Return S[a] in packed coordinates, a row for each index a, of the tensors S in all columns."""
        entries = self._entries(packed) * self.lower.scales[:, None, None]
        return entries.transpose(1, 0, 2).reshape(self.dimension, -1)

    def gram_of_unfolding(self, packed: FloatArray) -> FloatArray:
        """Return the d x d matrix of Σ ⟨S[a], S[b]⟩ over the tensors S in all columns."""
        unfolding = self.unfolding(packed)
        gram: FloatArray = unfolding @ unfolding.T
        return gram

    @cached_property
    def lower(self) -> PackedCoordinates:
        """The coordinates of one degree less."""
        return PackedCoordinates(self.dimension, self.degree - 1)

    def _entries(self, packed: FloatArray) -> FloatArray:
        """Return S[r, a], for sorted tuples r of one index less and all indices a, of the tensor S in each column."""
        entries = (packed / self.scales[:, None])[self._places]
        return entries.reshape(self.lower.size, self.dimension, packed.shape[1])

    @cached_property
    def _places(self) -> IndexArray:
        """The place of each tuple of one index less with one more index put in, in the order of both."""
        rows = self.lower.tuples
        inserted = np.tile(np.arange(self.dimension), rows.shape[1])
        longer = np.concatenate([np.repeat(rows, self.dimension, axis=1), inserted[None, :]])
        return places_of(longer)


@lru_cache(maxsize=8)  # solvers ask for the same ones many times
def flattening_coordinates(dimension: int, order: int) -> tuple[PackedCoordinates, PackedCoordinates]:
    """Return the coordinates of the rows and of the columns of a flattening: of degrees ⌊p/2⌋ and ⌈p/2⌉."""
    rows = PackedCoordinates(dimension, order // 2)
    return rows, rows if order % 2 == 0 else PackedCoordinates(dimension, order - order // 2)


def flattening_of_packed(packed: FloatArray, dimension: int) -> FloatArray:
    """Return the flattening of a symmetric tensor of order 4 that is given in packed coordinates of degree 4."""
    whole, pairs = PackedCoordinates(dimension, 4), PackedCoordinates(dimension, 2)
    first, second = (np.repeat(pairs.tuples, pairs.size, axis=1), np.tile(pairs.tuples, pairs.size))
    matrix = (packed / whole.scales)[places_of(np.concatenate([first, second]))].reshape(pairs.size, pairs.size)
    flattening: FloatArray = matrix * pairs.scales[:, None] * pairs.scales
    return flattening


def flattened(entries: DataArray) -> FloatArray:
    """Return the flattening of a symmetric array."""
    rows, columns = flattening_coordinates(entries.shape[0], entries.ndim)
    picked = entries[tuple(rows.tuples)].astype(np.float64)[(slice(None), *columns.tuples)]
    matrix: FloatArray = picked * rows.scales[:, None] * columns.scales
    return matrix


def places_of(indices: IndexArray) -> IndexArray:
    """Return the place of each column of indices, in any order, among the sorted tuples: Σᵣ C(iᵣ + r, r + 1)."""
    ordered = np.sort(indices, axis=0)
    places: IndexArray = sum(
        (binomials(row + r, r + 1) for r, row in enumerate(ordered)), np.zeros(indices.shape[1], np.int64)
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
    """Return in how many orders the entries of each sorted column can be written: p! over the factorials of repeats."""
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
