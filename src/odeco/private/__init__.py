"""Decompositions under differential privacy: a recipe with its plan, a registry of mechanisms, subspaces and bounds."""

from odeco.private.bound import PrivateBound, choose_norm_bound
from odeco.private.recipe import decompose_privately, plan_privacy
from odeco.private.subspace import PrivateSubspace, SubspacePlan, plan_subspace, private_subspace

__all__ = [
    "PrivateBound",
    "PrivateSubspace",
    "SubspacePlan",
    "choose_norm_bound",
    "decompose_privately",
    "plan_privacy",
    "plan_subspace",
    "private_subspace",
]
