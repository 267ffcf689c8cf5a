"""The file of a run, pulled or pushed: what it was asked to do and where it stands, so that it can go on from there."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from odeco._files import faults_of, load_arrays, save_arrays
from odeco.errors import FileFormatError
from odeco.privacy import Account
from odeco.streams._run import Run
from odeco.streams._schema import check_run_file
from odeco.streams._settings import Settings

KIND = "stream run"
_REMEDY = "Go on from another checkpoint, or begin again."


@dataclass(frozen=True)
class RunFile:
    """What the file of a run says.

    Attributes
    ----------
    settings : Settings
        What the run was asked to do.
    seed : int
        What its starts depend on.
    source : str or None
        The fingerprint of the data that it pulls; None if rows are pushed to it.
    account : dict or None
        Where the ledger of a private run is.
    run : dict or None
        Where it stands, in JSON; None before the first rows.
    arrays : dict
        The arrays that belong to `run`.
    digest : str or None
        The digest of the rows read of the current pass, where `source` does not tell enough.
    names : tuple of str or None
        The names of the columns of rows that are pushed, where these have some.
    path : path or None
        Where it was read.
    """

    settings: Settings
    seed: int
    source: str | None = None
    account: dict[str, Any] | None = None
    run: dict[str, Any] | None = None
    arrays: dict[str, Any] | None = None
    digest: str | None = None
    names: tuple[str, ...] | None = None
    path: Path | None = None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file, atomically and without pickle; only its owner may read it."""
        header = {name: getattr(self, name) for name in ("seed", "source", "digest", "account", "run")}
        if self.names is not None:
            header["names"] = list(self.names)
        save_arrays(path, KIND, {**header, "settings": asdict(self.settings)}, self.arrays or {})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> RunFile:
        """Read what `save` wrote."""
        header, arrays = load_arrays(path, KIND)
        with faults_of(path, _REMEDY):
            settings = check_run_file(header, arrays)
        names = ("seed", "source", "account", "run", "digest")
        columns = header.get("names")
        return cls(
            settings,
            **{name: header[name] for name in names},
            arrays=arrays,
            names=None if columns is None else tuple(columns),
            path=Path(path),
        )

    def resume(self, account: Account | None = None, *, stops_when_found: bool = False) -> Run | None:
        """Return the run as it was saved; None if it had not begun."""
        if self.run is None or self.arrays is None:
            return None
        with faults_of(self.path or "", _REMEDY):
            return self.settings.resume(self.run, self.arrays, account, stops_when_found=stops_when_found)


class Checkpoint:
    """Saves a pulled run now and then, and gives it back.

    Parameters
    ----------
    path : path or None
        Where; None saves nothing.
    seconds : float
        At least so long between two saves.
    settings, seed, source
        What the run is: a file of another run is refused.

    Attributes
    ----------
    digest : str or None
        The digest of the rows read of the current pass, which goes into the file.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None, seconds: float, settings: Settings, seed: int, source: str
    ) -> None:
        self.path = None if path is None else Path(path)
        self.seconds, self.settings, self.seed, self.source = seconds, settings, seed, source
        self.digest: str | None = None
        self._last = time.monotonic()

    def load(self, *, any_seed: bool, stops_when_found: bool) -> Run | None:
        """Return the run as it was saved last, or None if there is no file.

        Its seed must be that of this run, or, with `any_seed`, is taken over.
        """
        if self.path is None or not self.path.exists():
            return None
        file = RunFile.load(self.path)
        if any_seed:
            self.seed = file.seed
        asked = {**asdict(self.settings), "source": self.source, "seed": self.seed}
        held = {**asdict(file.settings), "source": file.source, "seed": file.seed}
        for name, wanted in asked.items():
            if held[name] != wanted:
                raise FileFormatError(
                    f"{self.path} must be the checkpoint of this run. It has {name}={held[name]!r}, the run "
                    f"{name}={wanted!r}. Pass another path, or remove the file to begin again."
                )
        self.digest = file.digest
        return file.resume(stops_when_found=stops_when_found)

    def save_now_and_then(self, run: Run) -> None:
        """Save if it is time to."""
        if time.monotonic() - self._last >= self.seconds:
            self.save(run)

    def save(self, run: Run) -> None:
        """Save now, if there is a file to save to."""
        if self.path is not None:
            header, arrays = run.to_arrays()
            file = RunFile(self.settings, self.seed, self.source, run=header, arrays=arrays, digest=self.digest)
            file.save(self.path)
            self._last = time.monotonic()

    @contextmanager
    def saved_if_interrupted(self, run: Run) -> Iterator[None]:
        """Save if what is done inside raises: so a callback can end a run, by an exception, and nothing is lost."""
        try:
            yield
        except BaseException:
            self.save(run)
            raise

    def remove(self) -> None:
        """Remove the file of a run that has ended."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
