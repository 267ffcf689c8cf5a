"""Moments of data as oracles: the tensor (1/n) Σ x ⊗ x ⊗ x of rows, never formed; and that of words in documents."""

from odeco.moments._samples import SampleMoment
from odeco.moments._stream import StreamMoment
from odeco.rows import RowSum
from odeco.topics.word_moment import WordMoment

__all__ = ["RowSum", "SampleMoment", "StreamMoment", "WordMoment"]
