"""scikit-learn estimators: topics."""

from odeco.topics.diagnostics import TopicDiagnostics, UnreliableTopicsWarning
from odeco.topics.lda import TensorLDA
from odeco.topics.summary import TopicSummary, summarise_topics

__all__ = ["TensorLDA", "TopicDiagnostics", "TopicSummary", "UnreliableTopicsWarning", "summarise_topics"]
