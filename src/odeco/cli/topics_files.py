"""Files of ``odeco topics``: documents or word counts are read; topics, pages and proportions are written.

Topics are numbered from 0, as in Python.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table

from odeco._util.files import save_arrays
from odeco._util.types import FloatArray
from odeco.cli.app import command_line
from odeco.cli.output import Output, RowIds, as_cell, as_texts, console, csv_text, deliver, emit_json, note, write_text
from odeco.datasets import Document, python_documentation
from odeco.decompose.files import versions
from odeco.display.tables import privacy_sentence
from odeco.errors import VocabularyError
from odeco.io.coerce import as_source
from odeco.io.documents import Text, read_documents
from odeco.io.rows import join_rows
from odeco.io.urls import as_path
from odeco.models.lda.counts import as_counts
from odeco.models.lda.display import TopicSummary, representative_documents, summarise_topics
from odeco.models.lda.estimator import TensorLDA
from odeco.models.lda.params import TopicDiagnostics
from odeco.models.lda.use import GroupShares
from odeco.models.lda.vocabulary import (
    STOP_WORDS,
    CountedWords,
    Tokenizer,
    as_words,
    count_words,
    numbered,
    select_words,
)
from odeco.privacy.sources import open_private

#: This many characters of a document are kept for the page.
_EXCERPT = 400

#: Progress is shown after every 500 documents.
_EVERY = 500


#: Receives the stage of the work, how much of it is done, and of how much.
Show = Callable[[str, int, int | None], object]


@dataclass(frozen=True, eq=False)
class Corpus:
    """Counted documents. Texts also have names, which say where they come from, excerpts, and a tokenizer."""

    counted: CountedWords
    names: tuple[str, ...] = ()
    excerpts: tuple[str, ...] = ()
    tokenizer: Tokenizer | None = None


@dataclass(frozen=True, eq=False)
class Learnt:
    """A fitted model, its summary, and the documents: as they were read, and with the words that were kept."""

    model: TensorLDA
    summary: TopicSummary
    corpus: Corpus
    kept: CountedWords


def read_corpus(
    files: Sequence[Path],
    *,
    column: str | None,
    words: Sequence[str] | None,
    tokenizer: Tokenizer,
    show: Show,
    private: bool = False,
    keep_excerpts: bool = False,
) -> Corpus:
    """Return the counted documents of files, of all words or of the given ones in their order.

    Without a file, the documents are the documentation of Python's library.
    """
    if _are_counts(files):
        return Corpus(_read_counts(files, words, private))
    texts: Iterator[Text | Document] = python_documentation()
    if files:
        texts = read_documents(files, column=column, private=private)
    names: list[str] = []
    excerpts: list[str] = []

    def contents() -> Iterator[str]:
        for number, each in enumerate(texts, 1):
            names.append(each.name)
            if keep_excerpts:
                # A longer piece, because blanks are dropped.
                excerpts.append(" ".join(each.text[: 4 * _EXCERPT].split())[: _EXCERPT + 1])
            if number % _EVERY == 0:
                show("reading", number, None)
            yield each.text

    counted = count_words(contents(), words, tokenizer=tokenizer, allow_empty=private)
    show("reading", counted.counts.shape[0], None)
    return Corpus(counted, tuple(names), tuple(excerpts), tokenizer)


def count_documents(files: Sequence[Path], column: str | None) -> int:
    """Return the number of documents in private files, which is public; nothing else is read."""
    if _are_counts(files):
        return sum(as_source(str(path)).n_rows or 0 for path in files)
    return sum(1 for _ in (read_documents(files, column=column, private=True) if files else python_documentation()))


def read_for_model(words: Any, files: Sequence[Path], *, tokenizer: Tokenizer | None, **how: Any) -> Corpus:
    """Return the counts of a model's words in new documents, which are split into words as the model's were.

    Texts are read as `how` says; see `read_corpus`.
    """
    model_words = [str(word) for word in words]
    if not _are_counts(files):
        return read_corpus(files, words=model_words, tokenizer=tokenizer or "words", **how)
    counted = _read_counts(files, None, private=False)
    missing = np.setdiff1d(np.char.lower(np.array(model_words)), np.char.lower(counted.words))
    if missing.size:
        raise VocabularyError(
            f"New counts must have a column for each of the {len(model_words):,} words of the model. {missing.size:,} "
            f"have none, such as {str(missing[0])!r}. Count the new documents with the vocabulary of the first, or "
            "pass texts."
        )
    return Corpus(select_words(counted, model_words))


def _are_counts(files: Sequence[Path]) -> bool:
    return any(path.suffix == ".npz" for path in files)


#: The suffixes of files of word counts that workers of a cluster read.
_COUNTS = (".npz", ".npy", ".parquet", ".arrow", ".feather")


def are_texts(files: Sequence[Path], column: str | None) -> bool:
    """Return whether files for a cluster hold texts, not word counts."""
    return column is not None or any(path.suffix not in _COUNTS for path in files)


def _read_counts(files: Sequence[Path], words: Sequence[str] | None, private: bool) -> CountedWords:
    """Return the counts in some files, one below the other."""
    others = [str(path) for path in files if path.suffix != ".npz"]
    if others:
        raise click.UsageError(f"Word counts (.npz) and texts cannot be mixed. Got {others[0]} too. Pass one kind.")
    parts = [_counts_in(path, private) for path in files]
    names = parts[0].words
    for path, part in zip(files[1:], parts[1:], strict=True):
        if not np.array_equal(part.words, names):
            raise VocabularyError(
                f"All files must share one vocabulary. {files[0].name} has {names.size:,} words, {path.name} "
                f"has {part.words.size:,}, and they differ. Count all documents with the vocabulary of the first."
            )
    stacked = join_rows([part.counts for part in parts])
    counts = stacked if private else as_counts(stacked).astype(np.int64)
    counts.sort_indices()
    counted = CountedWords(counts, names, names.size)
    if words is None:
        return counted
    if names[0] != "[0]":
        return select_words(counted, words)
    if names.size != len(words):
        raise VocabularyError(
            f"A vocabulary for counts without names must have one word for each of the {names.size:,} columns. "
            f"Got {len(words):,} words. Add the array `vocabulary` to the file."
        )
    return CountedWords(counts, np.array(words, dtype=np.str_), names.size)


def _counts_in(path: Path, private: bool) -> CountedWords:
    """Return the counts in a file with its vocabulary; without one, columns are named [0], [1] and so on."""
    # Reading private rows raises nothing about a count or an index: such a document counts as empty later.
    blocks = open_private([path]).chunks(_EVERY) if private else iter(as_source(str(path)))
    counts: Any = join_rows(list(blocks))
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        names = archive["vocabulary"] if "vocabulary" in archive.files else None
    if names is None:
        names = numbered(counts.shape[1])
    if names.shape != (counts.shape[1],) or names.dtype.kind != "U":
        raise VocabularyError(
            f"The vocabulary in {path.name} must be an array of {counts.shape[1]:,} texts, one for each column. "
            f"Got shape {names.shape} and type {names.dtype}. Write it again."
        )
    return CountedWords(counts, names, names.size)


def read_words(path: Path, tokenizer: Tokenizer = "words") -> list[str]:
    """Return the words of a file with one word per line."""
    return as_words(path.read_text(encoding="utf-8-sig").splitlines(), tokenizer)


def read_seed_words(path: Path, tokenizer: Tokenizer) -> dict[str, list[str]]:
    """Return the words of each topic of a file with lines such as ``sport: ball team``."""
    topics: dict[str, list[str]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), start=1):
        label, colon, words = line.partition(":")
        if not line.strip():
            continue
        if not colon or not words.strip() or label.strip() in topics:
            raise VocabularyError(
                f"Line {number} of {path} must be a label that no other line has, a colon and words, such as 'sport: "
                f"ball team'. Got {line[:60]!r}."
            )
        topics[label.strip()] = as_words(words.replace(",", " ").split(), tokenizer)
    return topics


def read_stop_words(choice: str) -> frozenset[str]:
    """Return a list of stop words: ``english``, ``none``, or the words of a file."""
    if choice == "english":
        return STOP_WORDS
    return frozenset() if choice == "none" else frozenset(read_words(as_path(choice)))


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
    from odeco.models.lda.page import write_topics_report  # Matplotlib may be missing

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


def write_proportions(path: Path, proportions: FloatArray, names: tuple[str, ...], ids: RowIds | None = None) -> None:
    """Write the proportions of topics to a ``.csv`` or ``.npz`` file, atomically."""
    if path.suffix == ".csv":
        write_text(path, proportions_table(proportions, names, ids))
        return
    arrays: dict[str, Any] = {"proportions": proportions}
    if names:
        arrays["documents"] = np.array(names)
    header = {"command": command_line(), "written_by": versions()}
    save_arrays(path, "topic proportions", header, arrays, readable=True)


def proportions_table(proportions: FloatArray, names: tuple[str, ...], ids: RowIds | None = None) -> str:
    """Return the proportions as CSV: one line per document, one column per topic, with names or ids first."""
    topics = [f"topic {number}" for number in range(proportions.shape[1])]
    if ids is not None:
        return ids.csv_text(topics, as_texts(proportions))
    shown = names or [f"row {number}" for number in range(len(proportions))]
    rows = zip(shown, as_texts(proportions), strict=True)
    return csv_text(["document", *topics], ([name, *shares] for name, shares in rows))


def deliver_groups(found: GroupShares, out: Path | None, *, as_json: bool) -> None:
    """Print the shares of topics in groups of documents, or write them: one line per group, errors after shares."""
    topics = [f"topic {number}" for number in range(found.shares.shape[1])]
    heading = ["group", "documents", *topics, *(f"error of {name}" for name in topics)]
    numbers = as_texts(np.hstack([found.shares, found.errors]))
    table = csv_text(
        heading, ([g, n, *cells] for g, n, cells in zip(found.groups, found.n_documents, numbers, strict=True))
    )

    def show() -> None:
        if as_json:
            emit_json({"kind": "topics by group", **vars(found)})
        elif out is None:
            click.echo(table, nl=False)
        else:
            note(f"{found.groups.size:,} groups, {len(topics):,} topics")

    def save(path: Path) -> None:
        write_text(path, table)

    deliver(show, Output(out, save), save=("groups.csv", save))


def page_writer(file: Path, *, title: str | None, documents: Path | None, column: str | None) -> Callable[[Path], None]:
    """Return the function that writes the page of a saved model; `documents` are texts, or counts of its words."""
    from odeco.models.lda.page import write_topics_report  # Matplotlib may be missing

    model = TensorLDA.load(file)
    if documents is not None and hasattr(model, "privacy_"):
        raise click.UsageError("The page of private topics shows no document. Leave out --documents.")
    counts, examples = None, None
    if documents is not None:
        how: Any = {"tokenizer": model.tokenizer_, "column": column, "keep_excerpts": True}
        corpus = read_for_model(model.words_, [documents], show=lambda *_: None, **how)
        counts = corpus.counted.counts
        examples = examples_of(model, corpus, counts)
    return partial(
        write_topics_report,
        summarise_topics(model, None, counts),
        title=title or f"Topics in {file.name}",
        examples=examples,
        command=command_line(),
    )
