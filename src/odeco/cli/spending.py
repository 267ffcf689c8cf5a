"""What a private run spends: asked before it does, and added to a ledger that runs on the same data share."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from odeco.cli.output import note
from odeco.privacy.calibration import epsilon_of, gdp_mu
from odeco.privacy.ledger_file import LedgerFile

#: What a run says that adds to no ledger.
NO_LEDGER = "several runs on the same data add up: --ledger FILE --budget E keeps account of them, and refuses too many"


def ask_before_spending(plan: Any, *, yes: bool) -> None:
    """Ask, where there is somebody to ask: what is spent cannot be had back."""
    if yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    if not click.confirm(f"Spend ε = {plan.epsilon:g} of the privacy of every {plan.unit}?", default=False, err=True):
        raise click.ClickException("Nothing was spent. Run again with --yes to spend without being asked.")


def agreed(plan: Any, *, ledger: Path | None, budget: float | None, yes: bool) -> str | None:
    """Ask before a model is learnt in private, and return the ledger that it charges, if there is one."""
    if budget is not None and ledger is None:
        raise click.UsageError("--budget is that of a new --ledger FILE. Pass both, or neither.")
    spending = None if ledger is None else Spending.of(ledger, budget, plan)
    note(NO_LEDGER if spending is None else spending.in_words)
    if spending is not None:
        spending.check()
    ask_before_spending(plan, yes=yes)
    return None if spending is None else str(spending.opened().path)


@dataclass(frozen=True)
class Spending:
    """A ledger file before a run: what it knows, and what the run would bring it to.

    Attributes
    ----------
    path : Path
        The ledger, which may not be there yet.
    budget : float or None
        The ε that a new ledger allows for all runs together.
    epsilon, delta : float
        What this run asks for.
    mu_spent, mu_limit, mu : float
        What all runs have spent, what they may, and what this run will spend.
    """

    path: Path
    budget: float | None
    epsilon: float
    delta: float
    mu_spent: float
    mu_limit: float
    mu: float

    @classmethod
    def of(cls, path: Path, budget: float | None, plan: Any) -> Spending:
        """Look at a ledger, or at the budget for a new one."""
        if path.exists():
            ledger = LedgerFile(path)
            if budget is not None and (budget, plan.delta) != (ledger.epsilon, ledger.delta):
                raise click.UsageError(
                    f"--budget is that of a new --ledger. {path} is there already, and allows ε = {ledger.epsilon:g} "
                    f"at δ = {ledger.delta:g}. Got ε = {budget:g} at δ = {plan.delta:g}. Leave --budget out."
                )
            spent, limit = ledger.mu, ledger.mu_limit
        else:
            if budget is None:
                raise click.UsageError(
                    f"--ledger {path} is new and needs --budget E, the ε that all runs on these data may spend "
                    "together."
                )
            spent, limit = 0.0, gdp_mu(budget, plan.delta)
        return cls(path, budget, plan.epsilon, plan.delta, spent, limit, plan.mu)

    @property
    def mu_after(self) -> float:
        """What all runs will have spent after this one: budgets add up as squares of μ."""
        return math.hypot(self.mu_spent, self.mu)

    @property
    def in_words(self) -> str:
        """What the ledger holds, and what it will hold after this run."""
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
                f"{self.epsilon:g}. Nothing was spent. Lower --epsilon."
            )

    def opened(self) -> LedgerFile:
        """Return the ledger that the run charges; a new one is made now."""
        if self.budget is None or self.path.exists():
            return LedgerFile(self.path)
        return LedgerFile.create(self.path, epsilon=self.budget, delta=self.delta)
