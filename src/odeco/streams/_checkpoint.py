"""A file that holds where a long run stands, so that a run that was killed goes on from there."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from odeco._files import load_arrays, save_arrays
from odeco.errors import FileFormatError
from odeco.streams._driver import Driver

_KIND = "stream checkpoint"


class Checkpoint:
    """Saves a `Driver` now and then, and gives it back.

    Parameters
    ----------
    path : path or None
        Where; None saves nothing.
    seconds : float
        At least so long between two saves.
    identity : mapping
        Settings and data of the run, in JSON: a file of another run is refused.
    """

    def __init__(self, path: str | os.PathLike[str] | None, seconds: float, identity: Mapping[str, Any]) -> None:
        self.path = None if path is None else Path(path)
        self.seconds, self.identity = seconds, dict(identity)
        self._last = time.monotonic()

    def load(self) -> tuple[Driver, dict[str, Any]] | None:
        """Return what was saved last, with the place it was saved at; None if there is no file."""
        if self.path is None or not self.path.exists():
            return None
        header, arrays = load_arrays(self.path, _KIND)
        for name, wanted in self.identity.items():
            if header["identity"].get(name) != wanted:
                raise FileFormatError(
                    f"{self.path} must be the checkpoint of this run. It has {name}={header['identity'].get(name)!r}, "
                    f"the run {name}={wanted!r}. Pass another path, or remove the file to begin again."
                )
        return Driver.from_arrays(header["driver"], arrays), header["place"]

    def save_now_and_then(self, driver: Driver | None, place: Mapping[str, Any]) -> None:
        """Save if it is time to."""
        if time.monotonic() - self._last >= self.seconds:
            self.save(driver, place)

    def save(self, driver: Driver | None, place: Mapping[str, Any]) -> None:
        """Save now, if there is anything to save and a file to save it to."""
        if self.path is not None and driver is not None:
            header, arrays = driver.to_arrays()
            save_arrays(self.path, _KIND, {"identity": self.identity, "driver": header, "place": dict(place)}, arrays)
            self._last = time.monotonic()

    @contextmanager
    def saved_if_interrupted(self, driver: Driver | None, place: Mapping[str, Any]) -> Iterator[None]:
        """Save if what is done inside raises: so a callback can end a run, by an exception, and nothing is lost."""
        try:
            yield
        except BaseException:
            self.save(driver, place)
            raise

    def remove(self) -> None:
        """Remove the file of a run that has ended."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
