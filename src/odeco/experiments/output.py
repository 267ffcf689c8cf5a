"""Files of an experiment: a table (CSV), figures (PNG and SVG), and one page with all of it (HTML)."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from odeco.experiments._page import page
from odeco.experiments._plots import save_figure
from odeco.experiments._report import Report


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write the table and the figures of one experiment; return the paths."""
    paths = [folder / f"{report.name}.csv"]
    write_text(paths[0], csv_text(report))
    for name, figure in report.figures.items():
        paths += save_figure(figure, folder, name)
    return paths


def write_page(reports: Sequence[Report], path: Path) -> Path:
    """Write one self-contained page about several experiments."""
    write_text(path, page(reports))
    return path


def csv_text(report: Report) -> str:
    """Return all records as CSV, with every column that any of them has."""
    columns = list(dict.fromkeys(name for record in report.records for name in record))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {name: " ".join(map(str, value)) if isinstance(value, list) else value for name, value in record.items()}
        for record in report.records
    )
    return buffer.getvalue()


def document(reports: Sequence[Report]) -> dict[str, Any]:
    """Return what was found, for programs."""
    return {
        "experiments": [
            {
                "name": report.name,
                "command": report.command,
                "seed": report.seed,
                "quick": report.quick,
                "findings": [asdict(finding) for finding in report.findings],
            }
            for report in reports
        ]
    }


def write_text(path: Path, text: str) -> None:
    """Write a file as a whole or not at all."""
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=f".{path.name}.", encoding="utf-8", delete=False
    ) as file:
        file.write(text)
    Path(file.name).chmod(0o644)
    Path(file.name).replace(path)
