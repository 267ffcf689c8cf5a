"""Row identity: what stands before the labels, scores or proportions of each row, so that they can be joined back."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from odeco._util.lazy import import_arrow
from odeco.cli.options import check_usage, group
from odeco.io.coerce import files_of
from odeco.io.tables import open_text, read_cells

#: The options of a command that writes rows.
options = group(
    click.option(
        "--id",
        "id_column",
        metavar="COLUMN",
        help="The column that identifies a row: it is the first column of the output, and not used for learning.",
    ),
    click.option("--append", is_flag=True, help="Write all columns of FILE too, unchanged, before the new ones."),
)


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
    files: Sequence[Path], id_column: str | None, *, append: bool, n_rows: int, option: str = "--id"
) -> RowIds | None:
    """Return the ids of the rows of some files, or all their cells with the ids first; None if none are wanted.

    `option` is the one that named the column.
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
    first = [] if id_column is None else [columns.index(id_column)]
    order = [*first, *(place for place in range(len(columns)) if append and place not in first)]
    return RowIds([columns[place] for place in order], [[row[place] for place in order] for row in rows])


def check_row_ids(output: Path | None, id_column: str | None, *, append: bool, option: str) -> None:
    """Raise if rows are to be identified that are not written."""
    unused = (id_column is not None or append) and output is None
    check_usage({f"--id and --append are for the rows that {option} FILE writes. Pass it, or leave them out.": unused})


def _read(path: Path, id_column: str | None) -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns and the cells of a table, as they are written; of JSON lines, the ids."""
    kind = Path(path.name.lower().removesuffix(".gz")).suffix
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
