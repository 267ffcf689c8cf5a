"""The budget of all runs on the same data together, in a file that processes and copies of estimators share.

The file is text, one JSON document a line: first a head with the limit, then every charge in the order in which it was
made. Whoever charges holds a lock on it from reading the charges of others until its own is on disk. It says what was
asked and with how much noise, which is public.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from odeco.errors import BudgetExhausted, FileFormatError
from odeco.privacy._account import _line, _lock
from odeco.privacy._calibration import gdp_mu
from odeco.privacy._charge import ALL_DATA, Charge
from odeco.privacy._ledger import Ledger

_KIND, _VERSION = "shared privacy ledger", 1


class LedgerFile:
    """A ledger in a file, which several runs, processes and estimators may charge, one at a time.

    Parameters
    ----------
    path : path
        The file. It must have been made by `create`: nobody's budget begins by accident.

    Notes
    -----
    A charge counts from the moment its line is on disk. Half a line at the end, which a crash may leave, is a charge
    that was not made: nothing was released for it. The file does not know whether two runs used the same data. It is
    one budget, for one data set: name it after that.

    Examples
    --------
    >>> import tempfile
    >>> from odeco.privacy import LedgerFile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = LedgerFile.create(f"{folder}/patients.ledger", epsilon=2.0, delta=1e-6)
    ...     _ = ledger.charge("word frequencies", sensitivity=1.0, scale=10.0)
    ...     len(LedgerFile(f"{folder}/patients.ledger").charges), round(ledger.mu, 6)
    (1, 0.1)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.exists():
            raise FileNotFoundError(
                f"The ledger {self.path} must exist. It does not. Make it once for these data, with "
                "odeco.privacy.LedgerFile.create(path, epsilon=..., delta=...)."
            )
        self._read()

    @classmethod
    def create(cls, path: str | os.PathLike[str], *, epsilon: float, delta: float) -> LedgerFile:
        """Make the file, with the guarantee that all runs on these data may use up together."""
        head = {"kind": _KIND, "format_version": _VERSION, "epsilon": epsilon, "delta": delta}
        limit = gdp_mu(epsilon, delta)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # an old ledger is never replaced
        with os.fdopen(descriptor, "wb") as file:
            file.write(_line({**head, "mu_limit": limit}))
            file.flush()
            os.fsync(file.fileno())
        return cls(path)

    @property
    def charges(self) -> tuple[Charge, ...]:
        """All charges of all runs, in the order in which they were made."""
        return self._read().charges

    @property
    def mu(self) -> float:
        """What all charges together cost the piece of data that paid most."""
        return self._read().mu

    @property
    def mu_limit(self) -> float:
        """What `mu` may reach."""
        return self._read().mu_limit

    def charge(
        self,
        mechanism: str,
        sensitivity: float,
        scale: float,
        count: int = 1,
        data: str | Iterable[str] = ALL_DATA,
    ) -> Charge:
        """Record a release that is about to be made, or refuse it; see `Ledger.charge`."""
        with self.path.open("rb+") as file:
            _lock(file)  # until the file is closed
            content = file.read()
            whole = content[: content.rfind(b"\n") + 1]
            entry = self._ledger_in(whole).charge(mechanism, sensitivity, scale, count, data)
            file.seek(len(whole))
            file.truncate()
            file.write(_line(asdict(entry)))
            file.flush()
            os.fsync(file.fileno())
        return entry

    def _read(self) -> Ledger:
        with self.path.open("rb") as file:
            _lock(file)
            content = file.read()
        return self._ledger_in(content[: content.rfind(b"\n") + 1])

    def _ledger_in(self, content: bytes) -> Ledger:
        try:
            head, *charges = [json.loads(line) for line in content.splitlines()]
            if head["kind"] != _KIND or head["format_version"] != _VERSION:
                raise ValueError(f"kind {head['kind']!r}, format version {head['format_version']!r}")
            ledger = Ledger(head["mu_limit"])
            for fields in charges:
                ledger.charge(**fields)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, BudgetExhausted) as error:
            raise FileFormatError(
                f"{self.path} must be a shared privacy ledger. Reading it failed: {error!s}. Put back the one of "
                "these data: a new one would forget what has been spent."
            ) from error
        return ledger


def as_ledger(ledger: Any) -> Ledger | LedgerFile | None:
    """Return a ledger as it is, and a path as the ledger in that file."""
    return LedgerFile(ledger) if isinstance(ledger, str | os.PathLike) else ledger
