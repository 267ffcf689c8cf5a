"""Tensors given by their entries: how entries are checked, and how tensors of any size are computed
with.

Entries of 1e-200 have squares that double precision cannot hold, and so have images. An
`EntryTensor` holds its entries over a power of two, in which they are of ordinary size; `InUnit`
shows a solver any oracle in such a unit. Multiplying by a power of two changes no digit.
"""

from __future__ import annotations

import copy
import itertools
import math
import numbers
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self, final

import numpy as np

from odeco._util.arguments import (
    MINIMUM_ORDER,
    as_numpy,
    check_unmasked,
    largest,
    norm_exponent,
    put_back,
    times_power_of_two,
    unit_exponent,
)
from odeco._util.threads import map_blocks
from odeco._util.types import DataArray, FloatArray, IndexArray
from odeco.errors import RankError
from odeco.tensors.components import Components
from odeco.tensors.coordinates import flattened
from odeco.tensors.oracle import Oracle, Rescaled, polarised_inside, slice_by_images, squared_norm


class EntryTensor(Oracle):
    """A tensor given by its entries, which it holds over a power of two if they are very small or
    very large.

    Attributes
    ----------
    exponent : int
        The exponent of that power: 0 at ordinary sizes, where the entries are not copied.
    """

    exponent: int = 0

    def _scale(self, entries: Any) -> DataArray:
        """Choose the unit, and return the entries in it."""
        # Squares of images are added up, so entries must leave room for two factors and many terms.
        size = max(abs(float(entries.max())), abs(float(entries.min())))
        self.exponent = unit_exponent(size, 2, entries.dtype)
        scaled: DataArray = times_power_of_two(entries, -self.exponent)
        return scaled

    @final
    def in_unit(self) -> Self:
        """Return the tensor over the power of two, which shares the entries."""
        tensor = copy.copy(self)
        tensor.exponent = 0
        return tensor

    @final
    def squared_norm(self) -> float:
        """Return the sum of the squares of all entries."""
        return float(
            put_back(self._unit_squared_norm(), 2 * self.exponent, "squares of the entries")
        )

    @final
    def _image(self, block: FloatArray) -> FloatArray:
        return self._put_back(self._unit_image(block), "entries of an image")

    @final
    def _slice(self, direction: FloatArray) -> FloatArray:
        return self._put_back(self._unit_slice(direction), "entries of a slice")

    def _put_back(self, product: FloatArray, what: str) -> FloatArray:
        """Return a product with the entries in the unit that they were given in; raise if it is out
        of range.
        """
        if self.exponent:
            put_back(largest(product), self.exponent, what)
        in_own_unit: FloatArray = times_power_of_two(product, self.exponent)
        return in_own_unit

    @final
    def _inside(self, basis: FloatArray) -> FloatArray:
        return self._put_back(self._unit_inside(basis), "entries of a core")

    @final
    def unfolding_gram(self) -> FloatArray | None:
        """Return M Mᵀ for the unfolding M, or None if that is not known."""
        known = self._unit_unfolding_gram()
        if known is None:
            return None
        gram: FloatArray = put_back(known, 2 * self.exponent, "squares of the entries")
        return gram

    @final
    def flattening(self) -> FloatArray:
        """Return the tensor as a matrix between packed coordinates."""
        return self._put_back(self._unit_flattening(), "entries of the flattening")

    def _unit_flattening(self) -> FloatArray:
        """Return the flattening of the entries in their unit."""
        return flattened(self._unit_inside(np.eye(self.dimension)))

    def _unit_inside(self, basis: FloatArray) -> FloatArray:
        """Return T(Q, …, Q) for the entries in their unit."""
        return polarised_inside(self._unit_image, basis, self.order)

    def _unit_unfolding_gram(self) -> FloatArray | None:
        """Return M Mᵀ for the entries in their unit, or None if that is not known."""
        return None

    @abstractmethod
    def _unit_image(self, block: FloatArray) -> FloatArray:
        """Return T(I, u, …, u) for the entries in their unit."""

    def _unit_slice(self, direction: FloatArray) -> FloatArray:
        """Return T(I, I, u, …, u) for the entries in their unit."""
        return slice_by_images(self._unit_image, direction, self.order)

    @abstractmethod
    def _unit_squared_norm(self) -> float:
        """Return the sum of the squares of all entries in their unit."""


