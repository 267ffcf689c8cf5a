"""``odeco reproduce``: run the paper's figure and claims again."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table

from odeco.cli import options as _options
from odeco.cli.faults import Interrupted, command_line
from odeco.cli.output import Output, console, deliver, emit_json, note
from odeco.display.progress import progress_bar
from odeco.reproduction import NAMES, load

if TYPE_CHECKING:
    from odeco.reproduction.report import Report


COLOURS = {"holds": "green", "holds up to logs": "yellow", "does not hold as stated": "red"}

HELP = """Run the paper's figure and claims again, and say which hold.

\b
figure1     noise that Algorithm 1 bears, in nine panels
streaming   error against rows and dimension, memory
privacy     signal that private mechanisms need
whitening   Algorithm 1 beside methods that take slices
all         all of these, on one page
"""

EPILOG = """
Finished trials are kept in --out: an interrupted run continues when it is started again. Results do not depend on the
number of processes. figure1 takes about ten minutes on two cores, the others less; --quick at most two minutes.
"""


@click.command("reproduce", help=HELP, epilog=EPILOG)
@click.argument("experiment", type=click.Choice([*NAMES, "all"]), metavar="|".join([*NAMES, "all"]))
@click.option("--quick", is_flag=True, help="Fewer trials and smaller dimensions.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("odeco-reproduce"),
    show_default=True,
    metavar="FOLDER",
    help="Folder for tables (CSV), figures (PNG, SVG) and the page (HTML).",
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Equal seeds give bit-identical results."
)
@click.option(
    "--processes", type=click.IntRange(1), default=None, metavar="N", help="Worker processes; by default one per core."
)
@_options.json_output
def command(experiment: str, quick: bool, out: Path, seed: int, processes: int | None, as_json: bool) -> None:
    """Run experiments, write their files and print their findings."""
    from odeco.reproduction.output import document, experiment_files, write_experiments_page  # needs Matplotlib

    out.mkdir(parents=True, exist_ok=True)
    names = NAMES if experiment == "all" else (experiment,)
    try:
        reports = [_run(name, quick, seed, out, processes or _n_cores()) for name in names]
    except KeyboardInterrupt:
        raise Interrupted(f"Interrupted. Finished trials are kept. To go on: {command_line()}") from None
    page = out / ("index.html" if experiment == "all" else f"{experiment}.html")
    files: dict[Path, Callable[[Path], object]] = {page: lambda path: write_experiments_page(reports, path)}
    for report in reports:
        files |= experiment_files(report, out)

    def show() -> None:
        if as_json:
            emit_json({**document(reports), "files": [str(path) for path in files]})
        else:
            _print(reports)

    again = f"Finished trials are kept in {out}: run the command again"
    deliver(show, *(Output(path, write) for path, write in files.items()), again=again)


def _run(name: str, quick: bool, seed: int, folder: Path, n_processes: int) -> Report:
    experiment = load(name)
    with progress_bar(only_on_terminal=True) as show_progress:

        def advance(n_done: int, n_tasks: int) -> None:
            show_progress(experiment.title, n_done, n_tasks, f"{n_done} of {n_tasks} trials")

        report = experiment.run(quick=quick, seed=seed, folder=folder, n_processes=n_processes, progress=advance)
    note(f"{experiment.title}: {len(report.records):,} records")
    return report


def _print(reports: Sequence[Report]) -> None:
    if any(report.quick for report in reports):
        console().print(
            "[yellow]A quick run[/yellow]: fewer trials and smaller dimensions; verdicts may differ from those "
            "of a whole run, without --quick."
        )
    for report in reports:
        table = Table(title=report.title, title_justify="left", show_lines=True)
        table.add_column("claim", ratio=2)
        table.add_column("measured", ratio=5)
        table.add_column("verdict", ratio=2)
        for finding in report.findings:
            colour = COLOURS[finding.verdict]
            table.add_row(finding.claim, finding.measured, f"[{colour}]{finding.verdict}[/{colour}]")
        console().print(table)
        console().print(f"[dim]{report.command}[/dim]")


def _n_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
