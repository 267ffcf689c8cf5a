"""Arrays and a JSON header in one ``.npz`` file: no pickle, a version, and never half written."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odeco._checks import FileFormatError

FORMAT_VERSION = 1
_HEADER = "header"


def save_arrays(
    path: str | os.PathLike[str], kind: str, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Write `arrays` and `header` to `path` atomically: the old file stays until the new one is complete.

    The file is a plain ``.npz``; the entry ``header`` is a string of JSON with the keys ``kind`` (what the file
    holds), ``format_version`` and those of `header`.
    """
    text = json.dumps({"kind": kind, "format_version": FORMAT_VERSION, **header})
    target = Path(path)
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            np.savez(file, allow_pickle=False, **{_HEADER: np.array(text)}, **arrays)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()
        raise
    _sync_directory(target.parent)


def load_arrays(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read what `save_arrays` wrote; refuse other kinds, newer versions and damaged files."""
    try:
        # NumPy leaves a damaged file open if it opened it itself.
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as archive:
            entries = {name: archive[name] for name in archive.files}
        header = json.loads(str(entries.pop(_HEADER)))
        found_kind, version = header.pop("kind"), header.pop("format_version")
    except FileNotFoundError:
        raise
    except (OSError, EOFError, ValueError, KeyError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise FileFormatError(f"{path} is not a complete odeco file: {error}. Write it again with save().") from error
    if found_kind != kind:
        raise FileFormatError(f"{path} must hold {kind}. It holds {found_kind}. Load it with the class that saved it.")
    if version > FORMAT_VERSION:
        raise FileFormatError(
            f"{path} has format version {version}. This odeco reads up to {FORMAT_VERSION}. Install a newer odeco."
        )
    return header, entries


def _sync_directory(directory: Path) -> None:
    # The new name is safe on disk only once its directory is; some file systems cannot sync one.
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
