"""``odeco report``: the HTML page of a result that was saved."""

from __future__ import annotations

from pathlib import Path

import click

from odeco import load_result
from odeco._files import read_contents
from odeco.cli import _options
from odeco.cli._inputs import load_names
from odeco.cli._output import note
from odeco.result import AsymmetricDecomposition


@click.command("report")
@click.argument("file", type=_options.FILE)
@click.option(
    "--out", type=_options.OUTPUT, default="odeco-report.html", show_default=True, help="Where to write the page."
)
@click.option("--title", help="Its title; by default it names the file.")
@_options.names
def command(file: Path, out: Path, title: str | None, names: Path | None) -> None:
    r"""Make a self-contained HTML page of the result in FILE, as --out of another command wrote it.

    \b
    Example:
      odeco report result.npz --out page.html --names words.txt
    """
    from odeco.report import write_report  # matplotlib may be missing

    result, header = load_result(file), read_contents(file).header
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
