"""Least-squares CP decomposition: starts, Gauss-Newton, rank selection, error bars, whitening."""

from odeco._util.lazy import make_lazy

make_lazy(__name__)
