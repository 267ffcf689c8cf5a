"""A symmetric tensor given by all its entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, final

import numpy as np

from odeco._threads import map_blocks, one_blas_thread
from odeco._types import DataArray, FloatArray
from odeco.oracle import Oracle
from odeco.tensors._checks import as_entries, check_symmetric
from odeco.tensors._slabs import PARALLEL_DIMENSION, image_from_slabs
from odeco.tensors._units import EntryTensor

#: Up to this dimension a call of a NumPy function takes longer than the products that slabs would save.
SMALL_DIMENSION = 40


@final
class DenseTensor(EntryTensor):
    """A symmetric array of order 3 or more, which is used as it lies in memory.

    Parameters
    ----------
    entries : array, d x d x … x d
        The array, of float32, float64 or integers, read-only or not. It is copied only if it holds integers, or is
        neither in C order nor in Fortran order. The products of a float32 array are made in float32 and added up in
        float64.

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
        self._scaled = self._taken(ordered)
        self.dimension, self.order = ordered.shape[0], ordered.ndim
        self.rounding = float(np.finfo(ordered.dtype).eps)

    def _unit_squared_norm(self) -> float:
        return float(sum(np.sum(np.square(part, dtype=np.float64)) for part in self._scaled))

    def _unit_unfolding_gram(self) -> FloatArray:
        def gram(index: int) -> FloatArray:
            slab = self._scaled[index].reshape(self.dimension, -1).astype(np.float64, copy=False)
            product: FloatArray = slab @ slab.T
            return product

        total = np.zeros((self.dimension, self.dimension))
        for each in self._over_first_index(gram, self.dimension):  # in the order of the index, whichever is ready first
            total += each
        return total

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

    def _over_first_index(self, work: Callable[[int], FloatArray], width: int) -> Iterator[FloatArray]:
        parallel = self._scaled.size * width >= PARALLEL_DIMENSION**4
        return map_blocks(work, range(self.dimension), parallel=parallel)

    def _unit_image(self, block: FloatArray) -> FloatArray:
        if self.order == 3 and self.dimension <= SMALL_DIMENSION:
            return self._image_at_once(block)
        if self.order == 3:
            return image_from_slabs(
                lambda start, stop: self._scaled[start:stop, :stop, :stop], block, self._scaled.dtype
            )
        return self._image_by_slices(block)

    def _unit_slice(self, direction: FloatArray) -> FloatArray:
        """Contract the last index with the direction until two are left."""
        along, matrix = direction.astype(self._scaled.dtype), self._scaled
        with one_blas_thread():  # reading the entries takes longer than multiplying them
            for _ in range(self.order - 2):
                matrix = matrix @ along
        symmetric: FloatArray = matrix.astype(np.float64)
        return (symmetric + symmetric.T) / 2

    def _image_at_once(self, block: FloatArray) -> FloatArray:
        """Contract two indices by one matrix product. In few dimensions calls cost most, and this needs few."""
        columns = block.astype(self._scaled.dtype, copy=False)
        pairs = (columns[:, None, :] * columns[None, :, :]).reshape(-1, block.shape[1])
        with one_blas_thread():
            answer: DataArray = self._scaled.reshape(self.dimension, -1) @ pairs
        return answer.astype(np.float64, copy=False)

    def _image_by_slices(self, block: FloatArray) -> FloatArray:
        """Contract T[i] for one i after another: two indices by one matrix product, then the others one by one."""
        dimension, n_columns = block.shape
        columns = block.astype(self._scaled.dtype)
        pairs = (columns[:, None, :] * columns[None, :, :]).reshape(-1, n_columns)

        def contract(index: int) -> DataArray:
            partial = self._scaled[index].reshape(-1, dimension**2) @ pairs
            for _ in range(self.order - 3):
                partial = np.einsum("ijl,jl->il", partial.reshape(-1, dimension, n_columns), columns)
            row: DataArray = partial[0]
            return row

        work = self._scaled.size * n_columns
        answers = map_blocks(contract, range(dimension), parallel=work >= PARALLEL_DIMENSION**4)
        return np.stack(list(answers)).astype(np.float64)


def symmetrize(entries: Any) -> DataArray:
    """Return the average of an array over all permutations of its axes, the nearest symmetric tensor to it.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> T = np.zeros((2, 2, 2))
    >>> T[0, 0, 1] = 3
    >>> T = odeco.symmetrize(T)
    >>> T[0, 0, 1], T[0, 1, 0], T[1, 0, 0]
    (np.float64(1.0), np.float64(1.0), np.float64(1.0))
    """
    result = as_entries(entries)
    # An array that is symmetric in its first m axes becomes symmetric in m + 1 axes if it is averaged over all swaps of
    # axis m + 1 with one before it, and no swap.
    for last in range(1, result.ndim):
        total = result.copy()
        for axis in range(last):
            total += np.swapaxes(result, axis, last)
        total /= last + 1
        result = total
    return result


def as_oracle(tensor: Any) -> Oracle:
    """Return an oracle as it is, and a symmetric array as a `DenseTensor`."""
    return tensor if isinstance(tensor, Oracle) else DenseTensor(tensor)
