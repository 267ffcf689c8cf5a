"""What may go wrong while rows are read, and how we say it: which file, which row, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from odeco.errors import SourceError

#: An error lists at most so many names.
_MOST_LISTED = 20


def not_finite(name: str, path: Path | None, row: int, what: str) -> SourceError:
    """Say which row holds NaN or infinity."""
    return SourceError(
        f"Row {row:,} of {name} holds {what}. Nothing of its block was used; "
        "fix or drop the row (the first is row 0) and read again.",
        path=path,
        row=row,
    )


def wrong_width(name: str, path: Path | None, row: int, n_features: int, given: int) -> SourceError:
    """Say where rows of another width begin."""
    return SourceError(
        f"All rows of {name} must have {_columns(n_features)}. Row {row:,} has {given:,}. Fix it and read again.",
        path=path,
        row=row,
    )


def bad_index(name: str, path: Path | None, row: int, index: int, n_features: int) -> SourceError:
    """Say which sparse row points outside the matrix."""
    return SourceError(
        f"Column indices of {name} must be in [0, {n_features - 1:,}]. Row {row:,} holds {index:,}. "
        "The file or matrix is damaged, or its width is wrong; make it again.",
        path=path,
        row=row,
    )


def bad_pointers(name: str, path: Path | None, row: int) -> SourceError:
    """Say where a CSR matrix contradicts itself."""
    return SourceError(
        f"The row pointers of {name} must start at 0, never fall and stay within the stored values. "
        f"They break this at row {row:,}. The file or matrix is damaged; make it again.",
        path=path,
        row=row,
    )


def bad_line(
    name: str, path: Path, row: int, line: int, must: str, given: str, column: str | None = None
) -> SourceError:
    """Say which line of a text file cannot be understood, and in which column, if it has a name."""
    shown = repr(given if len(given) <= 40 else given[:37] + "...")
    remedy = "Fix or drop the line and read again."
    if column is not None:
        shown += f" in column {column!r}"
        remedy = "Fix or drop the line, or leave the column out with `drop`, and read again."
    return SourceError(
        f"Row {row:,} of {name} (line {line:,}) must be {must}. Got {shown}. {remedy}",
        path=path,
        row=row,
    )


def missing_value(name: str, path: Path | None, row: int, column: str) -> SourceError:
    """Say which row of a table has no number in some column."""
    return SourceError(
        f"Row {row:,} of {name} holds no number in column {column!r} (a null). Nothing of its block was used; "
        "fill or drop the row (the first is row 0) and read again.",
        path=path,
        row=row,
    )


def bad_type(name: str, path: Path | None, what: object) -> SourceError:
    """Say that the entries are no numbers that odeco works with."""
    return SourceError(
        f"{_sentence(name)} must hold real numbers: floats of at most 64 bits, integers or bools. "
        f"It holds {what}. Convert it to float64.",
        path=path,
    )


def not_numbers(name: str, path: Path | None, kind: object, column: str) -> SourceError:
    """Say which column of a table holds no numbers."""
    return SourceError(
        f"All columns of {name} must hold real numbers: floats of at most 64 bits, integers or bools. Column "
        f"{column!r} holds {kind}. Convert it to float64, or leave it out.",
        path=path,
    )


def no_names(name: str, path: Path | None) -> SourceError:
    """Say that columns without names cannot be chosen by them."""
    return SourceError(
        f"Columns are chosen by their names, as CSV, Parquet, Arrow files and tables have them. {_sentence(name)} has "
        "none. Leave `columns` and `drop` out, or write the rows with names.",
        path=path,
    )


def unknown_column(name: str, path: Path | None, wanted: str, names: Sequence[str]) -> SourceError:
    """Say that there is no column, or more than one, of a name; and which are there."""
    close = get_close_matches(wanted, names, 1)
    listed = ", ".join(names[:_MOST_LISTED]) + (", …" if len(names) > _MOST_LISTED else "")
    hint = f"Did you mean {close[0]!r}?" if close and close[0] != wanted else f"It has: {listed}."
    return SourceError(
        f"{_sentence(name)} must have one column {wanted!r}. It has {names.count(wanted) or 'none'}. {hint}", path=path
    )


def masked_values() -> SourceError:
    """Say that a mask would be lost."""
    return SourceError(
        "The array must not be masked. Got a MaskedArray, whose hidden entries would be read as numbers. "
        "Fill them with X.filled(value), or drop those rows."
    )


def bad_shape(name: str, path: Path | None, shape: tuple[int, ...], row: int | None = None) -> SourceError:
    """Say that an array is not a block of rows."""
    remedy = "Reshape it, x[None, :] for a single row x."
    if len(shape) > 2:
        remedy = "If it is a tensor, call odeco.decompose instead; rows are reshaped with X.reshape(-1, d)."
    return SourceError(
        f"{_sentence(name)} must be two-dimensional, rows by columns. Got shape {shape}. {remedy}",
        path=path,
        row=row,
    )


def no_rows(name: str, path: Path | None, what: str) -> SourceError:
    """Say that there is nothing to read."""
    return SourceError(
        f"{_sentence(name)} must hold at least one row and one column. It holds {what}. Check how it was made.",
        path=path,
    )


def cannot_open(name: str, path: Path, reason: object) -> SourceError:
    """Say why a file is not what its suffix promises."""
    return SourceError(
        f"{name} cannot be opened: {_clause(reason)}. It is damaged or holds something else; write or copy it again.",
        path=path,
    )


def cannot_read_on(name: str, path: Path | None, row: int, reason: object) -> SourceError:
    """Say where a file broke off."""
    return SourceError(
        f"{_sentence(name)} cannot be read from row {row:,} on: {_clause(reason)}. The rows before were read; "
        "write or copy it again.",
        path=path,
        row=row,
    )


def damaged(name: str, path: Path | None) -> SourceError:
    """Say that a file of a private run cannot be read, and nothing about its rows."""
    return SourceError(
        f"{_sentence(name)} must be complete, and stay as it is during a run. It is damaged, or was changed. Write or "
        "copy it again. Where the damage is is not said, because the run is private.",
        path=path,
    )


def wrong_length(name: str, path: Path | None, announced: int, read: int) -> SourceError:
    """Say that a pass ended elsewhere than it should have."""
    return SourceError(
        f"{_sentence(name)} must give the same rows in every pass. It gave {read:,} rows instead of {announced:,}. "
        "Do not change it during a run; as a callable, return a fresh iterator at every call.",
        path=path,
        row=read,
    )


def too_short(name: str, path: Path | None, wanted: int, n_rows: int) -> SourceError:
    """Say that a run cannot be resumed behind the last row."""
    return SourceError(
        f"{_sentence(name)} must hold at least the {wanted:,} rows to be skipped. It holds {n_rows:,}. "
        "Pass the data that the interrupted run was reading.",
        path=path,
        row=n_rows,
    )


def changed(name: str, path: Path, row: int, what: str) -> SourceError:
    """Say that a file changed while a run was reading it."""
    return SourceError(
        f"{name} must not change while it is read. {what} since it was opened. Nothing after row {row:,} of it was "
        "used; begin again, on a copy that nobody writes to.",
        path=path,
        row=row,
    )


def changed_stream(name: str) -> SourceError:
    """Say that two passes gave different rows."""
    return SourceError(
        f"{_sentence(name)} must give the same rows in every pass. They did not. "
        "As a callable, return a fresh iterator of the same rows at every call."
    )


def other_rows(name: str, n_rows: int) -> SourceError:
    """Say that a run cannot go on with other rows than it began with."""
    return SourceError(
        f"{_sentence(name)} must be what the interrupted run was reading. Its first {n_rows:,} rows are others. "
        "Pass the same rows, or another checkpoint to begin again.",
        row=n_rows,
    )


def inflated(name: str, path: Path, row: int, size: int, file_size: int) -> SourceError:
    """Say that a compressed row is too large to be believed."""
    return SourceError(
        f"A row of {name} must not be far larger than its file. Row {row:,} takes {size:,} bytes, the file "
        f"{file_size:,}. If that is right, write the file without compression.",
        path=path,
        row=row,
    )


def already_read(name: str) -> SourceError:
    """Say that a one-shot iterator has no second pass."""
    return SourceError(
        f"{_sentence(name)} can be read only once, and a pass over it was started before. "
        "Pass a callable that returns a fresh iterator, a list of arrays, or a file."
    )


def mixed_kinds(name: str, path: Path | None, row: int) -> SourceError:
    """Say that dense and sparse rows do not go together."""
    return SourceError(
        f"The blocks of {name} must be all dense or all CSR. Row {row:,} begins a block of the other kind. "
        "Convert the blocks to one of the two.",
        path=path,
        row=row,
    )


def different_files(what: str, first: Path, first_has: str, other: Path, other_has: str) -> SourceError:
    """Say that two files of one data set do not fit together."""
    return SourceError(
        f"Files that are read together must agree in {what}. {first.name} has {first_has}, "
        f"but {other.name} has {other_has}. Leave one out or make them alike.",
        path=other,
    )


def no_files(directory: Path, suffixes: tuple[str, ...]) -> SourceError:
    """Say that a directory holds nothing to read."""
    return SourceError(
        f"The directory {directory.name} must hold files of the kinds {', '.join(suffixes)}. It holds none. "
        "Check the path.",
        path=directory,
    )


def unknown_suffix(path: Path, suffixes: tuple[str, ...]) -> SourceError:
    """Say that a file's kind is not known by its name."""
    return SourceError(
        f"The name of a data file must end in one of {', '.join(suffixes)}. Got {path.name}. "
        "Rename or convert it; in a directory, move it elsewhere or pass the list of the files to read.",
        path=path,
    )


