"""The protocol of a source, and what all sources share: checking every block on its way out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, final, runtime_checkable

import numpy as np
from scipy.sparse import csr_array

from odeco._util.arguments import check_count
from odeco._util.types import DataArray
from odeco.errors import SourceError
from odeco.io import errors as _errors
from odeco.io.rows import all_finite, csr_fault, csr_view, first_bad_row, is_sparse, row_slice, stored_numbers

#: A block of rows as algorithms read it: float32 or float64, dense or CSR. Read-only by convention: it may be
#: a view of the user's data.
Block: TypeAlias = "DataArray | csr_array[Any, Any]"


BLOCK_BYTES = 4 << 20

BLOCK_STORED = 1 << 20


@runtime_checkable
class BatchSource(Protocol):
    """Rows that can be read block by block, always in the same order.

    `as_source` makes one of nearly anything. To write your own, `n_features` and ``__iter__`` are enough:
    `as_source` adds the rest and checks every block.
    """

    @property
    def n_features(self) -> int:
        """Number of columns."""

    @property
    def n_rows(self) -> int | None:
        """Number of rows, or None if only a full pass can tell."""

    @property
    def repeatable(self) -> bool:
        """Whether a second pass gives the same rows again."""

    def __iter__(self) -> Iterator[Block]:
        """Start a fresh pass."""

    def iterate_from(self, row: int) -> Iterator[Block]:
        """Start a fresh pass at `row`, counted from 0, by seeking where that is possible."""

    def fingerprint(self) -> str:
        """Return a short string that very probably changes if the rows do; cheap, so not a checksum of them."""


class Stamp(NamedTuple):
    """What tells a file from what it was before: its number, its size and the time of its last change."""

    number: int
    size: int
    changed: int

    @classmethod
    def of(cls, path: Path) -> Stamp:
        """Read the stamp of a file."""
        status = path.stat()
        return cls(status.st_ino, status.st_size, status.st_mtime_ns)


class Source(ABC):
    """Base of the sources in odeco: whatever `_blocks` yields is checked before anyone sees it.

    A file that is mapped into memory and then cut short would end the process, and one that is rewritten between two
    passes would give a result on mixed data. So its stamp is compared before every block and at the end of a pass.
    """

    name: str
    path: Path | None = None
    n_features: int
    n_rows: int | None = None
    repeatable: bool = True
    #: The names of the columns, where there are some.
    columns: tuple[str, ...] | None = None
    #: Whether the fingerprint tells these rows from others; otherwise the rows themselves have to be compared.
    identified: bool = True
    #: The file as it was when it was opened, if the rows come from one file.
    stamp: Stamp | None = None
    #: What reading may raise when a file is damaged.
    _faults: tuple[type[Exception], ...] = ()

    def __iter__(self) -> Iterator[Block]:
        return self.iterate_from(0)

    @final
    def iterate_from(self, row: int) -> Iterator[Block]:
        """Start a fresh pass at `row`, counted from 0, by seeking where that is possible."""
        row = check_count("row", row, 0)
        if self.n_rows is not None and row > self.n_rows:
            raise _errors.too_short(self.name, self.path, row, self.n_rows)
        return self._checked(self._blocks(row), row)

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a short string that very probably changes if the rows do; cheap, so not a checksum of them."""

    @abstractmethod
    def _blocks(self, row: int) -> Iterator[Any]:
        """Yield blocks of rows from `row` on, of any number type, not yet checked."""

    def _checked(self, blocks: Iterator[Any], row: int) -> Iterator[Block]:
        start = row
        while True:
            self._check_unchanged(row)
            try:
                block = next(blocks, None)
            except SourceError:
                raise
            except self._faults as error:
                raise _errors.cannot_read_on(self.name, self.path, row, error) from error
            if block is None:
                break
            self._check_unchanged(row)  # opening and mapping took time
            checked = as_block(block, self, row)
            row += checked.shape[0]
            yield checked
        if start == row == 0:
            raise _errors.no_rows(self.name, self.path, "no rows")
        if self.n_rows is not None and row != self.n_rows:
            raise _errors.wrong_length(self.name, self.path, self.n_rows, row)

    def _check_unchanged(self, row: int) -> None:
        """Raise if the file is not as it was when it was opened."""
        if self.path is None or self.stamp is None:
            return
        try:
            now = Stamp.of(self.path)
        except OSError as error:
            raise _errors.changed(self.name, self.path, row, "It was removed") from error
        if now != self.stamp:
            what = "Its size changed" if now.size != self.stamp.size else "It was written to"
            raise _errors.changed(self.name, self.path, row, what)


