"""``odeco report``: the HTML page of a result or a model that was saved."""

from __future__ import annotations

from pathlib import Path

import click

from odeco._util.files import read_contents
from odeco.cli import options as _options
from odeco.cli.inputs import load_names
from odeco.cli.output import note
from odeco.decompose.files import load_result
from odeco.decompose.result import AsymmetricDecomposition

#: The names of the classes in `odeco.models` that wrote files of these kinds.
MODELS = {
    "mixture": "TensorMixture",
    "hidden Markov model": "TensorHMM",
    "sources model": "TensorICA",
    "latent classes": "LatentClasses",
    "communities model": "Communities",
}


@click.command("report")
@click.argument("file", type=_options.FILE)
@click.option(
    "--out", type=_options.OUTPUT, default="odeco-report.html", show_default=True, help="Where to write the page."
)
@click.option("--title", help="Its title; by default it names the file.")
@_options.names
@click.option(
    "--documents", type=_options.FILE, metavar="FILE", help="For topics: texts to show with them, and to measure by."
)
@click.option("--column", metavar="NAME", help="The column of --documents that holds the text.")
def command(
    file: Path, out: Path, title: str | None, names: Path | None, documents: Path | None, column: str | None
) -> None:
    r"""Make a self-contained HTML page of the result, the topics or the model in FILE, as --out wrote it.

    The page of topics shows which documents they are in if these are given; that of private topics never does.

    \b
    Examples:
      odeco report result.npz --out page.html --names words.txt
      odeco report model.npz --out page.html --documents reviews.csv --column text
    """
    from odeco.decompose.page import write_report  # matplotlib may be missing

    contents = read_contents(file)
    if contents.kind == "topic model":
        if names is not None:
            raise click.UsageError("A model of topics knows its words. Leave out --names.")
        from odeco.cli.topics_output import write_page_of_model  # scikit-learn and numba may be missing

        write_page_of_model(file, out, title=title, documents=documents, column=column)
        note(f"wrote {out}")
        return
    if contents.kind in MODELS:
        _write_model(file, contents.kind, out, title)
        return
    if documents is not None or column is not None:
        raise click.UsageError(f"--documents and --column are for topics. {file} holds something else. Leave them out.")
    result, header = load_result(file), contents.header
    labels = None if isinstance(result, AsymmetricDecomposition) else load_names(names, result.vectors.shape[0])
    if names is not None and isinstance(result, AsymmetricDecomposition):
        raise click.UsageError(
            "--names is for the one axis of a symmetric tensor. FILE holds terms of an asymmetric one."
        )
    write_report(
        result,
        out,
        title=title or f"Result in {file.name}",
        names=labels,
        command=header.get("command"),
        versions=header.get("written_by"),
    )
    note(f"wrote {out}")


def _write_model(file: Path, kind: str, out: Path, title: str | None) -> None:
    """Write the page of a model that ``odeco learn`` or Python saved; it shows no row."""
    from odeco import models  # scikit-learn may be missing
    from odeco.models.engine.page import write_model_report

    write_model_report(getattr(models, MODELS[kind]).load(file), out, title=title or f"Model in {file.name}")
    note(f"wrote {out}")
