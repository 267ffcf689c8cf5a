"""Who asks: searches that take in one answer at a time and never see data."""

from odeco.search._core import DEFAULT_ROUNDS, CoreSearch, core_width
from odeco.search._entries import EntriesSearch
from odeco.search._noisy import decompose_core, decompose_noisy, leading_directions
from odeco.search._plan import Plan
from odeco.search._power import Callback, Eigenpair, Search, run, step
from odeco.search._protocol import Asker
from odeco.search._sphere import normalise, uniform_starts
from odeco.search._tracking import Tracking

__all__ = [
    "DEFAULT_ROUNDS",
    "Asker",
    "Callback",
    "CoreSearch",
    "Eigenpair",
    "EntriesSearch",
    "Plan",
    "Search",
    "Tracking",
    "core_width",
    "decompose_core",
    "decompose_noisy",
    "leading_directions",
    "normalise",
    "run",
    "step",
    "uniform_starts",
]
