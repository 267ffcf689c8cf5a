"""Rows of numbers in files, all at once, for ``odeco learn``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np

from odeco.rows import is_sparse, join_rows
from odeco.sources import as_source, open_private

#: Private rows are read in blocks of so many.
_BLOCK = 65536


def read_rows(file: Path, columns: list[str] | None, drop: list[str] | None) -> tuple[Any, list[str] | None]:
    """Return all rows of numbers in a file, and the names of their columns."""
    if columns is not None and drop is not None:
        raise click.UsageError("--columns and --drop must not be given together. Pass the one that is shorter.")
    source = as_source(str(file), columns=columns, drop=drop)
    rows = join_rows(list(source))
    names = getattr(source, "columns", None)
    return rows.toarray() if is_sparse(rows) else rows, None if names is None else list(names)


def read_private_rows(file: Path) -> tuple[Any, list[str] | None]:
    """Return all rows of a file for a private model: nothing is said about a row that is none."""
    rows = open_private([file], header=True if file.suffix in (".csv", ".tsv") else None)
    chunks: Iterator[Any] = rows.chunks(_BLOCK)
    blocks = [chunk.toarray() if is_sparse(chunk) else chunk for chunk in chunks]
    return np.concatenate(blocks), None if rows.columns is None else list(rows.columns)
