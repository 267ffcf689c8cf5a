"""Answers that cost privacy budget: exact accounting, sensitivities, noise, private oracles and their audit."""

from odeco.privacy._audit import audit, worst_entries, worst_records
from odeco.privacy._calibration import delta_of, epsilon_of, gdp_mu, noise_multiplier, paper_noise_multiplier
from odeco.privacy._entry_level import EntryLevel
from odeco.privacy._ledger import ALL_DATA, BudgetExhausted, Charge, Ledger
from odeco.privacy._noise import NoiseSource, SecureNoise, SeededNoiseForTests
from odeco.privacy._planner import MechanismPlan, PrivacyPlan
from odeco.privacy._private import PrivateOracle
from odeco.privacy._record_level import RecordLevel
from odeco.privacy._report import PrivacyReport

__all__ = [
    "ALL_DATA",
    "BudgetExhausted",
    "Charge",
    "EntryLevel",
    "Ledger",
    "MechanismPlan",
    "NoiseSource",
    "PrivacyPlan",
    "PrivacyReport",
    "PrivateOracle",
    "RecordLevel",
    "SecureNoise",
    "SeededNoiseForTests",
    "audit",
    "delta_of",
    "epsilon_of",
    "gdp_mu",
    "noise_multiplier",
    "paper_noise_multiplier",
    "worst_entries",
    "worst_records",
]
