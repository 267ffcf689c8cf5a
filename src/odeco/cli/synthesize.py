"""``odeco synthesize``: a private synthetic table of a private one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from odeco.cli import options as _options
from odeco.cli.flow import limited, stages
from odeco.cli.inputs import read_private_table
from odeco.cli.options import Command, OutputFile, Section, option
from odeco.cli.output import Output, deliver, print_json, print_text
from odeco.cli.privacy import Request, agree_to_spend, spent_sentence
from odeco.cli.tables import plain_csv_text, write_text
from odeco.io.schema import Schema, as_schema, to_document
from odeco.io.tables import check_names
from odeco.models.synthetic.plan import plan_synthesis
from odeco.models.synthetic.result import SyntheticData
from odeco.models.synthetic.synthesize import synthesize as synthesize_table
from odeco.privacy.holders.protocol import RELATIONS

SECTIONS = (
    Section(
        "Data",
        (
            option(
                "--schema",
                type=_options.LOCAL_FILE,
                required=True,
                metavar="FILE",
                help="The columns and what each may hold, as JSON; public.",
            ),
            option(
                "--header/--no-header",
                default=None,
                help="Required: whether the first line holds names.",
            ),
            option(
                "--rows",
                "n_rows",
                type=_options.COUNT,
                metavar="N",
                help="Number of synthetic rows; by default that of FILE.",
            ),
        ),
    ),
    Section(
        "Privacy",
        (
            option(
                "--epsilon", type=float, required=True, metavar="E", help="The ε of the guarantee."
            ),
            option(
                "--delta",
                type=float,
                required=True,
                metavar="D",
                help="Its δ, far below 1 / number of rows.",
            ),
            option(
                "--neighbours",
                "neighbour_relation",
                type=click.Choice(tuple(RELATIONS)),
                default="replace",
                help="Hide that a row is replaced by any other, or that it is blanked.",
            ),
            *_options.SPENDING,
        ),
    ),
    Section(
        "Output",
        (
            option(
                "--out",
                type=OutputFile(suffixes=(".csv",)),
                required=True,
                metavar="FILE",
                help="Write the synthetic table to this .csv file.",
            ),
            option(
                "--model",
                type=OutputFile(suffixes=(".npz",)),
                metavar="FILE",
                help="Write what further rows can be drawn from, as .npz without pickle.",
            ),
            _options.JSON,
        ),
    ),
    _options.general(_options.SEED, _options.THREADS),
)


def run(file: Path, **given: Any) -> None:
    """Read the table, agree on the budget, learn, and deliver synthetic rows."""
    schema = as_schema(given["schema"])
    how = {name: given[name] for name in ("epsilon", "delta", "neighbour_relation")}
    with stages() as (show, _):
        show("reading")
        table = _read(file, schema, given["header"])
    plan = plan_synthesis(to_document(schema), n_rows=len(next(iter(table.values()))), **how)
    if not given["as_json"]:
        print_text(f"{plan}\n")
    request = replace(
        Request.of(plan, f"{plan.n_records:,} rows"), neighbours=given["neighbour_relation"]
    )
    budget = {name: given[name] for name in ("ledger", "budget", "data", "yes")}
    ledger = agree_to_spend(request, (file,), **budget)
    with limited(given["threads"]), stages() as (show, _):
        show("learning")
        made = synthesize_table(
            table,
            schema=to_document(schema),
            n_rows=given["n_rows"],
            ledger=ledger,
            rng=given["seed"],
            **how,
        )

    def print_result() -> None:
        if given["as_json"]:
            print_json(_document(made))
        else:
            print_text(made.summary())

    deliver(
        print_result,
        Output(given["out"], lambda path: write_text(path, _csv_of(made))),
        Output(given["model"], made.save),
        save=("synthetic.npz", made.save),
        spent=spent_sentence(given["epsilon"], given["ledger"]),
    )


def _read(file: Path, schema: Schema, header: bool | None) -> dict[str, Any]:
    """Return the columns of a private table that the schema names; no error quotes a cell."""
    table = read_private_table(file, header)
    documents = to_document(schema).values()
    values = [str(each) for own in documents if isinstance(own, list) for each in own]
    check_names(table.columns, file.name, values)
    return {name: table.column(name) for name in schema}


def _csv_of(made: SyntheticData) -> str:
    """Return the synthetic table as CSV, in which a missing cell is empty."""
    columns = [column.tolist() for column in made.table.values()]
    rows = ([_as_cell(cell) for cell in row] for row in zip(*columns, strict=True))
    return plain_csv_text(made.schema, rows)


def _as_cell(cell: Any) -> str:
    if cell is None or cell != cell:  # NaN
        return ""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell)


def _document(made: SyntheticData) -> dict[str, Any]:
    """Return what was learnt for programs."""
    return {
        "kind": "synthetic data",
        "verdict": made.verdict,
        "columns": list(made.schema),
        "n_rows": made.n_rows,
        "n_records": made.n_records,
        "n_clear": made.n_clear,
        "errors": made.errors,
        "privacy": made.privacy,
    }


synthesize = Command(
    "synthesize",
    run,
    SECTIONS,
    text="Make a synthetic table that has nearly the two-way tables of the private one in FILE "
    "(.csv, .tsv), and does not reveal any single row of it. A plan is printed first, from public "
    "numbers; on a terminal, you are asked before anything is spent.\n\nThe schema has, for each "
    'column, a list of categories, ["no", "yes", null], where null says that cells may be missing; '
    'or for numbers {"low": 0, "high": 100, "bins": 10, "whole": true, "missing": true}. Anything '
    "else in FILE counts as missing. Columns that are not in it are left out.",
    examples=(
        "synthesize people.csv --header --schema schema.json --epsilon 1 --delta 1e-6 --out "
        "synthetic.csv",
    ),
)
