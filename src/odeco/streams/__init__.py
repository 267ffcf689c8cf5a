"""Rows that arrive, or lie in files larger than memory: searches that are fed rows, pushed or pulled."""

from odeco.streams._online import OnlineDecomposer
from odeco.streams._progress import Progress
from odeco.streams._pull import decompose_and_keep, decompose_stream

__all__ = ["OnlineDecomposer", "Progress", "decompose_and_keep", "decompose_stream"]
