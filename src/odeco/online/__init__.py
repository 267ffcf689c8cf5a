"""Decompose the moment of rows that arrive in a stream or lie in files larger than memory."""

from odeco._util.lazy import make_lazy

make_lazy(__name__)
