"""Rows of files for private runs: no error, warning or shape depends on what is in a record.

The shape, the type and the number of records are public: they come from the format of a file, from
its header, or from the user. A record that is not valid counts as blank. The row that it becomes
depends on that record alone, so a change of one record changes one row.

**Neighbours** are two tables of the same columns and the same number of records that differ in one
record, not two files that differ in some bytes. A file is a way of writing a table down. For this
to be the same, the reader must find in the file of each table exactly its records, whatever is in
their cells. Binary formats store where a record is. In CSV a record is a line, or several if a
quoted cell contains line breaks, and a program that writes *well-formed* CSV (`odeco.io.tables`)
quotes every cell that contains a delimiter, a quote or a line break; then the reader recovers the
records for every content of the cells. That a file was written by such a program is a property of
the export, like its format, and public. A file that is not well-formed has no records in this
sense, so it is refused when it is opened, before anything is released, by an error that names no
record.
"""

from __future__ import annotations

import csv
import zlib
from collections.abc import Iterator, Sequence
from gzip import BadGzipFile
from itertools import dropwhile, islice
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from odeco._util.arguments import check_count
from odeco.errors import SourceError
from odeco.io.arrow import ArrowFile, Layout
from odeco.io.coerce import check_alike, check_suffixes, files_of
from odeco.io.errors import as_subject, source_error
from odeco.io.npy import NpyFile, NpzFile
from odeco.io.reading import cut_into
from odeco.io.rows import is_sparse, row_slice
from odeco.io.source import (
    Block,
    FileSource,
    Source,
    columns_beside_index,
    rows_per_block,
    working_type,
)
from odeco.io.tables import (
    Record,
    check_names,
    find_delimiter,
    kind_of,
    not_well_formed,
    read_records,
)
from odeco.io.text_rows import CsvFile

_CSV = (".csv", ".tsv")


def open_private(
    paths: Sequence[Path], *, n_features: int | None = None, header: bool | None = None
) -> PrivateRows:
    """Return the rows of files for a private run. What no header states must be given, since a
    record could change it.

    Parameters
    ----------
    paths : sequence of Path
        Files and directories of files, read in this order.
    n_features : int, optional
        The number of columns: needed for CSV without a first line of names.
    header : bool, optional
        For CSV, and needed there: whether the first record holds names. Names that look like data
        (numbers, dates, two that are equal) are refused: they would be published.

    Notes
    -----
    What is public, by format:

    * ``.npy``: the header, which states shape and type.
    * ``.npz``: the shape of the CSR matrix and the type of its numbers. How many numbers a row
      stores is part of it.
    * Parquet, Arrow, Feather: the names and types of the columns, the number of rows, how these are
      cut into groups.
    * CSV: that the file is well-formed (`odeco.io.tables`), its names if it has some, and the
      number of records. A first column whose name is empty is an index, and is left out. A record
      may have several lines if a quoted cell contains line breaks; empty lines are not records, and
      lines of spaces are only in a table of one column. The delimiter is the most frequent of
      comma, semicolon and tab among the names; without names it is the comma, and the tab for
      ``.tsv``.

    A cell that is not a number, an index outside of the columns, a null, NaN and infinity make a
    record that is not valid. A file that is damaged or, for CSV, not well-formed is refused by an
    error that names no row and quotes nothing; all of a CSV file is checked when it is opened.
    """
    named = [each for path in paths for each in files_of(path)]
    check_suffixes(named)
    width = None if n_features is None else check_count("n_features", n_features)
    kinds = {kind_of(path) for path in named}
    has_tables = bool(kinds & set(_CSV))
    if has_tables and header is None:
        raise ValueError(
            "`header` must be given for CSV files, whether the first record holds names: a "
            "private run does not learn it from records. Got None."
        )
    if header is not None and not has_tables:
        raise ValueError(
            f"`header` must go with CSV files. Got {header!r} and none of them. Leave it out."
        )
    if width is None and has_tables and not header:
        raise ValueError(
            "`n_features` must be given for CSV files without a header: a private run does not "
            "learn the number of columns from records. Got None. Pass the number that is known "
            "without them."
        )
    rows = PrivateRows([_open(path, width, header) for path in named])
    if width not in (None, rows.n_features):
        raise source_error(
            "width", named[0].name, named[0], 0, n_features=width, given=rows.n_features
        )
    return rows


@final
class PrivateRows:
    """The rows of files, read anew for every query and never held as a whole; no error depends on
    any of them.

    Attributes
    ----------
    n_rows, n_features : int
        Their number, and their width; public.
    columns : tuple of str or None
        The names of the columns, if they have names; public.
    sparse : bool
        Whether they are CSR.
    name : str
        Their name in errors.
    silent : bool
        That reading them never raises, warns or logs because of a value.
    """

    silent = True

    def __init__(self, files: Sequence[Any]) -> None:
        for file in files:
            check_alike(files[0], file)
            if file.n_rows is None:  # Arrow's stream format does not state it
                file.n_rows = sum(block.shape[0] for block in _read(file, 0))
        self._files: Sequence[Any] = files
        self.n_features: int = files[0].n_features
        self.columns: tuple[str, ...] | None = files[0].columns
        self.sparse: bool = files[0].sparse
        self.name = files[0].name if len(files) == 1 else f"the {len(files):,} files"
        self.n_rows = sum(file.n_rows for file in files)
        if self.n_rows == 0:
            raise source_error(
                "empty", self.name, files[0].path, what=f"0 rows and {self.n_features:,} columns"
            )

    def chunks(self, height: int) -> Iterator[Block]:
        """Start a fresh pass in chunks of exactly `height` rows; the last may have fewer."""
        return cut_into(self._blocks(), height)

    def _blocks(self) -> Iterator[Block]:
        for file in self._files:
            yield from read_silently(file, 0, file.n_rows)


