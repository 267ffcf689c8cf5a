"""The page of topics that were saved, with documents if there are any to show."""

from __future__ import annotations

from pathlib import Path

import click

from odeco.cli._faults import command_line
from odeco.cli._topics_input import read_for_model
from odeco.cli._topics_output import examples_of
from odeco.models import TensorLDA, summarise_topics
from odeco.report import write_topics_report


def write_page_of_model(
    file: Path, out: Path, *, title: str | None, documents: Path | None, column: str | None
) -> None:
    """Write the page of the model in a file; `documents` are texts, or counts of the words of the model."""
    model = TensorLDA.load(file)
    if documents is not None and hasattr(model, "privacy_"):
        raise click.UsageError("The page of private topics shows no document. Leave out --documents.")
    counts, examples = None, None
    if documents is not None:
        corpus = read_for_model(
            model.words_, [documents], column=column, show=lambda *_: None, cut=model.cut_, keep_excerpts=True
        )
        counts = corpus.counted.counts
        examples = examples_of(model, corpus, counts)
    write_topics_report(
        summarise_topics(model, None, counts),
        out,
        title=title or f"Topics in {file.name}",
        examples=examples,
        command=command_line(),
    )
