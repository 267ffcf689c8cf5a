"""Output of commands: tables or JSON on stdout, notes on stderr, and files, of which a full disk loses none.

Row ids stand before the labels, scores or proportions of each row, so that these can be joined back (`RowIds`).
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import os
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from odeco._util.files import replacing
from odeco._util.lazy import import_arrow
from odeco.cli.app import command_line
from odeco.decompose.files import RESULT_KINDS, AnyResult, save_result
from odeco.decompose.result import AsymmetricDecomposition
from odeco.display.tables import cells_of, coordinate_labels, numbers_of, printable, remarks_on
from odeco.errors import DominantColumnWarning, FewValuesWarning
from odeco.io.coerce import files_of
from odeco.io.tables import kind_of, open_text, read_cells
from odeco.privacy.report import PrivacyReport

#: Where there is no terminal, a line has at most this many characters, unless COLUMNS says otherwise.
_PIPED_WIDTH = 10_000


class _PlainConsole(Console):
    """A console for pipes and files: no line ends in blanks."""

    def print(self, *objects: Any, **options: Any) -> None:
        with self.capture() as captured:
            super().print(*objects, **options)
        self.file.write("\n".join(line.rstrip() for line in captured.get().split("\n")))


def console() -> Console:
    """Return a console. Where there is no terminal, lines are as long as they are, and none ends in blanks."""
    made = Console(highlight=False, soft_wrap=False)
    if made.is_terminal:
        return made
    return _PlainConsole(highlight=False, width=int(os.environ.get("COLUMNS", _PIPED_WIDTH)))


def emit_json(document: dict[str, Any]) -> None:
    """Write one JSON document to stdout."""
    click.echo(json.dumps(plain(document), indent=2, allow_nan=False))


@contextmanager
def columns_called(labels: Sequence[str] | None) -> Iterator[None]:
    """Name columns in warnings as the user named them."""
    show = warnings.showwarning

    def show_called(message: Warning | str, *more: Any, **further: Any) -> None:
        if labels is not None and isinstance(message, DominantColumnWarning | FewValuesWarning):
            message = message.called(labels[message.column])
        show(message, *more, **further)

    warnings.showwarning = show_called
    try:
        yield
    finally:
        warnings.showwarning = show


def note(text: str) -> None:
    """Print a note to stderr, which is not part of the result."""
    click.echo(printable(text), err=True)


def as_cell(text: str) -> Text:
    """Return a text for a table on the terminal, without markup and without control characters."""
    return Text(printable(text))


def csv_cell(text: str) -> str:
    """Return a text for a CSV cell that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def csv_text(heading: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a table as CSV. No spreadsheet takes a text of the first column, or of the heading, for a formula."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(map(csv_cell, heading))
    writer.writerows([csv_cell(str(first)), *rest] for first, *rest in rows)
    return buffer.getvalue()


def write_text(path: Path, text: str, *, readable: bool = False) -> None:
    """Write a text file, atomically."""
    with replacing(path, readable=readable) as file:
        file.write(text.encode())


def plain(value: Any) -> Any:
    """Return `value` as JSON has it; NaN becomes null, and an infinite number the text "infinity"."""
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, PrivacyReport):
        return json.loads(value.to_json())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "infinity" if value > 0 else "-infinity"
    return value


def result_document(result: AnyResult) -> dict[str, Any]:
    """Return a result as a dictionary for JSON: all its fields, with one list per vector."""
    kind = next(kind for kind, each in RESULT_KINDS.items() if type(result) is each)
    document: dict[str, Any] = {"kind": kind, "weights": result.weights}
    if isinstance(result, AsymmetricDecomposition):
        document["factors"] = [factor.T for factor in result.factors]
    else:
        document |= {"order": result.order, "vectors": result.vectors.T}
    left_out = {"components", "factors", "weights"}
    document |= {f.name: getattr(result, f.name) for f in dataclasses.fields(result) if f.name not in left_out}
    if hasattr(result, "clear"):
        document["clear"] = result.clear
    return document


def result_table(result: AnyResult, n_top: int) -> Table:
    """Return a table with one line per component."""
    headings, rows = cells_of(result, n_top=n_top)
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="left" if heading.startswith("largest ") else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(as_cell, row))
    return table


@dataclass(frozen=True)
class Outputs:
    """The values of the options about the output of a decomposition."""

    as_json: bool
    out: Path | None
    report: Path | None
    names: Path | None
    top: int
    threads: int | None


