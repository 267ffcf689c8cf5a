"""Rows in text files: dense rows in tables of numbers, sparse rows in svmlight files.

A line of an svmlight file is ``label index:value index:value … # comment``; labels are not used.
"""

from __future__ import annotations

import csv
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from odeco.errors import SourceError
from odeco.io.errors import source_error
from odeco.io.source import ALL, BLOCK_BYTES, FileSource, Selection, Source, rows_per_block, split
from odeco.io.tables import Record, find_delimiter, is_missing, kind_of, read_records, split_record, unpacked

#: An error names at most this many columns.
_MAX_NAMED = 8


class CsvFile(FileSource):
    """The rows of a CSV file (see `odeco.io.tables`), plain or compressed, with or without a first record of names.

    Notes
    -----
    The first record holds names if none of its cells is a number. Names that are all numbers cannot be distinguished
    from a row, except for 0, 1, 2, …, which pandas writes where columns have no names, above a row that is not of whole
    numbers. A record of both names and numbers is an error, so that no row is lost.
    """

    _faults = (OSError, csv.Error, EOFError, zlib.error)  # the last two of gzip

    #: The number of cells in a record, and the positions of those that are read; None for all.
    _n_cells: int
    _places: list[int] | None = None
    _encoding = "utf-8-sig"

    def __init__(self, path: Path, batch_rows: int | None, selection: Selection = ALL) -> None:
        super().__init__(path)
        with self._opening():
            first = next((line for line in self._lines() if line.strip()), "")
            if "\0" in first:
                raise self.fault("damaged", reason="it has zero bytes, as UTF-16 has; convert it to UTF-8")
            self._delimiter = find_delimiter(first, kind_of(path))
            names, row = [*map(self._cells, islice(self._records(), 2)), [], []][:2]
        self._has_names = all(_as_number(cell) is None for cell in names) or _are_positions(names, row)
        if not self._has_names:
            row = names
        if not row:
            raise self.fault("empty", what="no rows of numbers")
        self.n_features = self._n_cells = len(row)
        self.columns = tuple(names) if self._has_names and len(names) == len(row) else None
        self._places = selection.places(self.columns, self.name, path)
        if self._places is not None and self.columns is not None:
            self.columns = tuple(self.columns[place] for place in self._places)
            self.n_features = len(self.columns)
        self._check_not_empty()
        self._rows = rows_per_block(self.n_features, 8, batch_rows)
        self._facts = ("csv", *(self._places or []))

    def _lines(self) -> Iterator[str]:
        # Bytes that are not text become a character that is not a number, so that an error names the row.
        with (
            self.path.open("rb") as file,
            TextIOWrapper(unpacked(file, self.path), encoding=self._encoding, errors="replace", newline="") as text,
        ):
            yield from text

    def _records(self) -> Iterator[Record]:
        return (record for record in read_records(self._lines(), self._delimiter) if not record.is_blank)

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
        chosen = [["nan" if is_missing(cells[at]) else cells[at] for at in places] for cells in records]
        try:
            return np.array(chosen).astype(np.float64)
        except ValueError:
            return None

    def _is_complete(self, text: str) -> bool:
        """Tell whether a record has all its cells: `numpy.loadtxt` does not miss a cell that is not read."""
        n_cells = len(split_record(text, self._delimiter)) if '"' in text else text.count(self._delimiter) + 1
        return n_cells == self._n_cells

    def _blame(self, records: list[Record], first_row: int) -> SourceError:
        """Return the error for the first of some records that is not a row of numbers."""
        for row, record in enumerate(records, start=first_row):
            cells, columns = self._cells(record), [""]
            read = range(len(cells)) if self._places is None else self._places
            if len(cells) != self._n_cells:
                must = f"{self._n_cells:,} {'numbers' if self._places is None else 'fields'}"
                given = record.text.strip()
            elif wrong := [at for at, place in enumerate(read) if self._is_wrong(cells[place])]:
                must, given = "all numbers", cells[read[wrong[0]]]
                columns = [""] if self.columns is None else [self.columns[at] for at in wrong]
            else:
                continue
            return _bad_line(self, row, record.line, must, given, columns)
        # numpy.loadtxt rejects some numbers that Python accepts, such as 1_000.
        return self.fault("damaged later", first_row, reason="its lines are not numbers")

    def _is_wrong(self, cell: str) -> bool:
        """Tell whether a cell is neither a number nor, where that is allowed, missing."""
        return _as_number(cell) is None and not (self.nulls_are_nan and is_missing(cell))


