"""Texts in a column of a Parquet file, some rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from odeco.errors import DocumentError
from odeco.topics.text import Text

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
