"""What may go wrong, and how we say it: what must hold; what was given; what to do.

Every check of user input and every error class of odeco is here. A ``check_`` function raises or does
nothing; an ``as_`` function returns its argument in the form that the library works with.
"""

from __future__ import annotations

import math
import numbers
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from scipy import sparse

from odeco._threads import map_blocks

if TYPE_CHECKING:
    from odeco._types import DataArray, FloatArray, RngLike
    from odeco.components import Components

MINIMUM_ORDER = 3


class ConvergenceWarning(UserWarning):
    """A component was returned whose residual is above the tolerance."""


class FileFormatError(ValueError):
    """A file is damaged, holds something else, or was written by a newer odeco."""


class RankError(ValueError):
    """The tensor has fewer components than were asked for; those found are in ``found``."""

    def __init__(self, message: str, found: Components) -> None:
        super().__init__(message)
        self.found = found


def zero_image_error(n_components: int, found: Components) -> RankError:
    """Say that the search ran out of tensor."""
    rank = found.n_components
    if rank == 0:
        return RankError(
            "The tensor must hold a non-zero entry. All its answers are zero. Check how it was made.", found
        )
    return RankError(
        f"The image of every candidate is zero: the tensor has rank {rank}, but n_components={n_components}. "
        f"The {_counted(rank, 'component')} found {'is' if rank == 1 else 'are'} in `error.found`.",
        found,
    )


def no_signal_error(weights: FloatArray, noise_levels: FloatArray, found: Components) -> RankError:
    """Say that no component stands clear of the noise."""
    best = int(np.argmax(np.abs(weights) / noise_levels))
    return RankError(
        "At least one component must stand clear of the noise. "
        f"The clearest has weight {weights[best]:.3g}, where noise alone would show {noise_levels[best]:.3g}. "
        "Pass n_components as an int to see it all the same.",
        found,
    )


def unconverged_message(component: int, residual: float, weight: float, n_iterations: int) -> str:
    """Say which component did not converge, by how much, and what helps."""
    return (
        f"Component {component} did not converge: its residual is {residual:.1e}, or {residual / abs(weight):.1e} of "
        f"its weight {weight:.3g}, after {n_iterations} iterations. Raise n_iterations, raise tol if that is accurate "
        "enough, or lower n_components if the weight is at the noise level."
    )


class NothingFoundError(ValueError):
    """No component is finished yet."""


class StreamEndedError(ValueError):
    """A stream ended before all components were found; those finished are in ``found``, which may be None."""

    def __init__(self, message: str, found: Components | None = None) -> None:
        super().__init__(message)
        self.found = found


def nothing_found_error(n_rows: int, n_rows_needed: int | None) -> NothingFoundError:
    """Say that a result was asked for too early."""
    needed = "Push rows with partial_fit first." if n_rows_needed is None else f"All take {n_rows_needed:,} rows."
    return NothingFoundError(f"At least one component must be finished. None is after {n_rows:,} rows. {needed}")


def stream_ended_error(n_batches: int, n_needed: int, plan: str, found: Components | None) -> StreamEndedError:
    """Say that a stream was too short for its plan, and what was found all the same."""
    k = 0 if found is None else found.n_components
    verb = ("was", "it is") if k == 1 else ("were", "they are")
    so_far = (
        f"{_counted(k, 'component')} {verb[0]} found; {verb[1]} in `error.found`." if k else "No component was found."
    )
    return StreamEndedError(
        f"The stream ended after {n_batches:,} of the {n_needed:,} batches this plan needs ({plan}). {so_far} "
        "Pass more rows, or a smaller batch_size.",
        found,
    )


def check_forgetting(value: Any) -> float:
    """Return the forgetting factor as a float in (0, 1]."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool) and 0 < float(value) <= 1:
        return float(value)
    raise ValueError(f"`forgetting` must be a number in (0, 1]. Got {value!r}. Pass 1 to forget nothing.")


def as_generator(rng: RngLike) -> np.random.Generator:
    """Return `rng` as a generator; a seed gives the same one every time."""
    if isinstance(rng, bool) or not (rng is None or isinstance(rng, numbers.Integral | np.random.Generator)):
        raise TypeError(
            f"`rng` must be None, an int or a numpy.random.Generator. Got {rng!r}. Pass a seed such as rng=0."
        )
    return np.random.default_rng(rng)


def as_seed(rng: RngLike) -> int:
    """Draw the one number that all starts of a search depend on."""
    return int(as_generator(rng).integers(2**63))


def check_count(name: str, value: Any, low: int = 1, high: int | None = None, what: str = "") -> int:
    """Return `value` as an int if it is a whole number within its bounds."""
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        number = int(value)
        if number >= low and (high is None or number <= high):
            return number
    bounds = f"in [{low}, {high}]" if high is not None else f"of at least {low}"
    raise ValueError(f"`{name}` must be an int {bounds}{what}. Got {value!r}.")


def check_n_components(value: Any, dimension: int) -> int:
    """Return the number of components as an int in [1, dimension]."""
    return check_count("n_components", value, 1, dimension, f" for a tensor of dimension {dimension}")


def check_tolerance(value: Any) -> float:
    """Return a relative tolerance as a float in [0, 1)."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool) and 0 <= float(value) < 1:
        return float(value)
    raise ValueError(f"`tol` must be a number in [0, 1). Got {value!r}. Pass 0 for a fixed number of iterations.")


