"""``odeco private``: a plan from public numbers, then a decomposition under differential privacy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

import odeco
from odeco.cli import options as _options
from odeco.cli.options import load_groups, load_names, load_tensor
from odeco.cli.output import console, deliver_result, emit_json, note, print_result, result_document
from odeco.cli.spending import Request, Spending, agree_to_spend, budget_options, check_budget, spent_sentence
from odeco.privacy.holders.protocol import UNITS
from odeco.privacy.sources import open_private
from odeco.private.mechanisms import MECHANISMS
from odeco.private.planner import AUTO, default_neighbours


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
    "--norm-bound", type=float, metavar="B", help="Largest norm of a row, chosen without looking at the data."
)
@click.option(
    "--groups", type=_options.FILE, metavar="FILE", help="For --unit user: the user of each row, one label per line."
)
@click.option(
    "--mechanism",
    type=click.Choice([AUTO, *MECHANISMS]),
    default=AUTO,
    show_default=True,
    help=" ".join(
        ["The mechanism; auto takes the one that the plan predicts to be best."]
        + [f"{each.name}: {each.summary}" for each in MECHANISMS.values()]
    ),
)
@click.option(
    "--calibration",
    type=click.Choice(["exact", "paper"]),
    default="exact",
    show_default=True,
    help="How --mechanism wang2016 scales its noise.",
)
@click.option(
    "--neighbour-relation", metavar="NAME", help="distinct or literal (entries); replace or add_remove (rows)."
)
@click.option("--entry-change", type=float, help="For a tensor: largest change of one entry; 1 by default.")
@click.option("--entry-limit", type=float, help="For a tensor: larger entries are cut off at this value.")
@_options.n_restarts
@_options.n_iterations
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
@_options.seed
@_options.outputs
def private(
    files: tuple[Path, ...],
    dry_run: bool,
    dimension: int | None,
    n_units: int | None,
    key: str | None,
    header: bool | None,
    first_index: int | None,
    groups: Path | None,
    ledger: Path | None,
    budget: float | None,
    yes: bool,
    names: Path | None,
    as_json: bool,
    out: Path | None,
    report: Path | None,
    top: int,
    threads: int | None,
    **settings: Any,
) -> None:
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
      odeco private tensor.npy -k 3 --epsilon 1 --delta 1e-6 --unit entry
    """
    _check_usage(
        files,
        dry_run=dry_run,
        dimension=dimension,
        n_units=n_units,
        key=key,
        header=header,
        first_index=first_index,
        groups=groups,
        ledger=ledger,
        budget=budget,
        **settings,
    )
    labels = load_groups(groups)
    with _options.limited(threads):
        data: Any = None
        columns, order = None, settings["order"]
        if files and settings["unit"] == "entry":
            data = load_tensor(files[0], key)
            dimension, order = data.shape[-1] if data.shape else 0, max(data.ndim, 3)
        elif files:
            data = open_private(files, n_features=dimension, header=header, first_index=first_index)
            dimension, columns = data.n_features, data.columns
            n_units = data.n_rows if settings["unit"] == "record" else len(set(labels.tolist())) if groups else None
        plan = _plan(dimension, n_units, **{**settings, "order": order})
        mechanism = settings["mechanism"]
        taken = mechanism if mechanism in {each.mechanism for each in plan.mechanisms} else plan.best
        if not as_json:
            console().print(plan.in_words(taken), markup=False, soft_wrap=True)
        if settings["unit"] == "entry":
            units = f"a tensor of {' x '.join([f'{dimension:,}'] * (order or 3))} entries"
        else:
            units = f"{n_units:,} {settings['unit']}s"
        request = Request.of(plan, units)
        if dry_run:
            if ledger is not None:
                note(Spending.of(ledger, budget, request).summary)
            if as_json:
                emit_json({"plan": json.loads(plan.to_json())})
            return
        coordinates = load_names(names, int(dimension or 0), columns)
        settings["ledger"] = agree_to_spend(request, ledger=ledger, budget=budget, yes=yes)
        rng = settings.pop("seed")
        result = odeco.decompose_privately(data, settings.pop("n_components"), groups=labels, rng=rng, **settings)
        result = result.with_names(coordinates)

    def show() -> None:
        if as_json:
            emit_json({"plan": json.loads(plan.to_json()), "result": result_document(result)})
        else:
            click.echo()
            print_result(result, top)

    deliver_result(
        result,
        out=out,
        report=report,
        title=f"Private components of {files[0].name}",
        show=show,
        spent=spent_sentence(plan.epsilon, ledger),
    )


