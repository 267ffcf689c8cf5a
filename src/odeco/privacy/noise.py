"""Gaussian noise that is private in fact: from the operating system, exactly rounded, on a grid
shared with the value.

Two things go wrong with ``value + scale * rng.standard_normal()``. Whoever learns the state of the
generator can subtract the noise. And floating-point numbers leak: which doubles a sum can reach
depends on the value, so its low bits give the value away (Mironov 2012) however large the scale is.
Here the bits come from the operating system, and value and noise are whole multiples of a common
power of two.
"""

from __future__ import annotations

import math
import numbers
import os
import warnings
from functools import cache
from typing import Any, NoReturn, Protocol, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from odeco._util.threads import map_blocks
from odeco._util.types import FloatArray
from odeco.errors import NotPrivateWarning

GRID_BITS = (
    30  # the grid is 2⁻³⁰ of the scale: fine enough to cost nothing, coarse enough to round exactly
)

# values beyond 2⁴⁰ times the scale are cut: there the rounding errors of the value would show
CLAMP_BITS = 40

_SMALLEST_SCALE = 2.0**-900
_LARGEST_SCALE = 2.0**900

_HEAD_BITS = 63
_TAIL_BITS = 192

#: A draw up to 5 times the scale errs by less than 2⁻⁴⁷ · 5 + 2⁻⁶⁴ √(2π) e^12.5 < 2⁻⁴³ of it, 2⁻¹²
#: of a step of the grid. So its error is looked at only if it is nearer than that to the middle
#: between two steps, or larger.
_FAR = 5.0
_UNSURE = 2.0**-12

#: Number of draws made at a time: what the cache holds.
_AT_ONCE = 2**15


class NoiseSource(Protocol):
    """A source of noise. Only that of a `SecureNoise` makes a release private, see `Releaser`."""

    def gaussian(self, shape: tuple[int, ...], scale: float) -> FloatArray:
        """Draw independent N(0, scale²), each rounded to the nearest multiple of
        ``grid_of(scale)``.
        """
        ...


@final
class SecureNoise:
    """Noise from the random bits of the operating system (``os.urandom``); it takes no seed and
    keeps no state.

    Notes
    -----
    Every draw uses fresh bits of the system's own cryptographic generator. So there is no key in
    this process that a memory dump, a debugger or a pickle could give away, no state for a forked
    child to share with its parent or a restored snapshot to repeat, and nothing for threads to
    fight over. It makes about ten million numbers a second; a ChaCha20 generator in this process
    would make thirty, and would have to guard against all of these.

    The law of the noise is stated at `noisy`. A source cannot be pickled or copied: noise is drawn
    where it is used.
    """

    __slots__ = ()  # nothing can be put in the place of a method of one instance

    def gaussian(self, shape: tuple[int, ...], scale: float) -> FloatArray:
        """Draw independent N(0, scale²), each rounded to the nearest multiple of
        ``grid_of(scale)``.
        """
        return _rounded_gaussian(_system_bits, shape, scale)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            "Noise must be drawn where it is used: its source is never stored. Make a "
            "SecureNoise() there."
        )


class SimulatedNoise:
    """The same noise from a seeded generator, for releases of simulated data: repeatable, hence not
    private.

    Parameters
    ----------
    seed : int
        The seed of the generator.
    """

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def gaussian(self, shape: tuple[int, ...], scale: float) -> FloatArray:
        """Draw N(0, scale²) from the seed, each rounded to the nearest multiple of
        ``grid_of(scale)``.
        """
        return _rounded_gaussian(self._bits, shape, scale)

    def _bits(self, size: int) -> NDArray[np.uint64]:
        return self._generator.integers(0, 2**64, size, dtype=np.uint64)


@final
class SeededNoiseForTests(SimulatedNoise):
    """Noise from a seeded generator for tests; it warns that what is released with it is not
    private.

    Parameters
    ----------
    seed : int
        The seed of the generator.
    """

    def __init__(self, seed: int) -> None:
        warnings.warn(
            "Noise must come from the operating system to hide anything. Got a seeded source: "
            "whoever knows the seed can subtract the noise, and the result is marked as not "
            "private. Leave `noise` out except in tests.",
            NotPrivateWarning,
            stacklevel=2,
        )
        super().__init__(seed)


