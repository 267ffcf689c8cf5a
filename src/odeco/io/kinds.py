"""Tables whose columns are of several kinds: numbers, categories and counts, with gaps.

`as_table` reads a table of any library as named columns (`Table`). `Columns` says what each of them
is, and encodes a table as an array of numbers: categories by their places among the known ones, NaN
for what is missing. So a stream, a file and the command treat tables as rows of numbers.

The kind of a column follows from its type and its values: strings, yes and no, and categoricals are
categories, and so are numbers with few values, since a Gaussian at one of a few values is a spike.
Columns that say nothing about components are left out: constants, counters of rows, dates, and
texts of which there are almost as many as rows.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from importlib import import_module
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from odeco._util.arguments import is_null
from odeco._util.state import State, array_field, require
from odeco._util.types import FloatArray, IndexArray
from odeco.io.categories import UNKNOWN, columns_of, encode, from_texts, learn_categories, to_texts

Kind = Literal["number", "count", "category"]

#: What a user may say of a column.
ASKED = (*get_args(Kind), "ignore")

#: Numbers with at most this many values are categories, if each occurs five times on average.
_FEW_VALUES = 10
_TIMES_EACH = 5

#: Texts are names of rows if they have more values than this, and than this share of the rows.
_NAMES = 10
_SHARE_OF_NAMES = 0.05

#: In fewer rows than this, nothing is left out, and numbers are numbers: they say too little.
_FEWEST_ROWS = 20

#: A column has at most this many categories.
_MAX_CATEGORIES = 250

#: How tables of each library are made of columns.
_MAKERS = {"pandas": "DataFrame", "polars": "DataFrame", "pyarrow": "table"}


@dataclass(frozen=True, eq=False)
class Table:
    """A table as named columns.

    Attributes
    ----------
    columns : dict
        Arrays of numbers, of objects, or pandas categoricals, by their names.
    library : str
        Where it comes from: "pandas", "polars", "pyarrow", or "" for a dict.
    """

    columns: Mapping[str, Any]
    library: str = ""

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return len(self), len(self.columns)

    def take(self, places: IndexArray) -> Table:
        """Return some rows."""
        taken = {name: column[places] for name, column in self.columns.items()}
        return Table(taken, self.library)


def as_table(data: Any) -> Table | None:
    """Return a table of pandas, polars or pyarrow, or a dict of columns, as named columns; None for
    anything else.
    """
    if isinstance(data, Table):
        return data
    if isinstance(data, Mapping) and not hasattr(data, "shape"):  # as some sparse rows have
        return _table_of_dict(data)
    if hasattr(data, "collect_batches"):  # a LazyFrame of polars
        data = data.collect()
    if hasattr(data, "iloc") and getattr(data, "ndim", 0) == 2:
        if not all(isinstance(name, str) for name in data.columns):
            return None
        return Table(dict(zip(data.columns, columns_of(data), strict=True)), "pandas")
    if hasattr(data, "get_columns") and hasattr(data, "schema"):
        series = {column.name: column for column in data.get_columns()}
        columns = {name: _of_polars(column) for name, column in series.items()}
        return Table(columns, "polars")
    if hasattr(data, "column_names") and hasattr(data, "itercolumns"):
        return arrow_table(data)
    return None


def arrow_table(data: Any) -> Table:
    """Return a table of pyarrow as named columns."""
    arrays = zip(data.column_names, data.itercolumns(), strict=True)
    return Table({name: _of_arrow(column) for name, column in arrays}, "pyarrow")


def _table_of_dict(data: Mapping[str, Any]) -> Table:
    columns = {str(name): as_column(cells) for name, cells in data.items()}
    lengths = {name: len(column) for name, column in columns.items()}
    if not columns or len(set(lengths.values())) > 1:
        raise ValueError(
            "The columns of a table must have one length, and there must be one at least. Got "
            f"{lengths}. Make them equally long."
        )
    return Table(columns)


def as_column(cells: Any) -> Any:
    """Return cells as an array of numbers or of objects, or a pandas categorical as it is."""
    if hasattr(cells, "cat"):
        return cells.array
    if hasattr(cells, "categories") and hasattr(cells, "codes"):
        return cells
    array = np.asarray(cells)
    if array.ndim != 1:
        raise ValueError(
            f"A column of a table must have one axis. Got an array of shape {array.shape}. Pass "
            "each column under a name of its own."
        )
    if array.dtype.kind in "iufbMm":
        return array
    made = np.empty(len(array), dtype=object)
    made[:] = array.tolist() if isinstance(cells, np.ndarray) else list(cells)
    return made


def _of_polars(column: Any) -> Any:
    dtype = column.dtype
    if dtype.is_numeric() or dtype.is_temporal():
        return column.to_numpy()
    return as_column(column.to_list())


def _of_arrow(column: Any) -> Any:
    kind = str(column.type)
    if kind.startswith(("int", "uint", "float", "double", "half", "date", "time")):
        return column.to_numpy()
    return as_column(column.to_pylist())


@dataclass(frozen=True, eq=False)
class Columns(State):
    """What the columns of a table are.

    Attributes
    ----------
    names, kinds : array of str
        The names of the columns that are used, and the kind of each.
    types : array of str
        The kind of the NumPy type of each: "i", "u", "f", "b" or "O".
    texts, cells, sizes : array
        The categories of all columns of categories as texts, what their texts are, and the number
        of categories of each column, as `to_texts` returns them.
    left_out, reasons : array of str
        The names of the columns that are not used, and why.
    library : str
        The library of the table.
    """

    names: NDArray[np.str_] = array_field(None, kind="U", default=np.zeros(0, np.str_))
    kinds: NDArray[np.str_] = array_field(None, kind="U", default=np.zeros(0, np.str_))
    types: NDArray[np.str_] = array_field(None, kind="U", default=np.zeros(0, np.str_))
    texts: NDArray[np.str_] = array_field(None, kind="U", default=np.zeros(0, np.str_))
    cells: IndexArray = array_field(None, kind="i", low=0, high=3, default=np.zeros(0, np.int64))
    sizes: IndexArray = array_field(None, kind="i", low=1, default=np.zeros(0, np.int64))
    left_out: NDArray[np.str_] = array_field(None, kind="U", default=np.zeros(0, np.str_))
    reasons: NDArray[np.str_] = array_field(None, kind="U", default=np.zeros(0, np.str_))
    library: str = array_field(kind="U", default="")

    def check(self) -> None:
        """Raise `ValueError` unless the columns of a file agree with each other."""
        require(
            self.names.size == self.kinds.size == self.types.size
            and self.left_out.size == self.reasons.size
            and self.sizes.size == self.cells.size == int(np.sum(self.kinds == "category"))
            and int(self.sizes.sum()) == self.texts.size,
            "its columns must have a name, a kind and categories each",
        )
        require(
            set(self.kinds.tolist()) <= set(get_args(Kind)), "its columns must be of known kinds"
        )
        _ = self.categories

    @classmethod
    def of(cls, table: Table, asked: Mapping[str, str]) -> Self:
        """Return what the columns of a table are; a user may have said of some what they are."""
        check_asked(asked, list(table.columns))
        kinds: dict[str, str] = {}
        left_out: dict[str, str] = {}
        for name, column in table.columns.items():
            kind, reason = _kind_of(name, column, asked.get(name))
            if reason:
                left_out[name] = reason
            else:
                kinds[name] = kind
        if not kinds:
            raise ValueError(
                "A table must have a column of numbers, categories or counts. All of its columns "
                f"are left out: {_listed(left_out)}. Say with columns={{name: kind}} what to use."
            )
        categorical = [name for name, kind in kinds.items() if kind == "category"]
        _check_categories(table, categorical)
        cells = [_cells_of(table.columns[name]) for name in categorical]
        learnt = learn_categories(cells, categorical, None)
        texts, kinds_of_cells = to_texts(learnt) if learnt else (np.zeros(0, str), np.zeros(0, int))
        return cls(
            np.array(list(kinds), dtype=np.str_),
            np.array(list(kinds.values()), dtype=np.str_),
            np.array([_type_of(table.columns[name]) for name in kinds], dtype=np.str_),
            texts,
            np.asarray(kinds_of_cells, np.int64),
            np.array([own.size for own in learnt], dtype=np.int64),
            np.array(list(left_out), dtype=np.str_),
            np.array(list(left_out.values()), dtype=np.str_),
            table.library,
        )

    @cached_property
    def categories(self) -> dict[str, Any]:
        """The categories of each column of categories, in their order."""
        if not self.sizes.size:
            return {}
        read = from_texts(self.texts, self.cells, self.sizes)
        return dict(zip(self.names[self.kinds == "category"].tolist(), read, strict=True))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known: rows of numbers have no kinds."""
        return self.names.size == 0

    @property
    def is_plain(self) -> bool:
        """Whether every column is used, as numbers."""
        return self.left_out.size == 0 and self.are_numbers

    @property
    def are_numbers(self) -> bool:
        """Whether all columns that are used are numbers."""
        return bool(np.all(self.kinds == "number"))

    def places(self, kind: Kind) -> IndexArray:
        """Return the places of the columns of one kind among those that are used."""
        return np.flatnonzero(self.kinds == kind)

    @property
    def sentence(self) -> str:
        """What is left out, and why; nothing if all columns are used."""
        if not self.left_out.size:
            return ""
        return f"Left out: {_listed(dict(zip(self.left_out, self.reasons, strict=True)))}."

    def encode(self, table: Table) -> tuple[FloatArray, list[str]]:
        """Return a table as numbers, n x columns, and a sentence for each column with categories
        that are not known: they count as missing.
        """
        missing = [name for name in self.names.tolist() if name not in table.columns]
        if missing:
            raise ValueError(
                f"A table must have the columns of the model. It has no {missing[0]!r}. Add it, "
                "with missing values if it is not known."
            )
        rows = np.empty((len(table), self.names.size))
        unknown: list[str] = []
        for place, (name, kind) in enumerate(zip(self.names.tolist(), self.kinds, strict=True)):
            column = table.columns[name]
            if kind == "category":
                known = self.categories[name]
                codes = encode([_cells_of(column)], [known], None)[:, 0]
                foreign = np.flatnonzero(codes == UNKNOWN)
                if foreign.size:
                    cell = np.asarray(column, dtype=object)[foreign[0]]
                    unknown.append(f"{name} has {cell!r} in row {foreign[0]:,}")
                rows[:, place] = np.where(codes < 0, np.nan, codes)
            else:
                rows[:, place] = _as_numbers(name, column)
                _check_numbers(name, rows[:, place], kind)
        return rows, unknown

    def decode(self, rows: FloatArray) -> dict[str, Any]:
        """Return encoded rows as columns of the table's own types."""
        columns: dict[str, Any] = {}
        for name, kind, type_of, cells in zip(
            self.names.tolist(), self.kinds, self.types, rows.T, strict=True
        ):
            if kind == "category":
                own = self.categories[name]
                codes = np.where(np.isnan(cells), 0, cells).astype(np.int64)
                columns[name] = own[codes]
                if np.isnan(cells).any():
                    columns[name] = np.where(np.isnan(cells), None, own[codes].astype(object))
            elif type_of in "iu" and not np.isnan(cells).any():
                columns[name] = np.rint(cells).astype(np.int64)
            else:
                columns[name] = cells
        return columns

    def as_table(self, rows: FloatArray) -> Any:
        """Return encoded rows as a table of the library that the rows of the fit came from."""
        columns = self.decode(rows)
        if not self.library:
            return columns
        try:
            library = import_module(self.library)
        except ModuleNotFoundError:
            return columns
        if self.library == "pandas":
            for name in self.names[self.types == "C"].tolist():
                columns[name] = library.Categorical(columns[name], self.categories.get(name))
        return getattr(library, _MAKERS[self.library])(columns)


