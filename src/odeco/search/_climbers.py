"""Candidates that climb together, each by itself: where they are, how high, and how far from an eigenvector."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from odeco._types import BoolArray, FloatArray, IndexArray
from odeco.search._climb import moved, steered
from odeco.search._sphere import column_norms

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
