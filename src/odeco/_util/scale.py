"""Powers of two that are taken out of numbers before they are multiplied, and put back afterwards, without rounding.

Powers of rows and squares of weights leave the range of floating-point numbers long before the numbers themselves do.
Multiplying by a power of two changes no digit, so what is computed in such a unit has the same digits at any scale.
Numbers of ordinary size are left alone: their exponent is 0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

#: Numbers of a type are of ordinary size if their products lie between 2^-n and 2^n for this n.
_ORDINARY_BITS = {np.dtype(np.float32): 40, np.dtype(np.float64): 400}

#: Below this size a number in double precision has fewer than 53 binary digits above the smallest number.
SMALLEST_USABLE = 2.0**-970


def ordinary_bits(dtype: np.dtype[Any]) -> int:
    """Return the n for which products between 2^-n and 2^n are of ordinary size."""
    return _ORDINARY_BITS[dtype]


def largest(numbers: Any) -> float:
    """Return the largest absolute value of an array, NaN if it holds one, 0 if it is empty."""
    return max(float(numbers.max(initial=0.0)), -float(numbers.min(initial=0.0)))


def unit_exponent(size: float, n_factors: int, dtype: np.dtype[Any]) -> int:
    """Return e such that numbers up to `size` over 2^e can be multiplied `n_factors` times; 0 at ordinary sizes."""
    if size == 0 or not math.isfinite(size):
        return 0
    exponent = math.frexp(size)[1]
    return 0 if abs(exponent) <= _ORDINARY_BITS[dtype] // n_factors else exponent


def norm_exponent(squared_norm: float) -> int:
    """Return e such that a norm over 2^e is between 1/2 and 1; 0 for a norm of zero.

    Least squares takes roots of weights, whose digits depend on the size of a tensor. In this unit a tensor and its
    double give the same digits.
    """
    return math.frexp(math.sqrt(squared_norm))[1]


def times_power_of_two(numbers: Any, exponent: int) -> Any:
    """Return numbers times 2^exponent, in their own type."""
    if exponent == 0:
        return numbers
    with np.errstate(all="ignore"):
        return np.ldexp(numbers, exponent)


def put_back(numbers: Any, exponent: int, what: str) -> Any:
    """Return numbers times 2^exponent; raise if one of them is then too large or too small for double precision."""
    back = times_power_of_two(numbers, exponent)
    if not np.array_equal(times_power_of_two(back, -exponent), numbers, equal_nan=True):
        size = math.frexp(largest(np.abs(np.atleast_1d(numbers))))[1] + exponent
        raise ValueError(
            f"The {what} must be numbers that double precision can hold. They would be about 2^{size}. Measure "
            "the data in another unit: multiply all of them by a constant."
        )
    return back
