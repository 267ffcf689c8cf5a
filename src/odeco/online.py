"""Rows that are pushed, under the name that they are documented by; see `odeco.streams`."""

from odeco.streams import OnlineDecomposer, Progress

__all__ = ["OnlineDecomposer", "Progress"]
