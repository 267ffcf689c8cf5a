"""The privacy budget of all commands: what a run asks for, the question before it is spent, ``odeco
ledger``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from odeco.cli import options as _options
from odeco.cli.app import Ended
from odeco.cli.options import Command, Section
from odeco.cli.output import note, print_json, print_text
from odeco.cli.terminal import outlive_terminal, speak
from odeco.privacy.calibration import adversary_accuracy, epsilon_of, gdp_mu
from odeco.privacy.ledger_file import LedgerFile, read_charges
from odeco.privacy.report import in_plain_words


@dataclass(frozen=True)
class Request:
    """The budget that a run asks for.

    Attributes
    ----------
    epsilon, delta : float
        The guarantee.
    mu : float
        The total cost of the releases of the run.
    unit : str
        Whom the guarantee protects.
    units : str
        How many units there are, such as "1,500 documents".
    delta_kept : float
        The part of δ that goes to thresholds instead of Gaussian noise.
    neighbours : str
        The neighbour relation, as ledgers state it.
    has_plan : bool
        Whether a plan was printed, which says what the guarantee means.
    """

    epsilon: float
    delta: float
    mu: float
    unit: str
    units: str
    delta_kept: float = 0.0
    neighbours: str = "replace"
    has_plan: bool = True

    @classmethod
    def of(cls, plan: Any, units: str) -> Request:
        """Return the budget of a plan."""
        return cls(plan.epsilon, plan.delta, plan.mu, plan.unit, units)


def agree_to_spend(
    request: Request,
    files: Sequence[Path],
    *,
    ledger: Path | None = None,
    budget: float | None = None,
    data: str | None = None,
    yes: bool = False,
) -> LedgerFile | None:
    """Print what will be spent, check the ledger, ask, and return the ledger that the run charges,
    if there is one.

    The data set has the name `data`, or those of its files.
    """
    check_budget(ledger, budget, data)
    note(
        f"The guarantee (ε = {request.epsilon:g}, δ = {request.delta:g}) is for one "
        f"{request.unit} of {request.units}."
    )
    if not request.has_plan:
        note(in_plain_words(adversary_accuracy(request.mu, request.delta_kept), request.unit))
    spending = (
        None if ledger is None else Spending.of(ledger, budget, request, data or name_of(files))
    )
    if spending is None:
        note(
            "The budgets of several runs on these data add up: --ledger FILE --budget E keeps "
            "account of them."
        )
    else:
        note(spending.summary)
        spending.check()
    if not yes and is_interactive():  # what is spent cannot be recovered
        question = f"Spend ε = {request.epsilon:g} of the privacy of every {request.unit}?"
        with speak():
            agreed = click.confirm(question, default=False, err=True)
        if not agreed:
            raise Ended("Nothing was spent. Run again with --yes to spend without being asked.")
    notes = click.get_current_context().find_root().ensure_object(dict)
    outlive_terminal()
    notes["spent"] = partial(
        _spent_by_now, request.epsilon, spending
    )  # for the message of an interrupt
    return None if spending is None else spending.open()


def _spent_by_now(epsilon: float, spending: Spending | None) -> str:
    """Return what an interrupted run has spent."""
    if spending is None:
        return (
            f"ε = {epsilon:g} may be spent already: running the command again would spend it again."
        )
    if LedgerFile(spending.path).mu <= spending.mu_spent:
        return f"Nothing was charged to {spending.path}."
    return (
        f"The run was charged to {spending.path}: running the command again would spend it again."
    )


def is_interactive() -> bool:
    """Return whether the command runs on a terminal, where a user can reply."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def check_budget(ledger: Path | None, budget: float | None, data: str | None) -> None:
    """Raise if there is a budget, or a name of the data, without a ledger."""
    if budget is not None and ledger is None:
        raise click.UsageError("--budget is that of a new --ledger FILE. Pass both, or neither.")
    if data is not None and ledger is None:
        raise click.UsageError(
            "--data names the data of a --ledger FILE. Pass both, or leave --data out."
        )


