"""Numbers from outside: checks of single arguments, arrays of other libraries, and the unit of very
large numbers.

A ``check_`` function returns its argument, as the type that the library works with, or raises: what
must hold; what was given; what to do. Arrays are checked beside the code that reads them.

Powers of rows and squares of weights leave the range of floating-point numbers long before the
numbers themselves do. So a power of two is taken out of numbers before they are multiplied, and put
back afterwards. Multiplying by a power of two changes no digit, so what is computed in such a unit
has the same digits at any scale. Numbers of ordinary size are left alone: their exponent is 0.
"""

from __future__ import annotations

import math
import numbers
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from odeco._util.types import RngLike

#: The orders of tensors: below, there are matrices; above, NumPy has no arrays.
MINIMUM_ORDER = 3
MAX_ORDER = 32

_GENERATORS = (np.random.Generator, np.random.BitGenerator, np.random.SeedSequence)


def as_generator(rng: RngLike) -> np.random.Generator:
    """Return `rng` as a generator; a seed gives the same one every time."""
    if isinstance(rng, np.random.RandomState):
        return np.random.default_rng(rng.randint(2**31 - 1))
    is_seed = isinstance(rng, numbers.Integral) and not isinstance(rng, bool)
    if rng is not None and not is_seed and not isinstance(rng, _GENERATORS):
        raise TypeError(
            "`rng` must be None, an int, or a Generator, RandomState or SeedSequence of "
            f"numpy.random. Got {rng!r}. Pass a seed such as rng=0."
        )
    if is_seed and int(rng) < 0:  # type: ignore[arg-type]
        raise ValueError(f"A seed must not be negative. Got rng={rng!r}. Pass one such as rng=0.")
    return np.random.default_rng(rng)


def as_random_state(random_state: Any) -> np.random.RandomState:
    """Return the `random_state` of an estimator as scikit-learn does, and also of a generator."""
    if random_state is None:
        return np.random.mtrand._rand
    if isinstance(random_state, np.random.RandomState):
        return random_state
    if isinstance(random_state, numbers.Integral) and not isinstance(random_state, bool):
        if not 0 <= int(random_state) < 2**32:
            raise ValueError(
                f"`random_state` must be in [0, 2**32 - 1]. Got {random_state!r}. Pass one such "
                "as random_state=0."
            )
        return np.random.RandomState(int(random_state))
    if isinstance(random_state, _GENERATORS):
        return np.random.RandomState(int(as_generator(random_state).integers(2**32)))
    raise ValueError(
        "`random_state` must be None, an int, or a Generator, RandomState or SeedSequence of "
        f"numpy.random. Got {random_state!r}. Pass a seed such as random_state=0."
    )


def is_null(cell: Any) -> bool:
    """Tell whether a cell of a table is missing: None, NaN, or NA and NaT of pandas, which is not
    imported.
    """
    return (
        cell is None
        or type(cell).__name__ in ("NAType", "NaTType")
        or (isinstance(cell, float) and math.isnan(cell))
    )


def as_seed(rng: RngLike) -> int:
    """Draw the one number that all starts of a solver depend on."""
    return int(as_generator(rng).integers(2**63))


def check_count(
    name: str, value: Any, low: int = 1, high: int | None = None, what: str = ""
) -> int:
    """Return `value` as an int if it is a whole number within its bounds."""
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        number = int(value)
        if number >= low and (high is None or number <= high):
            return number
    bounds = f"in [{low}, {high}]" if high is not None else f"of at least {low}"
    raise ValueError(f"`{name}` must be an int {bounds}{what}. Got {value!r}.")


def check_n_components(value: Any, dimension: int) -> int:
    """Return the number of components as an int in [1, dimension]."""
    return check_count(
        "n_components", value, 1, dimension, f" for a tensor of dimension {dimension}"
    )


def check_order(value: Any) -> int:
    """Return the order of a tensor as an int of at least 3."""
    return check_count("order", value, MINIMUM_ORDER)


def _as_real(value: Any) -> float:
    """Return a real number as a float, and NaN, which lies in no range, for anything else."""
    return (
        float(value)
        if isinstance(value, numbers.Real) and not isinstance(value, bool)
        else math.nan
    )


def check_number(name: str, value: Any, low: float, high: float, *, closed: bool = False) -> float:
    """Return `value` as a float if it is a number strictly between its bounds, or, if `closed`, at
    one of them.
    """
    number = _as_real(value)
    if low < number < high or (closed and low <= number <= high):
        return number
    lower, upper = ("of at least", "at most") if closed else ("above", "below")
    end = f" and {upper} {high:g}" if high < sys.float_info.max else ", and finite"
    if closed and math.isinf(high):
        end = ""
    raise ValueError(f"`{name}` must be a number {lower} {low:g}{end}. Got {value!r}.")


def check_tolerance(value: Any) -> float:
    """Return a relative tolerance as a float in [0, 1)."""
    if 0 <= _as_real(value) < 1:
        return float(value)
    raise ValueError(
        f"`tol` must be a number in [0, 1). Got {value!r}. Pass 0 for a fixed number of iterations."
    )


