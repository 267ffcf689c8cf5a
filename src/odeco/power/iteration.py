"""One power iteration of a block of unit vectors, and the uniform draws that it starts from."""

from __future__ import annotations

import math

import numpy as np

from odeco._util.types import BoolArray, FloatArray


def uniform_starts(generator: np.random.Generator, parts: tuple[int, ...], n_starts: int) -> FloatArray:
    """Draw unit vectors uniformly on the sphere, each part on its own and all parts of equal length."""
    block = generator.standard_normal((sum(parts), n_starts))
    return normalise(block, parts, block)


def uniform_within(basis: FloatArray, n_vectors: int, generator: np.random.Generator) -> FloatArray:
    """Draw unit vectors uniformly on the sphere within the span of an orthonormal basis, d x m."""
    return basis @ uniform_starts(generator, (basis.shape[1],), n_vectors)


def normalise(block: FloatArray, parts: tuple[int, ...], fallback: FloatArray) -> FloatArray:
    """Scale every column to unit length, each of its parts to 1/√(number of parts).

    Where a part is zero, that of `fallback` is taken: a zero image tells nothing about where to go.
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


def steered(
    signs: FloatArray,
    shifts: FloatArray,
    before: FloatArray,
    values: FloatArray,
    *,
    order: int,
    n_answers: int,
    may_shift: bool | BoolArray,
    rounding: float,
) -> tuple[FloatArray, FloatArray]:
    """Choose the direction of each candidate at its first answer; raise the shift of one that lost ground.

    At an odd order a candidate and its negative have opposite values, so climbing is enough. At an even order a
    candidate that starts at a negative value descends. Climbing never loses ground once the shift exceeds (p−1) times
    the largest value (Kolda and Mayo 2011), so after finitely many doublings nothing can cycle. Where it is not needed
    the shift stays 0, and convergence stays quadratic.

    Parameters
    ----------
    signs, shifts : arrays of L numbers
        For each candidate: whether it climbs (+1) or descends (−1), and its shift so far.
    before, values : arrays of L numbers
        Its last value and its present one.
    order, n_answers : int
        The order of the tensor, and the answers that these candidates have had, the present one included.
    may_shift : bool or array of bool
        Whether shifts may be raised at all, for all candidates or for each.
    rounding : float
        The relative rounding error of the answers.
    """
    if order % 2 == 0 and n_answers == 1:
        return np.where(values < 0, -1.0, 1.0), shifts
    lost = signs * values < signs * before - 10 * rounding * np.abs(before)
    lost &= may_shift
    if n_answers > 1 and lost.any():
        return signs, np.where(lost, np.maximum(2 * shifts, np.abs(before)), shifts)
    return signs, shifts


def moved(
    candidates: FloatArray, image: FloatArray, signs: FloatArray, shifts: FloatArray, parts: tuple[int, ...]
) -> FloatArray:
    """Return the normalised image of every candidate (Algorithm 1, line 4), shifted where it needs to be."""
    direction = image
    if shifts.any() or np.any(signs < 0):
        direction = signs * image + shifts * candidates
    return normalise(direction, parts, candidates)


#: Candidates whose cosine with the winner is above this agree with it.
AGREEMENT = 0.99
