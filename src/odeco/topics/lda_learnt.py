"""What a TensorLDA has learnt, as the attributes of a fitted estimator."""

from __future__ import annotations

from typing import cast

from odeco._types import FloatArray
from odeco.privacy import PrivacyReport
from odeco.topics.diagnostics import TopicDiagnostics
from odeco.topics.fitted import FittedTopics
from odeco.topics.learn_in_batches import TopicStream
from odeco.topics.learn_privately_in_batches import PrivateTopicStream
from odeco.topics.trust import TopicTrust


class LearntTopics:
    """The learnt side of a TensorLDA: topics, priors, diagnostics, guarantee; worked out anew after every batch."""

    _fitted: FittedTopics | None
    _stream: TopicStream | PrivateTopicStream | None
    n_documents_: int
    n_components_: int

    @property
    def topic_word_(self) -> FloatArray:
        """Topics as distributions over words, k x V."""
        return self._fitted_topics("topic_word_").topic_word

    @property
    def components_(self) -> FloatArray:
        """Topics as pseudo-counts, k x V."""
        fitted = self._fitted_topics("components_")
        return fitted.topic_word * fitted.totals[:, None]

    @property
    def doc_topic_prior_(self) -> FloatArray:
        """Dirichlet parameters of the proportions of topics in a document."""
        return self._fitted_topics("doc_topic_prior_").alpha

    @property
    def topic_word_prior_(self) -> float:
        """Prior count of every word in every topic."""
        return self._fitted_topics("topic_word_prior_").eta

    @property
    def diagnostics_(self) -> TopicDiagnostics:
        """How far to trust the spectral topics."""
        return self._fitted_topics("diagnostics_").diagnostics

    @property
    def privacy_(self) -> PrivacyReport:
        """What is guaranteed about the topics, if they are private: it belongs to them and goes with them."""
        privacy = self._fitted_topics("privacy_").privacy
        if privacy is None:
            raise AttributeError("`privacy_` is what a private model has. This TensorLDA was learnt without privacy.")
        return privacy

    @property
    def trust_(self) -> TopicTrust:
        """How far to trust the topics of a private model, and their words."""
        trust = self._fitted_topics("trust_").trust
        if trust is None:
            raise AttributeError("`trust_` is what a private model has. This TensorLDA was learnt without privacy.")
        return trust

    def _fitted_topics(self, name: str) -> FittedTopics:
        """Return what was learnt, worked out anew if documents have come since; `name` is what the caller wants."""
        if not self.__sklearn_is_fitted__():
            raise AttributeError(f"`{name}` must be learnt first. This TensorLDA is not fitted. Call fit.")
        if self._fitted is None and self._stream is not None:
            self._fitted = self._stream.fitted()
        return cast("FittedTopics", self._fitted)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_documents_")
