"""Fourth moments of one chunk of rows: sums of products of two pairs of coordinates, in double precision.

A row x has the coordinates y = ((x − c) F, 1) in a *frame*: a map F and a shift c that are near the whitener and the
mean of the rows, so that later subtractions lose no digits, and a constant for the lower moments. Its pairs yᵢyⱼ with
i ≤ j, in packed coordinates (`odeco.tensors.coordinates`), are a vector z with C(d+2, 2) numbers, and M = E[zzᵀ] has
all moments up to the fourth.

Every row is added to one of `N_GROUPS` groups, which are drawn at random. So groups are alike in whatever order rows
come: sorted, or with a period. The draws depend on the rows of the chunk, and on nothing else, so that every reader of
the chunk makes the same ones.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odeco._util.threads import map_blocks
from odeco._util.types import DataArray, FloatArray, IndexArray
from odeco.io.rows import is_sparse, stored_numbers
from odeco.tensors.coordinates import PackedCoordinates

#: The number of groups that rows are dealt to; groups of even numbers are one half of the rows.
N_GROUPS = 10

#: Numbers in the pairs of the rows that are multiplied at a time.
_PAIRS_SIZE = 2**20

#: Rows times numbers of a sum below which threads take longer than one thread.
_PARALLEL_WORK = 2**22


def n_entries(dimension: int) -> int:
    """Return the number of distinct moments up to the fourth."""
    return math.comb(dimension + 4, 4)


def n_pairs(dimension: int) -> int:
    """Return the number of pairs of coordinates, the constant included."""
    return math.comb(dimension + 2, 2)


def width_of(block: DataArray) -> int:
    """Return the number m of columns of the matrix W that a block holds beside its frame."""
    return int(block.shape[1] - block.shape[0] - 1) // int(block.shape[0])


def with_columns(frame: FloatArray, packed: FloatArray) -> FloatArray:
    """Return the block of a query for M W: the frame, d x (d+1), and every column of W as a symmetric matrix."""
    d = frame.shape[0]
    matrices = PackedCoordinates(d, 2).slices(packed, packed)
    return np.hstack([frame, matrices.transpose(0, 2, 1).reshape(d, -1)])


def group_numbers(chunk: Any) -> IndexArray:
    """Return the group of each row, drawn with a seed that is the sum of the bits of all numbers in the rows."""
    numbers = np.ascontiguousarray(stored_numbers(chunk))
    key = int(np.sum(numbers.view(f"u{numbers.dtype.itemsize}"), dtype=np.uint64))
    groups: IndexArray = np.random.default_rng(key).integers(N_GROUPS, size=chunk.shape[0])
    return groups


def sum_entries(chunk: Any, frame: FloatArray) -> FloatArray:
    """Return Σ yᵢyⱼyₖyₗ for i ≤ j ≤ k ≤ l of every group; the last number is that of its rows.

    For every j, there is one product of the pairs (i, j) with all (k, l), k ≥ j.
    """
    size = frame.shape[0] + 1
    first, second = np.triu_indices(size)  # in the order of k, then l
    starts = np.searchsorted(first, np.arange(size))

    def contract(columns: FloatArray) -> FloatArray:
        pairs = columns[first] * columns[second]
        parts = [(columns[: j + 1] * columns[j]) @ pairs[start:].T for j, start in enumerate(starts)]
        return np.concatenate([part.ravel() for part in parts])

    return _added(contract, chunk, frame, (n_entries(size - 1),))


def sum_products(chunk: Any, block: FloatArray) -> FloatArray:
    """Return Σ z (zᵀW, √2 yᵀ, 1), C(d+2, 2) x (m+d+1), of every group: M times W and the pairs with the constant."""
    d, m = block.shape[0], width_of(block)
    frame, pairs = block[:, : d + 1], PackedCoordinates(d + 1, 2)
    inner = PackedCoordinates(d, 2)
    matrices = block[:, d + 1 :].reshape(d, m, d)
    weights = matrices[inner.tuples[0], :, inner.tuples[1]] * inner.scales[:, None]

    def contract(columns: FloatArray) -> FloatArray:
        powers = pairs.powers(columns)
        values = np.vstack([weights.T @ powers[: inner.size], powers[inner.size :]])
        product: FloatArray = powers @ values.T
        return product

    return _added(contract, chunk, frame, (pairs.size, m + d + 1))


def _added(contract: Any, chunk: Any, frame: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """Return the sums over the rows of every group, in their order, whatever the number of threads."""
    d, groups = frame.shape[0], group_numbers(chunk)
    height = max(64, _PAIRS_SIZE // n_pairs(d))

    totals = np.zeros((N_GROUPS, *shape))

    def sum_group(number: int) -> None:
        rows = np.flatnonzero(groups == number)
        with np.errstate(all="ignore"):  # rows that are not finite are found by their sum
            for start in range(0, len(rows), height):
                part = chunk[rows[start : start + height]]
                dense = (part.toarray() if is_sparse(part) else part).astype(np.float64) - frame[:, d]
                columns = np.ones((d + 1, dense.shape[0]))
                np.matmul(frame[:, :d].T, dense.T, out=columns[:d])
                totals[number] += contract(columns)

    for _ in map_blocks(sum_group, range(N_GROUPS), parallel=chunk.shape[0] * math.prod(shape) >= _PARALLEL_WORK):
        pass
    return totals


def as_matrix(entries: FloatArray, dimension: int) -> FloatArray:
    """Return M from its distinct entries, which are in the order of `sum_entries`."""
    scales = PackedCoordinates(dimension + 1, 2).scales
    matrix: FloatArray = entries[_places(dimension)]
    matrix *= scales[:, None]
    matrix *= scales
    return matrix


@lru_cache(maxsize=2)
def _places(dimension: int) -> NDArray[np.int32]:
    """Return where each entry of M is among the distinct ones."""
    size = dimension + 1
    tuples = PackedCoordinates(size, 2).tuples.astype(np.int32)
    first = np.arange(size)
    tails = (size - first) * (size - first + 1) // 2  # pairs (k, l) with k ≥ j
    slabs = np.concatenate([[0], np.cumsum((first + 1) * tails)]).astype(np.int32)
    tails = tails.astype(np.int32)
    places = np.empty((tuples.shape[1],) * 2, np.int32)
    for row, (a, b) in enumerate(tuples.T):
        i, j, k, ell = np.sort(np.vstack([np.full_like(tuples, [[a], [b]]), tuples]), axis=0)
        places[row] = slabs[j] + i * tails[j] + (tails[j] - tails[k]) + (ell - k)
    return places
