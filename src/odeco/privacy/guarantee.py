"""What a private run guarantees, and the ledger that all runs on the same data share."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from scipy.special import expit, log_ndtr, ndtri

from odeco.privacy.calibration import ROOM, gdp_mu
from odeco.privacy.ledger import Ledger
from odeco.privacy.ledger_file import LedgerFile


@dataclass(frozen=True)
class Guarantee:
    """The (ε, δ) of a private run, and the ledger of all runs on the same data, if there is one."""

    #: The parameters of a private model that it needs.
    parameters: ClassVar[tuple[str, ...]] = ("epsilon", "delta")

    epsilon: float
    delta: float
    ledger: LedgerFile | str | os.PathLike[str] | None = None

    @cached_property
    def mu(self) -> float:
        """The budget as the μ of a Gaussian mechanism."""
        return gdp_mu(self.epsilon, self.delta)

    def epsilon_of(self, ledger: Ledger) -> float:
        """Return the ε that the releases of a ledger cost."""
        return ledger.epsilon(self.delta)


class PureGuarantee(Guarantee):
    """The guarantee of randomised response, whose δ is 0.

    A bit plus Gaussian noise, of which only the nearer bit is kept, is flipped with the chance
    Φ(−μ/2) = 1/(1 + e^ε).
    """

    parameters = ("epsilon",)

    @cached_property
    def mu(self) -> float:
        """The μ of the noise."""
        return float(-2 * ndtri(expit(-self.epsilon))) * (1 - ROOM)

    def epsilon_of(self, ledger: Ledger) -> float:
        """Return the ε that flips with the noise of a ledger cost."""
        return float(log_ndtr(ledger.mu / 2) - log_ndtr(-ledger.mu / 2))
