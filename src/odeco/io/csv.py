"""Dense rows in a text file of numbers between commas, semicolons or tabs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from odeco.errors import SourceError
from odeco.io import errors as _errors
from odeco.io.columns import ALL, Selection
from odeco.io.source import Source, check_not_empty, describe, rows_per_block

DELIMITERS = ",;\t"


class CsvFile(Source):
    """The rows of a CSV file, with or without a first line of names.

    Notes
    -----
    The first line that is not blank holds names if none of its fields is a number; names that are all numbers
    cannot be told from a row, and a line of both is an error rather than a row lost. The delimiter is the most
    frequent of comma, semicolon and tab in that line. Blank lines are passed over.
    """

    sparse: ClassVar[bool] = False
    _faults = (OSError,)

    #: How many fields a line has, and which of them are read; None stands for all.
    _n_fields: int
    _places: list[int] | None = None

    def __init__(self, path: Path, batch_rows: int | None, selection: Selection = ALL) -> None:
        self.name, self.path, self._file = path.name, path, path
        first, second = "", ""
        try:
            lines = (line for _, line in self._lines())
            first, second = next(lines, ""), next(lines, "")
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _errors.cannot_open(path.name, path, error) from error
        self._delimiter = max(DELIMITERS, key=first.count)
        fields = self._fields(first)
        self._has_names = all(_as_number(field) is None for field in fields)
        if not (second if self._has_names else first):
            raise _errors.no_rows(path.name, path, "no rows of numbers")
        self.n_features = self._n_fields = len(self._fields(second)) if self._has_names else len(fields)
        # A name in quotes may hold the delimiter; then the names are not known, which matters to no row.
        self.columns = tuple(fields) if self._has_names and len(fields) == self._n_fields else None
        self._places = selection.places(self.columns, path.name, path)
        if self._places is not None and self.columns is not None:
            self.columns = tuple(self.columns[place] for place in self._places)
            self.n_features = len(self.columns)
        check_not_empty(self)
        self._rows = rows_per_block(self.n_features, 8, batch_rows)

    def fingerprint(self) -> str:
        """Return kind, number of columns, which of them are read, and the file's name, size and time."""
        return describe(self, "csv", *([] if self._places is None else self._places))

    def _lines(self) -> Iterator[tuple[int, str]]:
        # Bytes that are no text become signs that are no number, so that the row is named and not a byte's position.
        with self._file.open(encoding="utf-8-sig", errors="replace") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line

    def _blocks(self, row: int) -> Iterator[NDArray[Any]]:
        lines = self._lines()
        n_skipped = sum(1 for _ in islice(lines, row + self._has_names)) - self._has_names
        if n_skipped < row:
            raise _errors.too_short(self.name, self.path, row, n_skipped)
        while numbered := list(islice(lines, self._rows)):
            block = self._parse([line for _, line in numbered])
            if block is None:
                raise self._blame(numbered, row)
            yield block
            row += len(block)

    def _parse(self, lines: list[str]) -> NDArray[np.float64] | None:
        if self._places is not None and not all(map(self._is_whole, lines)):
            return None
        try:
            block = np.loadtxt(
                *(lines, np.float64),
                comments=None,
                delimiter=self._delimiter,
                usecols=self._places,
                ndmin=2,
                quotechar='"',
            )
        except ValueError:
            return None
        return block if block.shape == (len(lines), self.n_features) else None

    def _is_whole(self, line: str) -> bool:
        """Tell whether a line has all its fields: of those that are not read NumPy would miss none."""
        return line.count(self._delimiter) == self._n_fields - 1 or '"' in line

    def _blame(self, numbered: list[tuple[int, str]], first_row: int) -> SourceError:
        for row, (number, line) in enumerate(numbered, start=first_row):
            fields, column = self._fields(line), None
            read = range(len(fields)) if self._places is None else self._places
            if len(fields) != self._n_fields:
                must, given = f"{self._n_fields:,} {'numbers' if self._places is None else 'fields'}", line.strip()
            elif wrong := [at for at, place in enumerate(read) if _as_number(fields[place]) is None]:
                must, given = "all numbers", fields[read[wrong[0]]]
                column = None if self.columns is None else self.columns[wrong[0]]
            else:
                continue
            return _errors.bad_line(self.name, self._file, row, number, must, given, column)
        # NumPy is stricter than we are in some detail: then the whole block is at fault.
        return _errors.cannot_read_on(self.name, self.path, first_row, "its lines are not numbers")

    def _fields(self, line: str) -> list[str]:
        return [field.strip().strip('"') for field in line.rstrip("\r\n").split(self._delimiter)]


def _as_number(field: str) -> float | None:
    try:
        return float(field)
    except ValueError:
        return None
