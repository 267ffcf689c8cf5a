"""The privacy budget of a command: its options, what is printed and asked before it is spent, and the ledger."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from odeco.cli import options as _options
from odeco.cli.output import note
from odeco.privacy.calibration import epsilon_of, gdp_mu
from odeco.privacy.ledger_file import LedgerFile


def budget_options(what: str, *, required: bool = False) -> Callable[[Any], Any]:
    """Return a decorator with the options of a private run: the guarantee, the ledger, and whether to ask.

    `what` is protected.
    """
    return _options.group(
        click.option("--epsilon", type=float, required=required, metavar="E", help="The ε of a private run."),
        click.option(
            "--delta", type=float, required=required, metavar="D", help=f"Its δ, far below 1 / number of {what}."
        ),
        click.option(
            "--ledger",
            type=_options.CHECKPOINT,
            metavar="FILE",
            help="A file that adds up the budget of all private runs on these data.",
        ),
        click.option(
            "--budget", type=float, metavar="E", help="For a new --ledger: the ε that all runs together may spend."
        ),
        click.option("--yes", is_flag=True, help="Spend without asking. Without a terminal nothing is asked."),
    )


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
    """

    epsilon: float
    delta: float
    mu: float
    unit: str
    units: str
    delta_kept: float = 0.0

    @classmethod
    def of(cls, plan: Any, units: str) -> Request:
        """Return the budget of a plan."""
        return cls(plan.epsilon, plan.delta, plan.mu, plan.unit, units)


def agree_to_spend(request: Request, *, ledger: Path | None, budget: float | None, yes: bool) -> LedgerFile | None:
    """Print what will be spent, check the ledger, ask, and return the ledger that the run charges, if there is one."""
    check_budget(ledger, budget)
    note(
        f"The guarantee (ε = {request.epsilon:g}, δ = {request.delta:g}) is for one {request.unit} of {request.units}."
    )
    spending = None if ledger is None else Spending.of(ledger, budget, request)
    if spending is None:
        note("The budgets of several runs on these data add up: --ledger FILE --budget E keeps account of them.")
    else:
        note(spending.summary)
        spending.check()
    if not yes and is_interactive():  # what is spent cannot be recovered
        question = f"Spend ε = {request.epsilon:g} of the privacy of every {request.unit}?"
        if not click.confirm(question, default=False, err=True):
            raise click.ClickException("Nothing was spent. Run again with --yes to spend without being asked.")
    return None if spending is None else spending.open()


def is_interactive() -> bool:
    """Return whether the command runs on a terminal, where a user can reply."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def check_budget(ledger: Path | None, budget: float | None) -> None:
    """Raise if there is a budget without a ledger."""
    if budget is not None and ledger is None:
        raise click.UsageError("--budget is that of a new --ledger FILE. Pass both, or neither.")


def spent_sentence(epsilon: float | None, ledger: Path | None) -> str:
    """Return what an error after a private run says about the budget; nothing if the run was not private."""
    if epsilon is None:
        return ""
    if ledger is None:
        return f"ε = {epsilon:g} is spent all the same: running the command again would spend it again."
    return f"{ledger} stays charged with ε = {epsilon:g}: running the command again would spend it again."


@dataclass(frozen=True)
class Spending:
    """A ledger file before a run, and its state after the run.

    Attributes
    ----------
    path : Path
        The ledger file, which may not exist yet.
    is_new : bool
        Whether the file does not exist yet.
    budget, delta : float
        The ε and δ of all runs together; a part of δ may be kept for thresholds.
    request : Request
        The budget that this run asks for.
    mu_spent, mu_limit : float
        The budget that all runs have spent, and its limit.
    """

    path: Path
    is_new: bool
    budget: float
    delta: float
    request: Request
    mu_spent: float
    mu_limit: float

    @classmethod
    def of(cls, path: Path, budget: float | None, request: Request) -> Spending:
        """Read a ledger, or take the budget of a new one."""
        if not path.exists():
            if budget is None:
                raise click.UsageError(
                    f"--ledger {path} is new and needs --budget E, the ε that all runs on these data may spend "
                    "together."
                )
            delta = request.delta - request.delta_kept
            return cls(path, True, budget, delta, request, 0.0, gdp_mu(budget, delta))
        ledger = LedgerFile(path)
        allowed, delta = ledger.epsilon, ledger.delta
        if budget is not None and budget != allowed:
            raise click.UsageError(
                f"--budget must be that of {path}, ε = {allowed:g}. Got {budget:g}. Leave it out, or name another file."
            )
        spending = cls(path, False, allowed, delta - ledger.delta_limit, request, ledger.mu, ledger.mu_limit)
        delta_left = ledger.delta_limit - math.fsum(charge.delta for charge in ledger.charges)
        if request.delta_kept > delta_left * (1 + 1e-6):
            raise click.UsageError(
                f"{path} has no δ left for choosing words. Nothing was spent. Pass --vocabulary FILE: the words of an "
                "earlier model on these data are public."
            )
        return spending

    @property
    def mu_after(self) -> float:
        """What all runs will have spent after this one: budgets add up as squares of μ."""
        return math.hypot(self.mu_spent, self.request.mu)

    @property
    def summary(self) -> str:
        """What earlier runs have spent, and what all will have spent after this run."""
        spent, after, limit = (self._epsilon(mu) for mu in (self.mu_spent, self.mu_after, self.mu_limit))
        return (
            f"{self.path}: earlier runs have spent ε = {spent}; with this one it will be ε = {after} of {limit} "
            f"(at δ = {self.delta:g})"
        )

    def _epsilon(self, mu: float) -> str:
        return f"{epsilon_of(mu, self.delta):.4g}" if mu > 0 else "0"

    def check(self) -> None:
        """Raise if there is not enough left for the whole run: half of one would be spent for nothing."""
        if self.mu_after > self.mu_limit * (1 + 1e-9):
            left = math.sqrt(max(0.0, self.mu_limit**2 - self.mu_spent**2))
            raise click.ClickException(
                f"{self.path} allows ε = {self._epsilon(self.mu_limit)} for all runs together. Earlier ones have spent "
                f"ε = {self._epsilon(self.mu_spent)}, so that ε = {self._epsilon(left)} is left, and this run asks for "
                f"{self.request.epsilon:g}. Nothing was spent. Lower --epsilon."
            )

    def open(self) -> LedgerFile:
        """Return the ledger that the run charges; a new one is created now."""
        if not self.is_new:
            return LedgerFile(self.path)
        return LedgerFile.create(
            self.path, epsilon=self.budget, delta=self.request.delta, delta_limit=self.request.delta_kept
        )
