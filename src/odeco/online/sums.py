"""Sums over rows: of images x (xᵀu)ᵖ⁻¹ for every vector u, of cores (Qᵀx) ⊗ … ⊗ (Qᵀx), and of distinct entries.

`RowSum` is an accumulator with ``update`` and ``+``: one object serves a stream, a batch and a partition. Sums in
floating point depend on where they are cut, so rows that arrive in pieces of any size are cut again into *chunks*, at
places that depend on the rows only, and the sums over chunks form a *tree* whose shape depends on the number of rows
only. So the result is bit-identical whether rows are pushed one by one, read from a file, or added up by workers.

Rows are counted from the start of a sum. `unit` rows make a leaf, and `RADIX` nodes of one height make a node of the
next. An unfinished sum holds one array per level: level 0 the unfinished leaf, level h the finished nodes of height
h − 1 that wait for their parent, added up in order. So a worker that adds up the rows of a whole node, from its first
row on, gets the array that a reader of all rows gets there, to the last bit.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from scipy import sparse

from odeco._util.scale import largest, ordinary_bits, times_power_of_two, unit_exponent
from odeco._util.threads import map_blocks
from odeco._util.types import DataArray, FloatArray, IndexArray
from odeco.io.rows import (
    all_finite,
    as_rows,
    bad_row_error,
    check_same_kind,
    csr_view,
    is_sparse,
    join_rows,
    row_slice,
    stored_numbers,
)
from odeco.online.csr_image import fused_image
from odeco.online.pair_sums import n_entries, n_pairs, sum_entries, sum_products, width_of
from odeco.online.thinning import ALL_ROWS, NO_PLACES

Question = Literal["image", "core", "entries", "pairs", "rows"]


#: A sum in a file has fewer levels than this, which is enough for 2⁶⁴ rows.
MOST_LEVELS = 24

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


class Held(NamedTuple):
    """The state of a sum: the number of rows, the sums over complete chunks, and the buffer of rows.

    Where rows are kept (`odeco.online.block.KeptRows`), they are the buffer. With a limit they are those that
    `threshold` selects; `places` has their numbers (`odeco.online.thinning`).
    """

    n_rows: int
    levels: Levels
    waiting: Waiting
    threshold: int = ALL_ROWS
    places: IndexArray = NO_PLACES

    @property
    def n_waiting(self) -> int:
        """The number of rows in the buffer."""
        return sum(int(piece.shape[0]) for piece in self.waiting)


class RowSum:
    """The sum over rows that one query needs; rows may arrive in pieces of any size.

    Parameters
    ----------
    question : {"image", "core", "entries", "pairs"}
        ``"image"``: Σ x (xᵀu)ᵖ⁻¹ for every column u of `block`. ``"core"``: Σ (Qᵀx)⊗ᵖ for the basis Q = `block`.
        ``"entries"``: the distinct entries of Σ x ⊗ x ⊗ x (i ≥ j ≥ k in the order of i, then j, then k); at order 4,
        all moments up to the fourth in a frame. ``"pairs"``: products with the fourth moment in a frame
        (`odeco.online.pair_sums`).
    block : array, d x L or d x m
        The candidates, the basis, or the frame; d x 0 for entries of order 3.
    order : int
        The order p of the moment.

    Attributes
    ----------
    held : Held
        Its state. An update replaces it in one step and at its end, so that an update that is interrupted leaves the
        sum unchanged.
    kept : tuple of arrays
        Arrays that must not be written over, because a caller may go back to an earlier `held`; others are reused.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.online.moments import RowSum
    >>> total = RowSum("image", np.eye(2)[:, :1], order=3)
    >>> total.update([[1.0, 5.0]])
    >>> total.update([[2.0, 1.0], [0.0, 7.0]])
    >>> total.n_rows, total.total().ravel()
    (3, array([9., 9.]))
    """

    def __init__(self, question: Question, block: FloatArray, order: int) -> None:
        self.question, self.block, self.order = question, np.ascontiguousarray(block), order
        self.held = Held(0, (), ())
        self.kept: Levels = ()
        self._spare: FloatArray | None = None  # an array of the sum's shape that may be written over
        self._typed_block: DataArray = self.block

    @property
    def n_rows(self) -> int:
        """Rows taken in so far."""
        return self.held.n_rows

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the sum."""
        d = self.block.shape[0]
        if self.question == "entries":
            return (math.comb(d + 2, 3) if self.order == 3 else n_entries(d),)
        if self.question == "pairs":
            return (n_pairs(d), width_of(self.block) + d + 1)
        return self.block.shape if self.question == "image" else (self.block.shape[1],) * self.order

    def update(self, rows: Any) -> None:
        """Add rows, a dense or CSR array. If one of them is not finite, none is used.

        NaN and infinity in a row reach every number of its contribution, so the sum is checked, and the rows only if it
        is not finite: checking all rows would cost a fifth of the time.
        """
        checked, before = self._checked(rows), self.held
        levels, waiting, n_done = before.levels, before.waiting, before.n_rows - before.n_waiting
        unit = rows_per_unit(checked.shape[1], sparse=is_sparse(checked))
        add = self._adding(before.levels)
        for chunk, left in cut_chunks(before.waiting, checked, n_done):
            waiting = left
            if chunk is not None:
                try:
                    contribution = self._contribution(chunk)
                except FloatingPointError:
                    raise bad_row_error(checked) from None
                n_done += int(chunk.shape[0])
                levels = carried(levels, contribution, 0, n_done, unit, add)
        n_rows = int(checked.shape[0])
        after = Held(before.n_rows + n_rows, levels, waiting)
        n_left = min(n_rows, after.n_waiting)
        if n_left:  # rows in complete chunks were checked by their sum
            check_size(row_slice(checked, n_rows - n_left, n_rows), self.order, of=checked)
        self.held = after
        freed = (array for array in before.levels if array is not None and not _is_one_of(array, levels))
        self._spare = next(freed, self._spare)

    def _checked(self, rows: Any) -> Any:
        """Return rows as an array; raise unless they are of the kind of those that wait."""
        checked = as_rows(rows, self.block.shape[0])
        if self.held.waiting:
            check_same_kind(self.held.waiting[0], checked)
        return checked

    def append(self, part: Part) -> None:
        """Add the sum over the rows that follow, which a worker has added up."""
        self.let_go_of_rows()
        before = self.held
        whole = appended(Part(before.n_rows, part.unit, before.levels), part, self._adding(before.levels))
        self.held = Held(whole.n_rows, whole.levels, ())

    def part(self, unit: int) -> Part:
        """Return the sum as a worker returns it, with an empty buffer; `unit` rows make a leaf."""
        self.let_go_of_rows()
        return Part(self.n_rows, unit, self.held.levels)

    def total(self) -> FloatArray:
        """Return the sum over all rows so far, those in the buffer included, which stay there."""
        return collected(self.held.levels, self._rest(), np.empty(self.shape))

    def mean(self) -> FloatArray:
        """Return the sum divided by the number of rows: the reply to the query."""
        return self.total() / self.n_rows

    def finish(self) -> FloatArray:
        """Return the mean, and release sum and buffer: the next query needs the memory."""
        answer = collected(self.held.levels, self._rest(), self._free_array(self.held.levels))
        answer /= self.n_rows
        self.held, self._spare, self._typed_block = Held(self.n_rows, (), ()), None, self.block
        return answer

    def let_go_of_rows(self) -> None:
        """Add the buffer to the sum, so that no row is kept. Later sums may differ from others in the last bits."""
        rest, before = self._rest(), self.held
        if rest is not None:
            unit = rows_per_unit(self.block.shape[0], sparse=is_sparse(before.waiting[0]))
            levels = carried(before.levels, rest, 0, before.n_rows, unit, self._adding(before.levels))
            self.held = Held(before.n_rows, levels, ())

    def __add__(self, other: RowSum) -> RowSum:
        """Return the sum over the rows of both, for partitions that were read apart."""
        both = RowSum(self.question, self.block, self.order)
        both.held = Held(self.n_rows + other.n_rows, (self.total() + other.total(),), ())
        return both

    def to_arrays(self) -> dict[str, Any]:
        """Return the state as named arrays, without query and block, which the solver has."""
        n_rows, levels, waiting, threshold, places = self.held
        arrays = {"n_rows": np.array(n_rows), "threshold": np.array(threshold), "places": places}
        arrays |= {f"level{level}": array for level, array in enumerate(levels) if array is not None}
        rest = join_rows([*waiting]) if waiting else None
        if rest is not None and is_sparse(rest):
            arrays |= {"data": rest.data, "indices": rest.indices, "indptr": rest.indptr, "shape": np.array(rest.shape)}
        elif rest is not None:
            arrays["rows"] = rest
        return arrays

    def restore(self, arrays: dict[str, Any]) -> None:
        """Restore the state that `to_arrays` wrote."""
        waiting: Waiting = ()
        if "rows" in arrays:
            waiting = (as_rows(arrays["rows"], self.block.shape[0]),)
        elif "data" in arrays:
            stored = (arrays["data"], arrays["indices"], arrays["indptr"])
            waiting = (as_rows(sparse.csr_array(stored, shape=tuple(arrays["shape"])), self.block.shape[0]),)
        if waiting:
            check_size(waiting[0], self.order, of=waiting[0])
        n_levels = 1 + max((level for level in range(MOST_LEVELS) if f"level{level}" in arrays), default=-1)
        levels = tuple(arrays.get(f"level{level}") for level in range(n_levels))
        self.held = Held(int(arrays["n_rows"]), levels, waiting, int(arrays["threshold"]), arrays["places"])

    def _rest(self) -> DataArray | None:
        """Return the sum over the buffer."""
        return self._contribution(join_rows([*self.held.waiting])) if self.held.waiting else None

    def _adding(self, keep: Levels) -> Add:
        """Return a function that adds two arrays, in place unless the first must be kept."""

        def add(total: FloatArray, part: DataArray) -> FloatArray:
            keeps = _is_one_of(total, keep) or _is_one_of(total, self.kept)
            target = self._free_array(keep) if keeps else total
            add_in_place(total, part, out=target)
            return target

        return add

    def _free_array(self, keep: Levels) -> FloatArray:
        """Return an array to write to: the spare one, or a new one."""
        spare, self._spare = self._spare, None
        taken = spare is None or _is_one_of(spare, keep) or _is_one_of(spare, self.kept)
        return np.empty(self.shape) if spare is None or taken else spare

    def _contribution(self, chunk: Any) -> DataArray:
        """Return the sum over one chunk; raise FloatingPointError if it is not finite.

        It is computed in the precision of its rows. Where powers of rows leave the range of that precision, the rows
        are divided by a power of two first, and the sum is multiplied by its power afterwards, in double precision.
        """
        if not is_sparse(chunk):
            chunk = np.require(chunk, requirements=("C", "A"))  # bits of a product depend on layout and alignment
        answer = self._product(chunk)
        finite = all_finite(answer)
        if finite and not _has_vanished(answer, 2.0 ** -ordinary_bits(chunk.dtype)):
            return answer
        exponent = unit_exponent(largest(stored_numbers(chunk)), self.order, chunk.dtype)
        if exponent and self._homogeneous:
            answer = self._product(in_unit(chunk, exponent)).astype(np.float64)
            answer = times_power_of_two(answer, exponent * self.order)
            finite = all_finite(answer)
        if not finite:
            raise FloatingPointError
        return answer

    @property
    def _homogeneous(self) -> bool:
        """Whether the sum is multiplied by 2ᵖ if rows are by 2; not if it has lower moments."""
        return self.question != "pairs" and (self.question != "entries" or self.order == 3)

    def _product(self, chunk: Any) -> DataArray:
        if self._typed_block.dtype != chunk.dtype:
            self._typed_block = self.block.astype(chunk.dtype)
        block = self._typed_block
        if self.question == "core":
            return _core(chunk, block, self.order)
        if self.question == "pairs":
            return sum_products(chunk, self.block)
        if self.question == "entries":
            return _entries(chunk) if self._homogeneous else sum_entries(chunk, self.block)
        if not is_sparse(chunk) and chunk.shape[1] >= WIDE:
            return _image_by_columns(chunk, block, self.order)
        return _image_by_rows(chunk, block, self.order)