def noisy(value: Any, scale: float, source: NoiseSource) -> FloatArray:
    """Return round(value) + round(scale · N(0, I)), both rounded to a grid that depends on `scale`
    alone.

    Parameters
    ----------
    value : array_like of float
        What is to be released.
    scale : float
        Standard deviation of the noise on every coordinate.
    source : NoiseSource
        The source of the noise.

    Returns
    -------
    array of float64, of the shape of `value`

    Notes
    -----
    **The grid** is g = 2^(⌊log₂ scale⌋ − 30), see `grid_of`. It never depends on the data.

    **Why this is the Gaussian mechanism.** Let v be the value after rounding, a multiple of g, and
    N real Gaussian noise. Rounding commutes with a shift by a multiple of the grid: round(v + N) =
    v + round(N). So v + round(N) is post-processing of v + N, which is exactly the Gaussian
    mechanism for v. No accounting for "discrete" noise is needed, and the low bits hold nothing:
    the outcomes that v + round(N) can reach are all multiples of g, whatever v is.

    **What rounding the value costs.** The rounded values of two neighbours differ by more than the
    values themselves, by at most `rounding_slack`. It belongs to the sensitivity that is charged;
    `noise_scale` allows for it.

    **The sum in floating point.** Both terms are exact doubles. Their floating-point sum is the
    exact sum rounded to the nearest double: a fixed function of the exact sum, so post-processing
    again. It is exact itself while it is below 2⁵³ g, about 2²³ times the scale. Negative zero is
    turned into zero.

    **Clamping.** A value beyond ±2⁴⁰ · 2^⌊log₂ scale⌋ is cut to that bound, and one that is not a
    number becomes 0, without a message: a message would be an answer without noise. Cutting moves
    no two values apart (it is a projection onto a box). NaN has no distance to anything, so no
    sensitivity covers it: data holders must replace bad rows before they reach a sum. This is the
    last line of defence only.

    **How good the noise is.** With U uniform on (0, ½), −Φ⁻¹(U) is the size of a normal variable; a
    fair bit is its sign. 63 bits of U are drawn and Φ⁻¹ is computed in double precision, which
    decides the nearest multiple of the grid except where the remaining bits of U or the rounding
    errors matter, about once in 30,000 draws. There 192 more bits are drawn and the question is
    decided with 320 bits of precision. So the noise is an ideal Gaussian variable, exactly rounded,
    up to a total variation distance below 2⁻²⁰⁰. No tail is cut short of 18 times the scale.

    **What remains.** (1) The bits are as good as the operating system's generator. (2) Time: the
    rare second look takes longer, which reveals something about the noise's distance to a rounding
    boundary, 2⁻³¹ of the scale, to anyone who can time single draws. (3) The declared sensitivity
    must hold for the value *as computed*: where sums of many rows are formed in floating point,
    their rounding errors differ between neighbours. At the clamp, doubles are 2⁻¹² of the scale
    apart; far below it, sums of n rows of size B err by at most about n² B 2⁻⁵³ and usually by √n B
    2⁻⁵³. A `DataHolder` declares these errors as part of its sensitivity.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.privacy.noise import SecureNoise, grid_of, noisy
    >>> answer = noisy(np.array([0.1, 0.2]), 4.0, SecureNoise())
    >>> np.all(answer % grid_of(4.0) == 0)
    np.True_
    """
    scale = _check_scale(scale)
    grid = grid_of(scale)
    bound = math.ldexp(grid_of(scale), GRID_BITS + CLAMP_BITS)
    finite: FloatArray = np.nan_to_num(
        np.asarray(value, dtype=np.float64), nan=0.0, posinf=bound, neginf=-bound
    )
    rounded: FloatArray = np.rint(np.clip(finite, -bound, bound) / grid) * grid
    return rounded + source.gaussian(rounded.shape, scale) + 0.0  # the zero turns -0.0 into 0.0


def grid_of(scale: float) -> float:
    """Return the grid 2^(⌊log₂ scale⌋ − 30) of noise with standard deviation `scale`."""
    _, exponent = math.frexp(_check_scale(scale))  # scale = m · 2^exponent with m in [1/2, 1)
    return math.ldexp(1.0, exponent - 1 - GRID_BITS)


def rounding_slack(size: int, grid: float) -> float:
    """Return g √n: how much rounding n coordinates to a grid g can add to the distance of two
    vectors.

    Rounding moves each coordinate by at most g/2, so the difference of two by at most g, and the
    difference of n by a vector of length at most g √n; then the triangle inequality. It is
    approached when all differences lie just beyond an odd multiple of g/2 on either side (0.49 g
    against 0.51 g become 0 and g).
    """
    return grid * math.sqrt(size)