def name_of(files: Sequence[Path]) -> str | None:
    """Return the name of the data set in some files: their names, which are public, and nothing of
    what they hold.
    """
    names = [file.name for file in files]
    if "-" in names:
        raise click.UsageError(
            "The standard input has no name that a ledger could know it by. Pass --data NAME."
        )
    return ", ".join(names) or None


def spent_sentence(epsilon: float | None, ledger: Path | None) -> str:
    """Return what an error after a private run says about the budget; nothing if the run was not
    private.
    """
    if epsilon is None:
        return ""
    if ledger is None:
        return (
            f"ε = {epsilon:g} is spent all the same: running the command again would spend it "
            "again."
        )
    return (
        f"{ledger} stays charged with ε = {epsilon:g}: running the command again would spend it "
        "again."
    )


@dataclass(frozen=True)
class Spending:
    """A ledger file before a run, and its state after the run.

    Attributes
    ----------
    path : Path
        The ledger file, which may not exist yet.
    is_new : bool
        Whether the file does not exist yet.
    data : str or None
        The name of the data set; a plan may have none.
    budget, delta : float
        The ε and δ of all runs together; a part of δ may be kept for thresholds.
    request : Request
        The budget that this run asks for.
    mu_spent, mu_limit : float
        The budget that all runs have spent, and its limit.
    """

    path: Path
    is_new: bool
    data: str | None
    budget: float
    delta: float
    request: Request
    mu_spent: float
    mu_limit: float

    @classmethod
    def of(cls, path: Path, budget: float | None, request: Request, data: str | None) -> Spending:
        """Read a ledger, or take the budget of a new one; raise if it is of other data, or of other
        neighbours.
        """
        if not path.exists():
            if budget is None:
                raise click.UsageError(
                    f"--ledger {path} is new and needs --budget E, the ε that all runs on these "
                    "data may spend together."
                )
            delta = request.delta - request.delta_kept
            return cls(path, True, data, budget, delta, request, 0.0, gdp_mu(budget, delta))
        ledger = LedgerFile(path, data=data)
        ledger.check_run(unit=request.unit, neighbours=request.neighbours)
        allowed = ledger.epsilon
        delta = ledger.delta
        if budget is not None and budget != allowed:
            raise click.UsageError(
                f"--budget must be that of {path}, ε = {allowed:g}. Got {budget:g}. Leave it out, "
                "or name another file."
            )
        spending = cls(
            path,
            False,
            data,
            allowed,
            delta - ledger.delta_limit,
            request,
            ledger.mu,
            ledger.mu_limit,
        )
        delta_left = ledger.delta_limit - math.fsum(charge.delta for charge in ledger.charges)
        if request.delta_kept > delta_left * (1 + 1e-6):
            raise click.UsageError(
                f"{path} has no δ left for choosing words. Nothing was spent. Pass --vocabulary "
                "MODEL.npz: the words of an earlier model of these data are public."
            )
        return spending

    @property
    def mu_after(self) -> float:
        """What all runs will have spent after this one: budgets add up as squares of μ."""
        return math.hypot(self.mu_spent, self.request.mu)

    @property
    def summary(self) -> str:
        """What earlier runs have spent, and what all will have spent after this run."""
        spent, after, limit = (
            self._epsilon(mu) for mu in (self.mu_spent, self.mu_after, self.mu_limit)
        )
        return (
            f"{self.path}: earlier runs have spent ε = {spent}; with this one it will be ε = "
            f"{after} of {limit} (at δ = {self.delta:g})"
        )

    def _epsilon(self, mu: float) -> str:
        return f"{epsilon_of(mu, self.delta):.4g}" if mu > 0 else "0"

    def check(self) -> None:
        """Raise if there is not enough left for the whole run: half of one would be spent for
        nothing.
        """
        if self.mu_after > self.mu_limit * (1 + 1e-9):
            left = math.sqrt(max(0.0, self.mu_limit**2 - self.mu_spent**2))
            raise click.ClickException(
                f"{self.path} allows ε = {self._epsilon(self.mu_limit)} for all runs together. "
                f"Earlier ones have spent ε = {self._epsilon(self.mu_spent)}, so that ε = "
                f"{self._epsilon(left)} is left, and this run asks for {self.request.epsilon:g}. "
                "Nothing was spent. Lower --epsilon."
            )

    def open(self) -> LedgerFile:
        """Return the ledger that the run charges; a new one is created now."""
        if not self.is_new:
            return LedgerFile(self.path)
        whose: Any = {
            "data": self.data,
            "unit": self.request.unit,
            "neighbours": self.request.neighbours,
        }
        return LedgerFile.create(
            self.path,
            **whose,
            epsilon=self.budget,
            delta=self.request.delta,
            delta_limit=self.request.delta_kept,
        )


