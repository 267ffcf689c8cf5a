"""Ledgers in files: the account of one private stream, and the budget of all runs on the same data.

**The account of a stream** outlives the process. Its file is text, one JSON document per line:
first a head, which names the run and the limit, then every charge in the order in which it was
made. A charge is on disk before anything is computed, so that the file never holds less than was
released: after a crash it may hold a charge whose release was lost, never the reverse. It says what
was released and with how much noise, which is public; it holds no noise and nothing computed from
data.

**The shared budget** is a file that processes and copies of estimators use together. It is text,
one JSON document per line: first a head, then every charge in the order in which it was made. A
process that charges holds a lock on the file from reading the charges of others until its own is on
disk. The file says what was released, with how much noise, and by whom, all of which is public. Its
head says whose budget it is: the name of the data set, the unit and the neighbour relation. The
name is given, or that of a file, and never computed from data: a checksum of records would reveal
them.

**Every line has a hash** of itself and of the line before it. A file in which a line was changed,
moved, added or left out is refused. This finds mistakes, not forgers: who computes the hashes anew
can write any file. Lines that are lost at the end cannot be noticed, nor can an older copy of the
whole file: nothing after them refers to them.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import math
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, cast

from odeco._util.arguments import check_number
from odeco._util.files import replacing
from odeco.errors import BudgetExhausted, FileFormatError
from odeco.privacy.calibration import check_delta, check_epsilon, gdp_mu
from odeco.privacy.ledger import Charge, Ledger, Payer
from odeco.privacy.noise import NoiseSource, SecureNoise
from odeco.privacy.release import Releaser

try:
    import fcntl
except ImportError:  # pragma: no cover - no such locks on Windows: refused below
    fcntl = None  # type: ignore[assignment]


#: The kinds of files, of a stream and of several runs, and the version of their format. In version
#: 1 lines had no hash, and shared budgets no name, unit and neighbour relation.
_RUN_KIND = "privacy ledger file"
_SHARED_KIND = "shared privacy ledger"
_VERSION = 2

#: Units that are rows of a table, by the names that models have for them.
_ROWS = ("row", "document", "respondent")


class Account:
    """The ledger of one run, the noise that it pays for, and the file that it is kept in once the
    run is saved.

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

    def __init__(
        self, ledger: Ledger, noise: NoiseSource | None = None, run: str | None = None
    ) -> None:
        self.ledger = ledger
        self.noise: NoiseSource = SecureNoise() if noise is None else noise
        self.run = secrets.token_hex(16) if run is None else run
        self.is_private = Releaser(ledger, self.noise).is_private
        self._path: Path | None = None
        self._file_number = 0
        self._end = 0, b""  # the size of the file and its last line, as this run has left them

    def keep_beside(self, path: str | os.PathLike[str]) -> dict[str, Any]:
        """Begin to keep the ledger beside a checkpoint, unless it is kept already; return what is
        needed to open it.
        """
        self.ledger.check_process()
        if self._path is None:
            target = Path(f"{os.fspath(path)}.ledger").resolve()
            _check_free(target)
            self.ledger.keep_with(lambda charges: self._begin(target, charges))
            self._path = target  # last: until then no charge can be made that is not written
        where = os.path.relpath(str(self._path), Path(path).resolve().parent)
        return {"run": self.run, "ledger": where, "is_private": self.is_private}

    @contextmanager
    def kept_beside(self, path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
        """Keep the ledger beside a checkpoint that the body writes; if the first cannot be written,
        keep none either.

        A ledger without a checkpoint would be in the way of every run that is saved there later.
        """
        is_first = self._path is None
        header = self.keep_beside(path)
        try:
            yield header
        except BaseException:
            if is_first and self._path is not None:
                self._path.unlink(missing_ok=True)
                self.ledger.keep_with(lambda _: None)
                self._path = None
            raise

    @classmethod
    def opened(
        cls,
        header: dict[str, Any],
        checkpoint: str | os.PathLike[str],
        noise: NoiseSource | None = None,
    ) -> Account:
        """Read the account of a run that was saved, with its ledger as it stands now."""
        source = Path(checkpoint).resolve().parent / header["ledger"]
        if source.exists() and not source.is_file():
            raise FileFormatError(
                f"{source} must be a privacy ledger file. It is no file. Put back the one of this "
                "run."
            )
        try:
            with source.open("rb+") as file:
                lock(file)  # until the file is closed: what another process writes is read whole
                content = file.read()
                run, ledger = read_charges(source, content)
                if run != header["run"]:
                    raise FileFormatError(
                        f"{source} must be the ledger of run {header['run']}. It is that of run "
                        f"{run}. Put back the right one."
                    )
                whole = _keep_whole(file, content)
                number = os.fstat(file.fileno()).st_ino
        except FileNotFoundError as error:
            raise FileFormatError(
                f"The ledger {source} must be where it was when the run was saved. It is not "
                "there. Without it it is unknown which rows have been paid for: put it back, or "
                "begin a new run on rows that no run has used."
            ) from error
        account = cls(ledger, noise, header["run"])
        account.is_private = account.is_private and header["is_private"]
        account._path = source
        account._file_number = number
        account._end = len(whole), _last_line(whole)
        ledger.keep_with(lambda _: account._append)
        return account

    def _begin(self, target: Path, charges: tuple[Charge, ...]) -> Callable[[Charge], None]:
        head = {
            "kind": _RUN_KIND,
            "format_version": _VERSION,
            "run": self.run,
            "mu_limit": self.ledger.mu_limit,
        }
        lines = [_as_line(head, b"")]
        for charge in charges:
            lines.append(_as_line(charge.to_fields(), lines[-1]))
        with replacing(target, readable=False) as file:
            file.writelines(lines)
        self._file_number = target.stat().st_ino
        self._end = sum(map(len, lines)), lines[-1]
        return self._append

    def _append(self, charge: Charge) -> None:
        """Write a charge and wait until it is on disk; refuse if the file is not as it was left
        here.
        """
        if self._path is None or not self._path.exists():
            raise RuntimeError(
                f"The ledger {self._path} must be where this run keeps it. It is not there. "
                "Nothing was released. Put it back."
            )
        with self._path.open("ab") as file:
            lock(file)  # until the file is closed
            status = os.fstat(file.fileno())
            size, before = self._end
            if status.st_size != size or status.st_ino != self._file_number:
                raise RuntimeError(
                    f"The ledger {self._path} must be written by this run alone. It was changed "
                    "since: by another process, or by a charge that was cut short. Nothing was "
                    "released. Go on from the last checkpoint, with one process only."
                )
            # In one step: an interrupt comes before the line or after all of this.
            self._end = (size + len(line := _write_line(file, charge.to_fields(), before)), line)


def read_charges(source: Path, content: bytes) -> tuple[str, Ledger]:
    """Return the name of the run and its ledger from the content of a file."""
    documents, ledger = _read(
        source, content, _RUN_KIND, "Put back the one of this run.", repeats=False
    )
    return str(documents[0].get("run")), ledger


def _read(
    source: Path, content: bytes, kind: str, remedy: str, *, repeats: bool
) -> tuple[list[dict[str, Any]], Ledger]:
    """Return the documents of a file, without their hashes, and the ledger that those after the
    head make.

    Without `repeats` the same charge twice in a row is one: an interrupt came after the first was
    written and before its release was made.
    """
    try:
        lines = _whole_lines(content).splitlines(keepends=True)
        head, *charges = documents = [json.loads(line) for line in lines]
        for document in documents:
            document.pop("hash", None)
        version = head["format_version"]
        if head["kind"] != kind or version not in (1, _VERSION):
            raise ValueError(f"kind {head['kind']!r}, format version {version!r}")
        if version == _VERSION:
            _check_hashes(lines, documents)
        of_several_runs = kind == _SHARED_KIND
        delta_limit = head.get("delta_limit", 0.0)
        if of_several_runs:
            limit = gdp_mu(head["epsilon"], head["delta"] - delta_limit)
        else:
            limit = head["mu_limit"]
        ledger = Ledger(limit, delta_limit=delta_limit)
        for before, fields in pairwise([None, *charges]):
            if repeats or fields != before:
                ledger.charge(**{name: value for name, value in fields.items() if name != "by"})
        if of_several_runs and version == 1:
            remedy = (
                "Make one that does with LedgerFile.create, and charge to it what this one has "
                f"spent: ledger.charge('earlier runs', sensitivity={ledger.mu!r}, scale=1.0, "
                f"delta={ledger.delta!r})."
            )
            raise ValueError("format version 1 does not say whose budget it is")
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        BudgetExhausted,
    ) as error:
        raise FileFormatError(
            f"{source} must be a {kind}. Reading it failed: {error!s}. {remedy}"
        ) from error
    return documents, ledger


