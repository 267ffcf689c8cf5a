"""Read the files that are named on the command line: tensors, names, labels, rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tokenize import TokenError
from typing import Any

import click
import numpy as np
from numpy.lib import format as npy_format

from odeco._util.files import announced_arrays, read_array
from odeco.errors import FileFormatError
from odeco.io.coerce import as_source
from odeco.io.rows import is_sparse, join_rows
from odeco.privacy.sources import open_private

_FAULTS = (EOFError, ValueError, TypeError, SyntaxError, TokenError, KeyError)


def load_tensor(path: Path, key: str | None) -> np.ndarray[Any, Any]:
    """Return the tensor in a ``.npy`` file, mapped into memory, or in a ``.npz`` archive."""
    if path.suffix == ".npy":
        return load_npy(path)
    if path.suffix != ".npz":
        raise ValueError(f"A tensor must be in a .npy or .npz file. Got {path}. Write it with numpy.save.")
    try:
        held = list(announced_arrays(path))
        if key is None and len(held) == 1:
            key = held[0]
        if key in held:
            return read_array(path, key)
    except FileFormatError:
        raise
    except _FAULTS as error:
        raise ValueError(f"{path} must be an archive of plain arrays. It is not: {error}. Make it again.") from error
    listed = ", ".join(held) or "nothing"
    got = "none was named" if key is None else f"Got {key!r}"
    raise ValueError(f"One array of {path} must be named, of: {listed}. {got}. Pass --key NAME.")


def load_npy(path: Path) -> np.ndarray[Any, Any]:
    """Return the array in a ``.npy`` file, mapped into memory and never unpickled."""
    try:
        with path.open("rb") as file:
            npy_format.read_magic(file)  # else an archive or a pickle under this name would be looked into
        array: np.ndarray[Any, Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except _FAULTS as error:
        raise ValueError(
            f"{path} must be a complete .npy file of numbers. It is not: {error}. Make it again."
        ) from error
    return array


def load_names(path: Path | None, dimension: int, columns: Sequence[str] | None = None) -> list[str] | None:
    """Return the names of the coordinates: those of the file, or else those of the columns of the data, or None."""
    if path is None:
        return list(columns) if columns is not None and len(columns) == dimension else None
    names = path.read_text(encoding="utf-8").splitlines()
    if len(names) != dimension:
        raise ValueError(
            f"{path} must have one name for each of the {dimension:,} coordinates. It has {len(names):,} lines. "
            "Write one name per line."
        )
    return names


def load_groups(path: Path | None) -> Any:
    """Return the label of each row: the lines of a text file, or an array."""
    if path is None:
        return None
    if path.suffix == ".npy":
        return np.asarray(load_npy(path))
    return np.array(path.read_text(encoding="utf-8").splitlines())


#: The number of private rows in a block.
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
