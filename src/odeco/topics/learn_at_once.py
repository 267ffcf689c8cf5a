"""Topics are learnt from all documents at once: `TensorLDA.fit` without privacy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from odeco._types import FloatArray
from odeco.topics.basis import sum_halves, sum_moments
from odeco.topics.concentration import FoundTopics, find_topics
from odeco.topics.corpus import Corpus, CorpusHere
from odeco.topics.evaluate import clearly_better, completion_scores
from odeco.topics.fitted import FittedTopics, fitted_by_shares
from odeco.topics.lda_settings import MOST_AUTOMATIC, LdaSettings, Tell
from odeco.topics.moments import WordSums
from odeco.topics.number_of_topics import NumberOfTopics, choose_number
from odeco.topics.spectral import reduce_moments


def learn_at_once(corpus: Corpus, settings: LdaSettings, *, seed: int, tell: Tell) -> FittedTopics:
    """Learn topics from all documents; `tell` hears of every stage of the work."""
    if settings.n_components == "auto":
        sums, number = _sums_and_number(corpus, settings, seed, tell)
        settings = replace(settings, n_components=number.n_components)
    else:
        (sums, settings), number = sum_moments(corpus, settings, seed=seed, tell=tell), None
    sums.drop_basis()
    found = find_topics(sums, corpus, settings, seed=seed)
    if number is not None:
        found = replace(found, diagnostics=replace(found.diagnostics, tried=number.tried))
    del sums  # they may be large, and the sweeps take memory too
    fitted = _refined(corpus, found, settings, seed, tell) if settings.refine else None
    if fitted is None:
        n_tokens, prior = float(corpus.word_totals().sum()), settings.topic_word_prior
        fitted = fitted_by_shares(found.topics.topic_word, found.topics.alpha, n_tokens, prior, found.diagnostics)
    return fitted


def learn_public(counts: Any, settings: LdaSettings, *, seed: int) -> FloatArray:
    """Return how many words of each kind public documents have in each of their topics, k x V."""
    fitted = learn_at_once(CorpusHere(counts, settings), settings, seed=seed, tell=lambda *_: None)
    if fitted.alpha.size != settings.n_components:
        raise ValueError(
            "Public documents must have as many distinct words, and documents of three words, as there are topics. "
            f"Got n_components={settings.n_components}, and enough for {fitted.alpha.size}. Pass more of them, or none."
        )
    return np.maximum(fitted.topic_word * fitted.totals[:, None] - fitted.eta, 0.0)


def _sums_and_number(corpus: Corpus, settings: LdaSettings, seed: int, tell: Tell) -> tuple[WordSums, NumberOfTopics]:
    """Return the moments of all documents, and the number of topics that their two halves agree on."""
    halves = sum_halves(corpus, settings, seed=seed, tell=tell)
    sums = halves[0] + halves[1]
    tell("number of topics", 0, 1)
    most = min(reduce_moments(sums, "auto").directions.shape[1], MOST_AUTOMATIC)
    return sums, choose_number(halves, most, concentration=settings.concentration, seed=seed)


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
