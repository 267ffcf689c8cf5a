"""Rows in text files: tables of numbers."""

from __future__ import annotations

import csv
import zlib
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odeco.errors import SourceError
from odeco.io.source import ALL, FileSource, Selection, Source, rows_per_block
from odeco.io.tables import (
    Record,
    find_delimiter,
    is_missing,
    kind_of,
    read_records,
    split_record,
    unpacked,
)

#: An error names at most this many columns.
_MAX_NAMED = 8

#: Rows of a stream are handed out after this number of lines.
_ROWS_OF_A_STREAM = 256


class CsvFile(FileSource):
    """The rows of a CSV file (see `odeco.io.tables`), plain or compressed, with or without a first
    record of names.

    Notes
    -----
    The first record holds names if none of its cells is a number. Names that are all numbers cannot
    be distinguished from a row, except for 0, 1, 2, …, which pandas writes where columns have no
    names, above a row that is not of whole numbers. A record of both names and numbers is an error,
    so that no row is lost.
    """

    _faults = (OSError, csv.Error, EOFError, zlib.error)  # the last two of gzip

    #: The number of cells in a record, and the positions of those that are read; None for all.
    _n_cells: int
    _places: list[int] | None = None
    _encoding = "utf-8-sig"

    def __init__(self, path: Path, batch_rows: int | None, selection: Selection = ALL) -> None:
        super().__init__(path)
        self._begin(kind_of(path), batch_rows, selection)

    def _begin(self, kind: str, batch_rows: int | None, selection: Selection) -> None:
        """Read the first records, which give names, width and delimiter."""
        with self._opening():
            first = next((line for line in self._lines() if line.strip()), "")
            if "\0" in first:
                raise self.fault(
                    "damaged", reason="it has zero bytes, as UTF-16 has; convert it to UTF-8"
                )
            self._delimiter = find_delimiter(first, kind)
            names, row = [*map(self._cells, islice(self._records(), 2)), [], []][:2]
        self._has_names = all(_as_number(cell) is None for cell in names) or _are_positions(
            names, row
        )
        if not self._has_names:
            row = names
        if not row:
            raise self.fault("empty", what="no rows of numbers")
        self.n_features = self._n_cells = len(row)
        self.columns = tuple(names) if self._has_names and len(names) == len(row) else None
        self._places = selection.places(self.columns, self.name, self.path)
        if self._places is not None and self.columns is not None:
            self.columns = tuple(self.columns[place] for place in self._places)
            self.n_features = len(self.columns)
        self._check_not_empty()
        self._rows = rows_per_block(self.n_features, 8, batch_rows)
        self._facts = ("csv", *(self._places or []))

    def _lines(self) -> Iterator[str]:
        # Bytes that are not text become a character that is not a number, so that an error names
        # the row.
        with (
            self.path.open("rb") as file,
            TextIOWrapper(
                unpacked(file, self.path), encoding=self._encoding, errors="replace", newline=""
            ) as text,
        ):
            yield from text

    def _records(self) -> Iterator[Record]:
        return (
            record for record in read_records(self._lines(), self._delimiter) if not record.is_blank
        )

    def _cells(self, record: Record) -> list[str]:
        return [cell.strip() for cell in split_record(record.text, self._delimiter)]

    def _blocks(self, row: int) -> Iterator[NDArray[Any]]:
        records = self._records()
        n_skipped = sum(1 for _ in islice(records, row + self._has_names)) - self._has_names
        if n_skipped < row:
            raise self.fault("short", n_skipped, wanted=row)
        while block := list(islice(records, self._rows)):
            rows = self._parse([record.text for record in block])
            if rows is None:
                raise self._blame(block, row)
            yield rows
            row += len(rows)

    def _parse(self, texts: list[str]) -> NDArray[np.float64] | None:
        """Return the numbers of some records, or None if one of them is not a row of numbers."""
        if self._places is not None and not all(map(self._is_complete, texts)):
            return None
        try:
            rows = np.loadtxt(
                *(texts, np.float64),
                comments=None,
                delimiter=self._delimiter,
                usecols=self._places,
                ndmin=2,
                quotechar='"',
            )
        except ValueError:
            return self._parse_cells(texts) if self.nulls_are_nan else None
        return rows if rows.shape == (len(texts), self.n_features) else None

    def _parse_cells(self, texts: list[str]) -> NDArray[np.float64] | None:
        """Return the numbers of some records, cell by cell, with NaN for cells that are missing."""
        records = [split_record(text, self._delimiter) for text in texts]
        if any(len(cells) != self._n_cells for cells in records):
            return None
        places = range(self._n_cells) if self._places is None else self._places
        chosen = [
            ["nan" if is_missing(cells[at]) else cells[at] for at in places] for cells in records
        ]
        try:
            return np.array(chosen).astype(np.float64)
        except ValueError:
            return None

    def _is_complete(self, text: str) -> bool:
        """Tell whether a record has all its cells: `numpy.loadtxt` does not miss a cell that is not
        read.
        """
        n_cells = (
            len(split_record(text, self._delimiter))
            if '"' in text
            else text.count(self._delimiter) + 1
        )
        return n_cells == self._n_cells

    def _blame(self, records: list[Record], first_row: int) -> SourceError:
        """Return the error for the first of some records that is not a row of numbers."""
        for row, record in enumerate(records, start=first_row):
            cells = self._cells(record)
            columns = [""]
            read = range(len(cells)) if self._places is None else self._places
            if len(cells) != self._n_cells:
                must = f"{self._n_cells:,} {'numbers' if self._places is None else 'fields'}"
                given = record.text.strip()
            elif wrong := [at for at, place in enumerate(read) if self._is_wrong(cells[place])]:
                must = "all numbers"
                given = cells[read[wrong[0]]]
                columns = [""] if self.columns is None else [self.columns[at] for at in wrong]
            else:
                continue
            return _bad_line(self, row, record.line, must, given, columns)
        # numpy.loadtxt rejects some numbers that Python accepts, such as 1_000.
        return self.fault("damaged later", first_row, reason="its lines are not numbers")

    def _is_wrong(self, cell: str) -> bool:
        """Tell whether a cell is neither a number nor, where that is allowed, missing."""
        return _as_number(cell) is None and not (self.nulls_are_nan and is_missing(cell))


