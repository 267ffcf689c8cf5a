"""Experiments and their reports: claims of the paper (`claims.toml`), what was measured, and a
verdict on each.

Below stand the statistics that experiments share, transitions of failure rates and exponents, and
how trials are run: in processes, with results that do not depend on their number, and no trial
twice. A trial is a function of its settings and a seed, and of nothing else. Its random numbers
depend on both, so that adding settings to an experiment changes no other trial. Finished trials are
appended to a file, one in each line; a run that was interrupted goes on from there.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import tomllib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy  # it imports its submodules when they are used
from threadpoolctl import threadpool_limits

from reproduction.arguments import FloatArray

Verdict: TypeAlias = Literal["holds", "holds up to logs", "does not hold as stated"]

#: Over d = 25 … 200 a factor ln d changes an exponent by ln(ln 200 / ln 25) / ln(200 / 25) = 0.24.
ONE_LOG = 0.24


@dataclass(frozen=True)
class Finding:
    """One claim of the paper, what was measured, and the verdict.

    Attributes
    ----------
    claim : str
        The theorem, proposition, corollary or figure.
    says : str
        What the paper says.
    rule : str
        How the verdict follows from the numbers.
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

    @classmethod
    def on(
        cls, experiment: str, name: str, measured: str, verdict: Verdict, **numbers: object
    ) -> Finding:
        """Return the finding on a claim of `claims.toml`, whose texts may name `numbers`."""
        known = {"one_log": ONE_LOG, **numbers}
        texts = {
            key: Template(text).substitute(known)
            for key, text in claims()[experiment][name].items()
        }
        return cls(measured=measured, verdict=verdict, **texts)


@cache
def claims() -> dict[str, Any]:
    """Return the texts of all claims, by experiment and name."""
    return tomllib.loads(files("reproduction").joinpath("claims.toml").read_text(encoding="utf-8"))


class Records(list[dict[str, Any]]):
    """What all trials of an experiment measured, with their settings: rows of a table."""

    def select(self, **wanted: Any) -> Records:
        """Return the records with these values."""
        return Records(
            record
            for record in self
            if all(record.get(name) == value for name, value in wanted.items())
        )

    def distinct(self, name: str) -> list[Any]:
        """Return the values of one column, sorted."""
        return sorted({record[name] for record in self if name in record})

    def slope(self, variable: str, value: str) -> Estimate:
        """Return the exponent with which a value grows with a variable."""
        return log_slope([record[variable] for record in self], [record[value] for record in self])

    def medians(self, variable: str, value: str) -> tuple[FloatArray, FloatArray]:
        """Return the values of a variable, and the median of another value at each."""
        x = self.distinct(variable)
        return np.array(x, float), np.array(
            [np.median([r[value] for r in self.select(**{variable: v})]) for v in x]
        )


@dataclass(frozen=True, eq=False)
class Report:
    """The findings, records and figures of an experiment; a quick one had fewer trials and smaller
    dimensions.
    """

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
    """An experiment: the settings of its trials, one trial, and the findings and figures of all of
    them.

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

    def run(self, *, quick: bool = False, seed: int = 0, **how: Any) -> Report:
        """Run all trials that are not in a folder yet, and evaluate them; `how` is passed to
        `run_trials`.
        """
        records = Records(run_trials(self.name, self.trial, self.tasks(quick), seed=seed, **how))
        command = f"python -m reproduction {self.name}{' --quick' if quick else ''} --seed {seed}"
        findings = tuple(self.evaluate(records))
        return Report(
            self.name, self.title, command, seed, findings, records, self.draw(records), quick
        )


N_RESAMPLES = 400


@dataclass(frozen=True)
class Estimate:
    """A number with its standard error."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ± {self.error:.2f}"

    def __neg__(self) -> Estimate:
        return Estimate(-self.value, self.error)

    def near(self, expected: float, slack: float = 0.0) -> bool:
        """Return whether the number is `expected`, up to two standard errors and `slack`."""
        return abs(self.value - expected) <= 2 * self.error + slack

    def at_most(self, expected: float, slack: float = 0.0) -> bool:
        """Return whether the number is no larger than `expected`, up to two standard errors and
        `slack`.
        """
        return self.value <= expected + 2 * self.error + slack

    def verdict_near(self, expected: float) -> Verdict:
        """Return the verdict on the claim that an exponent is the expected one."""
        return verdict(self.near(expected), self.near(expected, ONE_LOG))

    def verdict_at_most(self, expected: float) -> Verdict:
        """Return the verdict on the claim that an exponent is at most the expected one."""
        return verdict(self.at_most(expected), self.at_most(expected, ONE_LOG))


