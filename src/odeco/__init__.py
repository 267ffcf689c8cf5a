"""Learn the components of a symmetric tensor that is too large to store, too private to look at, or still arriving."""

from odeco._version import __version__
from odeco.checking import check_oracle
from odeco.components import Components
from odeco.decompose import decompose, decompose_asymmetric
from odeco.errors import (
    ConvergenceWarning,
    DominantColumnWarning,
    FileFormatError,
    NothingFoundError,
    RankError,
    StreamEndedError,
)
from odeco.metrics import match
from odeco.norms import incoherence, operator_norm
from odeco.oracle import Oracle, SensitiveOracle
from odeco.private import decompose_privately, plan_privacy
from odeco.result import PrivateDecomposition
from odeco.saving import load_result, save_result
from odeco.sources import SourceError
from odeco.streams import OnlineDecomposer, decompose_stream
from odeco.tensors import symmetrize

__all__ = [
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
    "decompose",
    "decompose_asymmetric",
    "decompose_privately",
    "decompose_stream",
    "incoherence",
    "load_result",
    "match",
    "operator_norm",
    "plan_privacy",
    "save_result",
    "symmetrize",
]
