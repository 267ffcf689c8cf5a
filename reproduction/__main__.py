"""``python -m reproduction``: run the paper's figure and claims again, and say which hold.

Finished trials are kept in the folder: an interrupted run continues when it is started again.
Results do not depend on the number of processes. figure1 takes about ten minutes on two cores, the
others less; --quick at most two minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from reproduction import NAMES, Report, load


def run_experiment(name: str, arguments: argparse.Namespace) -> Report:
    """Run one experiment, and show how far it is."""
    experiment = load(name)

    def show(n_done: int, n_tasks: int) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{experiment.title}: {n_done} of {n_tasks} trials")

    report = experiment.run(
        quick=arguments.quick,
        seed=arguments.seed,
        folder=arguments.out,
        n_processes=arguments.processes,
        progress=show,
    )
    sys.stderr.write(f"\r{experiment.title}: {len(report.records):,} records\n")
    return report


def print_findings(reports: Sequence[Report]) -> None:
    """Print every claim with its verdict, its rule and the measurement."""
    if any(report.quick for report in reports):
        print(
            "A quick run: fewer trials and smaller dimensions; verdicts may differ from those of "
            "a whole run."
        )
    for report in reports:
        print(f"\n{report.title}: {report.command}")
        for finding in report.findings:
            print(f"\n{finding.claim}: {finding.verdict}")
            print(f"  claim      {finding.says}")
            print(f"  predicted  {finding.rule}")
            print(f"  measured   {finding.measured}")


def main(words: Sequence[str] | None = None) -> int:
    """Run experiments, write their files and print their findings."""
    parser = argparse.ArgumentParser(prog="python -m reproduction", description=__doc__)
    parser.add_argument("experiment", choices=[*NAMES, "all"])
    parser.add_argument("--quick", action="store_true", help="fewer trials and smaller dimensions")
    parser.add_argument("--out", type=Path, default=Path("reproduction-results"), metavar="FOLDER")
    parser.add_argument(
        "--seed", type=int, default=0, help="equal seeds give bit-identical results"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    arguments = parser.parse_args(words)
    arguments.out.mkdir(parents=True, exist_ok=True)
    names = NAMES if arguments.experiment == "all" else (arguments.experiment,)
    try:
        reports = [run_experiment(name, arguments) for name in names]
    except KeyboardInterrupt:
        sys.stderr.write("\nInterrupted. Finished trials are kept: the same command goes on.\n")
        return 130
    from reproduction.output import (
        document,
        experiment_files,
        write_experiments_page,
    )  # needs Matplotlib

    page = arguments.out / f"{arguments.experiment}.html"
    write_experiments_page(reports, page)
    for report in reports:
        for path, write in experiment_files(report, arguments.out).items():
            write(path)
    if arguments.json:
        print(json.dumps(document(reports)))
    else:
        print_findings(reports)
        print(f"\n{page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
