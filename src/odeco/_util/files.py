"""Files of arrays with a JSON header: ``.npz`` without pickle, with a version, and replaced
atomically.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import json
import math
import os
import secrets
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any, TypeVar

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from odeco._util.state import State, check_names, require
from odeco.errors import FileFormatError

try:
    import fcntl
except ImportError:  # pragma: no cover - no such locks on Windows
    fcntl = None  # type: ignore[assignment]


FORMAT_VERSION = 3

_S = TypeVar("_S", bound=State)

#: The largest size of an array in a compressed archive: this number of bytes, or this multiple of
#: the size of the file.
_ARRAY_BYTES = 1 << 27
_MAX_INFLATION = 32

_HEADER = "header"


def save_arrays(
    path: str | os.PathLike[str],
    kind: str,
    header: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    *,
    readable: bool = False,
) -> None:
    """Write `arrays` and `header` to `path` atomically: the old file stays until the new one is
    complete.

    The file is a plain ``.npz``; the entry ``header`` is a string of JSON with the keys ``kind``
    (what the file holds), ``format_version`` and those of `header`. Only its owner may read the
    file, because a checkpoint holds rows of data. A file that is `readable` has the permissions
    that the system gives to new files.
    """
    text = json.dumps({"kind": kind, "format_version": FORMAT_VERSION, **header})
    with replacing(path, readable=readable) as file:
        np.savez(file, allow_pickle=False, **{_HEADER: np.array(text)}, **arrays)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], *, readable: bool = True) -> Iterator[IO[bytes]]:
    """Open a new file that takes the place of `path` once it is written and safe on disk, and not
    before.

    A symbolic link stays, and its target is replaced. A path that exists and is not a file is
    refused.
    """
    target = _target(path)
    temporary, descriptor = _new_temporary(target, 0o666 if readable else 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if fcntl is not None:
                temporary.replace(target)  # while the file is open, and so locked
        if fcntl is None:  # pragma: no cover - Windows moves no open file
            temporary.replace(target)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and error.filename is None:
            error.filename = os.fspath(
                path
            )  # a write that fails, such as on a full disk, does not name the file
        raise
    _sync_directory(target.parent)


def try_to_write(path: str | os.PathLike[str]) -> None:
    """Raise the error now that writing `path` would raise, and remove temporary files that killed
    processes left.
    """
    temporary, descriptor = _new_temporary(_target(path), 0o600)
    os.close(descriptor)
    temporary.unlink()


def _target(path: str | os.PathLike[str]) -> Path:
    """Return the file to write, which is the target of a symbolic link; refuse devices, pipes and
    directories.
    """
    target = Path(path)
    if target.is_symlink():
        target = target.resolve()
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if target.exists() and not target.is_file():
        raise OSError(
            f"{path} must be a file. It is a device or a pipe, which is not replaced. Pass "
            "another path."
        )
    return target


def _new_temporary(target: Path, mode: int) -> tuple[Path, int]:
    """Return a new file beside `target` and its descriptor, locked; remove those of processes that
    were killed.
    """
    for entry in target.parent.glob(f".{glob.escape(target.name)}.????????.tmp"):
        _remove_if_abandoned(entry)
    while True:
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        except OSError as error:
            error.filename = os.fspath(target)  # the name that the user knows
            raise
        _try_to_lock(descriptor)
        if temporary.exists():  # else it was taken for abandoned before it was locked
            return temporary, descriptor
        os.close(descriptor)


def _remove_if_abandoned(temporary: Path) -> None:
    """Remove a temporary file that no process has locked: a process that writes one holds a lock
    until it ends.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(temporary, os.O_RDWR | os.O_NOFOLLOW)
        try:
            if _try_to_lock(descriptor):
                temporary.unlink(missing_ok=True)
        finally:
            os.close(descriptor)