def as_block(block: Any, source: Source, first_row: int) -> Block:
    """Return a block in the form that algorithms read, or raise naming the first row at fault."""
    name, path, width = source.name, source.path, source.n_features
    if block.ndim != 2:
        raise _errors.bad_shape(name, path, block.shape, first_row)
    if block.shape[1] != width:
        raise _errors.wrong_width(name, path, first_row, width, block.shape[1])
    dtype = working_type(block.dtype, name, path)
    rows: Any = block
    if is_sparse(block):
        fault = csr_fault(block)
        if fault is not None and fault.kind == "index":
            raise _errors.bad_index(name, path, first_row + fault.row, fault.index, width)
        if fault is not None:
            raise _errors.bad_pointers(name, path, first_row + fault.row)
        if not (isinstance(block, csr_array) and block.dtype == dtype):
            rows = csr_view(block.data.astype(dtype, copy=False), block.indices, block.indptr, width)
    else:
        rows = block.astype(dtype, copy=False)
    if not all_finite(stored_numbers(rows)):
        bad = first_bad_row(rows)
        if bad is not None:
            raise _errors.not_finite(name, path, first_row + bad[0], bad[1])
    checked: Block = rows
    return checked


def working_type(dtype: np.dtype[Any], name: str, path: Path | None) -> np.dtype[Any]:
    """Return float32 or float64, whichever holds numbers of this type, or raise if neither does."""
    if dtype.kind == "f" and dtype.itemsize <= 8:
        return np.dtype(np.float64 if dtype.itemsize == 8 else np.float32)
    if dtype.kind in "iub":
        return np.dtype(np.float64)
    raise _errors.bad_type(name, path, dtype)


def check_not_empty(source: Source) -> None:
    """Raise if a source has no columns, or is known to have no rows."""
    if source.n_features <= 0 or (source.n_rows is not None and source.n_rows <= 0):
        rows = "an unknown number of" if source.n_rows is None else f"{source.n_rows:,}"
        raise _errors.no_rows(source.name, source.path, f"{rows} rows and {source.n_features:,} columns")


def rows_per_block(n_features: int, itemsize: int, batch_rows: int | None) -> int:
    """Return how many dense rows make a block: what the user wants, or about 4 MB."""
    return batch_rows or max(1, BLOCK_BYTES // max(1, n_features * itemsize))


def describe(source: Source, kind: str, *more: object) -> str:
    """Compose a fingerprint of the kind, the shape, and what else is known; the file's size and time among it."""
    rows = "?" if source.n_rows is None else source.n_rows
    parts = [kind, f"{rows}x{source.n_features}", *more]
    if source.path is not None:
        status = source.path.stat()
        parts += [source.path.name, status.st_size, status.st_mtime_ns]
    return ":".join(str(part) for part in parts)


def split(block: Any, rows: int) -> Iterator[Any]:
    """Yield a block in pieces of at most `rows` rows, as views; nothing if it has no rows."""
    n_rows = block.shape[0]
    if 0 < n_rows <= rows:
        yield block
        return
    for start in range(0, n_rows, rows):
        yield row_slice(block, start, min(start + rows, n_rows))


def discard(blocks: Iterable[Any], n: int, name: str, path: Path | None = None) -> Iterator[Any]:
    """Yield what follows the first `n` rows; raise if there are fewer."""
    left = n
    for block in blocks:
        n_rows = block.shape[0]
        if left < n_rows:
            yield row_slice(block, left, n_rows) if left else block
        left = max(0, left - n_rows)
    if left:
        raise _errors.too_short(name, path, n, n - left)
