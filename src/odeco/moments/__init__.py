"""Moments of rows of data as oracles: the tensor (1/n) Σ x ⊗ x ⊗ x, never formed; and of words in documents."""

from odeco.moments._chunks import row_slice, rows_per_chunk
from odeco.moments._count_chunks import CountChunk, DocumentWeight, WordCountError, as_counts, count_chunks
from odeco.moments._row_sums import RowSum
from odeco.moments._samples import SampleMoment
from odeco.moments._stream import StreamMoment
from odeco.moments._word_counts import WordSums, check_usable
from odeco.moments._word_moment import WordMoment, corrected_core
from odeco.moments._word_products import contract, row_blocks

__all__ = [
    "CountChunk",
    "DocumentWeight",
    "RowSum",
    "SampleMoment",
    "StreamMoment",
    "WordCountError",
    "WordMoment",
    "WordSums",
    "as_counts",
    "check_usable",
    "contract",
    "corrected_core",
    "count_chunks",
    "row_blocks",
    "row_slice",
    "rows_per_chunk",
]
