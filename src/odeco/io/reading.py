"""Passes over a source: in batches of one size, from a given row on, and compared with earlier
passes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from odeco._util.arguments import check_count
from odeco.errors import SourceError
from odeco.io.coerce import as_source
from odeco.io.errors import source_error
from odeco.io.rows import is_sparse, join_rows, row_slice, stored_numbers
from odeco.io.source import BatchSource, Block, Source

#: One row in this many is hashed by its bytes, so that rows in another order are noticed.
_HASHED_EVERY = 64


def sum_of_bits(rows: Any) -> int:
    """Return the sum of the bits of all numbers in rows, read as integers, modulo 2⁶⁴."""
    total = 0
    for part in [rows.data, rows.indices, np.diff(rows.indptr)] if is_sparse(rows) else [rows]:
        words = np.ascontiguousarray(part).view(f"u{part.dtype.itemsize}")
        total += int(np.add.reduce(words, axis=None, dtype=np.uint64))
    return total % 2**64


class RowDigest:
    """A checksum of the rows of a pass, which does not depend on how they are cut into blocks.

    The bits of all numbers are added up as integers, which takes a fraction of the time of a
    product with them. A change that leaves this sum and every 64th row the same is not noticed.
    """

    def __init__(self) -> None:
        self.n_rows = 0
        self._sum = 0
        self._hash = 0

    def update(self, rows: Any) -> None:
        """Add rows."""
        self._sum = (self._sum + sum_of_bits(rows)) % 2**64
        n_rows = int(rows.shape[0])
        for place in range(-self.n_rows % _HASHED_EVERY, n_rows, _HASHED_EVERY):
            row = row_slice(rows, place, place + 1)
            for part in (
                [row.indices.astype(np.int64), row.data]
                if is_sparse(row)
                else [stored_numbers(row)]
            ):
                self._hash = zlib.crc32(np.ascontiguousarray(part).tobytes(), self._hash)
        self.n_rows += n_rows

    def __str__(self) -> str:
        return f"{self.n_rows}:{self._sum:016x}:{self._hash:08x}"


class Passes:
    """Passes over a source for a run that may be resumed later.

    Files and arrays are identified by their fingerprints. For other sources the rows are compared
    by a checksum: those that an interrupted run had read with those that are skipped when it
    resumes, and every pass with the first.

    Parameters
    ----------
    source : BatchSource
        The rows.
    digest : str or None
        The checksum of the rows that an interrupted run had read in its last pass.
    """

    def __init__(self, source: BatchSource, digest: str | None = None) -> None:
        self._source = source
        self._expected = digest
        self._compares = not (isinstance(source, Source) and source.identified)
        self._whole: str | None = None
        self._digest = RowDigest()

    @property
    def digest(self) -> str | None:
        """The checksum of the rows read in this pass; None if the fingerprint identifies the
        source.
        """
        return str(self._digest) if self._compares else None

    def read_from(self, row: int) -> Iterator[Block]:
        """Start a pass, and yield its rows from `row` on."""
        if not self._compares:
            yield from self._source.iterate_from(row)
            return
        self._digest = RowDigest()
        left = row
        for block in self._source.iterate_from(0):
            n_skipped = min(left, int(block.shape[0]))
            if n_skipped:
                self._digest.update(row_slice(block, 0, n_skipped))
            left -= n_skipped
            if left == 0:
                self._compare_with_interrupted()
            rows = row_slice(block, n_skipped, int(block.shape[0]))
            if rows.shape[0]:
                self._digest.update(rows)
                yield rows
        if left:
            raise source_error("short", "the data", None, row - left, wanted=row)
        whole = str(self._digest)
        before = self._whole
        if before is not None and whole != before:
            raise SourceError(
                "The data must give the same rows in every pass. They did not. As a callable, "
                "return a fresh iterator of the same rows at every call."
            )
        self._whole = whole

    def _compare_with_interrupted(self) -> None:
        expected = self._expected
        self._expected = None
        if expected is not None and expected != str(self._digest):
            raise SourceError(
                "The data must be those that the interrupted run was reading. Its first "
                f"{self._digest.n_rows:,} rows were others. Pass the same rows, or another "
                "checkpoint to begin again.",
                row=self._digest.n_rows,
            )


def rebatch(source: Any, batch_size: int) -> Iterator[Block]:
    """Start a pass in batches of exactly `batch_size` rows; the last may have fewer.

    Parameters
    ----------
    source : BatchSource, iterator of blocks, or anything that `as_source` accepts
        The rows. An iterator, such as `skip_rows` returns, is continued.
    batch_size : int
        Number of rows in every block but the last.

    Returns
    -------
    iterator of blocks
        The same rows in the same order. A batch inside one block is a view of it; others are joined
        once, so every row is copied at most once.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.io import rebatch
    >>> [len(batch) for batch in rebatch([np.zeros((3, 2)), np.zeros((4, 2))], 2)]
    [2, 2, 2, 1]
    """
    batch_size = check_count("batch_size", batch_size)
    return cut_into(source if isinstance(source, Iterator) else as_source(source), batch_size)


def skip_rows(source: Any, n: int) -> Iterator[Block]:
    """Start a pass at row `n`, counted from 0: by seeking if the source can, else by reading and
    dropping rows.

    Parameters
    ----------
    source : BatchSource, or anything that `as_source` accepts
        The rows.
    n : int
        How many rows to leave out; all of them at most.

    Returns
    -------
    iterator of blocks
        The rows from `n` on. Errors count rows from the start of the source, not from `n`.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.io import skip_rows
    >>> next(skip_rows(np.arange(8.0).reshape(4, 2), 3))
    array([[6., 7.]])
    """
    return as_source(source).iterate_from(check_count("n", n, 0))


def cut_into(blocks: Iterable[Block], batch_size: int) -> Iterator[Block]:
    """Yield the rows of blocks in batches of exactly `batch_size` rows; the last may have fewer."""
    pieces: list[Any] = []
    n_held = 0
    for block in blocks:
        start = 0
        n_rows = block.shape[0]
        while start < n_rows:
            stop = min(n_rows, start + batch_size - n_held)
            pieces.append(row_slice(block, start, stop))
            n_held = n_held + stop - start
            start = stop
            if n_held == batch_size:
                yield _join(pieces)
                pieces = []
                n_held = 0
    if pieces:
        yield _join(pieces)


def _join(pieces: list[Any]) -> Block:
    sparse = [is_sparse(piece) for piece in pieces]
    if len(set(sparse)) > 1:
        before = pieces[: sparse.index(not sparse[0])]
        raise source_error("mixed", "one batch", None, sum(piece.shape[0] for piece in before))
    joined: Block = join_rows(pieces)
    return joined
