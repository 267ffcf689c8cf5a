"""Documents: texts in files of lines, text tables, JSON lines, Parquet files, folders and the
standard input.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from odeco._util.lazy import import_arrow
from odeco.errors import DocumentError
from odeco.io.tables import kind_of, open_text, read_cells, text_errors
from odeco.io.urls import UrlPath, as_path


@dataclass(frozen=True)
class Text:
    """One document.

    Attributes
    ----------
    name : str
        Where the document comes from, such as ``reviews.txt, line 12``.
    text : str
        The document; it may be empty.
    """

    name: str
    text: str


@dataclass(frozen=True)
class TextPart:
    """The texts of a file or folder, or of a row group of a Parquet file: an iterable that any
    process can read.
    """

    path: str
    column: str | None
    private: bool
    group: int | None = None

    def __iter__(self) -> Iterator[str]:
        path = as_path(self.path)
        if self.group is None:
            found = read_documents([path], column=self.column, private=self.private)
        else:
            found = _texts_in_parquet(
                path, str(self.column), private=self.private, groups=[self.group]
            )
        return (document.text for document in found)


def text_parts(paths: Iterable[Path], column: str | None, *, private: bool) -> list[TextPart]:
    """Return the parts of files that can be read at the same time: files, and row groups of Parquet
    files.
    """
    parts = []
    for path in paths:
        n_groups = 0
        if path.suffix.lower() == _PARQUET and column is not None:
            fault = import_arrow(path.name).ArrowException
            with (
                suppress(fault, OSError),
                path.open("rb") as file,
            ):  # whoever reads it says what is wrong
                n_groups = (
                    import_arrow(path.name, _PARQUET)
                    .ParquetFile(file, pre_buffer=False)
                    .num_row_groups
                )
        groups: list[int | None] = [*range(n_groups)] if n_groups > 1 else [None]
        parts += [TextPart(str(path), column, private, group) for group in groups]
    return parts


def _texts_in_parquet(
    path: Path, column: str, *, private: bool, groups: list[int] | None = None
) -> Iterator[Text]:
    """Yield the texts of a column; a null is an empty document. In a private run no other column is
    named.
    """
    arrow = import_arrow(path.name)
    parquet = import_arrow(path.name, ".parquet")
    errors = "replace" if private else "strict"  # an error would depend on a record
    with path.open("rb") as file:  # so that a missing file is not reported as damaged
        try:
            reader = parquet.ParquetFile(file, pre_buffer=False)
            _check_names(list(reader.schema_arrow.names), path.name, column, private)
            held = reader.schema_arrow.field(column).type  # which is public, as the names are
            held = getattr(held, "value_type", held)  # of a dictionary
            if str(held) not in ("string", "large_string"):
                raise DocumentError(
                    f"The column {column!r} of {path.name} must hold texts. It holds {held}. Pass "
                    "another name as `column`."
                )
            row = 0
            for batch in reader.iter_batches(_ROWS, columns=[column], row_groups=groups):
                cells = batch.column(0)
                plain = (
                    cells.dictionary_decode() if isinstance(cells, arrow.DictionaryArray) else cells
                )
                for content in plain.cast(arrow.large_binary()).to_pylist():
                    row += 1
                    yield Text(
                        f"{path.name}, row {row}",
                        "" if content is None else content.decode("utf-8", errors),
                    )
        except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
            if isinstance(path, UrlPath) and isinstance(error, OSError):
                raise path.unreachable(error) from error
            fault = "" if private else f": {error}"
            raise DocumentError(
                f"{path.name} must be complete and undamaged. It is not{fault}. Make it again."
            ) from (None if private else error)


def _check_names(names: list[str], name: str, column: str, private: bool) -> None:
    """Raise unless there is one column of a name."""
    if names.count(column) != 1:
        # Without a record of names the first record is a document.
        held = (
            "not named in a private run"
            if private
            else ", ".join(repr(each) for each in names) or "none"
        )
        raise DocumentError(
            f"{name} must have one column {column!r}. Its columns are {held}. {_NAME_IT}"
        )


_LINES = (".txt", ".text")
_TABLES = (".csv", ".tsv")
_JSON = (".jsonl", ".ndjson")
_PARQUET = ".parquet"

#: The suffixes of text files; each may have ``.gz`` after it.
SUFFIXES = (*_LINES, *_TABLES, *_JSON)

#: The number of rows of a Parquet file that are read at a time.
_ROWS = 4096

_NAME_IT = "Pass its name as `column`."


def read_documents(
    paths: Iterable[str | Path], *, column: str | None = None, private: bool = False
) -> Iterator[Text]:
    r"""Yield the documents of some files, one after the other; no file is held in memory as a
    whole.

    Parameters
    ----------
    paths : paths
        Each is a ``.txt`` or ``.text`` file (one document per line, an empty line is an empty
        document), a ``.csv`` or ``.tsv`` table with a record of names (one document per record, see
        `odeco.io.tables`), a ``.jsonl`` or ``.ndjson`` file (one JSON object per line, blank lines
        are passed over), any of these with ``.gz`` after it, a ``.parquet`` file (a missing text is
        an empty document), a folder of ``.txt`` and ``.text`` files, inner folders included (one
        document per file), or ``-`` for the lines of the standard input. All are UTF-8.
    column : str, optional
        The column of tables and of Parquet, and the field of JSON objects that hold the text.
    private : bool
        Whether the documents must stay private. The documents are the same as in an open run, and
        their number is public: that of the records of a table, of the lines of a text, of the lines
        of a JSON file that are not blank. A table must be well-formed CSV, else it is refused.
        Anything else that is not valid is an empty document without an error: a line that is not a
        JSON object with a text, a compressed file of a folder that is damaged. Bytes that are not
        UTF-8 are replaced.

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
        elif as_path(given).is_dir():
            yield from _folder(as_path(given), private)
        else:
            yield from _file(as_path(given), column, private)