def noise_scale(sensitivity: float, noise_multiplier: float, size: int) -> float:
    """Return the scale for which noise is `noise_multiplier` times the sensitivity *after* rounding
    `size` coordinates.

    The grid depends on the scale and the slack on the grid; with g ≤ 2⁻³⁰ scale it is enough that
    scale ≥ z (Δ + 2⁻³⁰ scale √n), which is solved by scale = z Δ / (1 − 2⁻³⁰ z √n). Charge
    ``sensitivity + rounding_slack(size, grid_of(scale))`` for it.

    Examples
    --------
    >>> from odeco.privacy.noise import noise_scale
    >>> round(noise_scale(1.0, 70.0, 30_000), 3)
    70.001
    """
    share = noise_multiplier * math.sqrt(size) * 2.0**-GRID_BITS
    if not share < 0.5:
        raise ValueError(
            f"The noise must hide {size} coordinates at once with a grid of 2^-{GRID_BITS} of its "
            f"scale. With a noise multiplier of {noise_multiplier:.3g} it cannot. Release fewer "
            "numbers, or raise epsilon."
        )
    return noise_multiplier * sensitivity / (1 - share) * (1 + 2.0**-50)


def _rounded_gaussian(bits: Any, shape: tuple[int, ...], scale: float) -> FloatArray:
    """Draw N(0, scale²) rounded to the grid, from a function that returns uniform 64-bit words."""
    _precise_context()  # if that is not installed, fail now and not once in a while
    grid = grid_of(scale)
    ratio = scale / grid  # exact, between 2³⁰ and 2³¹
    words: NDArray[np.uint64] = bits(math.prod(shape))
    steps = np.empty(words.size)

    def settle_most(part: slice) -> NDArray[np.intp]:
        """Fill in the steps of these words, and return which of them have to be looked at again."""
        head = words[part] >> np.uint64(64 - _HEAD_BITS)
        distance = -ndtri((head.astype(np.float64) + 0.5) * 2.0 ** -(_HEAD_BITS + 1))
        exact = distance * ratio
        own = np.rint(exact, out=steps[part])
        exact -= own
        gap = np.abs(exact, out=exact)  # to the nearest step: the nearer to ½, the less certain
        unsure = np.flatnonzero((gap >= 0.5 - _UNSURE) | (distance > _FAR))
        if not unsure.size:
            return unsure
        # How far `distance` may be from that of the ideal U: the error of ndtri and of the products
        # (the tests find less than 2⁻⁴⁹), and half a unit of the head divided by the density,
        # doubled. Beyond 7 times the scale this exceeds half a step of the grid, so that everything
        # is looked at again; up to there half a unit is less than 1e-7 of U.
        at = distance[unsure]
        error = 2.0**-47 * np.maximum(at, 1.0) + 2.0**-64 * math.sqrt(2 * math.pi) * np.exp(
            at**2 / 2
        )
        again: NDArray[np.intp] = part.start + unsure[gap[unsure] >= 0.5 - error * ratio]
        return again

    parts = [slice(start, start + _AT_ONCE) for start in range(0, words.size, _AT_ONCE)]
    few = len(parts) < 4  # then threads take longer to wake than the work takes
    for unsure in map(settle_most, parts) if few else map_blocks(settle_most, parts, parallel=True):
        for index in unsure:
            tail = [int(word) for word in bits(_TAIL_BITS // 64)]
            head = int(words[index]) >> (64 - _HEAD_BITS)
            uniform = (head << _TAIL_BITS) + sum(word << (64 * k) for k, word in enumerate(tail))
            steps[index] = _settled(uniform, ratio, int(steps[index]))
    steps *= grid
    np.negative(steps, out=steps, where=(words & np.uint64(1)).astype(bool))
    return steps.reshape(shape)


def _settled(uniform: int, ratio: float, guess: int) -> int:
    """Return ratio · Φ⁻¹ of the upper tail probability (uniform + ½) 2⁻²⁵⁶, rounded to the nearest
    integer.
    """
    precise = _precise_context()
    probability = (precise.mpf(uniform) + 0.5) / 2 ** (_HEAD_BITS + _TAIL_BITS + 1)

    def reached(steps: int) -> bool:  # whether the answer is at most `steps`
        boundary = precise.mpf(2 * steps + 1) / (2 * precise.mpf(ratio))
        return bool(precise.erfc(boundary / precise.sqrt(2)) / 2 < probability)

    low = guess - 1
    high = guess
    stride = 1
    while not reached(high):
        low = high
        high = high + stride
        stride = 2 * stride
    while low >= 0 and reached(low):
        low, high, stride = low - stride, low, 2 * stride
    low = max(low, -1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


@cache
def _precise_context() -> Any:
    import mpmath  # type: ignore[import-untyped]  # here, because it takes longer to import than all the rest

    context = mpmath.MPContext()  # our own: the precision of the global one belongs to the user
    context.prec = 320
    return context


def _system_bits(size: int) -> NDArray[np.uint64]:
    return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)


def _check_scale(scale: Any) -> float:
    if isinstance(scale, numbers.Real) and not isinstance(scale, bool):
        number = float(scale)
        if _SMALLEST_SCALE <= number <= _LARGEST_SCALE:
            return number
    raise ValueError(
        f"`scale` must be a number in [2^-900, 2^900]. Got {scale!r}. Rescale the data."
    )
