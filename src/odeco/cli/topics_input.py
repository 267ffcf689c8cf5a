"""Input of ``odeco topics``: documents as text, or word counts in ``.npz`` files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from odeco.datasets.corpora import Document, python_documentation
from odeco.errors import VocabularyError
from odeco.io.coerce import as_source
from odeco.io.documents import Text, read_documents
from odeco.io.rows import join_rows
from odeco.models.lda.counts import as_counts
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


def read_for_model(
    words: Any,
    files: Sequence[Path],
    *,
    column: str | None,
    show: Show,
    tokenizer: Tokenizer | None = None,
    keep_excerpts: bool = False,
) -> Corpus:
    """Return the counts of a model's words in new documents, which are split into words as the model's were."""
    model_words = [str(word) for word in words]
    if not _are_counts(files):
        return read_corpus(
            files,
            column=column,
            words=model_words,
            tokenizer=tokenizer or "words",
            show=show,
            keep_excerpts=keep_excerpts,
        )
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


def read_stop_words(choice: str) -> frozenset[str]:
    """Return a list of stop words: ``english``, ``none``, or the words of a file."""
    if choice == "english":
        return STOP_WORDS
    return frozenset() if choice == "none" else frozenset(read_words(Path(choice)))
