"""scikit-learn estimators: topics."""

from odeco.errors import UnreliableTopicsWarning
from odeco.topics.diagnostics import TopicDiagnostics
from odeco.topics.lda import TensorLDA
from odeco.topics.private_vocabulary import PrivateVocabulary, choose_vocabulary_privately
from odeco.topics.summarise import TopicSummary, summarise_topics

__all__ = [
    "PrivateVocabulary",
    "TensorLDA",
    "TopicDiagnostics",
    "TopicSummary",
    "UnreliableTopicsWarning",
    "choose_vocabulary_privately",
    "summarise_topics",
]
