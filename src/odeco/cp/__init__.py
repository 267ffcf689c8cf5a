"""Least-squares CP decomposition: starts, Gauss-Newton, rank selection, error bars, whitening."""

from odeco.cp.rank import RankEvidence
from odeco.cp.whitening import Whitened, Whitener

__all__ = [
    "RankEvidence",
    "Whitened",
    "Whitener",
]