def transition(levels: FloatArray, rates: FloatArray) -> float:
    """Return the level at which the nearest rising curve crosses ½, interpolated in log(level); NaN
    if it does not.
    """
    rising = scipy.optimize.isotonic_regression(rates).x
    above = int(np.searchsorted(rising, 0.5))
    if above == 0 or above == len(rising):
        return float("nan")
    low, high = rising[above - 1], rising[above]
    share = (0.5 - low) / (high - low)
    return float(np.exp((1 - share) * np.log(levels[above - 1]) + share * np.log(levels[above])))


def log_slope(x: Any, y: Any) -> Estimate:
    """Return the exponent b of y ~ xᵇ by least squares in logarithms, with the standard error of
    the fit.
    """
    log_x, log_y = np.log(np.asarray(x, float)), np.log(np.asarray(y, float))
    centred = log_x - log_x.mean()
    value = float(centred @ log_y / (centred @ centred))
    residual = log_y - log_y.mean() - value * centred
    n_free = max(1, log_x.size - 2)
    return Estimate(value, float(np.sqrt(residual @ residual / n_free / (centred @ centred))))


def log_spread(values: Any) -> float:
    """Return the standard deviation of log(values): 0 if all are equal, and infinite if one is
    missing.
    """
    spread = float(np.std(np.log(np.asarray(values, float))))
    return spread if np.isfinite(spread) else float("inf")


@dataclass(frozen=True, eq=False)
class Transitions:
    """Transition points by dimension, and the same for trials drawn again with replacement.

    Attributes
    ----------
    dimensions : array of D integers
        The dimensions.
    points : array of D numbers
        The level at which the rate crosses ½, for each dimension.
    resampled : array, N_RESAMPLES x D
        The same for each resample of the trials; NaN where a rate never crosses ½.
    """

    dimensions: FloatArray
    points: FloatArray
    resampled: FloatArray

    @classmethod
    def of(
        cls, dimensions: Sequence[int], levels: FloatArray, outcomes: Sequence[FloatArray]
    ) -> Transitions:
        """Return the transitions of `outcomes`, which hold for each dimension an array of trials x
        levels in [0, 1].

        A trial is drawn again as a whole, because its outcomes at all levels share one draw of the
        noise.
        """
        generator = np.random.default_rng(0)
        points = np.array([transition(levels, each.mean(axis=0)) for each in outcomes])

        def resample(each: FloatArray) -> float:
            return transition(
                levels, each[generator.integers(len(each), size=len(each))].mean(axis=0)
            )

        resampled = np.array([[resample(each) for each in outcomes] for _ in range(N_RESAMPLES)])
        return cls(np.array(dimensions, float), points, resampled)

    @property
    def errors(self) -> FloatArray:
        """The standard error of the logarithm of each point."""
        errors: FloatArray = np.nanstd(np.log(self.resampled), axis=0)
        return errors

    def statistic(self, measure: Callable[[FloatArray], float]) -> Estimate:
        """Return a function of the points, and its standard deviation over resamples."""
        draws = [measure(each) for each in self.resampled if np.isfinite(each).all()]
        return Estimate(measure(self.points), float(np.std(draws)) if draws else float("nan"))

    def exponent(self) -> Estimate:
        """Return the exponent b of point ~ dᵇ."""
        return self.statistic(lambda points: log_slope(self.dimensions, points).value)

    def last_exponent(self) -> Estimate:
        """Return the exponent between the two largest dimensions alone."""
        return self.statistic(lambda points: log_slope(self.dimensions[-2:], points[-2:]).value)

    def spread(self, scale: Callable[[FloatArray], FloatArray]) -> Estimate:
        """Return how far the curves are from falling together after scaling by ``scale(d)``."""
        return self.statistic(lambda points: log_spread(points * scale(self.dimensions)))


def verdict(holds: bool, up_to_logs: bool = False) -> Verdict:
    """Return the verdict on a claim that holds, or else may hold up to logarithms."""
    return "holds" if holds else "holds up to logs" if up_to_logs else "does not hold as stated"


