"""What a topic model has learnt, however it was learnt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from odeco._types import FloatArray
from odeco.topics.diagnostics import TopicDiagnostics

#: Prior count of every word in every topic where none is given and none is learnt.
DEFAULT_TOPIC_WORD_PRIOR = 0.01


@dataclass(frozen=True, eq=False)
class LearntTopics:
    """Topics, their sizes and priors.

    Attributes
    ----------
    topic_word : array, k x V
        The topics; rows are distributions.
    totals : array
        Words in each topic, prior counts included.
    alpha : array
        Dirichlet parameters of the proportions of topics in a document.
    eta : float
        Prior count of every word in every topic.
    diagnostics : TopicDiagnostics
        How far to trust the spectral topics.
    """

    topic_word: FloatArray
    totals: FloatArray
    alpha: FloatArray
    eta: float
    diagnostics: TopicDiagnostics


def smoothed(
    topic_word: FloatArray, alpha: FloatArray, n_words: float, eta: float | None, diagnostics: TopicDiagnostics
) -> LearntTopics:
    """Return topics that share so many words by their Dirichlet parameters, with the prior added, in place."""
    prior = DEFAULT_TOPIC_WORD_PRIOR if eta is None else eta
    sizes = n_words * alpha / alpha.sum()
    totals = sizes + prior * topic_word.shape[1]
    topic_word *= (sizes / totals)[:, None]
    topic_word += (prior / totals)[:, None]
    return LearntTopics(topic_word, totals, alpha, prior, diagnostics)


def counted(topic_counts: Any, alpha: FloatArray, eta: float, diagnostics: TopicDiagnostics) -> LearntTopics:
    """Return topics by the number of words of each kind in each topic, with the prior added."""
    totals = topic_counts.sum(axis=1, dtype=np.float64) + eta * topic_counts.shape[1]
    topic_word = topic_counts.astype(np.float64)
    topic_word += eta
    topic_word /= totals[:, None]
    return LearntTopics(topic_word, totals, alpha, float(eta), diagnostics)
