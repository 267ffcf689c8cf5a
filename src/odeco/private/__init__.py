"""Decompositions under differential privacy: a recipe with its plan, and a registry of mechanisms."""

from odeco._util.lazy import make_lazy

make_lazy(__name__)
