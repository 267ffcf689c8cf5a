"""``odeco apply``: what a saved model says of new records, as a table with one line per record."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import click
import numpy as np

from odeco._util.files import read_contents
from odeco._util.types import FloatArray
from odeco.cli import options as _options
from odeco.cli.flow import limited, stages, with_standard_input
from odeco.cli.inputs import INPUTS, Data, Given
from odeco.cli.models import RegisteredModel, model_of_kind
from odeco.cli.options import Command, OutputFile, Section, check_usage, option
from odeco.cli.output import Output, as_texts, deliver, labels_csv, print_json, read_row_ids
from odeco.cli.tables import GROUPS, csv_text, write_text

SECTIONS = (
    Section(
        "Data",
        (
            _options.TEXT_COLUMN,
            option("--symbol", metavar="COLUMN", help="For states: the column that holds symbols."),
            option(
                "--sequence",
                metavar="COLUMN",
                help="For states: the column that names the sequence of each row.",
            ),
            option(
                "--time", metavar="COLUMN", help="For states: the column of times to sort rows by."
            ),
            _options.ID,
        ),
    ),
    Section(
        "Output",
        (
            option(
                "--out",
                type=OutputFile(suffixes=(".csv",)),
                metavar="FILE",
                help="Write a .csv file instead of CSV on stdout.",
            ),
            _options.APPEND,
            option(
                "--by",
                metavar="COLUMN",
                help="For topics: their shares in groups of documents, with errors.",
            ),
            _options.JSON,
        ),
    ),
    _options.general(_options.THREADS),
)


def run(model: Path, files: tuple[Path, ...], **given: Any) -> None:
    """Apply a model to new records, and deliver the table."""
    with_ids = given["id_column"] is not None or given["append"]
    check_usage(
        {
            "--id and --append are for a table. Leave them out, or write CSV.": with_ids
            and given["as_json"],
            "--by writes a table of groups, not of records. Leave out --id and --append.": given[
                "by"
            ]
            and with_ids,
        }
    )
    kind = read_contents(model).kind
    registered = model_of_kind(kind)
    if registered is None:
        raise ValueError(
            f"{model} must hold a model that odeco learn has saved. It holds: {kind}. Pass its "
            "--out."
        )
    if registered.command not in ("topics", "communities") and len(files) > 1:
        raise click.UsageError(
            f"A {registered.command} model is applied to one FILE. Got {len(files)}."
        )
    learnt = registered.load_estimator().load(model)
    copied = files if registered.data != "documents" else ()
    with (
        limited(given["threads"]),
        stages() as (show, _),
        warnings.catch_warnings(),
        with_standard_input(copied) as copies,
    ):
        files = copies or files
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        show("reading")
        data = _read(registered, learnt, files, given, show)
        how: dict[str, Any] = {"n_rows": data.n_rows, "what": registered.component}
        ids = read_row_ids(files, given["id_column"], append=given["append"], **how)
        groups = read_row_ids(files, given["by"], append=False, option="--by", **how)
        show(f"finding {registered.components}")
        if groups is not None:
            table, document = _shares_in_groups(learnt, data, [label for (label,) in groups.rows])
        else:
            table, document = _labels(registered, learnt, data, ids)

    def print_table() -> None:
        if given["as_json"]:
            print_json(document)
        elif given["out"] is None:
            click.echo(table, nl=False)

    def write_table(path: Path) -> None:
        write_text(path, table)

    deliver(
        print_table,
        Output(given["out"], write_table),
        save=(f"{registered.components}.csv", write_table),
    )


def _read(
    registered: RegisteredModel, model: Any, files: tuple[Path, ...], given: Given, show: Any
) -> Data:
    """Return new records for a model."""
    if registered.data == "documents":
        from odeco.cli.documents import read_again  # scikit-learn may be missing

        if not hasattr(model, "words_"):
            raise ValueError(
                "A model must know its words to count those of new documents. It does not. Learn "
                "it again."
            )
        corpus = read_again(files, given["column"], model, show)
        counts = corpus.counted.counts
        return Data(counts, counts.shape[0], rows=corpus.names or None)
    again = INPUTS[registered.data].again
    if again is None:
        raise click.UsageError(
            "The communities of a graph are those of its own nodes. Learn a model of the new graph."
        )
    return again(files[0], given | {"columns": None, "drop": None}, model)


def _labels(
    registered: RegisteredModel, model: Any, data: Data, ids: Any
) -> tuple[str, dict[str, Any]]:
    """Return the components of each record as CSV, and as a document."""
    values: FloatArray = getattr(model, registered.labels)(data.X, **data.predict)
    leading = None
    if registered.shares and hasattr(model, "predict"):
        leading = data.restore(np.asarray(model.predict(data.X, **data.predict)))
    values = data.restore(values)
    how: dict[str, Any] = {"shares": registered.shares, "leading": leading, "rows": data.rows}
    table = labels_csv(values, registered.component, ids=ids, **how)
    return table, {
        "kind": registered.components,
        "rows": data.rows,
        "values": values,
        "largest": leading,
    }


def _shares_in_groups(model: Any, data: Data, groups: list[str]) -> tuple[str, dict[str, Any]]:
    """Return the shares of topics in groups of documents: one line per group, errors after
    shares.
    """
    if not hasattr(model, "topics_over"):
        raise click.UsageError("--by is for topics. Leave it out.")
    found = model.topics_over(data.X, groups)
    topics = [f"topic {number}" for number in range(found.shares.shape[1])]
    heading = [*GROUPS[:2], *topics, *(f"error of {name}" for name in topics)]
    numbers = as_texts(np.hstack([found.shares, found.errors]))
    lines = [
        [group, n, *cells]
        for group, n, cells in zip(found.groups, found.n_documents.tolist(), numbers, strict=True)
    ]
    return csv_text(heading, lines), {"kind": "topics by group", **vars(found)}


apply = Command(
    "apply",
    run,
    SECTIONS,
    arguments=(
        click.Argument(["model"], type=_options.LOCAL_FILE),
        click.Argument(["files"], type=_options.FILE, nargs=-1, required=True, metavar="FILE..."),
    ),
    text="Compute what MODEL, which odeco learn has saved, says of each record of FILEs: the "
    "largest component, and "
    "the share or probability of each.\n\nFILEs are read as for learning: columns are found "
    "by their names, and text "
    "is split into words as it was. Words that a model of topics does not know are ignored; "
    "a document without a known "
    "word gets the mean of all documents. With --by, each line is a group of documents, "
    "which count as often as they "
    "have known words.",
    examples=(
        "apply model.npz new.csv --id customer --out clusters.csv",
        "apply model.npz new.csv --column text --by year",
        "apply model.npz new.txt",
    ),
)
