"""The documents of ``odeco learn topics``: texts or word counts are read; words are chosen; topics
are shown.

Topics are numbered from 0, as in Python.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from odeco._util.types import FloatArray
from odeco.cli import options as _options
from odeco.cli.app import advice, command_line
from odeco.cli.flow import Show
from odeco.cli.inputs import Data, Given, Input, Shown, load_groups
from odeco.cli.options import check_usage, given_options, option
from odeco.cli.output import note
from odeco.cli.privacy import Request
from odeco.datasets import python_documentation
from odeco.errors import VocabularyError
from odeco.io.coerce import as_source, files_of
from odeco.io.documents import read_documents, text_parts
from odeco.io.rows import join_rows
from odeco.io.urls import as_path
from odeco.models.lda import vocabulary as words_of
from odeco.models.lda.counts import as_counts
from odeco.models.lda.display import representative_documents
from odeco.models.lda.estimator import TensorLDA
from odeco.models.lda.private_vocabulary import DELTA_SHARE, PrivateVocabulary, keep_words
from odeco.models.lda.use import Perplexity
from odeco.models.lda.vocabulary import (
    STOP_WORDS,
    CountedWords,
    Tokenizer,
    as_words,
    count_words,
    n_unreachable,
    numbered,
    select_words,
)
from odeco.privacy.calibration import check_delta_for, gdp_mu
from odeco.privacy.sources import open_private

#: This many characters of a document are kept for the page, and this many documents shown for each
#: topic.
_EXCERPT = 400
_SHOWN = 5

#: The number of words of a topic in JSON.
_JSON_WORDS = 20

#: What users read for a stage of a fit.
_STAGES = {
    "pairs": "counting pairs of words",
    "triples": "decomposing triples of words",
    "number of topics": "selecting the number of topics",
    "sweeps": "Gibbs sweeps",
}

#: Progress is shown after every 500 documents.
_EVERY = 500

#: The suffixes of files of word counts that workers of a cluster read.
_COUNTS = (".npz", ".npy", ".parquet", ".arrow", ".feather")

#: These options choose words; a list of words leaves nothing to choose.
_PRUNING = ("min_documents", "max_share", "max_words", "stop_words")

OPTIONS = (
    option(
        "--python-documentation",
        is_flag=True,
        help="Read the documentation of Python's library, not FILEs.",
    ),
    _options.TEXT_COLUMN,
    option(
        "--vocabulary",
        type=_options.FILE,
        metavar="FILE",
        help="Count only these words, one per line, or those of a model in an .npz file.",
    ),
    option(
        "--min-documents",
        type=_options.COUNT,
        default=words_of.MIN_DOCUMENTS,
        help="Leave out rarer words.",
    ),
    option(
        "--max-share",
        type=_options.SHARE,
        default=words_of.MAX_SHARE,
        help="Leave out words in more documents.",
    ),
    option(
        "--max-words",
        type=_options.COUNT,
        default=words_of.MAX_WORDS,
        help="Largest number of words to keep.",
    ),
    option(
        "--stop-words",
        default="english",
        metavar="LIST",
        help="english, none, or a file of words to leave out.",
    ),
    option(
        "--seed-words",
        type=_options.FILE,
        metavar="FILE",
        help="Topics to find first, one 'label: word word' per line.",
    ),
    option(
        "--tokenizer",
        type=click.Choice(["words", "blanks"]),
        default="words",
        help="How text is split.",
    ),
    option(
        "--held-out",
        type=click.FloatRange(0, 1, max_open=True),
        default=0.1,
        metavar="SHARE",
        help="Share of the documents to hold out, to measure perplexity. 0 uses all for learning.",
    ),
    _options.ID,
    _options.SCHEDULER,
)


@dataclass(frozen=True, eq=False)
class Corpus:
    """Counted documents. Texts also have names, which say where they come from, excerpts, and a
    tokenizer.

    `words` are those of ``--vocabulary``; None if words are to be chosen.
    """

    counted: CountedWords
    names: tuple[str, ...] = ()
    excerpts: tuple[str, ...] = ()
    tokenizer: Tokenizer | None = None
    words: list[str] | None = None


class Documents:
    """Models of documents: what the flow needs of their input. `odeco.cli.learn.Tables` has the
    same methods.
    """

    input = Input(None, None, OPTIONS, (_options.GROUPS,))

    def check(self, files: tuple[Path, ...], given: Given, *, private: bool) -> None:
        """Raise if options contradict each other."""
        named = given_options()
        chosen = _first(named, *_PRUNING)
        exact = _first(named, "min_documents", "max_share")
        again = _first(
            [name for name in named if given.get(name)], "max_iter", "seed_words", "held_out"
        )
        local = _first(named, "held_out", "seed_words", "python_documentation", "labels_path")
        cluster = given["scheduler"] is not None
        counts = cluster and not private and not are_texts(files, given["column"])
        check_usage(
            {
                "Either FILEs or --python-documentation must be given, and not both.": given[
                    "python_documentation"
                ]
                == bool(files),
                f"With --vocabulary all its words are counted. Leave out {chosen}.": given[
                    "vocabulary"
                ]
                and chosen,
                "A private run needs both --epsilon and --delta. Choose δ far below 1 / number of "
                "documents, such as 1e-6.": private and given["delta"] is None,
                f"{exact} counts documents without noise. Leave it out: a private run chooses "
                "words by noisy votes, or takes those of --vocabulary FILE.": private and exact,
                f"{again} would read the documents again, without noise. Leave it out.": private
                and again,
                f"With --scheduler word counts are read as they are. Leave out {chosen}.": counts
                and chosen,
                f"Workers of a cluster read only the FILEs. Omit {local} or --scheduler.": cluster
                and local,
                "Workers of a cluster read FILEs, not the standard input. Pass a path.": cluster
                and any(str(path) == "-" for path in files),
            }
        )
        if not cluster:
            for path in (*files, given["seed_words"]):
                if path is not None and str(path) != "-" and not path.exists():
                    raise FileNotFoundError(2, "No such file or directory", str(path))

    def read(
        self, files: tuple[Path, ...], given: Given, *, private: bool, show: Show, client: Any
    ) -> Data:
        """Return documents before anything is learnt or spent."""
        words = None
        if given["vocabulary"] is not None:
            words = read_words(given["vocabulary"], given["tokenizer"])
        if client is not None:
            corpus = _read_on_cluster(files, given, private, words, client)
        elif _are_counts(files):
            corpus = Corpus(_read_counts(files, words, private), words=words)
        else:
            keep_excerpts = given["report"] is not None and not private
            corpus = _read_texts(
                files, given["column"], words, given["tokenizer"], show, private, keep_excerpts
            )
        groups = load_groups(given["groups"])
        parameters: dict[str, Any] = {"n_jobs": given["threads"]}
        fit = {}
        if groups is not None:
            fit = {"groups": groups}
            parameters["unit"] = "user"
        if given["seed_words"] is not None:
            parameters["seed_words"] = read_seed_words(given["seed_words"], given["tokenizer"])
        n_rows = corpus.counted.counts.shape[0]
        return Data(corpus, n_rows, fit=fit, parameters=parameters, rows=corpus.names or None)

    def request(self, data: Data, given: Given) -> Request:
        """Return the budget of private topics; a part of δ is kept for the threshold that chooses
        words.
        """
        groups = data.fit.get("groups")
        unit = "document" if groups is None else "user"
        n_units = data.n_rows if groups is None else np.unique(groups).size
        check_delta_for(given["delta"], n_units, unit)
        kept = DELTA_SHARE * given["delta"] if data.X.words is None else 0.0
        mu = gdp_mu(given["epsilon"], given["delta"] - kept)
        return Request(
            given["epsilon"], given["delta"], mu, unit, f"{n_units:,} {unit}s", kept, has_plan=False
        )

    def prepare(self, data: Data, given: Given, ledger: Any) -> Data:
        """Return the documents to learn from: counts of the words that are kept; a private run pays
        for the choice.
        """
        corpus: Corpus = data.X
        private = given["epsilon"] is not None
        here = given["scheduler"] is None
        kept = corpus.counted
        vocabulary: PrivateVocabulary | None = None
        if corpus.words is None:
            budget = {"epsilon": given["epsilon"], "delta": given["delta"], "ledger": ledger}
            kept, vocabulary = keep_words(
                kept, **_pruning(given), **budget, groups=data.fit.get("groups")
            )
            if vocabulary is not None:
                note(_chosen(vocabulary))
        elif corpus.tokenizer == "words" and n_unreachable(corpus.words):
            note(f"{n_unreachable(corpus.words):,} of {len(corpus.words):,} words occur in no text")
        train = kept.counts
        held_out = None
        if here and not private:
            train, held_out = _split(kept.counts, given["held_out"], given["seed"])
        note(_opening(kept, train, held_out, private) if here else f"{_size(kept)}, on a cluster")
        known = {"words": kept.words, "tokenizer": corpus.tokenizer, "vocabulary": vocabulary}
        public = {"corpus": replace(corpus, counted=kept), "held_out": held_out}
        return replace(data, X=train, fit=data.fit | known, public=public)

    def fit(self, learner: Any, data: Data, show: Show) -> tuple[str, ...]:
        """Fit topics, and return the warnings of the fit, in the words of the command line."""

        def report(stage: str, done: int, total: int) -> None:
            counted = f"{done:,} of {total:,}" if stage == "sweeps" and done else ""
            show(_STAGES.get(stage, stage), done, total if total > 1 else None, counted)

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            learner.fit(data.X, **data.fit, callback=report)
        messages = (
            advice(each.message) for each in caught if isinstance(each.message, UserWarning)
        )
        return tuple(dict.fromkeys(messages))

    def labelled(self, data: Data) -> Any:
        """Return the counts of all documents, those that were held out too."""
        return data.public["corpus"].counted.counts

    def show(
        self, model: Any, data: Data, given: Given, title: str, messages: tuple[str, ...]
    ) -> Shown:
        """Return how fitted topics are shown."""
        npmi = perplexity = None
        if given["scheduler"] is None and not hasattr(model, "privacy_"):
            npmi = model.coherence(data.X)
            held_out = data.public["held_out"]
            if held_out is not None and held_out.sum():
                perplexity = model.completion_perplexity(held_out, seed=given["seed"])
        for message in messages:
            note(f"Warning: {message}")
        lines = _lines_of(npmi, perplexity)
        text = "\n".join([model.summary(), *lines])
        write_page = partial(_write_page, model, data.public["corpus"], title, npmi, lines)
        document = partial(_document_of, model, npmi, perplexity, messages, data.n_rows)
        return Shown(text, document, write_page)


# Reading ------------------------------------------------------------------------------------------


def _first(given: list[str], *names: str) -> str:
    """Return the first of some options that was given, or nothing."""
    return next((f"--{name.replace('_', '-')}" for name in names if name in given), "")


def read_again(
    files: tuple[Path, ...], column: str | None, model: Any, show: Show, *, excerpts: bool = False
) -> Corpus:
    """Return the counts of a model's words in new documents, which are split into words as the
    model's were.
    """
    known = [str(word) for word in model.words_]
    if not _are_counts(files):
        return _read_texts(files, column, known, model.tokenizer_ or "words", show, False, excerpts)
    counted = _read_counts(files, None, private=False)
    missing = np.setdiff1d(np.char.lower(np.array(known)), np.char.lower(counted.words))
    if missing.size:
        raise VocabularyError(
            f"New counts must have a column for each of the {len(known):,} words of the model. "
            f"{missing.size:,} have none, such as {str(missing[0])!r}. Count the new documents "
            "with the vocabulary of the first, or pass texts."
        )
    return Corpus(select_words(counted, known))


def _read_texts(
    files: tuple[Path, ...],
    column: str | None,
    words: list[str] | None,
    tokenizer: Tokenizer,
    show: Show,
    private: bool,
    keep_excerpts: bool,
) -> Corpus:
    """Return the counted texts of files; without a file, the documentation of Python's library."""
    texts: Iterator[Any] = python_documentation()
    if files:
        texts = read_documents(files, column=column, private=private)
    names: list[str] = []
    excerpts: list[str] = []

    def contents() -> Iterator[str]:
        for number, each in enumerate(texts, 1):
            names.append(each.name)
            if keep_excerpts:  # a longer piece, because blanks are dropped
                excerpts.append(" ".join(each.text[: 4 * _EXCERPT].split())[: _EXCERPT + 1])
            if number % _EVERY == 0:
                show("reading", number, None, f"{number:,} documents")
            yield each.text

    counted = count_words(contents(), words, tokenizer=tokenizer, allow_empty=private)
    return Corpus(counted, tuple(names), tuple(excerpts), tokenizer, words)


