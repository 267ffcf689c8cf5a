"""What is promised to those whose data a private model is learnt from."""

from __future__ import annotations

import os
from dataclasses import dataclass

from odeco.privacy._calibration import gdp_mu
from odeco.privacy._ledger_file import LedgerFile


@dataclass(frozen=True)
class Guarantee:
    """What is promised: the budget, and the ledger of all runs on the same data, if there is one."""

    epsilon: float
    delta: float
    ledger: LedgerFile | str | os.PathLike[str] | None = None

    @property
    def mu(self) -> float:
        """The budget as the μ of a Gaussian mechanism."""
        return gdp_mu(self.epsilon, self.delta)