def _standard_input(private: bool) -> Iterator[Text]:
    # Not sys.stdin, which has the encoding of the terminal.
    errors = "replace" if private else "strict"
    file = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8-sig", errors=errors, newline="\n")
    try:
        with text_errors("standard input"):
            yield from _lines(file, "standard input")
    finally:
        file.detach()


def _folder(folder: Path, private: bool) -> Iterator[Text]:
    paths = sorted(path for path in folder.rglob("*") if kind_of(path) in _LINES and path.is_file())
    if not paths:
        raise DocumentError(
            f"The folder {folder} must hold files whose names end in {' or '.join(_LINES)}. It "
            "holds none. Check the path."
        )
    for path in paths:
        try:
            with open_text(path, private=private) as file:
                text = file.read()
        except DocumentError:
            if not private:  # a file is a document here, and no error may depend on one
                raise
            text = ""
        yield Text(str(path.relative_to(folder)), text)


def _file(path: Path, column: str | None, private: bool) -> Iterator[Text]:
    kind = kind_of(path)
    is_parquet = path.suffix.lower() == _PARQUET
    if kind not in SUFFIXES and not is_parquet:
        raise DocumentError(
            f"The name of a file of documents must end in one of {', '.join(SUFFIXES)}, or in .gz "
            f"after these, or in {_PARQUET}. Got {path.name}. Rename or convert it."
        )
    if kind not in _LINES and column is None:
        what = "field" if kind in _JSON else "column"
        found = "" if private else _columns_of(path, kind)
        raise DocumentError(
            f"The {what} of {path.name} that holds the text must be named. None was.{found} "
            f"{_NAME_IT}"
        )
    if is_parquet:
        yield from _texts_in_parquet(path, str(column), private=private)
        return
    # Lines end at a line feed only: a carriage return within a document does not make two of it.
    with open_text(path, private=private, newline="" if kind in _TABLES else "\n") as file:
        if kind in _LINES:
            yield from _lines(file, path.name)
        elif kind in _TABLES:
            names, records = read_cells(file, path.name, kind, private=private)
            _check_names(names, path.name, str(column), private)
            place = names.index(str(column))
            for line, cells in records:
                yield Text(f"{path.name}, line {line}", cells[place])
        else:
            yield from _fields(file, path.name, str(column), private)


def _columns_of(path: Path, kind: str) -> str:
    """Return the columns of a table in words; nothing if it cannot be read."""
    try:
        if kind == _PARQUET:
            with path.open("rb") as opened:
                names = list(import_arrow(path.name, ".parquet").read_schema(opened).names)
        elif kind in _TABLES:
            with open_text(path) as file:
                names = read_cells(file, path.name, kind)[0]
        else:
            return ""
    except (ValueError, OSError, ImportError):
        return ""
    return f" Its columns are {', '.join(repr(name) for name in names)}." if names else ""


def _lines(file: IO[str], name: str) -> Iterator[Text]:
    for number, line in enumerate(file, 1):
        yield Text(f"{name}, line {number}", line.rstrip("\r\n"))


def _fields(file: IO[str], name: str, field: str, private: bool) -> Iterator[Text]:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        text, fault = _text_of(line, field)
        if text is None and private:
            text = ""
        if text is None:
            shown = fault if len(fault) <= 80 else fault[:77] + "..."
            raise DocumentError(
                f"Line {number:,} of {name} must be a JSON object with a text in {field!r}. Got "
                f"{shown}. Fix or drop the line, or pass another `column`."
            )
        yield Text(f"{name}, line {number}", text)


def _text_of(line: str, field: str) -> tuple[str | None, str]:
    """Return the text in a field of a JSON object, or None and what the line holds instead."""
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        return None, f"a line that is not JSON ({error})"
    if not isinstance(value, dict):
        return None, f"a JSON {type(value).__name__}"
    if field not in value:
        return (
            None,
            f"the fields {', '.join(repr(each) for each in value)}" if value else "no field",
        )
    text = value[field]
    return (text, "") if isinstance(text, str) else (None, json.dumps(text))
