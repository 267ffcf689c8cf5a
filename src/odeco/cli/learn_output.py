"""What ``odeco learn`` delivers: a summary or JSON, the model, the components of each row, a page."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from odeco._util.files import replacing
from odeco._util.types import FloatArray
from odeco.cli.faults import command_line
from odeco.cli.output import Output, as_cell, console, csv_cell, deliver, emit_json


@dataclass(frozen=True, eq=False)
class Labels:
    """The components of each row, as columns of a table.

    Attributes
    ----------
    columns : list of str
        Their names.
    values : array, rows x columns
        Their values; whole numbers are written as such.
    rows : sequence of str or None
        The names of the rows; without them rows have numbers from 0 on.
    """

    columns: list[str]
    values: FloatArray
    rows: Sequence[str] | None = None

    @classmethod
    def of_shares(cls, shares: FloatArray, what: str, rows: Sequence[str] | None = None) -> Labels:
        """Return the component with the largest share of each row, and all shares."""
        columns = [what, *(f"{what} {number}" for number in range(shares.shape[1]))]
        return cls(columns, np.column_stack([shares.argmax(axis=1), shares]), rows)

    def write(self, path: Path) -> None:
        """Write the table as CSV, atomically."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(["odeco row", *self.columns])  # a file that begins so may be replaced
        for number, values in enumerate(self.values.tolist()):
            name = str(number) if self.rows is None else csv_cell(self.rows[number])
            writer.writerow([name, *(f"{value:.6g}" for value in values)])
        with replacing(path) as file:
            file.write(buffer.getvalue().encode())


def deliver_model(
    model: Any,
    *,
    title: str,
    names: Sequence[str] | None,
    labels: Callable[[], Labels],
    out: Path | None,
    labels_path: Path | None,
    report: Path | None,
    as_json: bool,
    rows: Any = None,
    remark: str = "",
    spent: str = "",
) -> None:
    """Print the model, then write the model, the labels and the page, as far as they were asked for.

    `labels` are computed only if they are wanted; `rows` are shown in the figure; `remark`
    is a line that follows the summary; `spent` is a sentence about the privacy budget.
    """
    if names is not None and not hasattr(model, "feature_names_in_"):
        model.feature_names_in_ = np.array(names, dtype=object)
    summary = model.summary()

    def show() -> None:
        if as_json:
            emit_json(_document(model, summary))
            return
        for line in (*summary.splitlines(), *([remark] if remark else [])):
            console().print(as_cell(line), soft_wrap=True)

    def write_page(path: Path) -> None:
        from odeco.models.engine.page import write_model_report  # Matplotlib takes half a second, and may be missing

        write_model_report(model, path, title=title, rows=rows, remark=remark, command=command_line())

    with warnings.catch_warnings():  # rows come without the names that the model now has
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        deliver(
            show,
            Output(out, model.save),
            Output(labels_path, lambda path: labels().write(path)),
            Output(report, write_page),
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