#: The settings of a trial, or what it measured, which is a row of a table: names and numbers, which
#: JSON can hold.
Settings: TypeAlias = dict[str, Any]

Trial: TypeAlias = Callable[[Settings, int], list[Settings]]

Progress: TypeAlias = Callable[[int, int], object]


#: Raise this when the meaning of a trial changes, so that results of older code are not taken for
#: those of newer code.
TRIALS_VERSION = 1


def generator_for(settings: Settings, seed: int) -> np.random.Generator:
    """Return the random generator of one trial, which depends on its settings and the seed
    alone.
    """
    words = np.frombuffer(hashlib.sha256(_canonical(settings).encode()).digest(), dtype=np.uint32)
    return np.random.default_rng([seed, *(int(word) for word in words)])


def run_trials(
    name: str,
    trial: Trial,
    tasks: Sequence[Settings],
    *,
    seed: int,
    folder: Path,
    n_processes: int = 1,
    progress: Progress | None = None,
) -> list[Settings]:
    """Return the records of all tasks, in the order of the tasks, each with its settings in front.

    Parameters
    ----------
    name : str
        The name of the experiment. Its finished trials are kept in ``<name>.trials.jsonl`` below
        `folder`.
    trial : callable
        A function of settings and seed, defined at the top of a module so that other processes can
        import it.
    tasks : sequence of dict
        The settings of every trial.
    seed : int
        The seed of all trials.
    folder : Path
        The folder in which finished trials are kept. It must exist.
    n_processes : int
        The number of worker processes, at least one. Trials always run in processes other than this
        one, and with one thread for linear algebra, so that the number of processes changes no
        result.
    progress : callable, optional
        A function that receives how many tasks are done, and how many there are.
    """
    path = folder / f"{name}.trials.jsonl"
    finished = dict(_read(path))
    keys = [_key(name, task, seed) for task in tasks]
    missing = [(key, task) for key, task in zip(keys, tasks, strict=True) if key not in finished]
    n_done = len(tasks) - len(missing)
    if progress is not None:
        progress(n_done, len(tasks))
    if missing:
        with (
            path.open("ab") as file,
            closing(_in_processes(trial, missing, seed, n_processes)) as results,
        ):
            for key, records in results:
                file.write(json.dumps({"key": key, "records": records}).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
                finished[key] = records
                n_done += 1
                if progress is not None:
                    progress(n_done, len(tasks))
    return [
        {**task, **record}
        for key, task in zip(keys, tasks, strict=True)
        for record in finished[key]
    ]


def _in_processes(
    trial: Trial, missing: Sequence[tuple[str, Settings]], seed: int, n_processes: int
) -> Generator[tuple[str, list[Settings]], None, None]:
    """Yield trials as they finish. No worker process is left behind, however the loop ends."""
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(
        min(n_processes, len(missing)), mp_context=context, initializer=_start_worker
    )
    try:
        waiting: dict[Future[str], str] = {
            pool.submit(_run, trial, task, seed): key for key, task in missing
        }
        for future in as_completed(waiting):
            yield waiting[future], json.loads(future.result())
    except BaseException:
        for worker in set(multiprocessing.active_children()) - others:
            # a trial takes up to a minute, too long to wait for after an interrupt
            worker.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process receives it too, and stops
    os.environ["OMP_NUM_THREADS"] = "1"


def _run(trial: Trial, task: Settings, seed: int) -> str:
    # The records go through text, so that a trial read from the file and one just run are
    # bit-identical.
    with threadpool_limits(limits=1, user_api="blas"):
        return json.dumps(trial(task, seed))


def _key(name: str, task: Settings, seed: int) -> str:
    text = _canonical({"version": TRIALS_VERSION, "experiment": name, "seed": seed, "task": task})
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _canonical(value: Settings) -> str:
    return json.dumps(value, sort_keys=True)


def _read(path: Path) -> Iterator[tuple[str, list[Settings]]]:
    """Yield the finished trials of a file. A last line that a crash cut short is removed from the
    file.
    """
    if not path.exists():
        return
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        content = content[: content.rfind(b"\n") + 1]
        os.truncate(path, len(content))
    for line in content.splitlines():
        entry = json.loads(line)
        yield entry["key"], entry["records"]
