"""Answers that cost privacy budget: exact accounting, sensitivities, noise, private oracles and their audit."""

from odeco.errors import BudgetExhausted
from odeco.privacy import _sensitivity as sensitivity
from odeco.privacy._account import Account
from odeco.privacy._audit import audit, worst_entries, worst_records
from odeco.privacy._calibration import (
    ROOM,
    check_delta,
    check_delta_for,
    check_epsilon,
    delta_of,
    epsilon_of,
    gdp_mu,
    noise_multiplier,
    paper_noise_multiplier,
)
from odeco.privacy._entry_level import EntryLevel
from odeco.privacy._found import Found, angles_of, found_in_core, highest_of, noise_ceiling
from odeco.privacy._holder import ROUNDOFF, DataHolder, multiplicities, pack, unpack
from odeco.privacy._ledger import ALL_DATA, Charge, Ledger
from odeco.privacy._noise import (
    GRID_BITS,
    NoiseSource,
    SecureNoise,
    SeededNoiseForTests,
    grid_of,
    noise_scale,
    noisy,
    rounding_slack,
)
from odeco.privacy._oracle import MERGE_COSINE, PrivateOracle, merge_duplicates
from odeco.privacy._plan import MechanismPlan, PrivacyPlan
from odeco.privacy._record_level import RecordLevel, row_weights
from odeco.privacy._release import Releaser
from odeco.privacy._report import PrivacyReport

__all__ = [
    "ALL_DATA",
    "GRID_BITS",
    "MERGE_COSINE",
    "ROOM",
    "ROUNDOFF",
    "Account",
    "BudgetExhausted",
    "Charge",
    "DataHolder",
    "EntryLevel",
    "Found",
    "Ledger",
    "MechanismPlan",
    "NoiseSource",
    "PrivacyPlan",
    "PrivacyReport",
    "PrivateOracle",
    "RecordLevel",
    "Releaser",
    "SecureNoise",
    "SeededNoiseForTests",
    "angles_of",
    "audit",
    "check_delta",
    "check_delta_for",
    "check_epsilon",
    "delta_of",
    "epsilon_of",
    "found_in_core",
    "gdp_mu",
    "grid_of",
    "highest_of",
    "merge_duplicates",
    "multiplicities",
    "noise_ceiling",
    "noise_multiplier",
    "noise_scale",
    "noisy",
    "pack",
    "paper_noise_multiplier",
    "rounding_slack",
    "row_weights",
    "sensitivity",
    "unpack",
    "worst_entries",
    "worst_records",
]
