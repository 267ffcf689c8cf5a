"""The account of a private stream: its ledger, the noise that it pays for, and the file that outlives the process.

The file is text, one JSON document per line: first a head, which names the run and the limit, then every charge in the
order in which it was made. A charge is on disk before anything is computed, so that the file never holds less than was
released: after a crash it may hold a charge whose release was lost, never the reverse. It says what was released and
with how much noise, which is public; it holds no noise and nothing computed from data.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from odeco._util.files import replacing
from odeco._util.schema import each, number, one_of, record, text, whole
from odeco.errors import BudgetExhausted, FileFormatError
from odeco.privacy.ledger import Charge, Ledger
from odeco.privacy.noise import NoiseSource, SecureNoise
from odeco.privacy.release import Releaser

try:
    import fcntl
except ImportError:  # pragma: no cover - no such locks on Windows: refused below
    fcntl = None  # type: ignore[assignment]


_KIND, _VERSION = "privacy ledger file", 1

#: The first line of a ledger file, and each of the others.
_HEAD = record(
    {
        "kind": one_of(_KIND),
        "format_version": one_of(_VERSION),
        "run": text(),
        "mu_limit": number(0),
    }
)

_CHARGE = record(
    {"mechanism": text(), "sensitivity": number(0), "scale": number(0), "count": whole(1), "data": each(text())},
    {"delta": number(0, 1)},
)


class Account:
    """The ledger of one run, the noise that it pays for, and the file that it is kept in once the run is saved.

    Parameters
    ----------
    ledger : Ledger
        Pays.
    noise : NoiseSource, optional
        Draws the noise: the operating system.
    run : str, optional
        The name of the run; a new one by default.

    Attributes
    ----------
    is_private : bool
        Whether all noise so far came from the operating system, that of earlier processes included.
    """

    def __init__(self, ledger: Ledger, noise: NoiseSource | None = None, run: str | None = None) -> None:
        self.ledger = ledger
        self.noise: NoiseSource = SecureNoise() if noise is None else noise
        self.run = secrets.token_hex(16) if run is None else run
        self.is_private = Releaser(ledger, self.noise).is_private
        self._path: Path | None = None
        self._size, self._file_number = 0, 0

    def keep_beside(self, path: str | os.PathLike[str]) -> dict[str, Any]:
        """Begin to keep the ledger beside a checkpoint, unless it is kept already; return what is needed to open it."""
        self.ledger.check_process()
        if self._path is None:
            target = Path(f"{os.fspath(path)}.ledger").resolve()
            _check_free(target)
            self.ledger.keep_with(lambda charges: self._begin(target, charges))
            self._path = target  # last: until then no charge can be made that is not written
        where = os.path.relpath(str(self._path), Path(path).resolve().parent)
        return {"run": self.run, "ledger": where, "is_private": self.is_private}

    @classmethod
    def opened(
        cls, header: dict[str, Any], checkpoint: str | os.PathLike[str], noise: NoiseSource | None = None
    ) -> Account:
        """Read the account of a run that was saved, with its ledger as it stands now."""
        source = Path(checkpoint).resolve().parent / header["ledger"]
        if source.exists() and not source.is_file():
            raise FileFormatError(
                f"{source} must be a privacy ledger file. It is no file. Put back the one of this run."
            )
        try:
            with source.open("rb+") as file:
                lock(file)  # until the file is closed: what another process writes is read whole
                content = file.read()
                # A crash may have left half a line at the end: that charge was not made, and nothing was released.
                whole = content[: content.rfind(b"\n") + 1]
                run, ledger = read_charges(source, whole)
                if run != header["run"]:
                    raise FileFormatError(
                        f"{source} must be the ledger of run {header['run']}. It is that of run {run}. Put back the "
                        "right one."
                    )
                file.truncate(len(whole))
                number = os.fstat(file.fileno()).st_ino
        except FileNotFoundError as error:
            raise FileFormatError(
                f"The ledger {source} must be where it was when the run was saved. It is not there. Without it "
                "it is unknown which rows have been paid for: put it back, or begin a new run on rows that no run has "
                "used."
            ) from error
        account = cls(ledger, noise, header["run"])
        account.is_private = account.is_private and header["is_private"]
        account._path, account._size, account._file_number = source, len(whole), number
        ledger.keep_with(lambda _: account._append)
        return account

    def _begin(self, target: Path, charges: tuple[Charge, ...]) -> Callable[[Charge], None]:
        head = {"kind": _KIND, "format_version": _VERSION, "run": self.run, "mu_limit": self.ledger.mu_limit}
        text = b"".join(as_line(document) for document in (head, *(charge.to_fields() for charge in charges)))
        with replacing(target, readable=False) as file:
            file.write(text)
        self._size, self._file_number = len(text), target.stat().st_ino
        return self._append

    def _append(self, charge: Charge) -> None:
        """Write a charge and wait until it is on disk; refuse if the file is not as it was left here."""
        if self._path is None or not self._path.exists():
            raise RuntimeError(
                f"The ledger {self._path} must be where this run keeps it. It is not there. Nothing was released. Put "
                "it back."
            )
        with self._path.open("ab") as file:
            lock(file)  # until the file is closed
            status = os.fstat(file.fileno())
            if status.st_size != self._size or status.st_ino != self._file_number:
                raise RuntimeError(
                    f"The ledger {self._path} must be written by this run alone. It was changed since: by another "
                    "process, or by a charge that was cut short. Nothing was released. Go on from the last checkpoint, "
                    "with one process only."
                )
            line = as_line(charge.to_fields())
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
            self._size += len(line)


def read_charges(source: Path, content: bytes) -> tuple[str, Ledger]:
    """Return the name of the run and its ledger from the content of a file, whole lines only."""
    try:
        head, *charges = [json.loads(line) for line in content.splitlines()]
        _HEAD(head, "", {})
        for number, fields in enumerate(charges, 1):
            _CHARGE(fields, f"charge {number}", {})
        ledger = Ledger(head["mu_limit"])
        for number, fields in enumerate(charges):
            # The same line twice: an interrupt came after the first was written and before its release was made.
            if number == 0 or fields != charges[number - 1]:
                ledger.charge(**fields)
    except (ValueError, RecursionError, BudgetExhausted) as error:
        raise FileFormatError(
            f"{source} must be a privacy ledger file. Reading it failed: {error!s}. Put back the one of this run."
        ) from error
    return head["run"], ledger


def _check_free(target: Path) -> None:
    if target.exists():
        raise FileExistsError(
            f"{target} must not exist yet. It is the ledger of another run, and says which rows that has paid for. "
            "Save to another path, or remove it if none of its rows will be used again."
        )


def lock(file: Any) -> None:
    """Wait for the exclusive lock of an open file; it is held until the file is closed."""
    if fcntl is None:  # pragma: no cover
        raise OSError("A ledger file needs locks that this system does not have. Run without saving.")
    fcntl.flock(file, fcntl.LOCK_EX)


def as_line(document: dict[str, Any]) -> bytes:
    """Return a document as one line of JSON."""
    return (json.dumps(document, allow_nan=False) + "\n").encode()
