"""Output of commands: text or JSON on stdout, notes on stderr, and files, of which a full disk
loses none.

Row ids stand before the labels, scores or proportions of each row, so that these can be joined back
(`RowIds`).
"""

from __future__ import annotations

import dataclasses
import json
import math
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from odeco._util.lazy import import_arrow
from odeco._util.types import FloatArray, IndexArray
from odeco.cli.app import Interrupted, Interrupts
from odeco.cli.tables import LABELS, csv_text, plain_csv_text, write_text
from odeco.cli.terminal import output_failure, reason_of
from odeco.decompose.files import RESULT_KINDS, AnyResult
from odeco.decompose.result import AsymmetricDecomposition
from odeco.display.tables import coordinate_labels, numbers_of, printable
from odeco.errors import DominantColumnWarning
from odeco.io.coerce import files_of
from odeco.io.tables import kind_of, open_text, read_cells
from odeco.privacy.report import PrivacyReport

# What is printed ----------------------------------------------------------------------------------


def note(text: str) -> None:
    """Print a note to stderr, which is not part of the result."""
    click.echo(printable(text), err=True)


def print_text(text: str) -> None:
    """Print a text to stdout, without control characters and without blanks at the ends of
    lines.
    """
    lines = printable(text, keep="\n").split("\n")
    click.echo("\n".join(line.rstrip() for line in lines))


def print_json(document: dict[str, Any]) -> None:
    """Write one JSON document to stdout."""
    click.echo(json.dumps(plain(document), indent=2, allow_nan=False))


@contextmanager
def columns_called(labels: Sequence[str] | None) -> Iterator[None]:
    """Name columns in warnings as the user named them."""
    show = warnings.showwarning

    def show_called(message: Warning | str, *more: Any, **further: Any) -> None:
        if labels is not None and isinstance(message, DominantColumnWarning):
            message = message.called(labels[message.column])
        show(message, *more, **further)

    warnings.showwarning = show_called
    try:
        yield
    finally:
        warnings.showwarning = show


def plain(value: Any) -> Any:
    """Return `value` as JSON has it; NaN becomes null, and an infinite number the text
    "infinity".
    """
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, PrivacyReport):
        return json.loads(value.to_json())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, float) and math.isinf(value):
        return "infinity" if value > 0 else "-infinity"
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
    document |= {
        f.name: getattr(result, f.name)
        for f in dataclasses.fields(result)
        if f.name not in left_out
    }
    if hasattr(result, "clear"):
        document["clear"] = result.clear
    return document


# What is delivered --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Output:
    """A file that a command writes, if a path is given."""

    path: Path | None
    write: Callable[[Path], object]


def deliver(
    show: Callable[[], object],
    *outputs: Output,
    save: tuple[str, Callable[[Path], object]] | None = None,
    spent: str = "",
) -> None:
    """Write the files of a result in their order, then print it. If one of these fails, the others
    are done anyway.

    Files come first: nothing that happens to a terminal may cost one. An interrupt waits until all
    is done.

    Parameters
    ----------
    show : callable
        Prints the result to stdout.
    outputs : Output
        The files, the most valuable first: model, labels, page.
    save : pair of str and callable, optional
        A file name, and the function that saves the whole result. It is called if something failed
        and the first of the `outputs` was not written: the result is then saved in another folder.
    spent : str
        A sentence about the privacy budget that was spent, for the error message.
    """
    failures: list[str] = []
    with Interrupts() as interrupts:
        written = [
            output
            for output in outputs
            if output.path is not None and _is_written(output, failures)
        ]
        try:
            show()
        except Exception as error:  # noqa: BLE001 - see `_is_written`
            failures.append(f"The result could not be printed: {reason_of(error)}.")
        failures += filter(None, [output_failure()])
        for output in written:
            note(f"wrote {output.path}")
        if failures and outputs and outputs[0] in written:
            failures.append(f"The result itself is in {outputs[0].path}.")
        elif failures and save is not None:
            failures.append(f"{_save_elsewhere(*save)}.")
    if failures:
        raise click.ClickException(" ".join([*failures, *([spent] if spent else [])]))
    if interrupts.number is not None:
        raise Interrupted("Interrupted. The result was delivered all the same.")


def _is_written(output: Output, failures: list[str]) -> bool:
    """Write an output and return whether that succeeded; whatever the error is, it must not cost
    the other outputs.
    """
    try:
        output.write(output.path)  # type: ignore[arg-type]
    except Exception as error:  # noqa: BLE001 - see above
        failures.append(f"{output.path} could not be written: {reason_of(error)}.")
        return False
    return True


def _save_elsewhere(name: str, save: Callable[[Path], object]) -> str:
    """Save a result in a folder that has room for it, and say where it is."""
    for folder in (tempfile.gettempdir(), Path.home()):
        with suppress(Exception):  # the next folder may have room
            path = Path(tempfile.mkdtemp(prefix="odeco-", dir=folder)) / name
            save(path)
            return f"It is in {path} instead: copy it from there"
    return "It could not be saved elsewhere either"


# Tables -------------------------------------------------------------------------------------------


def write_result_table(result: AnyResult, path: Path) -> None:
    """Write a result as a table: one line per component, with its properties and all its
    coordinates.
    """
    numbers = numbers_of(result)
    factors = result.factors if isinstance(result, AsymmetricDecomposition) else (result.vectors,)
    rows = []
    for component in range(len(result.weights)):
        properties = [plain(values[component]) for values in numbers.values()]
        coordinates = [x for factor in factors for x in factor[:, component].tolist()]
        rows.append([*properties, *coordinates])
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


