"""Text tables: the reader of records that all of them share, and tables of texts, symbols and
answers.

A text table is well-formed CSV (RFC 4180, with commas, semicolons or tabs): cells that contain a
delimiter, a quote or a line break are in double quotes, a quote within them is doubled, and every
record has as many cells as there are columns. A record is one line, or several if a quoted cell
contains line breaks. Empty lines are not records; the empty cell of a table with one column is
written as ``""``. Lines of spaces are no records either, unless the table has one column: there
they are its cells.

Which text belongs to which record follows from this format alone. A program that writes well-formed
CSV quotes what a person has entered, so the number of records, and where each begins, do not depend
on what is in them. In a private run a file that is not well-formed is refused before anything is
released, and the error names no record.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, dropwhile
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from odeco._util.types import FloatArray, IndexArray
from odeco.errors import DocumentError
from odeco.io.source import NESTED_REMEDY, Selection, nested_columns
from odeco.io.urls import UrlPath, as_path

#: Between the cells of a record.
DELIMITERS = ",;\t"

#: The largest cell in characters, which may be a whole book; the default of the csv module is 128
#: KB.
_LARGEST_CELL = 2**30

#: A cell with one of these, in upper or lower case, is missing.
_MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "."))

_TABLES = (".csv", ".tsv")

#: Files of typed columns.
ARROW = (".parquet", ".arrow", ".feather")


# Records ------------------------------------------------------------------------------------------


class Record(NamedTuple):
    """A record of a text table: the line in which it begins, counted from 1, and its text, line
    breaks included.
    """

    line: int
    text: str

    @property
    def is_blank(self) -> bool:
        """Whether it is a line of spaces: a record of a table with one column only."""
        return not self.text.strip(" \r\n")


def read_records(lines: Iterable[str], delimiter: str) -> Iterator[Record]:
    """Yield the records of a table, and lines of spaces; raise `csv.Error` if a quoted cell is not
    well-formed.
    """
    iterator = iter(lines)
    number = 1
    for line in iterator:
        own = [line]
        if '"' in line:
            csv.field_size_limit(max(csv.field_size_limit(), _LARGEST_CELL))
            # the csv module takes as many further lines as the quoted cells of the record have
            try:
                next(
                    csv.reader(
                        chain([line], _collected(iterator, own)), delimiter=delimiter, strict=True
                    ),
                    None,
                )
            except csv.Error as error:
                raise csv.Error(
                    f"the record that begins in line {number:,} is not well-formed ({error})"
                ) from error
        if line.strip("\r\n"):
            yield Record(number, "".join(own))
        number += len(own)


def _collected(lines: Iterator[str], own: list[str]) -> Iterator[str]:
    for line in lines:
        own.append(line)
        yield line


def split_record(text: str, delimiter: str) -> list[str]:
    """Return the cells of a record."""
    if '"' not in text:
        return text.rstrip("\r\n").split(delimiter)
    return next(csv.reader([text], delimiter=delimiter, strict=True))


def is_missing(cell: str) -> bool:
    """Tell whether a cell of a text table stands for a missing value."""
    return cell.strip().lower() in _MISSING


def is_number(cell: str) -> bool:
    """Tell whether a cell is a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def find_delimiter(first: str, suffix: str = "") -> str:
    """Return the delimiter of a table: a tab in a ``.tsv`` file, else the most frequent one in the
    first record.
    """
    return "\t" if suffix == ".tsv" and "\t" in first else max(DELIMITERS, key=first.count)


