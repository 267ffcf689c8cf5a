"""Decompose a tensor; the results of all decompositions, their files and pages."""

from odeco._util.lazy import make_lazy

make_lazy(__name__)
