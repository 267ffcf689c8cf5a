"""The kinds of input of models: how each is read from files, for an open or a private fit, and for
new data.

Documents are in `odeco.cli.documents`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import click
import numpy as np

from odeco._util.files import announced_arrays, read_array
from odeco._util.types import FloatArray
from odeco.cli import options as _options
from odeco.errors import SourceError
from odeco.io.coerce import as_source
from odeco.io.graphs import read_graph
from odeco.io.mixed import has_texts, read_columns, read_known
from odeco.io.npy import WavFile, load_npy
from odeco.io.rows import check_columns, is_sparse, join_rows
from odeco.io.source import Selection
from odeco.io.tables import (
    TextTable,
    answers_named,
    check_names,
    kind_of,
    number_symbols,
    order_sequences,
    read_text_table,
    symbols_named,
)
from odeco.io.urls import UrlPath
from odeco.privacy.holders.protocol import units_of
from odeco.privacy.sources import open_private

#: The columns that are used are listed up to this number.
_MAX_NAMED = 20

_LEAVE_OUT = "Leave one out with --drop."

#: By chance a column of this number of rows is sorted once in 1.8 million tables.
_FEW_ROWS = 10

#: The number of private rows in a block.
_BLOCK = 65536

#: The values of the options of a command, by the names of their parameters.
Given = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Data:
    """The contents of files, as an estimator wants them.

    Attributes
    ----------
    X : object
        The first argument of `fit`.
    n_rows : int
        The number of rows, for which labels are written.
    columns : sequence of str or None
        The names of the columns.
    fit, predict : dict
        Further arguments of `fit`, and of the method that gives the labels.
    parameters : dict
        Parameters of the estimator that follow from the file or its options.
    public : dict
        Arguments of the plan of a private fit: numbers that are public.
    rows : sequence of str or None
        The names of the rows.
    restore : callable
        Takes labels of the rows of `X`, and returns them in the order of the file.
    remark : str
        A line about what was read, after the summary.
    hint : str
        What the user may change about that, on the command line.
    page : dict
        Further arguments of `write_report`.
    """

    X: Any
    n_rows: int
    columns: Sequence[str] | None = None
    fit: dict[str, Any] = field(default_factory=dict)
    predict: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)
    public: dict[str, Any] = field(default_factory=dict)
    rows: Sequence[str] | None = None
    restore: Callable[[Any], Any] = lambda labels: labels
    remark: str = ""
    hint: str = ""
    page: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Input:
    """A kind of input.

    Attributes
    ----------
    read : callable or None
        Takes a file, the values of the options, and whether it is private; returns `Data`.
    again : callable or None
        Takes a file, the values of the options, and a fitted model; returns `Data` for that model.
    options, private_options : tuple of Option
        Its options, and those for a private fit alone.
    private_needs : dict of str to str
        Further options that a private fit needs, by the names of their parameters.
    """

    read: Callable[[Path, Given, bool], Data] | None
    again: Callable[[Path, Given, Any], Data] | None
    options: tuple[click.Option, ...] = ()
    private_options: tuple[click.Option, ...] = ()
    private_needs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Shown:
    """A fitted model for a reader: as text, for programs, and as a page."""

    text: str
    document: Callable[[], dict[str, Any]]
    write_page: Callable[[Path], object]


# Rows of numbers ----------------------------------------------------------------------------------


def check_selection(given: Given) -> None:
    """Raise if columns are both chosen and left out."""
    if given["columns"] is not None and given["drop"] is not None:
        raise click.UsageError(
            "--columns and --drop must not be given together. Pass the one that is shorter."
        )


def read_rows(
    file: Path,
    columns: Sequence[str] | None,
    drop: Sequence[str] | None,
    *,
    nulls_are_nan: bool = False,
) -> tuple[Any, list[str] | None]:
    """Return all rows of numbers in a file, and the names of their columns."""
    source = as_source(str(file), columns=columns, drop=drop, nulls_are_nan=nulls_are_nan)
    rows = join_rows(list(source))
    names = getattr(source, "columns", None)
    if is_sparse(rows):
        rows = rows.toarray()
    check_columns(rows, names or ())
    return rows, None if names is None else list(names)


def check_private_files(
    files: Sequence[Path], *, header: bool | None, dimension: int | None
) -> None:
    """Raise unless options state what no header of private files does."""
    tables = [file.name for file in files if kind_of(file) in (".csv", ".tsv")]
    why = "a private run does not read it off the records"
    if tables and header is None:
        raise click.UsageError(f"{tables[0]} needs --header or --no-header: {why}.")
    if tables and not header and dimension is None:
        raise click.UsageError(f"{tables[0]} needs --dimension D: {why}.")


def _read_private_rows(file: Path, given: Given) -> tuple[Any, list[str] | None]:
    """Return all rows of a file for a private model; no error names a row that is not valid."""
    if given["columns"] is not None or given["drop"] is not None:
        raise click.UsageError(
            "--columns and --drop are not for private rows. Write a file of the columns you want."
        )
    check_private_files([file], header=given["header"], dimension=given["dimension"])
    rows = open_private([file], n_features=given["dimension"], header=given["header"])
    chunks: Iterator[Any] = rows.chunks(_BLOCK)
    blocks = [chunk.toarray() if is_sparse(chunk) else chunk for chunk in chunks]
    return np.concatenate(blocks), None if rows.columns is None else list(rows.columns)


def _read_weights(file: Path, given: Given, *, private: bool) -> tuple[dict[str, Any], Given]:
    """Return the argument of `fit` that has the weights, and the options without their column."""
    weight = given["weight"]
    if weight is None:
        return {}, given
    if private:
        raise click.UsageError(
            "--weight is not for private rows: one of them could decide the result. Leave it out."
        )
    weights = {"sample_weight": read_rows(file, [weight], None)[0][:, 0]}
    if given["columns"] is not None:
        kept = [name for name in given["columns"] if name != weight]
        return weights, given | {"columns": kept}
    return weights, given | {"drop": [*dict.fromkeys([*(given["drop"] or []), weight])]}


def load_groups(path: Path | None) -> Any:
    """Return the label of each row: the lines of a text file, or an array."""
    if path is None:
        return None
    if path.suffix == ".npy":
        return np.asarray(load_npy(path))
    return np.array(path.read_text(encoding="utf-8").splitlines())


def _users_of(given: Given, n_records: int) -> tuple[dict[str, Any], int]:
    """Return the argument of `fit` that has the user of each record, if there are users, and the
    number of units.
    """
    if given.get("groups") is None:  # a model without a private version has no such option
        return {}, n_records
    labels = load_groups(given["groups"])
    return {"groups": labels}, units_of(labels, n_records)[1]


def _columns_used(names: Sequence[str] | None, rows: FloatArray | None = None) -> str:
    """Return which columns a model uses: a label or an index may be among them. Files without names
    have none.
    """
    if names is None:
        return ""
    called = [str(name) or _options.UNNAMED[0] for name in names]
    more = f" and {len(names) - _MAX_NAMED:,} more" if len(names) > _MAX_NAMED else ""
    used = f"Columns used: {', '.join(called[:_MAX_NAMED])}{more}."
    if rows is None or len(rows) < _FEW_ROWS:
        return used
    rises = np.all(rows[1:] > rows[:-1], axis=0)
    falls = np.all(rows[1:] < rows[:-1], axis=0)
    steady = rises | falls
    if not steady.any():
        return used
    return (
        f"{used} {called[int(np.argmax(steady))]!r} rises or falls with every row, as an id or a "
        "time does."
    )


def _row_reader(*, nulls_are_nan: bool) -> Callable[[Path, Given, bool], Data]:
    """Return the reader of rows of numbers, in which values may be missing or not."""

    def read(file: Path, given: Given, private: bool) -> Data:
        weights, given = _read_weights(file, given, private=private)
        if private:
            rows, names = _read_private_rows(file, given)
        else:
            check_selection(given)
            rows, names = read_rows(
                file, given["columns"], given["drop"], nulls_are_nan=nulls_are_nan
            )
        users, n_units = _users_of(given, len(rows))
        public = {"n_rows": n_units, "n_features": rows.shape[1]}
        remark = "" if private else _columns_used(names, rows)
        return Data(
            rows,
            len(rows),
            names,
            fit=weights | users,
            public=public,
            remark=remark,
            hint=_LEAVE_OUT if remark else "",
            page={"rate": WavFile(file, None).rate} if kind_of(file) == ".wav" else {},
        )

    return read


def _row_rereader(*, nulls_are_nan: bool) -> Callable[[Path, Given, Any], Data]:
    """Return the reader of new rows: the columns of a table that the model knows, in its order."""

    def read(file: Path, given: Given, model: Any) -> Data:  # noqa: ARG001 - as all readers
        rows, names = read_rows(
            file, _known_columns(file, model), None, nulls_are_nan=nulls_are_nan
        )
        return Data(rows, len(rows), names)

    return read


def _read_table(file: Path, given: Given, private: bool) -> Data:
    """Return the rows of a table with columns of several kinds; a file of numbers alone is rows of
    numbers.
    """
    kinds = given["kinds"]
    if private and kinds is not None:
        raise click.UsageError("--kinds is not for private rows, which are numbers. Leave it out.")
    if kinds is None:
        try:
            data = _row_reader(nulls_are_nan=True)(file, given, private)
            return replace(data, parameters={"columns": None})
        except SourceError as error:
            if private or not has_texts(error):
                raise
    check_selection(given)
    weights, given = _read_weights(file, given, private=False)
    selection = Selection.of(given["columns"], given["drop"])
    table = read_columns(file, selection, kinds or {})
    return Data(
        table,
        len(table),
        list(table.columns),
        fit=weights,
        parameters={"columns": kinds},
        hint="Leave a column out with --drop, or say what it is with --kinds.",
    )


def _reread_table(file: Path, given: Given, model: Any) -> Data:
    """Return new rows: the columns of a table that the model knows."""
    kinds = model.columns_
    if not kinds:
        return _row_rereader(nulls_are_nan=True)(file, given, model)
    table = read_known(file, kinds, model.categories_)
    return Data(table, len(table), list(kinds))


def _known_columns(file: Path, model: Any) -> list[str] | None:
    """Return the columns of a model, if it and the file name them."""
    names = getattr(model, "feature_names_in_", None)
    if names is None or kind_of(file) in (".npy", ".npz"):
        return None
    return [str(name) for name in names]


# Sequences ----------------------------------------------------------------------------------------

_SEQUENCE_OPTIONS = (
    _options.option(
        "--symbol", metavar="COLUMN", help="The column of a table that holds symbols, one per row."
    ),
    _options.option(
        "--sequence", metavar="COLUMN", help="The column that names the sequence of each row."
    ),
    _options.option(
        "--time",
        metavar="COLUMN",
        help="The column of times, numbers or ISO 8601, to sort rows by.",
    ),
)


def _read_sequences(file: Path, given: Given, private: bool) -> Data:
    weights, given = _read_weights(file, given, private=private)
    if private:
        return _read_private_sequences(file, given)
    if given["symbol"] is None:
        return _read_number_sequences(file, given, weights)
    return _read_symbol_sequences(file, given, weights)


def _read_symbol_sequences(
    file: Path, given: Given, weights: dict[str, Any], known: Sequence[str] | None = None
) -> Data:
    """Return sequences of texts; symbols are those of a model that is known, or else numbered by
    their names.
    """
    symbol = given["symbol"]
    table = read_text_table(file)
    if known is None:
        codes, names = number_symbols(table.column(symbol))
    else:
        places = {name: float(place) for place, name in enumerate(known)}
        cells = table.column(symbol)
        codes = np.array([places.get(cell, np.nan) for cell in cells])
        names = list(known)
    remark = f"Symbols: {', '.join(f'{number} {name}' for number, name in enumerate(names))}."
    fit = {"symbol_names": names, **weights}
    return _in_sequences(
        table, codes[:, None], given, [symbol], fit, {"emissions": "categorical"}, remark
    )


def _read_number_sequences(
    file: Path, given: Given, weights: dict[str, Any], known: Sequence[str] | None = None
) -> Data:
    check_selection(given)
    columns = given["columns"] if known is None else known
    drop = given["drop"]
    if columns is None:
        named = [name for name in (given["sequence"], given["time"]) if name is not None]
        drop = [*dict.fromkeys([*(drop or []), *named])] or None
    try:
        rows, names = read_rows(file, columns, drop, nulls_are_nan=True)
    except SourceError as error:
        if "must be all numbers" in str(error):
            hint = (
                f"{error} If the rows are symbols, name their column with --symbol, and that of "
                "sequences with "
            )
            raise SourceError(f"{hint}--sequence.", path=error.path, row=error.row) from error
        raise
    has_texts = given["sequence"] is not None or given["time"] is not None
    table = read_text_table(file) if has_texts else None
    remark = _columns_used(names, rows)
    made = _in_sequences(table, rows, given, names, weights, {"emissions": "gaussian"}, remark)
    return replace(made, hint=_LEAVE_OUT if remark else "")


def _in_sequences(
    table: TextTable | None,
    rows: FloatArray,
    given: Given,
    names: Sequence[str] | None,
    fit: dict[str, Any],
    parameters: dict[str, Any],
    remark: str,
) -> Data:
    """Return rows sorted by sequence and time, as a hidden Markov model wants them."""
    sequence = given["sequence"]
    time = given["time"]
    groups = None if table is None or sequence is None else table.column(sequence)
    times = None if table is None or time is None else table.column(time)
    order = order_sequences(groups, times, len(rows))
    if sequence is not None:
        sorted_by = "the table" if time is None else time
        remark = (
            f"{remark} {len(order.lengths):,} sequences of {sequence}, each in the order of "
            f"{sorted_by}."
        ).strip()
    if "sample_weight" in fit:
        fit = fit | {"sample_weight": fit["sample_weight"][order.permutation]}
    lengths = {"lengths": order.lengths}
    return Data(
        rows[order.permutation],
        len(rows),
        names,
        fit=lengths | fit,
        predict=lengths,
        parameters=parameters,
        restore=order.restore,
        remark=remark,
    )


def _reread_sequences(file: Path, given: Given, model: Any) -> Data:
    """Return new sequences for a model; symbols that it does not know count as missing."""
    names = getattr(model, "symbol_names_", None)
    if names is None:
        return _read_number_sequences(file, given, {}, _known_columns(file, model))
    if given["symbol"] is None:
        known = getattr(model, "feature_names_in_", None)
        if known is None:
            raise click.UsageError(
                "This model was learnt from symbols. Pass --symbol, the column that holds them."
            )
        given = given | {"symbol": str(known[0])}
    return _read_symbol_sequences(file, given, {}, names)


def read_private_table(file: Path, header: bool | None) -> TextTable:
    """Read a private table of texts. Its columns are known by their names, so that it must have
    some.
    """
    check_private_files([file], header=header, dimension=0)
    if header is False:
        raise click.UsageError(
            f"{file.name} needs a line of names: its columns are known by them. Add one."
        )
    return read_text_table(file, private=True)


def _read_private_sequences(file: Path, given: Given) -> Data:
    """Return private sequences; their names are public, and so is their order, which is
    alphabetical.
    """
    symbol = given["symbol"]
    others = [each for each in ("time", "columns", "drop") if given[each] is not None]
    if symbol is None or given["sequence"] is None or others:
        raise click.UsageError(
            "Private sequences are rows of a table with a --symbol and a --sequence column, in "
            "their order. Pass both, and leave out --time, --columns and --drop."
        )
    table = read_private_table(file, given["header"])
    symbols = symbols_named(given["symbols"])
    check_names(table.columns, file.name, symbols)
    groups = table.column(given["sequence"])
    if any(cell is None for cell in groups):
        raise ValueError(
            f"Every row of {file} must name its sequence in the column {given['sequence']}. Some "
            "do not, and nothing was released. Leave them out. Which rows is not said, because "
            "the run is private."
        )
    numbers = np.unique(groups.astype(np.str_), return_inverse=True)[1]
    codes = {name: code for code, name in enumerate(symbols)}
    lengths = np.bincount(numbers)
    rows = np.array([codes.get(cell, -1) for cell in table.column(symbol)], np.int64)
    return Data(
        rows[np.argsort(numbers, kind="stable"), None],
        len(rows),
        [symbol],
        fit={"lengths": lengths, "symbol_names": symbols},
        parameters={"emissions": "categorical", "n_symbols": len(symbols)},
        public={"n_sequences": lengths.size, "length": given["length"], "n_symbols": len(symbols)},
    )


# Answers and graphs -------------------------------------------------------------------------------


def _read_answers(file: Path, given: Given, private: bool) -> Data:
    check_selection(given)
    weights, given = _read_weights(file, given, private=private)
    table = read_private_table(file, given["header"]) if private else read_text_table(file)
    table = table.select(Selection.of(given["columns"], given["drop"]), file)
    fit, n_units = _users_of(given, len(table.cells))
    fit |= weights
    public: dict[str, Any] = {}
    if private:
        named = answers_named(given["answers"], table.columns)
        check_names(table.columns, file.name, chain.from_iterable(named.values()))
        table = table.select(Selection(tuple(named)), file)
        fit |= {"categories": list(named.values())}
        public = {"n_respondents": n_units, "categories": [len(own) for own in named.values()]}
    parameters = {"missing_values": None}
    return Data(
        table.cells,
        len(table.cells),
        table.columns,
        fit=fit,
        parameters=parameters,
        public=public,
        remark=_columns_used(table.columns),
        hint=_LEAVE_OUT,
    )


def _reread_answers(file: Path, given: Given, model: Any) -> Data:  # noqa: ARG001 - as all readers
    table = read_text_table(file)
    columns = _known_columns(file, model)
    if columns is not None:
        table = table.select(Selection(tuple(columns)), file)
    return Data(table.cells, len(table.cells), table.columns)


def _read_graph(file: Path, given: Given, private: bool) -> Data:  # noqa: ARG001 - as all readers
    graph = read_graph(file)
    heading = ", ".join(graph.heading)
    remark = f"The first line ({heading}) has the names of the columns." if heading else ""
    n_nodes = graph.adjacency.shape[0]
    return Data(graph.adjacency, n_nodes, graph.names, rows=graph.names, remark=remark)


_TABLE = (_options.COLUMNS, _options.DROP, _options.WEIGHT, _options.ID)
_PRIVATE_ROWS = (_options.GROUPS, _options.HEADER, _options.DIMENSION)

#: By the names that `odeco.cli.models` has for them.
INPUTS = {
    "rows": Input(
        _row_reader(nulls_are_nan=False), _row_rereader(nulls_are_nan=False), _TABLE, _PRIVATE_ROWS
    ),
    "table": Input(
        _read_table,
        _reread_table,
        (
            _options.COLUMNS,
            _options.DROP,
            _options.option(
                "--kinds",
                metavar="A=KIND,…",
                callback=_options.read_kinds,
                help="What columns are: number, category, count or ignore, as visits=count.",
            ),
            _options.WEIGHT,
            _options.ID,
        ),
        _PRIVATE_ROWS,
    ),
    "sequences": Input(
        _read_sequences,
        _reread_sequences,
        (*_SEQUENCE_OPTIONS, *_TABLE),
        (
            _options.option(
                "--symbols",
                metavar="A,B | FILE",
                help="The possible symbols, or a .txt file of them.",
            ),
            _options.option(
                "--length",
                type=click.IntRange(3),
                default=100,
                metavar="N",
                help="The usual length of a sequence, a public guess; only the plan depends on it.",
            ),
            _options.HEADER,
        ),
        {"symbols": "--symbols"},
    ),
    "answers": Input(
        _read_answers,
        _reread_answers,
        _TABLE,
        (
            _options.option(
                "--answers",
                metavar="A,B | FILE",
                help="The possible answers, or a .json file of them.",
            ),
            _options.GROUPS,
            _options.HEADER,
        ),
        {"answers": "--answers"},
    ),
    "graph": Input(_read_graph, None),
}


# Tensors, names -----------------------------------------------------------------------------------


def load_tensor(path: Path, key: str | None) -> np.ndarray[Any, Any]:
    """Return the tensor in a ``.npy`` file, mapped into memory, or in a ``.npz`` archive."""
    if path.suffix == ".npy":
        return load_npy(path)
    if path.suffix != ".npz" or isinstance(path, UrlPath):
        raise ValueError(
            "A tensor must be in a .npy or .npz file, and a .npz file on this machine. Got "
            f"{path}. Write it with numpy.save; for the moment of rows pass --rows."
        )
    held = list(announced_arrays(path))
    if key is None and len(held) == 1:
        key = held[0]
    if key in held:
        return read_array(path, key)
    got = "none was named" if key is None else f"Got {key!r}"
    raise ValueError(
        f"One array of {path} must be named, of: {', '.join(held) or 'nothing'}. {got}. Pass "
        "--key NAME."
    )


def load_names(
    path: Path | None, dimension: int, columns: Sequence[str] | None = None
) -> list[str] | None:
    """Return the names of the coordinates: those of the file, or else those of the columns of the
    data, or None.
    """
    if path is None:
        return list(columns) if columns is not None and len(columns) == dimension else None
    names = path.read_text(encoding="utf-8").splitlines()
    if len(names) != dimension:
        raise ValueError(
            f"{path} must have one name for each of the {dimension:,} coordinates. It has "
            f"{len(names):,} lines. Write one name per line."
        )
    return names
