"""Symmetric tensors given by all their entries, dense or packed, and the image T(I, u, u) from one
third of them.

At order 3 the tensor is cut into slabs by the largest index: the slab [k₀, k₁) holds every entry
whose largest index lies there. Such an entry can be read with that index first, so a slab needs
``T[k₀:k₁, :k₁, :k₁]`` and nothing else. In all, a third of the tensor is read, and a third of the
products of the unfolding are made.

A packed tensor stores every distinct entry once: at order 3, a sixth of the memory of a dense one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, final

import numpy as np

from odeco._util.arguments import MINIMUM_ORDER, check_count, is_foreign, times_power_of_two
from odeco._util.threads import map_blocks, one_blas_thread
from odeco._util.types import DataArray, FloatArray, IndexArray
from odeco.tensors.coordinates import (
    binomials,
    flattened,
    flattening_coordinates,
    n_arrangements,
    places_of,
    sorted_tuples,
)
from odeco.tensors.device import DeviceTensor
from odeco.tensors.entries import EntryTensor, as_entries, as_values, check_axes, check_symmetric
from odeco.tensors.oracle import Oracle

#: Below this dimension handing a slab to a thread takes longer than contracting it.
PARALLEL_DIMENSION = 128

#: Rows of the unfolding of a packed tensor that are unpacked at a time, at order 4 and above.
_ROWS_AT_ONCE = 2048

#: Numbers in the intermediate product of a slab: 4 MB, which the second-level cache of two cores
#: can hold.
INTERMEDIATE_SIZE = 2**19


def image_from_slabs(
    read_slab: Callable[[int, int], DataArray], block: FloatArray, dtype: np.dtype[Any]
) -> FloatArray:
    """Return T(I, u, u) for every column of `block`, where ``read_slab(k₀, k₁)`` is ``T[k₀:k₁, :k₁,
    :k₁]``.

    Products are made in `dtype`, and added up over slabs in double precision.
    """
    dimension, n_columns = block.shape
    rows = np.ascontiguousarray(block.T, dtype=dtype)
    height = int(np.clip(INTERMEDIATE_SIZE // max(1, dimension * n_columns), 4, 32))
    slabs = [(start, min(start + height, dimension)) for start in range(0, dimension, height)]

    def contract(slab: tuple[int, int]) -> DataArray:
        return contract_slab(read_slab(*slab), rows[:, : slab[1]], slab[1] - slab[0])

    total = np.zeros((n_columns, dimension))
    parallel = dimension >= PARALLEL_DIMENSION
    for (_, stop), part in zip(slabs, map_blocks(contract, slabs, parallel=parallel), strict=True):
        total[:, :stop] += part
    return total.T


def contract_slab(slab: DataArray, rows: DataArray, height: int) -> DataArray:
    """Return what the entries of one slab contribute to T(I, u, u), for every row u of `rows`.

    Write u = (w, x), where x holds the last `height` coordinates, which are those of the slab. T(I,
    u, u) is a sum over pairs of indices. The slab contributes

    * all pairs to a coordinate inside the slab: T(·, w, w) + 2 T(·, x, w) + T(·, x, x);
    * the pairs that touch the slab to a coordinate outside of it: 2 T(·, x, w) + T(·, x, x).

    The one product z = T[slab](·, (w, x/2)) gives both: 2⟨x, z⟩ outside, and ⟨(w, 3x/2), z⟩ + T(·,
    x, x)/4 inside.
    """
    size = rows.shape[1]
    outside = size - height
    halved = rows.copy()
    halved[:, outside:] *= 0.5
    product = np.matmul(halved, slab).transpose(
        1, 0, 2
    )  # L x height x size, as the slices of the slab are symmetric
    in_slab = rows[:, outside:]
    halved[:, outside:] *= 3
    result = np.empty_like(rows)
    result[:, :outside] = np.matmul(2 * in_slab[:, None, :], product[:, :, :outside])[:, 0]
    corner = np.matmul(in_slab, slab[:, outside:, outside:]).transpose(1, 0, 2)
    result[:, outside:] = np.matmul(product, halved[:, :, None])[:, :, 0]
    result[:, outside:] += 0.25 * np.matmul(corner, in_slab[:, :, None])[:, :, 0]
    return result


#: Numbers in the partial product of several slices, at order 4 and above: few enough for the cache
#: of a processor.
_PARTIAL_SIZE = 2**15

#: Up to this dimension a call of a NumPy function takes longer than the products that slabs would
#: save.
SMALL_DIMENSION = 40


@final
class DenseTensor(EntryTensor):
    """A symmetric array of order 3 or more, which is used as it lies in memory.

    Parameters
    ----------
    entries : array, d x d x … x d
        The array, of float32, float64 or integers, read-only or not. It is copied only if it holds
        integers, or is neither in C order nor in Fortran order. The products of a float32 array are
        made in float32 and added up in float64.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.tensors import DenseTensor
    >>> DenseTensor(np.ones((2, 2, 2))).image([[1.0], [2.0]]).ravel()
    array([9., 9.])
    """

    def __init__(self, entries: Any) -> None:
        checked = as_entries(entries)
        check_symmetric(checked)
        # Reversing the axes of a symmetric array changes nothing but its memory order.
        ordered = checked.T if checked.flags.f_contiguous else np.ascontiguousarray(checked)
        self.entries: DataArray = ordered
        self._scaled = self._scale(ordered)
        self.dimension = ordered.shape[0]
        self.order = ordered.ndim
        self.rounding = float(np.finfo(ordered.dtype).eps)

    def _unit_squared_norm(self) -> float:
        return float(sum(np.sum(np.square(part, dtype=np.float64)) for part in self._scaled))

    def _unit_unfolding_gram(self) -> FloatArray:
        def gram(index: int) -> FloatArray:
            slab = self._scaled[index].reshape(self.dimension, -1).astype(np.float64, copy=False)
            product: FloatArray = slab @ slab.T
            return product

        total = np.zeros((self.dimension, self.dimension))
        for each in self._over_first_index(gram, self.dimension):  # in the order of the index
            total += each
        return total

    def _unit_flattening(self) -> FloatArray:
        return flattened(self._scaled)

    def _unit_inside(self, basis: FloatArray) -> FloatArray:
        def contract(index: int) -> FloatArray:
            slab = self._scaled[index].astype(np.float64, copy=False)
            for _ in range(self.order - 1):  # the first axis is contracted and becomes the last
                slab = slab.reshape(self.dimension, -1).T @ basis
            row: FloatArray = slab.ravel()
            return row

        slabs = np.stack(list(self._over_first_index(contract, basis.shape[1])))
        with one_blas_thread():
            core: FloatArray = (basis.T @ slabs).reshape((basis.shape[1],) * self.order)
        return core

    def _over_first_index(
        self, work: Callable[[int], FloatArray], width: int
    ) -> Iterator[FloatArray]:
        parallel = self._scaled.size * width >= PARALLEL_DIMENSION**4
        return map_blocks(work, range(self.dimension), parallel=parallel)

    def _unit_image(self, block: FloatArray) -> FloatArray:
        if self.order == 3 and self.dimension <= SMALL_DIMENSION:
            # Two indices by one matrix product: in few dimensions the number of calls matters most.
            columns = block.astype(self._scaled.dtype, copy=False)
            pairs = (columns[:, None, :] * columns[None, :, :]).reshape(-1, block.shape[1])
            with one_blas_thread():
                image: DataArray = self._scaled.reshape(self.dimension, -1) @ pairs
            return image.astype(np.float64, copy=False)
        if self.order == 3:
            return image_from_slabs(
                lambda start, stop: self._scaled[start:stop, :stop, :stop],
                block,
                self._scaled.dtype,
            )
        return self._image_by_slices(block)

    def _unit_slice(self, direction: FloatArray) -> FloatArray:
        """Contract the last index with the direction until two are left."""
        along = direction.astype(self._scaled.dtype)
        matrix = self._scaled
        with one_blas_thread():  # reading the entries takes longer than multiplying them
            for _ in range(self.order - 2):
                matrix = matrix @ along
        symmetric: FloatArray = matrix.astype(np.float64)
        return (symmetric + symmetric.T) / 2

    def _image_by_slices(self, block: FloatArray) -> FloatArray:
        """Contract the slices T[i] of a range of i after another: two indices by one product, then
        the others.
        """
        dimension, n_columns = block.shape
        columns = block.astype(self._scaled.dtype)
        pairs = (columns[:, None, :] * columns[None, :, :]).reshape(-1, n_columns)
        height = max(1, _PARTIAL_SIZE // (dimension ** (self.order - 3) * n_columns))

        def contract(start: int) -> DataArray:
            slices: DataArray = self._scaled[start : start + height].reshape(-1, dimension**2)
            partial: DataArray = slices @ pairs
            for _ in range(self.order - 3):
                partial = np.einsum(
                    "ijl,jl->il", partial.reshape(-1, dimension, n_columns), columns
                )
            return partial

        work = self._scaled.size * n_columns
        rows = map_blocks(
            contract, range(0, dimension, height), parallel=work >= PARALLEL_DIMENSION**4
        )
        return np.concatenate(list(rows)).astype(np.float64)


@final
class PackedTensor(EntryTensor):
    """A symmetric tensor that stores T[i, j, k] for i ≤ j ≤ k only.

    Parameters
    ----------
    packed : array of C(d + p − 1, p) numbers
        The distinct entries, float32 or float64, in colexicographic order: the last index varies
        slowest. At order 3 the entry i ≤ j ≤ k is at place C(k+2, 3) + C(j+1, 2) + i. The array is
        not copied.
    dimension, order : int
        The d and p of the tensor.

    Notes
    -----
    An image unpacks a few slabs at a time. This takes about three times as long as the image of a
    `DenseTensor`.

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
        what = (
            f"hold the {size} distinct entries of a tensor of dimension {dimension} and order "
            f"{order}"
        )
        self.packed: DataArray = np.ascontiguousarray(as_values(packed, (size,), "packed", what))
        self._scaled = self._scale(self.packed)
        self.rounding = float(np.finfo(self.packed.dtype).eps)

    @classmethod
    def from_dense(cls, entries: Any) -> PackedTensor:
        """Keep the distinct entries of a symmetric array."""
        full = as_entries(entries)
        check_symmetric(full)
        dimension = full.shape[0]
        order = full.ndim
        lower = sorted_tuples(dimension, order - 1)
        counts = [math.comb(last + order - 1, order - 1) for last in range(dimension)]
        slabs = [full[last][tuple(lower[:, :count])] for last, count in enumerate(counts)]
        return cls(np.concatenate(slabs), dimension, order)

    def to_dense(self) -> DataArray:
        """Return all d³ entries as an array; order 3 only."""
        if self.order != 3:
            raise ValueError(
                f"Only tensors of order 3 are unpacked as a whole. Got order {self.order}."
            )
        entries: DataArray = times_power_of_two(self._unpack_slab(0, self.dimension), self.exponent)
        return entries

    def _unit_squared_norm(self) -> float:
        """Return the sum of the squares of all dᵖ entries, each distinct one counted as often as it
        occurs.
        """
        total = 0.0
        start = 0
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
            offset = math.comb(last + 2, 3)
            size = last + 1
            np.take(
                self._scaled[offset:],
                self._places[:size, :size],
                out=slab[last - start, :size, :size],
                mode="clip",
            )
            # The slices before this one still lack the entries in which `last` is the larger index.
            mirrored = slab[last - start, start:last, :size]
            slab[: last - start, last, :size] = mirrored
            slab[: last - start, :size, last] = mirrored
        return slab

    @cached_property
    def _places(self) -> IndexArray:
        """The place of (i, j) among the entries that share one largest index, the same for every
        largest index.
        """
        index = np.arange(self.dimension)
        larger = np.maximum.outer(index, index)
        smaller = np.minimum.outer(index, index)
        places: IndexArray = larger * (larger + 1) // 2 + smaller
        return places

    def _image_by_rows(self, block: FloatArray) -> FloatArray:
        """Unpack the distinct rows of the unfolding, a few at a time, and count each as often as it
        occurs.
        """
        tuples = sorted_tuples(self.dimension, self.order - 1)
        columns = block.astype(self.packed.dtype)

        def contract(start: int) -> DataArray:
            rows = tuples[:, start : start + _ROWS_AT_ONCE]
            products = np.prod(columns[rows], axis=0) * n_arrangements(rows)[:, None].astype(
                columns.dtype
            )
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

        In colexicographic order the place of i₀ ≤ i₁ ≤ … is Σᵣ C(iᵣ + r, r + 1). Once a is put into
        the row, every index that is larger than a stands one position further on.
        """
        inserted = np.arange(self.dimension)
        place = np.zeros((rows.shape[1], self.dimension), np.int64)
        position = np.zeros_like(place)
        for r, index in enumerate(rows):
            before = index[:, None] <= inserted
            position += before
            place += np.where(
                before,
                binomials(index + r, r + 1)[:, None],
                binomials(index + r + 1, r + 2)[:, None],
            )
        for r in range(self.order):
            place += np.where(position == r, binomials(inserted + r, r + 1), 0)
        return place


def symmetrize(entries: Any, axes: Sequence[int] | None = None) -> DataArray:
    """Return the average of an array over all permutations of its axes, the nearest symmetric
    tensor to it.

    With `axes`, such as ``(0, 1)``, only these are permuted, for ``decompose_asymmetric(…,
    symmetric=(0, 1))``.

    Parameters
    ----------
    entries : array
        The array; all axes that are permuted have the same length.
    axes : sequence of int, optional
        The axes to permute; by default all.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> T = np.zeros((2, 2, 2))
    >>> T[0, 0, 1] = 3
    >>> T = odeco.symmetrize(T)
    >>> T[0, 0, 1], T[0, 1, 0], T[1, 0, 0]
    (np.float64(1.0), np.float64(1.0), np.float64(1.0))
    """
    result = as_entries(entries, equal_sizes=axes is None)
    permuted = range(result.ndim) if axes is None else check_axes(axes, result.shape)
    # An array that is symmetric in m of the axes becomes symmetric in m + 1 of them if it is
    # averaged over all swaps of the next one with one before it, and no swap.
    for n_before, last in enumerate(permuted):
        if n_before:
            total = result.copy()
            for axis in permuted[:n_before]:
                total += np.swapaxes(result, axis, last)
            total /= n_before + 1
            result = total
    return result


def as_oracle(tensor: Any) -> Oracle:
    """Return an oracle as it is, and a symmetric array as a `DenseTensor`, or a `DeviceTensor` of
    another library.

    Parameters
    ----------
    tensor : array or Oracle
        The tensor.
    """
    if isinstance(tensor, Oracle):
        return tensor
    if is_foreign(tensor):
        return DeviceTensor(tensor)
    return DenseTensor(tensor)


def sum_of_cubes(rows: FloatArray) -> FloatArray:
    """Return Σ z⊗z⊗z over rows z. The sum is symmetric, so a third of its entries is computed."""
    size = rows.shape[1]
    total = np.empty((size,) * 3)
    for first in range(size):
        rest = rows[:, first:]
        part = (rest * rows[:, first : first + 1]).T @ rest
        total[first, first:, first:] = part
        total[first:, first, first:] = part
        total[first:, first:, first] = part
    return total
