"""Errors that several readers raise. Each names the file and the row, and says what to do."""

from __future__ import annotations

from pathlib import Path

from odeco.errors import SourceError


def wrong_width(name: str, path: Path | None, row: int, n_features: int, given: int) -> SourceError:
    """Return the error for rows of another width."""
    return SourceError(
        f"All rows of {name} must have {_columns(n_features)}. Row {row:,} has {given:,}. Fix it and read again.",
        path=path,
        row=row,
    )


def bad_pointers(name: str, path: Path | None, row: int) -> SourceError:
    """Return the error for a CSR matrix that contradicts itself."""
    return SourceError(
        f"The row pointers of {name} must start at 0, never fall and stay within the stored values. "
        f"They break this at row {row:,}. The file or matrix is damaged; make it again.",
        path=path,
        row=row,
    )


def bad_line(
    name: str, path: Path, row: int, line: int, must: str, given: str, column: str | None = None
) -> SourceError:
    """Return the error for a line of a text file that is not a row; `column` names the cell at fault."""
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


def bad_type(name: str, path: Path | None, what: object) -> SourceError:
    """Return the error for entries that are not real numbers."""
    return SourceError(
        f"{as_subject(name)} must hold real numbers: floats of at most 64 bits, integers or bools. "
        f"It holds {what}. Convert it to float64.",
        path=path,
    )


def masked_values() -> SourceError:
    """Return the error for a masked array."""
    return SourceError(
        "The array must not be masked. Got a MaskedArray, whose hidden entries would be read as numbers. "
        "Fill them with X.filled(value), or drop those rows."
    )


def bad_shape(name: str, path: Path | None, shape: tuple[int, ...], row: int | None = None) -> SourceError:
    """Return the error for an array that is not two-dimensional."""
    remedy = "Reshape it, x[None, :] for a single row x."
    if len(shape) > 2:
        remedy = "If it is a tensor, call odeco.decompose instead; rows are reshaped with X.reshape(-1, d)."
    return SourceError(
        f"{as_subject(name)} must be two-dimensional, rows by columns. Got shape {shape}. {remedy}",
        path=path,
        row=row,
    )


def no_rows(name: str, path: Path | None, what: str) -> SourceError:
    """Return the error for data without rows or columns."""
    return SourceError(
        f"{as_subject(name)} must hold at least one row and one column. It holds {what}. Check how it was made.",
        path=path,
    )


def cannot_open(name: str, path: Path, reason: object) -> SourceError:
    """Return the error for a file that is not what its suffix promises."""
    return SourceError(
        f"{name} cannot be opened: {_clause(reason)}. It is damaged or holds something else; write or copy it again.",
        path=path,
    )


def cannot_read_on(name: str, path: Path | None, row: int, reason: object) -> SourceError:
    """Return the error for a file that is damaged after its first rows."""
    return SourceError(
        f"{as_subject(name)} cannot be read from row {row:,} on: {_clause(reason)}. The rows before were read; "
        "write or copy it again.",
        path=path,
        row=row,
    )


def wrong_length(name: str, path: Path | None, announced: int, read: int) -> SourceError:
    """Return the error for a pass with another number of rows than before."""
    return SourceError(
        f"{as_subject(name)} must give the same rows in every pass. It gave {read:,} rows instead of {announced:,}. "
        "Do not change it during a run; as a callable, return a fresh iterator at every call.",
        path=path,
        row=read,
    )


def too_short(name: str, path: Path | None, wanted: int, n_rows: int) -> SourceError:
    """Return the error for a run that would resume after the last row."""
    return SourceError(
        f"{as_subject(name)} must hold at least the {wanted:,} rows to be skipped. It holds {n_rows:,}. "
        "Pass the data that the interrupted run was reading.",
        path=path,
        row=n_rows,
    )


def already_read(name: str) -> SourceError:
    """Return the error for a second pass over an iterator."""
    return SourceError(
        f"{as_subject(name)} can be read only once, and a pass over it was started before. "
        "Pass a callable that returns a fresh iterator, a list of arrays, or a file."
    )


def mixed_kinds(name: str, path: Path | None, row: int) -> SourceError:
    """Return the error for dense and sparse rows in one source."""
    return SourceError(
        f"The blocks of {name} must be all dense or all CSR. Row {row:,} begins a block of the other kind. "
        "Convert the blocks to one of the two.",
        path=path,
        row=row,
    )


def not_csr(name: str, path: Path | None, what: str) -> SourceError:
    """Return the error for a sparse matrix that is not stored by rows."""
    return SourceError(
        f"{as_subject(name)} must be sparse by rows: CSR, or data, indices, indptr and shape in a file. "
        f"It holds {what}. Convert it with X.tocsr(); save dense rows with numpy.save.",
        path=path,
    )


def _columns(number: int) -> str:
    return "1 column" if number == 1 else f"{number:,} columns"


def as_subject(name: str) -> str:
    """Return a name as the first word of a sentence: "the array" gets a capital, the name of a file stays as it is."""
    return "The" + name[3:] if name.startswith("the ") else name


def _clause(reason: object) -> str:
    return str(reason).strip().rstrip(".") or type(reason).__name__
