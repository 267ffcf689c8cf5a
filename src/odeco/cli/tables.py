"""Tables that commands write as CSV, and how such a table, a page or an archive is known to be one
of odeco's.

A file of odeco's may be replaced without asking. A table is known by its heading: the first names
of a table of results, labels or topics; the last one of a table that goes on from columns of the
user's. The heading is read as CSV, whatever its length: what stands in a cell below it says
nothing.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path

from odeco._util.files import read_contents, replacing
from odeco.errors import FileFormatError

#: The first columns of tables of components, of labels, and of topics of groups of documents.
COMPONENTS = ("component", "weight")
LABELS = ("odeco row",)
GROUPS = ("group", "documents", "topic 0")

#: A number, which may begin with its sign.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")

#: The last column of labels, such as "odeco cluster 1".
_ADDED = re.compile(r"odeco [a-z]+ \d+")

#: The sign of a page, and the number of bytes at its beginning in which it must occur.
_PAGE = b'<meta name="generator" content="odeco">'
_PAGE_BYTES = 1024

#: The largest number of characters of a heading.
_LONGEST_HEADING = 1 << 22


def csv_cell(text: str) -> str:
    """Return a text for a CSV cell that no spreadsheet takes for a formula; numbers stay."""
    if _NUMBER.fullmatch(text):
        return text
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def csv_text(heading: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a table as CSV. No spreadsheet takes a text of the first column, or of the heading,
    for a formula.
    """
    return plain_csv_text(
        map(csv_cell, heading), ([csv_cell(str(first)), *rest] for first, *rest in rows)
    )


def plain_csv_text(heading: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a table as CSV whose cells stay as they are, as ids must."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(heading)
    writer.writerows(rows)
    return buffer.getvalue()


def write_text(path: Path, text: str, *, readable: bool = False) -> None:
    """Write a text file, atomically."""
    with replacing(path, readable=readable) as file:
        file.write(text.encode())


def was_written_by_odeco(path: str | os.PathLike[str]) -> bool:
    """Return whether a file may be replaced without asking: it is not there, is empty, or odeco
    wrote it.
    """
    file = Path(path)
    if not file.is_file() or file.stat().st_size == 0:
        return True
    if is_page(file) or _is_table(file):
        return True
    try:
        read_contents(file)
    except FileFormatError:
        return False
    return True


def is_page(file: Path) -> bool:
    """Return whether a file is a page that odeco wrote."""
    with file.open("rb") as opened:
        return _PAGE in opened.read(_PAGE_BYTES)


def _is_table(file: Path) -> bool:
    with file.open(encoding="utf-8-sig", errors="replace", newline="") as opened:
        start = io.StringIO(opened.read(_LONGEST_HEADING), newline="")
    records: list[list[str]] = []
    with suppress(csv.Error):
        records += islice(csv.reader(start), 2)
    heading = tuple(records[0]) if records else ()
    if heading[:2] == COMPONENTS:  # others have such a heading too; components are numbered from 0
        return len(records) == 1 or records[1][:1] == ["0"]
    begins = any(heading[: len(known)] == known for known in (LABELS, GROUPS))
    return begins or bool(heading and _ADDED.fullmatch(heading[-1]))
