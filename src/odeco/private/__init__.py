"""Decompositions under differential privacy: one recipe, a planner, and a registry of mechanisms."""

from odeco.private._arguments import AUTO, default_neighbours
from odeco.private._recipe import DEFAULT_ITERATIONS, decompose_privately, plan_privacy
from odeco.private.mechanisms import MECHANISMS

__all__ = ["AUTO", "DEFAULT_ITERATIONS", "MECHANISMS", "decompose_privately", "default_neighbours", "plan_privacy"]
