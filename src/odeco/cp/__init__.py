"""Least-squares CP decomposition: starts, Gauss-Newton, rank selection, error bars, whitening."""

from odeco.cp.rank import RankEvidence
from odeco.cp.structure import Structure
from odeco.cp.whitening import Whitened, Whitener

__all__ = [
    "RankEvidence",
    "Structure",
    "Whitened",
    "Whitener",
]
