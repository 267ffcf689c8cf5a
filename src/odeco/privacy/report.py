"""The guarantee of a private result, in words and in numbers that a reader can check; and a warning
of two of them.
"""

from __future__ import annotations

import json
import math
import os
import warnings
import weakref
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from odeco._util.state import Sizes, each, flag, number, record, text, whole
from odeco.errors import FileFormatError, ReusedRecordsWarning, WeakGuaranteeWarning
from odeco.privacy.calibration import adversary_accuracy
from odeco.privacy.ledger import Charge, Ledger
from odeco.privacy.release import Releaser

Level = Literal["good", "warning", "bad"]

#: Above these accuracies of an adversary, a guarantee is weak, and hardly one at all.
WEAK = 0.75
HARDLY_ANY = 0.95


def level_of(accuracy: float) -> Level:
    """Return how serious it is that an adversary guesses right this often."""
    if accuracy > HARDLY_ANY:
        return "bad"
    if accuracy > WEAK:
        return "warning"
    return "good"


def in_plain_words(accuracy: float, unit: str) -> str:
    """Return how well a guess about one unit can do, and whether that protects anybody.

    The number holds if both versions were equally likely before: see `adversary_accuracy`.
    """
    advice = {
        "good": "",
        "warning": " That is weak protection. Consider a smaller ε.",
        "bad": " That is hardly any protection. Choose a smaller ε.",
    }
    return (
        f"Someone who knows every other {unit} can tell which of two equally likely versions of "
        f"one {unit} was used with at most {100 * accuracy:.1f} % accuracy (a coin toss: 50 "
        f"%).{advice[level_of(accuracy)]}"
    )


def _check_number(value: Any, where: str, sizes: Sizes) -> None:
    """Require a number of at least 0, or the text "infinity"."""
    if value != "infinity":
        number(0)(value, where, sizes)


#: What a charge in JSON must hold, and a report.
_check_charge = record(
    {
        "mechanism": text(),
        "sensitivity": number(0),
        "scale": number(0),
        "count": whole(1),
        "data": each(text()),
    },
    {"delta": number(0, 1)},
)

_check_document = record(
    {
        **dict.fromkeys(("epsilon", "epsilon_spent", "mu"), _check_number),
        "delta": number(0, 1),
        "private": flag(),
        **dict.fromkeys(("unit", "neighbours", "mechanism"), text()),
        "charges": each(_check_charge),
    }
)


