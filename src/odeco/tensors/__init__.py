"""Tensors given by their entries: dense, packed, sparse and asymmetric arrays as oracles."""

from odeco.tensors._asymmetric import AsymmetricTensor
from odeco.tensors._checks import check_finite, check_symmetric
from odeco.tensors._dense import DenseTensor, as_oracle, symmetrize
from odeco.tensors._packed import PackedTensor, sorted_tuples
from odeco.tensors._sparse import SparseTensor
from odeco.tensors._units import InUnit

__all__ = [
    "AsymmetricTensor",
    "DenseTensor",
    "InUnit",
    "PackedTensor",
    "SparseTensor",
    "as_oracle",
    "check_finite",
    "check_symmetric",
    "sorted_tuples",
    "symmetrize",
]
