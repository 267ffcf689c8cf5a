"""What a private run guarantees, in words and numbers that a reader can check."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from odeco.errors import FileFormatError
from odeco.privacy.ledger import Charge
from odeco.privacy.release import Releaser


@dataclass(frozen=True)
class PrivacyReport:
    """The guarantee of a private result.

    Attributes
    ----------
    epsilon, delta : float
        The guarantee that was asked for and holds. ``epsilon`` is infinite if the noise did not come from the operating
        system: whoever knows the noise can subtract it.
    epsilon_spent, mu : float
        What the releases cost in fact, for the same delta and as the μ of a Gaussian mechanism; at most what was asked.
    private : bool
        Whether the noise came from the operating system.
    unit : {"entry", "record", "user"}
        Whom the guarantee protects.
    neighbours : str
        The neighbour relation in words: which change of the data is hidden.
    mechanism : str
        How the answers were made.
    charges : tuple of Charge
        Every release: what, sensitivity, scale of the noise, count.
    """

    epsilon: float
    delta: float
    epsilon_spent: float
    mu: float
    private: bool
    unit: str
    neighbours: str
    mechanism: str
    charges: tuple[Charge, ...]

    @classmethod
    def of(
        cls,
        releaser: Releaser,
        *,
        epsilon: float,
        delta: float,
        unit: str,
        neighbours: str,
        mechanism: str,
        private: bool = True,
    ) -> PrivacyReport:
        """Read the guarantee off a ledger; there is none if earlier noise, or that of the releaser, is known."""
        ledger, private = releaser.ledger, private and releaser.is_private
        return cls(
            epsilon=epsilon if private else math.inf,
            delta=delta,
            epsilon_spent=ledger.epsilon(delta) if private else math.inf,
            mu=ledger.mu if private else math.inf,
            private=private,
            unit=unit,
            neighbours=neighbours,
            mechanism=mechanism,
            charges=ledger.charges,
        )

    def to_json(self) -> str:
        """Return everything as JSON; an infinite number is written as the text "infinity"."""
        charges = [charge.to_fields() for charge in self.charges]
        document = {"kind": "privacy report", "format_version": 1, **asdict(self), "charges": charges}
        finite = {
            name: "infinity" if isinstance(value, float) and math.isinf(value) else value
            for name, value in document.items()
        }
        return json.dumps(finite, indent=2, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> PrivacyReport:
        """Return the report that `to_json` described."""
        document = json.loads(text)
        if document.pop("kind") != "privacy report" or document.pop("format_version") != 1:
            raise FileFormatError("The text must be a privacy report of format version 1. It is not. Write it again.")
        charges = tuple(Charge(**fields) for fields in document.pop("charges"))
        numbers: dict[str, Any] = {name: math.inf if value == "infinity" else value for name, value in document.items()}
        return cls(**numbers, charges=charges)
