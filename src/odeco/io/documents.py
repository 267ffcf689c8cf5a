"""One document: what it says, and where it comes from.

Texts in a column of a Parquet file, some rows at a time.

Texts are read from files of lines, tables, JSON lines, Parquet, folders and the standard input, one at a time.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from odeco.errors import DocumentError


@dataclass(frozen=True)
class Text:
    """One document.

    Attributes
    ----------
    name : str
        Where the document comes from, such as ``reviews.txt, line 12``.
    text : str
        What the document says; it may be empty.
    """

    name: str
    text: str


#: So many rows are unpacked at a time.
_ROWS = 4096


def texts_in_parquet(path: Path, column: str, *, private: bool) -> Iterator[Text]:
    """Yield the texts of a column; one that is missing is an empty document. In a private run no name is said."""
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise ModuleNotFoundError(
            f"Reading {path.name} needs pyarrow. It is not installed. Run: pip install 'odeco[arrow]'.", name="pyarrow"
        ) from error
    with path.open("rb") as file:  # a missing file is no damaged one
        try:
            reader = parquet.ParquetFile(file, pre_buffer=False)
            _check_column(reader.schema_arrow, path.name, column, private)
            row = 0
            for batch in reader.iter_batches(_ROWS, columns=[column]):
                for text in _decoded(arrow, batch.column(0), private):
                    row += 1
                    yield Text(f"{path.name}, row {row}", text)
        except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
            fault = "" if private else f": {error}"
            raise DocumentError(
                f"{path.name} must be complete and undamaged. It is not{fault}. Make it again."
            ) from error


def _decoded(arrow: Any, column: Any, private: bool) -> Iterator[str]:
    """Yield the texts of a piece of a column; in a private run bytes that are no UTF-8 are replaced."""
    plain = column.dictionary_decode() if isinstance(column, arrow.DictionaryArray) else column
    for held in plain.cast(arrow.large_binary()).to_pylist():
        yield "" if held is None else held.decode("utf-8", "replace" if private else "strict")


def _check_column(schema: Any, name: str, column: str, private: bool) -> None:
    """Raise unless there is one column of that name, and it holds texts; its type is public, as its name is."""
    if list(schema.names).count(column) != 1:
        held = "not said, in a private run" if private else ", ".join(repr(each) for each in schema.names) or "none"
        raise DocumentError(
            f"{name} must have one column {column!r}. Its columns are {held}. Pass its name as `column`."
        )
    found = schema.field(column).type
    found = found.value_type if hasattr(found, "value_type") else found  # a dictionary of texts is as good
    if str(found) not in ("string", "large_string"):
        raise DocumentError(
            f"The column {column!r} of {name} must hold texts. It holds {found}. Pass another name as `column`."
        )


_LINES, _TABLES, _JSON, _PARQUET = (".txt", ".text"), (".csv", ".tsv"), (".jsonl", ".ndjson"), ".parquet"

#: The name of a file of text ends in one of these, and may have ``.gz`` after it.
SUFFIXES = (*_LINES, *_TABLES, *_JSON)

#: A cell of a table may be a whole book; the csv module stops at 128 KB unless told otherwise.
_LARGEST_CELL = 2**30

_NAME_IT = "Pass its name as `column`."


def read_documents(paths: Iterable[str | Path], *, column: str | None = None, private: bool = False) -> Iterator[Text]:
    r"""Yield the documents of some files, one after the other; no file is held in memory as a whole.

    Parameters
    ----------
    paths : paths
        Each is a ``.txt`` or ``.text`` file (one document a line, an empty line is an empty document), a ``.csv`` or
        ``.tsv`` table with a line of names, a ``.jsonl`` or ``.ndjson`` file of objects, any of these with ``.gz``
        after it, a ``.parquet`` file (a missing text is an empty document), a folder of ``.txt`` and ``.text`` files
        (one document a file, those of inner folders too), or ``-`` for the lines of the standard input. All are UTF-8.
    column : str, optional
        The column of tables and of Parquet, and the field of JSON objects that hold the text.
    private : bool
        Whether nothing may be learnt of a document but through noise. A line or row that is not valid is then an empty
        document, without a word: empty lines, rows with too few cells, lines that are no JSON object with a text.
        Bytes that are no UTF-8 are replaced. Every line of a table is a row of its own. So the number of documents is
        that of the lines, whatever they hold.

    Raises
    ------
    DocumentError
        The message names the file and the line that are at fault.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "notes.txt"
    ...     _ = path.write_text("the first\nthe second\n", encoding="utf-8")
    ...     [document.name for document in read_documents([path])]
    ['notes.txt, line 1', 'notes.txt, line 2']
    """
    for given in paths:
        if str(given) == "-":
            yield from _standard_input(private)
        elif Path(given).is_dir():
            yield from _folder(Path(given), private)
        else:
            yield from _file(Path(given), column, private)


def _standard_input(private: bool) -> Iterator[Text]:
    # The standard input has the encoding of the terminal; documents are UTF-8 wherever they come from.
    file = io.TextIOWrapper(sys.stdin.buffer, **_reading(private))
    try:
        with _faults("standard input"):
            yield from _lines(file, "standard input")
    finally:
        file.detach()


def _folder(folder: Path, private: bool) -> Iterator[Text]:
    paths = sorted(path for path in folder.rglob("*") if _kind(path) in _LINES and path.is_file())
    if not paths:
        raise DocumentError(
            f"The folder {folder} must hold files whose names end in {' or '.join(_LINES)}. It holds none. "
            "Check the path."
        )
    for path in paths:
        try:
            with _opened(path, private) as file:
                text = file.read()
        except DocumentError:
            if not private:  # a file is a document here, and what is wrong with one is not said
                raise
            text = ""
        yield Text(str(path.relative_to(folder)), text)


def _file(path: Path, column: str | None, private: bool) -> Iterator[Text]:
    kind, is_parquet = _kind(path), path.suffix.lower() == _PARQUET
    if kind not in SUFFIXES and not is_parquet:
        raise DocumentError(
            f"The name of a file of documents must end in one of {', '.join(SUFFIXES)}, or in .gz after these, or in "
            f"{_PARQUET}. Got {path.name}. Rename or convert it."
        )
    if kind not in _LINES and column is None:
        what = "field" if kind in _JSON else "column"
        raise DocumentError(f"The {what} of {path.name} that holds the text must be named. None was. {_NAME_IT}")
    if is_parquet:
        yield from texts_in_parquet(path, str(column), private=private)
        return
    with _opened(path, private) as file:
        if kind in _LINES:
            yield from _lines(file, path.name)
        elif kind in _TABLES:
            yield from _cells(file, path.name, str(column), "\t" if kind == ".tsv" else ",", private)
        else:
            yield from _fields(file, path.name, str(column), private)


def _lines(file: IO[str], name: str) -> Iterator[Text]:
    for number, line in enumerate(file, 1):
        yield Text(f"{name}, line {number}", line.rstrip("\r\n"))


def _cells(file: IO[str], name: str, column: str, delimiter: str, private: bool) -> Iterator[Text]:
    csv.field_size_limit(max(csv.field_size_limit(), _LARGEST_CELL))
    rows = csv.reader(file, delimiter=delimiter, strict=True)
    names = next(rows, [])
    if names.count(column) != 1:
        # Without a line of names the first line is a document.
        held = "not said, in a private run" if private else ", ".join(repr(each) for each in names) or "none"
        raise DocumentError(f"{name} must have one column {column!r}. Its columns are {held}. {_NAME_IT}")
    place = names.index(column)
    if private:
        # Line by line: a quote that is never closed would swallow the documents after it, and change their number.
        for number, line in enumerate(file, rows.line_num + 1):
            try:
                cells = next(csv.reader([line], delimiter=delimiter), [])
            except csv.Error:
                cells = []
            yield Text(f"{name}, line {number}", cells[place] if len(cells) > place else "")
        return
    for row in rows:
        if len(row) > place:
            yield Text(f"{name}, line {rows.line_num}", row[place])
        elif row:  # a row without any cell is an empty line, which is passed over
            raise DocumentError(
                f"Every row of {name} must have a column {column!r}. The row that ends in line {rows.line_num:,} has "
                f"{len(row)} of {len(names)} columns. Fix or drop it."
            )


def _fields(file: IO[str], name: str, field: str, private: bool) -> Iterator[Text]:
    for number, line in enumerate(file, 1):
        if not (line.strip() or private):
            continue
        text, fault = _text_of(line, field)
        if text is None and private:
            text = ""
        if text is None:
            shown = fault if len(fault) <= 80 else fault[:77] + "..."
            raise DocumentError(
                f"Line {number:,} of {name} must be a JSON object with a text in {field!r}. Got {shown}. "
                "Fix or drop the line, or pass another `column`."
            )
        yield Text(f"{name}, line {number}", text)


def _text_of(line: str, field: str) -> tuple[str | None, str]:
    """Return the text in a field of a JSON object; or None, and what the line holds instead."""
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        return None, f"no JSON ({error})"
    if not isinstance(value, dict):
        return None, f"a JSON {type(value).__name__}"
    if field not in value:
        return None, f"the fields {', '.join(repr(each) for each in value)}" if value else "no field"
    text = value[field]
    return (text, "") if isinstance(text, str) else (None, json.dumps(text))


def _kind(path: Path) -> str:
    return Path(path.name.lower().removesuffix(".gz")).suffix


def _reading(private: bool) -> dict[str, Any]:
    """Return how text is read.

    In a private run bytes that are no UTF-8 are replaced, since an error would tell something of a document; and a line
    ends at a line feed only, so that a carriage return within a document does not make two of it.
    """
    return {
        "encoding": "utf-8-sig",
        "errors": "replace" if private else "strict",
        "newline": "\n" if private else "",
    }


@contextmanager
def _opened(path: Path, private: bool) -> Iterator[IO[str]]:
    opener: Any = gzip.open if path.name.lower().endswith(".gz") else open
    with _faults(path.name), opener(path, "rt", **_reading(private)) as file:
        yield file


@contextmanager
def _faults(name: str) -> Iterator[None]:
    """Turn what a damaged file raises while it is read into an error that says what to do."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise DocumentError(
            f"{name} must be UTF-8 text. It holds the byte 0x{error.object[error.start]:02x} out of place. "
            "Convert it, as with iconv -t UTF-8."
        ) from error
    except (csv.Error, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DocumentError(f"{name} must be complete and undamaged. It is not: {error}. Make it again.") from error