class CsvStream(CsvFile):
    """The rows of lines of CSV that arrive, such as those of the standard input: read once.

    Parameters
    ----------
    lines : iterator of str
        The lines. It may never end.
    name : str
        What errors call them.
    """

    path = None  # type: ignore[assignment]
    repeatable = False
    identified = False

    def __init__(self, lines: Iterator[str], name: str, selection: Selection = ALL) -> None:
        self.name = name
        self._arriving = lines
        self._read: list[str] = []
        self._is_beginning = True
        self._begin("", _ROWS_OF_A_STREAM, selection)
        self._is_beginning = False

    def _lines(self) -> Iterator[str]:
        yield from tuple(self._read)
        if not self._is_beginning:
            self._read.clear()
        for line in self._arriving:
            if self._is_beginning:
                self._read.append(line)
            yield line

    def _blocks(self, row: int) -> Iterator[NDArray[Any]]:
        if self._is_used:
            raise self.fault("already read")
        self._is_used = True
        return super()._blocks(row)

    _is_used = False


def _bad_line(
    source: Source, row: int, line: int, must: str, given: str, columns: Sequence[str] = ("",)
) -> SourceError:
    """Return the error for a line of a text file that is not a row; `columns` names those at
    fault.
    """
    shown = repr(given if len(given) <= 40 else given[:37] + "...")
    remedy = "Fix or drop the line"
    if columns[0]:
        named = ", ".join(map(repr, columns[:_MAX_NAMED])) + (
            " ..." if len(columns) > _MAX_NAMED else ""
        )
        shown = f"{shown} in column {columns[0]!r}"
        remedy = f"{remedy}, or leave out {named} with `drop`,"
    return source.fault("line", row, line=line, must=must, given=shown, remedy=remedy)


def _are_positions(names: list[str], row: list[str]) -> bool:
    """Tell whether names are the positions 0, 1, 2, … of columns: the row below them is not of
    whole numbers.
    """
    counted = len(names) > 2 and names == [str(place) for place in range(len(row))]
    return counted and not all(cell.lstrip("+-").isdigit() for cell in row)


def _as_number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
