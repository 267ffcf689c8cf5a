"""The budget of all runs on the same data together, in a file that processes and copies of estimators share.

The file is text, one JSON document per line: first a head with the limit, then every charge in the order in which it
was made. A process that charges holds a lock on the file from reading the charges of others until its own is on disk.
The file says what was released, with how much noise, and by whom, all of which is public.
"""

from __future__ import annotations

import getpass
import json
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from odeco._util.arguments import check_number
from odeco.errors import BudgetExhausted, FileFormatError
from odeco.privacy.account import as_line, lock
from odeco.privacy.calibration import check_delta, gdp_mu
from odeco.privacy.ledger import ALL_DATA, Charge, Ledger

_KIND, _VERSION = "shared privacy ledger", 1


class LedgerFile:
    """A ledger in a file, which several runs, processes and estimators may charge, one at a time.

    Parameters
    ----------
    path : path
        The file. It must have been made by `create`: no budget begins by accident.
    by : str, optional
        Who charges, for the reader of the file; by default the name of the user.

    Notes
    -----
    A charge counts from the moment its line is on disk. Half a line at the end, which a crash may leave, is a charge
    that was not made: nothing was released for it. The file does not know what the runs used, nor whom they protect. It
    is one budget for one data set, one unit and one neighbour relation: name it after these.

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

    def __init__(self, path: str | os.PathLike[str], *, by: str | None = None) -> None:
        self.path = Path(path).absolute()
        self.by = _user() if by is None else by
        if not self.path.exists():
            raise FileNotFoundError(
                f"The ledger {self.path} must exist. It does not. Make it once for these data, with "
                "odeco.privacy.LedgerFile.create(path, epsilon=..., delta=...)."
            )
        self._read()

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        epsilon: float,
        delta: float,
        delta_limit: float = 0.0,
        by: str | None = None,
    ) -> LedgerFile:
        """Make the file, with the guarantee that all runs on these data may use up together.

        `delta_limit` is the part of δ that is kept for thresholds, which a private vocabulary needs; see `Ledger`.
        """
        head = {"kind": _KIND, "format_version": _VERSION, "epsilon": epsilon, "delta": check_delta(delta)}
        if delta_limit != 0:
            head["delta_limit"] = check_number("delta_limit", delta_limit, 0, delta)
        limit = gdp_mu(epsilon, delta - delta_limit)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # an old ledger is never replaced
        try:
            with os.fdopen(descriptor, "wb") as file, _naming(path):
                file.write(as_line({**head, "mu_limit": limit}))
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            Path(path).unlink()  # an empty file would be no ledger, and in the way of the next
            raise
        return cls(path, by=by)

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

    @property
    def delta_limit(self) -> float:
        """What the deltas of all charges may add up to."""
        return self._read().delta_limit

    @property
    def epsilon(self) -> float:
        """The ε that all runs together may spend."""
        return float(self._lines()[0]["epsilon"])

    @property
    def delta(self) -> float:
        """The δ of that guarantee."""
        return float(self._lines()[0]["delta"])

    @property
    def spent_by(self) -> dict[str, float]:
        """The μ of the charges of each who charged, in the order of their first one, as if all were on the same data.

        Budgets add up as squares of μ.
        """
        squares: dict[str, float] = {}
        for fields in self._lines()[1:]:
            name = fields.pop("by", "unknown")
            squares[name] = squares.get(name, 0.0) + Charge(**fields).mu ** 2
        return {name: math.sqrt(square) for name, square in squares.items()}

    def charge(
        self,
        mechanism: str,
        sensitivity: float,
        scale: float,
        count: int = 1,
        data: str | Iterable[str] = ALL_DATA,
        delta: float = 0.0,
    ) -> Charge:
        """Record a release that is about to be made, or refuse it; see `Ledger.charge`."""
        with self._locked("rb+") as file:
            content = file.read()
            whole = content[: content.rfind(b"\n") + 1]
            entry = self._ledger_in(whole).charge(mechanism, sensitivity, scale, count, data, delta)
            with _naming(self.path):
                file.seek(len(whole))
                file.truncate()
                file.write(as_line({**entry.to_fields(), "by": self.by}))
                file.flush()
                os.fsync(file.fileno())
        return entry

    @contextmanager
    def _locked(self, mode: str) -> Iterator[IO[bytes]]:
        """Open the file and hold its lock until it is closed."""
        while True:
            with cast("IO[bytes]", self.path.open(mode)) as file:
                lock(file)
                opened, there = os.fstat(file.fileno()), self.path.stat()
                if (opened.st_ino, opened.st_dev) == (there.st_ino, there.st_dev):
                    yield file
                    return
            # The file was replaced before the lock was had: a charge in the old one would be lost.

    def _read(self) -> Ledger:
        return self._ledger_in(self._content())

    def _lines(self) -> list[dict[str, Any]]:
        """Return the documents of the file, after a check that they are a ledger."""
        content = self._content()
        self._ledger_in(content)
        return [json.loads(line) for line in content.splitlines()]

    def _content(self) -> bytes:
        with self._locked("rb") as file:
            content = file.read()
        return content[: content.rfind(b"\n") + 1]

    def _ledger_in(self, content: bytes) -> Ledger:
        try:
            head, *charges = [json.loads(line) for line in content.splitlines()]
            if head["kind"] != _KIND or head["format_version"] != _VERSION:
                raise ValueError(f"kind {head['kind']!r}, format version {head['format_version']!r}")
            ledger = Ledger(head["mu_limit"], delta_limit=head.get("delta_limit", 0.0))
            for fields in charges:
                fields.pop("by", None)
                ledger.charge(**fields)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, BudgetExhausted) as error:
            raise FileFormatError(
                f"{self.path} must be a shared privacy ledger. Reading it failed: {error!s}. Put back the one of "
                "these data: a new one would forget what has been spent."
            ) from error
        return ledger


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # no name is known, as in some containers
        return "unknown"


@contextmanager
def _naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Add the name of the file to errors of the system, such as a full disk."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror}; nothing was released", os.fspath(path)) from error


def as_ledger(ledger: Any) -> Ledger | LedgerFile | None:
    """Return a ledger as it is, and a path as the ledger in that file."""
    return LedgerFile(ledger) if isinstance(ledger, str | os.PathLike) else ledger


@dataclass(frozen=True)
class Guarantee:
    """The guarantee of a private model: its budget, and the ledger of all runs on the same data, if there is one."""

    epsilon: float
    delta: float
    ledger: LedgerFile | str | os.PathLike[str] | None = None

    @property
    def mu(self) -> float:
        """The budget as the μ of a Gaussian mechanism."""
        return gdp_mu(self.epsilon, self.delta)