def labels_csv(
    values: FloatArray,
    component: str,
    *,
    shares: bool = True,
    leading: IndexArray | None = None,
    rows: Sequence[str] | None = None,
    ids: RowIds | None = None,
) -> str:
    """Return the components of each row as CSV; of shares also the `leading` one, by default the
    largest.

    Columns have the same names whatever the options are. Rows without names or ids have numbers
    from 0 on.
    """
    columns = [f"odeco {component} {number}" for number in range(values.shape[1])]
    cells: Iterable[list[str]] = as_texts(values)
    if shares:
        columns.insert(0, f"odeco {component}")
        leading = values.argmax(axis=1) if leading is None else leading
        cells = (
            [str(first), *shown]
            for first, shown in zip(leading.tolist(), as_texts(values), strict=True)
        )
    if (
        ids is not None
    ):  # not changed for spreadsheets, as other tables are: an id must stay as it is
        joined = ([*own, *shown] for own, shown in zip(ids.rows, cells, strict=True))
        return plain_csv_text([*ids.columns, *columns], joined)
    names = range(len(values)) if rows is None else rows
    return csv_text(
        [*LABELS, *columns], ([name, *shown] for name, shown in zip(names, cells, strict=True))
    )


def as_texts(values: Any) -> Iterator[list[str]]:
    """Yield the numbers of each row as texts."""
    return ([f"{value:.6g}" for value in row] for row in values.tolist())


def read_row_ids(
    files: Sequence[Path],
    id_column: str | None,
    *,
    append: bool,
    n_rows: int,
    what: str,
    option: str = "--id",
) -> RowIds | None:
    """Return the ids of the rows of some files, or all their cells with the ids first; None if none
    are wanted.

    Columns about `what` will be added, such as "cluster". `option` is the one that named the
    column.
    """
    if id_column is None and not append:
        return None
    columns: list[str] | None = None
    rows: list[list[str]] = []
    for path in [each for given in files for each in files_of(given)]:
        names, cells = _read_cells(path, id_column)
        if columns not in (None, names):
            raise ValueError(
                f"All files must have the same columns. {path.name} has others. Make them alike."
            )
        columns = names
        rows += cells
    columns = columns or []
    if id_column is not None and columns.count(id_column) != 1:
        raise ValueError(
            f"{option} must name one column of {files[0].name}. Got {id_column!r}; it has: "
            f"{', '.join(columns)}."
        )
    if len(rows) != n_rows:
        raise ValueError(
            f"--id and --append need one record for each of the {n_rows:,} rows, below a record "
            f"of names. {files[0].name} has {len(rows):,}. Write the names first."
        )
    taken = [name for name in columns if append and f"{name} ".startswith(f"odeco {what} ")]
    if taken:
        raise ValueError(
            f"--append adds columns 'odeco {what} …'. {files[0].name} has {taken[0]!r} already, "
            "from an earlier run. Rename or remove it there, or leave --append out."
        )
    first = [] if id_column is None else [columns.index(id_column)]
    if option == "--id" and first:
        _warn_of_ids([row[first[0]] for row in rows], str(id_column))
    order = [*first, *(place for place in range(len(columns)) if append and place not in first)]
    return RowIds(
        [columns[place] for place in order], [[row[place] for place in order] for row in rows]
    )


def _warn_of_ids(ids: list[str], column: str) -> None:
    """Say so if ids do not tell rows apart."""
    counts = Counter(ids)
    n_missing = counts.pop("", 0)
    repeated = [each for each, number in counts.items() if number > 1]
    faults = []
    if repeated:
        faults.append(f"{len(repeated):,} ids occur more than once, such as {repeated[0]!r}")
    if n_missing:
        faults.append(f"{n_missing:,} {'row has' if n_missing == 1 else 'rows have'} none")
    if faults:
        note(
            f"Warning: {column!r} does not identify rows: {'; '.join(faults)}. Join by the order "
            "of rows."
        )


def _read_cells(path: Path, id_column: str | None) -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns and the cells of a table, as they are written; of JSON lines,
    the ids.
    """
    kind = kind_of(path)
    if kind in (".csv", ".tsv"):
        with open_text(path) as file:
            names, records = read_cells(file, path.name, kind)
            return names, [cells for _, cells in records]
    if kind in (".parquet", ".arrow", ".feather"):
        reader = import_arrow(path.name, ".parquet" if kind == ".parquet" else ".feather")
        with path.open("rb") as opened:
            table = reader.read_table(opened)
        columns = [
            ["" if cell is None else str(cell) for cell in column.to_pylist()]
            for column in table.columns
        ]
        return list(table.column_names), [list(row) for row in zip(*columns, strict=True)]
    if kind in (".jsonl", ".ndjson") and id_column is not None:
        with open_text(path) as file:
            return [id_column], [[_field(line, id_column, path)] for line in file if line.strip()]
    raise ValueError(
        "--id and --append need columns with names: a .csv, .tsv, .parquet, .arrow or .feather "
        f"file, and for --id also .jsonl. Got {path.name}. Convert it."
    )


def _field(line: str, name: str, path: Path) -> str:
    value: Any = json.loads(line)
    if not isinstance(value, dict) or name not in value:
        raise ValueError(
            f"Every line of {path.name} must have the field {name!r}. Some line has not. Fix the "
            "file."
        )
    return str(value[name])
