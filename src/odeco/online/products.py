"""What a query adds up over one chunk of rows: images x (xᵀu)ᵖ⁻¹, cores (Qᵀx) ⊗ … ⊗ (Qᵀx), or distinct entries.

Every product is made of matrix products over lanes of the chunk, whose number does not depend on the number of threads.
The image of CSR rows at order 3 is one loop where numba is installed and it pays. SciPy makes two products with n x L
numbers between them; the loop needs L numbers, reads each stored number twice while the cache holds it, and adds the
same numbers in the same order, so that its results are bit-identical with SciPy's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from odeco._util.arguments import largest, times_power_of_two
from odeco._util.threads import map_blocks
from odeco._util.types import DataArray, FloatArray
from odeco.io.rows import csr_view, is_sparse, row_slice, stored_numbers
from odeco.online.tree import WIDE

#: A chunk is worked on in this many lanes, whatever the number of threads, so that the sum is always the same.
_LANES = 4

#: A sum of this many numbers is added up in lanes too; a CSR chunk then has but two.
_LARGE = 2**18

#: A lane takes this many numbers of dense rows at a time, so that the cache holds them, but at least this many rows.
_CACHED_SIZE, _FEWEST_CACHED_ROWS = 2**18, 192

#: Multiplications below which threads take longer than one thread.
_PARALLEL_WORK = 2**22

#: Numbers in the intermediate products of a core.
_CORE_SIZE = 2**19

#: Numbers of a sum that are checked first for underflow.
_SAMPLE_SIZE = 1024

#: Rows that are not finite are found by their sum, so warnings on the way to it are suppressed.
_quiet = np.errstate(all="ignore")

#: Products of stored numbers and columns below which compiling, or loading what was compiled, takes longer.
_ENOUGH_WORK = 2**25

#: Bytes of vectors that a cache holds: below, SciPy's products are as fast.
_CACHED_BYTES = 2**22


def image(chunk: Any, block: DataArray, order: int) -> DataArray:
    """Return Xᵀ (X U)ᵖ⁻¹ for the rows X of a chunk and the vectors U of a block."""
    if not is_sparse(chunk) and chunk.shape[1] >= WIDE:
        return _image_by_columns(chunk, block, order)
    return _image_by_rows(chunk, block, order)


def _image_by_rows(chunk: Any, block: DataArray, order: int) -> DataArray:
    """Xᵀ (X U)ᵖ⁻¹, each lane with its own rows; results of lanes are added in order."""
    height = chunk.shape[0] if is_sparse(chunk) else max(_FEWEST_CACHED_ROWS, _CACHED_SIZE // chunk.shape[1])

    @_quiet
    def contract(rows: slice) -> DataArray:
        total: DataArray | None = None
        for start in range(rows.start, rows.stop, height):  # rows that the cache holds between the two products
            part = row_slice(chunk, start, min(start + height, rows.stop))
            answer = _fused_image(part, block) if is_sparse(part) and order == 3 else None
            if answer is None:
                answer = part.T @ _power(part @ block, order - 1)
            total = answer if total is None else np.add(total, answer, out=total)
        return np.zeros(block.shape, chunk.dtype) if total is None else total

    n_lanes = 2 if block.size >= _LARGE else _LANES
    parallel = chunk.size * block.shape[1] >= _PARALLEL_WORK
    answers = map_blocks(contract, _lanes(chunk.shape[0], n_lanes), parallel=parallel)
    total = next(answers)
    for answer in answers:
        add_in_place(total, answer)
    return total


def _image_by_columns(chunk: DataArray, block: DataArray, order: int) -> DataArray:
    """Xᵀ (X U)ᵖ⁻¹, each lane with its own columns: the first product is added up, the second needs no adding."""
    lanes = _lanes(chunk.shape[1])
    overlaps = np.zeros((chunk.shape[0], block.shape[1]), chunk.dtype)

    @_quiet
    def project(columns: slice) -> DataArray:
        part: DataArray = chunk[:, columns] @ block[columns]
        return part

    for part in map_blocks(project, lanes, parallel=True):
        overlaps += part
    powers = _quiet(_power)(overlaps, order - 1)
    answer = np.empty(block.shape, chunk.dtype)

    @_quiet
    def contract(columns: slice) -> None:
        np.matmul(chunk[:, columns].T, powers, out=answer[columns])

    for _ in map_blocks(contract, lanes, parallel=True):
        pass
    return answer


def _fused_image(rows: Any, block: DataArray) -> DataArray | None:
    """Return Xᵀ (X U)² of CSR rows; None where SciPy's products are as good, or numba is missing."""
    pays = rows.nnz * block.shape[1] >= _ENOUGH_WORK and block.nbytes >= _CACHED_BYTES
    if not pays or find_spec("numba") is None:
        return None
    total = np.zeros(block.shape, block.dtype)
    _kernel()(rows.data, rows.indices, rows.indptr, np.ascontiguousarray(block), total)
    return total


