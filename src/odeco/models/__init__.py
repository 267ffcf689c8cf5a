"""scikit-learn estimators: topics, independent sources, communities."""

from odeco.errors import UnreliableTopicsWarning
from odeco.graphs.estimator import Communities
from odeco.signals.estimator import TensorICA
from odeco.topics.diagnostics import TopicDiagnostics
from odeco.topics.lda import TensorLDA
from odeco.topics.plan_topics import TopicsPlan, plan_topics
from odeco.topics.private_vocabulary import PrivateVocabulary, choose_vocabulary_privately
from odeco.topics.summarise import TopicSummary, summarise_topics
from odeco.topics.trust import TopicTrust

__all__ = [
    "Communities",
    "PrivateVocabulary",
    "TensorICA",
    "TensorLDA",
    "TopicDiagnostics",
    "TopicSummary",
    "TopicTrust",
    "TopicsPlan",
    "UnreliableTopicsWarning",
    "choose_vocabulary_privately",
    "plan_topics",
    "summarise_topics",
]
