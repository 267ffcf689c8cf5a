"""One power iteration of a block of unit vectors, and the uniform draws that it starts from."""

from __future__ import annotations

import math

import numpy as np

from odeco._util.types import FloatArray


def uniform_starts(generator: np.random.Generator, parts: tuple[int, ...], n_starts: int) -> FloatArray:
    """Draw unit vectors uniformly on the sphere, each part on its own and all parts of equal length."""
    block = generator.standard_normal((sum(parts), n_starts))
    return normalise(block, parts, block)


def normalise(block: FloatArray, parts: tuple[int, ...], fallback: FloatArray) -> FloatArray:
    """Scale every column to unit length, each of its parts to 1/√(number of parts).

    A part that is zero has no direction, and is replaced by that of `fallback`.
    """
    result = np.empty_like(block)
    start = 0
    for size in parts:
        rows = slice(start, start + size)
        part, scaled = block[rows], result[rows]
        largest = np.maximum(part.max(axis=0), -part.min(axis=0))
        # Dividing by the largest first keeps squares from under- and overflowing.
        np.divide(part, np.where(largest > 0, largest, 1.0), out=scaled)
        scaled[:, largest == 0] = fallback[rows][:, largest == 0]
        scaled /= column_norms(scaled) * math.sqrt(len(parts))
        start += size
    return result


def column_norms(block: FloatArray) -> FloatArray:
    """Return the length of every column."""
    squares: FloatArray = np.einsum("il,il->l", block, block)
    return np.sqrt(squares)


def choose_shifts(
    signs: FloatArray,
    shifts: FloatArray,
    before: FloatArray,
    values: FloatArray,
    *,
    order: int,
    n_images: int,
    may_shift: bool,
    rounding: float,
) -> tuple[FloatArray, FloatArray]:
    """Return the sign and the shift of each iterate: SS-HOPM (Kolda and Mayo 2011), with shifts only where needed.

    At an odd order an iterate and its negative have opposite values, so maximisation is enough. At an even order an
    iterate whose first value is negative minimises. The value of a maximising iterate never falls once its shift
    exceeds (p−1) times the largest value, so after finitely many doublings nothing can cycle. Where no shift is needed
    it stays 0, and convergence stays quadratic.

    Parameters
    ----------
    signs, shifts : arrays of L numbers
        For each iterate: whether it maximises (+1) or minimises (−1), and its shift so far.
    before, values : arrays of L numbers
        Its last value and its present one.
    order, n_images : int
        The order of the tensor, and the number of images of these iterates so far, the present one included.
    may_shift : bool
        Whether shifts may be raised at all.
    rounding : float
        The relative rounding error of the images.
    """
    if order % 2 == 0 and n_images == 1:
        return np.where(values < 0, -1.0, 1.0), shifts
    worse = signs * values < signs * before - 10 * rounding * np.abs(before)
    if may_shift and n_images > 1 and worse.any():
        return signs, np.where(worse, np.maximum(2 * shifts, np.abs(before)), shifts)
    return signs, shifts


def power_step(
    iterates: FloatArray, images: FloatArray, signs: FloatArray, shifts: FloatArray, parts: tuple[int, ...]
) -> FloatArray:
    """Return the normalised image of every iterate (Algorithm 1, line 4), plus its shift where it has one."""
    direction = images
    if shifts.any() or np.any(signs < 0):
        direction = signs * images + shifts * iterates
    return normalise(direction, parts, iterates)
