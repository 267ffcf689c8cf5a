"""One self-contained HTML page: every claim, what was measured, the verdict, the plot, the command and the seed.

Files of an experiment: a table (CSV), figures (PNG and SVG), and one page with all of it (HTML).
"""

from __future__ import annotations

import csv
import html
import io
import re
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from odeco.reproduction.plots import INK, panel_windows, save_figure, svg_text
from odeco.reproduction.report import Finding, Report

_SIGNS = {"holds": "✓", "holds up to logs": "≈", "does not hold as stated": "✗"}

_CLASSES = {"holds": "yes", "holds up to logs": "nearly", "does not hold as stated": "no"}


#: No figure is shown larger than so many times its size in points: letters of 9.5 points have 13 pixels then.
_LARGEST = 1.4

_QUICK = (
    '<p class="quick">This is a quick run: fewer trials and smaller dimensions. Its verdicts may differ from those of '
    "a whole run, which the same command without <code>--quick</code> makes.</p>\n"
)


_STYLE = """
:root { color-scheme: light dark; --ink: #23262b; --soft: #5b626c; --paper: #ffffff; --card: #f5f6f8; --line: #d9dce1;
  --yes: #1c7a4a; --nearly: #936400; --no: #b3362b; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7e9ec; --soft: #a3abb6; --paper: #15171a; --card: #1e2125;
  --line: #363b42; --yes: #5cc98f; --nearly: #e0ad45; --no: #f0837a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .4rem; }
h2 { font-size: 1.35rem; margin: 3rem 0 .3rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 0; }
p { margin: .5rem 0; }
.soft { color: var(--soft); }
code { background: var(--card); border: 1px solid var(--line); border-radius: 4px; padding: .1rem .35rem;
  font-size: .9em; }
table { border-collapse: collapse; width: 100%; margin: 1.2rem 0; }
th, td { text-align: left; padding: .45rem .7rem .45rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 600; font-size: .88rem; }
a { color: inherit; }
article { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 1rem 1.2rem;
  margin: 1rem 0; }
article header { display: flex; justify-content: space-between; gap: 1rem; align-items: baseline; flex-wrap: wrap; }
dl { display: grid; grid-template-columns: 7.5rem 1fr; gap: .35rem .8rem; margin: .7rem 0 0; }
dt { color: var(--soft); } dd { margin: 0; }
.verdict { font-weight: 650; white-space: nowrap; }
.yes { color: var(--yes); } .nearly { color: var(--nearly); } .no { color: var(--no); }
.first { font-size: 1.15rem; font-weight: 600; }
.quick { border-left: 4px solid var(--nearly); background: var(--card); padding: .6rem 1rem; }
figure { margin: 1.2rem 0; position: relative; } figure svg { width: 100%; height: auto; display: block; }
.panels { display: none; }
@media (max-width: 40rem) { main { padding: 1.5rem 1rem 3rem; }
  dl { grid-template-columns: 1fr; } dt { margin-top: .4rem; } .verdict { white-space: normal; }
  figure.several .whole { position: absolute; width: 1px; height: 1px; overflow: hidden; opacity: 0; }
  figure.several .panels { display: block; } .panels svg { margin: 0 0 1rem; } }
"""


def page(reports: Sequence[Report]) -> str:
    """Return the page about these experiments."""
    findings = [finding for report in reports for finding in report.findings]
    counts = ", ".join(
        f"{sum(finding.verdict == verdict for finding in findings)} {_plural(verdict)}" for verdict in _SIGNS
    )
    summary = "".join(_row(report, number) for report in reports for number in range(len(report.findings)))
    sections = "".join(_section(report) for report in reports)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>What the paper says and what we found</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        "<h1>What the paper says and what we found</h1>\n"
        f'<p class="first">{len(findings)} claims: {counts}.</p>\n'
        f"{_QUICK if any(report.quick for report in reports) else ''}"
        '<p class="soft">Wang and Anandkumar, <em>Online and Differentially-Private Tensor Decomposition</em>, 2016, '
        "run again. Each verdict follows by the rule beside it, from the numbers alone; ± is one standard error.</p>\n"
        f"<table>\n<thead><tr><th>Claim</th><th>Verdict</th></tr></thead>\n<tbody>\n{summary}</tbody>\n</table>\n"
        f"{sections}</main>\n</body>\n</html>\n"
    )


def _plural(verdict: str) -> str:
    return {"holds": "hold", "holds up to logs": "hold up to logs"}.get(verdict, "do not hold as stated")


def _row(report: Report, number: int) -> str:
    finding = report.findings[number]
    link = f'<a href="#{report.name}-{number}">{html.escape(finding.claim)}</a>'
    return f"<tr><td>{link}</td><td>{_verdict(finding)}</td></tr>\n"


def _verdict(finding: Finding) -> str:
    return f'<span class="verdict {_CLASSES[finding.verdict]}">{_SIGNS[finding.verdict]} {finding.verdict}</span>'


def _section(report: Report) -> str:
    """Return the claims of one experiment, each figure after the first claim that it shows."""
    parts = [
        f'<section>\n<h2 id="{report.name}">{html.escape(report.title)}</h2>\n'
        f'<p class="soft">Run it again: <code>{html.escape(report.command)}</code>; seed {report.seed}.</p>\n'
    ]
    shown: set[str] = set()
    for number, finding in enumerate(report.findings):
        if finding.figure in report.figures and finding.figure not in shown:
            shown.add(finding.figure)
            parts.append(_figure(report, finding.figure))
        parts.append(_article(report, number, finding))
    return "".join(parts) + "</section>\n"


def _article(report: Report, number: int, finding: Finding) -> str:
    entries = {
        "The paper": finding.says,
        "Rule": finding.rule,
        "Measured": finding.measured,
        "Why": finding.remark,
    }
    body = "".join(f"<dt>{name}</dt><dd>{html.escape(text)}</dd>" for name, text in entries.items() if text)
    body += f"<dt>Command</dt><dd><code>{html.escape(report.command)}</code></dd>"
    return (
        f'<article id="{report.name}-{number}">\n<header><h3>{html.escape(finding.claim)}</h3>{_verdict(finding)}'
        f"</header>\n<dl>{body}</dl>\n</article>\n"
    )


def _figure(report: Report, name: str) -> str:
    """Return a figure: as a whole, and for a phone panel by panel, each a window on the same drawing."""
    prefix, figure = re.sub(r"\W", "", name), report.figures[name]
    width = f"max-width:{_LARGEST * 72 * figure.get_figwidth():.0f}px"
    whole = f'<div class="whole" style="{width}">{_inline(report, name)}</div>'
    windows = panel_windows(figure)
    if len(windows) < 2:
        return f"<figure>{whole}</figure>\n"
    panels = "".join(
        f'<svg viewBox="{x:.1f} {y:.1f} {width:.1f} {height:.1f}" role="img" aria-label="{html.escape(name)}, panel '
        f'{number}"><use href="#{prefix}-figure_1"/></svg>'
        for number, (x, y, width, height) in enumerate(windows, 1)
    )
    return f'<figure class="several">{whole}<div class="panels">{panels}</div></figure>\n'


def _inline(report: Report, name: str) -> str:
    """Return a figure as SVG in the colours of the page, with ids that no other figure has."""
    text = svg_text(report.figures[name]).replace(INK, "currentColor")
    prefix = re.sub(r"\W", "", name)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}-\1"', text)
    return re.sub(r"<svg ", f'<svg role="img" aria-label="{html.escape(name)}" ', text, count=1)


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
