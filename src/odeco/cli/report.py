"""``odeco report``: the HTML page of a saved result or model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from odeco._util.files import read_contents
from odeco.cli import options as _options
from odeco.cli.inputs import load_names
from odeco.cli.models import MODELS
from odeco.cli.output import Output, deliver
from odeco.decompose.files import load_result
from odeco.decompose.result import AsymmetricDecomposition


@click.command("report")
@click.argument("file", type=_options.FILE)
@click.option(
    "--out", type=_options.OUTPUT, default="odeco-report.html", show_default=True, help="Where to write the page."
)
@click.option("--title", help="Title of the page; by default it names the file.")
@_options.names
@click.option(
    "--documents",
    type=_options.FILE,
    metavar="FILE",
    help="For topics: documents to show with them, and to measure coherence with.",
)
@click.option("--column", metavar="NAME", help="The column of --documents that holds the text.")
def command(
    file: Path, out: Path, title: str | None, names: Path | None, documents: Path | None, column: str | None
) -> None:
    r"""Write a self-contained HTML page of the result, the topics or the model in FILE, which --out has written.

    The page of topics shows typical documents if --documents are given; that of private topics never does.

    \b
    Examples:
      odeco report result.npz --out page.html --names words.txt
      odeco report model.npz --out page.html --documents reviews.csv --column text
    """
    contents = read_contents(file)
    write: Callable[[Path], object]
    if contents.kind == "topic model":
        if names is not None:
            raise click.UsageError("A model of topics knows its words. Leave out --names.")
        from odeco.cli.topics_output import page_writer  # scikit-learn and numba may be missing

        write = page_writer(file, title=title, documents=documents, column=column)
    elif documents is not None or column is not None:
        raise click.UsageError(f"--documents and --column are for topics. {file} holds something else. Leave them out.")
    elif contents.kind in (kinds := {model.kind: model for model in MODELS}):
        from odeco.models.engine.page import write_model_report  # scikit-learn and Matplotlib may be missing

        loaded = kinds[contents.kind].load_estimator().load(file)
        write = partial(write_model_report, loaded, title=title or f"Model in {file.name}")
    else:
        from odeco.decompose.page import write_report  # Matplotlib may be missing

        result, header = load_result(file), contents.header
        if names is not None and isinstance(result, AsymmetricDecomposition):
            raise click.UsageError(
                "--names is for the one axis of a symmetric tensor. FILE holds terms of an asymmetric one."
            )
        write = partial(
            write_report,
            result,
            title=title or f"Result in {file.name}",
            names=None if names is None else load_names(names, result.vectors.shape[0]),  # type: ignore[union-attr]
            command=header.get("command"),
            versions=header.get("written_by"),
        )
    deliver(lambda: None, Output(out, write))
