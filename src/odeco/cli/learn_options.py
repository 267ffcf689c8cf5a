"""What the sub-commands of ``odeco learn`` are told alike: how many, what comes out, what may be spent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from odeco.cli import options as _options
from odeco.cli.output import console
from odeco.cli.spending import Request, agree_to_spend

Function = TypeVar("Function", bound=Callable[..., Any])


def number(what: str) -> Callable[[Function], Function]:
    """Add the option for the number of components."""
    return click.option(
        "-k",
        "--n-components",
        default="auto",
        show_default=True,
        metavar="K",
        callback=_options.number_or_auto,
        help=f"How many {what}; 'auto' lets the rows decide.",
    )


def outputs(function: Function) -> Function:
    """Add the options about what comes out of a model."""
    labels = click.option(
        "--labels",
        "labels_path",
        type=_options.OUTPUT,
        metavar="FILE",
        help="Write there, as .csv, what each row belongs to.",
    )
    for option in (_options.threads, _options.report, labels, _options.out, _options.json_output, _options.seed):
        function = option(function)
    return function


def check_private(n_components: Any, labels_path: Path | None) -> None:
    """Refuse what a private model cannot do."""
    if labels_path is not None:
        raise click.UsageError("--labels would tell where each private row belongs. Leave it out.")
    if n_components == "auto":
        raise click.UsageError("A private model needs a number: choosing one would look at the rows. Pass -k.")


def spend(plan: Any, units: str, *, as_json: bool, **budget: Any) -> str | None:
    """Show the plan, ask, and return the ledger."""
    if not as_json:
        console().print(f"{plan}\n", markup=False, soft_wrap=True)
    ledger = agree_to_spend(Request.of(plan, units), **budget)
    return None if ledger is None else str(ledger.path)
