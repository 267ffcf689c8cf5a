"""Files by their names, and several files read as one."""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from odeco.io import errors as _errors
from odeco.io.arrow import ArrowFile
from odeco.io.columns import ALL, Selection
from odeco.io.csv import CsvFile
from odeco.io.npy import NpyFile, NpzFile
from odeco.io.rows import row_slice
from odeco.io.source import Block, Source, Stamp
from odeco.io.svmlight import Extent, SvmlightFile, scan_svmlight

SVMLIGHT = (".svm", ".svmlight", ".libsvm")

SUFFIXES = (".npy", ".npz", ".parquet", ".arrow", ".feather", *SVMLIGHT, ".csv", ".tsv")


File = NpyFile | NpzFile | ArrowFile | SvmlightFile | CsvFile


def open_path(path: Path, batch_rows: int | None, n_features: int | None, selection: Selection = ALL) -> Source:
    """Return the rows of a file, or of all files of a directory in the order of their names."""
    return open_files(files_of(path), batch_rows, n_features, selection)


def files_of(path: Path) -> list[Path]:
    """Return the path itself; of a directory, the data files in it; of a pattern, the files that it stands for."""
    if not path.is_dir():
        found = [] if path.exists() else sorted(_matching(path))
        return found or [path]
    # Names with a dot or an underscore in front belong to the file system and to those who wrote the directory.
    paths = sorted(entry for entry in path.iterdir() if not entry.name.startswith((".", "_")))
    if not paths:
        raise _errors.no_files(path, SUFFIXES)
    return paths


def _matching(pattern: Path) -> Iterator[Path]:
    """Yield the files that a pattern stands for; none if it is no pattern."""
    parts = pattern.parts
    fixed = next((place for place, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    if fixed < len(parts):
        yield from Path(*parts[:fixed]).glob(str(Path(*parts[fixed:])))


def check_suffixes(paths: Sequence[Path]) -> None:
    """Raise if the kind of a file is not known by its name."""
    for path in paths:
        if path.suffix.lower() not in SUFFIXES:
            path.stat()
            raise _errors.unknown_suffix(path, SUFFIXES)
        if path.exists() and not path.is_file():  # reading a pipe or a device might never end
            raise _errors.cannot_open(path.name, path, "it is no regular file")


def open_files(
    paths: Sequence[Path], batch_rows: int | None, n_features: int | None, selection: Selection = ALL
) -> Source:
    """Return the rows of some files, one file after the other. Every header is looked at now, before a long run."""
    check_suffixes(paths)
    # A svmlight file does not state its width, and may never use the last columns: look at all of them together.
    extents = {path: scan_svmlight(path) for path in paths if path.suffix.lower() in SVMLIGHT}
    files = [_open_file(path, batch_rows, _together(path, extents), n_features, selection) for path in paths]
    return files[0] if len(files) == 1 else FilesSource(files)


def _together(path: Path, extents: dict[Path, Extent]) -> Extent | None:
    if path not in extents:
        return None
    lowest = min((extent.lowest for extent in extents.values() if extent.lowest is not None), default=None)
    highest = max((extent.highest for extent in extents.values() if extent.highest is not None), default=None)
    return Extent(extents[path].n_rows, lowest, highest)


def _open_file(
    path: Path, batch_rows: int | None, extent: Extent | None, n_features: int | None, selection: Selection
) -> File:
    stamp = Stamp.of(path)
    file = _open_kind(path, batch_rows, extent, n_features, selection)
    file.stamp = stamp  # taken before anything was read, so that a change at any time after that is noticed
    return file


def _open_kind(
    path: Path, batch_rows: int | None, extent: Extent | None, n_features: int | None, selection: Selection
) -> File:
    suffix = path.suffix.lower()
    if suffix in (".csv", ".tsv"):
        return CsvFile(path, batch_rows, selection)
    if suffix in (".parquet", ".arrow", ".feather"):
        return ArrowFile(path, batch_rows, selection)
    selection.places(None, path.name, path)  # the columns of the others have no names
    if extent is not None:
        return SvmlightFile(path, batch_rows, extent, n_features)
    return NpyFile(path, batch_rows) if suffix == ".npy" else NpzFile(path, batch_rows)


class FilesSource(Source):
    """The rows of several files, one file after the other. Errors name the file and the row within it."""

    def __init__(self, files: list[File]) -> None:
        first = files[0]
        for file in files[1:]:
            check_alike(first, file)
        self.name = f"the {len(files):,} files"
        self.n_features, self.sparse = first.n_features, first.sparse
        self.columns = first.columns
        counts = [file.n_rows for file in files]
        known = [count for count in counts if count is not None]
        self.n_rows = sum(known) if len(known) == len(counts) else None
        self._files = files

    def fingerprint(self) -> str:
        """Return kind, shape, number of files, and a checksum of their fingerprints."""
        together = "\n".join(file.fingerprint() for file in self._files)
        digest = hashlib.sha256(together.encode()).hexdigest()[:16]
        rows = "?" if self.n_rows is None else self.n_rows
        return f"files:{rows}x{self.n_features}:{len(self._files)}:{digest}"

    def _blocks(self, row: int) -> Iterator[Any]:
        left = row
        for file in self._files:
            if file.n_rows is None:
                # Only reading tells how many rows the file has, and so whether to begin in it or behind it.
                for block in file:
                    n_rows = block.shape[0]
                    if left < n_rows:
                        yield row_slice(block, left, n_rows) if left else block
                    left = max(0, left - n_rows)
            elif left < file.n_rows:
                yield from file.iterate_from(left)
                left = 0
            else:
                left -= file.n_rows
        if left:
            raise _errors.too_short(self.name, None, row, row - left)

    def _checked(self, blocks: Iterator[Any], row: int) -> Iterator[Block]:  # noqa: ARG002 - every file has checked its own
        return blocks


def pieces_of(source: Any, start: int, stop: int) -> list[tuple[Source, int, int]] | None:
    """Return the files that hold the rows from `start` to `stop`, and where in them; None if the rows are in no files.

    A file can be sent to another process, which opens it there; it notices if the file is no longer as it was.
    """
    files = source._files if isinstance(source, FilesSource) else [source]
    pieces: list[tuple[Source, int, int]] = []
    first = 0
    for file in files:
        if not isinstance(file, File) or file.n_rows is None:
            return None
        begins, ends = max(start, first) - first, min(stop, first + file.n_rows) - first
        if begins < ends:
            pieces.append((file, begins, ends))
        first += file.n_rows
    return pieces


def check_alike(first: File, other: File) -> None:
    """Raise if two files cannot be read as one: by what their headers say, never by a row."""
    one, two = first.path or Path(), other.path or Path()
    if first.n_features != other.n_features:
        raise _errors.different_files("width", one, f"{first.n_features:,} columns", two, f"{other.n_features:,}")
    if first.sparse != other.sparse:
        kinds = {True: "sparse rows", False: "dense rows"}
        raise _errors.different_files("kind", one, kinds[first.sparse], two, kinds[other.sparse])
    if first.columns is not None and other.columns is not None and first.columns != other.columns:
        place = next(i for i, names in enumerate(zip(first.columns, other.columns, strict=True)) if len(set(names)) > 1)
        raise _errors.different_files(
            "their columns", one, f"{first.columns[place]!r} in column {place}", two, f"{other.columns[place]!r}"
        )
