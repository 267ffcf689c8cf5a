"""Decompositions under differential privacy: one recipe, a planner, and a registry of mechanisms."""

from odeco.private._planner import LEAST_SHARE, core_widths
from odeco.private._recipe import DEFAULT_ITERATIONS, decompose_privately, plan_privacy

__all__ = ["DEFAULT_ITERATIONS", "LEAST_SHARE", "core_widths", "decompose_privately", "plan_privacy"]