def _open(path: Path, n_features: int | None, header: bool | None) -> Source:
    suffix = kind_of(path)
    if suffix in _CSV:
        return _PrivateCsvFile(path, n_features or 0, has_names=bool(header))
    if suffix == ".npy":
        return NpyFile(path, None)
    if suffix == ".npz":
        return NpzFile(path, None)
    return _PrivateArrowFile(path, None)


def read_silently(file: Source, start: int, stop: int) -> Iterator[Block]:
    """Yield the rows of a file from `start` to `stop`; no error depends on one of them."""
    row = start
    for block in _read(file, start):
        rows = _silenced(block, working_type(block.dtype, file.name, file.path))
        inside = stop < (file.n_rows or 0)
        yield row_slice(rows, 0, stop - row) if inside and stop - row < rows.shape[0] else rows
        row += rows.shape[0]
        if inside and row >= stop:
            return
    if row != stop:
        raise _damaged(file)


def _read(file: Source, row: int) -> Iterator[Any]:
    """Yield the blocks of a file. An error of the reader may quote a record, so another is
    raised.
    """
    faults: tuple[type[Exception], ...] = (SourceError, *file._faults)
    try:
        file._check_unchanged(row)
        for block in file._blocks(row):
            file._check_unchanged(row)
            yield block
    except faults:
        raise _damaged(file) from None


def _damaged(file: Source) -> SourceError:
    return SourceError(
        f"{as_subject(file.name)} must be complete, and stay as it is during a run. It is "
        "damaged, or was changed. Write or copy it again. The place of the damage is not named, "
        "because the run is private.",
        path=file.path,
    )


def _silenced(block: Any, dtype: np.dtype[Any]) -> Block:
    """Return a block in which rows with an index outside of the columns are NaN, and so count as
    blank later.
    """
    if not is_sparse(block):
        dense: Block = block.astype(dtype, copy=False)
        return dense
    data = block.data.astype(dtype, copy=False)
    indices = block.indices
    outside = (indices < 0) | (indices >= block.shape[1])
    if outside.any():
        data = np.where(outside, dtype.type(np.nan), data)
        indices = np.where(outside, 0, indices)
    return csr_array((data, indices, block.indptr), shape=block.shape)


class _PrivateArrowFile(ArrowFile):
    """A table whose nulls are read as NaN: a record with a null is not valid, and counts as
    blank.
    """

    nulls_are_nan = True

    def _find_lengths(self, layout: Layout) -> Layout:
        open_lists = [
            name for name, width in zip(layout.fields, layout.widths, strict=True) if width is None
        ]
        raise ValueError(
            "Lists in private rows must have a length that their type states. Column "
            f"{open_lists[0]!r} of {self.name} holds lists of any length, which only records "
            "show. Write it as a fixed_size_list."
        )


class _PrivateCsvFile(CsvFile):
    """A CSV file whose records with a cell that is not a number are NaN, and so count as blank."""

    _encoding = "utf-8"

    def __init__(self, path: Path, n_features: int, *, has_names: bool) -> None:
        FileSource.__init__(self, path)
        self._has_names = has_names
        self.columns = None
        self._n_cells = n_features
        self._delimiter = "\t" if kind_of(path) == ".tsv" else ","
        try:
            if has_names:
                first = next((line for line in self._lines() if line.strip()), "")
                self._delimiter = find_delimiter(first, kind_of(path))
                self.columns = tuple(
                    cell for record in islice(self._records(), 1) for cell in self._cells(record)
                )
                check_names(self.columns, path.name)
                n_features = len(self.columns)
            self.n_features = self._n_cells = n_features
            places = columns_beside_index(self.columns or ())
            if self.columns is not None and len(places) < n_features:
                self.columns = tuple(self.columns[place] for place in places)
                self.n_features = len(places)
                self._places = places
            widths = [self._is_complete(record.text) for record in self._records()]
        except csv.Error:
            raise not_well_formed(path.name) from None
        except (EOFError, zlib.error, BadGzipFile):
            raise _damaged(self) from None
        if not all(widths):
            raise not_well_formed(path.name)
        self.n_rows = len(widths) - has_names
        self._check_not_empty()
        self._rows = rows_per_block(self.n_features, 8, None)

    def _lines(self) -> Iterator[str]:
        for number, line in enumerate(super()._lines()):
            # A mark of the encoding is removed, unless it is all of a record: without it that would
            # be an empty line.
            marked = number == 0 and line.startswith("\ufeff") and line[1:].strip("\r\n")
            yield line[1:] if marked else line

    def _records(self) -> Iterator[Record]:
        # A table of one column may have a record of spaces: the number of records must not depend
        # on what is in one.
        records: Iterator[Record] = read_records(self._lines(), self._delimiter)
        if self._has_names:
            records = dropwhile(lambda record: record.is_blank, records)
        return (record for record in records if self._n_cells == 1 or not record.is_blank)

    def _parse(self, texts: list[str]) -> NDArray[np.float64]:
        filled = [text for text in texts if text.strip()]  # NumPy warns of lines without numbers
        block = super()._parse(texts) if len(filled) == len(texts) else None
        if block is not None:
            return block
        # Record by record with the same parser: a row must not depend on other records.
        each = [
            super(_PrivateCsvFile, self)._parse([text]) if text.strip() else None for text in texts
        ]
        missing = np.full((1, self.n_features), np.nan)
        return np.concatenate([missing if row is None else row for row in each])
