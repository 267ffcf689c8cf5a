"""Files of tables whose columns are not all numbers, as named columns (`odeco.io.kinds.Table`)."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from odeco.errors import SourceError
from odeco.io.coerce import in_memory
from odeco.io.kinds import Table, arrow_table, as_column
from odeco.io.source import ALL, Selection
from odeco.io.tables import ARROW, is_number, kind_of, read_arrow, read_text_table
from odeco.io.urls import UrlPath, as_path

#: How programs write yes and no.
_BOOLEANS = {"true": True, "false": False}

#: A column with this share of numbers holds numbers: what else is in it is a mistake.
_MOSTLY = 0.5


def read_table(path: str | os.PathLike[str], asked: Mapping[str, str]) -> Any:
    """Return the rows of a file of numbers as an array, and any other table as named columns; so is
    a file of numbers if a user says what its columns are.
    """
    if asked:
        return read_columns(as_path(path), ALL, asked)
    try:
        return in_memory(path, nulls_are_nan=True)
    except SourceError as error:
        if not has_texts(error):
            raise
        return read_columns(as_path(path), ALL, asked)


def read_known(
    path: str | os.PathLike[str], kinds: Mapping[str, str], categories: Mapping[str, Any]
) -> Table:
    """Return the columns of a file that a model has, by their kinds and categories."""
    texts = [name for name, own in categories.items() if own.dtype.kind == "O"]
    return read_columns(as_path(path), Selection(tuple(kinds)), kinds, texts)


def has_texts(error: SourceError) -> bool:
    """Return whether rows of numbers could not be read because columns hold texts."""
    return any(each in str(error) for each in ("must be all numbers", "must hold real numbers"))


def read_columns(
    path: Path | UrlPath,
    selection: Selection,
    asked: Mapping[str, str],
    texts: Collection[str] = (),
) -> Table:
    """Return the columns of a CSV, Parquet or Arrow file by their names; those of texts that are
    numbers as numbers.

    Parameters
    ----------
    path : path
        The file.
    selection : Selection
        The columns to read.
    asked : dict
        What a user says that columns are.
    texts : collection of str
        The columns that hold texts, whatever these are.
    """
    if kind_of(path) in ARROW:
        typed = read_arrow(path)
        places = selection.places(typed.column_names, path.name, path)
        return arrow_table(typed if places is None else typed.select(places))
    table = read_text_table(path).select(selection, path)
    made: dict[str, Any] = {}
    for name in table.columns:
        cells = table.column(name)
        is_text = name in texts
        made[name] = cells if is_text else _as_column(cells, name, path, asked.get(name))
    return Table(made)


def _as_column(cells: Any, name: str, path: Path | UrlPath, asked: str | None) -> Any:
    """Return the cells of a column as numbers, if all that are there are."""
    seen = [cell for cell in cells if cell is not None]
    if seen and {cell.lower() for cell in seen} <= _BOOLEANS.keys():
        flags = [None if cell is None else _BOOLEANS[cell.lower()] for cell in cells]
        return as_column(flags)
    numbers = [is_number(cell) for cell in seen]
    if not all(numbers):
        if asked is None and sum(numbers) > _MOSTLY * len(numbers):
            wrong = seen[numbers.index(False)]
            row = int(np.flatnonzero(cells == wrong)[0])
            raise SourceError(
                f"A column of {path.name} must hold numbers or texts. {name} holds numbers and "
                f"{wrong!r} in row {row:,}. Fix the cell, or say that the column holds categories.",
                path=path,
                row=row,
            )
        return cells
    return np.array([np.nan if cell is None else float(cell) for cell in cells])
