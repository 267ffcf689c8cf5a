"""The tensor power method as a solver: it advances by one oracle reply at a time and never sees data."""

from odeco.power.operator_norm import operator_norm
from odeco.power.power_method import Eigenpair, PowerSolver, Schedule, run, step

__all__ = ["Eigenpair", "PowerSolver", "Schedule", "operator_norm", "run", "step"]