def _bad_line(
    source: Source, row: int, line: int, must: str, given: str, columns: Sequence[str] = ("",)
) -> SourceError:
    """Return the error for a line of a text file that is not a row; `columns` names those at fault."""
    shown = repr(given if len(given) <= 40 else given[:37] + "...")
    remedy = "Fix or drop the line"
    if columns[0]:
        named = ", ".join(map(repr, columns[:_MAX_NAMED])) + (" ..." if len(columns) > _MAX_NAMED else "")
        shown, remedy = f"{shown} in column {columns[0]!r}", f"{remedy}, or leave out {named} with `drop`,"
    return source.fault("line", row, line=line, must=must, given=shown, remedy=remedy)


def _are_positions(names: list[str], row: list[str]) -> bool:
    """Tell whether names are the positions 0, 1, 2, … of columns: the row below them is not of whole numbers."""
    counted = len(names) > 2 and names == [str(place) for place in range(len(row))]
    return counted and not all(cell.lstrip("+-").isdigit() for cell in row)


def _as_number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


_SPACES = bytes.maketrans(b" \t\r\f\v", b"\n\n\n\n\n")

_MUST = "'label index:value index:value …' with indices that rise"


@dataclass(frozen=True)
class Extent:
    """The number of rows of a file, and its smallest and largest index; the format states no width."""

    n_rows: int
    lowest: int | None
    highest: int | None


class SvmlightFile(FileSource):
    """The rows of a svmlight (libsvm) file.

    Parameters
    ----------
    path : Path
        The file.
    batch_rows : int or None
        Largest number of rows in a block.
    extent : Extent
        What `scan_svmlight` found, in this file or in all files that are read together: indices start at 0 if any is
        0, else at 1.
    n_features : int, optional
        Number of columns, if it is more than the largest index shows.

    Notes
    -----
    The text is cut at line ends into pieces of about 4 MB, which `numpy.loadtxt` parses: four million pairs a second,
    1.5 times as many as scikit-learn's reader, with one piece in memory at a time.
    """

    sparse: ClassVar[bool] = True
    _faults = (OSError,)
    _facts = ("svmlight",)

    def __init__(self, path: Path, batch_rows: int | None, extent: Extent, n_features: int | None = None) -> None:
        super().__init__(path)
        self.n_rows, self._batch_rows = extent.n_rows, batch_rows
        self._base = 0 if extent.lowest == 0 else 1
        self.n_features = n_features or (0 if extent.highest is None else extent.highest + 1 - self._base)
        self._check_not_empty()

    def _blocks(self, row: int) -> Iterator[Any]:
        return self._after(self._from_start(row), row)

    def _from_start(self, unread: int) -> Iterator[Any]:
        row = 0
        for line, text in text_pieces(self.path):
            rows = self._rows(text)
            if not rows:
                continue
            if row + len(rows) <= unread:  # these rows are skipped, so they need not be parsed
                yield csr_array((len(rows), self.n_features))
            else:
                yield from split(self._parse(rows, row, line), self._batch_rows or len(rows))
            row += len(rows)

    def _rows(self, text: bytes) -> list[Row]:
        return [row for row in split_lines(text) if row[1]]

    def _parse(self, rows: list[Row], first_row: int, first_line: int) -> Any:
        pairs = parse_rows(rows)
        if pairs is None:
            raise self._blame(rows, first_row, first_line)
        return self._as_csr(rows, pairs)

    def _as_csr(self, rows: list[Row], pairs: NDArray[np.float64]) -> Any:
        indices = pairs[:, 0].astype(np.int64) - self._base
        return csr_array((pairs[:, 1].copy(), indices, _pointers(rows)), shape=(len(rows), self.n_features))

    def _blame(self, rows: list[Row], first_row: int, first_line: int) -> SourceError:
        for row, (line, label, text) in enumerate(rows):
            if parse_rows(rows[row : row + 1]) is None:
                given = (label + b" " + text).decode("utf-8", "replace")
                return _bad_line(self, first_row + row, first_line + line, _MUST, given)
        return self.fault("damaged later", first_row, reason=f"its lines must be {_MUST}")


