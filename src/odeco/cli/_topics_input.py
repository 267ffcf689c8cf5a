"""What ``odeco topics`` reads: documents as text, or word counts in ``.npz`` files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from scipy import sparse

from odeco.corpus import python_documentation
from odeco.sources import as_source
from odeco.topics.counts import as_counts
from odeco.topics.documents import Text, read_documents
from odeco.topics.vocabulary import STOP_WORDS, CountedWords, VocabularyError, as_words, count_words, select_words

#: So much of a document is kept, to be shown.
_EXCERPT = 400
#: How often progress is told, in documents.
_EVERY = 500

Progress = Callable[[int], object]


@dataclass(frozen=True, eq=False)
class Corpus:
    """Counted documents; of text also where each comes from, and how it begins if that was asked for."""

    counted: CountedWords
    names: tuple[str, ...] = ()
    excerpts: tuple[str, ...] = ()


def read_corpus(
    files: Sequence[Path],
    *,
    documentation: bool,
    column: str | None,
    words: Sequence[str] | None,
    progress: Progress,
    private: bool = False,
    keep_excerpts: bool = False,
) -> Corpus:
    """Return counted documents: of all words, or of the given ones in their order."""
    if any(path.suffix == ".npz" for path in files):
        return _read_counts(files, words, private)
    texts: Iterable[Text] = read_documents(files, column=column)
    if documentation:
        texts = (Text(document.name, document.text) for document in python_documentation())
    names: list[str] = []
    excerpts: list[str] = []

    def contents() -> Iterator[str]:
        for number, each in enumerate(texts, 1):
            names.append(each.name)
            if keep_excerpts:
                # Enough is cut off that runs of blanks leave something to show.
                excerpts.append(" ".join(each.text[: 4 * _EXCERPT].split())[: _EXCERPT + 1])
            if number % _EVERY == 0:
                progress(number)
            yield each.text

    counted = count_words(contents(), words)
    progress(counted.counts.shape[0])
    return Corpus(counted, tuple(names), tuple(excerpts))


def _read_counts(files: Sequence[Path], words: Sequence[str] | None, private: bool) -> Corpus:
    others = [str(path) for path in files if path.suffix != ".npz"]
    if others:
        raise click.UsageError(f"Word counts (.npz) and texts cannot be mixed. Got {others[0]} too. Pass one kind.")
    parts = [_counts_in(path, private) for path in files]
    for path, part in zip(files[1:], parts[1:], strict=True):
        if not np.array_equal(part.words, parts[0].words):
            raise VocabularyError(
                f"All files must share one vocabulary. {files[0].name} has {parts[0].words.size:,} words, {path.name} "
                f"has {part.words.size:,}, and they differ. Count all documents with the vocabulary of the first."
            )
    stacked: Any = sparse.csr_array(sparse.vstack([part.counts for part in parts], format="csr"))
    counts = stacked if private else as_counts(stacked).astype(np.int64)
    counts.sort_indices()
    counted = CountedWords(counts, parts[0].words, parts[0].words.size)
    if words is not None:
        counted = _name_columns(counted, words) if _nameless(counted) else select_words(counted, words)
    return Corpus(counted)


def _counts_in(path: Path, private: bool) -> CountedWords:
    source = as_source(str(path))  # refuses what is no matrix, without a look at its values
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        names = archive["vocabulary"] if "vocabulary" in archive.files else None
        parts = (archive["data"], archive["indices"], archive["indptr"]) if private else None
    if parts is not None:
        # An error would tell that a count is none; a private document with such a count is taken as empty instead.
        counts: Any = sparse.csr_array(parts, shape=(source.n_rows or 0, source.n_features))
        counts.check_format(full_check=True)
    else:
        blocks: list[Any] = list(source)
        counts = sparse.csr_array(sparse.vstack(blocks, format="csr"))
    if names is None:
        names = np.array([f"[{place}]" for place in range(counts.shape[1])])
    if names.shape != (counts.shape[1],) or names.dtype.kind != "U":
        raise VocabularyError(
            f"The vocabulary in {path.name} must be an array of {counts.shape[1]:,} texts, one for each column. "
            f"Got shape {names.shape} and type {names.dtype}. Write it again."
        )
    return CountedWords(counts, names, names.size)


def _nameless(counted: CountedWords) -> bool:
    return bool(counted.words[0] == "[0]")


def _name_columns(counted: CountedWords, words: Sequence[str]) -> CountedWords:
    if counted.words.size != len(words):
        raise VocabularyError(
            f"A vocabulary for counts without names must have one word for each of the {counted.words.size:,} columns. "
            f"Got {len(words):,} words. Add the array `vocabulary` to the file."
        )
    return CountedWords(counted.counts, np.array(words, dtype=np.str_), counted.n_found)


def read_for(model_words: Sequence[str], files: Sequence[Path], column: str | None, progress: Progress) -> Corpus:
    """Return new documents counted by the words of a model."""
    if not any(path.suffix == ".npz" for path in files):
        return read_corpus(files, documentation=False, column=column, words=model_words, progress=progress)
    corpus = read_corpus(files, documentation=False, column=column, words=None, progress=progress)
    held = corpus.counted.words
    missing = np.setdiff1d(np.char.lower(np.array(model_words)), np.char.lower(held))
    if missing.size:
        raise VocabularyError(
            f"New counts must have a column for each of the {len(model_words):,} words of the model. {missing.size:,} "
            f"have none, such as {str(missing[0])!r}. Count the new documents with the vocabulary of the first, or "
            "pass texts."
        )
    return Corpus(select_words(corpus.counted, model_words))


def read_words(path: Path) -> list[str]:
    """Return the words of a file, one a line."""
    return as_words(path.read_text(encoding="utf-8-sig").splitlines())


def read_stop_words(choice: str) -> frozenset[str]:
    """Return a list of stop words: ``english``, ``none``, or the words of a file."""
    if choice == "english":
        return STOP_WORDS
    return frozenset() if choice == "none" else frozenset(read_words(Path(choice)))