@dataclass(frozen=True, repr=False)
class PrivacyReport:
    """The guarantee of a private result.

    Attributes
    ----------
    epsilon, delta : float
        The guarantee that was requested and holds. ``epsilon`` is infinite if the noise did not
        come from the operating system: whoever knows the noise can subtract it.
    epsilon_spent, mu : float
        What the releases cost: ε for the same delta, and μ of a Gaussian mechanism; at most what
        was requested.
    private : bool
        Whether the noise came from the operating system.
    unit : {"entry", "record", "user"}
        Whom the guarantee protects.
    neighbours : str
        The neighbour relation in words: which change of the data is hidden.
    mechanism : str
        How the releases were made.
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

    @property
    def adversary_accuracy(self) -> float:
        """How often an adversary who knows all but one unit guesses right at most; see
        `adversary_accuracy`.
        """
        return adversary_accuracy(self.mu, sum(charge.delta for charge in self.charges))

    @property
    def rho(self) -> float:
        """The ρ of zero-concentrated differential privacy that the noise satisfies: μ²/2.

        Gaussian releases that cost μ together are μ²/2-zCDP (Bun and Steinke 2016). If charges have
        deltas of their own, as the choice of a vocabulary has, it holds but for their sum.
        """
        return self.mu**2 / 2

    @property
    def level(self) -> Level:
        """How serious that is: a warning above 75 %, bad above 95 %."""
        return level_of(self.adversary_accuracy)

    @property
    def statement(self) -> str:
        """What the guarantee means, in plain words and numbers."""
        if not self.private:
            return (
                "This result is NOT private. Its noise did not come from the operating system, "
                "and whoever knows the noise can subtract it."
            )
        return (
            f"This result is ({self.epsilon:g}, {self.delta:g})-differentially private for one "
            f"{self.unit}. Neighbouring data sets: {self.neighbours}. "
            f"{in_plain_words(self.adversary_accuracy, self.unit)}"
        )

    def __repr__(self) -> str:
        shown = {
            name: getattr(self, name) for name in ("epsilon", "delta", "epsilon_spent", "mu", "rho")
        }
        numbers = ", ".join(f"{name}={value:.6g}" for name, value in shown.items())
        return (
            f"PrivacyReport({numbers}, adversary_accuracy={self.adversary_accuracy:.4f}, "
            f"private={self.private}, unit={self.unit!r}, neighbours={self.neighbours!r}, "
            f"mechanism={self.mechanism!r}, {len(self.charges)} charges)"
        )

    def __str__(self) -> str:
        return self.statement

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
        epsilon_of: Callable[[Ledger], float] | None = None,
    ) -> PrivacyReport:
        """Read the guarantee off a ledger; there is none if earlier noise, or that of the releaser,
        is known.

        `epsilon_of` returns the ε that the charges of a ledger cost; by default that of Gaussian
        releases.
        """
        ledger = releaser.ledger
        private = private and releaser.is_private
        spent = ledger.epsilon(delta) if epsilon_of is None else epsilon_of(ledger)
        return cls(
            epsilon=epsilon if private else math.inf,
            delta=delta,
            epsilon_spent=spent if private else math.inf,
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
        document = {
            "kind": "privacy report",
            "format_version": 1,
            **asdict(self),
            "charges": charges,
        }
        document |= {
            "adversary_accuracy": self.adversary_accuracy,
            "rho": self.rho,
        }  # both follow from the rest
        finite = {
            name: "infinity" if isinstance(value, float) and math.isinf(value) else value
            for name, value in document.items()
        }
        return json.dumps(finite, indent=2, allow_nan=False)

    @classmethod
    def from_json(cls, written: str) -> PrivacyReport:
        """Return the report that `to_json` described."""
        document = json.loads(written)
        if document.pop("kind") != "privacy report" or document.pop("format_version") != 1:
            raise FileFormatError(
                "The text must be a privacy report of format version 1. It is not. Write it again."
            )
        for follows in ("adversary_accuracy", "rho"):
            document.pop(follows, None)
        _check_document(document, "privacy", {})
        charges = tuple(Charge(**fields) for fields in document.pop("charges"))
        numbers: dict[str, Any] = {
            name: math.inf if value == "infinity" else value for name, value in document.items()
        }
        return cls(**numbers, charges=charges)


def warn_if_weak(mu: float, *, stacklevel: int = 3) -> None:
    """Warn before anything is spent if a budget μ protects little; `stacklevel` is as for
    `warnings.warn`.
    """
    accuracy = adversary_accuracy(mu)
    if level_of(accuracy) != "good":
        warnings.warn(
            f"{in_plain_words(accuracy, 'record')} Pass a smaller epsilon.",
            WeakGuaranteeWarning,
            stacklevel=stacklevel,
        )


#: The objects that private runs were given, by their identity, and the ledger of the last run; None
#: for none.
_USED: dict[int, tuple[weakref.ref[Any], str | None]] = {}


def warn_of_reuse(records: Any, ledger: Any = None, *, stacklevel: int = 3) -> None:
    """Warn if an earlier private run was given this object, unless both charge the same ledger.

    Only objects are compared, and no record is looked at: a message must not depend on a record. So
    copies and parts of an array are not recognised, nor is a file that is read again. Objects are
    not kept alive.

    Parameters
    ----------
    records : object
        What the run was given. Objects that cannot be referred to weakly, such as lists, are not
        remembered.
    ledger : LedgerFile, Ledger or path, optional
        The ledger of all runs on these records.
    stacklevel : int
        As for `warnings.warn`.
    """
    name = None if ledger is None else _name_of(ledger)
    key = id(records)
    before = _USED.get(key)
    try:
        _USED[key] = weakref.ref(records, partial(_USED.pop, key)), name
    except TypeError:
        return
    if before is None or before[0]() is not records or (name is not None and name == before[1]):
        return
    warnings.warn(
        "Private runs on the same records must share one budget: what they spend adds up, for "
        "every record. Got records that an earlier private run of this process was given, without "
        "one ledger for both. Pass the same `ledger` to both; a stream must be given every record "
        "once.",
        ReusedRecordsWarning,
        stacklevel=stacklevel,
    )


def forget_all() -> None:
    """Forget what private runs were given."""
    _USED.clear()


def _name_of(ledger: Any) -> str:
    """Return what tells a ledger from others: the path of a file, or else its identity."""
    path = getattr(ledger, "path", ledger)
    if isinstance(path, str | os.PathLike):
        return str(Path(path).resolve())
    return f"ledger {id(ledger)}"
