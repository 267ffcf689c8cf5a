"""Symmetric tensors of which every distinct entry is stored at most once: all of them (packed), or the non-zero ones.

At order 3 a packed tensor takes a sixth of the memory of a dense one.
"""

from __future__ import annotations

import itertools
import math
from functools import cached_property
from typing import Any, final

import numpy as np

from odeco._util.arguments import MINIMUM_ORDER, check_count, times_power_of_two
from odeco._util.threads import map_blocks
from odeco._util.types import DataArray, FloatArray, IndexArray
from odeco.tensors.coordinates import binomials, flattening_coordinates, n_arrangements, places_of, sorted_tuples
from odeco.tensors.dense import image_from_slabs
from odeco.tensors.entries import EntryTensor, as_coordinates, as_entries, as_values, check_symmetric

_ROWS_AT_ONCE = 2048


@final
class PackedTensor(EntryTensor):
    """A symmetric tensor that stores T[i, j, k] for i ≤ j ≤ k only.

    Parameters
    ----------
    packed : array of C(d + p − 1, p) numbers
        The distinct entries, float32 or float64, in colexicographic order: the last index varies slowest. At order 3
        the entry i ≤ j ≤ k is at place C(k+2, 3) + C(j+1, 2) + i. The array is not copied.
    dimension, order : int
        The d and p of the tensor.

    Notes
    -----
    An image unpacks a few slabs at a time. This takes about three times as long as the image of a `DenseTensor`.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.tensors import PackedTensor
    >>> tensor = PackedTensor.from_dense(np.ones((20, 20, 20)))
    >>> tensor.packed.size, 20**3
    (1540, 8000)
    """

    def __init__(self, packed: Any, dimension: int, order: int = 3) -> None:
        self.dimension = check_count("dimension", dimension)
        self.order = check_count("order", order, MINIMUM_ORDER)
        size = math.comb(self.dimension + self.order - 1, self.order)
        what = f"hold the {size} distinct entries of a tensor of dimension {dimension} and order {order}"
        self.packed: DataArray = np.ascontiguousarray(as_values(packed, (size,), "packed", what))
        self._scaled = self._scale(self.packed)
        self.rounding = float(np.finfo(self.packed.dtype).eps)

    @classmethod
    def from_dense(cls, entries: Any) -> PackedTensor:
        """Keep the distinct entries of a symmetric array."""
        full = as_entries(entries)
        check_symmetric(full)
        dimension, order = full.shape[0], full.ndim
        lower = sorted_tuples(dimension, order - 1)
        counts = [math.comb(last + order - 1, order - 1) for last in range(dimension)]
        slabs = [full[last][tuple(lower[:, :count])] for last, count in enumerate(counts)]
        return cls(np.concatenate(slabs), dimension, order)

    def to_dense(self) -> DataArray:
        """Return all d³ entries as an array; order 3 only."""
        if self.order != 3:
            raise ValueError(f"Only tensors of order 3 are unpacked as a whole. Got order {self.order}.")
        entries: DataArray = times_power_of_two(self._unpack_slab(0, self.dimension), self.exponent)
        return entries

    def _unit_squared_norm(self) -> float:
        """Return the sum of the squares of all dᵖ entries, each distinct one counted as often as it occurs."""
        total, start = 0.0, 0
        lower = sorted_tuples(self.dimension, self.order - 1)
        for last in range(self.dimension):
            count = math.comb(last + self.order - 1, self.order - 1)
            slab = self._scaled[start : start + count].astype(np.float64)
            indices = np.concatenate([lower[:, :count], np.full((1, count), last)])
            total += float(n_arrangements(indices) @ slab**2)
            start += count
        return total

    def _unit_image(self, block: FloatArray) -> FloatArray:
        if self.order == 3:
            return image_from_slabs(self._unpack_slab, block, self.packed.dtype)
        return self._image_by_rows(block)

    def _unpack_slab(self, start: int, stop: int) -> DataArray:
        """Return T[start:stop, :stop, :stop] as a full array."""
        slab = np.empty((stop - start, stop, stop), self.packed.dtype)
        for last in range(start, stop):
            offset, size = math.comb(last + 2, 3), last + 1
            np.take(
                self._scaled[offset:], self._places[:size, :size], out=slab[last - start, :size, :size], mode="clip"
            )
            # The slices before this one still lack the entries in which `last` is the larger index.
            mirrored = slab[last - start, start:last, :size]
            slab[: last - start, last, :size] = mirrored
            slab[: last - start, :size, last] = mirrored
        return slab

    @cached_property
    def _places(self) -> IndexArray:
        """The place of (i, j) among the entries that share one largest index, the same for every largest index."""
        index = np.arange(self.dimension)
        larger, smaller = np.maximum.outer(index, index), np.minimum.outer(index, index)
        places: IndexArray = larger * (larger + 1) // 2 + smaller
        return places

    def _image_by_rows(self, block: FloatArray) -> FloatArray:
        """Unpack the distinct rows of the unfolding, a few at a time, and count each as often as it occurs."""
        tuples = sorted_tuples(self.dimension, self.order - 1)
        columns = block.astype(self.packed.dtype)

        def contract(start: int) -> DataArray:
            rows = tuples[:, start : start + _ROWS_AT_ONCE]
            products = np.prod(columns[rows], axis=0) * n_arrangements(rows)[:, None].astype(columns.dtype)
            part: DataArray = self._scaled[self._places_of(rows)].T @ products
            return part

        total = np.zeros(block.shape)
        for part in map_blocks(contract, range(0, tuples.shape[1], _ROWS_AT_ONCE), parallel=True):
            total += part
        return total

    def _unit_flattening(self) -> FloatArray:
        rows, columns = flattening_coordinates(self.dimension, self.order)
        pairs = [np.repeat(rows.tuples, columns.size, axis=1), np.tile(columns.tuples, rows.size)]
        entries = self._scaled[places_of(np.concatenate(pairs))].reshape(rows.size, columns.size)
        return entries * rows.scales[:, None] * columns.scales

    def _places_of(self, rows: IndexArray) -> IndexArray:
        """Return the place of entry (row, a) for every sorted row of p − 1 indices and every a.

        In colexicographic order the place of i₀ ≤ i₁ ≤ … is Σᵣ C(iᵣ + r, r + 1). Once a is put into the row, every
        index that is larger than a stands one position further on.
        """
        inserted = np.arange(self.dimension)
        place = np.zeros((rows.shape[1], self.dimension), np.int64)
        position = np.zeros_like(place)
        for r, index in enumerate(rows):
            before = index[:, None] <= inserted
            position += before
            place += np.where(before, binomials(index + r, r + 1)[:, None], binomials(index + r + 1, r + 2)[:, None])
        for r in range(self.order):
            place += np.where(position == r, binomials(inserted + r, r + 1), 0)
        return place


