"""From files to topics: documents are read, words pruned, some documents kept out, topics learnt and measured."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from odeco.cli._faults import advice
from odeco.cli._inputs import load_groups
from odeco.cli._output import note
from odeco.cli._topics_input import Corpus, Show, read_corpus, read_for_model, read_stop_words, read_words
from odeco.models import TensorLDA, TopicSummary, summarise_topics
from odeco.topics.private_vocabulary import PrivateVocabulary, choose_vocabulary_privately
from odeco.topics.vocabulary import CountedWords, n_never_counted, prune_words, select_words


@dataclass(frozen=True, eq=False)
class Learnt:
    """A fitted model, what there is to say about it, and the documents: as they were read, and as they were counted."""

    model: TensorLDA
    summary: TopicSummary
    corpus: Corpus
    kept: CountedWords


def learn(files: tuple[Path, ...], n_components: Any, given: dict[str, Any], *, private: bool, show: Show) -> Learnt:
    """Learn topics as the options say."""
    words = None if given["vocabulary"] is None else read_words(given["vocabulary"], given["cut"])
    labels = load_groups(given["groups"])
    corpus = read_corpus(
        files,
        column=given["column"],
        words=words,
        cut=given["cut"],
        show=show,
        private=private,
        keep_excerpts=given["report"] is not None and not private,
    )
    kept, vocabulary = corpus.counted, None
    if words is None and private:
        vocabulary = choose_vocabulary_privately(
            corpus.counted,
            epsilon=given["epsilon"],
            delta=given["delta"],
            groups=labels,
            max_words=given["max_words"],
            stop_words=read_stop_words(given["stop_words"]),
        )
        kept = select_words(corpus.counted, vocabulary.words.tolist())
        note(_chosen(vocabulary))
    elif words is None:
        kept = prune_words(
            kept,
            min_documents=given["min_documents"],
            max_share=given["max_share"],
            max_words=given["max_words"],
            stop_words=read_stop_words(given["stop_words"]),
        )
    elif corpus.cut == "words" and n_never_counted(words):
        note(f"{n_never_counted(words):,} of {len(words):,} words of {given['vocabulary']} are no words of any text")
    train, held_out = _split(kept.counts, 0.0 if private else given["held_out"], given["seed"])
    note(_opening(kept, train, held_out, private))
    public = None
    if given["public"] is not None:
        read = read_for_model(kept.words, (given["public"],), column=given["column"], show=show, cut=corpus.cut)
        public = read.counted.counts
        note(f"{public.shape[0]:,} public documents, which are NOT protected")
    model = TensorLDA(
        n_components,
        refine=given["refine"],
        epsilon=given["epsilon"],
        delta=given["delta"],
        unit=given["unit"],
        public=public,
        random_state=given["seed"],
        n_jobs=given["threads"],
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # A model that knows its words is all that is needed to apply it to new texts.
        model.fit(train, groups=labels, vocabulary=vocabulary, words=kept.words, cut=corpus.cut, callback=show)
    told = tuple(dict.fromkeys(advice(each.message) for each in caught if isinstance(each.message, UserWarning)))
    show("measuring", 0, None)
    summary = summarise_topics(model, kept.words, train, held_out, seed=given["seed"], advice=told)
    return Learnt(model, summary, corpus, kept)


def _chosen(vocabulary: PrivateVocabulary) -> str:
    """Return a sentence about a vocabulary that was read off the documents."""
    (charge,) = vocabulary.privacy.charges
    return (
        f"{vocabulary.words.size:,} words chosen under privacy: their noisy votes reach {vocabulary.threshold:.1f}. "
        f"That is part of ε and δ (μ = {charge.mu:.3g}, δ' = {charge.delta:.3g}); topics get the rest"
    )


def _split(counts: Any, share: float, seed: int) -> tuple[Any, Any]:
    """Return documents to learn from, and others to measure with; None instead of these if there are too few."""
    n_documents = counts.shape[0]
    n_held_out = round(share * n_documents)
    if n_held_out == 0:
        return counts, None
    order = np.random.default_rng(seed).permutation(n_documents)
    return counts[np.sort(order[n_held_out:])], counts[np.sort(order[:n_held_out])]


def _opening(kept: CountedWords, train: Any, held_out: Any, private: bool) -> str:
    """Return a sentence about the documents."""
    n_documents, n_words = kept.counts.shape
    text = f"{n_documents:,} documents, {n_words:,} words"
    if private:  # anything more would be an answer without noise
        return text
    if kept.n_found != n_words:
        text += f" kept of {kept.n_found:,}"
    text += f", {int(kept.counts.sum()) / max(n_documents, 1):.1f} of them in a document on average"
    return text if held_out is None else f"{text}; {train.shape[0]:,} documents to learn from"
