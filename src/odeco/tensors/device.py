"""Symmetric tensors whose entries, or rows, are in an array of another library: PyTorch, CuPy, JAX.

Products are computed by that library, on the device that holds the array. Blocks of vectors go
there, and images and cores come back as NumPy arrays, which are far smaller than the tensor.
Solvers see no difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, final

import numpy as np

from odeco._util.arguments import MINIMUM_ORDER, as_numpy, check_count, unit_exponent
from odeco._util.types import FloatArray
from odeco.tensors.coordinates import flattened
from odeco.tensors.entries import EntryTensor, as_entries, check_shape, check_symmetric
from odeco.tensors.oracle import Oracle

#: Numbers in an intermediate product on the device: 128 MB in double precision.
_AT_ONCE = 2**24

#: The types of entries by their names in the standard.
_DTYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
}


class DeviceArray:
    """An array of another library with what is needed to compute there.

    Attributes
    ----------
    array : array
        The array in single or double precision, without gradients.
    dtype : numpy.dtype or None
        Its type; None if it has another precision or is not real.
    xp : module
        The functions of the standard for it.
    double : dtype or None
        The type of double precision on its device, if it has that.
    """

    def __init__(self, array: Any) -> None:
        import array_api_compat  # here, because few use it

        array = array.detach() if hasattr(array, "detach") else array
        self.xp = array_api_compat.array_namespace(array)
        self.device = array_api_compat.device(array)
        real = self.xp.__array_namespace_info__().dtypes(device=self.device, kind="real floating")
        self.double: Any = real.get("float64")
        if self.xp.isdtype(array.dtype, ("bool", "integral")):
            array = self.xp.astype(array, real.get("float64", self.xp.float32))
        self.array = array
        self.dtype = next(
            (each for name, each in _DTYPES.items() if name in real and real[name] == array.dtype),
            None,
        )

    def send(self, block: FloatArray, dtype: Any = None) -> Any:
        """Return a copy of a NumPy array on the device, by default in the type of the array."""
        return self.xp.asarray(np.array(block), dtype=dtype or self.array.dtype, device=self.device)

    def largest(self, numbers: Any) -> float:
        """Return the largest absolute value, NaN if there is one."""
        return float(self.xp.max(self.xp.abs(numbers)))


@final
class DeviceTensor(EntryTensor):
    """A symmetric array of order 3 or more of PyTorch, CuPy, JAX or any library that follows the
    array API standard.

    Parameters
    ----------
    entries : array, d x d x … x d
        The array, of float32, float64 or integers. It stays on its device and is not copied, unless
        it holds integers. A `torch.Tensor` is detached from its graph.

    Notes
    -----
    All products of a float32 array are made in float32, but norms, cores and Gram matrices in
    float64 where the device has it. Replies agree with those of a `DenseTensor` to rounding, not to
    the last bit.

    Examples
    --------
    >>> import array_api_strict as xp
    >>> from odeco.tensors import DeviceTensor
    >>> DeviceTensor(xp.ones((2, 2, 2))).image([[1.0], [2.0]]).ravel()
    array([9., 9.])
    """

    def __init__(self, entries: Any) -> None:
        self._held = held = DeviceArray(entries)
        self.entries = self._scaled = held.array
        check_shape(tuple(self.entries.shape), equal_sizes=True)
        self.order = self.entries.ndim
        self.dimension = int(self.entries.shape[0])
        # A copy of entries that are not valid goes through the checks of NumPy arrays, which say
        # what is wrong.
        if held.dtype is None:
            as_entries(entries)
            raise TypeError(
                f"The tensor must hold float32, float64 or integers. Got {self.entries.dtype}."
            )
        sizes = [held.largest(part) for _, part in self._slabs()]
        if not all(math.isfinite(size) for size in sizes) or max(sizes) == 0:
            as_entries(entries)
        size = max(sizes)
        self.rounding = float(np.finfo(held.dtype).eps)
        if self._asymmetry() > math.sqrt(self.rounding) * size:
            check_symmetric(as_entries(entries))
        self.exponent = unit_exponent(size, 2, held.dtype)
        if self.exponent:  # in two steps, because the power itself may be out of range
            half = self.exponent // 2
            self._scaled = self.entries * 2.0**-half * 2.0 ** (half - self.exponent)

    def _asymmetry(self) -> float:
        """Return the largest difference between two entries that must be equal."""
        axes = list(range(self.order))
        gap = 0.0
        for axis in range(self.order - 1):
            swapped = self._held.xp.permute_dims(
                self.entries, [*axes[:axis], axis + 1, axis, *axes[axis + 2 :]]
            )
            gap = max(
                gap,
                *(self._held.largest(part - swapped[rows, ...]) for rows, part in self._slabs()),
            )
        return gap

    def _slabs(self, width: int = 1, entries: Any = None) -> Iterator[tuple[slice, Any]]:
        """Yield the entries for a few values of the first index at a time, so that products are not
        too large.
        """
        entries = self.entries if entries is None else entries
        height = max(
            1, _AT_ONCE // (self.dimension ** (self.order - 2) * max(self.dimension, width))
        )
        for start in range(0, self.dimension, height):
            rows = slice(start, min(start + height, self.dimension))
            yield rows, entries[rows, ...]

    def _precise(self) -> Iterator[Any]:
        """Yield the entries in their unit, in double precision where the device has it."""
        for _, part in self._slabs(entries=self._scaled):
            yield (
                part if self._held.double is None else self._held.xp.astype(part, self._held.double)
            )

    def _unit_squared_norm(self) -> float:
        return sum(float(self._held.xp.sum(part * part)) for part in self._precise())

    def _unit_unfolding_gram(self) -> FloatArray | None:
        if (
            self._held.double is None
        ):  # squares of singular values would have three digits in single precision
            return None
        xp = self._held.xp
        size = self.dimension
        total = self._held.send(np.zeros((size, size)), self._held.double)
        for part in self._precise():
            slices = xp.reshape(part, (part.shape[0], size, -1))
            total = total + xp.sum(xp.matmul(slices, xp.matrix_transpose(slices)), axis=0)
        return _as_doubles(total)

    def _unit_flattening(self) -> FloatArray:
        return flattened(as_numpy(self._scaled))

    def _unit_inside(self, basis: FloatArray) -> FloatArray:
        xp = self._held.xp
        columns = None
        contracted = []
        for part in self._precise():
            columns = self._held.send(basis, part.dtype) if columns is None else columns
            product = part
            for _ in range(self.order - 1):  # the second axis is contracted and becomes the last
                product = xp.tensordot(product, columns, axes=((1,), (0,)))
            contracted.append(product)
        return _as_doubles(xp.tensordot(columns, xp.concat(contracted), axes=((0,), (0,))))

    def _unit_image(self, block: FloatArray) -> FloatArray:
        xp = self._held.xp
        columns = self._held.send(block)
        n_columns = block.shape[1]
        images = []
        for _, part in self._slabs(n_columns, self._scaled):
            product = xp.matmul(xp.reshape(part, (-1, self.dimension)), columns)
            for _ in range(self.order - 2):
                product = xp.sum(
                    xp.reshape(product, (-1, self.dimension, n_columns)) * columns, axis=1
                )
            images.append(product)
        return _as_doubles(xp.concat(images))

    def _unit_slice(self, direction: FloatArray) -> FloatArray:
        along = self._held.send(direction)
        matrix = self._scaled
        for _ in range(self.order - 2):
            matrix = self._held.xp.matmul(matrix, along)
        symmetric = _as_doubles(matrix)
        return (symmetric + symmetric.T) / 2


@final
class DeviceMoment(Oracle):
    """The moment (1/n) Σ x⊗ᵖ of n rows in an array of another library, which is summed on its
    device.

    Parameters
    ----------
    rows : array, n x d
        The rows, of float32, float64 or integers. They stay on their device.
    order : int
        The order p of the moment.

    Notes
    -----
    An image is two matrix products. It agrees with that of an `odeco.online.SampleMoment` to
    rounding; sums over blocks of rows are added up in double precision.

    Examples
    --------
    >>> import array_api_strict as xp
    >>> from odeco.tensors import DeviceMoment
    >>> DeviceMoment(xp.asarray([[1.0, 0.0], [0.0, 2.0]])).image([[1.0], [1.0]]).ravel()
    array([0.5, 4. ])
    """

    def __init__(self, rows: Any, order: int = 3) -> None:
        self._held = held = DeviceArray(rows)
        self.rows = held.array
        self.order = check_count("order", order, MINIMUM_ORDER)
        shape = tuple(self.rows.shape)
        if len(shape) != 2 or 0 in shape:
            raise ValueError(f"Rows must have shape (n, d), neither of them 0. Got shape {shape}.")
        if held.dtype is None:
            raise TypeError(f"Rows must hold float32, float64 or integers. Got {self.rows.dtype}.")
        self.n_rows, self.dimension = (int(size) for size in shape)
        self.rounding = float(np.finfo(held.dtype).eps)
        sizes = [held.largest(part) for part in self._blocks(1)]
        if not all(math.isfinite(size) for size in sizes):
            row, column = np.argwhere(~np.isfinite(as_numpy(self.rows)))[0]
            place = f"row {row}, column {column}"
            raise ValueError(
                f"Rows must be finite. Got NaN or infinity in {place}. Drop or fill them."
            )
        if unit_exponent(max(sizes), 2 * self.order, held.dtype):
            raise ValueError(
                "Powers of rows must be numbers that their type can hold. The largest number is "
                f"{max(sizes):.1e}. Measure the data in another unit: multiply all of them by a "
                "constant."
            )

    def _blocks(self, width: int) -> Iterator[Any]:
        height = max(1, _AT_ONCE // max(self.dimension, width))
        for start in range(0, self.n_rows, height):
            yield self.rows[start : min(start + height, self.n_rows), ...]

    def _image(self, block: FloatArray) -> FloatArray:
        xp = self._held.xp
        columns = self._held.send(block)
        total = np.zeros(block.shape)
        for rows in self._blocks(block.shape[1]):
            powers = xp.matmul(rows, columns) ** (self.order - 1)
            total += _as_doubles(xp.matmul(xp.matrix_transpose(rows), powers))
        return total / self.n_rows

    def _slice(self, direction: FloatArray) -> FloatArray:
        xp = self._held.xp
        column = self._held.send(direction[:, None])
        total = np.zeros((self.dimension, self.dimension))
        for rows in self._blocks(self.dimension):
            powers = xp.matmul(rows, column) ** (self.order - 2)
            total += _as_doubles(xp.matmul(xp.matrix_transpose(rows), rows * powers))
        return (total + total.T) / (2 * self.n_rows)

    def _inside(self, basis: FloatArray) -> FloatArray:
        xp = self._held.xp
        columns = self._held.send(basis)
        width = basis.shape[1]
        total = np.zeros((width, width ** (self.order - 1)))
        for rows in self._blocks(total.shape[1]):
            inside = xp.matmul(rows, columns)
            powers = inside
            for _ in range(self.order - 2):
                powers = xp.reshape(powers[:, :, None] * inside[:, None, :], (inside.shape[0], -1))
            total += _as_doubles(xp.matmul(xp.matrix_transpose(inside), powers))
        return total.reshape((width,) * self.order) / self.n_rows


def _as_doubles(array: Any) -> FloatArray:
    return as_numpy(array).astype(np.float64)
