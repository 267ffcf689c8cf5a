"""The work of ``odeco topics``: read documents, agree on the budget, learn and measure topics, here or on a cluster.

A dry run prints what a private run would release and find; it reads only the number of documents.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from odeco.cli.app import advice
from odeco.cli.options import load_groups
from odeco.cli.output import console, emit_json, note
from odeco.cli.private import Request, agree_to_spend
from odeco.cli.topics_files import (
    Corpus,
    Learnt,
    Show,
    are_texts,
    count_documents,
    read_corpus,
    read_for_model,
    read_seed_words,
    read_stop_words,
    read_words,
)
from odeco.errors import VocabularyError
from odeco.io.coerce import as_source, files_of
from odeco.io.documents import text_parts
from odeco.models.lda.display import summarise_topics
from odeco.models.lda.estimator import TensorLDA
from odeco.models.lda.private_plan import plan_topics
from odeco.models.lda.private_vocabulary import DELTA_SHARE, SHARE, PrivateVocabulary, keep_words, left_for_learning
from odeco.models.lda.vocabulary import CountedWords, n_unreachable, numbered
from odeco.online.dask.partitions import as_cluster_rows
from odeco.privacy.calibration import check_delta_for, gdp_mu
from odeco.privacy.ledger_file import LedgerFile
from odeco.privacy.sources import open_private


def read_on_cluster(files: tuple[Path, ...], given: dict[str, Any], client: Any, *, private: bool) -> ReadDocuments:
    """Open word counts, whose columns are all kept, or count the words of texts, on a cluster."""
    column, tokenizer = given["column"], None
    # One document per file of a folder of texts.
    named = [each for path in files for each in ([path] if column is None and path.is_dir() else files_of(path))]
    if are_texts(files, column):
        from odeco.models.lda.cluster import count_words_on_cluster  # which imports Dask

        tokenizer = given["tokenizer"]
        how = {**_pruning(given), "tokenizer": tokenizer, "client": client, "private": private}
        rows, words = count_words_on_cluster(text_parts(named, column, private=private), _vocabulary(given), **how)
    else:
        rows = as_cluster_rows(open_private(named) if private else [str(each) for each in named], client)
        words = _words_of(named[0], given["vocabulary"], rows.n_features)
    corpus = Corpus(CountedWords(rows, words, rows.n_features), tokenizer=tokenizer)
    chosen_later = private and given["vocabulary"] is None  # by noisy votes
    return ReadDocuments(corpus, None if chosen_later else words.tolist(), load_groups(given["groups"]))


def _vocabulary(given: dict[str, Any]) -> list[str] | None:
    """Return the words of --vocabulary."""
    return None if given["vocabulary"] is None else read_words(given["vocabulary"], given["tokenizer"])


def _pruning(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options that choose words, as arguments."""
    names = ("min_documents", "max_share", "max_words")
    return {**{name: given[name] for name in names}, "stop_words": read_stop_words(given["stop_words"])}


def _words_of(first: Path, path: Path | None, n_words: int) -> Any:
    """Return the names of the columns: those of a list, of the first file, or their numbers."""
    own: Any = None
    if first.suffix == ".npz":
        with first.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            own = archive["vocabulary"] if "vocabulary" in archive.files else None
    elif path is None:
        own = getattr(as_source(str(first)), "columns", None)
    found = own if path is None else read_words(path)
    words = numbered(n_words) if found is None else np.array(found, dtype=np.str_)
    if words.shape != (n_words,):
        raise VocabularyError(
            f"There must be one word for each of the {n_words:,} columns. Got {words.size:,}. Pass --vocabulary FILE "
            "with one word per line."
        )
    if own is not None and not np.array_equal(own, words):
        raise VocabularyError(
            f"On a cluster all columns are kept, so --vocabulary must have the words of {first.name} in their order. "
            "They differ. Leave it out, or write those words into it."
        )
    return words


@dataclass(frozen=True, eq=False)
class ReadDocuments:
    """Documents before anything is learnt or spent.

    Attributes
    ----------
    corpus : Corpus
        The counted documents.
    words : list of str or None
        The words of --vocabulary.
    groups : array of labels or None
        The user of each document.
    """

    corpus: Corpus
    words: list[str] | None
    groups: Any


def read_for_learning(files: tuple[Path, ...], given: dict[str, Any], *, private: bool, show: Show) -> ReadDocuments:
    """Read documents as the options say."""
    words = _vocabulary(given)
    how: Any = {"column": given["column"], "tokenizer": given["tokenizer"]}
    keep = given["report"] is not None and not private
    corpus = read_corpus(files, words=words, show=show, private=private, keep_excerpts=keep, **how)
    return ReadDocuments(corpus, words, load_groups(given["groups"]))


def agree_to_learn(read: ReadDocuments, given: dict[str, Any]) -> LedgerFile | None:
    """Print whom a private run protects, check its ledger, ask, and return the ledger, if there is one."""
    epsilon, delta, unit = given["epsilon"], given["delta"], given["unit"]
    n_units = read.corpus.counted.counts.shape[0] if read.groups is None else np.unique(read.groups).size
    check_delta_for(delta, n_units, unit)
    kept = DELTA_SHARE * delta if read.words is None else 0.0  # for the threshold that chooses words
    request = Request(epsilon, delta, gdp_mu(epsilon, delta - kept), unit, f"{n_units:,} {unit}s", kept)
    return agree_to_spend(request, ledger=given["ledger"], budget=given["budget"], yes=given["yes"])


