"""Figures and files of experiments: a table (CSV), figures (PNG and SVG), and one page with every
claim (HTML).

Figures are panels in the style of `odeco.display`, with logarithmic axes.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial, wraps
from importlib.resources import files
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from odeco.display import LIGHT, Figures, Section, drawn_in, parts, svg_text, write_page
from reproduction.report import Report

#: The colour of lines that show a theory.
REFERENCE = LIGHT.muted

#: Colours for methods that are compared.
METHOD_COLOURS = LIGHT.series

#: Colours for an ordered quantity such as the dimension, in the order of their hues.
ORDERED_COLOURS = tuple(LIGHT.series[number] for number in (1, 5, 3, 0, 4, 2))

MARKERS = ("o", "s", "^", "D", "v", "P")


def styled(draw: Callable[[Any], dict[str, Any]]) -> Callable[[Any], dict[str, Any]]:
    """Make a drawing function use the style of `odeco.display`, with grids and small markers."""

    @wraps(draw)
    def drawn(records: Any) -> dict[str, Any]:
        more: Any = {"axes.grid": True, "legend.fontsize": 8.5, "lines.markersize": 4.2}
        with drawn_in(), mpl.rc_context(more):
            return draw(records)

    return drawn


def panels(
    n_rows: int, n_columns: int, *, width: float = 9.2, height: float = 2.7, **settings: Any
) -> tuple[Any, Any]:
    """Return a figure with `n_rows` x `n_columns` panels, each `height` inches high, and its axes
    as a 2-D array.
    """
    figure = Figure(figsize=(width, height * n_rows), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(n_rows, n_columns, squeeze=False, **settings)


def looks(
    values: Sequence[Any], colours: Sequence[str] = METHOD_COLOURS, label: str = "{}"
) -> Iterator[tuple[Any, dict[str, str]]]:
    """Yield values with the colour, the marker and the label of the line of each."""
    for value, colour, marker in zip(values, colours, MARKERS, strict=False):
        yield value, {"color": colour, "marker": marker, "label": label.format(value)}


def reference_line(
    axes: Any, x: Any, through: tuple[float, float], exponent: float, label: str
) -> None:
    """Draw the dashed line y ~ xᵇ of a theory through a point."""
    x = np.array([np.min(x), np.max(x)], dtype=float)
    axes.plot(
        x,
        through[1] * (x / through[0]) ** exponent,
        "--",
        color=REFERENCE,
        linewidth=1.2,
        label=label,
        zorder=1,
    )


def log_axes(axes: Any, which: str = "xy") -> None:
    """Make axes logarithmic, with plain numbers at 1, 2 and 5 of each decade, or at decades where
    there are many.
    """
    for letter in which:
        getattr(axes, f"set_{letter}scale")("log")
        axis = getattr(axes, f"{letter}axis")
        low, high = getattr(axes, f"get_{letter}lim")()
        steps = (1.0, 2.0, 5.0) if high / low < 100 else (1.0,)
        axis.set_major_locator(LogLocator(subs=steps))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        axis.set_minor_formatter(NullFormatter())


def plain_ticks(axis: Any, values: Any) -> None:
    """Label a logarithmic axis with these values, written out."""
    axis.set_ticks(
        list(values), [f"{value:,g}" if value < 1e5 else f"{value:,.0f}" for value in values]
    )
    axis.set_ticks([], minor=True)


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure as PNG, on white, or as SVG, transparent."""
    if path.suffix == ".png":
        figure.savefig(path, format="png", dpi=160, facecolor="white", metadata={"Software": None})
    else:
        path.write_text(svg_text(figure), encoding="utf-8")


#: Verdicts, their plural, their sign, and the colour of the page that they are shown in.
_VERDICTS = {
    "holds": ("hold", "✓", "good"),
    "holds up to logs": ("hold up to logs", "≈", "warm"),
    "does not hold as stated": ("do not hold as stated", "✗", "bad"),
}


def write_experiments_page(reports: Sequence[Report], path: Path) -> None:
    """Write one self-contained page about several experiments."""
    figures, findings = Figures(), [finding for report in reports for finding in report.findings]
    claims = parts("reproduction", "claims.html")
    counts = ", ".join(
        f"{sum(finding.verdict == verdict for finding in findings)} {plural}"
        for verdict, (plural, _, _) in _VERDICTS.items()
    )
    sections = [
        Section(
            "Claims", claims.overview(reports, _VERDICTS, any(report.quick for report in reports))
        )
    ]
    for report in reports:
        shown = {  # each figure stands before the first claim that it shows
            finding.figure: figures.html(
                report.figures[finding.figure], f"{finding.figure}.", by_panel=True
            )
            for finding in report.findings
            if finding.figure in report.figures
        }
        lead = f"Run it again: {report.command}; seed {report.seed}."
        sections.append(
            Section(
                report.title, claims.findings(report, shown, _VERDICTS), lead, anchor=report.name
            )
        )
    write_page(
        path,
        title="What the paper says and what we found",
        verdict=f"{len(findings)} claims: {counts}.",
        subtitle="Wang and Anandkumar, Online and Differentially-Private Tensor Decomposition, "
        "2016, run again. Each verdict follows by the rule beside it, from the numbers alone; ± is "
        "one standard error.",
        sections=sections,
        style=files("reproduction").joinpath("claims.css").read_text(encoding="utf-8"),
    )


def experiment_files(report: Report, folder: Path) -> dict[Path, Callable[[Path], object]]:
    """Return the table and the figures of one experiment: where each goes, and the function that
    writes it.
    """

    def write_table(path: Path) -> None:
        path.write_text(csv_text(report), encoding="utf-8")

    outputs: dict[Path, Callable[[Path], object]] = {folder / f"{report.name}.csv": write_table}
    for name, figure in report.figures.items():
        for suffix in (".png", ".svg"):
            outputs[folder / f"{name}{suffix}"] = partial(save_figure, figure)
    return outputs


def csv_text(report: Report) -> str:
    """Return all records as CSV, with every column that any of them has."""
    columns = list(dict.fromkeys(name for record in report.records for name in record))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {
            name: " ".join(map(str, value)) if isinstance(value, list) else value
            for name, value in record.items()
        }
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
