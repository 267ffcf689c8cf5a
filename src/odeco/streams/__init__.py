"""Rows that arrive, or lie in files larger than memory: searches that are fed rows."""

from odeco.streams._online import OnlineDecomposer, Progress
from odeco.streams._pull import decompose_stream

__all__ = ["OnlineDecomposer", "Progress", "decompose_stream"]