def _check_usage(
    files: tuple[Path, ...],
    *,
    dry_run: bool,
    dimension: int | None,
    n_units: int | None,
    key: str | None,
    header: bool | None,
    first_index: int | None,
    unit: str,
    **more: Any,
) -> None:
    if files and n_units is not None:
        raise click.UsageError("--n-units is read off FILE. Leave it out.")
    if files and unit == "entry" and dimension is not None:
        raise click.UsageError("--dimension is read off FILE. Leave it out.")
    if (not files or unit == "entry") and (header is not None or first_index is not None):
        raise click.UsageError("--header, --no-header and --first-index go with rows in a FILE. Leave them out.")
    if not files and not dry_run:
        raise click.UsageError("FILE is missing. Pass one, or --dry-run for the plan alone.")
    if not files and dimension is None:
        raise click.UsageError("--dry-run without a FILE needs --dimension D.")
    if not files and unit != "entry" and n_units is None:
        raise click.UsageError(f"--dry-run without a FILE needs --n-units N, the number of {unit}s.")
    _check_stated(files, dimension=dimension, header=header, first_index=first_index)
    _check_pairs(files, unit=unit, **more)
    if unit == "entry" and len(files) > 1:
        raise click.UsageError("--unit entry takes one FILE, a tensor.")
    if unit != "entry" and key is not None:
        raise click.UsageError(f"--key names the array of a tensor, and --unit {unit} takes rows. Leave it out.")


def _check_pairs(
    files: tuple[Path, ...],
    *,
    unit: str,
    groups: Path | None,
    norm_bound: float | None,
    ledger: Path | None,
    budget: float | None,
    **_: Any,
) -> None:
    """Raise if one of two options that go together is missing."""
    if unit == "user" and files and groups is None:
        raise click.UsageError("--unit user needs --groups FILE with the user of each row, one label per line.")
    if unit != "user" and groups is not None:
        raise click.UsageError(f"--groups goes with --unit user. Got --unit {unit}. Leave --groups out.")
    if unit != "entry" and norm_bound is None:
        raise click.UsageError(f"--unit {unit} needs --norm-bound B, the largest norm of a row, known without the data")
    check_budget(ledger, budget)


def _check_stated(
    files: tuple[Path, ...], *, dimension: int | None, header: bool | None, first_index: int | None
) -> None:
    """Raise if an option is missing that no header of a file replaces."""
    svmlight = [file.name for file in files if file.suffix.lower() in (".svm", ".svmlight", ".libsvm")]
    tables = [file.name for file in files if file.suffix.lower() in (".csv", ".tsv")]
    why = "a private run does not read it off the records"
    if svmlight and first_index is None:
        raise click.UsageError(f"{svmlight[0]} needs --first-index 0 or 1: {why}.")
    if tables and header is None:
        raise click.UsageError(f"{tables[0]} needs --header or --no-header: {why}.")
    if dimension is None and (svmlight or (tables and not header)):
        raise click.UsageError(f"{(svmlight or tables)[0]} needs --dimension D: {why}.")


def _plan(dimension: int | None, n_units: int | None, **settings: Any) -> Any:
    planned = (
        "n_components",
        "epsilon",
        "delta",
        "unit",
        "norm_bound",
        "n_restarts",
        "n_iterations",
        "order",
        "nonnegative",
    )
    relation = settings["neighbour_relation"]
    if relation is None:
        relation = default_neighbours(settings["unit"], settings["mechanism"])  # as the run will take it
    return odeco.plan_privacy(
        dimension=dimension,  # type: ignore[arg-type]  # checked there
        n_units=n_units,
        neighbour_relation=relation,
        entry_change=settings["entry_change"],
        **{name: settings[name] for name in planned},
    )
