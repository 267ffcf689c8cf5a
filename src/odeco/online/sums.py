"""Sums over rows, as immutable values: `with_rows` returns the sum with more rows.

Sums in floating point depend on where they are cut, so rows that arrive in pieces of any size are
cut again into *chunks*, at places that depend on the rows only, and the sums over chunks form a
*tree* whose shape depends on the number of rows only (`odeco.online.tree`). So the result is
bit-identical whether rows are pushed one by one, read from a file, or added up by workers.

Nothing is changed in place, so whoever is interrupted still has the sum from before. That costs
nothing: the array of a chunk is new, and earlier ones are added to it.

`Kept` keeps rows in place of a sum: all of them, or a number of them that are evenly spaced over a
pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from odeco._util.arguments import largest, ordinary_bits, times_power_of_two, unit_exponent
from odeco._util.state import Sizes, State, array, array_field, arrays_field, parts_field, require
from odeco._util.types import DataArray, FloatArray, IndexArray
from odeco.io.rows import (
    all_finite,
    bad_row_error,
    check_same_kind,
    is_sparse,
    join_rows,
    row_slice,
    stored_numbers,
)
from odeco.online import tree
from odeco.online.block import RowBlock, below, lowered, selected
from odeco.online.tree import ALL_ROWS, Levels, Part, Waiting

if TYPE_CHECKING:
    from odeco.online.queries import Query

#: A sum in a file has at most this many levels, which is enough for 2⁶⁴ rows.
_MAX_LEVELS = 24

#: A sum in a file has numbers up to this size, which leaves room for the rows of many more chunks.
_LARGEST = 2.0**1000


def _summable(value: Any, where: str, sizes: Sizes) -> None:
    """Require numbers that leave room for more; their query determines the shape."""
    array(*[None] * np.ndim(value), low=-_LARGEST, high=_LARGEST)(value, where, sizes)


@dataclass(frozen=True, eq=False)
class Sum(State):
    """The sum that a query needs, over `n_rows` rows.

    Attributes
    ----------
    n_rows : int
        The number of rows.
    levels : tuple of arrays
        The sums over complete chunks, one for each level of the tree; empty where there is none.
    waiting : tuple of RowBlock
        The buffer: rows that wait for a chunk to be complete.
    """

    n_rows: int = array_field(kind="i", low=0)
    levels: tuple[FloatArray, ...] = arrays_field(rule=_summable)
    waiting: tuple[RowBlock, ...] = parts_field(RowBlock)

    def check_for(self, query: Query) -> None:
        """Raise `ValueError` if a file has a sum that is not one for this query."""
        fits = all(level.shape == query.shape for level in self.levels if level.size)
        require(fits and len(self.levels) <= _MAX_LEVELS, "its sum must be that of its query")
        _check_waiting(self.waiting, query, self.n_rows)
        if self.waiting:
            n_waiting = sum(block.n_rows for block in self.waiting)
            unit = tree.rows_per_unit(query.dimension, sparse=is_sparse(self.waiting[0].rows))
            require(
                n_waiting < unit - (self.n_rows - n_waiting) % unit,
                "fewer rows than a chunk must wait",
            )

    def with_rows(self, query: Query, rows: Any) -> Sum:
        """Return the sum with more rows, dense or CSR; raise `BadRowError` if one of them is not
        usable.

        NaN and infinity in a row reach every number of its contribution, so the sum is checked, and
        the rows only if it is not finite: checking all rows would cost a fifth of the time.
        """
        pieces = _pieces(self.waiting, rows)
        unit = tree.rows_per_unit(rows.shape[1], sparse=is_sparse(rows))
        n_done = self.n_rows - sum(int(piece.shape[0]) for piece in pieces)
        levels = self._nodes
        for chunk, left in tree.cut_chunks(pieces, rows, n_done):
            pieces = left
            if chunk is not None:
                n_done += int(chunk.shape[0])
                levels = tree.carried(levels, _sum_over(query, chunk, rows), 0, n_done, unit, _add)
        n_rows = int(rows.shape[0])
        n_left = min(n_rows, sum(int(piece.shape[0]) for piece in pieces))
        if n_left:  # rows in complete chunks were checked by their sum
            check_size(row_slice(rows, n_rows - n_left, n_rows), query.order, rows)
        return Sum(self.n_rows + n_rows, _as_arrays(levels), _as_blocks(pieces))

    def with_part(self, query: Query, part: Part) -> Sum:
        """Return the sum with the sum over the rows that follow, which a worker has added up."""
        before = self.without_rows(query)
        whole = tree.appended(Part(before.n_rows, part.unit, before._nodes), part, np.add)
        return Sum(whole.n_rows, _as_arrays(whole.levels), ())

    def as_part(self, query: Query, unit: int) -> Part:
        """Return the sum as a worker returns it, with an empty buffer; `unit` rows make a leaf."""
        return Part(self.n_rows, unit, self.without_rows(query)._nodes)

    def without_rows(self, query: Query) -> Sum:
        """Return the sum with the buffer added up: no row is kept. Later sums may differ in the
        last bits.
        """
        rest = self._rest(query)
        if rest is None:
            return self
        unit = tree.rows_per_unit(query.dimension, sparse=is_sparse(self.waiting[0].rows))
        levels = tree.carried(self._nodes, rest, 0, self.n_rows, unit, _add)
        return Sum(self.n_rows, _as_arrays(levels), ())

    def total(self, query: Query) -> FloatArray:
        """Return the sum over all rows, those in the buffer included."""
        return tree.collected(self._nodes, self._rest(query), np.empty(query.shape))

    def value(self, query: Query) -> FloatArray:
        """Return the mean over all rows: the reply to the query."""
        mean = self.total(query)
        mean /= self.n_rows
        return mean

    @property
    def _nodes(self) -> Levels:
        return tuple(level if level.size else None for level in self.levels)

    def _rest(self, query: Query) -> DataArray | None:
        """Return the sum over the buffer."""
        if not self.waiting:
            return None
        rows = _joined(self.waiting)
        return _sum_over(query, rows, rows)


def _as_arrays(levels: Levels) -> tuple[FloatArray, ...]:
    return tuple(np.empty(0) if level is None else level for level in levels)


def _as_blocks(pieces: Waiting) -> tuple[RowBlock, ...]:
    return tuple(RowBlock.of(piece) for piece in pieces)


def _joined(waiting: tuple[RowBlock, ...]) -> Any:
    return join_rows([block.rows for block in waiting])


def _pieces(waiting: tuple[RowBlock, ...], rows: Any) -> Waiting:
    """Return rows that wait; raise unless others are of their kind."""
    pieces = tuple(block.rows for block in waiting)
    if pieces:
        check_same_kind(pieces[0], rows)
    return pieces


def _check_waiting(waiting: tuple[RowBlock, ...], query: Query, n_rows: int) -> None:
    """Raise `ValueError` if rows of a file cannot wait for a chunk of a sum over `n_rows` rows."""
    for block in waiting:
        require(block.dimension == query.dimension, "rows that wait must be as wide as all")
        check_same_kind(waiting[0].rows, block.rows)
        check_size(block.rows, query.order, block.rows)
    require(
        sum(block.n_rows for block in waiting) <= n_rows, "no more rows may wait than were taken in"
    )


def _add(total: FloatArray, part: DataArray) -> FloatArray:
    """Add a sum to the sum over a chunk, which is new, so that no earlier sum changes."""
    target: FloatArray = part.astype(np.float64, copy=False)
    tree.add_in_place(total, part, out=target)
    return target


def _sum_over(query: Query, chunk: Any, rows: Any) -> DataArray:
    """Return the sum over a chunk; raise an error that names a row among `rows` if it is not
    finite.

    It is computed in the precision of its rows. Where powers of rows leave the range of that
    precision, the rows are divided by a power of two first, and the sum is multiplied by its power
    afterwards, in double precision.
    """
    if not is_sparse(chunk):
        chunk = np.require(
            chunk, requirements=("C", "A")
        )  # bits of a product depend on layout and alignment
    part = query.over(chunk)
    is_finite = all_finite(part)
    if is_finite and not tree.has_vanished(part, 2.0 ** -ordinary_bits(chunk.dtype)):
        return part
    exponent = unit_exponent(largest(stored_numbers(chunk)), query.order, chunk.dtype)
    if exponent and query.homogeneous:
        part = query.over(tree.in_unit(chunk, exponent)).astype(np.float64)
        part = times_power_of_two(part, exponent * query.order)
        is_finite = all_finite(part)
    if not is_finite:
        raise bad_row_error(rows)
    return part


def check_size(part: Any, order: int, rows: Any) -> None:
    """Raise unless rows for the buffer are finite, and so small that the sum over their chunk will
    be finite.

    A chunk has fewer than 2⁴⁰ rows, each of a norm of at most the largest entry times √d, of which
    powers up to p are taken. The error names the row among `rows` which they are the last.
    """
    stored = stored_numbers(part)
    high = float(stored.max(initial=0.0))
    low = float(stored.min(initial=0.0))
    limit: float = (float(np.finfo(np.float64).max) / 2**40) ** (1 / order) / math.sqrt(
        part.shape[1]
    )
    if not (-limit <= low and high <= limit):  # so written that NaN fails it too
        raise bad_row_error(rows)


@dataclass(frozen=True, eq=False)
class Kept(State):
    """Rows that are kept in place of a sum.

    Attributes
    ----------
    n_rows : int
        The number of rows of which some are kept.
    waiting : tuple of RowBlock
        The rows that are kept: those that `threshold` selects.
    threshold : int
        See `odeco.online.block`.
    places : array of int
        The numbers of the rows that are kept, if there is a limit.
    """

    n_rows: int = array_field(kind="i", low=0)
    waiting: tuple[RowBlock, ...] = parts_field(RowBlock)
    threshold: int = array_field(kind="i", low=1, high=ALL_ROWS, default=ALL_ROWS)
    places: IndexArray = array_field(None, kind="i", low=0, default=np.empty(0, np.int64))

    def check_for(self, query: Query) -> None:
        """Raise `ValueError` if a file has rows that this query would not keep."""
        _check_waiting(self.waiting, query, self.n_rows)
        thinned = query.limit is not None
        n_kept = sum(block.n_rows for block in self.waiting)
        places = self.places
        require(
            len(places) == (n_kept if thinned else 0), "rows that are kept must have a number each"
        )
        numbered = bool(np.all(np.diff(places) > 0)) and bool(np.all(places < self.n_rows))
        require(numbered, "rows that are kept must be numbered in order")
        require(bool(below(places, self.threshold).all()), "their numbers must be those selected")
        require(thinned or n_kept == self.n_rows, "all rows must be kept")

    def with_rows(self, query: Query, rows: Any) -> Kept:
        """Return the rows with more of them, dense or CSR; raise `BadRowError` if one of them is
        not usable.
        """
        _pieces(self.waiting, rows)
        check_size(rows, query.order, rows)
        n_rows = int(rows.shape[0])
        new = selected(self.n_rows, self.n_rows + n_rows, self.threshold) - self.n_rows
        return self._with(query, rows if len(new) == n_rows else rows[new], n_rows, self.threshold)

    def with_part(self, query: Query, part: Part) -> Kept:
        """Return the rows with those that a worker picked from the rows that follow."""
        return self._with(query, part.rows, part.n_rows, part.threshold)

    def without_rows(self, query: Query) -> Kept:  # noqa: ARG002 - a sum needs it
        """Return the same: rows are what is asked for."""
        return self

    def value(self, query: Query) -> Any:  # noqa: ARG002 - a sum needs it
        """Return the rows that are kept."""
        return _joined(self.waiting)

    def _with(self, query: Query, picked: Any, n_rows: int, threshold: int) -> Kept:
        """Return the rows with those of the next `n_rows` rows that a threshold selects."""
        n_seen = self.n_rows + n_rows
        pieces = tuple(block.rows for block in self.waiting)
        if picked.shape[0]:
            pieces = tree.grown(pieces, picked.copy())
        if query.limit is None:
            return replace(self, n_rows=n_seen, waiting=_as_blocks(pieces))
        places = np.concatenate([self.places, selected(self.n_rows, n_seen, threshold)])
        kept = Kept(n_seen, _as_blocks(pieces), self.threshold, places)
        if threshold != self.threshold:
            kept = kept._thinned(min(threshold, self.threshold))
        while not query.limit.allows(kept.waiting):
            kept = kept._thinned(lowered(kept.threshold))
        return kept

    def _thinned(self, threshold: int) -> Kept:
        """Return what is left of the rows when the threshold is lowered."""
        left = below(self.places, threshold)
        waiting = self.waiting
        if waiting:
            waiting = (RowBlock.of(_joined(waiting)[left]),)
        return Kept(self.n_rows, waiting, threshold, self.places[left])
