"""A ledger that outlives its process: a file to which every charge is added before its release is made.

The file is text, one JSON document a line: first a head, which names the run and the limit, then every charge in the
order in which it was made. A charge is on disk before anything is computed, so a file never knows less than was
released: after a crash it may hold a charge whose answer was lost, never the reverse. It says what was asked and with
how much noise, which is public; it holds no noise and nothing computed from data.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from odeco._checks import FileFormatError
from odeco.privacy._ledger import BudgetExhausted, Charge, Ledger

try:
    import fcntl
except ImportError:  # pragma: no cover - no such locks on Windows: refused below
    fcntl = None  # type: ignore[assignment]

_KIND, _VERSION = "privacy ledger file", 1


class LedgerFile:
    """The file of one run's ledger.

    Parameters
    ----------
    path : path
        Where the file is.
    size : int
        Its length in bytes when it was last read or written here. If it is longer when the next charge is to be
        written, another process has spent of the same budget, and the charge is refused.
    """

    def __init__(self, path: Path, size: int) -> None:
        self.path, self._size = path, size

    @classmethod
    def create(cls, path: str | os.PathLike[str], ledger: Ledger, run: str) -> LedgerFile:
        """Write all charges so far to a new file, which replaces an old one, and every further charge as it is made."""
        target = Path(path)
        head = {"kind": _KIND, "format_version": _VERSION, "run": run, "mu_limit": ledger.mu_limit}
        text = "".join(_line(document) for document in (head, *map(asdict, ledger.charges)))
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
        opened = cls(target, len(text.encode()))
        ledger.write_to(opened.append)
        return opened

    @classmethod
    def open(cls, path: str | os.PathLike[str], run: str) -> tuple[LedgerFile, Ledger]:
        """Read the ledger of a run, which goes on being written to the same file."""
        source = Path(path)
        try:
            content = source.read_bytes()
        except FileNotFoundError as error:
            raise FileFormatError(
                f"The ledger {source} must be where it was when the run was saved. It is not there. Without it nobody "
                "knows which rows have been paid for: put it back, or begin a new run on rows that no run has used."
            ) from error
        # A crash may have left half a line at the end: that charge was not made, and nothing was released for it.
        whole = content[: content.rfind(b"\n") + 1]
        try:
            head, *charges = [json.loads(line) for line in whole.splitlines()]
            if head["kind"] != _KIND or head["format_version"] != _VERSION:
                raise ValueError(f"kind {head['kind']!r}, format version {head['format_version']!r}")
            ledger = Ledger(head["mu_limit"])
            for fields in charges:
                ledger.charge(**fields)
        except (ValueError, KeyError, TypeError, BudgetExhausted) as error:
            raise FileFormatError(
                f"{source} must be a privacy ledger file. Reading it failed: {error!s}. Put back the one of this run."
            ) from error
        if head["run"] != run:
            raise FileFormatError(
                f"{source} must be the ledger of run {run}. It is that of run {head['run']}. Put back the right one."
            )
        opened = cls(source, len(content))
        if len(whole) < len(content):
            opened._cut(len(whole))
        ledger.write_to(opened.append)
        return opened, ledger

    def append(self, charge: Charge) -> None:
        """Write a charge and wait until it is on disk; refuse if another process has written to the file."""
        if fcntl is None:  # pragma: no cover
            raise OSError("A ledger file needs locks that this system does not have. Run without saving.")
        with self.path.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed
            if os.fstat(file.fileno()).st_size != self._size:
                raise RuntimeError(
                    f"{self.path} must be written by one process. Another one has charged it since it was read here. "
                    "Nothing was released. Go on with one of the two only, from its last checkpoint."
                )
            line = _line(asdict(charge)).encode()
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
            self._size += len(line)

    def _cut(self, size: int) -> None:
        with self.path.open("rb+") as file:
            file.truncate(size)
            os.fsync(file.fileno())
        self._size = size


def _line(document: dict[str, Any]) -> str:
    return json.dumps(document, allow_nan=False) + "\n"