def check_size(rows: Any, order: int, *, of: Any) -> None:
    """Raise unless rows for the buffer are finite, and so small that the sum over their chunk will be finite.

    A chunk has fewer than 2⁴⁰ rows, each of a norm of at most the largest entry times √d, of which powers up to p are
    taken. The error names the row among those `of` which they are the last.
    """
    stored = stored_numbers(rows)
    high, low = float(stored.max(initial=0.0)), float(stored.min(initial=0.0))
    limit: float = (float(np.finfo(np.float64).max) / 2**40) ** (1 / order) / math.sqrt(rows.shape[1])
    if not (-limit <= low and high <= limit):  # so written that NaN fails it too
        raise bad_row_error(of)


# Products of one chunk ------------------------------------------------------------------------------------------------


def _is_one_of(array: FloatArray | None, arrays: Levels) -> bool:
    return any(array is each for each in arrays if each is not None)


def _has_vanished(answer: DataArray, threshold: float) -> bool:
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


def _image_by_rows(chunk: Any, block: DataArray, order: int) -> DataArray:
    """Xᵀ (X U)ᵖ⁻¹, each lane with its own rows; results of lanes are added in order."""
    height = chunk.shape[0] if is_sparse(chunk) else max(_FEWEST_CACHED_ROWS, _CACHED_SIZE // chunk.shape[1])

    @_quiet
    def contract(rows: slice) -> DataArray:
        total: DataArray | None = None
        for start in range(rows.start, rows.stop, height):  # rows that the cache holds between the two products
            part = row_slice(chunk, start, min(start + height, rows.stop))
            answer = fused_image(part, block) if is_sparse(part) and order == 3 else None
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


def add_in_place(total: DataArray, part: DataArray, out: DataArray | None = None) -> None:
    """Add `part` to `total`, in lanes if they are large; the result goes to `out`, if given."""
    target = total if out is None else out

    @_quiet
    def add(rows: slice) -> None:
        np.add(total[rows], part[rows], out=target[rows])

    for _ in map_blocks(add, _lanes(total.shape[0]), parallel=total.size >= _LARGE):
        pass


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


def _core(chunk: Any, basis: DataArray, order: int) -> FloatArray:
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


def _entries(chunk: Any) -> FloatArray:
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


# Chunks ---------------------------------------------------------------------------------------------------------------


#: The buffer: rows that wait for a chunk to be complete, in pieces; all dense or all CSR, of one width and type.
Waiting: TypeAlias = "tuple[Any, ...]"


#: A dense chunk has about this many numbers, so that the caches hold it between its two products.
_DENSE_SIZE = 2**22

#: A dense chunk has at most this many rows, because sums in single precision suffer beyond it.
_MOST_ROWS = 2**13

#: A dense chunk has at least this many rows, so that the second product pays for adding up its result.
_ENOUGH_ROWS = 768

#: From this dimension on the work is split by columns instead of rows, nothing is added up, and chunks can be small.
WIDE = 2**14

#: Numbers in a chunk of wide rows, and the fewest rows that it has.
_WIDE_SIZE, _FEWEST_ROWS = 2**21, 32

#: A CSR chunk ends with the row that brings it to this many stored numbers, or the sum to a multiple of this many rows.
_SPARSE_SIZE, _SPARSE_ROWS = 2**22, 2**15


def rows_per_chunk(n_features: int) -> int:
    """Return the number of rows in a dense chunk."""
    if n_features >= WIDE:
        return max(_FEWEST_ROWS, _WIDE_SIZE // n_features)
    return min(_MOST_ROWS, max(_ENOUGH_ROWS, _DENSE_SIZE // n_features))


def rows_per_unit(n_features: int, *, sparse: bool) -> int:
    """Return the number of rows in a leaf of the tree: every chunk ends at a multiple of it."""
    return _SPARSE_ROWS if sparse else rows_per_chunk(n_features)


def cut_chunks(waiting: Waiting, rows: Any, n_before: int) -> Iterator[tuple[Any, Waiting]]:
    """Yield every chunk that `rows` complete, and the buffer after it; at last None and the final buffer.

    `n_before` rows of the sum are in earlier chunks. A chunk is a view of `rows` if the buffer was empty. The buffer is
    a copy, since callers may reuse their array.
    """
    start, n_rows = 0, int(rows.shape[0])
    while start < n_rows:
        stop = start + _n_missing(waiting, rows, start, n_before)
        if stop > n_rows:
            waiting = grown(waiting, row_slice(rows, start, n_rows).copy())
            break
        chunk = join_rows([*waiting, row_slice(rows, start, stop)])
        waiting, start, n_before = (), stop, n_before + int(chunk.shape[0])
        yield chunk, waiting
    yield None, waiting


def _n_missing(waiting: Waiting, rows: Any, start: int, n_before: int) -> int:
    """Return the number of rows from `start` on that complete the chunk; more than there are if none do."""
    sparse = is_sparse(rows)
    unit = rows_per_unit(rows.shape[1], sparse=sparse)
    by_rows = unit - n_before % unit - sum(int(piece.shape[0]) for piece in waiting)
    if not sparse:
        return by_rows
    missing_size = _SPARSE_SIZE - sum(int(piece.nnz) for piece in waiting)
    ends = rows.indptr[start + 1 :]
    return min(int(np.searchsorted(ends, rows.indptr[start] + missing_size)) + 1, by_rows)


def grown(waiting: Waiting, piece: Any, join: Callable[[list[Any]], Any] = join_rows) -> Waiting:
    """Return the buffer with one more piece.

    A piece is joined with the one before it once it is half as long. So rows that arrive one by one are copied a few
    times each, not once for every row that follows.
    """
    pieces = [*waiting, piece]
    while len(pieces) > 1 and 2 * pieces[-1].shape[0] >= pieces[-2].shape[0]:
        pieces[-2:] = [join(pieces[-2:])]
    return tuple(pieces)


# The tree -------------------------------------------------------------------------------------------------------------


#: The number of nodes in a node of the next height. Adding up parents takes a seventh of the additions of leaves.
RADIX = 8


#: One array per level; None at a level without nodes.
Levels: TypeAlias = "tuple[FloatArray | None, ...]"

#: Returns the sum of two arrays, in place where it may.
Add: TypeAlias = "Callable[[FloatArray, DataArray], FloatArray]"


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
    rows : array, CSR array, QuantizedRows or None
        Where rows are kept: those that `threshold` selects, counted from the first of the sum; then there are no sums.
    threshold : int
        See `rows`.
    """

    n_rows: int
    unit: int
    levels: Levels
    checksum: int = 0
    rows: Any = None
    threshold: int = ALL_ROWS


def carried(levels: Levels, node: DataArray, level: int, n_rows: int, unit: int, add: Add) -> Levels:
    """Return the levels after one more node at `level`, where `n_rows` rows are in with it.

    Level h is full when the rows fill a node of height h; its array then moves up.
    """
    after, moving = list(levels), node
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

    If the part begins where a node of its height may begin, the result is bit-identical with that of a reader of all
    rows. Otherwise it depends on where the part begins, and on nothing else.
    """
    height = node_rows(part.n_rows, part.unit)
    n_rows, levels = whole.n_rows + part.n_rows, whole.levels
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
    """Cut rows from `start` to `stop` into the largest nodes of at most `height` rows; the last may be incomplete.

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
