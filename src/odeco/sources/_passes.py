"""Passes over a source whose rows are compared with those of earlier passes, where nothing else tells them apart."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from odeco.rows import is_sparse, row_slice, stored_numbers
from odeco.sources import _errors
from odeco.sources._source import BatchSource, Block, Source

#: Of every so many rows one is hashed by its bytes, so that rows in another order are noticed.
_HASHED_EVERY = 64


class RowDigest:
    """A checksum of rows as they go by; the pieces they come in do not change it.

    All numbers are added up as whole numbers, which takes a fraction of the time of a product with them. A change that
    leaves that sum and every 64th row as they were is not noticed.
    """

    def __init__(self) -> None:
        self.n_rows = 0
        self._sum = 0
        self._hash = 0

    def update(self, rows: Any) -> None:
        """Take in rows."""
        parts = [rows.data, rows.indices, np.diff(rows.indptr)] if is_sparse(rows) else [rows]
        for part in parts:
            words = np.ascontiguousarray(part).view(f"u{part.dtype.itemsize}")
            self._sum = (self._sum + int(np.add.reduce(words, axis=None, dtype=np.uint64))) % 2**64
        n_rows = int(rows.shape[0])
        for place in range(-self.n_rows % _HASHED_EVERY, n_rows, _HASHED_EVERY):
            row = row_slice(rows, place, place + 1)
            for part in [row.indices.astype(np.int64), row.data] if is_sparse(row) else [stored_numbers(row)]:
                self._hash = zlib.crc32(np.ascontiguousarray(part).tobytes(), self._hash)
        self.n_rows += n_rows

    def __str__(self) -> str:
        return f"{self.n_rows}:{self._sum:016x}:{self._hash:08x}"


class Passes:
    """Passes over a source for a run that may be taken up later.

    Files and arrays are told apart by their fingerprints. Of anything else the rows themselves are compared: those that
    a run has read before it was interrupted with those that are read again to get there, and every pass with the first.

    Parameters
    ----------
    source : BatchSource
        The rows.
    digest : str or None
        The digest of the rows that an interrupted run had read of its last pass.
    """

    def __init__(self, source: BatchSource, digest: str | None = None) -> None:
        self._source, self._expected = source, digest
        self._compares = not (isinstance(source, Source) and source.identified)
        self._whole: str | None = None
        self._digest = RowDigest()

    @property
    def digest(self) -> str | None:
        """The digest of the rows read so far of this pass; None where the fingerprint tells enough."""
        return str(self._digest) if self._compares else None

    def read_from(self, row: int) -> Iterator[Block]:
        """Start a pass, and yield its rows from `row` on."""
        if not self._compares:
            yield from self._source.iterate_from(row)
            return
        self._digest, left = RowDigest(), row
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
            raise _errors.too_short("the data", None, row, row - left)
        whole, before = str(self._digest), self._whole
        if before is not None and whole != before:
            raise _errors.changed_stream("the data")
        self._whole = whole

    def _compare_with_interrupted(self) -> None:
        expected, self._expected = self._expected, None
        if expected is not None and expected != str(self._digest):
            raise _errors.other_rows("the data", self._digest.n_rows)