def as_block(block: Any, dimension: int) -> FloatArray:
    """Return a question to an oracle as a finite float64 array of shape (dimension, L)."""
    array: FloatArray = np.asarray(block, dtype=np.float64)
    if array.ndim != 2 or array.shape[0] != dimension:
        raise ValueError(
            f"A block must have shape ({dimension}, L), one candidate a column. Got shape {array.shape}. "
            "Pass u[:, None] for a single vector u."
        )
    return array


def as_entries(array: Any, *, name: str = "tensor", equal_sizes: bool = True) -> DataArray:
    """Return a tensor given by its entries as a checked floating-point array, without a copy."""
    entries = np.asarray(array)
    _check_dtype(entries, name)
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
    values = np.asarray(array)
    if values.shape != shape:
        raise ValueError(f"`{name}` must {what}: shape {shape}. Got shape {values.shape}.")
    _check_dtype(values, f"array `{name}`")
    check_finite(values, f"array `{name}`")
    return values


def as_rows(rows: Any, n_features: int | None = None) -> Any:
    """Return rows of data as a checked float32 or float64 array or CSR array, without a copy where possible.

    Integers and booleans, as counts often come, are converted to float64.
    """
    if sparse.issparse(rows):
        array: Any = sparse.csr_array(cast("Any", rows))
        stored = array.data
    else:
        array = stored = np.asarray(rows)
    if stored.dtype.kind in "iub":
        array = array.astype(np.float64)
    elif stored.dtype not in (np.float32, np.float64):
        raise TypeError(
            f"Rows must hold float32, float64 or integers. Got {stored.dtype}. Convert them with astype(float)."
        )
    if array.ndim != 2 or array.shape[1] == 0 or (n_features is not None and array.shape[1] != n_features):
        wanted = "(n, d)" if n_features is None else f"(n, {n_features})"
        raise ValueError(f"Rows must have shape {wanted}. Got shape {array.shape}. Pass X[None, :] for a single row.")
    return array


def check_private_rows(rows: Any) -> None:
    """Raise unless rows are an array: the type NumPy gives to a list depends on its values, as would an error."""
    if not (isinstance(rows, np.ndarray) or sparse.issparse(rows)):
        raise TypeError(f"Private rows must be a NumPy array or a CSR array. Got {type(rows).__name__}. Convert them.")


class BadRowError(ValueError):
    """A row is not finite, or too large for its powers to be."""


def bad_row_error(rows: Any) -> BadRowError:
    """Say which row is not finite, or that all are and only their products are not."""
    stored = rows if isinstance(rows, np.ndarray) else rows.data
    bad = np.argwhere(~np.isfinite(stored))
    if bad.size == 0:
        largest = float(np.abs(stored).max())
        return BadRowError(
            f"Rows must be small enough for their powers to be finite. The largest entry is {largest:.3g}. "
            "Nothing of this batch was used; divide all rows by a constant."
        )
    first = int(bad[0][0])
    row = first if isinstance(rows, np.ndarray) else int(np.searchsorted(rows.indptr, first, side="right")) - 1
    found = "NaN" if np.isnan(stored[tuple(bad[0])]) else "infinity"
    return BadRowError(
        f"Row {row:,} holds {found}. Nothing of this batch was used; fix or drop the row and call partial_fit again."
    )


def check_same_kind(before: Any, rows: Any) -> None:
    """Raise if rows are of another kind or type than those before them: their sums would not be the same bits."""
    kinds = [f"{'dense' if isinstance(each, np.ndarray) else 'CSR'} {each.dtype}" for each in (before, rows)]
    if kinds[0] != kinds[1]:
        raise ValueError(
            f"All rows of a run must be of one kind. It began with {kinds[0]} rows. Got {kinds[1]}. Convert these rows."
        )


def check_norm_bound(value: Any) -> float:
    """Return the bound on the norm of a row as a positive float."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool) and 0 < float(value) < math.inf:
        return float(value)
    raise ValueError(
        f"`norm_bound` must be a positive number: the largest Euclidean norm of a row. Got {value!r}. "
        "It must be known without looking at the data."
    )


def check_finite(entries: DataArray, name: str) -> None:
    """Raise if an entry is NaN or infinite, naming the first one, or if all are zero."""
    # Part by part, so that there is no temporary of the tensor's size.
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


def _check_dtype(entries: Any, name: str) -> None:
    if entries.dtype not in (np.float32, np.float64):
        raise TypeError(
            f"The {name} must hold float32 or float64 numbers. Got {entries.dtype}. Convert it with astype(float)."
        )


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


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise if `value` is none of `choices`."""
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"`{name}` must be one of {listed}. Got {value!r}.")


def check_same_shape(first: tuple[int, int], second: tuple[int, int]) -> None:
    """Raise if two tensors that are to be added differ in dimension or order."""
    if first != second:
        raise ValueError(
            "Tensors in a sum must share dimension and order. "
            f"Got dimension {first[0]}, order {first[1]} and dimension {second[0]}, order {second[1]}."
        )


def _entry(entries: DataArray, index: tuple[int, ...] | list[int]) -> str:
    listed = ", ".join(str(i) for i in index)
    return f"T[{listed}] = {float(entries[tuple(index)]):.6g}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
