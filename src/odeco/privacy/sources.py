"""Rows of files for private runs: no fact about the data is learnt from a record, and no word is said about one.

The shape, the type and the number of records are public: they come from the header of a file, or from the user, and
never from a record. A record that is not valid counts as a row of zeros. What it means depends on that record alone,
so one record moves one row, whatever it holds.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from odeco._util.arguments import check_count
from odeco.errors import SourceError
from odeco.io import errors as _errors
from odeco.io.arrow import ArrowFile
from odeco.io.csv import DELIMITERS, CsvFile
from odeco.io.files import SVMLIGHT, check_alike, check_suffixes, files_of
from odeco.io.npy import NpyFile, NpzFile
from odeco.io.reading import cut_into
from odeco.io.rows import is_sparse
from odeco.io.source import Block, Source, Stamp, check_not_empty, rows_per_block, working_type
from odeco.io.svmlight import Row, SvmlightFile, parse_rows, split_lines, stretches

_CSV = (".csv", ".tsv")

_BLANK: Row = (0, b"", b"")

_NO_PAIRS: NDArray[np.float64] = np.empty((0, 2))


def open_private(
    paths: Sequence[Path],
    *,
    n_features: int | None = None,
    first_index: int | None = None,
    header: bool | None = None,
) -> PrivateRows:
    """Return the rows of files for a private run; what a record could move must be given where no header states it.

    Parameters
    ----------
    paths : sequence of Path
        Files and directories of files, read in this order.
    n_features : int, optional
        The number of columns: needed for svmlight, and for CSV without a first line of names.
    first_index : {0, 1}, optional
        For svmlight, and needed there: the index of the first column.
    header : bool, optional
        For CSV, and needed there: whether the first line holds names.

    Notes
    -----
    What is public, by format:

    * ``.npy``: the header, which states shape and type.
    * ``.npz``: the shape of the CSR matrix and the type of its numbers. How many numbers a row stores is part of it.
    * Parquet, Arrow, Feather: the names and types of the columns, the number of rows, how these are cut into groups.
    * svmlight: the number of lines. Every line is a record, a blank one and a comment included.
    * CSV: the first line if it holds names, and the number of lines after it, each of which is a record. The separator
      is the most frequent of comma, semicolon and tab among the names; without names it is the comma, and the tab for
      ``.tsv``.

    A line that is no row of the width that was given, an index outside of the columns, a null, NaN and infinity make a
    record that is not valid. A file that is damaged (cut short, say) is an error that names no row and quotes nothing.
    """
    named = [each for path in paths for each in files_of(path)]
    check_suffixes(named)
    width = None if n_features is None else check_count("n_features", n_features)
    kinds = {path.suffix.lower() for path in named}
    _check_given("first_index", first_index, "the index of the first column", bool(kinds & set(SVMLIGHT)), "svmlight")
    _check_given("header", header, "whether the first line holds names", bool(kinds & set(_CSV)), "CSV")
    if width is None and kinds & {*SVMLIGHT, *(() if header else _CSV)}:
        raise ValueError(
            "`n_features` must be given for svmlight files and for CSV files without a header: a private run does not "
            "learn the number of columns from records. Got None. Pass the number that is known without them."
        )
    if first_index is not None:
        check_count("first_index", first_index, 0, 1)
    rows = PrivateRows([_open(path, width, first_index, header) for path in named])
    if width not in (None, rows.n_features):
        raise _errors.wrong_width(named[0].name, named[0], 0, width or 0, rows.n_features)
    return rows


@final
class PrivateRows:
    """The rows of files, read again for every question and never held as a whole; nothing is said about any of them.

    Attributes
    ----------
    n_rows, n_features : int
        How many there are, and their width; public.
    columns : tuple of str or None
        The names of the columns, if the files have them; public.
    silent : bool
        That reading them never raises, warns or logs because of a value.
    """

    silent = True

    def __init__(self, files: Sequence[Any]) -> None:
        for file in files[1:]:
            check_alike(files[0], file)
        self._files: Sequence[Source] = files
        self.n_features: int = files[0].n_features
        self.columns: tuple[str, ...] | None = files[0].columns
        counted = [file.n_rows if file.n_rows is not None else _count(file) for file in self._files]
        self.n_rows, self._counts = sum(counted), counted

    def chunks(self, height: int) -> Iterator[Block]:
        """Start a fresh pass in chunks of exactly `height` rows, the last perhaps of fewer."""
        return cut_into(self._blocks(), height)

    def _blocks(self) -> Iterator[Block]:
        for file, expected in zip(self._files, self._counts, strict=True):
            n_rows = 0
            for block in _read(file):
                n_rows += block.shape[0]
                yield _silenced(block, working_type(block.dtype, file.name, file.path))
            if n_rows != expected:
                raise _errors.damaged(file.name, file.path)


def _check_given(name: str, value: object, what: str, wanted: bool, kind: str) -> None:
    if wanted and value is None:
        raise ValueError(
            f"`{name}` must be given for {kind} files, {what}: a private run does not learn it from records. Got None."
        )
    if not wanted and value is not None:
        raise ValueError(f"`{name}` must go with {kind} files. Got {value!r} and none of them. Leave it out.")


def _open(path: Path, n_features: int | None, first_index: int | None, header: bool | None) -> Source:
    stamp = Stamp.of(path)
    file = _open_kind(path, n_features, first_index, header)
    file.stamp = stamp  # taken before anything was read, so that a change at any time after that is noticed
    return file


def _open_kind(path: Path, n_features: int | None, first_index: int | None, header: bool | None) -> Source:
    suffix = path.suffix.lower()
    if suffix in SVMLIGHT:
        return _PrivateSvmlightFile(path, n_features or 0, first_index or 0)
    if suffix in _CSV:
        return _PrivateCsvFile(path, n_features or 0, has_names=bool(header))
    if suffix == ".npy":
        return NpyFile(path, None)
    return NpzFile(path, None) if suffix == ".npz" else _PrivateArrowFile(path, None)


def _read(file: Source) -> Iterator[Any]:
    """Yield the blocks of a file. What reading raises may quote a record, so it is dropped."""
    faults: tuple[type[Exception], ...] = (SourceError, *file._faults)
    try:
        file._check_unchanged(0)
        for block in file._blocks(0):
            file._check_unchanged(0)
            yield block
    except faults:
        raise _errors.damaged(file.name, file.path) from None


def _count(file: Source) -> int:
    return sum(block.shape[0] for block in _read(file))


def _silenced(block: Any, dtype: np.dtype[Any]) -> Block:
    """Return a block whose rows with an index outside of its columns hold NaN, and so count as zeros later."""
    if not is_sparse(block):
        dense: Block = block.astype(dtype, copy=False)
        return dense
    data, indices = block.data.astype(dtype, copy=False), block.indices
    outside = (indices < 0) | (indices >= block.shape[1])
    if outside.any():
        data, indices = np.where(outside, dtype.type(np.nan), data), np.where(outside, 0, indices)
    return csr_array((data, indices, block.indptr), shape=block.shape)


class _PrivateArrowFile(ArrowFile):
    """A table whose nulls are read as NaN: such a record is not valid, and counts as zeros."""

    nulls_are_nan: ClassVar[bool] = True


class _PrivateSvmlightFile(SvmlightFile):
    """A svmlight file of which every line is a record; one that is no row counts as zeros."""

    def __init__(self, path: Path, n_features: int, first_index: int) -> None:
        self.name, self.path, self._file = path.name, path, path
        self.n_features, self._base, self._batch_rows = n_features, first_index, None
        self.n_rows = sum(text.removesuffix(b"\n").count(b"\n") + 1 for _, text in stretches(path))
        check_not_empty(self)

    def _rows(self, text: bytes) -> list[Row]:
        return split_lines(text)

    def _parse(self, rows: list[Row], first_row: int, first_line: int) -> Any:  # noqa: ARG002 - no row is named
        pairs = parse_rows(rows)
        if pairs is None:  # line by line with the same reader: what a line means must not depend on the others
            each = [parse_rows([row]) for row in rows]
            rows = [_BLANK if found is None else row for row, found in zip(rows, each, strict=True)]
            pairs = np.concatenate([_NO_PAIRS if found is None else found for found in each])
        return self._as_csr(rows, pairs)


class _PrivateCsvFile(CsvFile):
    """A CSV file of which every line, but for the first if it holds names, is a record; one that is no row is NaN."""

    def __init__(self, path: Path, n_features: int, *, has_names: bool) -> None:
        self.name, self.path, self._file = path.name, path, path
        self._has_names = has_names
        self._delimiter, self.n_features = "\t" if path.suffix.lower() == ".tsv" else ",", n_features
        self.columns = None
        lines = self._lines()
        if has_names:
            _, first = next(lines, (0, ""))
            self._delimiter = max(DELIMITERS, key=first.count)
            names = next(csv.reader([first], delimiter=self._delimiter), [])
            self.columns, self.n_features = tuple(name.strip() for name in names), len(names)
        self.n_rows = sum(1 for _ in lines)
        check_not_empty(self)
        self._rows = rows_per_block(self.n_features, 8, None)

    def _lines(self) -> Iterator[tuple[int, str]]:
        with self._file.open(encoding="utf-8-sig", errors="replace") as file:
            yield from enumerate(file, start=1)

    def _parse(self, lines: list[str]) -> NDArray[np.float64]:
        block = self._numbers(lines)
        if block is not None:
            return block
        # Line by line with the same reader: what a line means must not depend on the lines around it.
        each = [self._numbers([line]) for line in lines]
        missing = np.full((1, self.n_features), np.nan)
        return np.concatenate([missing if row is None else row for row in each])

    def _numbers(self, lines: list[str]) -> NDArray[np.float64] | None:
        """Return the numbers of some lines, or None if one of them is no row."""
        return super()._parse(lines) if all(line.strip() for line in lines) else None
