"""Checks of arguments that the experiments and the baselines share."""

from __future__ import annotations

import math
import numbers
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IndexArray: TypeAlias = NDArray[np.int64]
DataArray: TypeAlias = NDArray[np.floating[Any]]

#: What every ``rng`` argument accepts: nothing, a seed, or a generator.
RngLike: TypeAlias = int | np.random.Generator | None


def check_count(name: str, value: Any, low: int = 1, high: float = math.inf) -> int:
    """Return `value` as an int if it is a whole number within its bounds."""
    is_whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if is_whole and low <= value <= high:
        return int(value)
    bounds = f"of at least {low}" if math.isinf(high) else f"in [{low}, {high}]"
    raise ValueError(f"`{name}` must be an int {bounds}. Got {value!r}.")


def check_positive(name: str, value: Any, *, or_zero: bool = False) -> float:
    """Return `value` as a float if it is a positive, finite number, or 0 where that is allowed."""
    is_real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if is_real and (0 < value < math.inf or (or_zero and value == 0)):
        return float(value)
    bound = "of at least 0" if or_zero else "above 0"
    raise ValueError(f"`{name}` must be a number {bound}, and finite. Got {value!r}.")


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise if `value` is none of `choices`."""
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"`{name}` must be one of {listed}. Got {value!r}.")


def draw_unit_vectors(generator: np.random.Generator, dimension: int, count: int) -> FloatArray:
    """Draw vectors uniformly on the sphere, as columns."""
    return normalise_columns(generator.standard_normal((dimension, count)))


def normalise_columns(block: FloatArray) -> FloatArray:
    """Scale every column to unit length."""
    scaled: FloatArray = block / np.linalg.norm(block, axis=0)
    return scaled
