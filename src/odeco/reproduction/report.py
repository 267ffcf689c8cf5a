"""Experiments and their reports: claims of the paper, what was measured, and a verdict on each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from odeco.reproduction.trials import Progress, Records, Settings, Trial, run_trials

Verdict: TypeAlias = Literal["holds", "holds up to logs", "does not hold as stated"]


@dataclass(frozen=True)
class Finding:
    """One claim of the paper and what became of it.

    Attributes
    ----------
    claim : str
        The theorem, proposition, corollary or figure.
    says : str
        What the paper says.
    rule : str
        How the verdict follows from the numbers. The rule was written before they were known.
    measured : str
        What was measured, with uncertainties.
    verdict : str
        The verdict that follows by the rule.
    figure : str
        The name of the figure that shows the measurement.
    remark : str
        The reason, if the claim does not hold as stated.
    """

    claim: str
    says: str
    rule: str
    measured: str
    verdict: Verdict
    figure: str
    remark: str = ""


@dataclass(frozen=True, eq=False)
class Report:
    """The findings, records and figures of an experiment; a quick one had fewer trials and smaller dimensions."""

    name: str
    title: str
    command: str
    seed: int
    findings: tuple[Finding, ...]
    records: Records
    figures: Mapping[str, Any] = field(default_factory=dict)
    quick: bool = False


@dataclass(frozen=True)
class Experiment:
    """An experiment: the settings of its trials, what one trial does, and what follows from all of them.

    Attributes
    ----------
    name, title : str
        The word on the command line, and a line about it.
    tasks : callable
        ``tasks(quick)`` returns the settings of every trial.
    trial : callable
        ``trial(settings, seed)`` returns the rows that one trial adds to the table.
    evaluate : callable
        ``evaluate(records)`` returns the findings.
    draw : callable
        ``draw(records)`` returns the figures by name.
    """

    name: str
    title: str
    tasks: Callable[[bool], list[Settings]]
    trial: Trial
    evaluate: Callable[[Records], list[Finding]]
    draw: Callable[[Records], dict[str, Any]]

    def run(
        self,
        *,
        quick: bool = False,
        seed: int = 0,
        folder: Path,
        n_processes: int = 1,
        progress: Progress | None = None,
    ) -> Report:
        """Run all trials that are not in `folder` yet, and evaluate them."""
        records = run_trials(
            self.name,
            self.trial,
            self.tasks(quick),
            seed=seed,
            folder=folder,
            n_processes=n_processes,
            progress=progress,
        )
        command = f"odeco reproduce {self.name}{' --quick' if quick else ''} --seed {seed}"
        findings = tuple(self.evaluate(records))
        return Report(self.name, self.title, command, seed, findings, records, self.draw(records), quick)


def select(records: Records, **wanted: Any) -> Records:
    """Return the records with these values."""
    return [record for record in records if all(record.get(name) == value for name, value in wanted.items())]


def distinct(records: Records, name: str) -> list[Any]:
    """Return the values of one column, sorted."""
    return sorted({record[name] for record in records if name in record})
