"""Dense rows in a text table of numbers."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from odeco.errors import SourceError
from odeco.io import errors as _errors
from odeco.io.source import ALL, Selection, Source, check_not_empty, describe, rows_per_block
from odeco.io.tables import Record, find_delimiter, read_records, split_record


class CsvFile(Source):
    """The rows of a CSV file (see `odeco.io.tables`), with or without a first record of names.

    Notes
    -----
    The first record holds names if none of its cells is a number. Names that are all numbers cannot be distinguished
    from a row; a record of both names and numbers is an error, so that no row is lost.
    """

    sparse: ClassVar[bool] = False
    _faults = (OSError, csv.Error)

    #: The number of cells in a record, and the positions of those that are read; None for all.
    _n_cells: int
    _places: list[int] | None = None

    def __init__(self, path: Path, batch_rows: int | None, selection: Selection = ALL) -> None:
        self.name, self.path, self._file = path.name, path, path
        try:
            first = next((line for line in self._lines() if line.strip()), "")
            self._delimiter = find_delimiter(first, path.suffix.lower())
            names, row = [*map(self._cells, islice(self._records(), 2)), [], []][:2]
        except FileNotFoundError:
            raise
        except self._faults as error:
            raise _errors.cannot_open(path.name, path, error) from error
        self._has_names = all(_as_number(cell) is None for cell in names)
        if not self._has_names:
            row = names
        if not row:
            raise _errors.no_rows(path.name, path, "no rows of numbers")
        self.n_features = self._n_cells = len(row)
        self.columns = tuple(names) if self._has_names and len(names) == len(row) else None
        self._places = selection.places(self.columns, path.name, path)
        if self._places is not None and self.columns is not None:
            self.columns = tuple(self.columns[place] for place in self._places)
            self.n_features = len(self.columns)
        check_not_empty(self)
        self._rows = rows_per_block(self.n_features, 8, batch_rows)

    def fingerprint(self) -> str:
        """Return kind, number of columns, which of them are read, and the name, size and time of the file."""
        return describe(self, "csv", *([] if self._places is None else self._places))

    def _lines(self) -> Iterator[str]:
        # Bytes that are not text become a character that is not a number, so that an error names the row.
        with self._file.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            yield from file

    def _records(self) -> Iterator[Record]:
        return read_records(self._lines(), self._delimiter)

    def _cells(self, record: Record) -> list[str]:
        return [cell.strip() for cell in split_record(record.text, self._delimiter)]

    def _blocks(self, row: int) -> Iterator[NDArray[Any]]:
        records = self._records()
        n_skipped = sum(1 for _ in islice(records, row + self._has_names)) - self._has_names
        if n_skipped < row:
            raise _errors.too_short(self.name, self.path, row, n_skipped)
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
            return None
        return rows if rows.shape == (len(texts), self.n_features) else None

    def _is_complete(self, text: str) -> bool:
        """Tell whether a record has all its cells: `numpy.loadtxt` does not miss a cell that is not read."""
        n_cells = len(split_record(text, self._delimiter)) if '"' in text else text.count(self._delimiter) + 1
        return n_cells == self._n_cells

    def _blame(self, records: list[Record], first_row: int) -> SourceError:
        """Return the error for the first of some records that is not a row of numbers."""
        for row, record in enumerate(records, start=first_row):
            cells, column = self._cells(record), None
            read = range(len(cells)) if self._places is None else self._places
            if len(cells) != self._n_cells:
                must = f"{self._n_cells:,} {'numbers' if self._places is None else 'fields'}"
                given = record.text.strip()
            elif wrong := [at for at, place in enumerate(read) if _as_number(cells[place]) is None]:
                must, given = "all numbers", cells[read[wrong[0]]]
                column = None if self.columns is None else self.columns[wrong[0]]
            else:
                continue
            return _errors.bad_line(self.name, self._file, row, record.line, must, given, column)
        # numpy.loadtxt rejects some numbers that Python accepts, such as 1_000.
        return _errors.cannot_read_on(self.name, self.path, first_row, "its lines are not numbers")


def _as_number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