def _read_on_cluster(
    files: tuple[Path, ...], given: Given, private: bool, words: list[str] | None, client: Any
) -> Corpus:
    """Open word counts, whose columns are all kept, or count the words of texts, on a cluster."""
    column = given["column"]
    named: list[Any] = []
    for path in files:  # one document per file of a folder of texts
        named += [path] if column is None and path.is_dir() else files_of(path)
    if are_texts(files, column):
        from odeco.models.lda.cluster import count_words_on_cluster  # which imports Dask

        how = {
            **_pruning(given),
            "tokenizer": given["tokenizer"],
            "client": client,
            "private": private,
        }
        rows, found = count_words_on_cluster(
            text_parts(named, column, private=private), words, **how
        )
        tokenizer = given["tokenizer"]
    else:
        from odeco.online.dask.partitions import as_cluster_rows

        rows = as_cluster_rows(
            open_private(named) if private else [str(each) for each in named], client
        )
        found = _column_words(named[0], words, rows.n_features)
        tokenizer = None
    chosen_later = private and words is None  # by noisy votes
    counted = CountedWords(rows, found, rows.n_features)
    return Corpus(counted, tokenizer=tokenizer, words=None if chosen_later else found.tolist())


def _column_words(first: Path, given: list[str] | None, n_words: int) -> Any:
    """Return the names of the columns of counts: those of a list, of the first file, or their
    numbers.
    """
    own: Any = None
    if first.suffix == ".npz":
        with first.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            own = archive["vocabulary"] if "vocabulary" in archive.files else None
    elif given is None:
        own = getattr(as_source(str(first)), "columns", None)
    found = own if given is None else given
    words = numbered(n_words) if found is None else np.array(found, dtype=np.str_)
    if words.shape != (n_words,):
        raise VocabularyError(
            f"There must be one word for each of the {n_words:,} columns. Got {words.size:,}. "
            "Pass --vocabulary FILE with one word per line."
        )
    if own is not None and not np.array_equal(own, words):
        raise VocabularyError(
            "On a cluster all columns are kept, so --vocabulary must have the words of "
            f"{first.name} in their order. They differ. Leave it out, or write those words into "
            "it."
        )
    return words