def learn(
    read: ReadDocuments, n_components: Any, given: dict[str, Any], *, ledger: LedgerFile | None, show: Show
) -> Learnt:
    """Learn topics as the options say, here or on the workers of a cluster."""
    corpus, words, private = read.corpus, read.words, given["epsilon"] is not None
    kept, vocabulary, here = corpus.counted, None, given["scheduler"] is None
    if words is None:
        budget = {"epsilon": given["epsilon"], "delta": given["delta"], "groups": read.groups, "ledger": ledger}
        kept, vocabulary = keep_words(kept, **_pruning(given), **budget)
        if vocabulary is not None:
            note(_chosen(vocabulary))
    elif corpus.tokenizer == "words" and n_unreachable(words):
        note(f"{n_unreachable(words):,} of {len(words):,} words of {given['vocabulary']} occur in no text")
    train, held_out = _split(kept.counts, given["held_out"] if here and not private else 0.0, given["seed"])
    note(_opening(kept, train, held_out, private) if here else f"{_size(kept)}, on a cluster")
    public = None
    if given["public"] is not None:
        known = read_for_model(
            kept.words, (given["public"],), column=given["column"], show=show, tokenizer=corpus.tokenizer
        )
        public = known.counted.counts
        note(f"{public.shape[0]:,} public documents, which are NOT protected")
    guarantee = _guarantee(given, ledger) | {"public": public}
    # A model that knows its words is all that is needed to apply it to new texts.
    words_known: Any = {"words": kept.words, "tokenizer": corpus.tokenizer}
    model, messages = _fit(
        n_components, given, train, guarantee, groups=read.groups, vocabulary=vocabulary, callback=show, **words_known
    )
    counts = train if here else None
    if counts is not None and not private:
        show("measuring", 0, None)
    summary = summarise_topics(model, kept.words, counts, held_out, seed=given["seed"], advice=messages)
    return Learnt(model, summary, corpus, kept)


def _guarantee(given: dict[str, Any], ledger: LedgerFile | None) -> dict[str, Any]:
    """Return what a private model promises, as arguments; None for each if it is not private."""
    promised: dict[str, Any] = {name: given[name] for name in ("epsilon", "delta", "unit")}
    return promised | {"ledger": None if ledger is None else ledger.path}


def _fit(
    n_components: Any, given: dict[str, Any], counts: Any, guarantee: dict[str, Any], **further: Any
) -> tuple[TensorLDA, tuple[str, ...]]:
    """Return a fitted model, and the warnings of the fit, each once, in the words of the command line."""
    settings = {"max_iter": given["max_iter"], "random_state": given["seed"], "n_jobs": given["threads"]}
    seeds = None if given["seed_words"] is None else read_seed_words(given["seed_words"], given["tokenizer"])
    model = TensorLDA(n_components, seed_words=seeds, **settings, **guarantee)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(counts, **further)
    messages = (advice(each.message) for each in caught if isinstance(each.message, UserWarning))
    return model, tuple(dict.fromkeys(messages))


def _chosen(vocabulary: PrivateVocabulary) -> str:
    """Return a sentence about a vocabulary that was chosen privately."""
    (charge,) = vocabulary.privacy.charges
    return (
        f"{vocabulary.words.size:,} words chosen privately: their noisy votes reach {vocabulary.threshold:.1f}. "
        f"That is part of ε and δ (μ = {charge.mu:.3g}, δ' = {charge.delta:.3g}); topics get the rest"
    )


def _split(counts: Any, share: float, seed: int) -> tuple[Any, Any]:
    """Return training documents and held-out documents; None instead of these if the share gives none."""
    n_documents = counts.shape[0]
    n_held_out = round(share * n_documents)
    if n_held_out == 0:
        return counts, None
    order = np.random.default_rng(seed).permutation(n_documents)
    return counts[np.sort(order[n_held_out:])], counts[np.sort(order[:n_held_out])]


def _opening(kept: CountedWords, train: Any, held_out: Any, private: bool) -> str:
    """Return a sentence about the documents."""
    (n_documents, n_words), text = kept.counts.shape, _size(kept)
    if private:  # anything more would be released without noise
        return text
    if kept.n_found != n_words:
        text += f" kept of {kept.n_found:,}"
    text += f", {int(kept.counts.sum()) / max(n_documents, 1):.1f} of them in a document on average"
    return text if held_out is None else f"{text}; {train.shape[0]:,} training documents"


def _size(kept: CountedWords) -> str:
    n_documents, n_words = kept.counts.shape
    return f"{n_documents:,} documents, {n_words:,} words"


def print_plan(files: tuple[Path, ...], n_components: int, given: dict[str, Any], *, as_json: bool) -> None:
    """Print the plan of a private run from public numbers: the number of documents or users, and of words."""
    labels = load_groups(given["groups"])
    n_units = count_documents(files, given["column"]) if labels is None else np.unique(labels).size
    n_words, epsilon, delta = given["n_words"], given["epsilon"], given["delta"]
    check_delta_for(delta, n_units, given["unit"])
    chosen = given["vocabulary"] is None
    if chosen and n_words is None:
        raise click.UsageError(
            "--dry-run needs the number of words. Pass --vocabulary FILE, or --n-words V as a guess at how many words "
            "noisy votes will choose."
        )
    if chosen:
        epsilon, delta = left_for_learning(epsilon, delta)
    else:
        n_words = len(read_words(given["vocabulary"]))
    public = {"n_units": n_units, "n_words": n_words, "document_length": given["document_length"]}
    plan = plan_topics(n_components, epsilon=epsilon, delta=delta, seed=given["seed"], **public)
    if as_json:
        emit_json({"plan": plan, "n_expected": plan.n_expected})
        return
    if chosen:
        console().print(
            f"Choosing words by noisy votes takes {SHARE:.0%} of μ² and {DELTA_SHARE:.0%} of δ; topics get the rest.",
            markup=False,
            soft_wrap=True,
        )
    console().print(str(plan), markup=False, soft_wrap=True)
