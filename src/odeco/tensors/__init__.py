"""Symmetric tensors as oracles: known only by their products T(I, u, …, u) with blocks of
vectors.
"""

from odeco._util.lazy import make_lazy

make_lazy(__name__)
