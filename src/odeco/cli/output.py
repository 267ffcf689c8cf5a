"""What a user sees: tables on stdout, progress on stderr, JSON for programs."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from odeco._util.files import replacing
from odeco.cli.faults import advice, command_line
from odeco.decompose.files import RESULT_KINDS, AnyResult, save_result
from odeco.decompose.result import AsymmetricDecomposition
from odeco.display.tables import cells_of, coordinate_labels, numbers_of, printable, remarks_on
from odeco.privacy.report import PrivacyReport


def console(*, err: bool = False) -> Console:
    """Return where to write. What is no terminal gets lines long enough for every table."""
    made = Console(stderr=err, highlight=False, soft_wrap=False)
    if not made.is_terminal:
        made.width = int(os.environ.get("COLUMNS", "160"))
    return made


def emit_json(document: dict[str, Any]) -> None:
    """Write one JSON document to stdout."""
    click.echo(json.dumps(plain(document), indent=2, allow_nan=False))


def note(text: str) -> None:
    """Say something on stderr that is no part of the answer."""
    click.echo(printable(text), err=True)


def as_cell(text: str) -> Text:
    """Return a text for a table on the terminal: without marks of style, and without signs that the terminal obeys."""
    return Text(printable(text))


def csv_cell(text: str) -> str:
    """Return a text for a cell of CSV that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def plain(value: Any) -> Any:
    """Return `value` in the terms of JSON; a number that is not finite becomes null, or the text "infinity"."""
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
    """Return a result for programs: everything it holds, vectors as one list for each component."""
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
    """Return one line for each component."""
    headings, rows = cells_of(result, n_top=n_top)
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        is_text = heading.startswith("largest ")
        table.add_column(heading, justify="left" if is_text else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(as_cell, row))
    return table


def deliver(
    result: AnyResult,
    *,
    out: Path | None,
    report: Path | None,
    title: str,
    as_json: bool,
    top: int,
    again: str | None = None,
) -> None:
    """Write the files that were asked for and print the result, even if a file cannot be written; then say so.

    `again` says how to get the result without computing it again; without it the result is saved elsewhere.
    """
    try:
        write_outputs(result, out=out, report=report, title=title, again=again)
    finally:
        if as_json:
            emit_json(result_document(result))
        else:
            print_result(result, top)


def write_outputs(
    result: AnyResult,
    *,
    out: Path | None,
    report: Path | None,
    title: str,
    again: str | None = None,
) -> None:
    """Write the files that were asked for, and say so; lose no result if one of them cannot be written."""
    try:
        if out is not None:
            if out.suffix.lower() == ".csv":
                write_csv(result, out)
            else:
                save_result(result, out, command=command_line())
            note(f"wrote {out}")
        if report is not None:
            from odeco.decompose.page import write_report  # matplotlib takes half a second, and may be missing

            write_report(result, report, title=title, command=command_line())
            note(f"wrote {report}")
    except OSError as error:
        text = f"The result could not be written: {advice(error)} {again or _saved_elsewhere(result)}."
        raise click.ClickException(text) from error


def _saved_elsewhere(result: AnyResult) -> str:
    """Save a result where there is room for it, and say where."""
    path = Path(tempfile.mkdtemp(prefix="odeco-")) / "result.npz"
    try:
        save_result(result, path, command=command_line())
    except OSError:
        return "It could not be saved elsewhere either"
    return f"It is in {path} instead: copy it from there"


def print_result(result: AnyResult, n_top: int) -> None:
    """Write the verdict, the table of a result, and what is known of it as a whole, to stdout."""
    screen = console()
    screen.print(as_cell(result.verdict), soft_wrap=True)
    screen.print(result_table(result, n_top))
    for remark in remarks_on(result):
        screen.print(as_cell(remark), soft_wrap=True)
    sys.stdout.flush()


def write_csv(result: AnyResult, path: Path) -> None:
    """Write a result as a table: a line for each component, with what is known of it and all its coordinates."""
    numbers = numbers_of(result)
    factors = result.factors if isinstance(result, AsymmetricDecomposition) else (result.vectors,)
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(map(csv_cell, [*numbers, *coordinate_labels(result)]))
    for i in range(len(result.weights)):
        coordinates = (value for factor in factors for value in factor[:, i].tolist())
        writer.writerow([*(plain(values[i]) for values in numbers.values()), *coordinates])
    with replacing(path, readable=True) as file:
        file.write(buffer.getvalue().encode())
