"""Sums over rows: of images x (xᵀu)ᵖ⁻¹ for every vector u, of cores (Qᵀx) ⊗ … ⊗ (Qᵀx), and of distinct entries.

`RowSum` is an accumulator with ``update`` and ``+``: one object serves a stream, a batch and a partition. Sums in
floating point depend on where they are cut, so rows that arrive in pieces of any size are cut again into *chunks*, at
places that depend on the rows only, and the sums over chunks form a *tree* whose shape depends on the number of rows
only (`odeco.online.tree`). So the result is bit-identical whether rows are pushed one by one, read from a file, or
added up by workers.

`KeptRows` keeps rows in place of a sum: all of them, or a number of them that are evenly spaced over a pass.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from odeco._util.arguments import largest, ordinary_bits, times_power_of_two, unit_exponent
from odeco._util.state import Sizes, State, array, array_field, arrays_field, part_field, require
from odeco._util.types import DataArray, FloatArray, IndexArray
from odeco.io.rows import (
    all_finite,
    as_rows,
    bad_row_error,
    check_same_kind,
    is_sparse,
    join_rows,
    row_slice,
    stored_numbers,
)
from odeco.online.block import QuantizedRows, RowBlock, RowLimit, below, join_kept, lowered, selected
from odeco.online.fourth_moment import N_GROUPS, n_entries, n_pairs, sum_entries, sum_products, width_of
from odeco.online.tree import (
    ALL_ROWS,
    Add,
    Levels,
    Part,
    Waiting,
    add_in_place,
    appended,
    carried,
    collected,
    core,
    cut_chunks,
    entries,
    grown,
    has_vanished,
    image,
    in_unit,
    rows_per_unit,
)

Question = Literal["image", "core", "entries", "pairs", "rows"]


#: A sum in a file has fewer levels than this, which is enough for 2⁶⁴ rows.
_MOST_LEVELS = 24

#: A sum in a file has numbers up to this size, which leaves room for the rows of many more chunks.
_MOST = 2.0**1000


class Held(NamedTuple):
    """The state of a sum: the number of rows, the sums over complete chunks, and the buffer of rows.

    Where rows are kept (`KeptRows`), they are the buffer. With a limit they are those that `threshold`
    selects; `places` has their numbers.
    """

    n_rows: int
    levels: Levels
    waiting: Waiting
    threshold: int = ALL_ROWS
    places: IndexArray = np.empty(0, np.int64)

    @property
    def n_waiting(self) -> int:
        """The number of rows in the buffer."""
        return sum(int(piece.shape[0]) for piece in self.waiting)


def _summable(value: Any, where: str, sizes: Sizes) -> None:
    """Require numbers that leave room for more; their query determines the shape."""
    array(*[None] * np.ndim(value), low=-_MOST, high=_MOST)(value, where, sizes)


@dataclass(frozen=True, eq=False)
class SavedSum(State):
    """A sum as it is saved, without query and block, which the solver has.

    Attributes
    ----------
    n_rows, threshold, places
        As in `Held`.
    heights : tuple of int
        The levels that hold an array.
    levels : tuple of arrays
        These arrays.
    buffer : RowBlock or None
        The buffer of rows.
    """

    n_rows: int = array_field(kind="i", low=0)
    threshold: int = array_field(kind="i", low=1, high=ALL_ROWS)
    places: IndexArray = array_field(None, kind="i", low=0)
    heights: tuple[int, ...] = array_field(None, kind="i", low=0, high=_MOST_LEVELS - 1, as_tuple=True)
    levels: tuple[FloatArray, ...] = arrays_field(rule=_summable)
    buffer: RowBlock | None = part_field(RowBlock, default=None)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        increasing = all(low < high for low, high in itertools.pairwise(self.heights))
        require(increasing and len(self.heights) == len(self.levels), "every level must have one array")
        require(self.n_waiting <= self.n_rows, "no more rows may wait than were taken in")
        numbered = bool(np.all(np.diff(self.places) > 0)) and bool(np.all(self.places < self.n_rows))
        require(numbered, "rows that are kept must be numbered in order")

    @property
    def n_waiting(self) -> int:
        """The number of rows in the buffer."""
        return 0 if self.buffer is None else self.buffer.n_rows


class RowSum:
    """The sum over rows that one query needs; rows may arrive in pieces of any size.

    Parameters
    ----------
    question : {"image", "core", "entries", "pairs"}
        ``"image"``: Σ x (xᵀu)ᵖ⁻¹ for every column u of `block`. ``"core"``: Σ (Qᵀx)⊗ᵖ for the basis Q = `block`.
        ``"entries"``: the distinct entries of Σ x ⊗ x ⊗ x (i ≥ j ≥ k in the order of i, then j, then k); at order 4,
        all moments up to the fourth in a frame, of groups of rows. ``"pairs"``: products with such moments
        (`odeco.online.fourth_moment`).
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
            return (math.comb(d + 2, 3),) if self.order == 3 else (N_GROUPS, n_entries(d))
        if self.question == "pairs":
            return (N_GROUPS, n_pairs(d), width_of(self.block) + d + 1)
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
        mean = collected(self.held.levels, self._rest(), self._free_array(self.held.levels))
        mean /= self.n_rows
        self.held, self._spare, self._typed_block = Held(self.n_rows, (), ()), None, self.block
        return mean

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

    @property
    def saved(self) -> SavedSum:
        """The state, to be saved."""
        buffer = RowBlock.of(join_kept([*self.held.waiting])) if self.held.waiting else None
        n_rows, levels, _, threshold, places = self.held
        held = {height: level for height, level in enumerate(levels) if level is not None}
        return SavedSum(n_rows, threshold, places, tuple(held), tuple(held.values()), buffer)

    def restore(self, saved: SavedSum) -> None:
        """Restore a state that was saved."""
        waiting: Waiting = () if saved.buffer is None else (saved.buffer.rows,)
        if waiting and not isinstance(waiting[0], QuantizedRows):
            waiting = (as_rows(waiting[0], self.block.shape[0]),)
            check_size(waiting[0], self.order, of=waiting[0])
        held = dict(zip(saved.heights, saved.levels, strict=True))
        levels = tuple(held.get(height) for height in range(max(held, default=-1) + 1))
        self.held = Held(saved.n_rows, levels, waiting, saved.threshold, saved.places)

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
        product = self._product(chunk)
        finite = all_finite(product)
        if finite and not has_vanished(product, 2.0 ** -ordinary_bits(chunk.dtype)):
            return product
        exponent = unit_exponent(largest(stored_numbers(chunk)), self.order, chunk.dtype)
        if exponent and self._homogeneous:
            product = self._product(in_unit(chunk, exponent)).astype(np.float64)
            product = times_power_of_two(product, exponent * self.order)
            finite = all_finite(product)
        if not finite:
            raise FloatingPointError
        return product

    @property
    def _homogeneous(self) -> bool:
        """Whether the sum is multiplied by 2ᵖ if rows are by 2; not if it has lower moments."""
        return self.question != "pairs" and (self.question != "entries" or self.order == 3)

    def _product(self, chunk: Any) -> DataArray:
        if self._typed_block.dtype != chunk.dtype:
            self._typed_block = self.block.astype(chunk.dtype)
        block = self._typed_block
        if self.question == "core":
            return core(chunk, block, self.order)
        if self.question == "pairs":
            return sum_products(chunk, self.block)
        if self.question == "entries":
            return entries(chunk) if self._homogeneous else sum_entries(chunk, self.block)
        return image(chunk, block, self.order)


