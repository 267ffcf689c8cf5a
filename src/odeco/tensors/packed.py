"""A symmetric tensor of which every distinct entry is stored once. At order 3 that takes a sixth of the memory."""

from __future__ import annotations

import itertools
import math
from functools import cached_property
from typing import Any, final

import numpy as np

from odeco._util.arguments import MINIMUM_ORDER, check_count
from odeco._util.scale import times_power_of_two
from odeco._util.threads import map_blocks
from odeco._util.types import DataArray, FloatArray, IndexArray
from odeco.tensors.dense import image_from_slabs
from odeco.tensors.entries import EntryTensor, as_entries, as_values, check_symmetric

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
            place += np.where(before, _binomials(index + r, r + 1)[:, None], _binomials(index + r + 1, r + 2)[:, None])
        for r in range(self.order):
            place += np.where(position == r, _binomials(inserted + r, r + 1), 0)
        return place


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


def _binomials(top: IndexArray, bottom: int) -> IndexArray:
    """Return C(top, bottom) for an array of integers, exactly."""
    result = np.ones_like(top)
    for factor in range(bottom):
        result = result * (top - factor) // (factor + 1)
    return result
