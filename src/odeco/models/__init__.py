"""scikit-learn estimators: topics."""

from odeco.errors import UnreliableTopicsWarning
from odeco.topics.diagnostics import TopicDiagnostics
from odeco.topics.lda import TensorLDA
from odeco.topics.summarise import TopicSummary, summarise_topics

__all__ = ["TensorLDA", "TopicDiagnostics", "TopicSummary", "UnreliableTopicsWarning", "summarise_topics"]
