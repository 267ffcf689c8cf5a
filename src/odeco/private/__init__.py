"""Decompositions under differential privacy: a recipe with its plan, and a registry of mechanisms."""

from odeco.private.recipe import decompose_privately, plan_privacy

__all__ = [
    "decompose_privately",
    "plan_privacy",
]
