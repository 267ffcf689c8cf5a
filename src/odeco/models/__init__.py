"""scikit-learn estimators: topics, latent classes."""

from odeco.answers.estimator import LatentClasses
from odeco.answers.plan_classes import ClassesPlan, plan_classes
from odeco.errors import UnreliableTopicsWarning
from odeco.topics.diagnostics import TopicDiagnostics
from odeco.topics.lda import TensorLDA
from odeco.topics.plan_topics import TopicsPlan, plan_topics
from odeco.topics.private_vocabulary import PrivateVocabulary, choose_vocabulary_privately
from odeco.topics.summarise import TopicSummary, summarise_topics
from odeco.topics.trust import TopicTrust

__all__ = [
    "ClassesPlan",
    "LatentClasses",
    "PrivateVocabulary",
    "TensorLDA",
    "TopicDiagnostics",
    "TopicSummary",
    "TopicTrust",
    "TopicsPlan",
    "UnreliableTopicsWarning",
    "choose_vocabulary_privately",
    "plan_classes",
    "plan_topics",
    "summarise_topics",
]