def are_texts(files: Sequence[Path], column: str | None) -> bool:
    """Return whether files for a cluster hold texts, not word counts."""
    return column is not None or any(path.suffix not in _COUNTS for path in files)


def _are_counts(files: Sequence[Path]) -> bool:
    return any(path.suffix == ".npz" for path in files)


def _read_counts(files: Sequence[Path], words: Sequence[str] | None, private: bool) -> CountedWords:
    """Return the counts in some files, one below the other."""
    others = [str(path) for path in files if path.suffix != ".npz"]
    if others:
        raise click.UsageError(
            f"Word counts (.npz) and texts cannot be mixed. Got {others[0]} too. Pass one kind."
        )
    parts = [_counts_in(path, private) for path in files]
    names = parts[0].words
    for path, part in zip(files[1:], parts[1:], strict=True):
        if not np.array_equal(part.words, names):
            raise VocabularyError(
                f"All files must share one vocabulary. {files[0].name} has {names.size:,} words, "
                f"{path.name} has {part.words.size:,}, and they differ. Count all documents with "
                "the vocabulary of the first."
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
            "A vocabulary for counts without names must have one word for each of the "
            f"{names.size:,} columns. Got {len(words):,} words. Add the array `vocabulary` to the "
            "file."
        )
    return CountedWords(counts, np.array(words, dtype=np.str_), names.size)


