"""Products of word counts with matrices, in blocks: the same bits on any number of threads, and small temporaries."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from odeco._threads import map_blocks
from odeco._types import FloatArray
from odeco.rows import row_slice
from odeco.topics.counts import CountChunk

#: Lanes of a product, whatever the number of threads; each writes its own part of the result.
_LANES = 8
#: Documents, or words, that are contracted at a time: few enough for the caches to hold them in a basis.
_BLOCK_HEIGHT = 2**11
#: Rows of V x m arrays that are changed in place at a time.
_BLOCK_ROWS = 2**15
#: Products below which handing lanes to threads takes longer than making them.
_PARALLEL_WORK = 2**20
#: Gives the rows of a basis that belong to a part of a chunk's words.
RowsOf = Callable[[slice], FloatArray]


def triple_core(chunk: CountChunk, inside: FloatArray, local: FloatArray, *, parallel: bool) -> FloatArray:
    """Return the sum of the triples of a chunk's documents, contracted with a basis B three times.

    `inside` is C B for the counts C of the chunk, and `local` the rows of B that belong to its words.
    """
    return triples_by_parts(chunk, inside, lambda part: local[part], parallel=parallel)


def triples_by_parts(chunk: CountChunk, inside: FloatArray, rows_of: RowsOf, *, parallel: bool) -> FloatArray:
    """Do the same with rows of the basis that are fetched when needed.

    With y = Bᵀc and w the rows of B, the sum over distinct triples is Σ y⊗y⊗y minus the three placements of
    Σᵥ wᵥ⊗wᵥ⊗(dᵥ − ⅔ aᵥ wᵥ), where d = Σ c yᵀ and a = Σ c over documents, each with its weight.
    """
    weighted = chunk.triple[:, None] * inside
    m = inside.shape[1]

    def documents(part: slice) -> FloatArray:
        return _cubes(weighted[part], inside[part])

    def words(part: slice) -> FloatArray:
        local, columns = rows_of(part), row_slice(chunk.columns, part.start, part.stop)
        repeated: FloatArray = columns @ weighted
        repeated -= (2 / 3) * (columns @ chunk.triple)[:, None] * local
        return _cubes(repeated, local)

    total, twice = np.zeros((m, m, m)), np.zeros((m, m, m))
    parallel = parallel and (chunk.rows.shape[0] + chunk.words.size) * m**3 >= _PARALLEL_WORK
    for cubes in map_blocks(documents, _blocks(inside.shape[0]), parallel=parallel):
        total += cubes
    for cubes in map_blocks(words, word_blocks(chunk), parallel=parallel):
        twice += cubes
    # Only entries [a, b, c] with b ≤ c are there yet; the last two axes are alike.
    lower = np.arange(m)[:, None] > np.arange(m)
    total += np.where(lower, total.transpose(0, 2, 1), 0.0)
    twice += np.where(lower, twice.transpose(0, 2, 1), 0.0)
    total -= twice
    total -= twice.transpose(1, 0, 2)
    total -= twice.transpose(1, 2, 0)
    return total


def _cubes(left: FloatArray, right: FloatArray) -> FloatArray:
    """Return Σᵢ leftᵢ ⊗ rightᵢ ⊗ rightᵢ, the entries [a, b, c] with b ≤ c only, as m matrix products."""
    m = right.shape[1]
    total = np.zeros((m, m, m))
    for b in range(m):
        total[:, b, b:] = left.T @ (right[:, b:] * right[:, b : b + 1])
    return total


def _blocks(n_rows: int) -> list[slice]:
    return [slice(start, min(start + _BLOCK_HEIGHT, n_rows)) for start in range(0, n_rows, _BLOCK_HEIGHT)]


def word_blocks(chunk: CountChunk) -> list[slice]:
    """Return the parts that the words of a chunk are worked on in."""
    return _blocks(chunk.words.size)


def multiply(rows: Any, block: FloatArray, *, parallel: bool) -> FloatArray:
    """Return the product of a CSR and a dense array, lanes of rows at a time."""
    product = np.empty((rows.shape[0], block.shape[1]))
    # Lanes hold about the same number of stored entries.
    ideal = rows.indptr[-1] * np.arange(_LANES + 1) // _LANES
    edges = np.maximum.accumulate(np.searchsorted(rows.indptr, ideal))
    edges[0], edges[-1] = 0, rows.shape[0]

    def work(lane: tuple[int, int]) -> None:
        start, stop = (int(edge) for edge in lane)
        if stop > start:
            product[start:stop] = row_slice(rows, start, stop) @ block

    for _ in map_blocks(
        work, itertools.pairwise(edges), parallel=parallel and rows.nnz * block.shape[1] >= _PARALLEL_WORK
    ):
        pass
    return product


def contract(core: FloatArray, matrix: FloatArray) -> FloatArray:
    """Return T(A, A, A) for an m x m x m array T and an m x k matrix A."""
    for _ in range(3):  # each turn contracts the first axis and moves it to the end
        core = np.tensordot(core, matrix, axes=(0, 0))
    return core


def row_blocks(n_rows: int) -> list[slice]:
    """Return slices of rows that are worked on one after the other, so that temporaries stay small."""
    return [slice(start, min(start + _BLOCK_ROWS, n_rows)) for start in range(0, n_rows, _BLOCK_ROWS)]