def scan_svmlight(path: Path) -> Extent:
    """Count the rows of a file and find its smallest and largest index, without parsing all of it."""
    n_rows = 0
    seen: list[int] = []
    try:
        for _, text in text_pieces(path):
            rows = [row for row in split_lines(text) if row[1]]
            n_rows += len(rows)
            for _, _, pairs in rows:
                # Indices rise along a line; if they do not, reading the line raises.
                last = pairs.rpartition(b":")[0].rsplit(None, 1)[-1:]
                seen += [int(index) for index in (pairs.partition(b":")[0], *last) if index.isdigit()]
            seen = [min(seen), max(seen)] if seen else []
    except FileNotFoundError:
        raise
    except OSError as error:
        raise source_error("damaged", path.name, path, reason=error) from error
    return Extent(n_rows, seen[0] if seen else None, seen[-1] if seen else None)


#: Number of the line within its piece (from 0), label (empty if the line is blank), and the text of the pairs.
Row = tuple[int, bytes, bytes]


def text_pieces(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the file in pieces of whole lines, each with the number of its first line, counted from 1."""
    line = 1
    with path.open("rb") as file:
        while text := file.read(BLOCK_BYTES):
            text += file.readline()
            yield line, text
            line += text.count(b"\n")


def split_lines(text: bytes) -> list[Row]:
    """Return every line of a piece, blank ones included, without comments."""
    rows = []
    comments = b"#" in text
    for number, line in enumerate(text.removesuffix(b"\n").split(b"\n")):
        fields = (line.partition(b"#")[0] if comments else line).split(None, 1)
        label, pairs = (*fields, b"", b"")[:2]
        if pairs.startswith(b"qid:"):
            pairs = b"".join(pairs.split(None, 1)[1:])
        rows.append((number, label, pairs))
    return rows


def parse_rows(rows: list[Row]) -> NDArray[np.float64] | None:
    """Return the pairs of all rows as an array of two columns, or None if a row is not valid."""
    if any(b":" in label for _, label, _ in rows):
        return None
    return _parse_pairs(b"\n".join(pairs for _, _, pairs in rows), _pointers(rows))


def _pointers(rows: list[Row]) -> NDArray[np.int64]:
    counts = [pairs.count(b":") for _, _, pairs in rows]
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def _parse_pairs(text: bytes, pointers: NDArray[np.int64]) -> NDArray[np.float64] | None:
    """Return the pairs in a text, or None if one of them is not valid."""
    if not pointers[-1]:
        return None if text.strip() else np.empty((0, 2))
    try:
        # With one pair per line, loadtxt checks that each has one colon with a number on both sides.
        pairs = np.loadtxt(BytesIO(text.translate(_SPACES)), np.float64, comments=None, delimiter=":", ndmin=2)
    except ValueError:
        return None
    if pairs.shape != (pointers[-1], 2):
        return None
    indices = pairs[:, 0]
    rising = np.diff(indices) > 0
    starts = pointers[1:-1]
    rising[starts[(starts > 0) & (starts < len(pairs))] - 1] = True  # from one row to the next
    whole = (indices >= 0) & (indices == np.floor(indices)) & (indices < 2**53)
    return pairs if rising.all() and whole.all() else None
