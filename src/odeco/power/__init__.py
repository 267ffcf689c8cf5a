"""The tensor power method as a solver: it takes in one oracle reply at a time and never sees data."""

from odeco.power.operator_norm import operator_norm
from odeco.power.schedule import Plan
from odeco.power.solver import Eigenpair, Search, run, step

__all__ = [
    "Eigenpair",
    "Plan",
    "Search",
    "operator_norm",
    "run",
    "step",
]
