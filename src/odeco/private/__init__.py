"""Decompositions under differential privacy: a recipe with its plan, a registry of mechanisms,
subspaces and bounds.
"""

from odeco._util.lazy import make_lazy

make_lazy(__name__)
