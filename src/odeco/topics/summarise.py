"""What there is to say about learnt topics: their sizes, words, coherence, perplexity and best documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from odeco._types import FloatArray
from odeco.privacy import PrivacyReport
from odeco.topics.diagnostics import TopicDiagnostics
from odeco.topics.evaluate import coherence, completion_perplexity, split_documents
from odeco.topics.lda import TensorLDA
from odeco.topics.trust import TopicTrust
from odeco.topics.vocabulary import Words


@dataclass(frozen=True, eq=False)
class Perplexity:
    """How well half of a document's words predict the other half, for documents that were kept out.

    Attributes
    ----------
    topics, unigram : float
        Perplexity by the topics, and by the frequencies of words alone, as if there were no topics.
    n_documents : int
        How many documents were kept out.
    """

    topics: float
    unigram: float
    n_documents: int


@dataclass(frozen=True, eq=False)
class TopicSummary:
    """Topics as a reader wants them.

    Attributes
    ----------
    words : array of str
        The vocabulary.
    topic_word : array, k x V
        The topics.
    shares : array
        Share of all words that belongs to each topic.
    npmi : array, optional
        Coherence of each topic. It is not known of private topics, since the documents would have to be asked for it.
    perplexity : Perplexity, optional
        Known if documents were kept out.
    diagnostics : TopicDiagnostics
        How far to trust the topics.
    privacy : PrivacyReport, optional
        What is guaranteed to whom, if the topics are private.
    trust : TopicTrust, optional
        How far to trust private topics and their words.
    advice : tuple of str
        Warnings of the fit.
    """

    words: Words
    topic_word: FloatArray
    shares: FloatArray
    npmi: FloatArray | None
    perplexity: Perplexity | None
    diagnostics: TopicDiagnostics
    privacy: PrivacyReport | None
    trust: TopicTrust | None = None
    advice: tuple[str, ...] = ()

    def leading_words(self, topic: int, n_words: int) -> list[tuple[str, float]]:
        """Return the most probable words of a topic with their probabilities.

        Of a private topic, words whose probability is below twice the standard deviation of its noise are left out.
        """
        row = self.topic_word[topic]
        first = np.argsort(-row, kind="stable")
        if self.trust is not None:
            first = first[self.trust.clear_words(self.topic_word)[topic][first]]
        first = first[:n_words]
        return [(str(self.words[place]), float(row[place])) for place in first]


def summarise_topics(
    model: TensorLDA,
    words: Words | None = None,
    counts: Any = None,
    held_out: Any = None,
    *,
    seed: int = 0,
    advice: tuple[str, ...] = (),
) -> TopicSummary:
    """Collect what there is to say about a fitted model.

    Parameters
    ----------
    model : TensorLDA
        A model that was fitted to `counts`.
    words : array of str, optional
        The vocabulary; by default that of the model, or the numbers of its columns.
    counts : csr_array, documents x words, or None
        The documents. Those of a private model are not looked at. Without them coherence is not measured.
    held_out : csr_array, optional
        Documents that the model has not seen.
    seed : int
        Seed of the coin that deals the words of the held-out documents to two halves.
    advice : tuple of str
        Warnings of the fit.
    """
    privacy: PrivacyReport | None = getattr(model, "privacy_", None)
    return TopicSummary(
        words=model._names() if words is None else words,
        topic_word=model.topic_word_,
        shares=model.shares_,
        npmi=None if privacy is not None or counts is None else coherence(model.topic_word_, counts).npmi,
        perplexity=None if privacy is not None or held_out is None else _perplexity(model, counts, held_out, seed),
        diagnostics=model.diagnostics_,
        privacy=privacy,
        trust=None if privacy is None else model.trust_,
        advice=advice,
    )


def _perplexity(model: TensorLDA, counts: Any, held_out: Any, seed: int) -> Perplexity | None:
    observed, hidden = split_documents(held_out, np.random.default_rng(seed))
    if hidden.sum() == 0:
        return None
    # The prior count is that of a word in a topic, so that a word which is new in these documents is not impossible.
    unigram = np.asarray(counts.sum(axis=0), dtype=np.float64).ravel() + max(model.topic_word_prior_, 1e-9)
    n_jobs = -1 if model.n_jobs is None else model.n_jobs
    return Perplexity(
        topics=completion_perplexity(observed, hidden, model.topic_word_, model.doc_topic_prior_, n_jobs=n_jobs),
        unigram=completion_perplexity(observed, hidden, unigram[None, :], np.ones(1), n_jobs=n_jobs),
        n_documents=held_out.shape[0],
    )
