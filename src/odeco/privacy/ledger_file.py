"""Ledgers in files: the account of one private stream, and the budget of all runs on the same data.

**The account of a stream** outlives the process. Its file is text, one JSON document per line: first a head, which
names the run and the limit, then every charge in the order in which it was made. A charge is on disk before anything is
computed, so that the file never holds less than was released: after a crash it may hold a charge whose release was
lost, never the reverse. It says what was released and with how much noise, which is public; it holds no noise and
nothing computed from data.

**The shared budget** is a file that processes and copies of estimators use together. It is text, one JSON document per
line: first a head with the limit, then every charge in the order in which it was made. A process that charges holds a
lock on the file from reading the charges of others until its own is on disk. The file says what was released, with how
much noise, and by whom, all of which is public.
"""

from __future__ import annotations

import getpass
import json
import math
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, ClassVar, cast

from scipy.special import expit, log_ndtr, ndtri

from odeco._util.arguments import check_number
from odeco._util.files import replacing
from odeco.errors import BudgetExhausted, FileFormatError
from odeco.privacy.calibration import ROOM, check_delta, gdp_mu
from odeco.privacy.ledger import Charge, Ledger, Payer
from odeco.privacy.noise import NoiseSource, SecureNoise
from odeco.privacy.release import Releaser

try:
    import fcntl
except ImportError:  # pragma: no cover - no such locks on Windows: refused below
    fcntl = None  # type: ignore[assignment]


#: The kinds of files, of a stream and of several runs, and the version of their format.
_RUN_KIND, _SHARED_KIND, _VERSION = "privacy ledger file", "shared privacy ledger", 1


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
        head = {"kind": _RUN_KIND, "format_version": _VERSION, "run": self.run, "mu_limit": self.ledger.mu_limit}
        text = b"".join(_as_line(document) for document in (head, *(charge.to_fields() for charge in charges)))
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
            self._size += _write_line(file, charge.to_fields())


def read_charges(source: Path, content: bytes) -> tuple[str, Ledger]:
    """Return the name of the run and its ledger from the content of a file, whole lines only."""
    head, ledger = _read(source, content, _RUN_KIND, "Put back the one of this run.", repeats=False)
    return str(head.get("run")), ledger


def _read(source: Path, content: bytes, kind: str, remedy: str, *, repeats: bool) -> tuple[dict[str, Any], Ledger]:
    """Return the first of the whole lines of a file, and the ledger that the others make.

    Without `repeats` the same line twice in a row is one charge: an interrupt came after the first was written and
    before its release was made.
    """
    try:
        head, *charges = [json.loads(line) for line in content.splitlines()]
        if (head["kind"], head["format_version"]) != (kind, _VERSION):
            raise ValueError(f"kind {head['kind']!r}, format version {head['format_version']!r}")
        ledger = Ledger(head["mu_limit"], delta_limit=head.get("delta_limit", 0.0))
        for before, fields in pairwise([None, *charges]):
            if repeats or fields != before:
                ledger.charge(**{name: value for name, value in fields.items() if name != "by"})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, BudgetExhausted) as error:
        raise FileFormatError(f"{source} must be a {kind}. Reading it failed: {error!s}. {remedy}") from error
    return head, ledger


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


def _as_line(document: dict[str, Any]) -> bytes:
    """Return a document as one line of JSON."""
    return (json.dumps(document, allow_nan=False) + "\n").encode()


def _write_line(file: IO[bytes], document: dict[str, Any]) -> int:
    """Write one line, wait until it is on disk, and return its length."""
    length = file.write(_as_line(document))
    file.flush()
    os.fsync(file.fileno())
    return length


class LedgerFile(Payer):
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
        if not self.path.exists() or self.path.is_dir():
            raise FileNotFoundError(
                f"The ledger {self.path} must exist as a file. It does not. Make it once for these data, with "
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
        head = {"kind": _SHARED_KIND, "format_version": _VERSION, "epsilon": epsilon, "delta": check_delta(delta)}
        if delta_limit != 0:
            head["delta_limit"] = check_number("delta_limit", delta_limit, 0, delta)
        limit = gdp_mu(epsilon, delta - delta_limit)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # an old ledger is never replaced
        try:
            with os.fdopen(descriptor, "wb") as file, _naming(path):
                _write_line(file, {**head, "mu_limit": limit})
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
        """The μ of the charges by each name, in the order of their first ones, as if all were on the same data.

        Budgets add up as squares of μ.
        """
        squares: dict[str, float] = {}
        for fields in self._lines()[1:]:
            name = fields.pop("by", "unknown")
            squares[name] = squares.get(name, 0.0) + Charge(**fields).mu ** 2
        return {name: math.sqrt(square) for name, square in squares.items()}

    def record(self, entry: Charge) -> None:
        """Record a charge, or refuse it; see `charge`."""
        with self._locked("rb+") as file:
            content = file.read()
            whole = content[: content.rfind(b"\n") + 1]
            self._ledger_in(whole).record(entry)
            with _naming(self.path):
                file.seek(len(whole))
                file.truncate()
                _write_line(file, {**entry.to_fields(), "by": self.by})

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
        remedy = "Put back the one of these data: a new one would forget what has been spent."
        return _read(self.path, content, _SHARED_KIND, remedy, repeats=True)[1]


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

    #: The parameters of a private model that it needs.
    parameters: ClassVar[tuple[str, ...]] = ("epsilon", "delta")

    epsilon: float
    delta: float
    ledger: LedgerFile | str | os.PathLike[str] | None = None

    @property
    def mu(self) -> float:
        """The budget as the μ of a Gaussian mechanism."""
        return gdp_mu(self.epsilon, self.delta)

    def epsilon_of(self, ledger: Ledger) -> float:
        """Return the ε that the releases of a ledger cost."""
        return ledger.epsilon(self.delta)


class PureGuarantee(Guarantee):
    """The guarantee of randomised response, whose δ is 0.

    A bit plus Gaussian noise, of which only the nearer bit is kept, is flipped with the chance Φ(−μ/2) = 1/(1 + e^ε).
    """

    parameters = ("epsilon",)

    @property
    def mu(self) -> float:
        """The μ of the noise."""
        return float(-2 * ndtri(expit(-self.epsilon))) * (1 - ROOM)

    def epsilon_of(self, ledger: Ledger) -> float:
        """Return the ε that flips with the noise of a ledger cost."""
        return float(log_ndtr(ledger.mu / 2) - log_ndtr(-ledger.mu / 2))
