"""Errors that several readers raise. Each names the file and the row, and says what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from odeco.errors import SourceError

_TEXTS = {
    "width": (
        "All rows of {name} must have {columns}. Row {row:,} has {given:,}. Fix it and read again."
    ),
    "pointers": "The row pointers of {name} must start at 0, never fall and stay within the "
    "stored values. They break "
    "this at row {row:,}. The file or matrix is damaged; make it again.",
    "index": "Column indices of {name} must be in [0, {largest:,}]. Row {row:,} holds {index:,}. "
    "The file or matrix is "
    "damaged, or its width is wrong; make it again.",
    "not finite": "Row {row:,} of {name} holds {what}. Nothing of its block was used; fix or "
    "drop the row (the first "
    "is row 0) and read again.",
    "line": (
        "Row {row:,} of {name} (line {line:,}) must be {must}. Got {given}. {remedy} and read "
        "again."
    ),
    "type": "{Name} must hold real numbers: floats of at most 64 bits, integers or bools. It "
    "holds {what}. Convert it "
    "to float64.",
    "column": "All columns of {name} must hold real numbers: floats of at most 64 bits, integers "
    "or bools, or "
    "lists of them. Column {column!r} holds {what}. Convert it to float64, or leave it out.",
    "list": "All lists in column {column!r} of {name} must have the same number of entries. Row "
    "{row:,} has {given:,}, "
    "those before it {width:,}. Fix or drop the row (the first is row 0), or leave the column out.",
    "not again": "{Name} must give its rows again for every pass, one pass at a time. It does "
    "not: {reason}. Finish "
    "the pass before, or pass a callable that returns a fresh stream.",
    "masked": "{Name} must not be masked. Got a MaskedArray, whose hidden entries would be read "
    "as numbers. Fill them "
    "with X.filled(value), or drop those rows.",
    "shape": "{Name} must be two-dimensional, rows by columns. Got shape {shape}. {remedy}",
    "empty": (
        "{Name} must hold at least one row and one column. It holds {what}. Check how it was made."
    ),
    "damaged": (
        "{name} cannot be opened: {reason}. It is damaged or holds something else; write or copy "
        "it again."
    ),
    "query": (
        "{Name} must give rows. It does not: {reason}. Check the query and the data that it reads."
    ),
    "damaged later": "{Name} cannot be read from row {row:,} on: {reason}. The rows before were "
    "read; write or copy it "
    "again.",
    "broken off": "{Name} can no longer be reached from row {row:,} on: {reason}. The rows "
    "before were read; check the "
    "network, the credentials and that the store still has it, and run again, from the "
    "checkpoint if there is one.",
    "changed length": "{Name} must give the same rows in every pass. It gave {row:,} rows "
    "instead of {announced:,}. Do "
    "not change it during a run; as a callable, return a fresh iterator at every call.",
    "short": "{Name} must hold at least the {wanted:,} rows to be skipped. It holds {row:,}. "
    "Pass the data that the "
    "interrupted run was reading.",
    "already read": "{Name} can be read only once, and a pass over it was started before. Pass a "
    "callable that returns "
    "a fresh iterator, a list of arrays, or a file.",
    "mixed": "The blocks of {name} must be all dense or all CSR. Row {row:,} begins a block of "
    "the other kind. Convert "
    "the blocks to one of the two.",
    "not CSR": "{Name} must be sparse by rows: CSR, or data, indices, indptr and shape in a "
    "file. It holds {what}. "
    "Convert it with X.tocsr(); save dense rows with numpy.save.",
}


def source_error(
    kind: str, name: str, path: Path | None = None, row: int | None = None, **facts: Any
) -> SourceError:
    """Return an error about a source: its kind, the name of the source, and the facts that the text
    of the kind has.
    """
    if kind == "width":
        facts["columns"] = (
            "1 column" if facts["n_features"] == 1 else f"{facts['n_features']:,} columns"
        )
    if kind == "shape":
        facts["remedy"] = "Reshape it, x[None, :] for a single row x."
        if len(facts["shape"]) > 2:
            facts["remedy"] = (
                "If it is a tensor, call odeco.decompose instead; rows are reshaped with "
                "X.reshape(-1, d)."
            )
    if "reason" in facts:
        facts["reason"] = str(facts["reason"]).strip().rstrip(".") or type(facts["reason"]).__name__
    text = _TEXTS[kind].format(name=name, Name=as_subject(name), row=row, **facts)
    return SourceError(text, path=path, row=row)


def as_subject(name: str) -> str:
    """Return a name as the first word of a sentence: "the array" gets a capital, the name of a file
    stays as it is.
    """
    return "The" + name[3:] if name.startswith("the ") else name