@final
class InUnit(Rescaled):
    """A tensor over a power of two, in which its images are of ordinary size, and the way back.

    If the tensor is given by entries or components, they determine the unit; otherwise the first
    reply does.
    """

    def __init__(self, oracle: Oracle) -> None:
        self._exponent: int | None = None
        if isinstance(oracle, EntryTensor):
            self._exponent = oracle.exponent
            oracle = oracle.in_unit()
        elif isinstance(oracle, Components):
            self._exponent = unit_exponent(largest(oracle.weights), 2, oracle.weights.dtype)
            if self._exponent:
                weights = times_power_of_two(oracle.weights, -self._exponent)
                oracle = Components(weights, oracle.vectors, oracle.order)
        super().__init__(oracle)
        self._in_unit = self._exponent is not None
        self._shift = 0
        self._factor = 1.0
        self._squared: float | None = None

    @property
    def exponent(self) -> int:
        """The exponent of the unit; 0 before it is known."""
        return (self._exponent or 0) + self._shift

    def take_out_norm(self, generator: np.random.Generator) -> None:
        """Choose the unit in which the norm is between 1/2 and 1, or about that where it can only
        be estimated.

        The power method normalises every reply, and does without; see `norm_exponent`.
        """
        self._shift = norm_exponent(squared_norm(self, rng=generator)) if self.exact else 0
        self._factor = 2.0**-self._shift

    def put_back(self, found: Components) -> Components:
        """Return components of this tensor as components of the tensor in its own unit."""
        return Components(
            put_back(found.weights, self.exponent, "weights"), found.vectors, found.order
        )

    @contextmanager
    def put_back_errors(self) -> Iterator[None]:
        """Put what an error has found back into the unit that the tensor was given in."""
        try:
            yield
        except RankError as error:
            error.found = self.put_back(error.found)
            raise

    def squared_norm(self) -> float | None:
        """Return the squared norm in the unit, or None if that is not known."""
        if self._squared is None:  # all entries are read once
            self._squared = self.oracle.squared_norm()
        known = self._squared
        if known is not None and not self._in_unit and self._exponent:
            # Squares of very small or very large numbers are not known: they are 0 or infinite.
            if 0 < known < np.inf:
                known = float(times_power_of_two(known, -2 * self._exponent))
            else:
                known = None
        if known is None:
            return None
        return self._factor**2 * known

    def unfolding_gram(self) -> FloatArray | None:
        """Return the Gram matrix of the unfolding in the unit, or None if that is not known."""
        known = self.oracle.unfolding_gram() if self._in_unit else None
        if known is None:
            return None
        return self._factor**2 * known

    def _rescaled(self, reply: FloatArray) -> FloatArray:
        if not self._in_unit:
            if self._exponent is None:
                size = largest(reply)
                self._exponent = unit_exponent(size, 2, reply.dtype) if size else None
            reply = times_power_of_two(reply, -(self._exponent or 0))
        return self._factor * reply


def as_entries(array: Any, *, equal_sizes: bool = True) -> DataArray:
    """Return the entries of a tensor as a checked floating-point array; only integers are
    copied.
    """
    check_unmasked(array, "tensor")
    entries = _as_floats(as_numpy(array), "tensor")
    check_shape(entries.shape, equal_sizes=equal_sizes)
    check_finite(entries, "tensor")
    return entries


def check_shape(shape: tuple[int, ...], *, equal_sizes: bool) -> None:
    """Raise unless the shape is that of a tensor of order 3 or more that is not empty."""
    if len(shape) < MINIMUM_ORDER:
        raise ValueError(
            f"The tensor must have order 3 or more. Got order {len(shape)}, shape {shape}. For a "
            "matrix use numpy.linalg.eigh."
        )
    if 0 in shape:
        raise ValueError(f"The tensor must not be empty. Got shape {shape}. Check how it was made.")
    if equal_sizes and len(set(shape)) > 1:
        raise ValueError(
            f"The tensor must have equal sizes. Got shape {shape}. For an asymmetric one call "
            "odeco.decompose_asymmetric."
        )


def as_values(array: Any, shape: tuple[int, ...], name: str, what: str) -> DataArray:
    """Return stored entries as a checked floating-point array of the given shape, without a
    copy.
    """
    check_unmasked(array, f"array `{name}`")
    values: DataArray = np.asarray(array)
    if values.shape != shape:
        raise ValueError(f"`{name}` must {what}: shape {shape}. Got shape {values.shape}.")
    values = _as_floats(values, f"array `{name}`")
    check_finite(values, f"array `{name}`")
    return values


def as_coordinates(indices: Any, sizes: int | tuple[int, ...]) -> IndexArray:
    """Return the coordinates of stored entries, one row for each; all axes have the same size if
    one is given.
    """
    check_unmasked(indices, "array `indices`")
    coordinates = np.asarray(indices)
    order = None if isinstance(sizes, int) else len(sizes)
    if coordinates.ndim != 2 or coordinates.shape[1] < MINIMUM_ORDER or coordinates.size == 0:
        raise ValueError(
            "`indices` must have shape (n, order) with n positive and order 3 or more. Got shape "
            f"{coordinates.shape}."
        )
    if order not in (None, coordinates.shape[1]):
        raise ValueError(
            f"`indices` must have one column for each of the {order} axes of shape {sizes}. Got "
            f"shape {coordinates.shape}."
        )
    if coordinates.dtype.kind not in "iu":
        raise TypeError(
            f"`indices` must be integers. Got {coordinates.dtype}. Convert them with "
            "indices.astype(int)."
        )
    if coordinates.min() < 0 or np.any(coordinates.max(axis=0) >= np.asarray(sizes)):
        if isinstance(sizes, int):
            allowed = f"[0, {sizes - 1}] for a tensor of dimension"
        else:
            allowed = "the axes of shape"
        raise ValueError(
            f"Indices must lie in {allowed} {sizes}. Got {coordinates.min()} to "
            f"{coordinates.max()}. Count from 0."
        )
    return coordinates.astype(np.int64)


