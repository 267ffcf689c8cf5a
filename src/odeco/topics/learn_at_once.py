"""Topics are learnt from all documents at once: `TensorLDA.fit` without privacy."""

from __future__ import annotations

from typing import Any

import numpy as np

from odeco._types import FloatArray
from odeco.topics.basis import sum_moments
from odeco.topics.concentration import FoundTopics, find_topics
from odeco.topics.evaluate import clearly_better, completion_scores, split_sample
from odeco.topics.fitted import FittedTopics, fitted_by_shares
from odeco.topics.lda_settings import LdaSettings, Tell
from odeco.topics.refine import refine_topics


def learn_at_once(counts: Any, settings: LdaSettings, *, seed: int, tell: Tell) -> FittedTopics:
    """Learn topics from the checked counts of all documents; `tell` hears of every stage of the work."""
    sums = sum_moments(counts, settings, seed=seed, tell=tell)
    sums.drop_basis()
    found = find_topics(sums, counts, settings, seed=seed)
    del sums  # they may be large, and the sweeps take memory too
    fitted = _refined(counts, found, settings, seed, tell) if settings.refine else None
    if fitted is None:
        n_tokens, prior = float(counts.sum()), settings.topic_word_prior
        fitted = fitted_by_shares(found.topics.topic_word, found.topics.alpha, n_tokens, prior, found.diagnostics)
    return fitted


def learn_public(counts: Any, settings: LdaSettings, *, seed: int) -> FloatArray:
    """Return how many words of each kind public documents have in each of their topics, k x V."""
    fitted = learn_at_once(counts, settings, seed=seed, tell=lambda *_: None)
    return np.maximum(fitted.topic_word * fitted.totals[:, None] - fitted.eta, 0.0)


def _refined(counts: Any, found: FoundTopics, settings: LdaSettings, seed: int, tell: Tell) -> FittedTopics | None:
    """Return the topics after some Gibbs sweeps, or None if they do not predict the words of documents clearly better.

    Sweeps do not help where documents mix all topics evenly: the moments are then exact, and sweeps move slowly.
    """
    tell("sweeps", 0, settings.refine)
    spectral = found.topics
    refined = refine_topics(
        counts.astype(np.int64),
        spectral.topic_word,
        n_sweeps=settings.refine,
        seed=seed,
        n_jobs=settings.n_jobs,
        eta=settings.topic_word_prior,
        callback=lambda sweep: tell("sweeps", sweep, settings.refine),
    )
    topic_word = refined.topic_word
    halves, frequencies = split_sample(counts, seed=seed), np.asarray(counts.sum(axis=0)) / counts.sum()
    before, after = (
        completion_scores(halves, topics, alpha, frequencies, n_jobs=settings.n_jobs)
        for topics, alpha in ((spectral.topic_word, spectral.alpha), (topic_word, refined.alpha))
    )
    if not clearly_better(after, before):
        return None
    totals = refined.topic_counts.sum(axis=1, dtype=np.float64) + refined.eta * counts.shape[1]
    return FittedTopics(topic_word, totals, refined.alpha, refined.eta, found.diagnostics)
