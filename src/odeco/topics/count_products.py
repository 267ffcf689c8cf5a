"""Word counts are multiplied with matrices, block by block.

The result has the same bits on any number of threads, and temporary arrays stay small.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from odeco._threads import map_blocks
from odeco._types import FloatArray
from odeco.rows import row_slice
from odeco.topics.counts import CountChunk

#: A product has this many lanes, whatever the number of threads; each lane writes its own part of the result.
_LANES = 8
#: This many documents, or words, are contracted at a time: the caches hold their coordinates in a basis.
_BLOCK_HEIGHT = 2**11
#: This many rows of a V x m array are changed in place at a time.
_TALL_HEIGHT = 2**15
#: With fewer multiplications than this, handing lanes to threads takes longer than the work itself.
_PARALLEL_WORK = 2**20


def blocks(n_rows: int, *, tall: bool = False) -> list[slice]:
    """Return slices of rows that are worked on one at a time; `tall` is for V x m arrays that are changed in place."""
    height = _TALL_HEIGHT if tall else _BLOCK_HEIGHT
    return [slice(start, min(start + height, n_rows)) for start in range(0, n_rows, height)]


def multiply(rows: Any, matrix: FloatArray, *, parallel: bool) -> FloatArray:
    """Return the product of a CSR array and a dense matrix, one lane of rows at a time."""
    product = np.empty((rows.shape[0], matrix.shape[1]))
    # Lanes hold about the same number of stored entries.
    ideal = rows.indptr[-1] * np.arange(_LANES + 1) // _LANES
    edges = np.maximum.accumulate(np.searchsorted(rows.indptr, ideal))
    edges[0], edges[-1] = 0, rows.shape[0]

    def work(lane: tuple[int, int]) -> None:
        start, stop = lane
        if stop > start:
            product[start:stop] = row_slice(rows, start, stop) @ matrix

    parallel = parallel and rows.nnz * matrix.shape[1] >= _PARALLEL_WORK
    for _ in map_blocks(work, itertools.pairwise(edges.tolist()), parallel=parallel):
        pass
    return product


def triple_core(chunk: CountChunk, inside: FloatArray, basis: FloatArray, *, parallel: bool) -> FloatArray:
    """Return the sum of the triples of a chunk's documents, contracted with a basis B three times.

    `inside` is C B for the counts C of the chunk. With y = Bᵀc for a document c, and wᵥ the row of B that belongs to
    word v, the sum over triples of distinct positions is Σ y⊗y⊗y minus the three placements of
    Σᵥ wᵥ⊗wᵥ⊗(dᵥ − ⅔ aᵥ wᵥ), where d = Σ c yᵀ and a = Σ c over documents, each with its weight.
    """
    weighted = chunk.triple[:, None] * inside
    m = inside.shape[1]

    def documents(part: slice) -> FloatArray:
        return _cubes(weighted[part], inside[part])

    def words(part: slice) -> FloatArray:
        local, columns = basis[chunk.words[part]], row_slice(chunk.columns, part.start, part.stop)
        repeated: FloatArray = columns @ weighted
        repeated -= (2 / 3) * (columns @ chunk.triple)[:, None] * local
        return _cubes(repeated, local)

    total, twice = np.zeros((m, m, m)), np.zeros((m, m, m))
    parallel = parallel and (chunk.rows.shape[0] + chunk.words.size) * m**3 >= _PARALLEL_WORK
    for cubes in map_blocks(documents, blocks(inside.shape[0]), parallel=parallel):
        total += cubes
    for cubes in map_blocks(words, blocks(chunk.words.size), parallel=parallel):
        twice += cubes
    # Only the entries [a, b, c] with b ≤ c are computed so far. The last two axes are alike, which gives the others.
    lower = np.arange(m)[:, None] > np.arange(m)
    total += np.where(lower, total.transpose(0, 2, 1), 0.0)
    twice += np.where(lower, twice.transpose(0, 2, 1), 0.0)
    total -= twice
    total -= twice.transpose(1, 0, 2)
    total -= twice.transpose(1, 2, 0)
    return total


def _cubes(left: FloatArray, right: FloatArray) -> FloatArray:
    """Return Σᵢ leftᵢ ⊗ rightᵢ ⊗ rightᵢ as m matrix products, only the entries [a, b, c] with b ≤ c."""
    m = right.shape[1]
    total = np.zeros((m, m, m))
    for b in range(m):
        total[:, b, b:] = left.T @ (right[:, b:] * right[:, b : b + 1])
    return total


def contract(core: FloatArray, matrix: FloatArray) -> FloatArray:
    """Return T(A, A, A) for an m x m x m array T and an m x k matrix A."""
    for _ in range(3):  # each turn contracts the first axis and moves it to the end
        core = np.tensordot(core, matrix, axes=(0, 0))
    return core