@dataclass(frozen=True)
class Output:
    """A file that a command writes, if a path is given."""

    path: Path | None
    write: Callable[[Path], object]


def deliver(
    show: Callable[[], object],
    *outputs: Output,
    save: tuple[str, Callable[[Path], object]] | None = None,
    again: str | None = None,
    spent: str = "",
) -> None:
    """Print a result, then write its files in their order. If one of these fails, the others are done all the same.

    Parameters
    ----------
    show : callable
        Prints the result to stdout.
    outputs : Output
        The files, the most valuable first: model, labels, page.
    save : pair of str and callable, optional
        A file name, and the function that saves the whole result. It is called if something failed and the first of the
        `outputs` was not written: the result is then saved in another folder.
    again : str, optional
        How to get the result without computing it again, instead of `save`.
    spent : str
        A sentence about the privacy budget that was spent, for the error message.
    """
    failures, written = [], []
    try:
        show()
        sys.stdout.flush()
    except OSError as error:
        failures.append(f"The standard output could not be written: {_reason(error)}.")
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - what is left in the buffer has no place to go to
    for output in outputs:
        if output.path is None:
            continue
        try:
            output.write(output.path)
        except OSError as error:
            failures.append(f"{output.path} could not be written: {_reason(error)}.")
        else:
            written.append(output)
            note(f"wrote {output.path}")
    if not failures:
        return
    if outputs and outputs[0] in written:
        failures.append(f"The result itself is in {outputs[0].path}.")
    elif again is not None or save is not None:
        failures.append(f"{again or _saved_elsewhere(*save)}.")  # type: ignore[misc]
    raise click.ClickException(" ".join([*failures, *([spent] if spent else [])]))


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error).rstrip(".")


def _saved_elsewhere(name: str, save: Callable[[Path], object]) -> str:
    """Save a result in a folder that has room for it, and say where it is."""
    for folder in (tempfile.gettempdir(), Path.home()):
        try:
            path = Path(tempfile.mkdtemp(prefix="odeco-", dir=folder)) / name
            save(path)
        except OSError:
            continue
        return f"It is in {path} instead: copy it from there"
    return "It could not be saved elsewhere either"


def deliver_result(
    result: AnyResult,
    given: Outputs,
    *,
    title: str,
    show: Callable[[], object] | None = None,
    again: str | None = None,
    spent: str = "",
) -> None:
    """Print a result, by default as a table or as JSON, and write its files, as `deliver` does."""

    def save(path: Path) -> None:
        save_result(result, path, command=command_line())

    def write_page(path: Path) -> None:
        from odeco.decompose.page import write_report  # Matplotlib takes half a second, and may be missing

        write_report(result, path, title=title, command=command_line())

    def show_result() -> None:
        if given.as_json:
            emit_json(result_document(result))
        else:
            print_result(result, given.top)

    is_table = given.out is not None and given.out.suffix.lower() == ".csv"
    main = Output(given.out, (lambda path: write_csv(result, path)) if is_table else save)
    rescue = ("result.npz", save)
    deliver(show or show_result, main, Output(given.report, write_page), save=rescue, again=again, spent=spent)


def print_result(result: AnyResult, n_top: int) -> None:
    """Print the verdict, the table of components and the remarks on the result as a whole."""
    screen = console()
    screen.print(as_cell(result.verdict), soft_wrap=True)
    screen.print(result_table(result, n_top))
    for remark in remarks_on(result):
        screen.print(as_cell(remark), soft_wrap=True)
    sys.stdout.flush()


def write_csv(result: AnyResult, path: Path) -> None:
    """Write a result as a table: one line per component, with its properties and all its coordinates."""
    numbers = numbers_of(result)
    factors = result.factors if isinstance(result, AsymmetricDecomposition) else (result.vectors,)
    rows = (
        [*(plain(values[i]) for values in numbers.values()), *(x for factor in factors for x in factor[:, i].tolist())]
        for i in range(len(result.weights))
    )
    write_text(path, csv_text([*numbers, *coordinate_labels(result)], rows), readable=True)


