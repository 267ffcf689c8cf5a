from odeco.errors import UnreliableTopicsWarning as UnreliableTopicsWarning
from odeco.models.engine.private import PrivatePlan as PrivatePlan
from odeco.models.gmm.estimator import TensorMixture as TensorMixture
from odeco.models.gmm.private import plan_mixture as plan_mixture
from odeco.models.hmm.estimator import TensorHMM as TensorHMM
from odeco.models.hmm.private import plan_hmm as plan_hmm
from odeco.models.ica.estimator import TensorICA as TensorICA
from odeco.models.ica.private import plan_sources as plan_sources
from odeco.models.lca.estimator import LatentClasses as LatentClasses
from odeco.models.lca.private import plan_classes as plan_classes
from odeco.models.lda.estimator import TensorLDA as TensorLDA
from odeco.models.lda.params import TopicDiagnostics as TopicDiagnostics
from odeco.models.lda.params import TopicTrust as TopicTrust
from odeco.models.lda.private import plan_topics as plan_topics
from odeco.models.lda.private_vocabulary import PrivateVocabulary as PrivateVocabulary
from odeco.models.lda.private_vocabulary import (
    choose_vocabulary_privately as choose_vocabulary_privately,
)
from odeco.models.lda.use import GroupShares as GroupShares
from odeco.models.mmsb.estimator import Communities as Communities
from odeco.models.mmsb.private import plan_communities as plan_communities
from odeco.models.synthetic.plan import plan_synthesis as plan_synthesis
from odeco.models.synthetic.result import SyntheticData as SyntheticData
