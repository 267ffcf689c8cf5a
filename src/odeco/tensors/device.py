"""A symmetric tensor whose entries are in an array of another library: PyTorch, CuPy, JAX.

Products are computed by that library, on the device that holds the array. Blocks of vectors go there, and images and
cores come back as NumPy arrays, which are far smaller than the tensor. Solvers see no difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, final

import numpy as np

from odeco._util.arrays import as_numpy
from odeco._util.scale import unit_exponent
from odeco._util.types import FloatArray
from odeco.tensors.coordinates import flattened
from odeco.tensors.entries import EntryTensor, as_entries, check_shape, check_symmetric

#: Numbers in an intermediate product on the device: 128 MB in double precision.
_AT_ONCE = 2**24

#: The types of entries by their names in the standard.
_DTYPES: dict[str, np.dtype[Any]] = {"float32": np.dtype(np.float32), "float64": np.dtype(np.float64)}


@final
class DeviceTensor(EntryTensor):
    """A symmetric array of order 3 or more of PyTorch, CuPy, JAX or any library that follows the array API standard.

    Parameters
    ----------
    entries : array, d x d x … x d
        The array, of float32, float64 or integers. It stays on its device and is not copied, unless it holds integers.
        A `torch.Tensor` is detached from its graph.

    Notes
    -----
    All products of a float32 array are made in float32, but norms, cores and Gram matrices in float64 where the device
    has it. Replies agree with those of a `DenseTensor` to rounding, not to the last bit.

    Examples
    --------
    >>> import array_api_strict as xp
    >>> from odeco.tensors import DeviceTensor
    >>> DeviceTensor(xp.ones((2, 2, 2))).image([[1.0], [2.0]]).ravel()
    array([9., 9.])
    """

    def __init__(self, entries: Any) -> None:
        import array_api_compat  # here, because few use it

        entries = entries.detach() if hasattr(entries, "detach") else entries
        self._xp = xp = array_api_compat.array_namespace(entries)
        self._device = array_api_compat.device(entries)
        real = xp.__array_namespace_info__().dtypes(device=self._device, kind="real floating")
        self._double: Any = real.get("float64")
        if xp.isdtype(entries.dtype, ("bool", "integral")):
            entries = xp.astype(entries, real.get("float64", xp.float32))
        dtype = next((each for name, each in _DTYPES.items() if name in real and real[name] == entries.dtype), None)
        check_shape(tuple(entries.shape), "tensor", equal_sizes=True)
        self.entries = self._scaled = entries
        self.order, self.dimension = entries.ndim, int(entries.shape[0])
        # A copy of entries that are not valid goes through the checks of NumPy arrays, which say what is wrong.
        if dtype is None:
            as_entries(entries)
            raise TypeError(f"The tensor must hold float32, float64 or integers. Got {entries.dtype}.")
        sizes = [self._largest(xp.abs(part)) for _, part in self._slabs()]
        if not all(math.isfinite(size) for size in sizes) or max(sizes) == 0:
            as_entries(entries)
        size, self.rounding = max(sizes), float(np.finfo(dtype).eps)
        if self._asymmetry() > math.sqrt(self.rounding) * size:
            check_symmetric(as_entries(entries))
        self.exponent = unit_exponent(size, 2, dtype)
        if self.exponent:  # in two steps, because the power itself may be out of range
            half = self.exponent // 2
            self._scaled = entries * 2.0**-half * 2.0 ** (half - self.exponent)

    def _largest(self, numbers: Any) -> float:
        return float(self._xp.max(numbers))

    def _asymmetry(self) -> float:
        """Return the largest difference between two entries that must be equal."""
        axes = list(range(self.order))
        gap = 0.0
        for axis in range(self.order - 1):
            swapped = self._xp.permute_dims(self.entries, [*axes[:axis], axis + 1, axis, *axes[axis + 2 :]])
            for rows, part in self._slabs():
                gap = max(gap, self._largest(self._xp.abs(part - swapped[rows, ...])))
        return gap

    def _slabs(self, width: int = 1, entries: Any = None) -> Iterator[tuple[slice, Any]]:
        """Yield the entries for a few values of the first index at a time, so that products are not too large."""
        entries = self.entries if entries is None else entries
        height = max(1, _AT_ONCE // (self.dimension ** (self.order - 2) * max(self.dimension, width)))
        for start in range(0, self.dimension, height):
            rows = slice(start, min(start + height, self.dimension))
            yield rows, entries[rows, ...]

    def _precise(self) -> Iterator[Any]:
        """Yield the entries in their unit, in double precision where the device has it."""
        for _, part in self._slabs(entries=self._scaled):
            yield part if self._double is None else self._xp.astype(part, self._double)

    def _sent(self, block: FloatArray, dtype: Any) -> Any:
        """Return a copy of a block on the device."""
        return self._xp.asarray(np.array(block), dtype=dtype, device=self._device)

    def _unit_squared_norm(self) -> float:
        return sum(float(self._xp.sum(part * part)) for part in self._precise())

    def _unit_unfolding_gram(self) -> FloatArray | None:
        if self._double is None:  # squares of singular values would have three digits in single precision
            return None
        xp, size = self._xp, self.dimension
        total = self._sent(np.zeros((size, size)), self._double)
        for part in self._precise():
            slices = xp.reshape(part, (part.shape[0], size, -1))
            total = total + xp.sum(xp.matmul(slices, xp.matrix_transpose(slices)), axis=0)
        return _as_doubles(total)

    def _unit_flattening(self) -> FloatArray:
        return flattened(as_numpy(self._scaled))

    def _unit_inside(self, basis: FloatArray) -> FloatArray:
        xp, columns = self._xp, None
        contracted = []
        for part in self._precise():
            columns = self._sent(basis, part.dtype) if columns is None else columns
            product = part
            for _ in range(self.order - 1):  # the second axis is contracted and becomes the last
                product = xp.tensordot(product, columns, axes=((1,), (0,)))
            contracted.append(product)
        return _as_doubles(xp.tensordot(columns, xp.concat(contracted), axes=((0,), (0,))))

    def _unit_image(self, block: FloatArray) -> FloatArray:
        xp, columns = self._xp, self._sent(block, self.entries.dtype)
        n_columns, images = block.shape[1], []
        for _, part in self._slabs(n_columns, self._scaled):
            product = xp.matmul(xp.reshape(part, (-1, self.dimension)), columns)
            for _ in range(self.order - 2):
                product = xp.sum(xp.reshape(product, (-1, self.dimension, n_columns)) * columns, axis=1)
            images.append(product)
        return _as_doubles(xp.concat(images))

    def _unit_slice(self, direction: FloatArray) -> FloatArray:
        along, matrix = self._sent(direction, self.entries.dtype), self._scaled
        for _ in range(self.order - 2):
            matrix = self._xp.matmul(matrix, along)
        symmetric = _as_doubles(matrix)
        return (symmetric + symmetric.T) / 2


def _as_doubles(array: Any) -> FloatArray:
    return as_numpy(array).astype(np.float64)
