"""Decompose a tensor; the results of all decompositions, their files and pages."""

from odeco.decompose.asymmetric import decompose_asymmetric
from odeco.decompose.files import load_result, save_result
from odeco.decompose.result import (
    AsymmetricDecomposition,
    Decomposition,
    PrivateDecomposition,
    PrivateStreamDecomposition,
    StreamDecomposition,
    Structure,
)
from odeco.decompose.symmetric import decompose

__all__ = [
    "AsymmetricDecomposition",
    "Decomposition",
    "PrivateDecomposition",
    "PrivateStreamDecomposition",
    "StreamDecomposition",
    "Structure",
    "decompose",
    "decompose_asymmetric",
    "load_result",
    "save_result",
]
