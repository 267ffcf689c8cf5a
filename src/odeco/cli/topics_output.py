"""Output of ``odeco topics``: a table of topics, JSON, an HTML page, the proportions of new documents.

Topics are numbered from 0, as in Python.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table

from odeco._util.files import replacing, save_arrays
from odeco._util.types import FloatArray
from odeco.cli.faults import command_line
from odeco.cli.output import as_cell, console, csv_cell
from odeco.cli.topics_fit import Learnt
from odeco.cli.topics_input import Corpus, read_for_model
from odeco.decompose.files import versions
from odeco.display.tables import privacy_sentence
from odeco.models.lda.display import TopicSummary, representative_documents, summarise_topics
from odeco.models.lda.estimator import TensorLDA
from odeco.models.lda.page import write_topics_report
from odeco.models.lda.params import TopicDiagnostics

#: The page shows this many documents for each topic.
_SHOWN = 5


def print_topics(summary: TopicSummary, n_top: int, *, chosen: bool) -> None:
    """Print one line per topic, and below them what is known of all topics together."""
    screen = console()
    standing = "trust" if summary.npmi is None else "coherence"
    table = Table("#", "share", standing, box=None, pad_edge=False)
    for column in table.columns:
        column.justify = "right"
    table.add_column("words", overflow="fold")
    for topic, share in enumerate(summary.shares):
        words = ", ".join(f"{word} {weight:.3f}" for word, weight in summary.leading_words(topic, n_top))
        table.add_row(str(topic), f"{share:.1%}", _standing(summary, topic), as_cell(words))
    screen.print(table)
    for line in _facts(summary, chosen=chosen):
        screen.print(line, soft_wrap=True, markup=False)
    sys.stdout.flush()


def _standing(summary: TopicSummary, topic: int) -> str:
    """Return the coherence of a topic, or its trust if it is private."""
    if summary.npmi is not None:
        return f"{summary.npmi[topic]:.3f}"
    if summary.trust is None:
        return ""
    if not summary.trust.known:
        return "not known"
    return f"{summary.trust.similarity[topic]:.2f}{'' if summary.trust.clear[topic] else ' (noise)'}"


def _facts(summary: TopicSummary, *, chosen: bool) -> list[str]:
    """Return what is known of all topics together, one sentence each."""
    found, lines = summary.diagnostics, []
    if chosen:
        lines += _choice(found)
    if summary.perplexity is not None:
        held = summary.perplexity
        lines.append(
            f"perplexity of {held.n_documents:,} held-out documents: {held.topics:,.1f} "
            f"(word frequencies alone: {held.unigram:,.1f})"
        )
    if summary.trust is not None and not summary.trust.known:
        lines.append(f"{summary.trust.message} Unsure words are left out.")
    elif summary.trust is not None:
        lines.append(
            f"{found.n_clear} of {found.n_components} topics are clear: in each of four runs with other noise, at "
            "least half of what sets them apart from all words is found again"
        )
        lines.append("trust is the lowest cosine of a topic with what these runs find of it; unsure words are left out")
    if summary.privacy is not None:
        lines.append(privacy_sentence(summary.privacy))
    return lines


def _choice(found: TopicDiagnostics) -> list[str]:
    """Return the evidence for the number of topics that was selected."""
    clear = f"{found.n_clear} directions of word pairs stand clear of noise"
    if found.n_replicated is None:
        return [f"{found.n_components} topics selected: {clear}"]
    others = ", ".join(f"{again} of {k}" for k, again in found.selection_scores.tolist() if k != found.n_components)
    return [
        f"{found.n_components} topics selected: {found.n_replicated} of them are found again in the other half of the "
        f"documents ({clear})",
        *([f"other numbers of topics, and how many were found again: {others}"] if others else []),
    ]


def topics_document(summary: TopicSummary, n_top: int) -> dict[str, Any]:
    """Return the topics as a dictionary for JSON."""
    topics = [
        {
            "number": topic,
            "share": share,
            "npmi": None if summary.npmi is None else summary.npmi[topic],
            "clear": None if summary.trust is None or not summary.trust.known else bool(summary.trust.clear[topic]),
            "trust": None if summary.trust is None else summary.trust.similarity[topic],
            "words": [{"word": word, "weight": weight} for word, weight in summary.leading_words(topic, n_top)],
        }
        for topic, share in enumerate(summary.shares)
    ]
    return {
        "kind": "topics",
        "n_words": summary.words.size,
        "topics": topics,
        "perplexity": summary.perplexity,
        "diagnostics": summary.diagnostics,
        "privacy": summary.privacy,
        "warnings": summary.advice,
    }


def write_page_of(learnt: Learnt, files: tuple[Path, ...], path: Path) -> None:
    """Write the HTML page of the topics of some files."""
    from odeco.models.lda.page import write_topics_report  # matplotlib may be missing

    names = ["the standard input" if str(file) == "-" else file.name for file in files]
    title = f"Topics of {names[0] if names else 'the documentation of Python'}"
    if len(names) > 1:
        title += f" and {len(names) - 1} more"
    examples = examples_of(learnt.model, learnt.corpus, learnt.kept.counts)
    write_topics_report(learnt.summary, path, title=title, examples=examples, command=command_line())


def examples_of(model: TensorLDA, corpus: Corpus, counts: Any) -> list[list[tuple[str, str, float]]] | None:
    """Return the most typical documents of each topic, if their texts were kept."""
    if not corpus.excerpts:
        return None
    return [
        [(corpus.names[place], corpus.excerpts[place], share) for place, share in shown]
        for shown in representative_documents(model, counts, _SHOWN)
    ]


def write_proportions(path: Path, proportions: FloatArray, names: tuple[str, ...]) -> None:
    """Write the proportions of topics to a ``.csv`` or ``.npz`` file, atomically."""
    if path.suffix == ".csv":
        with replacing(path) as file:
            file.write(proportions_table(proportions, names).encode())
        return
    arrays: dict[str, Any] = {"proportions": proportions}
    if names:
        arrays["documents"] = np.array(names)
    header = {"command": command_line(), "written_by": versions()}
    save_arrays(path, "topic proportions", header, arrays, readable=True)


def proportions_table(proportions: FloatArray, names: tuple[str, ...]) -> str:
    """Return the proportions as CSV: one line per document, one column per topic."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["document", *(f"topic {number}" for number in range(proportions.shape[1]))])
    for row, values in enumerate(proportions.tolist()):
        name = names[row] if names else f"row {row}"
        writer.writerow([csv_cell(name), *(f"{value:.6g}" for value in values)])
    return buffer.getvalue()


def page_writer(file: Path, *, title: str | None, documents: Path | None, column: str | None) -> Callable[[Path], None]:
    """Return the function that writes the page of a saved model; `documents` are texts, or counts of its words."""
    model = TensorLDA.load(file)
    if documents is not None and hasattr(model, "privacy_"):
        raise click.UsageError("The page of private topics shows no document. Leave out --documents.")
    counts, examples = None, None
    if documents is not None:
        corpus = read_for_model(
            model.words_,
            [documents],
            column=column,
            show=lambda *_: None,
            tokenizer=model.tokenizer_,
            keep_excerpts=True,
        )
        counts = corpus.counted.counts
        examples = examples_of(model, corpus, counts)
    return partial(
        write_topics_report,
        summarise_topics(model, None, counts),
        title=title or f"Topics in {file.name}",
        examples=examples,
        command=command_line(),
    )
