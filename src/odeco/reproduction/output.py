"""Files of experiments: a table (CSV), figures (PNG and SVG), and one page with every claim and its verdict (HTML)."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from odeco._util.files import replacing
from odeco.display.page import Section, asset, parts, write_page
from odeco.display.svg import Figures
from odeco.reproduction.plots import save_figure
from odeco.reproduction.report import Report

_PACKAGE = "odeco.reproduction"

#: Verdicts, their plural, their sign, and the colour of the page that they are shown in.
_VERDICTS = {
    "holds": ("hold", "✓", "good"),
    "holds up to logs": ("hold up to logs", "≈", "warm"),
    "does not hold as stated": ("do not hold as stated", "✗", "bad"),
}


def write_experiments_page(reports: Sequence[Report], path: Path) -> None:
    """Write one self-contained page about several experiments."""
    figures, findings = Figures(), [finding for report in reports for finding in report.findings]
    claims = parts(_PACKAGE, "claims.html")
    counts = ", ".join(
        f"{sum(finding.verdict == verdict for finding in findings)} {plural}"
        for verdict, (plural, _, _) in _VERDICTS.items()
    )
    sections = [Section("Claims", claims.overview(reports, _VERDICTS, any(report.quick for report in reports)))]
    for report in reports:
        shown = {  # each figure stands before the first claim that it shows
            finding.figure: figures.html(report.figures[finding.figure], f"{finding.figure}.", by_panel=True)
            for finding in report.findings
            if finding.figure in report.figures
        }
        lead = f"Run it again: {report.command}; seed {report.seed}."
        sections.append(Section(report.title, claims.findings(report, shown, _VERDICTS), lead, anchor=report.name))
    write_page(
        path,
        title="What the paper says and what we found",
        verdict=f"{len(findings)} claims: {counts}.",
        subtitle="Wang and Anandkumar, Online and Differentially-Private Tensor Decomposition, 2016, run again. Each "
        "verdict follows by the rule beside it, from the numbers alone; ± is one standard error.",
        sections=sections,
        style=asset(_PACKAGE, "claims.css"),
    )


def experiment_files(report: Report, folder: Path) -> dict[Path, Callable[[Path], object]]:
    """Return the table and the figures of one experiment: where each goes, and the function that writes it."""

    def write_table(path: Path) -> None:
        with replacing(path) as file:
            file.write(csv_text(report).encode("utf-8"))

    files: dict[Path, Callable[[Path], object]] = {folder / f"{report.name}.csv": write_table}
    for name, figure in report.figures.items():
        for suffix in (".png", ".svg"):
            files[folder / f"{name}{suffix}"] = partial(save_figure, figure)
    return files


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
    """Return the findings as a dictionary for JSON."""
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
