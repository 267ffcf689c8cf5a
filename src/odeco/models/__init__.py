"""scikit-learn estimators: topics, mixtures, sequences, sources, latent classes, communities."""

from odeco._util.extras import needed_by

with needed_by("odeco.models"):
    from odeco.errors import UnreliableTopicsWarning
    from odeco.models.engine.private import PrivatePlan
    from odeco.models.gmm.estimator import TensorMixture
    from odeco.models.gmm.private import plan_mixture
    from odeco.models.hmm.estimator import TensorHMM
    from odeco.models.hmm.private import plan_hmm
    from odeco.models.ica.estimator import TensorICA
    from odeco.models.lca.estimator import LatentClasses
    from odeco.models.lca.private import plan_classes
    from odeco.models.lda.display import TopicSummary, summarise_topics
    from odeco.models.lda.estimator import TensorLDA
    from odeco.models.lda.params import TopicDiagnostics, TopicTrust
    from odeco.models.lda.private_plan import plan_topics
    from odeco.models.lda.private_vocabulary import PrivateVocabulary, choose_vocabulary_privately
    from odeco.models.lda.use import GroupShares
    from odeco.models.mmsb.estimator import Communities

__all__ = [
    "Communities",
    "GroupShares",
    "LatentClasses",
    "PrivatePlan",
    "PrivateVocabulary",
    "TensorHMM",
    "TensorICA",
    "TensorLDA",
    "TensorMixture",
    "TopicDiagnostics",
    "TopicSummary",
    "TopicTrust",
    "UnreliableTopicsWarning",
    "choose_vocabulary_privately",
    "plan_classes",
    "plan_hmm",
    "plan_mixture",
    "plan_topics",
    "summarise_topics",
]