def check_forgetting(value: Any) -> float:
    """Return the forgetting factor as a float in (0, 1]."""
    if 0 < _as_real(value) <= 1:
        return float(value)
    raise ValueError(
        f"`forgetting` must be a number in (0, 1]. Got {value!r}. Pass 1 to forget nothing."
    )


def check_norm_bound(value: Any) -> float:
    """Return the bound on the norm of a row as a positive float."""
    if 0 < _as_real(value) < math.inf:
        return float(value)
    raise ValueError(
        "`norm_bound` must be a positive number: the largest Euclidean norm of a row. Got "
        f"{value!r}. It must be known without looking at the data, or chosen under privacy: "
        "'auto' does so where it is accepted."
    )


def float_or_auto(text: str) -> float | str:
    """Return the text "auto" as it is, and any other as a number."""
    return text if text == "auto" else float(text)


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise if `value` is none of `choices`."""
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"`{name}` must be one of {listed}. Got {value!r}.")


def check_unmasked(array: Any, name: str) -> None:
    """Raise if an array, or a row of a list, is masked: NumPy would give the numbers under the
    mask.
    """
    rows = array if isinstance(array, list | tuple) else ()
    if isinstance(array, np.ma.MaskedArray) or any(
        isinstance(row, np.ma.MaskedArray) for row in rows
    ):
        raise TypeError(
            f"The {name} must not be masked. Got a MaskedArray, whose hidden entries would be "
            "read as numbers. Fill them with filled(value)."
        )


def check_saved_state(state: Any) -> int | None:
    """Return the `random_state` of an estimator as a file can hold it, or raise."""
    if state is None or isinstance(state, int | np.integer):
        return None if state is None else int(state)
    raise ValueError(
        f"`random_state` must be None or an int for a model to be saved. Got {state!r}. Set it "
        "with set_params; the fitted model does not depend on it."
    )


#: Packages whose arrays follow the standard through array-api-compat, if not by themselves.
_OTHER_LIBRARIES = {"torch", "cupy", "jax", "jaxlib"}


def is_foreign(array: Any) -> bool:
    """Return whether an array belongs to another library than NumPy, without importing that
    library.
    """
    if isinstance(array, np.ndarray | np.generic):
        return False
    names = {each.__module__.partition(".")[0] for each in type(array).__mro__}
    return bool(names & _OTHER_LIBRARIES) or hasattr(type(array), "__array_namespace__")


def as_numpy(array: Any) -> NDArray[Any]:
    """Return anything that NumPy can read as an array; arrays of other libraries are copied from
    their device.
    """
    if is_foreign(array):
        if hasattr(
            array, "detach"
        ):  # PyTorch: neither gradients nor the memory of a GPU can be shared
            array = array.detach().cpu()
        elif hasattr(array, "get"):  # CuPy copies only if it is asked to
            array = array.get()
    return np.asarray(array)


#: Numbers of a type are of ordinary size if their products lie between 2^-n and 2^n for this n.
_ORDINARY_BITS = {np.dtype(np.float32): 40, np.dtype(np.float64): 400}

#: Below this size a number in double precision has fewer than 53 binary digits above the smallest
#: number.
SMALLEST_USABLE = 2.0**-970


def ordinary_bits(dtype: np.dtype[Any]) -> int:
    """Return the n for which products between 2^-n and 2^n are of ordinary size."""
    return _ORDINARY_BITS[dtype]


def largest(numbers: Any) -> float:
    """Return the largest absolute value of an array, NaN if it holds one, 0 if it is empty."""
    return max(float(numbers.max(initial=0.0)), -float(numbers.min(initial=0.0)))


def unit_exponent(size: float, n_factors: int, dtype: np.dtype[Any]) -> int:
    """Return e such that numbers up to `size` over 2^e can be multiplied `n_factors` times; 0 at
    ordinary sizes.
    """
    if size == 0 or not math.isfinite(size):
        return 0
    exponent = math.frexp(size)[1]
    return 0 if abs(exponent) <= _ORDINARY_BITS[dtype] // n_factors else exponent


def norm_exponent(squared_norm: float) -> int:
    """Return e such that a norm over 2^e is between 1/2 and 1; 0 for a norm of zero.

    Least squares takes roots of weights, whose digits depend on the size of a tensor. In this unit
    a tensor and its double give the same digits.
    """
    return math.frexp(math.sqrt(squared_norm))[1]


def times_power_of_two(numbers: Any, exponent: int) -> Any:
    """Return numbers times 2^exponent, in their own type."""
    if exponent == 0:
        return numbers
    with np.errstate(all="ignore"):
        return np.ldexp(numbers, exponent)


def put_back(numbers: Any, exponent: int, what: str) -> Any:
    """Return numbers times 2^exponent; raise if one of them is then too large or too small for
    double precision.
    """
    back = times_power_of_two(numbers, exponent)
    if not np.array_equal(times_power_of_two(back, -exponent), numbers, equal_nan=True):
        size = math.frexp(largest(np.abs(np.atleast_1d(numbers))))[1] + exponent
        raise ValueError(
            f"The {what} must be numbers that double precision can hold. They would be about "
            f"2^{size}. Measure the data in another unit: multiply all of them by a constant."
        )
    return back