#: Numbers in the intermediate products of one chunk of terms.
_CHUNK_SIZE = 2**18


@final
class SparseTensor(EntryTensor):
    """A symmetric tensor that stores its non-zero entries. Time and memory are proportional to their number.

    Parameters
    ----------
    indices : array of integers, n x p
        Each row holds the coordinates of one entry. An entry stands for all permutations of its indices. It may be
        listed once or with several permutations, whose values must then agree.
    values : array of n numbers
        The entries, float32 or float64.
    dimension : int
        The size of every axis.

    Examples
    --------
    >>> from odeco.tensors import SparseTensor
    >>> tensor = SparseTensor([[0, 1, 2]], [1.0], dimension=100_000)
    >>> import numpy as np
    >>> tensor.value(np.ones((100_000, 1)))
    array([6.])
    """

    def __init__(self, indices: Any, values: Any, dimension: int) -> None:
        self.dimension = check_count("dimension", dimension)
        coordinates = as_coordinates(indices, self.dimension)
        checked = as_values(values, coordinates.shape[:1], "values", "hold one number for each row of `indices`")
        self.order = coordinates.shape[1]
        self.rounding = float(np.finfo(checked.dtype).eps)
        distinct, values_once = _merge(coordinates, checked.astype(np.float64))
        weights = self._scale(values_once)
        arrangements = n_arrangements(distinct)
        self.n_entries = distinct.shape[1]
        self._squared_norm = float(arrangements @ weights**2)
        self._distinct, self._values = distinct, weights
        # T(u,…,u) is the sum of value · arrangements · Πᵣ u[iᵣ], and T(I,u,…,u) is its gradient divided by p. So each
        # position r of an entry gives one term in row iᵣ, with the other indices as its factors. Terms are sorted by
        # row, so that the terms of one row lie together and can be added up as a run.
        terms = [(distinct[r], np.delete(distinct, r, axis=0)) for r in range(self.order)]
        rows = np.concatenate([row for row, _ in terms])
        by_row = np.argsort(rows, kind="stable")
        self._rows: IndexArray = rows[by_row]
        self._factors: IndexArray = np.concatenate([others for _, others in terms], axis=1)[:, by_row]
        self._weights: FloatArray = np.tile(weights * arrangements / self.order, self.order)[by_row]

    def _unit_squared_norm(self) -> float:
        """Return the sum of the squares of all entries, each counted with all its permutations."""
        return self._squared_norm

    def _unit_flattening(self) -> FloatArray:
        """Put every entry where its indices are split into those of a row and those of a column."""
        rows, columns = flattening_coordinates(self.dimension, self.order)
        matrix = np.zeros((rows.size, columns.size))
        for chosen in itertools.combinations(range(self.order), rows.degree):
            row = places_of(self._distinct[list(chosen)])
            column = places_of(np.delete(self._distinct, chosen, axis=0))
            matrix[row, column] = self._values * rows.scales[row] * columns.scales[column]
        return matrix

    def _unit_image(self, block: FloatArray) -> FloatArray:
        block = np.ascontiguousarray(block)
        n_terms, n_columns = self._rows.size, block.shape[1]
        length = max(1, _CHUNK_SIZE // max(1, n_columns))
        chunks = [slice(start, min(start + length, n_terms)) for start in range(0, n_terms, length)]

        def contract(chunk: slice) -> tuple[IndexArray, FloatArray]:
            products = np.take(block, self._factors[0, chunk], axis=0)
            products *= self._weights[chunk, None]
            for factor in self._factors[1:, chunk]:
                products *= np.take(block, factor, axis=0)
            rows = self._rows[chunk]
            starts = np.flatnonzero(np.diff(rows, prepend=-1))
            return rows[starts], np.add.reduceat(products, starts, axis=0)

        total = np.zeros(block.shape)
        for rows, sums in map_blocks(contract, chunks, parallel=len(chunks) > 1):
            total[rows] += sums
        return total


def _merge(coordinates: IndexArray, values: FloatArray) -> tuple[IndexArray, FloatArray]:
    """Return every distinct entry once, with sorted indices; refuse permutations that disagree."""
    ordered = np.sort(coordinates.astype(np.int64), axis=1)
    by_entry = np.lexsort(ordered.T[::-1])
    ordered, values = ordered[by_entry], values[by_entry]
    first = np.r_[True, np.any(np.diff(ordered, axis=0) != 0, axis=1)]
    kept = values[first][np.cumsum(first) - 1]
    disagree = np.flatnonzero(np.abs(values - kept) > 1e-8 * np.abs(values).max())
    if disagree.size:
        bad = int(disagree[0])
        listed = ", ".join(str(index) for index in ordered[bad])
        raise ValueError(
            f"The tensor is not symmetric: T[{listed}] = {kept[bad]:.6g} in one listing but {values[bad]:.6g} in "
            "another. List each entry once, or make its permutations agree."
        )
    return ordered[first].T, values[first]