def _counts_in(path: Path, private: bool) -> CountedWords:
    """Return the counts in a file with its vocabulary; without one, columns are named [0], [1] and
    so on.
    """
    # Reading private rows raises nothing about a count or an index: such a document counts as empty
    # later.
    blocks = open_private([path]).chunks(_EVERY) if private else iter(as_source(str(path)))
    counts: Any = join_rows(list(blocks))
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        names = archive["vocabulary"] if "vocabulary" in archive.files else None
    if names is None:
        names = numbered(counts.shape[1])
    if names.shape != (counts.shape[1],) or names.dtype.kind != "U":
        raise VocabularyError(
            f"The vocabulary in {path.name} must be an array of {counts.shape[1]:,} texts, one "
            f"for each column. Got shape {names.shape} and type {names.dtype}. Write it again."
        )
    return CountedWords(counts, names, names.size)


def read_words(path: Path, tokenizer: Tokenizer = "words") -> list[str]:
    """Return the words of a model of topics, or of a file with one word per line."""
    if path.suffix == ".npz":
        return as_words(TensorLDA.load(path).words_.tolist(), tokenizer)
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
                f"Line {number} of {path} must be a label that no other line has, a colon and "
                f"words, such as 'sport: ball team'. Got {line[:60]!r}."
            )
        topics[label.strip()] = as_words(words.replace(",", " ").split(), tokenizer)
    return topics