def read_cells(
    lines: Iterable[str], name: str, suffix: str, *, private: bool = False
) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Return the names of the columns, and an iterator over the records below them: first line and
    cells.

    Parameters
    ----------
    lines : iterable of str
        The lines of the file, with their ends.
    name, suffix : str
        The name of the file in errors, and its suffix.
    private : bool
        Whether an error must not depend on a record.
    """
    iterator = iter(lines)
    lead = list[str]()
    for line in iterator:
        lead.append(line)
        if line.strip(" \r\n"):
            break
    delimiter = find_delimiter(lead[-1] if lead else "", suffix)
    found = read_records(chain(lead, iterator), delimiter)
    records: Iterator[Record] = dropwhile(lambda record: record.is_blank, found)
    with _well_formed(name, private):
        first = next(records, None)
        names = (
            [] if first is None else [cell.strip() for cell in split_record(first.text, delimiter)]
        )

    def rows() -> Iterator[tuple[int, list[str]]]:
        with _well_formed(name, private):
            own = (record for record in records if len(names) == 1 or not record.is_blank)
            for number, (line, text) in enumerate(own, 1):
                cells = split_record(text, delimiter)
                if len(cells) != len(names):
                    raise csv.Error(
                        f"row {number:,}, which begins in line {line:,}, has {len(cells):,} of "
                        f"{len(names):,} cells"
                    )
                yield line, cells

    return names, rows()


@contextmanager
def _well_formed(name: str, private: bool) -> Iterator[None]:
    """Turn a `csv.Error` into the error for a table that is not well-formed."""
    try:
        yield
    except csv.Error as error:
        raise (not_well_formed(name) if private else malformed(name, error)) from (
            None if private else error
        )


def malformed(name: str, error: object) -> DocumentError:
    """Return the error for a table that is not well-formed, with the record at fault."""
    return DocumentError(
        f"{name} must be well-formed CSV: quotes closed, and every row with as many cells as "
        f"there are columns. It is not: {error}. Fix the file."
    )


def not_well_formed(name: str) -> DocumentError:
    """Return the error for a private table that is not well-formed, which says nothing about its
    records.
    """
    return DocumentError(
        f"{name} must be well-formed CSV: quotes closed, and every row with as many cells as "
        "there are columns. It is not, and nothing was released. Write it again with a program "
        "that quotes cells. Which row is at fault is not said, because the run is private."
    )


def check_names(names: Sequence[str], name: str, values: Iterable[str] = ()) -> None:
    """Raise if the names of a private table look like a record, which would be published; the error
    quotes none.

    `values` are what cells may hold: answers, or symbols.
    """
    if (
        len(set(names)) < len(names)
        or not set(names).isdisjoint(values)
        or any(map(_looks_like_data, names))
    ):
        raise DocumentError(
            f"The first record of {name} must hold names of columns: all different, and no "
            "number, date or value of a cell among them. It looks like data, and nothing was "
            "released. Write a line of names above the records, or state that there is none. "
            "What it holds is not said, because the run is private."
        )


def _looks_like_data(cell: str) -> bool:
    """Tell whether a cell is a number, a date or a missing value; an index column has an empty
    name.
    """
    if not cell:
        return False
    if is_missing(cell) or (any(map(str.isdigit, cell)) and not any(map(str.isalpha, cell))):
        return True
    for parse in (float, datetime.fromisoformat):
        with suppress(ValueError):
            parse(cell)
            return True
    return False


# Files --------------------------------------------------------------------------------------------


def kind_of(path: Path) -> str:
    """Return the suffix of a file in small letters; if it is compressed with gzip, the one before
    ``.gz``.
    """
    return Path(path.name.lower().removesuffix(".gz")).suffix


def unpacked(file: Any, path: Path) -> Any:
    """Return an open file of bytes as it is or, if its name ends in ``.gz``, what it has
    compressed.
    """
    return gzip.GzipFile(fileobj=file) if path.name.lower().endswith(".gz") else file


@contextmanager
def open_text(path: Path, *, private: bool = False, newline: str = "") -> Iterator[IO[str]]:
    """Open a text file in UTF-8, or one that is compressed with gzip, for reading.

    In a private run bytes that are not UTF-8 are replaced, since an error would depend on a record.
    """
    errors = "replace" if private else "strict"
    store = path.watched() if isinstance(path, UrlPath) else nullcontext()
    with (
        store,
        text_errors(path.name),
        path.open("rb") as file,
        io.TextIOWrapper(
            unpacked(file, path), encoding="utf-8-sig", errors=errors, newline=newline
        ) as text,
    ):
        yield text


@contextmanager
def text_errors(name: str) -> Iterator[None]:
    """Turn what is raised while a damaged text file is read into an error that names the file."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise DocumentError(
            f"{name} must be UTF-8 text. It holds the byte 0x{error.object[error.start]:02x} out "
            "of place. Convert it, as with iconv -t UTF-8."
        ) from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DocumentError(
            f"{name} must be complete and undamaged. It is not: {error}. Make it again."
        ) from error


