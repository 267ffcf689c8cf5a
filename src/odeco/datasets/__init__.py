"""Planted problems with known components, and corpora that every Python installation carries."""

from odeco._util.lazy import make_lazy

make_lazy(__name__)
