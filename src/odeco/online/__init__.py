"""Decompose the moment of rows that arrive in a stream or lie in files larger than memory."""

from odeco.online.decomposer import OnlineDecomposer
from odeco.online.halves import SplitHalf, split_half
from odeco.online.moments import SampleMoment, StreamMoment
from odeco.online.partial import PartialSum, partial_sum
from odeco.online.run import Progress
from odeco.online.stream import decompose_stream
from odeco.online.sums import RowSum

__all__ = [
    "OnlineDecomposer",
    "PartialSum",
    "Progress",
    "RowSum",
    "SampleMoment",
    "SplitHalf",
    "StreamMoment",
    "decompose_stream",
    "partial_sum",
    "split_half",
]
