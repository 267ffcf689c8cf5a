"""The public schema of a table: the columns, and what each may hold. Cells become levels by it, and
levels become cells again.

Nothing here depends on the cells of a table but their own levels: no type, error or warning.
"""

from __future__ import annotations

import json
import math
import numbers
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from odeco._util.arguments import check_count, is_null
from odeco._util.types import FloatArray, IndexArray

#: The largest number of levels of all columns together: there are as many counts as its square.
_MAX_LEVELS = 2000

#: Texts that are read as numbers, where the categories of a column are yes and no.
_TRUTH = {"true": 1.0, "false": 0.0}

#: What the description of a column of numbers may hold.
_KEYS = {"low", "high", "bins", "edges", "whole", "missing"}


@dataclass(frozen=True)
class Categories:
    """A column of categories.

    Attributes
    ----------
    values : tuple
        The categories: texts, or numbers and booleans.
    missing : bool
        Whether cells may be missing, which is a level.
    """

    values: tuple[Any, ...]
    missing: bool

    @property
    def n_levels(self) -> int:
        """The number of levels."""
        return len(self.values) + self.missing

    def encode(self, cells: Sequence[Any]) -> IndexArray:
        """Return the place of each cell among the categories; −1 if it is none of them."""
        read = _as_text if isinstance(self.values[0], str) else _as_number
        known = {read(value): place for place, value in enumerate(self.values)}
        return np.array([known.get(read(cell), -1) for cell in cells], dtype=np.int64)

    def decode(self, codes: IndexArray, rng: np.random.Generator) -> np.ndarray[Any, Any]:  # noqa: ARG002
        """Return the categories at some places; a missing one is None."""
        values = self.values
        if self.missing or isinstance(values[0], str):
            listed = np.empty(len(values) + 1, dtype=object)
            listed[:-1] = values
        else:
            listed = np.array(values)
        chosen: np.ndarray[Any, Any] = listed[codes]
        return chosen

    def to_document(self) -> Any:
        """Return the description of the column."""
        return [*self.values, None] if self.missing else list(self.values)


@dataclass(frozen=True)
class Bins:
    """A column of numbers, of which only the bin is learnt.

    Attributes
    ----------
    edges : tuple of float
        The limits of the bins. A number at a limit belongs to the bin above; the last one belongs
        to the last bin.
    whole : bool
        Whether drawn numbers are whole.
    missing : bool
        Whether cells may be missing, which is a level.
    """

    edges: tuple[float, ...]
    whole: bool
    missing: bool

    @property
    def n_levels(self) -> int:
        """The number of levels."""
        return len(self.edges) - 1 + self.missing

    def encode(self, cells: Sequence[Any]) -> IndexArray:
        """Return the bin of each cell, the nearest one for numbers beyond the limits; −1 if it is
        no number.
        """
        read = np.array([_as_number(cell) for cell in cells], dtype=np.float64)
        codes = np.searchsorted(self.edges[1:-1], read, side="right")
        return np.where(np.isnan(read), -1, codes)

    def decode(self, codes: IndexArray, rng: np.random.Generator) -> FloatArray:
        """Draw a number from each bin, uniformly; a missing one is NaN."""
        known = codes < len(self.edges) - 1
        bins = np.where(known, codes, 0)
        low = np.array(self.edges[:-1])
        high = np.array(self.edges[1:])
        if not self.whole:
            drawn = rng.uniform(low[bins], high[bins])
            return np.where(known, drawn, np.nan)
        high[-1] += 1
        numbers_drawn = rng.integers(low.astype(np.int64)[bins], high.astype(np.int64)[bins])
        if self.missing:
            return np.where(known, numbers_drawn, np.nan)
        return numbers_drawn  # type: ignore[return-value]

    def to_document(self) -> Any:
        """Return the description of the column."""
        return {"edges": list(self.edges), "whole": self.whole, "missing": self.missing}


#: The columns of a table by their names.
Schema: TypeAlias = "dict[str, Categories | Bins]"


