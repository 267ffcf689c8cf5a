"""Batches of rows from whatever a user holds: arrays, files of many kinds, or anything that can be iterated.

`as_source` turns it into a `BatchSource`, which algorithms read block by block and never hold as a whole;
`rebatch` cuts the blocks to the size an algorithm wants, and `skip_rows` takes up a pass where it was interrupted.
`open_private` reads files for private runs, in which nothing is learnt from a record or said about one.
"""

from odeco.errors import SourceError
from odeco.sources._coerce import as_source, is_on_cluster
from odeco.sources._columns import chosen_columns, names_of
from odeco.sources._files import pieces_of
from odeco.sources._passes import Passes
from odeco.sources._private import PrivateRows, open_private
from odeco.sources._reading import rebatch, skip_rows
from odeco.sources._source import BatchSource, Block, Source

__all__ = [
    "BatchSource",
    "Block",
    "Passes",
    "PrivateRows",
    "Source",
    "SourceError",
    "as_source",
    "chosen_columns",
    "is_on_cluster",
    "names_of",
    "open_private",
    "pieces_of",
    "rebatch",
    "skip_rows",
]
