"""Files of rows: their kinds by suffix, and several files read as one source."""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from odeco.errors import SourceError
from odeco.io import errors as _errors
from odeco.io.arrow import ArrowFile
from odeco.io.csv import CsvFile
from odeco.io.npy import NpyFile, NpzFile
from odeco.io.rows import row_slice
from odeco.io.source import ALL, Block, Selection, Source, Stamp
from odeco.io.svmlight import Extent, SvmlightFile, scan_svmlight

SVMLIGHT = (".svm", ".svmlight", ".libsvm")

SUFFIXES = (".npy", ".npz", ".parquet", ".arrow", ".feather", *SVMLIGHT, ".csv", ".tsv")


File = NpyFile | NpzFile | ArrowFile | SvmlightFile | CsvFile


def files_of(path: Path) -> list[Path]:
    """Return the path itself; for a directory, the data files in it; for a pattern, the files that match it."""
    if not path.is_dir():
        found = [] if path.exists() else sorted(_matching(path))
        return found or [path]
    # Names that begin with a dot or an underscore are hidden files and metadata.
    paths = sorted(entry for entry in path.iterdir() if not entry.name.startswith((".", "_")))
    if not paths:
        raise SourceError(
            f"The directory {path.name} must hold files of the kinds {', '.join(SUFFIXES)}. It holds none. "
            "Check the path.",
            path=path,
        )
    return paths


def _matching(pattern: Path) -> Iterator[Path]:
    """Yield the files that match a pattern; none if it is not a pattern."""
    parts = pattern.parts
    fixed = next((place for place, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    if fixed < len(parts):
        yield from Path(*parts[:fixed]).glob(str(Path(*parts[fixed:])))


def check_suffixes(paths: Sequence[Path]) -> None:
    """Raise if the suffix of a file is unknown, or if it is not a regular file."""
    for path in paths:
        if path.suffix.lower() not in SUFFIXES:
            path.stat()
            raise SourceError(
                f"The name of a data file must end in one of {', '.join(SUFFIXES)}. Got {path.name}. Rename or convert "
                "it; in a directory, move it elsewhere or pass the list of the files to read.",
                path=path,
            )
        if path.exists() and not path.is_file():  # reading a pipe or a device might never end
            raise _errors.cannot_open(path.name, path, "it is not a regular file")


def open_files(
    paths: Sequence[Path], batch_rows: int | None, n_features: int | None, selection: Selection = ALL
) -> Source:
    """Return the rows of some files, one file after the other. Every header is read now, before a long run."""
    check_suffixes(paths)
    # A svmlight file does not state its width, and may have no entry in the last columns: the width is that of all.
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
                # The number of rows is unknown until the file is read, and so is whether `row` lies in it.
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
    """Return the files that hold the rows from `start` to `stop`, and where in them; None if the rows are not in files.

    A file can be sent to another process, which opens it there and raises if it has changed.
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
    """Raise if two files cannot be read as one, by their headers only."""
    if first.n_features != other.n_features:
        what, has = "width", [f"{first.n_features:,} columns", f"{other.n_features:,}"]
    elif first.sparse != other.sparse:
        what, has = "kind", ["sparse rows" if file.sparse else "dense rows" for file in (first, other)]
    elif first.columns is not None and other.columns is not None and first.columns != other.columns:
        place = next(i for i, names in enumerate(zip(first.columns, other.columns, strict=True)) if len(set(names)) > 1)
        what = "their columns"
        has = [f"{first.columns[place]!r} in column {place}", f"{other.columns[place]!r}"]
    else:
        return
    raise SourceError(
        f"Files that are read together must agree in {what}. {first.name} has {has[0]}, but {other.name} has {has[1]}. "
        "Leave one out or make them alike.",
        path=other.path,
    )
