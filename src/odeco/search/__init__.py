"""Who asks: searches that take in one answer at a time and never see data."""

from odeco.search._evidence_file import (
    EVIDENCE_ARRAYS,
    evidence_from_arrays,
    evidence_is_whole,
    evidence_to_arrays,
)
from odeco.search._joint_step import conjugate_gradients, joint_step
from odeco.search._plan import Plan
from odeco.search._power import Callback, Eigenpair, Search, run, step, zero_image_error
from odeco.search._protocol import Asker, Finder
from odeco.search._sphere import normalise, uniform_starts, uniform_within
from odeco.search._together import Together, run_together
from odeco.search._tracking import Tracking

__all__ = [
    "EVIDENCE_ARRAYS",
    "Asker",
    "Callback",
    "Eigenpair",
    "Finder",
    "Plan",
    "Search",
    "Together",
    "Tracking",
    "conjugate_gradients",
    "evidence_from_arrays",
    "evidence_is_whole",
    "evidence_to_arrays",
    "joint_step",
    "normalise",
    "run",
    "run_together",
    "step",
    "uniform_starts",
    "uniform_within",
    "zero_image_error",
]
