"""Moments of rows of data as oracles: the tensor (1/n) Σ x ⊗ x ⊗ x, never formed."""

from odeco.moments._chunks import row_slice, rows_per_chunk
from odeco.moments._row_sums import RowSum
from odeco.moments._samples import SampleMoment
from odeco.moments._stream import StreamMoment

__all__ = ["RowSum", "SampleMoment", "StreamMoment", "row_slice", "rows_per_chunk"]
