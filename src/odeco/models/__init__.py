"""scikit-learn estimators: topics."""

from odeco.models._lda import TensorLDA
from odeco.models._topic_diagnostics import TopicDiagnostics, UnreliableTopicsWarning
from odeco.models._topic_summary import TopicSummary, summarise_topics

__all__ = ["TensorLDA", "TopicDiagnostics", "TopicSummary", "UnreliableTopicsWarning", "summarise_topics"]
