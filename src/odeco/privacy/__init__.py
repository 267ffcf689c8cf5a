"""Answers that cost privacy budget: exact accounting, sensitivities, noise, private oracles and their audit."""

from odeco.errors import BudgetExhausted
from odeco.privacy import sensitivity
from odeco.privacy._account import Account
from odeco.privacy._audit import audit, worst_entries, worst_records
from odeco.privacy._calibration import (
    check_delta,
    check_delta_for,
    check_epsilon,
    delta_of,
    epsilon_of,
    gdp_mu,
    noise_multiplier,
    paper_noise_multiplier,
)
from odeco.privacy._charge import Charge
from odeco.privacy._entry_level import EntryLevel
from odeco.privacy._found import (
    Found,
    found_in_core,
    found_in_entries,
    found_in_images,
)
from odeco.privacy._guarantee import Guarantee
from odeco.privacy._holder import ROUNDOFF, UNITS, DataHolder, Unit, multiplicities, unpack
from odeco.privacy._ledger import Ledger
from odeco.privacy._ledger_file import LedgerFile, as_ledger
from odeco.privacy._noise import NoiseSource, SecureNoise, SeededNoiseForTests, grid_of
from odeco.privacy._oracle import MERGE_COSINE, PrivateOracle, merge_duplicates
from odeco.privacy._plan import MechanismPlan, PrivacyPlan, Prospect
from odeco.privacy._record_level import RecordLevel, row_weights
from odeco.privacy._release import Releaser, Releases
from odeco.privacy._report import PrivacyReport

#: These names are for users; docs/api/index.md lists the same.
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
    "audit",
    "delta_of",
    "epsilon_of",
    "gdp_mu",
    "noise_multiplier",
    "paper_noise_multiplier",
    "worst_entries",
    "worst_records",
]
#: These names are for the other packages of the library: private decompositions, streams and topics.
__all__ += [
    "MERGE_COSINE",
    "ROUNDOFF",
    "UNITS",
    "Account",
    "DataHolder",
    "Found",
    "Guarantee",
    "NoiseSource",
    "Releaser",
    "Releases",
    "SecureNoise",
    "SeededNoiseForTests",
    "Unit",
    "as_ledger",
    "check_delta",
    "check_delta_for",
    "check_epsilon",
    "found_in_core",
    "found_in_entries",
    "found_in_images",
    "grid_of",
    "merge_duplicates",
    "multiplicities",
    "row_weights",
    "sensitivity",
    "unpack",
]
