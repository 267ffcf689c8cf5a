"""Checks of tensors given by their entries."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odeco._util.arguments import MINIMUM_ORDER, check_unmasked
from odeco._util.threads import map_blocks
from odeco._util.types import DataArray


def as_entries(array: Any, *, name: str = "tensor", equal_sizes: bool = True) -> DataArray:
    """Return a tensor given by its entries as a checked floating-point array, without a copy unless of integers."""
    check_unmasked(array, name)
    entries = _as_floats(np.asarray(array), name)
    if entries.ndim < MINIMUM_ORDER:
        raise ValueError(
            f"The {name} must have order 3 or more. Got order {entries.ndim}, shape {entries.shape}. "
            "For a matrix use numpy.linalg.eigh."
        )
    if entries.size == 0:
        raise ValueError(f"The {name} must not be empty. Got shape {entries.shape}. Check how it was made.")
    if equal_sizes and len(set(entries.shape)) > 1:
        raise ValueError(
            f"The {name} must have equal sizes. Got shape {entries.shape}. "
            "For an asymmetric one call odeco.decompose_asymmetric."
        )
    check_finite(entries, name)
    return entries


def as_values(array: Any, shape: tuple[int, ...], name: str, what: str) -> DataArray:
    """Return stored entries as a checked floating-point array of the given shape, without a copy."""
    check_unmasked(array, f"array `{name}`")
    values: DataArray = np.asarray(array)
    if values.shape != shape:
        raise ValueError(f"`{name}` must {what}: shape {shape}. Got shape {values.shape}.")
    values = _as_floats(values, f"array `{name}`")
    check_finite(values, f"array `{name}`")
    return values


def check_finite(entries: DataArray, name: str) -> None:
    """Raise if an entry is NaN or infinite, naming the first one, or if all are zero."""
    # The check goes part by part, so that no temporary array has the size of the tensor.
    parts = entries if entries.ndim > 1 else np.array_split(entries, entries.size // 2**20 + 1)
    largest = 0.0
    for first, part in enumerate(parts):
        high = float(np.abs(part).max(initial=0.0))
        if not math.isfinite(high):
            index = [int(i) for i in np.argwhere(~np.isfinite(part))[0]]
            index = [first, *index] if entries.ndim > 1 else [sum(p.size for p in parts[:first]) + index[0]]
            raise ValueError(
                f"The {name} must be finite. Got {_entry(entries, index)}. Replace or drop what is not a number."
            )
        largest = max(largest, high)
    if largest == 0:
        raise ValueError(
            f"The {name} must hold a non-zero entry. Got all zeros, shape {entries.shape}. Check how it was made."
        )


def _as_floats(entries: Any, name: str) -> DataArray:
    """Return integers and booleans, as counts come, in double precision; raise if there are no real numbers."""
    if entries.dtype.kind in "iub":
        return np.asarray(entries, np.float64)
    if entries.dtype not in (np.float32, np.float64):
        raise TypeError(
            f"The {name} must hold float32, float64 or integers. Got {entries.dtype}. Convert it with astype(float)."
        )
    checked: DataArray = entries
    return checked


def check_symmetric(entries: DataArray) -> None:
    """Raise if two entries that must be equal differ by more than rounding, naming both.

    Swaps of neighbouring indices generate every permutation, so only those are compared.
    """
    tolerance = math.sqrt(np.finfo(entries.dtype).eps)
    allowed = tolerance * max(abs(float(entries.max())), abs(float(entries.min())))
    slices = range(entries.shape[0])
    for axis in range(entries.ndim - 1):
        swapped = np.swapaxes(entries, axis, axis + 1)

        def difference(first: int, other: DataArray = swapped) -> float:
            gap = entries[first] - other[first]
            return float(np.abs(gap, out=gap).max())

        for first, gap in zip(slices, map_blocks(difference, slices, parallel=entries.size > 2**20), strict=True):
            if gap > allowed:
                rest = np.argwhere(np.abs(entries[first] - swapped[first]) > allowed)[0]
                index = [first, *(int(i) for i in rest)]
                mirror = list(index)
                mirror[axis], mirror[axis + 1] = mirror[axis + 1], mirror[axis]
                raise ValueError(
                    f"The tensor is not symmetric: {_entry(entries, index)} but {_entry(entries, mirror)}. Call "
                    "odeco.symmetrize(T), or odeco.decompose_asymmetric for an asymmetric one."
                )


def _entry(entries: DataArray, index: tuple[int, ...] | list[int]) -> str:
    listed = ", ".join(str(i) for i in index)
    return f"T[{listed}] = {float(entries[tuple(index)]):.6g}"