class KeptRows(RowSum):
    """Rows that are kept, in place of a sum; they may arrive in pieces of any size.

    Parameters
    ----------
    block : array, d x 0
        States their width.
    order : int
        The order of the moment.
    limit : RowLimit, optional
        The most that is kept. Beyond it dense rows are quantized, and then rows are dropped so that those that are kept
        are evenly spaced, whatever the sizes of the pieces.
    """

    def __init__(self, block: FloatArray, order: int, limit: RowLimit | None = None) -> None:
        super().__init__("rows", block, order)
        self.limit = limit

    def update(self, rows: Any) -> None:
        """Keep rows, a dense or CSR array. If one of them is not finite, none is kept."""
        checked, before = self._checked(rows), self.held
        check_size(checked, self.order, of=checked)
        n_new = int(checked.shape[0])
        chosen = selected(before.n_rows, before.n_rows + n_new, before.threshold) - before.n_rows
        self._keep(checked if len(chosen) == n_new else checked[chosen], n_new, before.threshold)

    def append(self, part: Part) -> None:
        """Keep the rows that a worker picked from those that follow."""
        self._keep(part.rows, part.n_rows, part.threshold)

    def _keep(self, rows: Any, n_rows: int, threshold: int) -> None:
        """Keep rows, which are those of the next `n_rows` rows that a threshold selects."""
        before, limit = self.held, self.limit
        first, n_seen = before.n_rows, before.n_rows + n_rows
        if limit is None:
            self.held = before._replace(n_rows=n_seen, waiting=grown(before.waiting, rows.copy()))
            return
        waiting = before.waiting
        if limit.quantizes(n_seen, rows):
            rows = QuantizedRows.of(rows)
            waiting = tuple(map(QuantizedRows.of, waiting))
        if rows.shape[0]:
            waiting = grown(waiting, rows if isinstance(rows, QuantizedRows) else rows.copy(), join_kept)
        places = np.concatenate([before.places, selected(first, n_seen, threshold)])
        held = before._replace(n_rows=n_seen, waiting=waiting, places=places)
        if threshold != before.threshold:
            held = _thinned(held, min(threshold, before.threshold))
        while not limit.allows(held.waiting):
            held = _thinned(held, lowered(held.threshold))
        self.held = held

    def rows(self) -> Any:
        """Return the rows that are kept, as one piece from then on: with its pieces it would take memory twice."""
        self.held = self.held._replace(waiting=(join_kept([*self.held.waiting]),))
        return self.held.waiting[0]


def _thinned(held: Held, threshold: int) -> Held:
    """Return what is left of the rows that are kept when the threshold is lowered."""
    left, waiting = below(held.places, threshold), held.waiting
    if waiting:
        rows = join_kept([*waiting])
        quantized = isinstance(rows, QuantizedRows)
        waiting = (QuantizedRows(rows.codes[left], rows.scales[left]) if quantized else rows[left],)
    return held._replace(waiting=waiting, threshold=threshold, places=held.places[left])


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


def _is_one_of(array: FloatArray | None, arrays: Levels) -> bool:
    return any(array is each for each in arrays if each is not None)