def check_finite(entries: DataArray, name: str) -> None:
    """Raise if an entry is NaN or infinite, naming the first one, or if all are zero."""
    # The check goes part by part, so that no temporary array has the size of the tensor.
    parts = entries if entries.ndim > 1 else np.array_split(entries, entries.size // 2**20 + 1)
    largest = 0.0
    for first, part in enumerate(parts):
        high = float(np.abs(part).max(initial=0.0))
        if not math.isfinite(high):
            index = [int(i) for i in np.argwhere(~np.isfinite(part))[0]]
            if entries.ndim > 1:
                index = [first, *index]
            else:
                index = [sum(p.size for p in parts[:first]) + index[0]]
            raise ValueError(
                f"The {name} must be finite. Got {_entry(entries, index)}. Replace or drop what "
                "is not a number."
            )
        largest = max(largest, high)
    if largest == 0:
        raise ValueError(
            f"The {name} must hold a non-zero entry. Got all zeros, shape {entries.shape}. Check "
            "how it was made."
        )


def _as_floats(entries: Any, name: str) -> DataArray:
    """Return integers and booleans in double precision; raise unless the numbers are real."""
    if entries.dtype.kind in "iub":
        return np.asarray(entries, np.float64)
    if entries.dtype not in (np.float32, np.float64):
        raise TypeError(
            f"The {name} must hold float32, float64 or integers. Got {entries.dtype}. Convert it "
            "with astype(float)."
        )
    checked: DataArray = entries
    return checked


def check_symmetric(entries: DataArray, axes: Sequence[int] | None = None) -> None:
    """Raise if two entries that must be equal differ by more than rounding, naming both.

    Swaps of neighbouring indices generate every permutation, so only those are compared; with
    `axes`, of these indices.
    """
    tolerance = math.sqrt(np.finfo(entries.dtype).eps)
    allowed = tolerance * max(abs(float(entries.max())), abs(float(entries.min())))
    slices = range(entries.shape[0])
    for axis, other_axis in itertools.pairwise(range(entries.ndim) if axes is None else axes):
        swapped = np.swapaxes(entries, axis, other_axis)

        def difference(first: int, other: DataArray = swapped) -> float:
            gap = entries[first] - other[first]
            return float(np.abs(gap, out=gap).max())

        for first, gap in zip(
            slices, map_blocks(difference, slices, parallel=entries.size > 2**20), strict=True
        ):
            if gap > allowed:
                rest = np.argwhere(np.abs(entries[first] - swapped[first]) > allowed)[0]
                index = [first, *(int(i) for i in rest)]
                mirror = list(index)
                mirror[axis], mirror[other_axis] = mirror[other_axis], mirror[axis]
                where = ""
                remedy = (
                    "odeco.symmetrize(T) (--symmetrize), or odeco.decompose_asymmetric "
                    "(--asymmetric)"
                )
                if axes is not None:
                    where = f" along axes {tuple(axes)}"
                    remedy = f"odeco.symmetrize(T, axes={tuple(axes)})"
                raise ValueError(
                    f"The tensor is not symmetric{where}: {_entry(entries, index)} but "
                    f"{_entry(entries, mirror)}. Call {remedy}."
                )


def check_axes(axes: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes along which a tensor is symmetric, in rising order; raise if it cannot be."""
    given = tuple(axes) if isinstance(axes, Iterable) else (axes,)
    whole = all(
        isinstance(axis, numbers.Integral) and 0 <= int(axis) < len(shape) for axis in given
    )
    if not whole or len(set(given)) != len(given) or len(given) < 2:
        raise ValueError(
            f"Axes must be two or more different ints in [0, {len(shape) - 1}] for a tensor of "
            f"shape {shape}. Got {axes!r}."
        )
    chosen = tuple(sorted(int(axis) for axis in given))
    sizes = {shape[axis] for axis in chosen}
    if len(sizes) > 1:
        raise ValueError(
            f"A tensor that is symmetric along axes {chosen} has equal sizes there. Got shape "
            f"{shape}."
        )
    return chosen


def _entry(entries: DataArray, index: tuple[int, ...] | list[int]) -> str:
    listed = ", ".join(str(i) for i in index)
    return f"T[{listed}] = {float(entries[tuple(index)]):.6g}"
