"""Rows from anything that can be iterated, from a callable that starts an iteration, and from a user's own source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np

from odeco._util.arguments import check_count
from odeco.io import errors as _errors
from odeco.io.rows import is_sparse
from odeco.io.source import Source, check_not_empty, describe, discard, rows_per_block, split


class IterableSource(Source):
    """The rows of the two-dimensional arrays that an iteration gives.

    Parameters
    ----------
    start : callable
        Starts an iteration. It is called at once, because only a first block tells the width; the first pass goes on
        with that iteration, so that nothing is computed twice and nothing of a one-shot iterator is lost.
    name : str
        What errors call the source.
    batch_rows : int or None
        Largest number of rows in a block; larger ones are split, smaller ones are not joined.
    repeatable : bool
        Whether `start` may be called again.
    n_rows : int, optional
        Number of rows, if it is known.
    """

    identified = False

    def __init__(
        self,
        start: Callable[[], Iterable[Any]],
        name: str,
        batch_rows: int | None,
        *,
        repeatable: bool = True,
        n_rows: int | None = None,
    ) -> None:
        self.name, self.repeatable, self.n_rows = name, repeatable, n_rows
        self._start, self._batch_rows = start, batch_rows
        self._iterator: Iterator[Any] = iter(start())
        self._first: Any = None
        for block in self._iterator:
            self._first = as_matrix(block, name, 0)
            if self._first.shape[0]:
                break
        if self._first is None or not self._first.shape[0]:
            raise _errors.no_rows(name, None, "no rows")
        self.n_features = int(self._first.shape[1])
        self._is_sparse = is_sparse(self._first)
        check_not_empty(self)
        self._rows_of_a_pass = n_rows

    def fingerprint(self) -> str:
        """Return kind and width: a stream shows no more without being read."""
        return describe(self, "stream")

    def _blocks(self, row: int) -> Iterator[Any]:
        if self._first is not None:
            first, self._first = self._first, None
            return discard(self._pieces(first, self._iterator), row, self.name)
        if not self.repeatable:
            raise _errors.already_read(self.name)
        iterator = iter(self._start())
        if iterator is self._iterator:
            self.repeatable = False
            raise _errors.already_read(self.name)
        self._iterator = iterator
        return discard(self._pieces(None, iterator), row, self.name)

    def _pieces(self, first: Any, iterator: Iterator[Any]) -> Iterator[Any]:
        row = 0
        for given in chain(() if first is None else (first,), iterator):
            block = as_matrix(given, self.name, row)
            if is_sparse(block) != self._is_sparse:
                raise _errors.mixed_kinds(self.name, None, row)
            row += block.shape[0]
            yield from split(block, _rows_at_a_time(block, self._batch_rows))
        if self._rows_of_a_pass not in (None, row):
            raise _errors.wrong_length(self.name, None, self._rows_of_a_pass or 0, row)
        self._rows_of_a_pass = row


class AdaptedSource(Source):
    """The rows of a user's own source, checked; or of one of ours, in smaller blocks."""

    def __init__(self, source: Any, batch_rows: int | None) -> None:
        if isinstance(source, Source):
            self.name, self.path = source.name, source.path
        else:
            self.name = f"the {type(source).__name__}"
        self.n_features = check_count("n_features", source.n_features, 0)
        self.n_rows, self.columns = getattr(source, "n_rows", None), getattr(source, "columns", None)
        self.repeatable = getattr(source, "repeatable", not is_one_shot(source))
        check_not_empty(self)
        self._source, self._batch_rows, self._read = source, batch_rows, False
        self.identified = source.identified if isinstance(source, Source) else self._own_fingerprint is not None

    def fingerprint(self) -> str:
        """Return what the source itself says, or else its kind and shape."""
        own = self._own_fingerprint
        return str(own()) if own is not None else describe(self, type(self._source).__name__)

    @property
    def _own_fingerprint(self) -> Callable[[], str] | None:
        own = getattr(self._source, "fingerprint", None)
        return own if callable(own) else None

    def _blocks(self, row: int) -> Iterator[Any]:
        if self._read and not self.repeatable:
            raise _errors.already_read(self.name)
        self._read = True
        seek = getattr(self._source, "iterate_from", None)
        if callable(seek):
            return self._pieces(seek(row), row)
        return discard(self._pieces(self._source, 0), row, self.name)

    def _pieces(self, blocks: Iterable[Any], row: int) -> Iterator[Any]:
        for given in blocks:
            block = as_matrix(given, self.name, row)
            row += block.shape[0]
            yield from split(block, _rows_at_a_time(block, self._batch_rows))


def is_one_shot(data: Any) -> bool:
    """Tell whether an object is its own iterator, so that what was read is gone."""
    # Only an iterator has __next__; for anything else, iter() might already start something.
    return hasattr(data, "__next__") and iter(data) is data


def as_matrix(block: Any, name: str, row: int) -> Any:
    """Return a block that a user's object gave as a two-dimensional array or CSR matrix, without a copy."""
    if is_sparse(block):
        if block.format != "csr":
            raise _errors.not_csr(f"the block at row {row:,} of {name}", None, block.format.upper())
        return block
    if isinstance(block, np.ma.MaskedArray):
        raise _errors.masked_values()
    try:
        array = np.asarray(block)
    except ValueError as error:  # rows of different lengths
        raise _errors.bad_type(f"the block at row {row:,} of {name}", None, type(block).__name__) from error
    if array.ndim != 2:
        raise _errors.bad_shape(f"the block at row {row:,} of {name}", None, array.shape, row)
    return array


def _rows_at_a_time(block: Any, batch_rows: int | None) -> int:
    if batch_rows is None and is_sparse(block):
        return block.shape[0] or 1
    return rows_per_block(block.shape[1], block.dtype.itemsize, batch_rows)
