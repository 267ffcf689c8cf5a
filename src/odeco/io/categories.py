"""The possible answers to each question, and the coding of answers as their places among these."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from odeco._util.arguments import is_null
from odeco._util.types import IndexArray

#: The answers to each question: an array of numbers, of yes and no, or of texts.
Categories: TypeAlias = "list[Any]"


#: The codes of a missing answer, and of one that is not among the answers to its question.
MISSING = -1
UNKNOWN = -2

#: A column with more different values than this is a measurement and not a question.
_MAX_ANSWERS = 250

#: The kinds of answers, by their number in a file: the kind of their NumPy type, that type, and how
#: a text is read.
_KINDS: tuple[tuple[str, Any, Any], ...] = (
    ("i", np.int64, int),
    ("f", np.float64, float),
    ("b", np.bool_, lambda text: text == "True"),
    ("O", object, str),
)


def columns_of(X: Any) -> list[Any]:
    """Return the columns of an array or a table: arrays of numbers, arrays of objects, or pandas
    categoricals.
    """
    if hasattr(X, "iloc"):
        return [_column_of_table(X.iloc[:, place]) for place in range(X.shape[1])]
    return [
        X[:, place] if X.dtype.kind in "iufb" else X[:, place].astype(object)
        for place in range(X.shape[1])
    ]


def _column_of_table(column: Any) -> Any:
    """Return a column as an array whose type follows from that of the column, and never from its
    cells.

    pandas makes integers floats where one is missing. Beyond 2⁵³ these are rounded, so a missing
    answer would change how the answers of others are read.
    """
    if hasattr(column, "cat"):
        return column.array
    kind = column.dtype.kind
    if kind in "iufb" and isinstance(column.dtype, np.dtype):
        return column.to_numpy()
    return (
        column.to_numpy(dtype=np.float64, na_value=np.nan)
        if kind == "f"
        else column.to_numpy(dtype=object)
    )


def is_missing(cell: Any, missing_value: Any) -> bool:
    """Tell whether a cell is a missing answer: None, NaN, NA of pandas, or the value that stands
    for it.
    """
    return is_null(cell) or _same(cell, missing_value)


def _same(cell: Any, value: Any) -> bool:
    return (
        isinstance(cell, str | numbers.Real)
        and isinstance(cell, str) == isinstance(value, str)
        and cell == value
    )


def learn_categories(
    columns: Sequence[Any], names: Sequence[str], missing_value: Any
) -> Categories:
    """Return the answers that occur in each column, sorted; those of a pandas categorical in its
    own order.
    """
    return [
        _learn(column, name, missing_value) for column, name in zip(columns, names, strict=True)
    ]


def _learn(column: Any, name: str, missing_value: Any) -> Any:
    if hasattr(column, "categories"):
        cells = [cell for cell in column.categories if not is_missing(cell, missing_value)]
        return _as_array(cells, name)
    if column.dtype.kind in "iufb":
        found = np.unique(column)
        found = found[[not is_missing(cell, missing_value) for cell in found.tolist()]]
        _check_number(found.size, name)
        return found if found.dtype.kind in "fb" else found.astype(np.int64)
    distinct = {cell for cell in map(_hashable, column) if not is_missing(cell, missing_value)}
    texts = sum(isinstance(cell, str) for cell in distinct)
    if 0 < texts < len(distinct):
        raise ValueError(
            f"The answers to a question must be all numbers or all texts. {name} has both. "
            "Convert one to the other."
        )
    return _as_array(sorted(distinct), name)


def _hashable(cell: Any) -> Any:
    if not isinstance(cell, str | numbers.Real | np.bool_) and not is_missing(cell, None):
        raise TypeError(
            "An answer that is given as an argument must be a string or a number. Got "
            f"{type(cell).__name__}."
        )
    return cell


def _as_array(cells: list[Any], name: str) -> Any:
    _check_number(len(cells), name)
    if any(isinstance(cell, str) for cell in cells):
        if any(not isinstance(cell, str) or "\0" in cell for cell in cells):
            raise ValueError(
                f"The answers to a question must be all numbers or all texts without NUL. {name} "
                "has others. Convert them."
            )
        return np.array(cells, dtype=object)
    made = np.array(cells)
    if made.dtype.kind not in "iufb":
        raise TypeError(
            f"The answers to a question must be numbers or texts. {name} has others. Convert them."
        )
    return made if made.dtype.kind in "fb" else made.astype(np.int64)


def _check_number(n_answers: int, name: str) -> None:
    if n_answers < 1:
        raise ValueError(
            f"A question must have an answer. {name} has none but missing ones. Leave it out."
        )
    if n_answers > _MAX_ANSWERS:
        raise ValueError(
            f"A question must have at most {_MAX_ANSWERS} different answers. {name} has "
            f"{n_answers:,}. Bin numbers, for instance with KBinsDiscretizer, and leave out names "
            "and the like."
        )


def given_categories(given: Any, names: Sequence[str], missing_value: Any) -> Categories:
    """Return the answers that a user names: for every question a list, or their number if they are
    coded from 0 on.

    One number is that of every question.
    """
    each = [given] * len(names) if isinstance(given, numbers.Integral) else list(given)
    if len(each) != len(names):
        raise ValueError(
            f"`categories` must have the answers to each of the {len(names)} questions. Got those "
            f"to {len(each)}."
        )
    return [_given(own, name, missing_value) for own, name in zip(each, names, strict=True)]


def _given(own: Any, name: str, missing_value: Any) -> Any:
    if isinstance(own, numbers.Integral) and not isinstance(own, bool):
        _check_number(int(own), name)
        return np.arange(int(own))
    cells = None if isinstance(own, str | numbers.Real) else [_hashable(cell) for cell in own]
    if (
        not cells
        or len(set(cells)) < len(cells)
        or any(is_missing(cell, missing_value) for cell in cells)
    ):
        raise ValueError(
            "`categories` must have different answers to each question, none of them missing. "
            f"Got {own!r} for {name}."
        )
    return _as_array(cells, name)


def encode(columns: Sequence[Any], categories: Categories, missing_value: Any) -> IndexArray:
    """Return the place of every answer among the answers to its question, or `MISSING`, or
    `UNKNOWN`.
    """
    coded = [
        _encode(column, own, missing_value) for column, own in zip(columns, categories, strict=True)
    ]
    return np.column_stack(coded)


def _encode(column: Any, own: Any, missing_value: Any) -> IndexArray:
    if hasattr(column, "categories"):
        places = _looked_up(list(column.categories), own, missing_value)
        return np.asarray(np.append(places, MISSING)[np.asarray(column.codes)])
    if column.dtype.kind == "O" or own.dtype.kind == "O":
        return _looked_up(column.tolist(), own, missing_value)
    # Numbers: by their place among the sorted answers.
    order = np.argsort(own, kind="stable")
    nearest = np.minimum(np.searchsorted(own[order], column), own.size - 1)
    codes = np.where(own[order][nearest] == column, order[nearest], UNKNOWN)
    missing = np.isnan(column) if column.dtype.kind == "f" else np.zeros(column.shape, dtype=bool)
    if isinstance(missing_value, numbers.Real) and column.dtype.kind != "b":
        missing |= column == missing_value
    codes[missing] = MISSING
    return codes


def _looked_up(cells: list[Any], own: Any, missing_value: Any) -> IndexArray:
    table = {cell: place for place, cell in enumerate(own.tolist())}

    def place_of(cell: Any) -> int:
        if is_missing(cell, missing_value):
            return MISSING
        return (
            table.get(cell, UNKNOWN) if isinstance(cell, str | numbers.Real | np.bool_) else UNKNOWN
        )

    return np.array([place_of(cell) for cell in cells], dtype=np.int64)


def check_known(codes: IndexArray, columns: Sequence[Any], names: Sequence[str]) -> None:
    """Raise if an answer is not one of those to its question."""
    rows, places = np.nonzero(codes == UNKNOWN)
    if rows.size:
        column = columns[places[0]]
        raise ValueError(
            "Every answer must be one that occurred when the model was fitted. "
            f"{names[places[0]]} has {column[rows[0]]!r} in row {rows[0]}. Name all answers with "
            "`categories`, or pass handle_unknown='missing'."
        )


def to_texts(categories: Categories) -> tuple[Any, IndexArray]:
    """Return all answers as texts, and the kind of those to each question, for a file."""
    texts = [
        repr(cell) if own.dtype.kind != "O" else cell for own in categories for cell in own.tolist()
    ]
    kinds = [[kind for kind, *_ in _KINDS].index(own.dtype.kind) for own in categories]
    return np.array(texts, dtype=str), np.array(kinds, dtype=np.int64)


def from_texts(texts: Any, kinds: IndexArray, sizes: IndexArray) -> Categories:
    """Return the answers that `to_texts` wrote, or raise `ValueError`."""
    parts = np.split(texts, np.cumsum(sizes)[:-1])
    read = [
        np.array([_KINDS[kind][2](text) for text in part.tolist()], dtype=_KINDS[kind][1])
        for part, kind in zip(parts, kinds, strict=True)
    ]
    if any(len(set(own.tolist())) < own.size for own in read):
        raise ValueError("the answers to a question must be different")
    return read
