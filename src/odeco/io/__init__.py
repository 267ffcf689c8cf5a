"""Batches of rows from arrays, files of many formats and iterables; text tables and documents."""

from odeco._util.lazy import make_lazy

make_lazy(__name__)
