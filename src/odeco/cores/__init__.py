"""Searches that end with a small tensor of entries, which is then decomposed where it lies."""

from odeco.cores._core import DEFAULT_ROUNDS, CoreSearch, core_width
from odeco.cores._counting import CountingSearch
from odeco.cores._entries import EntriesSearch
from odeco.cores._noisy import decompose_core, decompose_noisy, leading_directions
from odeco.cores._whitened import WhitenedComponents, climb_together, decompose_whitened, nearest_orthogonal

__all__ = [
    "DEFAULT_ROUNDS",
    "CoreSearch",
    "CountingSearch",
    "EntriesSearch",
    "WhitenedComponents",
    "climb_together",
    "core_width",
    "decompose_core",
    "decompose_noisy",
    "decompose_whitened",
    "leading_directions",
    "nearest_orthogonal",
]
