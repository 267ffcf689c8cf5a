"""Batches of rows from arrays, files of many formats and iterables; text tables and documents."""

from odeco.io.coerce import as_source
from odeco.io.reading import rebatch, skip_rows
from odeco.io.source import BatchSource

__all__ = [
    "BatchSource",
    "as_source",
    "rebatch",
    "skip_rows",
]
