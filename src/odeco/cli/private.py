"""``odeco private``, and the privacy budget of all commands: options, the question before it is spent, the ledger."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

import odeco
from odeco._util.arguments import float_or_auto
from odeco.cli import options as _options
from odeco.cli.options import load_groups, load_names, load_tensor
from odeco.cli.output import Outputs, console, deliver_result, emit_json, note, print_result, result_document
from odeco.io.coerce import SVMLIGHT
from odeco.io.tables import kind_of
from odeco.privacy.calibration import epsilon_of, gdp_mu
from odeco.privacy.holders.norms import AUTO
from odeco.privacy.holders.protocol import UNITS
from odeco.privacy.ledger_file import LedgerFile
from odeco.privacy.sources import open_private
from odeco.private.mechanisms import MECHANISMS
from odeco.private.recipe import default_neighbours


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
            help="Adds up the budgets of all private runs on these data.",
        ),
        click.option("--budget", type=float, metavar="E", help="For a new --ledger: the ε of all runs together."),
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


@click.command("private")
@click.argument("files", type=_options.FILE, nargs=-1, metavar="[FILE...]")
@_options.n_components
@budget_options("records", required=True)
@click.option(
    "--unit",
    type=click.Choice(UNITS),
    required=True,
    help="Protect one entry of a tensor, one row, or all rows of one user.",
)
@click.option(
    "--norm-bound", type=float_or_auto, metavar="B", help="Largest norm of a row; 'auto' chooses it under privacy."
)
@_options.groups("row")
@click.option(
    "--mechanism",
    type=click.Choice([AUTO, *MECHANISMS]),
    default=AUTO,
    help=" ".join(
        ["The mechanism; auto takes the one that the plan predicts to be best."]
        + [f"{each.name}: {each.summary}" for each in MECHANISMS.values()]
    ),
)
@click.option(
    "--calibration", type=click.Choice(["exact", "paper"]), default="exact", help="The noise of --mechanism wang2016."
)
@_options.neighbour_relation
@click.option("--entry-change", type=float, help="For a tensor: largest change of one entry; 1 by default.")
@click.option("--entry-limit", type=float, help="For a tensor: larger entries are cut off at this value.")
@_options.power_method
@click.option("--order", type=int, help="Order of the moment of rows; 3 by default. A tensor has its own.")
@click.option(
    "--nonnegative", is_flag=True, default=None, help="Set negative numbers of rows to 0, so that less noise is needed."
)
@click.option("--header/--no-header", default=None, help="Required for CSV: whether the first line holds names.")
@click.option("--first-index", type=click.IntRange(0, 1), help="Required for svmlight: the index of the first column.")
@click.option("--key", metavar="NAME", help="For a tensor: which array of a .npz archive.")
@click.option("--dry-run", is_flag=True, help="Print the plan and stop. Needs no FILE, but then --dimension.")
@click.option(
    "--dimension", type=int, metavar="D", help="Number of columns, if there is no FILE that states it in its header."
)
@click.option("--n-units", type=int, metavar="N", help="Number of records or users, for --dry-run without a FILE.")
@_options.scheduler
@_options.seed
@_options.outputs
def private(files: tuple[Path, ...], outputs: Outputs, **given: Any) -> None:
    r"""Decompose a tensor, or the moment of rows, under (ε, δ)-differential privacy.

    The plan comes first: which components will be found, at which price, and what more budget would buy. It needs
    public numbers only. On a terminal, the run then asks before it spends. The noise comes from the operating system;
    --seed draws the starts, never the noise. The budgets of all runs on the same data add up: --ledger keeps them in a
    file, and refuses a run that would exceed its --budget.

    Rows are read from their files for every release, and never held in memory as a whole. Records are used only through
    noise: what a file does not state in its header must be given, and an invalid record counts as blank.

    \b
    Examples:
      odeco private --dry-run -k 5 --epsilon 1 --delta 1e-6 --unit record --norm-bound 1 --dimension 100 --n-units 10000
      odeco private rows.npy -k 5 --epsilon 1 --delta 1e-6 --unit record --norm-bound 1 --out result.npz
      odeco private rows.csv -k 5 --epsilon 1 --delta 1e-6 --unit record --norm-bound 1 --header
      odeco private rows.npy -k 5 --epsilon 1 --delta 1e-6 --unit record --norm-bound 1 --ledger data.ledger --budget 3
      odeco private '/shared/*.npy' -k 5 --epsilon 1 --delta 1e-6 --unit record --norm-bound 1 --scheduler tcp://host:8786
      odeco private tensor.npy -k 3 --epsilon 1 --delta 1e-6 --unit entry
    """
    _check_usage(files, given)
    ledger, dimension, n_units = given["ledger"], given["dimension"], given["n_units"]
    labels, unit, order = load_groups(given["groups"]), given["unit"], given["order"]
    with _options.limited(outputs.threads), _options.connected(given["scheduler"]) as client:
        data: Any = None
        columns = None
        if files and unit == "entry":
            data = load_tensor(files[0], given["key"])
            dimension, order = data.shape[-1] if data.shape else 0, max(data.ndim, 3)
        elif files:
            data = open_private(files, n_features=dimension, header=given["header"], first_index=given["first_index"])
            dimension, columns = data.n_features, data.columns
            n_units = data.n_rows if unit == "record" else len(set(labels.tolist())) if labels is not None else None
        plan = _plan(given, dimension=dimension, n_units=n_units, order=order)
        planned = {each.mechanism for each in plan.mechanisms}
        taken = given["mechanism"] if given["mechanism"] in planned else plan.best
        if not outputs.as_json:
            console().print(plan.in_words(taken), markup=False, soft_wrap=True)
        shape = " x ".join([f"{dimension:,}"] * (order or 3))
        units = f"a tensor of {shape} entries" if unit == "entry" else f"{n_units:,} {unit}s"
        request = Request.of(plan, units)
        if given["dry_run"]:
            if ledger is not None:
                note(Spending.of(ledger, given["budget"], request).summary)
            if outputs.as_json:
                emit_json({"plan": json.loads(plan.to_json())})
            return
        coordinates = load_names(outputs.names, int(dimension or 0), columns)
        account = agree_to_spend(request, ledger=ledger, budget=given["budget"], yes=given["yes"])
        settings = {name: given[name] for name in _SETTINGS}
        where = {"rng": given["seed"], "ledger": account, "client": client}
        result = odeco.decompose_privately(data, groups=labels, **where, **settings)
        result = result.with_names(coordinates)

    def show() -> None:
        if outputs.as_json:
            emit_json({"plan": json.loads(plan.to_json()), "result": result_document(result)})
        else:
            click.echo()
            print_result(result, outputs.top)

    title, spent = f"Private components of {files[0].name}", spent_sentence(plan.epsilon, ledger)
    deliver_result(result, outputs, title=title, show=show, spent=spent)


#: What a plan depends on, and what else a run gets.
_PLANNED = (
    *("n_components", "epsilon", "delta", "unit", "norm_bound", "entry_change"),
    *("n_restarts", "n_iterations", "nonnegative"),
)
_SETTINGS = (*_PLANNED, "order", "neighbour_relation", "mechanism", "calibration", "entry_limit")


def _plan(given: dict[str, Any], **known: Any) -> Any:
    """Return the plan, with the neighbour relation that the run will take."""
    relation = given["neighbour_relation"]
    if relation is None:
        relation = default_neighbours(given["unit"], given["mechanism"])
    return odeco.plan_privacy(neighbour_relation=relation, **known, **{name: given[name] for name in _PLANNED})


def _check_usage(files: tuple[Path, ...], given: dict[str, Any]) -> None:
    """Raise if options contradict each other, or if one is missing."""
    stated = {name for name, value in given.items() if value is not None}
    unit, rows, no_file = given["unit"], given["unit"] != "entry", not files
    svmlight = [file.name for file in files if file.suffix.lower() in SVMLIGHT]
    tables = [file.name for file in files if kind_of(file) in (".csv", ".tsv")]
    first, table = ((names or [""])[0] for names in (svmlight or tables, tables))
    about_rows = stated & {"header", "first_index"}
    needs_width = svmlight or (tables and not given["header"])
    why = "a private run does not read it off the records"
    _options.check_usage(
        {
            "--n-units is read off FILE. Leave it out.": files and "n_units" in stated,
            "--scheduler goes with rows in FILEs. Leave it out.": "scheduler" in stated
            and (no_file or not rows or given["dry_run"]),
            "--dimension is read off FILE. Leave it out.": files and not rows and "dimension" in stated,
            "--header, --no-header and --first-index go with rows in a FILE. Leave them out.": about_rows
            and not (files and rows),
            "FILE is missing. Pass one, or --dry-run for the plan alone.": no_file and not given["dry_run"],
            "--dry-run without a FILE needs --dimension D.": no_file and "dimension" not in stated,
            f"--dry-run without a FILE needs --n-units N, the number of {unit}s.": no_file
            and rows
            and "n_units" not in stated,
            f"{first} needs --first-index 0 or 1: {why}.": svmlight and "first_index" not in stated,
            f"{table} needs --header or --no-header: {why}.": tables and "header" not in stated,
            f"{first} needs --dimension D: {why}.": needs_width and "dimension" not in stated,
            "--unit user needs --groups FILE with the user of each row, one label per line.": files
            and unit == "user"
            and "groups" not in stated,
            f"--groups goes with --unit user. Got --unit {unit}. Leave --groups out.": unit != "user"
            and "groups" in stated,
            f"--unit {unit} needs --norm-bound B, the largest norm of a row, known without the data, or auto.": rows
            and "norm_bound" not in stated,
            "--unit entry takes one FILE, a tensor.": not rows and len(files) > 1,
            f"--key names the array of a tensor, and --unit {unit} takes rows. Leave it out.": rows and "key" in stated,
        }
    )
    check_budget(given["ledger"], given["budget"])