def check_asked(asked: Mapping[str, str], names: Sequence[str]) -> None:
    """Raise unless a user names columns that there are, and kinds that there are."""
    for name, kind in asked.items():
        if name not in names:
            raise ValueError(
                f"`columns` must name columns of the table. Got {name!r}, and the table has: "
                f"{', '.join(map(str, names[:20]))}. Pass one of these."
            )
        if kind not in ASKED:
            raise ValueError(
                f"The kind of a column must be one of {', '.join(map(repr, ASKED))}. Got {kind!r} "
                f"for {name!r}. Pass one of these."
            )


def _listed(reasons: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({reason})" for name, reason in reasons.items())


def _kind_of(name: str, column: Any, asked: str | None) -> tuple[str, str]:
    """Return the kind of a column, or why it is left out."""
    if asked == "ignore":
        return "", "as asked"
    if asked is not None:
        return asked, ""
    kind = _type_of(column)
    if kind in "Mm":
        return "", "dates and times"
    n_distinct = _count_distinct(column, kind)
    if n_distinct == 0:
        if kind in "iuf":
            return "number", ""  # the check of numbers names it
        raise ValueError(
            f"Every column must have a value. {name} has none in {len(column):,} rows. Leave it "
            "out."
        )
    if len(column) < _FEWEST_ROWS:
        return ("number" if kind in "iuf" else "category"), ""
    if n_distinct == 1:
        return "", "it does not vary"
    if kind in "iuf":
        return _kind_of_numbers(column, n_distinct)
    if kind != "C" and n_distinct > max(_NAMES, _SHARE_OF_NAMES * len(column)):
        return "", f"{n_distinct:,} different texts in {len(column):,} rows"
    return "category", ""


def _kind_of_numbers(column: Any, n_distinct: int) -> tuple[str, str]:
    """Return the kind of a column of numbers, or why it is left out."""
    if n_distinct == len(column) and _is_counter(column):
        return "", "it counts the rows"
    few = n_distinct <= min(_FEW_VALUES, len(column) // _TIMES_EACH)
    return ("category" if few else "number"), ""


def _type_of(column: Any) -> str:
    """Return the kind of the NumPy type of a column; "C" for categoricals, and what the cells of
    objects are.
    """
    if hasattr(column, "categories"):
        return "C"
    kind = str(column.dtype.kind)
    if kind != "O":
        return kind
    seen = [cell for cell in column if not is_null(cell)]
    if seen and all(map(_is_time, seen)):
        return "M"
    is_number = [isinstance(cell, numbers.Real) and not isinstance(cell, bool) for cell in seen]
    return "f" if seen and all(is_number) else "O"


def _is_time(cell: Any) -> bool:
    """Return whether a cell is a date, a time or a duration, as an object or as ISO 8601 text."""
    if isinstance(cell, str) and not cell.isdigit():
        with suppress(ValueError):
            datetime.fromisoformat(cell)
            return True
    return hasattr(cell, "isoformat") or hasattr(cell, "total_seconds")


def _cells_of(column: Any) -> Any:
    """Return a column in a form in which equal categories are equal."""
    if not hasattr(column, "categories") and column.dtype.kind in "uf":
        whole = np.isnan(column) | (column == np.rint(column)) if column.dtype.kind == "f" else True
        if np.all(whole):  # whole numbers with gaps are floats in most libraries
            return np.array([None if cell != cell else int(cell) for cell in column], dtype=object)
    return column


def _count_distinct(column: Any, kind: str) -> int:
    if kind == "C":
        return int(np.unique(np.asarray(column.codes)[np.asarray(column.codes) >= 0]).size)
    if column.dtype.kind == "O":
        return len({cell for cell in column if not is_null(cell)})
    seen = column[~np.isnan(column)] if kind == "f" else column
    return int(np.unique(seen).size)


def _is_counter(column: Any) -> bool:
    """Return whether numbers rise or fall by the same step from row to row."""
    steps = np.diff(column.astype(np.float64))
    return bool(np.all(steps == steps[0]))


def _check_categories(table: Table, names: Sequence[str]) -> None:
    """Raise if a column has too many categories."""
    for name in names:
        column = table.columns[name]
        n_categories = _count_distinct(column, _type_of(column))
        if n_categories > _MAX_CATEGORIES:
            raise ValueError(
                f"A column must have at most {_MAX_CATEGORIES} categories. {name} has "
                f"{n_categories:,}. Pass columns={{{name!r}: 'ignore'}}, or group them."
            )


def _as_numbers(name: str, column: Any) -> FloatArray:
    try:
        if hasattr(column, "categories"):
            column = np.asarray(column)
        if column.dtype.kind == "O":
            return np.array([np.nan if is_null(cell) else float(cell) for cell in column])
        return np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"The cells of the column {name} must be numbers. They are not. Pass "
            f"columns={{{name!r}: 'category'}}, or 'ignore'."
        ) from None


def _check_numbers(name: str, cells: FloatArray, kind: str) -> None:
    """Raise if numbers are not finite, or counts are no whole numbers from 0 on."""
    if np.isinf(cells).any():
        row = int(np.flatnonzero(np.isinf(cells))[0])
        raise ValueError(
            f"Values must be finite. Column {name} holds infinity in row {row:,}. Fill or drop it."
        )
    wrong = (cells < 0) | (cells != np.rint(cells)) if kind == "count" else np.zeros(0, bool)
    wrong &= ~np.isnan(cells) if kind == "count" else True
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise ValueError(
            f"Counts must be whole numbers from 0 on. Column {name} holds {cells[row]:g} in row "
            f"{row:,}. Pass columns={{{name!r}: 'number'}}."
        )