@cache
def _kernel() -> Callable[..., None]:
    from numba import njit  # takes half a second, and may be missing

    compiled: Callable[..., None] = njit(nogil=True, cache=True)(_add_images)
    return compiled


def _add_images(data: Any, indices: Any, indptr: Any, block: Any, total: Any) -> None:  # pragma: no cover - compiled
    n_columns = block.shape[1]
    products = np.zeros(n_columns, block.dtype)
    for row in range(len(indptr) - 1):
        start, stop = indptr[row], indptr[row + 1]
        products[:] = 0
        for place in range(start, stop):
            number, column = data[place], indices[place]
            for j in range(n_columns):
                products[j] += number * block[column, j]
        for j in range(n_columns):
            products[j] *= products[j]
        for place in range(start, stop):
            number, column = data[place], indices[place]
            for j in range(n_columns):
                total[column, j] += number * products[j]


def core(chunk: Any, basis: DataArray, order: int) -> FloatArray:
    """Σ (Qᵀx)⊗ᵖ as one matrix product of size m x mᵖ⁻¹, in double precision."""
    size = basis.shape[1]
    height = max(1, _CORE_SIZE // size ** (order - 1))
    edges = [*range(0, chunk.shape[0], height), chunk.shape[0]]
    slices = [slice(start, stop) for start, stop in itertools.pairwise(edges)]

    @_quiet
    def contract(rows: slice) -> FloatArray:
        inside = (row_slice(chunk, rows.start, rows.stop) @ basis).astype(np.float64)
        powers = inside
        for _ in range(order - 2):
            powers = (powers[:, :, None] * inside[:, None, :]).reshape(inside.shape[0], -1)
        part: FloatArray = inside.T @ powers
        return part

    total = np.zeros((size, size ** (order - 1)))
    for part in map_blocks(contract, slices, parallel=True):
        total += part
    return total.reshape((size,) * order)


def entries(chunk: Any) -> FloatArray:
    """Σ xᵢ xⱼ xₖ for i ≥ j ≥ k in double precision: one matrix product for every i."""
    rows: FloatArray = (chunk.toarray() if is_sparse(chunk) else chunk).astype(np.float64)
    columns = np.ascontiguousarray(rows.T)
    n_features = columns.shape[0]
    total, lower = np.empty(math.comb(n_features + 2, 3)), np.tri(n_features, dtype=bool)

    @_quiet
    def contract(first: int) -> None:
        below = columns[: first + 1]
        slab = (below * columns[first]) @ below.T
        total[math.comb(first + 2, 3) : math.comb(first + 3, 3)] = slab[lower[: first + 1, : first + 1]]

    for _ in map_blocks(contract, range(n_features), parallel=chunk.shape[0] * n_features**2 >= _PARALLEL_WORK):
        pass
    return total


def _power(array: DataArray, exponent: int) -> DataArray:
    return np.square(array, out=array) if exponent == 2 else array**exponent


def _lanes(size: int, most: int = _LANES) -> list[slice]:
    edges = [size * lane // most for lane in range(most + 1)]
    return [slice(start, stop) for start, stop in itertools.pairwise(edges) if stop > start]


def add_in_place(total: DataArray, part: DataArray, out: DataArray | None = None) -> None:
    """Add `part` to `total`, in lanes if they are large; the result goes to `out`, if given."""
    target = total if out is None else out

    @_quiet
    def add(rows: slice) -> None:
        np.add(total[rows], part[rows], out=target[rows])

    for _ in map_blocks(add, _lanes(total.shape[0]), parallel=total.size >= _LARGE):
        pass


def has_vanished(answer: DataArray, threshold: float) -> bool:
    """Tell whether all numbers of a sum are so small that products on the way to it may have been lost.

    A sum over n rows of length at most r is at most n rᵖ, so a sum that is not small has rows that are not.
    """
    numbers = answer.reshape(-1)
    sample = numbers[:: numbers.size // _SAMPLE_SIZE + 1]
    return largest(sample) < threshold and largest(numbers) < threshold


def in_unit(chunk: Any, exponent: int) -> Any:
    """Return rows over 2^exponent."""
    scaled = times_power_of_two(stored_numbers(chunk), -exponent)
    return csr_view(scaled, chunk.indices, chunk.indptr, chunk.shape[1]) if is_sparse(chunk) else scaled