def as_schema(given: Any) -> Schema:
    """Return the schema that a user gives: a mapping, or a JSON file of one.

    Each column has a list of categories, of which None says that cells may be missing; or, for
    numbers, a mapping with ``low``, ``high`` and ``bins``, or with ``edges``, and with ``whole``
    and ``missing`` if they are whole numbers, or may be missing.
    """
    if isinstance(given, str | os.PathLike):
        given = _read(Path(given))
    if not isinstance(given, Mapping) or not given:
        raise ValueError(
            "A schema must have a description for each of at least one column. Got "
            f'{_shown(given)}. Pass one such as {{"sex": ["f", "m"], "age": {{"low": 0, "high": '
            '100, "bins": 10}}.'
        )
    schema = {_as_name(name): _as_column(name, each) for name, each in given.items()}
    n_levels = sum(each.n_levels for each in schema.values())
    if n_levels > _MAX_LEVELS:
        raise ValueError(
            f"The columns must have at most {_MAX_LEVELS:,} levels together. Got {n_levels:,}. "
            "Join rare categories, or take fewer bins."
        )
    return schema


def to_document(schema: Schema) -> dict[str, Any]:
    """Return a schema as JSON has it."""
    return {name: each.to_document() for name, each in schema.items()}


def _read(path: Path) -> Any:
    """Return what a JSON file holds."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(
            f"{path} must be a JSON file. It is not: {error}. Write it as one."
        ) from error


def _shown(value: Any) -> str:
    """Return a value for an error, of at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _as_name(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(
            f"The names of columns must be texts. The schema has {_shown(name)}. Rename the column."
        )
    return name


def _as_column(name: str, given: Any) -> Categories | Bins:
    if isinstance(given, Mapping):
        return _as_bins(name, given)
    if isinstance(given, list | tuple | np.ndarray):
        return _as_categories(name, list(given))
    raise ValueError(
        f"A column of a schema must be a list of categories or a description of bins. {name!r} is "
        f'{_shown(given)}. Pass ["a", "b"] or {{"low": 0, "high": 100, "bins": 10}}.'
    )


def _as_categories(name: str, given: list[Any]) -> Categories:
    values = [each.item() if isinstance(each, np.generic) else each for each in given]
    known = [each for each in values if not is_null(each)]
    texts = all(isinstance(each, str) for each in known)
    are_numbers = all(isinstance(each, bool | int | float) for each in known)
    read = _as_text if texts else _as_number
    distinct = len({read(each) for each in known}) == len(known)
    finite = texts or (are_numbers and all(math.isfinite(each) for each in known))
    if not known or len(values) > len(known) + 1 or not finite or not distinct:
        raise ValueError(
            "The categories of a column must be different, all texts or all finite numbers, at "
            f"least one of them, and None at most once. {name!r} has {_shown(given)}. List each "
            "category once."
        )
    return Categories(tuple(known), len(values) > len(known))


def _as_bins(name: str, given: Mapping[str, Any]) -> Bins:
    unknown = sorted(map(str, set(given) - _KEYS))
    ranged = {"low", "high", "bins"} <= set(given)
    if unknown or ranged == ("edges" in given):
        raise ValueError(
            'A column of numbers must have "low", "high" and "bins", or "edges", and may have '
            f'"whole" and "missing". {name!r} has {_shown(dict(given))}. Correct it.'
        )
    whole = bool(given.get("whole", False))
    if ranged:
        n_bins = check_count("bins", given["bins"], 1, _MAX_LEVELS)
        edges = np.linspace(_finite(name, given["low"]), _finite(name, given["high"]), n_bins + 1)
        if whole:
            edges = np.rint(edges)
    else:
        edges = np.array([_finite(name, each) for each in given["edges"]])
    rounded = np.rint(edges)
    rising = edges.size >= 2 and bool(np.all(np.diff(edges) > 0))
    if not rising or (whole and not np.array_equal(rounded, edges)):
        raise ValueError(
            f"The limits of bins must rise, and be whole for whole numbers. Those of {name!r} are "
            f"{_shown(edges.tolist())}. Take fewer bins, or correct them."
        )
    return Bins(tuple(edges.tolist()), whole, bool(given.get("missing", False)))


def _finite(name: str, value: Any) -> float:
    """Return a limit of a bin as a number below 2⁵³, where whole numbers are exact."""
    number = _as_number(value)
    if isinstance(value, str) or not abs(number) < 2.0**53:
        raise ValueError(
            f"The limits of bins must be numbers below 2^53. {name!r} has {_shown(value)}. Pass a "
            "number."
        )
    return number


# Cells --------------------------------------------------------------------------------------------


def _as_text(cell: Any) -> str | None:
    """Return a cell as a text; None if it is missing, or neither a text nor a number.

    A whole number has one text, whatever its type: where a cell is missing, tables turn all whole
    numbers of a column into floats, and the cells of others must mean what they meant.
    """
    if is_null(cell) or not isinstance(cell, str | numbers.Real | np.bool_):
        return None
    try:
        if isinstance(cell, str | bool | np.bool_):
            return str(cell)
        number = float(cell)
        return str(int(number)) if number.is_integer() else str(number)
    except Exception:  # noqa: BLE001 - an error would depend on the cell
        return None


def _as_number(cell: Any) -> float:
    """Return a cell as a number; NaN if it is missing or no number."""
    if not isinstance(cell, str | numbers.Real | np.bool_):
        return math.nan
    try:
        if isinstance(cell, str):
            lowered = cell.strip().lower()
            return _TRUTH[lowered] if lowered in _TRUTH else float(lowered)
        return float(cell)
    except Exception:  # noqa: BLE001 - an error would depend on the cell
        return math.nan


def encode(schema: Schema, table: Any) -> IndexArray:
    """Return the levels of a table, rows x columns; −1 where a cell says nothing.

    A cell that the schema does not list counts as missing. If the column has no level for missing
    cells, it says nothing. A row without any known cell is blank: none of its cells says anything.
    """
    n_rows = _number_of_rows(schema, table)
    codes = np.empty((n_rows, len(schema)), dtype=np.int64)
    with np.errstate(all="ignore"):  # numbers beyond double precision
        for place, (name, column) in enumerate(schema.items()):
            codes[:, place] = column.encode(_cells_of(table[name]))
    blank = np.all(codes < 0, axis=1)
    levels = [each.n_levels - 1 if each.missing else -1 for each in schema.values()]
    filled = np.where(codes < 0, np.array(levels), codes)
    filled[blank] = -1
    return filled


def _number_of_rows(schema: Schema, table: Any) -> int:
    """Return the number of rows of a table, or raise; types, names and lengths are public."""
    is_frame = hasattr(table, "iloc") and hasattr(table, "columns")
    if not is_frame and not isinstance(table, Mapping):
        raise TypeError(
            "A private table must be a pandas table or a dict of columns. Got "
            f"{type(table).__name__}. Convert it, as with to_pandas()."
        )
    names = list(table.columns) if is_frame else list(table)
    wrong = [name for name in schema if names.count(name) != 1]
    if wrong:
        raise ValueError(
            f"The table must have each column of the schema once. It has not, for {wrong[0]!r}. "
            "Rename or add the column, or take it out of the schema."
        )
    for name in schema:
        column = table[name]
        is_array = hasattr(column, "dtype") and not isinstance(column, np.ma.MaskedArray)
        if not is_array and not isinstance(column, list | tuple):
            raise TypeError(
                f"A column must be a list, a NumPy array or a pandas series. {name!r} is "
                f"{type(column).__name__}. Convert it."
            )
        if is_array and column.ndim != 1:
            raise ValueError(f"A column must have one axis. {name!r} has more. Split it.")
    lengths = {len(table[name]) for name in schema}
    if len(lengths) > 1 or lengths == {0}:
        raise ValueError(
            "The columns must have the same number of rows, at least one. Got "
            f"{', '.join(map(str, sorted(lengths)))}. Correct the table."
        )
    return int(lengths.pop())


def _cells_of(column: Any) -> Sequence[Any]:
    """Return the cells of a column; a cell that cannot be read is None.

    If one cell cannot be read, all are read alone. That gives the same values for the others.
    """
    if isinstance(column, list | tuple):
        return column
    try:
        cells: list[Any] = column.tolist()
    except Exception:  # noqa: BLE001 - an error would depend on a cell
        cells = [_cell_at(column, place) for place in range(len(column))]
    return cells


def _cell_at(column: Any, place: int) -> Any:
    """Return one cell as `tolist` does, as a value of Python."""
    try:
        cell = column.iloc[place] if hasattr(column, "iloc") else column[place]
        return cell.item() if isinstance(cell, np.generic) else cell
    except Exception:  # noqa: BLE001 - an error would depend on the cell
        return None
