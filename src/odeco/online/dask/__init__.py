"""Rows on a Dask cluster: bit-identical results on any number of workers."""

from odeco._util.lazy import make_lazy

make_lazy(__name__)
