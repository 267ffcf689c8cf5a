"""The power step of a block: which way each candidate goes, and where it gets to."""

from __future__ import annotations

import numpy as np

from odeco._types import BoolArray, FloatArray
from odeco.search._sphere import normalise


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