# Tables of texts ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TextTable:
    """A table of texts; a missing cell is None.

    Attributes
    ----------
    columns : list of str
        Their names.
    cells : array of objects, rows x columns
        Texts, or None.
    private : bool
        Whether errors name no column: without a line of names, its first record has their place.
    """

    columns: list[str]
    cells: np.ndarray[Any, Any]
    private: bool = False

    def column(self, name: str) -> np.ndarray[Any, Any]:
        """Return one column."""
        self._check_column(name)
        chosen: np.ndarray[Any, Any] = self.cells[:, self.columns.index(name)]
        return chosen

    def select(self, selection: Selection, path: Path) -> TextTable:
        """Return some columns of the table, which is that of a file."""
        if self.private:
            for name in (*(selection.columns or ()), *(selection.drop or ())):
                self._check_column(name)
        places = selection.places(self.columns, path.name, path)
        if places is None:
            return self
        return TextTable(
            [self.columns[place] for place in places], self.cells[:, places], self.private
        )

    def _check_column(self, name: str) -> None:
        if name not in self.columns:
            held = "the names in its first record" if self.private else ", ".join(self.columns)
            raise ValueError(f"A column must be one of {held}. Got {name!r}. Pass one of these.")


def read_text_table(path: Path, *, private: bool = False) -> TextTable:
    """Return a table of texts from a ``.csv``, ``.tsv``, ``.parquet``, ``.arrow`` or ``.feather``
    file with names.

    Of a private table, which is a ``.csv`` or ``.tsv`` file, the names and the number of records
    are public. What a record means depends on that record alone: a missing cell is None, and bytes
    that are not UTF-8 are replaced.
    """
    suffixes = _TABLES if private else (*_TABLES, *ARROW)
    kind = kind_of(path)
    if kind not in suffixes or (kind in ARROW and path.suffix.lower() != kind):
        raise ValueError(
            f"A {'private ' if private else ''}table must be in a {', '.join(suffixes)} file. Got "
            f"{path}. Write it as one of these."
        )
    if kind in ARROW:
        return _arrow_table(path)
    with open_text(path, private=private) as file:
        columns, records = read_cells(file, str(path), kind, private=private)
        stripped = ([cell.strip() for cell in row] for _, row in records)
        rows = [[None if is_missing(cell) else cell for cell in row] for row in stripped]
    if not rows or not columns:
        raise ValueError(
            f"{path} must have a line of names and at least one row. It has {len(rows)} rows. Add "
            "some."
        )
    if private:
        check_names(columns, path.name)
    cells = np.empty((len(rows), len(columns)), dtype=object)
    cells[:] = rows
    return TextTable(columns, cells, private)


def read_arrow(path: Path) -> Any:
    """Return the table of a ``.parquet``, ``.arrow`` or ``.feather`` file, of single values."""
    from pyarrow import ArrowException, feather, parquet  # optional

    try:
        with path.open("rb") as file:
            table = (parquet if path.suffix.lower() == ".parquet" else feather).read_table(file)
    except FileNotFoundError:
        raise
    except (ArrowException, OSError) as error:
        raise ValueError(
            f"{path} must be complete and undamaged. It is not: {error}. Make it again."
        ) from error
    for name, kind in nested_columns(table):
        raise ValueError(
            f"The columns of {path} must hold single values. Column {name!r} holds {kind}. "
            f"{NESTED_REMEDY}"
        )
    return table


def _arrow_table(path: Path) -> TextTable:
    table = read_arrow(path)
    cells = np.empty((table.num_rows, table.num_columns), dtype=object)
    for place, column in enumerate(table.columns):
        cells[:, place] = [
            None if value is None or value != value else str(value) for value in column.to_pylist()
        ]
    return TextTable(list(table.column_names), cells)


# Answers and sequences ----------------------------------------------------------------------------


