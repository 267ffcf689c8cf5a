"""Differential privacy: accounting, noise, sensitivities, data holders, audits."""

from odeco.errors import BudgetExhausted
from odeco.privacy.audit import audit, worst_entries, worst_records
from odeco.privacy.calibration import (
    adversary_accuracy,
    delta_of,
    epsilon_of,
    gdp_mu,
    noise_multiplier,
    paper_noise_multiplier,
)
from odeco.privacy.holders.entries import EntryLevel
from odeco.privacy.holders.records import RecordLevel
from odeco.privacy.ledger import Charge, Ledger
from odeco.privacy.ledger_file import LedgerFile
from odeco.privacy.oracle import PrivateOracle
from odeco.privacy.plan import MechanismPlan, PrivacyPlan, Prospect
from odeco.privacy.release import Releases
from odeco.privacy.report import PrivacyReport
from odeco.privacy.sources import open_private

__all__ = [
    "BudgetExhausted",
    "Charge",
    "EntryLevel",
    "Ledger",
    "LedgerFile",
    "MechanismPlan",
    "PrivacyPlan",
    "PrivacyReport",
    "PrivateOracle",
    "Prospect",
    "RecordLevel",
    "Releases",
    "adversary_accuracy",
    "audit",
    "delta_of",
    "epsilon_of",
    "gdp_mu",
    "noise_multiplier",
    "open_private",
    "paper_noise_multiplier",
    "worst_entries",
    "worst_records",
]
