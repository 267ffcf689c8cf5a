"""scikit-learn estimators: topics, mixtures, sequences, sources, latent classes, communities."""

from odeco._extras import needed_by

with needed_by("odeco.models"):
    from odeco.answers.estimator import LatentClasses
    from odeco.answers.plan_classes import ClassesPlan, plan_classes
    from odeco.errors import UnreliableTopicsWarning
    from odeco.graphs.estimator import Communities
    from odeco.mixtures.estimator import TensorMixture
    from odeco.mixtures.plan_mixture import MixturePlan, plan_mixture
    from odeco.sequences.estimator import TensorHMM
    from odeco.signals.estimator import TensorICA
    from odeco.topics.diagnostics import TopicDiagnostics
    from odeco.topics.lda import TensorLDA
    from odeco.topics.plan_topics import TopicsPlan, plan_topics
    from odeco.topics.private_vocabulary import PrivateVocabulary, choose_vocabulary_privately
    from odeco.topics.summarise import TopicSummary, summarise_topics
    from odeco.topics.trust import TopicTrust

__all__ = [
    "ClassesPlan",
    "Communities",
    "LatentClasses",
    "MixturePlan",
    "PrivateVocabulary",
    "TensorHMM",
    "TensorICA",
    "TensorLDA",
    "TensorMixture",
    "TopicDiagnostics",
    "TopicSummary",
    "TopicTrust",
    "TopicsPlan",
    "UnreliableTopicsWarning",
    "choose_vocabulary_privately",
    "plan_classes",
    "plan_mixture",
    "plan_topics",
    "summarise_topics",
]