def answers_named(text: str, columns: Sequence[str]) -> dict[str, list[str]]:
    """Return the possible answers to each question, as ``--answers`` names them.

    Parameters
    ----------
    text : str
        Answers with commas between them, the same for all questions; or a JSON file of an object
        that has a list of answers for each question.
    columns : sequence of str
        The questions of the table.
    """
    if not text.endswith(".json"):
        return dict.fromkeys(columns, _listed(text))
    with open_text(as_path(text)) as file:
        named = json.load(file)
    if not isinstance(named, dict) or not all(isinstance(own, list) for own in named.values()):
        raise ValueError(
            f'{text} must hold an object such as {{"question": ["yes", "no"]}}. It holds '
            f"something else."
        )
    return {name: [str(cell) for cell in own] for name, own in named.items()}


def symbols_named(text: str) -> list[str]:
    """Return the possible symbols that ``--symbols`` names: with commas between them, or a file
    with one per line.
    """
    if not text.endswith(".txt"):
        return _listed(text)
    with open_text(as_path(text)) as file:
        return [line.strip() for line in file if line.strip()]


def _listed(text: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([text], skipinitialspace=True), [])]


@dataclass(frozen=True, eq=False)
class SequenceOrder:
    """Which rows of a table form sequences.

    Attributes
    ----------
    permutation : array of int
        The rows in the order of sequences: those of the first sequence, then those of the second,
        and so on.
    lengths : array of int
        The number of rows of each sequence.
    """

    permutation: IndexArray
    lengths: IndexArray

    def restore(self, values: Any) -> Any:
        """Return values, one per row in the order of sequences, in the order of the table."""
        restored = np.empty_like(values)
        restored[self.permutation] = values
        return restored


def order_sequences(groups: Any, times: Any, n_rows: int) -> SequenceOrder:
    """Group rows by the names of their sequences, in the order of the table or of their times.

    Parameters
    ----------
    groups : array of texts or None
        The name of the sequence of each row; without it all rows are one sequence. Rows of one
        sequence need not be neighbours. Sequences are in the order of their first rows.
    times : array of texts or None
        The time of each row, numbers or ISO 8601 texts; without it rows of a sequence are in the
        order of the table.
    n_rows : int
        Number of rows.
    """
    number = np.zeros(n_rows, np.int64)
    if groups is not None:
        _, first, number = np.unique(
            _filled(groups, "sequence"), return_index=True, return_inverse=True
        )
        number = np.argsort(np.argsort(first))[number]
    keys = (number,) if times is None else (_as_times(_filled(times, "time")), number)
    return SequenceOrder(np.lexsort(keys), np.bincount(number))


def _filled(cells: Any, what: str) -> Any:
    """Return cells as an array of texts, or raise if one is missing."""
    if any(cell is None for cell in cells):
        place = next(number for number, cell in enumerate(cells, 1) if cell is None)
        raise ValueError(
            f"Every row must have a {what}. Row {place:,} has none. Give it one, or leave it out."
        )
    return np.asarray(cells, dtype=np.str_)


def _as_times(texts: Any) -> FloatArray:
    """Return times as numbers: as they are, or seconds. A time without a time zone is taken as
    UTC.
    """
    try:
        times: FloatArray = texts.astype(np.float64)
    except ValueError:
        try:
            parsed = [datetime.fromisoformat(text) for text in texts.tolist()]
        except ValueError as error:
            raise ValueError(
                f"Times must be numbers, or ISO 8601 texts. {error}. Convert the column."
            ) from error
        times = np.array(
            [(each if each.tzinfo else each.replace(tzinfo=UTC)).timestamp() for each in parsed]
        )
    if not np.isfinite(times).all():
        place = int(np.argmin(np.isfinite(times)))
        raise ValueError(
            f"Times must be finite. Got {texts[place]} in row {place + 1:,}. Fix it, or leave the "
            "row out."
        )
    return times


def number_symbols(symbols: Any) -> tuple[FloatArray, list[str]]:
    """Return symbols as whole numbers, NaN if they are missing, and the symbols in alphabetical
    order.
    """
    names = sorted({cell for cell in symbols if cell is not None})
    codes = {name: float(code) for code, name in enumerate(names)}
    return np.array([codes.get(cell, np.nan) for cell in symbols]), names
