"""Tables of texts that ``odeco learn`` reads: answers, and sequences of symbols."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

#: A cell that holds one of these, in whatever case, has no answer.
_MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "."))

_TABLES, _ARROW = (".csv", ".tsv"), (".parquet", ".arrow", ".feather")


@dataclass(frozen=True, eq=False)
class TextTable:
    """A table of texts; None is a cell that holds nothing.

    Attributes
    ----------
    columns : list of str
        Their names.
    cells : array of objects, rows x columns
        Texts, or None.
    """

    columns: list[str]
    cells: np.ndarray[Any, Any]

    def column(self, name: str) -> np.ndarray[Any, Any]:
        """Return one column."""
        if name not in self.columns:
            raise ValueError(f"A column must be one of {', '.join(self.columns)}. Got {name!r}. Pass one of these.")
        chosen: np.ndarray[Any, Any] = self.cells[:, self.columns.index(name)]
        return chosen

    def without(self, names: Sequence[str]) -> TextTable:
        """Return the table without some columns."""
        for name in names:
            self.column(name)
        kept = [place for place, name in enumerate(self.columns) if name not in names]
        return TextTable([self.columns[place] for place in kept], self.cells[:, kept])

    def only(self, names: Sequence[str]) -> TextTable:
        """Return some columns of the table, in the order in which they are named."""
        return TextTable(list(names), np.stack([self.column(name) for name in names], axis=1))


def read_text_table(path: Path) -> TextTable:
    """Return a table of texts from a ``.csv``, ``.tsv``, ``.parquet``, ``.arrow`` or ``.feather`` file with names."""
    if path.suffix in _ARROW:
        return _arrow_table(path)
    if path.suffix not in _TABLES:
        raise ValueError(
            f"A table must be in a {', '.join((*_TABLES, *_ARROW))} file. Got {path}. Write it as one of these."
        )
    lines = _lines(path)
    columns = [name.strip() for name in next(lines, [])]
    rows = [_cells(line) for line in lines]
    for number, row in enumerate(rows, 1):
        if len(row) != len(columns):
            raise ValueError(
                f"Row {number:,} of {path} must have {len(columns):,} cells, as its first line has names. It has "
                f"{len(row):,}. Mend the row."
            )
    if not rows or not columns:
        raise ValueError(f"{path} must have a line of names and a row at least. It has {len(rows)} rows. Add some.")
    cells = np.empty((len(rows), len(columns)), dtype=object)
    cells[:] = rows
    return TextTable(columns, cells)


def _lines(path: Path) -> Iterator[list[str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        first = file.readline()
        file.seek(0)
        yield from (line for line in csv.reader(file, delimiter=_delimiter_in(first)) if line)


def _delimiter_in(names: str) -> str:
    return max(",;\t", key=names.count)


def read_private_table(path: Path) -> TextTable:
    """Return a table of texts from a ``.csv`` or ``.tsv`` file with names, without a word about any row.

    The first line is public, and so is the number of lines after it. Each of these is a respondent, a blank one
    included, and what it means depends on that line alone: one that is no row of the table has no answers.
    """
    if path.suffix not in _TABLES:
        raise ValueError(f"A private table must be in a {' or '.join(_TABLES)} file. Got {path}. Write it as one.")
    text = path.read_bytes().decode("utf-8-sig", errors="replace")
    # Not splitlines: it ends lines at characters that a cell may hold.
    first, *lines = text.removesuffix("\n").split("\n")
    delimiter = _delimiter_in(first)
    columns = [name.strip() for name in next(csv.reader([first], delimiter=delimiter), [])]
    if not lines or not columns:
        raise ValueError(f"{path} must have a line of names and a row at least. It has {len(lines)} rows. Add some.")
    cells = np.empty((len(lines), len(columns)), dtype=object)
    for number, line in enumerate(lines):
        cells[number] = _private_row(line, delimiter, len(columns))
    return TextTable(columns, cells)


def _private_row(line: str, delimiter: str, width: int) -> list[str | None]:
    try:
        row = next(csv.reader([line.removesuffix("\r")], delimiter=delimiter), [])
    except csv.Error:
        row = []
    return _cells(row) if len(row) == width else [None] * width


def _cells(row: list[str]) -> list[str | None]:
    return [None if cell.strip().lower() in _MISSING else cell.strip() for cell in row]


def answers_named(text: str, columns: Sequence[str]) -> dict[str, list[str]]:
    """Return the possible answers to each question, as ``--answers`` names them.

    Parameters
    ----------
    text : str
        Answers with commas between them, the same for all questions; or a JSON file of an object that has a list of
        answers for each question.
    columns : sequence of str
        The questions of the table.
    """
    if not text.endswith(".json"):
        own = [cell.strip() for cell in next(csv.reader([text], skipinitialspace=True), [])]
        return dict.fromkeys(columns, own)
    named = json.loads(Path(text).read_text(encoding="utf-8"))
    if not isinstance(named, dict) or not all(isinstance(own, list) for own in named.values()):
        raise ValueError(f'{text} must hold an object such as {{"question": ["yes", "no"]}}. It holds something else.')
    return {name: [str(cell) for cell in own] for name, own in named.items()}


def _arrow_table(path: Path) -> TextTable:
    from pyarrow import feather, parquet  # type: ignore[import-untyped]  # optional

    table = parquet.read_table(path) if path.suffix == ".parquet" else feather.read_table(path)
    cells = np.empty((table.num_rows, table.num_columns), dtype=object)
    for place, column in enumerate(table.columns):
        cells[:, place] = [None if value is None or value != value else str(value) for value in column.to_pylist()]
    return TextTable(list(table.column_names), cells)


@dataclass(frozen=True, eq=False)
class Sequences:
    """Sequences of symbols, one after the other.

    Attributes
    ----------
    symbols : array of int
        The number of each symbol, in the order of `names`.
    lengths : array of int
        How many symbols each sequence has.
    names : list of str
        What the symbols are.
    """

    symbols: np.ndarray[Any, Any]
    lengths: np.ndarray[Any, Any]
    names: list[str]


def sequences_of(symbols: Any, groups: Any) -> Sequences:
    """Return symbols as numbers, cut where the group changes: neighbours of one group are one sequence."""
    if any(symbol is None for symbol in symbols):
        place = next(number for number, symbol in enumerate(symbols, 1) if symbol is None)
        raise ValueError(f"Every row must have a symbol. Row {place:,} has none. Give it one, or leave it out.")
    names, codes = np.unique(np.asarray(symbols, dtype=np.str_), return_inverse=True)
    return Sequences(codes, lengths_of(groups, codes.size), names.tolist())


def lengths_of(groups: Any, n_rows: int) -> np.ndarray[Any, Any]:
    """Return the lengths of runs of equal groups; one run of all rows without groups."""
    if groups is None:
        return np.array([n_rows])
    labels = np.asarray([str(group) for group in groups])
    borders = np.flatnonzero(labels[1:] != labels[:-1]) + 1
    return np.diff(np.concatenate([[0], borders, [n_rows]]))