def read_stop_words(choice: str) -> frozenset[str]:
    """Return a list of stop words: ``english``, ``none``, or the words of a file."""
    if choice == "english":
        return STOP_WORDS
    return frozenset() if choice == "none" else frozenset(read_words(as_path(choice)))


def _pruning(given: Given) -> dict[str, Any]:
    """Return the options that choose words, as arguments."""
    limits = {name: given[name] for name in ("min_documents", "max_share", "max_words")}
    return {**limits, "stop_words": read_stop_words(given["stop_words"])}


# Saying what was read -----------------------------------------------------------------------------


def _chosen(vocabulary: PrivateVocabulary) -> str:
    """Return a sentence about a vocabulary that was chosen privately."""
    (charge,) = vocabulary.privacy.charges
    return (
        f"{vocabulary.words.size:,} words chosen privately: their noisy votes reach "
        f"{vocabulary.threshold:.1f}. That is part of ε and δ (μ = {charge.mu:.3g}, δ' = "
        f"{charge.delta:.3g}); topics get the rest"
    )


def _split(counts: Any, share: float, seed: int) -> tuple[Any, Any]:
    """Return training documents and held-out documents; None instead of these if the share gives
    none.
    """
    n_documents = counts.shape[0]
    n_held_out = round(share * n_documents)
    if n_held_out == 0:
        return counts, None
    order = np.random.default_rng(seed).permutation(n_documents)
    return counts[np.sort(order[n_held_out:])], counts[np.sort(order[:n_held_out])]


