"""Symmetric tensors as oracles: known only by their products T(I, u, …, u) with blocks of vectors."""

from odeco.tensors.asymmetric import AsymmetricTensor, SparseAsymmetricTensor
from odeco.tensors.components import Components, Match, incoherence, match
from odeco.tensors.dense import DenseTensor, as_oracle, symmetrize
from odeco.tensors.device import DeviceMoment, DeviceTensor
from odeco.tensors.flattened import FactoredTensor, FlattenedTensor
from odeco.tensors.oracle import Oracle, SensitiveOracle, check_oracle
from odeco.tensors.packed import PackedTensor, SparseTensor

__all__ = [
    "AsymmetricTensor",
    "Components",
    "DenseTensor",
    "DeviceMoment",
    "DeviceTensor",
    "FactoredTensor",
    "FlattenedTensor",
    "Match",
    "Oracle",
    "PackedTensor",
    "SensitiveOracle",
    "SparseAsymmetricTensor",
    "SparseTensor",
    "as_oracle",
    "check_oracle",
    "incoherence",
    "match",
    "symmetrize",
]
