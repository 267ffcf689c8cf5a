"""Symmetric tensors of which the non-zero entries are stored."""

from __future__ import annotations

import itertools
from typing import Any, final

import numpy as np

from odeco._util.arguments import check_count
from odeco._util.threads import map_blocks
from odeco._util.types import FloatArray, IndexArray
from odeco.tensors.coordinates import flattening_coordinates, n_arrangements, places_of
from odeco.tensors.entries import EntryTensor, as_coordinates, as_values

#: Numbers in the intermediate products of one chunk of terms.
_CHUNK_SIZE = 2**18


@final
class SparseTensor(EntryTensor):
    """A symmetric tensor that stores its non-zero entries. Time and memory are proportional to
    their number.

    Parameters
    ----------
    indices : array of integers, n x p
        Each row holds the coordinates of one entry. An entry stands for all permutations of its
        indices. It may be listed once or with several permutations, whose values must then agree.
    values : array of n numbers
        The entries, float32 or float64.
    dimension : int
        The size of every axis.

    Examples
    --------
    >>> from odeco.tensors import SparseTensor
    >>> tensor = SparseTensor([[0, 1, 2]], [1.0], dimension=100_000)
    >>> import numpy as np
    >>> tensor.value(np.ones((100_000, 1)))
    array([6.])
    """

    def __init__(self, indices: Any, values: Any, dimension: int) -> None:
        self.dimension = check_count("dimension", dimension)
        coordinates = as_coordinates(indices, self.dimension)
        checked = as_values(
            values, coordinates.shape[:1], "values", "hold one number for each row of `indices`"
        )
        self.order = coordinates.shape[1]
        self.rounding = float(np.finfo(checked.dtype).eps)
        distinct, values_once = _merge(coordinates, checked.astype(np.float64))
        weights = self._scale(values_once)
        arrangements = n_arrangements(distinct)
        self.n_entries = distinct.shape[1]
        self._squared_norm = float(arrangements @ weights**2)
        self._distinct = distinct
        self._values = weights
        # T(u,…,u) is the sum of value · arrangements · Πᵣ u[iᵣ], and T(I,u,…,u) is its gradient
        # divided by p. So each position r of an entry gives one term in row iᵣ, with the other
        # indices as its factors. Terms are sorted by row, so that the terms of one row lie together
        # and can be added up as a run.
        terms = [(distinct[r], np.delete(distinct, r, axis=0)) for r in range(self.order)]
        rows = np.concatenate([row for row, _ in terms])
        by_row = np.argsort(rows, kind="stable")
        self._rows: IndexArray = rows[by_row]
        self._factors: IndexArray = np.concatenate([others for _, others in terms], axis=1)[
            :, by_row
        ]
        self._weights: FloatArray = np.tile(weights * arrangements / self.order, self.order)[by_row]

    def _unit_squared_norm(self) -> float:
        """Return the sum of the squares of all entries, each counted with all its permutations."""
        return self._squared_norm

    def _unit_flattening(self) -> FloatArray:
        """Put every entry where its indices are split into those of a row and those of a column."""
        rows, columns = flattening_coordinates(self.dimension, self.order)
        matrix = np.zeros((rows.size, columns.size))
        for chosen in itertools.combinations(range(self.order), rows.degree):
            row = places_of(self._distinct[list(chosen)])
            column = places_of(np.delete(self._distinct, chosen, axis=0))
            matrix[row, column] = self._values * rows.scales[row] * columns.scales[column]
        return matrix

    def _unit_image(self, block: FloatArray) -> FloatArray:
        block = np.ascontiguousarray(block)
        n_terms = self._rows.size
        n_columns = block.shape[1]
        length = max(1, _CHUNK_SIZE // max(1, n_columns))
        chunks = [slice(start, min(start + length, n_terms)) for start in range(0, n_terms, length)]

        def contract(chunk: slice) -> tuple[IndexArray, FloatArray]:
            products = np.take(block, self._factors[0, chunk], axis=0)
            products *= self._weights[chunk, None]
            for factor in self._factors[1:, chunk]:
                products *= np.take(block, factor, axis=0)
            rows = self._rows[chunk]
            starts = np.flatnonzero(np.diff(rows, prepend=-1))
            return rows[starts], np.add.reduceat(products, starts, axis=0)

        total = np.zeros(block.shape)
        for rows, sums in map_blocks(contract, chunks, parallel=len(chunks) > 1):
            total[rows] += sums
        return total


def _merge(coordinates: IndexArray, values: FloatArray) -> tuple[IndexArray, FloatArray]:
    """Return every distinct entry once, with sorted indices; refuse permutations that disagree."""
    ordered = np.sort(coordinates.astype(np.int64), axis=1)
    by_entry = np.lexsort(ordered.T[::-1])
    ordered = ordered[by_entry]
    values = values[by_entry]
    first = np.r_[True, np.any(np.diff(ordered, axis=0) != 0, axis=1)]
    kept = values[first][np.cumsum(first) - 1]
    disagree = np.flatnonzero(np.abs(values - kept) > 1e-8 * np.abs(values).max())
    if disagree.size:
        bad = int(disagree[0])
        listed = ", ".join(str(index) for index in ordered[bad])
        raise ValueError(
            f"The tensor is not symmetric: T[{listed}] = {kept[bad]:.6g} in one listing but "
            f"{values[bad]:.6g} in another. List each entry once, or make its permutations agree."
        )
    return ordered[first].T, values[first]
