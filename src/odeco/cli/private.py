"""``odeco private``: a plan from public numbers, then a decomposition under differential privacy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

import odeco
from odeco._util.arguments import float_or_auto
from odeco.cli import options as _options
from odeco.cli.options import load_groups, load_names, load_tensor
from odeco.cli.output import Outputs, console, deliver_result, emit_json, note, print_result, result_document
from odeco.cli.spending import Request, Spending, agree_to_spend, budget_options, check_budget, spent_sentence
from odeco.io.coerce import SVMLIGHT
from odeco.privacy.holders.norms import AUTO
from odeco.privacy.holders.protocol import UNITS
from odeco.privacy.sources import open_private
from odeco.private.mechanisms import MECHANISMS
from odeco.private.recipe import default_neighbours


@click.command("private")
@click.argument("files", type=_options.FILE, nargs=-1, metavar="[FILE...]")
@_options.n_components
@budget_options("records", required=True)
@click.option(
    "--unit",
    type=click.Choice(UNITS),
    required=True,
    help="Whom the guarantee protects: one entry of a tensor, one row, or all rows of one user.",
)
@click.option(
    "--norm-bound",
    type=float_or_auto,
    metavar="B",
    help="Largest norm of a row, chosen without looking at the data; 'auto' chooses it under privacy.",
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
    "--calibration",
    type=click.Choice(["exact", "paper"]),
    default="exact",
    help="How --mechanism wang2016 scales its noise.",
)
@_options.neighbour_relation
@click.option("--entry-change", type=float, help="For a tensor: largest change of one entry; 1 by default.")
@click.option("--entry-limit", type=float, help="For a tensor: larger entries are cut off at this value.")
@_options.power_method
@click.option("--order", type=int, help="Order of the moment of rows; 3 by default. A tensor has its own.")
@click.option(
    "--nonnegative",
    is_flag=True,
    default=None,
    help="For rows without negative numbers: negative ones are set to 0, and less noise is needed.",
)
@click.option("--header/--no-header", default=None, help="Required for CSV: whether the first line holds names.")
@click.option(
    "--first-index",
    type=click.IntRange(0, 1),
    help="Required for svmlight: whether the first column has the index 0 or 1.",
)
@click.option("--key", metavar="NAME", help="For a tensor: which array of a .npz archive.")
@click.option("--dry-run", is_flag=True, help="Print the plan and stop. Needs no FILE, but then --dimension.")
@click.option(
    "--dimension",
    type=int,
    metavar="D",
    help="Number of columns: for --dry-run without a FILE, for svmlight, and for CSV with --no-header.",
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
    tables = [file.name for file in files if file.suffix.lower() in (".csv", ".tsv")]
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
