"""Learn the components of a symmetric tensor that is too large to store, too private to look at, or still arriving."""

from odeco._checks import ConvergenceWarning, FileFormatError, NothingFoundError, RankError, StreamEndedError
from odeco.checking import check_oracle
from odeco.components import Components
from odeco.decompose import decompose, decompose_asymmetric
from odeco.metrics import match
from odeco.norms import incoherence, operator_norm
from odeco.online import OnlineDecomposer
from odeco.oracle import Oracle, SensitiveOracle
from odeco.private import PrivateDecomposition, decompose_privately, plan_privacy
from odeco.sources import SourceError
from odeco.stream import decompose_stream
from odeco.tensors import symmetrize

__version__ = "0.1.0"

__all__ = [
    "Components",
    "ConvergenceWarning",
    "FileFormatError",
    "NothingFoundError",
    "OnlineDecomposer",
    "Oracle",
    "PrivateDecomposition",
    "RankError",
    "SensitiveOracle",
    "SourceError",
    "StreamEndedError",
    "check_oracle",
    "decompose",
    "decompose_asymmetric",
    "decompose_privately",
    "decompose_stream",
    "incoherence",
    "match",
    "operator_norm",
    "plan_privacy",
    "symmetrize",
]
