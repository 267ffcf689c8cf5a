"""Learn the components of a symmetric tensor that is too large to store, too private to look at, or still arriving."""

from odeco import paper
from odeco._util import __version__
from odeco.decompose.asymmetric import decompose_asymmetric
from odeco.decompose.files import load_result, save_result
from odeco.decompose.result import PrivateDecomposition
from odeco.decompose.symmetric import decompose
from odeco.errors import (
    ClusterError,
    ConvergenceWarning,
    DominantColumnWarning,
    FileFormatError,
    NothingFoundError,
    RankError,
    SourceError,
    StreamEndedError,
)
from odeco.online.decomposer import OnlineDecomposer
from odeco.online.halves import split_half
from odeco.online.partial import partial_sum
from odeco.online.stream import decompose_stream
from odeco.power.operator_norm import operator_norm
from odeco.private.bound import choose_norm_bound
from odeco.private.recipe import decompose_privately, plan_privacy
from odeco.private.subspace import plan_subspace, private_subspace
from odeco.tensors.components import Components, incoherence, match
from odeco.tensors.dense import symmetrize
from odeco.tensors.oracle import Oracle, SensitiveOracle, check_oracle

__all__ = [
    "ClusterError",
    "Components",
    "ConvergenceWarning",
    "DominantColumnWarning",
    "FileFormatError",
    "NothingFoundError",
    "OnlineDecomposer",
    "Oracle",
    "PrivateDecomposition",
    "RankError",
    "SensitiveOracle",
    "SourceError",
    "StreamEndedError",
    "__version__",
    "check_oracle",
    "choose_norm_bound",
    "decompose",
    "decompose_asymmetric",
    "decompose_privately",
    "decompose_stream",
    "incoherence",
    "load_result",
    "match",
    "operator_norm",
    "paper",
    "partial_sum",
    "plan_privacy",
    "plan_subspace",
    "private_subspace",
    "save_result",
    "split_half",
    "symmetrize",
]
