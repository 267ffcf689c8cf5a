"""Dense rows in a ``.npy`` file of any size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tokenize import TokenError
from typing import Any, ClassVar

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from odeco.sources import _errors
from odeco.sources._arrays import RESIDENT_BYTES
from odeco.sources._source import Source, check_not_empty, describe, rows_per_block, split, working_type

#: What NumPy raises for a header that is cut short or no longer a Python expression.
HEADER_FAULTS = (
    *(OSError, EOFError, ValueError, TypeError, LookupError, AttributeError, SyntaxError, TokenError),
    *(OverflowError, MemoryError, RecursionError),
)


class NpyFile(Source):
    """The rows of a ``.npy`` file, mapped into memory a stretch at a time.

    Notes
    -----
    One mapping of the whole file would keep every page that was ever read in the resident size. A stretch of a few
    blocks is as fast, and its pages go when its last block does. (Reading into a buffer instead takes about twice
    as long for blocks of 4 MB: every buffer's pages are new to the process, and every number is copied.)
    """

    sparse: ClassVar[bool] = False
    _faults = (OSError, ValueError, EOFError)

    def __init__(self, path: Path, batch_rows: int | None) -> None:
        self.name, self.path, self._file = path.name, path, path
        try:
            with path.open("rb") as file:
                npy_format.read_magic(file)  # else an archive or a pickle under this name would be loaded
            # Reads the header only, and compares what it announces with the size of the file.
            array: np.memmap[Any, Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        except FileNotFoundError:
            raise
        except HEADER_FAULTS as error:
            raise _errors.cannot_open(path.name, path, error) from error
        if array.ndim != 2:
            raise _errors.bad_shape(path.name, path, array.shape)
        working_type(array.dtype, path.name, path)
        self.n_rows, self.n_features = array.shape
        check_not_empty(self)
        self._by_rows, self._offset, self._type = bool(array.flags.c_contiguous), array.offset, array.dtype
        self._rows = rows_per_block(self.n_features, array.itemsize, batch_rows)

    def fingerprint(self) -> str:
        """Return kind, shape, number type, and the file's name, size and time."""
        return describe(self, "npy", self._type)

    def _blocks(self, row: int) -> Iterator[NDArray[Any]]:
        n_rows = self.n_rows or 0
        row_bytes = self.n_features * self._type.itemsize
        height = self._rows * max(1, RESIDENT_BYTES // (self._rows * row_bytes))
        while row < n_rows:
            stop = min(row + height, n_rows)
            yield from split(self._map(row, stop) if self._by_rows else self._gather(row, stop), self._rows)
            row = stop

    def _map(self, start: int, stop: int) -> NDArray[Any]:
        offset = self._offset + start * self.n_features * self._type.itemsize
        return np.asarray(np.memmap(self._file, self._type, "r", offset, (stop - start, self.n_features)))

    def _gather(self, start: int, stop: int) -> NDArray[Any]:
        # Stored by columns, a few rows are scattered over the whole file, and a mapping would bring in all that is near
        # them; so each column's part is read by itself.
        columns = np.empty((self.n_features, stop - start), self._type)
        with self._file.open("rb", buffering=0) as file:
            for number, column in enumerate(columns):
                file.seek(self._offset + (number * (self.n_rows or 0) + start) * self._type.itemsize)
                if file.readinto(column) != column.nbytes:
                    raise EOFError("the file ends too early")
        return np.ascontiguousarray(columns.T)
