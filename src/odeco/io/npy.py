"""Rows in NumPy's formats: dense in ``.npy``, CSR in ``.npz`` (`scipy.sparse.save_npz`); and the
samples of ``.wav`` files. They are read in blocks.
"""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any, ClassVar

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray
from scipy.io import wavfile
from scipy.sparse import csr_array

from odeco.errors import SourceError
from odeco.io.arrays import RESIDENT_BYTES, rows_within
from odeco.io.errors import source_error
from odeco.io.source import FileSource, rows_per_block, split, working_type
from odeco.io.urls import UrlPath

#: What NumPy raises for a header that is cut short or is not a Python expression.
HEADER_FAULTS = (
    *(
        OSError,
        EOFError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        SyntaxError,
        TokenError,
    ),
    *(OverflowError, MemoryError, RecursionError),
)


def load_npy(path: Path) -> np.ndarray[Any, Any]:
    """Return the array in a ``.npy`` file, mapped into memory and never unpickled; read, if it is
    in an object store.

    Of a file that is mapped only the header is read, and its shape compared with the size of the
    file.
    """
    with path.open("rb") as file:
        try:
            npy_format.read_magic(
                file
            )  # np.load would also read an archive or a pickle of this name
            if isinstance(path, UrlPath):
                file.seek(0)
                return npy_format.read_array(file, allow_pickle=False)
            array: np.memmap[Any, Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        except HEADER_FAULTS as error:
            raise source_error("damaged", path.name, path, reason=error) from error
    return array


#: Shape, whether rows are stored one after the other, type, and the offset of the first number.
_Header = tuple[tuple[int, ...], bool, np.dtype[Any], int]


def _mapped_header(array: Any) -> _Header:
    return array.shape, bool(array.flags.c_contiguous), array.dtype, array.offset


def _read_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return the shape, whether columns are stored one after the other, and the type."""
    version = npy_format.read_magic(file)
    return (
        npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
    )(file)


def _stored_header(path: Path) -> _Header:
    """Read the header of a ``.npy`` object, and compare its shape with the size of the object."""
    with path.open("rb") as file:
        try:
            shape, by_columns, dtype = _read_header(file)
            if (
                dtype.hasobject
                or file.tell() + math.prod(shape) * dtype.itemsize > path.stat().st_size
            ):
                raise ValueError("it holds objects, or less than its header announces")
            return shape, not by_columns or len(shape) < 2 or min(shape) == 1, dtype, file.tell()
        except HEADER_FAULTS as error:
            raise source_error("damaged", path.name, path, reason=error) from error


class NpyFile(FileSource):
    """The rows of a ``.npy`` file, mapped into memory a few blocks at a time.

    Notes
    -----
    A mapping of the whole file would keep every page that was read in the resident size. A mapping
    of a few blocks is as fast, and its pages are freed with its last block. (Reading into a buffer
    takes about twice as long for blocks of 4 MB: the pages of every buffer are new to the process,
    and every number is copied.)
    """

    _faults = (OSError, ValueError, EOFError)

    def __init__(self, path: Path, batch_rows: int | None) -> None:
        super().__init__(path)
        header = (
            _stored_header(path) if isinstance(path, UrlPath) else _mapped_header(load_npy(path))
        )
        shape, self._by_rows, self._type, self._offset = header
        if len(shape) != 2:
            raise self.fault("shape", shape=shape)
        self.dtype = working_type(self._type, path.name, path)
        self.n_rows, self.n_features = shape
        self._check_not_empty()
        self._rows = rows_per_block(self.n_features, self._type.itemsize, batch_rows)
        self._facts = ("npy", self._type)

    def _blocks(self, row: int) -> Iterator[NDArray[Any]]:
        n_rows = self.n_rows or 0
        row_bytes = self.n_features * self._type.itemsize
        height = self._rows * max(1, RESIDENT_BYTES // (self._rows * row_bytes))
        while row < n_rows:
            stop = min(row + height, n_rows)
            yield from split(
                self._map(row, stop) if self._by_rows else self._gather(row, stop), self._rows
            )
            row = stop

    def _map(self, start: int, stop: int) -> NDArray[Any]:
        offset = self._offset + start * self.n_features * self._type.itemsize
        if isinstance(self.path, UrlPath):
            rows = np.empty((stop - start, self.n_features), self._type)
            file: Any
            with self.path.open("rb", buffering=0) as file:
                file.seek(offset)
                if file.readinto(rows.reshape(-1).view(np.uint8).data) != rows.nbytes:
                    raise EOFError("the file ends too early")
            return rows
        return np.asarray(
            np.memmap(self.path, self._type, "r", offset, (stop - start, self.n_features))
        )

    def _gather(self, start: int, stop: int) -> NDArray[Any]:
        # Stored by columns, a few rows are scattered over the whole file, and a mapping would read
        # the pages around each number; so the part of every column is read by itself.
        columns = np.empty((self.n_features, stop - start), self._type)
        file: Any  # of bytes that are not buffered
        with self.path.open("rb", buffering=0) as file:
            for number, column in enumerate(columns):
                file.seek(
                    self._offset + (number * (self.n_rows or 0) + start) * self._type.itemsize
                )
                if file.readinto(column) != column.nbytes:
                    raise EOFError("the file ends too early")
        return np.ascontiguousarray(columns.T)


_PARTS = ("data", "indices", "indptr")

_POINTERS_AT_A_TIME = 1 << 18

#: Bytes of the fixed header before an entry of a ZIP archive, and the offset in it of the lengths
#: of what follows.
_LOCAL_HEADER = 30
_LOCAL_LENGTHS = 26

#: The entry ``format``, one word, has at most this many bytes, its header included.
_MAX_FORMAT_BYTES = 1 << 10

#: A block may take this many bytes, or this multiple of the size of its file if that is more:
#: compressed zeros take a thousandth of their size, and a file of 2 MB must not take gigabytes.
_MAX_BLOCK_BYTES = 1 << 27
_MAX_INFLATION = 32


class NpzFile(FileSource):
    """The rows of a CSR matrix in a ``.npz`` file, compressed or not.

    The file must hold ``data``, ``indices``, ``indptr`` and ``shape``; a ``format``, if there is
    one, must be CSR.
    """

    sparse: ClassVar[bool] = True
    # RuntimeError: a damaged archive may seem encrypted, or compressed by an unknown method.
    _faults = (*HEADER_FAULTS, zipfile.BadZipFile, zlib.error, RuntimeError)

    def __init__(self, path: Path, batch_rows: int | None) -> None:
        super().__init__(path)
        with (
            self._opening(),
            path.open("rb") as file,
            zipfile.ZipFile(file) as archive,
            ExitStack() as opened,
        ):
            self._check_parts(archive)
            self.n_rows, self.n_features = (
                int(size) for size in _Part(archive, "shape", opened).read(2)
            )
            data, indices, indptr = (_Part(archive, name, opened) for name in _PARTS)
        self._batch_rows = batch_rows
        self._file_size = path.stat().st_size
        self.dtype = working_type(data.dtype, path.name, path)
        self._check_not_empty()
        sizes = (indices.size, indptr.size)
        if sizes != (data.size, self.n_rows + 1) or {indices.dtype.kind, indptr.dtype.kind} - set(
            "iu"
        ):
            raise self.fault("damaged", reason="data, indices and indptr do not fit together")
        self._facts = ("npz", data.dtype, data.size)

    def _check_parts(self, archive: zipfile.ZipFile) -> None:
        held = {name.removesuffix(".npy") for name in archive.namelist()}
        if not held >= {*_PARTS, "shape"}:
            raise self.fault("not CSR", what=", ".join(sorted(held)) or "nothing")
        if "format" in held:
            if archive.getinfo("format.npy").file_size > _MAX_FORMAT_BYTES:
                raise ValueError("its format is not a word")
            with archive.open("format.npy") as file:
                kind = npy_format.read_array(file, allow_pickle=False).item()
            kind = kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)
            if kind != "csr":
                raise self.fault("not CSR", what=kind.upper())

    def _blocks(self, row: int) -> Iterator[Any]:
        with self.path.open("rb") as file, zipfile.ZipFile(file) as archive, ExitStack() as opened:
            data, indices, indptr = (_Part(archive, name, opened) for name in _PARTS)
            indptr.skip(row)
            pointers = indptr.read(1).astype(np.int64)
            if not 0 <= pointers[0] <= data.left or (row == 0 and pointers[0] != 0):
                raise self.fault("pointers", row)
            data.skip(int(pointers[0]))
            indices.skip(int(pointers[0]))
            while indptr.left or len(pointers) > 1:
                if len(pointers) <= _POINTERS_AT_A_TIME:
                    more = indptr.read(min(indptr.left, _POINTERS_AT_A_TIME))
                    pointers = np.concatenate([pointers, more.astype(np.int64)])
                rows = rows_within(pointers, self._batch_rows)
                stored = int(pointers[rows] - pointers[0])
                if (np.diff(pointers[: rows + 1]) < 0).any() or stored > data.left:
                    wrong = (np.diff(pointers) < 0) | (pointers[1:] - pointers[0] > data.left)
                    raise self.fault("pointers", row + int(np.argmax(wrong)))
                size = stored * (data.dtype.itemsize + indices.dtype.itemsize)
                if size > max(_MAX_BLOCK_BYTES, _MAX_INFLATION * self._file_size):
                    raise SourceError(
                        f"A row of {self.name} must not be far larger than its file. Row {row:,} "
                        f"takes {size:,} bytes, the file {self._file_size:,}. If that is right, "
                        "write the file without compression.",
                        path=self.path,
                        row=row,
                    )
                yield csr_array(
                    (data.read(stored), indices.read(stored), pointers[: rows + 1] - pointers[0]),
                    shape=(rows, self.n_features),
                )
                row = row + rows
                pointers = pointers[rows:]


class _Part:
    """One array of the archive, read from front to back."""

    def __init__(self, archive: zipfile.ZipFile, name: str, opened: ExitStack) -> None:
        self._stream: IO[bytes] = opened.enter_context(archive.open(f"{name}.npy"))
        shape, _, self.dtype = _read_header(self._stream)
        if len(shape) != 1 or self.dtype.kind not in "fiub":
            raise ValueError(f"{name} is not a plain array of numbers")
        self.size = self.left = shape[0]
        self._opened = opened
        place = _place_in_file(archive, f"{name}.npy")
        self._stored_at = None if place is None else (place[0], place[1] + self._stream.tell())
        if (
            self.size * self.dtype.itemsize
            != archive.getinfo(f"{name}.npy").file_size - self._stream.tell()
        ):
            raise ValueError(f"{name} announces {self.size:,} numbers, which is not what is there")

    def read(self, count: int) -> NDArray[Any]:
        buffer = self._stream.read(count * self.dtype.itemsize)
        if len(buffer) < count * self.dtype.itemsize:
            raise EOFError("the file ends too early")
        self.left -= count
        return np.frombuffer(buffer, self.dtype)

    def skip(self, count: int) -> None:
        if self._stored_at is not None and count:  # to skip, the archive would read
            name, start = self._stored_at
            self._stream = self._opened.enter_context(Path(name).open("rb"))  # noqa: SIM115 - closed with the others
            self._stream.seek(start + (self.size - self.left + count) * self.dtype.itemsize)
            self._stored_at = None
        else:
            self._stream.seek(count * self.dtype.itemsize, 1)
        self.left -= count


def _place_in_file(archive: zipfile.ZipFile, name: str) -> tuple[str, int] | None:
    """Return the file of an archive and the offset of an entry in it; None if the entry is
    compressed.
    """
    entry = archive.getinfo(name)
    path = archive.filename
    if path is None or entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
        return None
    with Path(path).open("rb") as file:
        file.seek(entry.header_offset + _LOCAL_LENGTHS)
        lengths = file.read(4)
    if len(lengths) < 4:
        return None
    return path, entry.header_offset + _LOCAL_HEADER + sum(
        int.from_bytes(lengths[i : i + 2], "little") for i in (0, 2)
    )


class WavFile(FileSource):
    """The samples of a ``.wav`` file: one row per moment, one column per channel."""

    _faults = (OSError, ValueError, EOFError, struct.error)

    def __init__(self, path: Path, batch_rows: int | None) -> None:
        super().__init__(path)
        with self._opening():
            self.rate, samples = wavfile.read(path)
        self._samples: NDArray[Any] = samples.reshape(len(samples), -1)
        self.n_rows, self.n_features = self._samples.shape
        self.columns = tuple(f"channel {number}" for number in range(self.n_features))
        self._check_not_empty()
        self._rows = rows_per_block(self.n_features, 8, batch_rows)
        self._facts = ("wav", self.rate)

    def _blocks(self, row: int) -> Iterator[NDArray[Any]]:
        yield from split(self._samples[row:], self._rows)