def _opening(kept: CountedWords, train: Any, held_out: Any, private: bool) -> str:
    """Return a sentence about the documents."""
    n_documents, n_words = kept.counts.shape
    text = _size(kept)
    if private:  # anything more would be released without noise
        return text
    if kept.n_found != n_words:
        text += f" kept of {kept.n_found:,}"
    text += f", {int(kept.counts.sum()) / max(n_documents, 1):.1f} of them in a document on average"
    return text if held_out is None else f"{text}; {train.shape[0]:,} training documents"


def _size(kept: CountedWords) -> str:
    n_documents, n_words = kept.counts.shape
    return f"{n_documents:,} documents, {n_words:,} words"


# Showing topics -----------------------------------------------------------------------------------


def _lines_of(npmi: FloatArray | None, perplexity: Perplexity | None) -> list[str]:
    """Return what is known of topics beside what their model says, one sentence each."""
    lines = []
    if perplexity is not None:
        lines.append(
            f"perplexity of {perplexity.n_documents:,} held-out documents: "
            f"{perplexity.topics:,.1f} (word frequencies alone: {perplexity.unigram:,.1f})"
        )
    if npmi is not None:
        lines.append(f"coherence (NPMI): {', '.join(f'{value:.2f}' for value in npmi)}")
    return lines


def _document_of(
    model: Any,
    npmi: FloatArray | None,
    perplexity: Perplexity | None,
    messages: tuple[str, ...],
    n_documents: int,
) -> dict[str, Any]:
    """Return topics as a dictionary for JSON."""
    privacy = getattr(model, "privacy_", None)
    words = model._known_words()
    topics = [
        {
            "number": topic,
            "share": share,
            "npmi": None if npmi is None else npmi[topic],
            "clear": None if privacy is None else bool(model.trust_.clear[topic]),
            "words": [
                {"word": str(words[place]), "weight": model.topic_word_[topic, place]}
                for place in places
            ],
        }
        for topic, (share, places) in enumerate(
            zip(model.shares_, model._leading(_JSON_WORDS, 1.0), strict=True)
        )
    ]
    return {
        "n_documents": n_documents,
        "kind": "topics",
        "n_words": words.size,
        "topics": topics,
        "perplexity": perplexity,
        "diagnostics": model.diagnostics_,
        "privacy": privacy,
        "warnings": messages,
    }


def _write_page(
    model: Any,
    corpus: Corpus,
    title: str,
    npmi: FloatArray | None,
    lines: list[str],
    path: Path,
) -> None:
    """Write the HTML page of topics, with the most typical documents of each if their texts were
    kept.
    """
    from odeco.models.lda.explorer import write_topics_report  # Matplotlib may be missing

    examples = None
    if corpus.excerpts:
        shown = representative_documents(model, corpus.counted.counts, _SHOWN)
        examples = [
            [(corpus.names[place], corpus.excerpts[place], share) for place, share in own]
            for own in shown
        ]
    write_topics_report(
        model,
        path,
        title=title,
        npmi=npmi,
        examples=examples,
        remark=" ".join(f"{line[0].upper()}{line[1:]}." for line in lines),
        command=command_line(),
    )


def page_writer(
    model: Any, file: Path, *, documents: Path | None, column: str | None
) -> Callable[[Path], None]:
    """Return the function that writes the page of a saved model; `documents` are texts, or counts
    of its words.
    """
    if documents is not None and hasattr(model, "privacy_"):
        raise click.UsageError(
            "The page of private topics shows no document. Leave out --documents."
        )
    corpus = Corpus(CountedWords(None, model._known_words(), 0))
    if documents is not None:
        corpus = read_again((documents,), column, model, lambda *_: None, excerpts=True)
    npmi = None if documents is None else model.coherence(corpus.counted.counts)
    heading = f"Topics in {file.name}"
    return partial(_write_page, model, corpus, heading, npmi, _lines_of(npmi, None))