def _check_hashes(lines: list[bytes], documents: list[dict[str, Any]]) -> None:
    for number, (before, line, document) in enumerate(
        zip([b"", *lines], lines, documents, strict=False), start=1
    ):
        if line != _as_line(document, before):
            raise ValueError(
                f"line {number} is not as it was written, or not after the line that was before it"
            )


def _whole_lines(content: bytes) -> bytes:
    """Return the lines of a file without half a line at the end: that charge was not made, and
    nothing was released.

    A last line that only lacks its end is whole, so that no charge is lost with it.
    """
    length = content.rfind(b"\n") + 1
    try:
        json.JSONDecoder().raw_decode(content[length:].decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return content[:length]
    return content + b"\n"


def _last_line(whole: bytes) -> bytes:
    return whole.splitlines(keepends=True)[-1]


def _check_free(target: Path) -> None:
    if target.exists():
        raise FileExistsError(
            f"{target} must not exist yet. It is the ledger of another run, and says which rows "
            "that has paid for. Save to another path, or remove it if none of its rows will be "
            "used again."
        )


def lock(file: Any) -> None:
    """Wait for the exclusive lock of an open file; it is held until the file is closed."""
    if fcntl is None:  # pragma: no cover
        raise OSError(
            "A ledger file needs locks that this system does not have. Run without saving."
        )
    fcntl.flock(file, fcntl.LOCK_EX)


def _as_line(document: dict[str, Any], before: bytes) -> bytes:
    """Return a document as one line of JSON, with the hash of itself and of the line before it."""
    content = json.dumps(document, allow_nan=False).encode()
    digest = hashlib.sha256(before + content).hexdigest()
    return (json.dumps({**document, "hash": digest}, allow_nan=False) + "\n").encode()


def _write_line(file: IO[bytes], document: dict[str, Any], before: bytes) -> bytes:
    """Write the line after another one, wait until it is on disk, and return it."""
    line = _as_line(document, before)
    file.write(line)
    file.flush()
    os.fsync(file.fileno())
    return line


def _keep_whole(file: IO[bytes], content: bytes) -> bytes:
    """Cut half a line at the end of an open file with this content, or end its last line; return
    the whole lines.
    """
    whole = _whole_lines(content)
    kept = min(len(whole), len(content))
    file.truncate(kept)
    file.seek(kept)
    file.write(whole[kept:])
    return whole


class LedgerFile(Payer):
    """A ledger in a file, which several runs, processes and estimators may charge, one at a time.

    Parameters
    ----------
    path : path
        The file. It must have been made by `create`: no budget begins by accident.
    by : str, optional
        Who charges, for the reader of the file; by default the name of the user.
    data : str, optional
        The name of the data that will be used; a ledger of others is refused.

    Attributes
    ----------
    data, unit, neighbours : str
        Whose budget it is; see `create`.
    epsilon, delta : float
        The guarantee that all runs together may spend.

    Notes
    -----
    A run states whom it protects, and a ledger for another unit or neighbour relation refuses it
    before anything is released: its charges mean something else there. Which data an array holds
    nobody can see; the command compares the names of files.

    A charge counts from the moment its line is on disk. Half a line at the end, which a crash may
    leave, is a charge that was not made: nothing was released for it. Every line has a hash of
    itself and of the line before it, so that a file that was changed is refused; but that its last
    lines are missing, or that all of it is an older copy, cannot be noticed.

    Examples
    --------
    >>> import tempfile
    >>> from odeco.privacy import LedgerFile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = LedgerFile.create(
    ...         f"{folder}/patients.ledger", data="patients", unit="record", epsilon=2.0, delta=1e-6
    ...     )
    ...     _ = ledger.charge("word frequencies", sensitivity=1.0, scale=10.0)
    ...     len(LedgerFile(f"{folder}/patients.ledger").charges), round(ledger.mu, 6)
    (1, 0.1)
    """

    def __init__(
        self, path: str | os.PathLike[str], *, by: str | None = None, data: str | None = None
    ) -> None:
        self.path = Path(path).absolute()
        self.by = _user() if by is None else by
        if not self.path.exists() or self.path.is_dir():
            raise FileNotFoundError(
                f"The ledger {self.path} must exist as a file. It does not. Make it once for "
                "these data, with odeco.privacy.LedgerFile.create(path, data=..., unit=..., "
                "epsilon=..., delta=...)."
            )
        head = self._documents_in(self._content())[0][0]
        self.data, self.unit, self.neighbours = (
            str(head[name]) for name in ("data", "unit", "neighbours")
        )
        self.epsilon = float(head["epsilon"])
        self.delta = float(head["delta"])
        if data is not None and data != self.data:
            raise ValueError(
                f"{self.path} must be the budget of the data that are used, {data!r}. It is that "
                f"of {self.data!r}. Nothing was spent. Make a ledger for each data set; if they "
                "are the same, pass that name as `data`."
            )

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        data: str,
        unit: str,
        neighbours: str | None = None,
        epsilon: float,
        delta: float,
        delta_limit: float = 0.0,
        by: str | None = None,
    ) -> LedgerFile:
        """Make the file, with the guarantee that all runs on these data may use up together.

        Parameters
        ----------
        path : path
            The file, which must not exist.
        data : str
            A name of the data set, for readers and for the command. It is public: choose it without
            the records.
        unit : str
            Whom the guarantee protects: "record" (a row, a document, a respondent), "user",
            "sequence", "edge" of a graph, or "entry" of a tensor.
        neighbours : str, optional
            The neighbour relation of the runs: "replace" (default) or "add_remove"; for edges
            "add_remove", for entries "distinct" (default) or "literal", with " by 2.0" after it if
            an entry changes by 2.0 and not by 1.
        epsilon, delta : float
            The guarantee of all runs together.
        delta_limit : float
            The part of δ that is kept for thresholds, which a private vocabulary needs; see
            `Ledger`.
        by : str, optional
            As for `LedgerFile`.
        """
        if neighbours is None:
            neighbours = {"entry": "distinct", "edge": "add_remove"}.get(unit, "replace")
        whose = {"data": data, "unit": _as_unit(unit), "neighbours": neighbours}
        for name, value in whose.items():
            if not isinstance(value, str) or not value:
                raise ValueError(f"`{name}` must be a text. Got {value!r}. Say whose budget it is.")
        head = {"kind": _SHARED_KIND, "format_version": _VERSION, **whose}
        head |= {"epsilon": check_epsilon(epsilon), "delta": check_delta(delta)}
        if delta_limit != 0:
            head["delta_limit"] = check_number("delta_limit", delta_limit, 0, delta)
        descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600
        )  # an old ledger is never replaced
        try:
            with os.fdopen(descriptor, "wb") as file, _naming(path):
                _write_line(file, head, b"")
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
    def spent_by(self) -> dict[str, float]:
        """The μ of the charges by each name, in the order of their first ones, as if all were on
        the same data.

        Budgets add up as squares of μ.
        """
        squares: dict[str, float] = {}
        for fields in self._documents_in(self._content())[0][1:]:
            name = fields.pop("by", "unknown")
            squares[name] = squares.get(name, 0.0) + Charge(**fields).mu ** 2
        return {name: math.sqrt(square) for name, square in squares.items()}

    def record(self, entry: Charge) -> None:
        """Record a charge, or refuse it; see `charge`."""
        with self._locked("rb+") as file:
            content = file.read()
            self._ledger_in(content).record(entry)
            with _naming(self.path):
                whole = _keep_whole(file, content)
                _write_line(file, {**entry.to_fields(), "by": self.by}, _last_line(whole))

    def check_run(self, *, unit: str, neighbours: str) -> None:
        """Raise unless the budget is for the unit and the neighbour relation of a run."""
        if (_as_unit(unit), neighbours) != (self.unit, self.neighbours):
            raise ValueError(
                f"{self.path} must be the budget of runs for unit {unit!r} and neighbours "
                f"{neighbours!r}, as this one. It is for unit {self.unit!r} and neighbours "
                f"{self.neighbours!r}. Nothing was spent. Make another ledger for this run: what "
                "it costs there means something else."
            )

    @contextmanager
    def _locked(self, mode: str) -> Iterator[IO[bytes]]:
        """Open the file and hold its lock until it is closed."""
        while True:
            with cast("IO[bytes]", self.path.open(mode)) as file:
                lock(file)
                opened = os.fstat(file.fileno())
                there = self.path.stat()
                if (opened.st_ino, opened.st_dev) == (there.st_ino, there.st_dev):
                    yield file
                    return
            # The file was replaced before the lock was had: a charge in the old one would be lost.

    def _read(self) -> Ledger:
        return self._ledger_in(self._content())

    def _content(self) -> bytes:
        with self._locked("rb") as file:
            return file.read()

    def _ledger_in(self, content: bytes) -> Ledger:
        return self._documents_in(content)[1]

    def _documents_in(self, content: bytes) -> tuple[list[dict[str, Any]], Ledger]:
        """Return the documents of the file, and the ledger that they are."""
        remedy = "Put back the one of these data: a new one would forget what has been spent."
        return _read(self.path, content, _SHARED_KIND, remedy, repeats=True)


def _as_unit(unit: str) -> str:
    """Return a unit as ledgers name it: models have other words for a row."""
    if unit in _ROWS:
        return "record"
    return unit


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
        raise OSError(
            error.errno, f"{error.strerror}; nothing was released", os.fspath(path)
        ) from error


def as_ledger(ledger: Any, *, unit: str, neighbours: str) -> Ledger | LedgerFile | None:
    """Return a ledger as it is, and a path as the ledger in that file, which must be for the
    neighbours of the run.
    """
    if isinstance(ledger, str | os.PathLike):
        found: Ledger | LedgerFile | None = LedgerFile(ledger)
    else:
        found = ledger
    if found is not None:
        found.check_run(unit=unit, neighbours=neighbours)
    return found
