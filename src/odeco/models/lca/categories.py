"""Which answers each question has, and answers as the places that they have among them.

Answers as whole numbers, and blocks of their indicators: one column for every answer to every question.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from odeco._util.types import FloatArray, IndexArray

#: The answers to each question: an array of numbers, of yes and no, or of texts.
Categories: TypeAlias = "list[Any]"


#: What stands for no answer, and for one that is not among the answers to its question.
MISSING, UNKNOWN = -1, -2

#: More different values than this are a measurement and no answers.
_MOST_ANSWERS = 250

#: What a file calls the kinds of answers, by their number there.
_KINDS: tuple[tuple[str, Any], ...] = (("i", int), ("f", float), ("b", lambda text: text == "True"), ("O", str))


def columns_of(X: Any) -> list[Any]:
    """Return the columns of an array or a table: arrays of numbers, arrays of objects, or pandas categoricals."""
    if hasattr(X, "iloc"):
        return [_column_of_table(X.iloc[:, place]) for place in range(X.shape[1])]
    return [X[:, place] if X.dtype.kind in "iufb" else X[:, place].astype(object) for place in range(X.shape[1])]


def _column_of_table(column: Any) -> Any:
    if hasattr(column, "cat"):
        return column.array
    values = column.to_numpy()
    if values.dtype.kind in "iufb":
        return values
    if column.dtype.kind in "iufb":  # numbers of pandas, some of which are missing
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    return column.to_numpy(dtype=object)


def is_missing(cell: Any, missing_value: Any) -> bool:
    """Tell whether a cell says that there is no answer: None, NaN, what pandas has for it, or the value for it."""
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    return bool(isinstance(cell, float | np.floating) and np.isnan(cell)) or _same(cell, missing_value)


def _same(cell: Any, value: Any) -> bool:
    return isinstance(cell, str | numbers.Real) and isinstance(cell, str) == isinstance(value, str) and cell == value


def learn_categories(columns: Sequence[Any], names: Sequence[str], missing_value: Any) -> Categories:
    """Return the answers that occur in each column, sorted; those of a pandas categorical in its own order."""
    return [_learn(column, name, missing_value) for column, name in zip(columns, names, strict=True)]


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
            f"The answers to a question must be all numbers or all texts. {name} has both. Convert one to the other."
        )
    return _as_array(sorted(distinct), name)


def _hashable(cell: Any) -> Any:
    if not isinstance(cell, str | numbers.Real | np.bool_) and not is_missing(cell, None):
        raise TypeError(
            f"An answer that is given as an argument must be a string or a number. Got {type(cell).__name__}."
        )
    return cell


def _as_array(cells: list[Any], name: str) -> Any:
    _check_number(len(cells), name)
    if any(isinstance(cell, str) for cell in cells):
        if any(not isinstance(cell, str) or "\0" in cell for cell in cells):
            raise ValueError(
                f"The answers to a question must be all numbers or all texts without NUL. {name} has others. "
                "Convert them."
            )
        return np.array(cells, dtype=object)
    made = np.array(cells)
    if made.dtype.kind not in "iufb":
        raise TypeError(f"The answers to a question must be numbers or texts. {name} has others. Convert them.")
    return made if made.dtype.kind in "fb" else made.astype(np.int64)


def _check_number(n_answers: int, name: str) -> None:
    if n_answers < 1:
        raise ValueError(f"A question must have an answer. {name} has none but missing ones. Leave it out.")
    if n_answers > _MOST_ANSWERS:
        raise ValueError(
            f"A question must have at most {_MOST_ANSWERS} different answers. {name} has {n_answers:,}. Bin numbers, "
            "for instance with KBinsDiscretizer, and leave out names and the like."
        )


def given_categories(given: Any, names: Sequence[str], missing_value: Any) -> Categories:
    """Return the answers that a user names: for every question a list, or how many there are, coded from 0 on.

    One number stands for that number for every question.
    """
    each = [given] * len(names) if isinstance(given, numbers.Integral) else list(given)
    if len(each) != len(names):
        raise ValueError(
            f"`categories` must have the answers to each of the {len(names)} questions. Got those to {len(each)}."
        )
    return [_given(own, name, missing_value) for own, name in zip(each, names, strict=True)]


def _given(own: Any, name: str, missing_value: Any) -> Any:
    if isinstance(own, numbers.Integral) and not isinstance(own, bool):
        _check_number(int(own), name)
        return np.arange(int(own))
    cells = None if isinstance(own, str | numbers.Real) else [_hashable(cell) for cell in own]
    if not cells or len(set(cells)) < len(cells) or any(is_missing(cell, missing_value) for cell in cells):
        raise ValueError(
            f"`categories` must have different answers to each question, none of them missing. Got {own!r} for {name}."
        )
    return _as_array(cells, name)


def encode(columns: Sequence[Any], categories: Categories, missing_value: Any) -> IndexArray:
    """Return the place of every answer among the answers to its question, or `MISSING`, or `UNKNOWN`."""
    coded = [_encode(column, own, missing_value) for column, own in zip(columns, categories, strict=True)]
    return np.column_stack(coded)


def _encode(column: Any, own: Any, missing_value: Any) -> IndexArray:
    if hasattr(column, "categories"):
        places = _looked_up(list(column.categories), own, missing_value)
        recoded: IndexArray = np.append(places, MISSING)[np.asarray(column.codes)]
        return recoded
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
        return table.get(cell, UNKNOWN) if isinstance(cell, str | numbers.Real | np.bool_) else UNKNOWN

    return np.array([place_of(cell) for cell in cells], dtype=np.int64)


def check_known(codes: IndexArray, columns: Sequence[Any], names: Sequence[str]) -> None:
    """Raise if an answer is none of those to its question."""
    rows, places = np.nonzero(codes == UNKNOWN)
    if rows.size:
        column = columns[places[0]]
        raise ValueError(
            f"Every answer must be one that was there when the model was learnt. {names[places[0]]} has "
            f"{column[rows[0]]!r} in row {rows[0]}. Name all answers with `categories`, or pass "
            "handle_unknown='missing'."
        )


def to_texts(categories: Categories) -> tuple[Any, IndexArray]:
    """Return all answers as texts, and what kind those to each question are of, for a file."""
    texts = [repr(cell) if own.dtype.kind != "O" else cell for own in categories for cell in own.tolist()]
    kinds = [[kind for kind, _ in _KINDS].index(own.dtype.kind) for own in categories]
    return np.array(texts, dtype=str), np.array(kinds, dtype=np.int64)


def from_texts(texts: Any, kinds: IndexArray, sizes: IndexArray) -> Categories:
    """Return what `to_texts` made, or raise if that cannot be."""
    parts = np.split(texts, np.cumsum(sizes)[:-1])
    read = [_read(part.tolist(), *_KINDS[kind]) for part, kind in zip(parts, kinds, strict=True)]
    if any(len(set(own.tolist())) < own.size for own in read):
        raise ValueError("the answers to a question must be different")
    return read


def _read(texts: list[str], kind: str, convert: Any) -> Any:
    return np.array([convert(text) for text in texts], dtype=np.int64 if kind == "i" else kind)


#: Indicators as they are kept: a byte each. Products are made of blocks of them in double precision.
Bits: TypeAlias = npt.NDArray[np.uint8]


#: Rows of a block. Sums over blocks are added in their order.
BLOCK = 2048


@dataclass(frozen=True, eq=False)
class Questions:
    """How many answers each question has.

    Attributes
    ----------
    sizes : array
        The number of answers to each question.
    """

    sizes: IndexArray

    @property
    def offsets(self) -> IndexArray:
        """Where the indicators of each question begin."""
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]]).astype(np.int64)

    @property
    def n_answers(self) -> int:
        """The number of answers to all questions together."""
        return int(self.sizes.sum())

    @property
    def n_free(self) -> int:
        """How many of the probabilities of a class can be chosen freely."""
        return int(np.sum(self.sizes - 1))

    @property
    def owners(self) -> IndexArray:
        """The question of each answer."""
        return np.repeat(np.arange(self.sizes.size), self.sizes)

    def sum_by_question(self, numbers: FloatArray) -> FloatArray:
        """Return the sum over the answers to each question; answers are along the first axis."""
        return np.add.reduceat(numbers, self.offsets, axis=0)

    def indicators(self, codes: IndexArray) -> Bits:
        """Return a 1 for each answer that was given; a question without an answer, coded below 0, has none."""
        marked = np.zeros((len(codes), self.n_answers), dtype=np.uint8)
        rows, columns = np.nonzero(codes >= 0)
        marked[rows, self.offsets[columns] + codes[rows, columns]] = 1
        return marked


def blocks_of(marked: Any) -> Iterator[Any]:
    """Yield the rows of an array in blocks."""
    for start in range(0, len(marked), BLOCK):
        yield marked[start : start + BLOCK]
