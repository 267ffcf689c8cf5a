"""Fit topics to all documents at once: spectral topics, refined by Gibbs sweeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from odeco._util.types import FloatArray
from odeco.models.lda.corpus import Corpus, LocalCorpus
from odeco.models.lda.evaluate import clearly_better, completion_scores
from odeco.models.lda.moments import WordSums
from odeco.models.lda.params import TopicParams
from odeco.models.lda.settings import MAX_AUTO, Callback, LdaSettings
from odeco.models.lda.spectral import reduce_moments, sum_halves, sum_moments
from odeco.models.lda.start import SpectralFit, TopicSelection, fit_spectral, select_n_topics


def fit_topics(corpus: Corpus, settings: LdaSettings, *, seed: int, callback: Callback) -> TopicParams:
    """Fit topics to all documents; `callback` receives every stage of the work."""
    if settings.n_components == "auto":
        sums, number = _sums_and_number(corpus, settings, seed, callback)
        settings = replace(settings, n_components=number.n_components)
    else:
        (sums, settings), number = sum_moments(corpus, settings, seed=seed, callback=callback), None
    sums.drop_basis()
    found = fit_spectral(sums, corpus, settings, seed=seed)
    if number is not None:
        found = replace(found, diagnostics=replace(found.diagnostics, selection_scores=number.scores))
    del sums  # they may be large, and the sweeps take memory too
    fitted = _refined(corpus, found, settings, seed, callback) if settings.max_iter else None
    if fitted is None:
        n_tokens, prior = float(corpus.word_totals().sum()), settings.topic_word_prior
        fitted = TopicParams.from_shares(
            found.topics.topic_word, found.topics.alpha, n_tokens, prior, found.diagnostics
        )
    return fitted


def fit_public(counts: Any, settings: LdaSettings, *, seed: int) -> FloatArray:
    """Return how many words of each kind public documents have in each of their topics, k x V."""
    fitted = fit_topics(LocalCorpus(counts, settings), settings, seed=seed, callback=lambda *_: None)
    if fitted.alpha.size != settings.n_components:
        raise ValueError(
            "Public documents must have as many distinct words, and documents of three words, as there are topics. "
            f"Got n_components={settings.n_components}, and enough for {fitted.alpha.size}. Pass more of them, or none."
        )
    return np.maximum(fitted.topic_word * fitted.totals[:, None] - fitted.eta, 0.0)


def _sums_and_number(
    corpus: Corpus, settings: LdaSettings, seed: int, callback: Callback
) -> tuple[WordSums, TopicSelection]:
    """Return the moments of all documents, and the number of topics that their two halves agree on."""
    halves = sum_halves(corpus, settings, seed=seed, callback=callback)
    sums = halves[0] + halves[1]
    callback("number of topics", 0, 1)
    most = min(reduce_moments(sums, "auto").directions.shape[1], MAX_AUTO)
    return sums, select_n_topics(halves, most, concentration=settings.concentration, seed=seed)


def _refined(
    corpus: Corpus, found: SpectralFit, settings: LdaSettings, seed: int, callback: Callback
) -> TopicParams | None:
    """Return the topics after some Gibbs sweeps, or None if they do not predict the words of documents clearly better.

    Sweeps do not help where documents mix all topics evenly: the moments are then exact, and sweeps move slowly.
    """
    callback("sweeps", 0, settings.max_iter)
    spectral = found.topics
    refined = corpus.refined(
        spectral.topic_word,
        n_sweeps=settings.max_iter,
        seed=seed,
        eta=settings.topic_word_prior,
        callback=lambda sweep: callback("sweeps", sweep, settings.max_iter),
    )
    topic_word = refined.topic_word
    totals = corpus.word_totals()
    halves, frequencies = corpus.completion_halves(seed), totals / totals.sum()
    before, after = (
        completion_scores(halves, topics, alpha, frequencies, n_jobs=settings.n_jobs)
        for topics, alpha in ((spectral.topic_word, spectral.alpha), (topic_word, refined.alpha))
    )
    if not clearly_better(after, before):
        return None
    sizes = refined.topic_counts.sum(axis=1, dtype=np.float64) + refined.eta * corpus.n_words
    return TopicParams(topic_word, sizes, refined.alpha, refined.eta, found.diagnostics)
