"""The parameters of a fitted topic model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from odeco._util.types import FloatArray
from odeco.models.lda.diagnostics import TopicDiagnostics
from odeco.models.lda.trust import TopicTrust
from odeco.privacy.report import PrivacyReport

#: Prior count of every word in every topic where none is given and none is learnt.
_DEFAULT_TOPIC_WORD_PRIOR = 0.01


@dataclass(frozen=True, eq=False)
class FittedTopics:
    """Topics with their sizes, their priors and their diagnostics.

    Attributes
    ----------
    topic_word : array, k x V
        The topics; rows are distributions.
    totals : array
        Number of words in each topic, prior counts included.
    alpha : array
        Dirichlet parameters of the proportions of topics in a document.
    eta : float
        Prior count of every word in every topic.
    diagnostics : TopicDiagnostics
        How far to trust the spectral topics.
    privacy : PrivacyReport or None
        What is guaranteed about these topics, and about no others; None if nothing is.
    trust : TopicTrust or None
        How far to trust private topics; None of others.
    n_iter : int
        Number of Gibbs sweeps over each document, or of EM steps of a private model.
    """

    topic_word: FloatArray
    totals: FloatArray
    alpha: FloatArray
    eta: float
    diagnostics: TopicDiagnostics
    privacy: PrivacyReport | None = None
    trust: TopicTrust | None = None
    n_iter: int = 0

    def by_share(self) -> FittedTopics:
        """Return topics without privacy in the order of their sizes, largest first, with what is said about them."""
        order = np.argsort(-self.totals, kind="stable")
        if np.array_equal(order, np.arange(order.size)):
            return self
        found = self.diagnostics
        of_topics = {name: getattr(found, name)[order] for name in ("weights", "residuals", "negative_mass")}
        return replace(
            self,
            topic_word=self.topic_word[order],
            totals=self.totals[order],
            alpha=self.alpha[order],
            diagnostics=replace(found, **of_topics),
        )


def fitted_by_shares(
    topic_word: FloatArray, alpha: FloatArray, n_tokens: float, eta: float | None, diagnostics: TopicDiagnostics
) -> FittedTopics:
    """Return topics that share `n_tokens` words in proportion to `alpha`; adds the prior to `topic_word` in place."""
    prior = _DEFAULT_TOPIC_WORD_PRIOR if eta is None else eta
    sizes = n_tokens * alpha / alpha.sum()
    totals = sizes + prior * topic_word.shape[1]
    topic_word *= (sizes / totals)[:, None]
    topic_word += (prior / totals)[:, None]
    return FittedTopics(topic_word, totals, alpha, prior, diagnostics)


def fitted_by_counts(topic_counts: Any, alpha: FloatArray, eta: float, diagnostics: TopicDiagnostics) -> FittedTopics:
    """Return topics that are given by the number of words of each kind in each topic, with the prior added."""
    totals = topic_counts.sum(axis=1, dtype=np.float64) + eta * topic_counts.shape[1]
    topic_word = topic_counts.astype(np.float64)
    topic_word += eta
    topic_word /= totals[:, None]
    return FittedTopics(topic_word, totals, alpha, float(eta), diagnostics)