@dataclass(frozen=True)
class RowIds:
    """The first cells of every row that is written.

    Attributes
    ----------
    columns : list of str
        Their names.
    rows : list of lists of str
        One list for each row of the input, in its order.
    """

    columns: list[str]
    rows: list[list[str]]

    def csv_text(self, added: Sequence[str], values: Iterable[Sequence[object]]) -> str:
        """Return a table in which columns of odeco, whose names begin so, follow those of the input."""
        buffer = io.StringIO(newline="")
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow([*self.columns, *(f"odeco {name}" for name in added)])
        # Not changed for spreadsheets, as other tables are: an id must stay as it is.
        writer.writerows([*own, *cells] for own, cells in zip(self.rows, values, strict=True))
        return buffer.getvalue()


def read_row_ids(
    files: Sequence[Path], id_column: str | None, *, append: bool, n_rows: int, what: str, option: str = "--id"
) -> RowIds | None:
    """Return the ids of the rows of some files, or all their cells with the ids first; None if none are wanted.

    Columns about `what` will be added, such as "cluster". `option` is the one that named the column.
    """
    if id_column is None and not append:
        return None
    columns: list[str] | None = None
    rows: list[list[str]] = []
    for path in [each for given in files for each in files_of(given)]:
        names, cells = _read(path, id_column)
        if columns not in (None, names):
            raise ValueError(f"All files must have the same columns. {path.name} has others. Make them alike.")
        columns = names
        rows += cells
    columns = columns or []
    if id_column is not None and columns.count(id_column) != 1:
        raise ValueError(
            f"{option} must name one column of {files[0].name}. Got {id_column!r}; it has: {', '.join(columns)}."
        )
    if len(rows) != n_rows:
        raise ValueError(
            f"--id and --append need one record for each of the {n_rows:,} rows, below a record of names. "
            f"{files[0].name} has {len(rows):,}. Write the names first."
        )
    taken = [name for name in columns if append and f"{name} ".startswith(f"odeco {what} ")]
    if taken:
        raise ValueError(
            f"--append adds columns 'odeco {what} …'. {files[0].name} has {taken[0]!r} already, from an earlier run. "
            "Rename or remove it there, or leave --append out."
        )
    first = [] if id_column is None else [columns.index(id_column)]
    if option == "--id" and first:
        _warn_of_ids([row[first[0]] for row in rows], str(id_column))
    order = [*first, *(place for place in range(len(columns)) if append and place not in first)]
    return RowIds([columns[place] for place in order], [[row[place] for place in order] for row in rows])


def _warn_of_ids(ids: list[str], column: str) -> None:
    """Say so if ids do not tell rows apart."""
    counts = Counter(ids)
    n_missing, repeated = counts.pop("", 0), [each for each, number in counts.items() if number > 1]
    faults = [f"{len(repeated):,} of them are those of several rows, such as {repeated[0]!r}"] if repeated else []
    faults += [f"{n_missing:,} {'row has' if n_missing == 1 else 'rows have'} none"] if n_missing else []
    if faults:
        note(f"Warning: ids in {column!r} should tell rows apart: {'; '.join(faults)}. Join by the order of rows.")


def _read(path: Path, id_column: str | None) -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns and the cells of a table, as they are written; of JSON lines, the ids."""
    kind = kind_of(path)
    if kind in (".csv", ".tsv"):
        with open_text(path) as file:
            names, records = read_cells(file, path.name, kind)
            return names, [cells for _, cells in records]
    if kind in (".parquet", ".arrow", ".feather"):
        reader = import_arrow(path.name, ".parquet" if kind == ".parquet" else ".feather")
        with path.open("rb") as opened:
            table = reader.read_table(opened)
        columns = [["" if cell is None else str(cell) for cell in column.to_pylist()] for column in table.columns]
        return list(table.column_names), [list(row) for row in zip(*columns, strict=True)]
    if kind in (".jsonl", ".ndjson") and id_column is not None:
        with open_text(path) as file:
            return [id_column], [[_field(line, id_column, path)] for line in file if line.strip()]
    raise ValueError(
        f"--id and --append need columns with names: a .csv, .tsv, .parquet, .arrow or .feather file, and for --id "
        f"also .jsonl. Got {path.name}. Convert it."
    )


def _field(line: str, name: str, path: Path) -> str:
    value: Any = json.loads(line)
    if not isinstance(value, dict) or name not in value:
        raise ValueError(f"Every line of {path.name} must have the field {name!r}. Some line has not. Fix the file.")
    return str(value[name])


def as_texts(values: Any) -> Iterator[list[str]]:
    """Yield the numbers of each row as texts."""
    return ([f"{value:.6g}" for value in row] for row in values.tolist())
