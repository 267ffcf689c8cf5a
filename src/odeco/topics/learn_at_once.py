"""Topics are learnt from all documents at once: `TensorLDA.fit` without privacy."""

from __future__ import annotations

import numpy as np

from odeco.topics.basis import sum_moments
from odeco.topics.concentration import FoundTopics, find_topics
from odeco.topics.corpus import Corpus
from odeco.topics.evaluate import clearly_better, completion_scores
from odeco.topics.fitted import FittedTopics, fitted_by_shares
from odeco.topics.lda_settings import LdaSettings, Tell


def learn_at_once(corpus: Corpus, settings: LdaSettings, *, seed: int, tell: Tell) -> FittedTopics:
    """Learn topics from all documents; `tell` hears of every stage of the work."""
    sums = sum_moments(corpus, settings, seed=seed, tell=tell)
    sums.drop_basis()
    found = find_topics(sums, corpus, settings, seed=seed)
    del sums  # they may be large, and the sweeps take memory too
    fitted = _refined(corpus, found, settings, seed, tell) if settings.refine else None
    if fitted is None:
        n_tokens, prior = float(corpus.word_totals().sum()), settings.topic_word_prior
        fitted = fitted_by_shares(found.topics.topic_word, found.topics.alpha, n_tokens, prior, found.diagnostics)
    return fitted


def _refined(corpus: Corpus, found: FoundTopics, settings: LdaSettings, seed: int, tell: Tell) -> FittedTopics | None:
    """Return the topics after some Gibbs sweeps, or None if they do not predict the words of documents clearly better.

    Sweeps do not help where documents mix all topics evenly: the moments are then exact, and sweeps move slowly.
    """
    tell("sweeps", 0, settings.refine)
    spectral = found.topics
    refined = corpus.refined(
        spectral.topic_word,
        n_sweeps=settings.refine,
        seed=seed,
        eta=settings.topic_word_prior,
        callback=lambda sweep: tell("sweeps", sweep, settings.refine),
    )
    topic_word = refined.topic_word
    totals = corpus.word_totals()
    halves, frequencies = corpus.halves(seed), totals / totals.sum()
    before, after = (
        completion_scores(halves, topics, alpha, frequencies, n_jobs=settings.n_jobs)
        for topics, alpha in ((spectral.topic_word, spectral.alpha), (topic_word, refined.alpha))
    )
    if not clearly_better(after, before):
        return None
    sizes = refined.topic_counts.sum(axis=1, dtype=np.float64) + refined.eta * corpus.n_words
    return FittedTopics(topic_word, sizes, refined.alpha, refined.eta, found.diagnostics)