def not_csr(name: str, path: Path | None, what: str) -> SourceError:
    """Say that sparse rows are not stored by rows."""
    return SourceError(
        f"{_sentence(name)} must be sparse by rows: CSR, or data, indices, indptr and shape in a file. "
        f"It holds {what}. Convert it with X.tocsr(); save dense rows with numpy.save.",
        path=path,
    )


def not_a_source(data: Any) -> TypeError:
    """Say what may be read."""
    return TypeError(
        "`data` must be a 2-D array, a CSR matrix, the path of a file or directory, a list of paths, an Arrow table or "
        "stream, an iterable of 2-D arrays, or a callable that returns a fresh iterator of them. "
        f"Got {type(data).__name__}. Convert it with numpy.asarray."
    )


def missing_pyarrow(name: str) -> ModuleNotFoundError:
    """Say which optional library is needed."""
    return ModuleNotFoundError(
        f"Reading {name} needs pyarrow. It is not installed. Run: pip install 'odeco[arrow]'.", name="pyarrow"
    )


def _columns(number: int) -> str:
    return "1 column" if number == 1 else f"{number:,} columns"


def _sentence(name: str) -> str:
    """Begin a sentence with "the array"; a file's name stays as it is."""
    return "The" + name[3:] if name.startswith("the ") else name


def _clause(reason: object) -> str:
    return str(reason).strip().rstrip(".") or type(reason).__name__
