"""Unit vectors in blocks: drawn uniformly, and normalised part by part.

The power step of a block: which way each candidate goes, and where it gets to.

Candidates that climb together, each by itself: where they are, how high, and how far from an eigenvector.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from odeco._util.types import BoolArray, FloatArray, IndexArray


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

#: A candidate is near an eigenvector if its residual is at most this share of its value.
NEAR = 0.25

#: Candidates with a cosine above this are on their way to the same component.
SAME = 0.5


@dataclass(frozen=True, eq=False)
class Climbers:
    """A block of unit vectors under the power step: a value that `measured` and `moved` replace by the next.

    Attributes
    ----------
    vectors : array, d x L
        Where they are.
    signs, shifts, values : arrays of L numbers
        See `steered`.
    history : array, n x L
        The residual ‖T(I,u,…,u) − λu‖ over |λ| at each answer; NaN for those that were not asked about any more.
    """

    vectors: FloatArray
    signs: FloatArray
    shifts: FloatArray
    values: FloatArray
    history: FloatArray

    @classmethod
    def start(cls, vectors: FloatArray, values: FloatArray | None = None) -> Climbers:
        """Return candidates that have had no answer; at even orders those of negative `values` descend."""
        count = vectors.shape[1]
        known = np.zeros(count) if values is None else values
        signs = np.where(known < 0, -1.0, 1.0)
        return cls(vectors, signs, np.zeros(count), known, np.empty((0, count)))

    @property
    def n_answers(self) -> int:
        """How many answers they have had."""
        return int(self.history.shape[0])

    @property
    def residuals(self) -> FloatArray:
        """The last relative residual of each, infinite before the first answer."""
        if self.n_answers == 0:
            return np.full(self.values.size, np.inf)
        last = self.n_answers - 1 - np.argmax(np.isfinite(self.history[::-1]), axis=0)
        latest: FloatArray = self.history[last, np.arange(last.size)]
        return latest

    def history_of(self, index: int) -> tuple[float, ...]:
        """Return the residuals of one candidate, oldest first."""
        column = self.history[:, index]
        return tuple(column[np.isfinite(column)].tolist())

    def measured(self, image: FloatArray, asked: BoolArray, *, order: int, rounding: float) -> Climbers:
        """Take in the images of those that were `asked` about (a mask): their values, residuals and directions.

        The shift of one that loses ground is raised only if its residual grows too: near its end a value may fall
        because others, which are subtracted, have moved.
        """
        vectors = self.vectors[:, asked]
        values = np.einsum("il,il->l", vectors, image)
        size = np.maximum(np.abs(values), np.finfo(np.float64).tiny)
        relative = np.minimum(column_norms(image - values * vectors) / size, np.finfo(np.float64).max)
        signs, shifts = steered(
            self.signs[asked],
            self.shifts[asked],
            self.values[asked],
            values,
            order=order,
            n_answers=self.n_answers + 1,
            may_shift=relative > self.residuals[asked],
            rounding=rounding,
        )
        row = np.full(asked.size, np.nan)
        row[asked] = relative
        return replace(
            self,
            signs=_with(self.signs, asked, signs),
            shifts=_with(self.shifts, asked, shifts),
            values=_with(self.values, asked, values),
            history=np.vstack([self.history, row]),
        )

    def moved(self, image: FloatArray, asked: BoolArray) -> Climbers:
        """Move those that were `asked` about to their normalised images."""
        before = self.vectors[:, asked]
        vectors = self.vectors.copy()
        vectors[:, asked] = moved(before, image, self.signs[asked], self.shifts[asked], (before.shape[0],))
        return replace(self, vectors=vectors)

    def chosen(self, columns: BoolArray | IndexArray) -> Climbers:
        """Return some of them, by a mask or by their indices."""
        return Climbers(
            self.vectors[:, columns],
            self.signs[columns],
            self.shifts[columns],
            self.values[columns],
            self.history[:, columns],
        )

    def distinct(self, known: FloatArray, floor: float) -> tuple[IndexArray, IndexArray]:
        """Return which of them stand for those that have met, largest value first, and how many agree with each.

        Those are left out that are far from any eigenvector, of a value up to `floor`, or near a `known` vector.
        """
        strength = np.abs(self.values)
        order = np.argsort(-strength, kind="stable")
        order = order[(self.residuals[order] <= NEAR) & (strength[order] > floor)]
        vectors = self.vectors[:, order]
        cosines = np.abs(vectors.T @ vectors)
        met_larger = np.any(np.triu(cosines, 1) > SAME, axis=0)
        first = np.flatnonzero(~(met_larger | np.any(np.abs(known.T @ vectors) > SAME, axis=0)))
        return order[first], np.sum(cosines[first] > AGREEMENT, axis=1)


def _with(whole: FloatArray, where: BoolArray, part: FloatArray) -> FloatArray:
    changed = whole.copy()
    changed[where] = part
    return changed
