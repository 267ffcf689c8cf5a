"""Sequences as users pass them: rows of all sequences one after the other, their lengths, and names
of symbols.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from odeco._util.arguments import is_null
from odeco._util.types import BoolArray, FloatArray, IndexArray
from odeco.models.engine.rows import column_ranges

#: Numbers of three consecutive symbols must fit into 64 bits.
MAX_SYMBOLS = 2_000_000

#: Vectors must not be larger, and must vary by at least its inverse, so that squares neither
#: overflow nor underflow.
_MAX_NUMBER = 1e140


@dataclass(frozen=True, eq=False)
class Sequences:
    """Rows of all sequences, and which of them begin a sequence."""

    rows: Any
    begins: BoolArray

    def __len__(self) -> int:
        return len(self.begins)

    def __getitem__(self, part: Any) -> Sequences:
        begins = self.begins
        if (
            getattr(part, "dtype", None) == np.bool_
        ):  # a row whose predecessor is left out begins a sequence
            begins = begins | ~np.append(True, part[:-1])
        return Sequences(self.rows[part], begins[part])


def as_lengths(lengths: Any, n_rows: int, *, low: int) -> IndexArray:
    """Return the length of each sequence, at least `low`; without lengths all rows are one
    sequence.

    Texts are the name of the sequence of each row, and rows of one sequence are neighbours.
    """
    given = np.array([n_rows]) if lengths is None else np.asarray(lengths)
    if given.shape == (n_rows,) and given.dtype.kind in "UO" and n_rows:
        firsts = np.flatnonzero(np.append(True, given[1:] != given[:-1]))
        n_names = len(set(given[firsts].tolist()))
        if n_names < firsts.size:
            raise ValueError(
                f"Rows of one sequence must be neighbours. Got {n_names:,} names in "
                f"{firsts.size:,} stretches of rows. Sort the rows by sequence, and by time "
                "within it."
            )
        return np.diff(np.append(firsts, n_rows))
    if (
        given.ndim != 1
        or given.dtype.kind not in "iu"
        or np.any(given < low)
        or int(given.sum()) != n_rows
    ):
        total = f" that sum to {given.sum():,}" if given.dtype.kind in "iu" else ""
        raise ValueError(
            f"`lengths` must be whole numbers of at least {low} that sum to the number of rows, "
            f"{n_rows:,}. Got {given.size:,} of type {given.dtype}{total}. Pass the length of "
            "every sequence, or a name for every row."
        )
    return given.astype(np.int64)


def begins_of(lengths: Any, n_rows: int) -> BoolArray:
    """Return which rows begin a sequence."""
    begins = np.zeros(n_rows, bool)
    begins[np.append(0, np.cumsum(as_lengths(lengths, n_rows, low=1))[:-1])] = True
    return begins


def check_labels(y: Any, n_rows: int) -> None:
    """Raise if `y`, which is ignored, is not one label per row, and so is probably meant as
    lengths.
    """
    if y is not None and np.asarray(y).shape[:1] != (n_rows,):
        raise ValueError(
            f"`y` is ignored, and must be None or one label for each of {n_rows:,} rows. Got "
            f"shape {np.shape(y)}. Pass lengths by name: lengths=."
        )


def as_column(X: Any) -> Any:
    """Return a vector of whole numbers as one column of symbols, and everything else as it is."""
    if isinstance(X, np.ndarray | list | tuple):
        array = np.asarray(X)
        if array.ndim == 1 and array.dtype.kind in "iu":
            return array[:, None]
    return X


def as_symbols(rows: Any, n_symbols: int | None) -> tuple[FloatArray, int]:
    """Return one column of symbols, NaN if they are missing, and the number of symbols."""
    if rows.shape[1] != 1:
        raise ValueError(
            f"Symbols must stand in one column. Got {rows.shape[1]} columns. Pass "
            "emissions='gaussian'."
        )
    column = rows[:, 0].astype(np.float64)
    missing = np.isnan(column)
    usable = (column == np.floor(column)) & (column >= 0) & (
        column < (n_symbols or MAX_SYMBOLS)
    ) | missing
    if not usable.all():
        place = int(np.argmin(usable))
        known = "" if n_symbols is None else f" below the number of symbols, {n_symbols:,}"
        raise ValueError(
            f"Symbols must be whole numbers from 0{known}. Got {column[place]:g} in row {place}. "
            "Number them, for instance with sklearn.preprocessing.OrdinalEncoder; or pass "
            "n_symbols."
        )
    return column, n_symbols or int(np.max(column, where=~missing, initial=0)) + 1


def check_codes(column: Any) -> None:
    """Raise unless all whole numbers from 0 to the largest occur, as they do if the numbers stand
    for symbols.

    Whole numbers of which some are missing are floats. They may be anything.
    """
    missing = np.isnan(column)
    if not missing.any() and column.min() >= 0 and np.unique(column).size == int(column.max()) + 1:
        return
    least, most = np.fmin.reduce(column), np.fmax.reduce(column)
    which = "some of which are missing" if missing.any() else "not all of which occur"
    raise ValueError(
        "One column of whole numbers may be symbols, counts or measurements. Got numbers from "
        f"{least:g} to {most:g}, {which}. Pass emissions='categorical', 'poisson' or 'gaussian'."
    )


def as_vectors(rows: Any) -> FloatArray:
    """Return rows in double precision; raise if their squares would overflow."""
    vectors: FloatArray = rows.astype(np.float64, copy=False)
    largest = np.fmax.reduce(np.abs(vectors), axis=0)
    if np.fmax.reduce(largest) > _MAX_NUMBER:
        column = int(np.nanargmax(largest))
        raise ValueError(
            f"Numbers must be at most {_MAX_NUMBER:g} in size, so that their squares are finite. "
            f"Got {largest[column]:.3g} in column {column}. Remove outliers, or divide all rows "
            "by a constant."
        )
    return vectors


def as_counts(rows: Any) -> FloatArray:
    """Return counts in double precision; raise unless they are whole numbers from 0."""
    counts = as_vectors(rows)
    usable = (counts >= 0) & (counts == np.floor(counts)) | np.isnan(counts)
    if not usable.all():
        row, column = np.argwhere(~usable)[0]
        raise ValueError(
            f"Counts must be whole numbers from 0. Got {counts[row, column]:g} in row {row}, "
            f"column {column}. Pass emissions='gaussian'."
        )
    return counts


def check_range(vectors: FloatArray) -> None:
    """Raise if rows vary, but so little that their variances underflow."""
    widest = float(column_ranges(vectors).max())
    if 0 < widest < 1 / _MAX_NUMBER:
        raise ValueError(
            f"Rows must vary by at least {1 / _MAX_NUMBER:g}, so that their variances are not "
            f"zero. They vary by at most {widest:.3g}. Multiply all rows by a constant."
        )


def check_mask(name: str, mask: Any) -> BoolArray:
    """Return which transitions are allowed; every state must have one."""
    checked = np.asarray(mask)
    if checked.dtype != bool or checked.ndim != 2 or checked.shape[0] != checked.shape[1]:
        raise ValueError(
            f"`{name}` must be a square array of bool, whether state i may be followed by state "
            f"j. Got an array of {checked.dtype} and shape {checked.shape}. Pass one row and one "
            "column for each state."
        )
    left = checked.any(axis=1)
    if not left.all():
        raise ValueError(
            f"`{name}` must allow a transition from every state. Got none from state "
            f"{int(np.argmin(left))}. Allow it to be followed by itself, or by another."
        )
    return checked


def check_names(names: Any, n_symbols: int | None) -> list[str]:
    """Return the names of symbols, which must be distinct and one per symbol; an empty list for
    None.
    """
    if names is None:
        return []
    given = [str(name) for name in names]
    if not given or len(set(given)) < len(given) or n_symbols not in (None, len(given)):
        number = "" if n_symbols is None else f", n_symbols={n_symbols} of them"
        raise ValueError(
            f"`symbol_names` must be a list of distinct names{number}. Got {len(given)} names, "
            f"{len(set(given))} of them distinct. Pass one for each of the symbols 0, 1, 2, …"
        )
    return given


def encode_texts(X: Any, names: list[str]) -> tuple[Any, list[str]]:
    """Return one column of texts as numbers, and the names of the symbols; anything else as it is.

    Without names, the texts that occur are the symbols, in alphabetical order.
    """
    texts = _texts(X)
    if texts is None:
        return X, names
    missing = np.array([is_null(each) for each in texts])
    texts = np.where(missing, "", texts).astype(np.str_)
    known = np.array(names) if names else np.unique(texts[~missing])
    order = np.argsort(known, kind="stable")
    places = np.minimum(np.searchsorted(known[order], texts), known.size - 1)
    codes: Any = order[places]
    unknown = (known[codes] != texts) & ~missing
    if unknown.any():
        place = int(np.argmax(unknown))
        raise ValueError(
            f"Symbols must be among the names of the model. Got {str(texts[place])!r} in row "
            f"{place}. Pass all names as symbol_names to fit or partial_fit."
        )
    if missing.any():
        codes = np.where(missing, np.nan, codes)
    if hasattr(X, "columns") and not hasattr(
        X, "column_names"
    ):  # not of pyarrow: it keeps the name of its column
        return type(X)({X.columns[0]: codes}), known.tolist()
    return codes[:, None], known.tolist()


def _texts(X: Any) -> Any:
    """Return one column of texts, some of which may be missing, as an array; None for everything
    else.
    """
    can_be_texts = isinstance(X, np.ndarray | list | tuple) or hasattr(X, "columns")
    is_series = hasattr(X, "to_numpy")
    array = np.asarray(X) if can_be_texts or is_series else None
    if array is None or not array.size or array.shape not in ((array.size,), (array.size, 1)):
        return None
    column = array.ravel()
    if column.dtype.kind == "U":
        return column
    are_texts = column.dtype.kind == "O" and all(
        isinstance(each, str) or is_null(each) for each in column
    )
    return column if are_texts and any(isinstance(each, str) for each in column) else None