def _try_to_lock(descriptor: int) -> bool:
    if fcntl is None:  # pragma: no cover - no such locks on Windows: nothing is removed there
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def load_arrays(
    path: str | os.PathLike[str], kind: str
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read what `save_arrays` wrote; refuse other kinds, other versions and damaged files."""
    with faults_of(path), _opened(path) as file:  # once: another process may replace it meanwhile
        contents = _contents(path, file)
        if contents.kind != kind:
            raise FileFormatError(
                f"{path} must hold {kind}. It holds {contents.kind}. Load it with the class that "
                "saved it."
            )
        file.seek(0)
        with np.load(file, allow_pickle=False) as archive:
            return contents.header, {name: archive[name] for name in contents.arrays}


def load_state(path: str | os.PathLike[str], kind: str, state: type[_S]) -> _S:
    """Read a state whose arrays, with no prefix, are all that a file holds."""
    header, arrays = load_arrays(path, kind)
    with faults_of(path):
        require(not header, f"its header has an unknown {next(iter(header), '')[:40]!r}")
        made = state.from_arrays(arrays, "")
        check_names(arrays, {"": made})
    return made


@dataclass(frozen=True)
class Contents:
    """The header of a file, and the shapes of its arrays.

    Attributes
    ----------
    kind : str
        What the file holds, such as ``"components"``.
    format_version : int
        The version of the format that it is written in.
    header : dict
        The other entries of its JSON header.
    arrays : dict
        The shape and type of each array.
    """

    kind: str
    format_version: int
    header: dict[str, Any]
    arrays: dict[str, tuple[tuple[int, ...], np.dtype[Any]]]


def read_contents(path: str | os.PathLike[str]) -> Contents:
    """Read the header of a file and the shapes of its arrays; refuse files that `save_arrays`
    cannot have written.

    The file may come from anyone. Nothing in it is executed. Reading takes no more memory than the
    file is long, because compressed arrays are refused, and the announced size of each array is
    compared with the bytes that are there.
    """
    with faults_of(path), _opened(path) as file:
        return _contents(path, file)


@contextlib.contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a regular file to read; reading a pipe or a device might never end."""
    mode = Path(path).stat().st_mode
    require(
        stat.S_ISREG(mode) or stat.S_ISDIR(mode), "it is no regular file"
    )  # opening a directory names it
    with Path(path).open("rb") as file:
        yield file


def _contents(path: str | os.PathLike[str], file: IO[bytes]) -> Contents:
    """Return the contents of an open file."""
    size = os.fstat(file.fileno()).st_size
    # If NumPy opened a damaged file itself, it would leave the file open.
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        compressed = any(entry.compress_type != zipfile.ZIP_STORED for entry in entries)
        if compressed or sum(entry.file_size for entry in entries) > size:
            raise ValueError("its entries are not stored as they are")
        arrays = {
            entry.filename.removesuffix(".npy"): _announced(archive, entry) for entry in entries
        }
        if len(arrays) < len(entries):
            raise ValueError("it holds two entries of one name")
        with archive.open(f"{_HEADER}.npy") as member:
            header = json.loads(str(npy_format.read_array(member, allow_pickle=False)))
            if not isinstance(header, dict):
                raise ValueError("its header is no object with names")
    del arrays[_HEADER]
    kind = header.pop("kind")
    version = header.pop("format_version")
    if not isinstance(kind, str) or type(version) is not int:
        raise TypeError("its kind must be a text and its version a whole number")
    if version > FORMAT_VERSION:
        raise FileFormatError(
            f"{path} has format version {version}. This odeco reads up to {FORMAT_VERSION}. "
            "Install a newer odeco."
        )
    if version < FORMAT_VERSION:
        raise FileFormatError(
            f"{path} has format version {version}. This odeco reads version {FORMAT_VERSION}. "
            "Read it with the odeco that wrote it, or make it again."
        )
    return Contents(kind, version, header, arrays)


def announced_arrays(
    path: str | os.PathLike[str],
) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Return shape and type of every array in a NumPy archive, compressed or not, without reading
    the arrays.
    """
    with faults_of(path, "Make it again with numpy.savez."), zipfile.ZipFile(path) as archive:
        return {
            entry.filename.removesuffix(".npy"): _announced(archive, entry)
            for entry in archive.infolist()
        }


def read_array(path: str | os.PathLike[str], name: str) -> NDArray[Any]:
    """Return one array of a NumPy archive; refuse one that is far larger than its file."""
    shape, dtype = announced_arrays(path)[name]
    size = math.prod(shape) * dtype.itemsize
    file_size = Path(path).stat().st_size
    if size > max(_ARRAY_BYTES, _MAX_INFLATION * file_size):
        raise FileFormatError(
            f"An array in {path} must not be far larger than the file. {name!r} takes {size:,} "
            f"bytes, the file {file_size:,}. If that is right, write it with numpy.save."
        )
    with (
        faults_of(path, "Make it again with numpy.savez."),
        zipfile.ZipFile(path) as archive,
        archive.open(f"{name}.npy") as file,
    ):
        array: NDArray[Any] = npy_format.read_array(file, allow_pickle=False)
    return array


def _announced(
    archive: zipfile.ZipFile, entry: zipfile.ZipInfo
) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape and type of one array; raise if it holds Python objects, or is not
    complete.
    """
    with archive.open(entry) as file:
        version = npy_format.read_magic(file)
        read_header = (
            npy_format.read_array_header_1_0
            if version == (1, 0)
            else npy_format.read_array_header_2_0
        )
        shape, _, dtype = read_header(file)
        if dtype.hasobject:
            raise ValueError(
                f"{entry.filename} holds Python objects, which would have to be executed"
            )
        if math.prod(shape) * dtype.itemsize != entry.file_size - file.tell():
            raise ValueError(
                f"{entry.filename} announces shape {shape}, which is not what is there"
            )
    return shape, dtype


@contextlib.contextmanager
def faults_of(
    path: str | os.PathLike[str], remedy: str = "Write it again with save()."
) -> Iterator[None]:
    """Turn every error that a damaged or malicious file raises while it is read into a
    `FileFormatError`.
    """
    try:
        yield
    except (FileNotFoundError, IsADirectoryError, PermissionError, FileFormatError):
        raise
    except (
        *(OSError, EOFError, ValueError, LookupError, AttributeError, TypeError, RuntimeError),
        *(MemoryError, ArithmeticError, SyntaxError, TokenError, zipfile.BadZipFile, zlib.error),
    ) as error:
        raise FileFormatError(f"{path} is not a complete odeco file: {error}. {remedy}") from error


def _sync_directory(directory: Path) -> None:
    # The new name is safe on disk only once the directory is. Some file systems cannot sync a
    # directory.
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
