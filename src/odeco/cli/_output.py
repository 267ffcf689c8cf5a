"""What a user sees: tables on stdout, progress on stderr, JSON for programs."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from odeco.cli._faults import advice, command_line, printable
from odeco.metrics import shown_angle
from odeco.privacy import PrivacyReport
from odeco.result import AsymmetricDecomposition, Decomposition
from odeco.saving import RESULT_KINDS, AnyResult, save_result


def console(*, err: bool = False) -> Console:
    """Return where to write. What is no terminal gets lines long enough for every table."""
    made = Console(stderr=err, highlight=False, soft_wrap=False)
    if not made.is_terminal:
        made.width = int(os.environ.get("COLUMNS", "160"))
    return made


def progress_bar() -> Progress:
    """Return a bar on stderr that is shown only to people."""
    screen = console(err=True)
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=screen,
        disable=not screen.is_terminal,
        transient=True,
    )


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


def result_table(result: AnyResult, names: Sequence[str] | None, n_top: int) -> Table:
    """Return one line for each component."""
    columns: list[tuple[str, Callable[[int], str]]] = [("weight", lambda i: f"{result.weights[i]:.6g}")]
    errors = getattr(result, "weight_errors", None)
    if errors is not None:
        columns.append(("± (1 s.e.)", lambda i: f"{errors[i]:.2g}"))
    angles = getattr(result, "angle_errors", None)
    if angles is not None:
        columns.append(("angle error, rad", lambda i: shown_angle(angles[i])))
    floors = getattr(result, "noise_floors", None)
    if floors is not None:
        columns.append(("noise floor", lambda i: f"{floors[i]:.3g}"))
        columns.append(("clear of it", lambda i: "yes" if abs(result.weights[i]) > floors[i] else "no"))
    columns += _convergence_columns(result)
    table = Table("#", *(name for name, _ in columns), box=None, pad_edge=False)
    for column in table.columns:
        column.justify = "right"
    if n_top and not isinstance(result, AsymmetricDecomposition):
        table.add_column("largest coordinates", justify="left", overflow="fold")
    for i in range(len(result.weights)):
        cells = [str(i + 1), *(show(i) for _, show in columns)]
        if n_top and not isinstance(result, AsymmetricDecomposition):
            cells.append(largest_coordinates(result.vectors[:, i], names, n_top))
        table.add_row(*map(as_cell, cells))
    return table


def _convergence_columns(result: AnyResult) -> list[tuple[str, Callable[[int], str]]]:
    """Return how well each component was found, where that is known."""
    columns: list[tuple[str, Callable[[int], str]]] = []
    if isinstance(result, Decomposition | AsymmetricDecomposition):
        columns.append(("residual", lambda i: f"{result.residuals[i]:.1e}"))
        columns.append(("converged", lambda i: "yes" if result.converged[i] else "no"))
    if isinstance(result, Decomposition):
        columns.append(("images", lambda i: str(result.n_iterations[i])))
        if result.n_restarts is not None:
            columns.append(("restarts agreed", lambda i: f"{result.n_agreed[i]} of {result.n_restarts}"))
    return columns


def largest_coordinates(vector: Any, names: Sequence[str] | None, n_top: int) -> str:
    """Return the coordinates that are largest in absolute value, with their names or numbers (from 0)."""
    first = np.argsort(-np.abs(vector), kind="stable")[:n_top]
    labels = [f"[{i}]" if names is None else names[i] for i in first]
    return ", ".join(f"{label} {vector[i]:+.2f}" for label, i in zip(labels, first, strict=True))


def deliver(
    result: AnyResult,
    *,
    out: Path | None,
    report: Path | None,
    names: Sequence[str] | None,
    title: str,
    as_json: bool,
    top: int,
    again: str | None = None,
) -> None:
    """Write the files that were asked for and print the result, even if a file cannot be written; then say so.

    `again` says how to get the result without computing it again; without it the result is saved elsewhere.
    """
    try:
        write_outputs(result, out=out, report=report, names=names, title=title, again=again)
    finally:
        if as_json:
            emit_json(result_document(result))
        else:
            print_result(result, names, top)


def write_outputs(
    result: AnyResult,
    *,
    out: Path | None,
    report: Path | None,
    names: Sequence[str] | None,
    title: str,
    again: str | None = None,
) -> None:
    """Write the files that were asked for, and say so; lose no result if one of them cannot be written."""
    try:
        if out is not None:
            save_result(result, out, command=command_line())
            note(f"wrote {out}")
        if report is not None:
            from odeco.report import write_report  # matplotlib takes half a second, and may be missing

            write_report(result, report, title=title, names=names, command=command_line())
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


def print_result(result: AnyResult, names: Sequence[str] | None, n_top: int) -> None:
    """Write the table of a result, and what is known of it as a whole, to stdout."""
    screen = console()
    verdict = getattr(result, "verdict", None)
    if verdict is not None:
        screen.print(as_cell(verdict), soft_wrap=True)
    screen.print(result_table(result, names, n_top))
    explained = getattr(result, "explained", None)
    if explained is not None:
        screen.print(f"explained: {explained:.4%} of the squared norm")
    evidence = getattr(result, "rank_evidence", None)
    if evidence is not None:
        screen.print(f"rank {evidence.rank} chosen; confidence that it is right: {evidence.confidence:.4f}")
    structure = getattr(result, "structure", None)
    if structure is not None:
        screen.print(as_cell(f"{structure.kind}: {structure.reason}"), soft_wrap=True)
    n_rows = getattr(result, "n_rows", None)
    if n_rows is not None:
        screen.print(f"rows read: {n_rows:,}")
    privacy = getattr(result, "privacy", None)
    if privacy is not None:
        screen.print(as_cell(privacy_sentence(privacy)), soft_wrap=True)
    sys.stdout.flush()


def privacy_sentence(privacy: PrivacyReport) -> str:
    """Return the guarantee in one sentence."""
    if not privacy.private:
        return "NOT private: the noise did not come from the operating system."
    budget = f"({privacy.epsilon:g}, {privacy.delta:g})-differentially private for one {privacy.unit}"
    spent = f"spent ε = {privacy.epsilon_spent:.4g}, μ = {privacy.mu:.4g}"
    return f"{budget} ({privacy.neighbours}); mechanism {privacy.mechanism}; {spent}"
