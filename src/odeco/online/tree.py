"""The tree of sums over rows: where rows are cut into chunks, what a query adds up over each, and
in which order.

Rows are counted from the start of a sum. `unit` rows make a leaf, and `RADIX` nodes of one height
make a node of the next. An unfinished sum holds one array per level: level 0 the unfinished leaf,
level h the finished nodes of height h − 1 that wait for their parent, added up in order. So a
worker that adds up the rows of a whole node, from its first row on, gets the array that a reader of
all rows gets there, to the last bit.

Over a chunk, a query adds up images x (xᵀu)ᵖ⁻¹, cores (Qᵀx) ⊗ … ⊗ (Qᵀx), or distinct entries. Every
product is made of matrix products over lanes of the chunk, whose number does not depend on the
number of threads. The image of CSR rows at order 3 is one loop where numba is installed and it
pays. SciPy makes two products with n x L numbers between them; the loop needs L numbers, reads each
stored number twice while the cache holds it, and adds the same numbers in the same order, so that
its results are bit-identical with SciPy's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from odeco._util.arguments import largest, times_power_of_two
from odeco._util.threads import map_blocks
from odeco._util.types import DataArray, FloatArray
from odeco.io.rows import csr_view, is_sparse, join_rows, row_slice, stored_numbers

# Chunks -------------------------------------------------------------------------------------------


#: The buffer: rows that wait for a chunk to be complete, in pieces; all dense or all CSR, of one
#: width and type.
Waiting: TypeAlias = "tuple[Any, ...]"

#: A dense chunk has about this many numbers, so that the caches hold it between its two products.
_DENSE_SIZE = 2**22

#: A dense chunk has at most this many rows, because sums in single precision suffer beyond it.
_MOST_ROWS = 2**13

#: A dense chunk has at least this many rows, so that the second product pays for adding up its
#: result.
_ENOUGH_ROWS = 768

#: From this dimension on the work is split by columns instead of rows, nothing is added up, and
#: chunks can be small.
WIDE = 2**14

#: Numbers in a chunk of wide rows, and the fewest rows that it has.
_WIDE_SIZE = 2**21
_FEWEST_ROWS = 32

#: A CSR chunk ends with the row that brings it to this many stored numbers, or the sum to a
#: multiple of this many rows.
_SPARSE_SIZE = 2**22
_SPARSE_ROWS = 2**15


def rows_per_chunk(n_features: int) -> int:
    """Return the number of rows in a dense chunk."""
    if n_features >= WIDE:
        return max(_FEWEST_ROWS, _WIDE_SIZE // n_features)
    return min(_MOST_ROWS, max(_ENOUGH_ROWS, _DENSE_SIZE // n_features))


def rows_per_unit(n_features: int, *, sparse: bool) -> int:
    """Return the number of rows in a leaf of the tree: every chunk ends at a multiple of it."""
    if sparse:
        return _SPARSE_ROWS
    return rows_per_chunk(n_features)


def cut_chunks(waiting: Waiting, rows: Any, n_before: int) -> Iterator[tuple[Any, Waiting]]:
    """Yield every chunk that `rows` complete, and the buffer after it; at last None and the final
    buffer.

    `n_before` rows of the sum are in earlier chunks. A chunk is a view of `rows` if the buffer was
    empty. The buffer is a copy, since callers may reuse their array.
    """
    start = 0
    n_rows = int(rows.shape[0])
    while start < n_rows:
        stop = start + _n_missing(waiting, rows, start, n_before)
        if stop > n_rows:
            waiting = grown(waiting, row_slice(rows, start, n_rows).copy())
            break
        chunk = join_rows([*waiting, row_slice(rows, start, stop)])
        waiting = ()
        start = stop
        n_before = n_before + int(chunk.shape[0])
        yield chunk, waiting
    yield None, waiting


def _n_missing(waiting: Waiting, rows: Any, start: int, n_before: int) -> int:
    """Return the number of rows from `start` on that complete the chunk; more than there are if
    none do.
    """
    sparse = is_sparse(rows)
    unit = rows_per_unit(rows.shape[1], sparse=sparse)
    by_rows = unit - n_before % unit - sum(int(piece.shape[0]) for piece in waiting)
    if not sparse:
        return by_rows
    missing_size = _SPARSE_SIZE - sum(int(piece.nnz) for piece in waiting)
    ends = rows.indptr[start + 1 :]
    return min(int(np.searchsorted(ends, rows.indptr[start] + missing_size)) + 1, by_rows)


def grown(waiting: Waiting, piece: Any) -> Waiting:
    """Return the buffer with one more piece.

    A piece is joined with the one before it once it is half as long. So rows that arrive one by one
    are copied a few times each, not once for every row that follows.
    """
    pieces = [*waiting, piece]
    while len(pieces) > 1 and 2 * pieces[-1].shape[0] >= pieces[-2].shape[0]:
        pieces[-2:] = [join_rows(pieces[-2:])]
    return tuple(pieces)


# The sum over a chunk -----------------------------------------------------------------------------


#: A chunk is worked on in this many lanes, whatever the number of threads, so that the sum is
#: always the same.
_LANES = 4

#: A sum of this many numbers is added up in lanes too; a CSR chunk then has but two.
_LARGE = 2**18

#: A lane takes this many numbers of dense rows at a time, so that the cache holds them, but at
#: least this many rows.
_CACHED_SIZE = 2**18
_FEWEST_CACHED_ROWS = 192

#: Multiplications below which threads take longer than one thread.
_PARALLEL_WORK = 2**22

#: Numbers in the intermediate products of a core.
_CORE_SIZE = 2**19

#: Numbers of a sum that are checked first for underflow.
_SAMPLE_SIZE = 1024

#: Rows that are not finite are found by their sum, so warnings on the way to it are suppressed.
_quiet = np.errstate(all="ignore")

#: Products of stored numbers and columns below which compiling, or loading what was compiled, takes
#: longer.
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
    if is_sparse(chunk):
        height = chunk.shape[0]
    else:
        height = max(_FEWEST_CACHED_ROWS, _CACHED_SIZE // chunk.shape[1])

    @_quiet
    def contract(rows: slice) -> DataArray:
        total: DataArray | None = None
        for start in range(
            rows.start, rows.stop, height
        ):  # rows that the cache holds between the two products
            part = row_slice(chunk, start, min(start + height, rows.stop))
            product = _fused_image(part, block) if is_sparse(part) and order == 3 else None
            if product is None:
                product = part.T @ _power(part @ block, order - 1)
            total = product if total is None else np.add(total, product, out=total)
        if total is None:
            return np.zeros(block.shape, chunk.dtype)
        return total

    n_lanes = 2 if block.size >= _LARGE else _LANES
    parallel = chunk.size * block.shape[1] >= _PARALLEL_WORK
    products = map_blocks(contract, _lanes(chunk.shape[0], n_lanes), parallel=parallel)
    total = next(products)
    for product in products:
        add_in_place(total, product)
    return total


def _image_by_columns(chunk: DataArray, block: DataArray, order: int) -> DataArray:
    """Xᵀ (X U)ᵖ⁻¹, each lane with its own columns: the first product is added up, the second needs
    no adding.
    """
    lanes = _lanes(chunk.shape[1])
    overlaps = np.zeros((chunk.shape[0], block.shape[1]), chunk.dtype)

    @_quiet
    def project(columns: slice) -> DataArray:
        part: DataArray = chunk[:, columns] @ block[columns]
        return part

    for part in map_blocks(project, lanes, parallel=True):
        overlaps += part
    powers = _quiet(_power)(overlaps, order - 1)
    product = np.empty(block.shape, chunk.dtype)

    @_quiet
    def contract(columns: slice) -> None:
        np.matmul(chunk[:, columns].T, powers, out=product[columns])

    for _ in map_blocks(contract, lanes, parallel=True):
        pass
    return product


def _fused_image(rows: Any, block: DataArray) -> DataArray | None:
    """Return Xᵀ (X U)² of CSR rows; None where SciPy's products are as good, or numba is
    missing.
    """
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


def _add_images(
    data: Any, indices: Any, indptr: Any, block: Any, total: Any
) -> None:  # pragma: no cover - compiled
    n_columns = block.shape[1]
    products = np.zeros(n_columns, block.dtype)
    for row in range(len(indptr) - 1):
        start = indptr[row]
        stop = indptr[row + 1]
        products[:] = 0
        for place in range(start, stop):
            number = data[place]
            column = indices[place]
            for j in range(n_columns):
                products[j] += number * block[column, j]
        for j in range(n_columns):
            products[j] *= products[j]
        for place in range(start, stop):
            number = data[place]
            column = indices[place]
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
    total = np.empty(math.comb(n_features + 2, 3))
    lower = np.tri(n_features, dtype=bool)

    @_quiet
    def contract(first: int) -> None:
        below = columns[: first + 1]
        slab = (below * columns[first]) @ below.T
        total[math.comb(first + 2, 3) : math.comb(first + 3, 3)] = slab[
            lower[: first + 1, : first + 1]
        ]

    for _ in map_blocks(
        contract, range(n_features), parallel=chunk.shape[0] * n_features**2 >= _PARALLEL_WORK
    ):
        pass
    return total


def _power(array: DataArray, exponent: int) -> DataArray:
    if exponent == 2:
        return np.square(array, out=array)
    return array**exponent


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


def has_vanished(product: DataArray, threshold: float) -> bool:
    """Tell whether all numbers of a sum are so small that products on the way to it may have been
    lost.

    A sum over n rows of length at most r is at most n rᵖ, so a sum that is not small has rows that
    are not.
    """
    numbers = product.reshape(-1)
    sample = numbers[:: numbers.size // _SAMPLE_SIZE + 1]
    return largest(sample) < threshold and largest(numbers) < threshold


def in_unit(chunk: Any, exponent: int) -> Any:
    """Return rows over 2^exponent."""
    scaled = times_power_of_two(stored_numbers(chunk), -exponent)
    if is_sparse(chunk):
        return csr_view(scaled, chunk.indices, chunk.indptr, chunk.shape[1])
    return scaled


# The tree -----------------------------------------------------------------------------------------


#: The number of nodes in a node of the next height. Adding up parents takes a seventh of the
#: additions of leaves.
RADIX = 8


#: One array per level; None at a level without nodes.
Levels: TypeAlias = "tuple[FloatArray | None, ...]"

#: Returns the sum of two arrays, in place where it may.
Add: TypeAlias = "Callable[[FloatArray, DataArray], FloatArray]"


#: The threshold that selects all rows, where rows are kept (`odeco.online.block`).
ALL_ROWS = 2**32


class Part(NamedTuple):
    """The sum over consecutive rows, as workers return it.

    Attributes
    ----------
    n_rows, unit : int
        The number of rows, and the number of rows in a leaf.
    levels : tuple of arrays
        The sums.
    checksum : int
        The sum of the bits of all numbers in the rows, modulo 2⁶⁴; 0 if it is not used.
    rows : array, CSR array or None
        Where rows are kept: those that `threshold` selects, counted from the first of the sum; then
        there are no sums.
    threshold : int
        See `rows`.
    """

    n_rows: int
    unit: int
    levels: Levels
    checksum: int = 0
    rows: Any = None
    threshold: int = ALL_ROWS


def carried(
    levels: Levels, node: DataArray, level: int, n_rows: int, unit: int, add: Add
) -> Levels:
    """Return the levels after one more node at `level`, where `n_rows` rows are in with it.

    Level h is full when the rows fill a node of height h; its array then moves up.
    """
    after = list(levels)
    moving = node
    while True:
        after += [None] * (level + 1 - len(after))
        held = after[level]
        if held is not None:
            moving = add(held, moving)
        if n_rows % (unit * RADIX**level):
            after[level] = moving.astype(np.float64, copy=False)
            return tuple(after)
        after[level] = None
        level += 1


def joined(parts: list[Part]) -> Part:
    """Return the sum over the rows of consecutive parts, whose arrays are not changed."""
    own: list[FloatArray] = []

    def add(total: FloatArray, node: DataArray) -> FloatArray:
        if any(total is each for each in own):
            return np.add(total, node, out=total)
        own.append(total + node)
        return own[-1]

    whole = Part(0, parts[0].unit, ())
    for part in parts:
        whole = appended(whole, part, add)
    return whole


def appended(whole: Part, part: Part, add: Add) -> Part:
    """Return the sum over consecutive rows: those of `whole`, then those of `part`.

    If the part begins where a node of its height may begin, the result is bit-identical with that
    of a reader of all rows. Otherwise it depends on where the part begins, and on nothing else.
    """
    height = node_rows(part.n_rows, part.unit)
    n_rows = whole.n_rows + part.n_rows
    levels = whole.levels
    checksum = (whole.checksum + part.checksum) % 2**64
    held = [(level, array) for level, array in enumerate(part.levels) if array is not None]
    if whole.n_rows % height == 0 and part.n_rows < height:  # below all that the sum holds
        after = [*levels, *[None] * (len(part.levels) - len(levels))]
        for level, array in held:
            before = after[level]
            after[level] = array if before is None else add(before, array)
        return Part(n_rows, part.unit, tuple(after), checksum)
    aligned = whole.n_rows % height == 0
    for level, array in held:
        levels = carried(levels, array, level if aligned else 0, n_rows, part.unit, add)
    return Part(n_rows, part.unit, levels, checksum)


def collected(levels: Levels, rest: DataArray | None, out: FloatArray) -> FloatArray:
    """Add up all levels and the sum over the buffer, the smallest first, in `out`."""
    parts = [part for part in (rest, *levels) if part is not None]
    if not parts:
        out[...] = 0.0
    for number, part in enumerate(parts):
        np.copyto(out, part) if number == 0 else np.add(out, part, out=out)
    return out


def node_rows(n_rows: int, unit: int) -> int:
    """Return the number of rows of the smallest node that holds `n_rows` rows."""
    height = unit
    while height < n_rows:
        height *= RADIX
    return height


def nodes(start: int, stop: int, unit: int, height: int) -> list[tuple[int, int]]:
    """Cut rows from `start` to `stop` into the largest nodes of at most `height` rows; the last may
    be incomplete.

    `start` is counted from the start of the sum, and must be the first row of a leaf.
    """
    edges = []
    while start < stop:
        size = unit
        while size < height and start % (size * RADIX) == 0 and start + size < stop:
            size *= RADIX
        edges.append((start, min(start + size, stop)))
        start += size
    return edges