def run_ledger(file: Path, as_json: bool) -> None:
    """Print what the runs of a ledger have spent, and what is left."""
    document = describe_ledger(file)
    if not document:
        raise ValueError(
            f"{file} must be a ledger of odeco's. It is not. Pass the FILE of --ledger."
        )
    if as_json:
        print_json(
            {
                "file": str(file),
                **{name.replace(" ", "_"): value for name, value in document.items()},
            }
        )
    else:
        print_text(as_lines(document))


def describe_ledger(file: Path) -> dict[str, Any]:
    """Describe a privacy ledger: what was spent, by whom, and what is left; empty if the file is
    not a ledger.
    """
    with file.open("rb") as opened:
        first = opened.readline(4096)
    if first.startswith(b'{"kind": "shared privacy ledger"'):
        ledger = LedgerFile(file)
        left = math.sqrt(max(0.0, ledger.mu_limit**2 - ledger.mu**2))

        def epsilon(mu: float) -> float:
            return float(f"{epsilon_of(mu, ledger.delta):.4g}") if mu > 0 else 0.0

        return {
            "holds": "shared privacy ledger",
            "meaning": "the budget of all runs on the same data; pass it as --ledger or ledger=",
            "data": ledger.data,
            "unit": ledger.unit,
            "neighbours": ledger.neighbours,
            "budget": f"ε = {ledger.epsilon:g} at δ = {ledger.delta:g}",
            "epsilon spent": epsilon(ledger.mu),
            "epsilon left": epsilon(left),
            "how they add up": (
                "as squares of μ, the size of Gaussian noise: ε spent and ε left add up to more "
                "than ε"
            ),
            "releases": sum(charge.count for charge in ledger.charges),
            "epsilon spent by": {name: epsilon(mu) for name, mu in ledger.spent_by.items()},
        }
    if first.startswith(b'{"kind": "privacy ledger file"'):
        run, own = read_charges(file, file.read_bytes())
        return {
            "holds": "privacy ledger of a run",
            "meaning": "what a private stream has spent; it stays beside the checkpoint of the run",
            "run": run,
            "mu spent": float(f"{own.mu:.6g}"),
            "mu limit": float(f"{own.mu_limit:.6g}"),
            "releases": sum(charge.count for charge in own.charges),
        }
    return {}


def as_lines(document: dict[str, Any]) -> str:
    """Return a description as lines: names flush left, and values beside them."""
    flat: list[tuple[str, str]] = []
    for name, value in document.items():
        if isinstance(value, dict):
            flat.append((name, ""))
            flat += [(f"  {inner}", as_shown(each)) for inner, each in value.items()]
        else:
            flat.append((name, as_shown(value)))
    width = max(len(name) for name, _ in flat)
    return "\n".join(f"{name:<{width}}  {value}".rstrip() for name, value in flat)


def as_shown(value: Any) -> str:
    """Return a value for a reader, of at most 300 characters a line."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = f"{value:,}" if isinstance(value, int) else str(value)
    lines = [line if len(line) <= 300 else f"{line[:297]}..." for line in text.split("\n")]
    return "\n".join(lines)


ledger = Command(
    "ledger",
    run_ledger,
    (Section("Output", (_options.JSON,)), _options.general()),
    text="Show what the private runs that share the ledger in FILE have spent, and what is left.",
    examples=("ledger people.ledger",),
)
