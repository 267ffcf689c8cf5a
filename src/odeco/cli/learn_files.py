"""Files of ``odeco learn``: how the kinds of input are read, and what is printed and written of a model."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from odeco._util.types import FloatArray
from odeco.cli import options as _options
from odeco.cli.app import command_line
from odeco.cli.options import read_private_rows, read_rows
from odeco.cli.output import Output, RowIds, as_cell, as_texts, console, csv_text, deliver, emit_json, write_text
from odeco.errors import SourceError
from odeco.io.graphs import read_graph
from odeco.io.source import Selection
from odeco.io.tables import answers_named, number_symbols, order_sequences, read_text_table, symbols_named
from odeco.privacy.holders.protocol import units_of

#: The columns that are used are listed up to this number.
_MAX_NAMED = 20

#: By chance a column of this number of rows is sorted once in 1.8 million tables.
_FEW_ROWS = 10


@dataclass(frozen=True, eq=False)
class Data:
    """The contents of a file, as an estimator wants them.

    Attributes
    ----------
    X : object
        The first argument of `fit`.
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
        A line to print after the summary.
    """

    X: Any
    columns: Sequence[str] | None
    fit: dict[str, Any] = field(default_factory=dict)
    predict: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)
    public: dict[str, Any] = field(default_factory=dict)
    rows: Sequence[str] | None = None
    restore: Callable[[Any], Any] = lambda labels: labels
    remark: str = ""


@dataclass(frozen=True)
class Input:
    """A kind of input.

    Attributes
    ----------
    read : callable
        Takes a file, whether it is private, and the values of the options; returns `Data`.
    options : callable
        A decorator that adds its options.
    private_options : dict of str to str
        Further options that a private fit needs, by the names of their arguments.
    """

    read: Callable[..., Data]
    options: Callable[[Any], Any]
    private_options: dict[str, str] = field(default_factory=dict)


def _columns_used(names: Sequence[str] | None, rows: FloatArray | None = None) -> str:
    """Return which columns a model uses: a label or an index may be among them. Files without names have none."""
    if names is None:
        return ""
    called = [name or "(without a name)" for name in map(str, names)]
    more = f" and {len(names) - _MAX_NAMED:,} more" if len(names) > _MAX_NAMED else ""
    used = f"Columns used: {', '.join(called[:_MAX_NAMED])}{more}. Leave one out with --drop."
    if rows is None or len(rows) < _FEW_ROWS:
        return used
    steady = np.all(rows[1:] > rows[:-1], axis=0) | np.all(rows[1:] < rows[:-1], axis=0)
    if not steady.any():
        return used
    return f"{used} {called[int(np.argmax(steady))]!r} rises or falls with every row, as an id or a time does."


def _users_of(groups: Path | None, n_records: int, *, private: bool) -> tuple[dict[str, Any], int]:
    """Return the argument of `fit` that has the user of each record, if there are users, and the number of units."""
    if groups is None:
        return {}, n_records
    if not private:
        raise click.UsageError("--groups is about private models. Pass --epsilon and what it needs, or leave it out.")
    labels = _options.load_groups(groups)
    return {"groups": labels}, units_of(labels, n_records)[1]


def _read_weights(
    file: Path, weight: str | None, columns: list[str] | None, drop: list[str] | None, *, private: bool
) -> tuple[dict[str, Any], list[str] | None, list[str] | None]:
    """Return the argument of `fit` that has the weights, and the columns to read and to leave out without theirs."""
    if weight is None:
        return {}, columns, drop
    if private:
        raise click.UsageError("--weight is not for private rows: one of them could decide the result. Leave it out.")
    weights = read_rows(file, [weight], None)[0][:, 0]
    if columns is not None:
        return {"sample_weight": weights}, [name for name in columns if name != weight], drop
    return {"sample_weight": weights}, None, [*dict.fromkeys([*(drop or []), weight])]


def _read_rows(
    file: Path,
    *,
    private: bool,
    columns: list[str] | None,
    drop: list[str] | None,
    weight: str | None,
    groups: Path | None,
    nulls_are_nan: bool = False,
) -> Data:
    if private and (columns is not None or drop is not None):
        raise click.UsageError("--columns and --drop are not for private rows. Write a file of the columns you want.")
    weights, columns, drop = _read_weights(file, weight, columns, drop, private=private)
    rows, names = read_private_rows(file) if private else read_rows(file, columns, drop, nulls_are_nan=nulls_are_nan)
    users, n_units = _users_of(groups, rows.shape[0], private=private)
    public, fit = {"n_rows": n_units, "n_features": rows.shape[1]}, weights | users
    return Data(rows, names, fit=fit, public=public, remark="" if private else _columns_used(names, rows))


def _read_sequences(
    file: Path,
    *,
    private: bool,
    symbol: str | None,
    sequence: str | None,
    time: str | None,
    columns: list[str] | None,
    drop: list[str] | None,
    weight: str | None,
    symbols: str | None,
    length: int,
) -> Data:
    weights, columns, drop = _read_weights(file, weight, columns, drop, private=private)
    if private and symbols is not None:
        others = [each for each in (time, columns, drop) if each is not None]
        if symbol is None or sequence is None or others:
            raise click.UsageError(
                "Private sequences are rows of a table with a --symbol and a --sequence column, in their order. Pass "
                "both, and leave out --time, --columns and --drop."
            )
        return _read_private_sequences(file, symbol, sequence, symbols_named(symbols), length)
    table = None if symbol is None and sequence is None and time is None else read_text_table(file)
    groups, times = (None if table is None or name is None else table.column(name) for name in (sequence, time))
    names: Sequence[str] | None
    remarks = []
    if table is not None and symbol is not None:
        codes, symbol_names = number_symbols(table.column(symbol))
        rows = codes[:, None]
        names, fit, emissions = [symbol], {"symbol_names": symbol_names}, "categorical"
        remarks.append(f"Symbols: {', '.join(f'{number} {name}' for number, name in enumerate(symbol_names))}.")
    else:
        if columns is None:
            used = [name for name in (sequence, time) if name is not None and name not in (drop or [])]
            drop = [*(drop or []), *used] or None
        try:
            rows, names = read_rows(file, columns, drop, nulls_are_nan=True)
        except SourceError as error:
            if symbol is None and "must be all numbers" in str(error):
                hint = f"{error} If the rows are symbols, name their column with --symbol, and that of sequences with "
                hint += "--sequence."
                raise SourceError(hint, path=error.path, row=error.row) from error
            raise
        fit, emissions = {}, "gaussian"
        remarks += filter(None, [_columns_used(names, rows)])
    order = order_sequences(groups, times, len(rows))
    if sequence is not None:
        sorted_by = "the table" if time is None else time
        remarks.append(f"{len(order.lengths):,} sequences of {sequence}, each in the order of {sorted_by}.")
    lengths = {"lengths": order.lengths}
    weighted = {name: values[order.permutation] for name, values in weights.items()}
    return Data(
        rows[order.permutation],
        names,
        fit=lengths | fit | weighted,
        predict=lengths,
        parameters={"emissions": emissions},
        restore=order.restore,
        remark=" ".join(remarks),
    )


def _read_private_sequences(file: Path, symbol: str, sequence: str, symbols: list[str], length: int) -> Data:
    """Read private sequences; their names are public, and so is their order, which is alphabetical."""
    table = read_text_table(file, private=True)
    groups = table.column(sequence)
    if any(cell is None for cell in groups):
        raise ValueError(
            f"Every row of {file} must name its sequence in the column {sequence}. Some do not, and nothing was "
            "released. Leave them out. Which rows is not said, because the run is private."
        )
    numbers = np.unique(groups.astype(np.str_), return_inverse=True)[1]
    codes, lengths = {name: code for code, name in enumerate(symbols)}, np.bincount(numbers)
    rows = np.array([codes.get(cell, -1) for cell in table.column(symbol)], np.int64)
    return Data(
        rows[np.argsort(numbers, kind="stable"), None],
        [symbol],
        fit={"lengths": lengths, "symbol_names": symbols},
        parameters={"emissions": "categorical", "n_symbols": len(symbols)},
        public={"n_sequences": lengths.size, "length": length, "n_symbols": len(symbols)},
    )


def _read_answers(
    file: Path,
    *,
    private: bool,
    columns: list[str] | None,
    drop: list[str] | None,
    weight: str | None,
    answers: str | None,
    groups: Path | None,
) -> Data:
    _options.check_selection(columns, drop)
    weights, columns, drop = _read_weights(file, weight, columns, drop, private=private)
    table = read_text_table(file, private=private).select(Selection.of(columns, drop), file)
    users, n_units = _users_of(groups, len(table.cells), private=private)
    fit, public = weights | users, {}
    if private and answers is not None:
        named = answers_named(answers, table.columns)
        table, fit = table.select(Selection(tuple(named)), file), fit | {"categories": list(named.values())}
        public = {"n_respondents": n_units, "categories": [len(own) for own in named.values()]}
    remark, parameters = _columns_used(table.columns), {"missing_values": None}
    return Data(table.cells, table.columns, fit=fit, parameters=parameters, public=public, remark=remark)


def _read_graph(file: Path, *, private: bool) -> Data:  # noqa: ARG001 - no private graphs yet
    graph = read_graph(file)
    return Data(graph.adjacency, graph.names, rows=graph.names)


_TABLE_OPTIONS = _options.group(_options.columns, _options.weight, _options.row_ids)

_ROW_OPTIONS = _options.group(_TABLE_OPTIONS, _options.groups("row", "--epsilon"))

#: By the names that `odeco.cli.learn` has for them.
INPUTS = {
    "rows": Input(_read_rows, _ROW_OPTIONS),
    "incomplete rows": Input(partial(_read_rows, nulls_are_nan=True), _ROW_OPTIONS),
    "sequences": Input(
        _read_sequences,
        _options.group(
            click.option("--symbol", metavar="COLUMN", help="The column of a table that holds symbols, one per row."),
            click.option("--sequence", metavar="COLUMN", help="The column that names the sequence of each row."),
            click.option("--time", metavar="COLUMN", help="The column of times, numbers or ISO 8601, to sort rows by."),
            _TABLE_OPTIONS,
            click.option("--symbols", metavar="A,B | FILE", help="For --epsilon: possible symbols, or a .txt file."),
            click.option(
                "--length",
                type=click.IntRange(3),
                default=100,
                metavar="N",
                help="For --epsilon: the usual length of a sequence, a public guess; only the plan depends on it.",
            ),
        ),
        {"symbols": "--symbols"},
    ),
    "answers": Input(
        _read_answers,
        _options.group(
            _TABLE_OPTIONS,
            click.option("--answers", metavar="A,B | FILE", help="For --epsilon: possible answers, or a .json file."),
            _options.groups("respondent", "--epsilon"),
        ),
        {"answers": "--answers"},
    ),
    "graph": Input(_read_graph, _options.group()),
}


def labels_csv(
    values: FloatArray, what: str, *, shares: bool, rows: Sequence[str] | None, ids: RowIds | None = None
) -> str:
    """Return the components of each row as CSV; of shares also the component with the largest one.

    Rows without names or ids have numbers from 0 on.
    """
    columns = [f"{what} {number}" for number in range(values.shape[1])]
    if shares:
        columns, values = [what, *columns], np.column_stack([values.argmax(axis=1), values])
    if ids is not None:
        return ids.csv_text(columns, as_texts(values))
    named = zip(range(len(values)) if rows is None else rows, as_texts(values), strict=True)
    return csv_text(["odeco row", *columns], ([name, *row] for name, row in named))  # it may be replaced


def deliver_model(
    model: Any, data: Data, outputs: dict[str, Any], *, title: str, private: bool, labels: Callable[[], str], spent: str
) -> None:
    """Print the model, then write the model, the labels and the page, as far as they were asked for.

    `outputs` are the values of the options about them; `labels` are computed only if they are wanted; the figures of a
    `private` model show no rows; `spent` is a sentence about the privacy budget.
    """
    if data.columns is not None and not hasattr(model, "feature_names_in_"):
        model.feature_names_in_ = np.array(data.columns, dtype=object)
    summary = model.summary()

    def show() -> None:
        if outputs["as_json"]:
            emit_json(_document(model, summary))
            return
        for line in (*summary.splitlines(), *([data.remark] if data.remark else [])):
            console().print(as_cell(line), soft_wrap=True)

    def write_page(path: Path) -> None:
        rows, lengths = None if private else data.X, data.predict.get("lengths")
        model.write_report(path, title=title, rows=rows, lengths=lengths, remark=data.remark, command=command_line())

    with warnings.catch_warnings():  # rows come without the names that the model now has
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        deliver(
            show,
            Output(outputs["out"], model.save),
            Output(outputs["labels_path"], lambda path: write_text(path, labels())),
            Output(outputs["report"], write_page),
            save=("model.npz", model.save),
            spent=spent,
        )


def _document(model: Any, summary: str) -> dict[str, Any]:
    """Return a model for programs: all that it learnt, under the names that Python has for it."""
    learnt = {}
    for name in dir(type(model)):
        is_learnt = name.endswith("_") and not name.startswith("_") and isinstance(getattr(type(model), name), property)
        if is_learnt and hasattr(model, name):
            learnt[name] = getattr(model, name)
    verdict = summary.splitlines()[0]
    document = {"kind": model._KIND, "verdict": verdict, "parameters": model.get_params(), **learnt}
    if hasattr(model, "feature_names_in_"):
        document["feature_names_in_"] = model.feature_names_in_
    return document
