"""Files in object stores: `UrlPath` has those methods of `pathlib.Path` that the readers of odeco
call.

``s3://``, ``gs://``, ``abfs://`` and ``hdfs://`` are opened by `pyarrow.fs`, any other scheme, such
as ``hf://``, by the package that registers it with fsspec. Credentials and regions are those of the
environment, as these libraries find them; the part of an URL after ``?`` has options of
`pyarrow.fs`, such as ``endpoint_override``.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from odeco._util.lazy import import_arrow
from odeco.errors import SourceError

# A reader is written for `Path`, and gets a `UrlPath` in its place.
if TYPE_CHECKING:
    _Base = Path
else:
    _Base = object

#: Bytes that one request reads at least: their transfer takes about as long as the latency.
_REQUEST_BYTES = 1 << 20

#: Characters of a name that stand in an URL as they are.
_PLAIN = "/%:@=*+,;!'()~$&"


class Status(NamedTuple):
    """What a store says about an object, under the names of `os.stat_result`."""

    st_ino: int
    st_size: int
    st_mtime_ns: int


class UrlPath(_Base):
    """An object, or the objects with a prefix that ends in a slash: the file and the folder of an
    object store.
    """

    def __init__(self, url: str) -> None:
        scheme, rest = url.split("://", 1)
        key, mark, query = rest.partition("?")
        key = quote(key.rstrip("/"), safe=_PLAIN)
        self._base = f"{scheme}://{key}"
        self._query = mark + query
        self._url = self._base + self._query
        self._shown = f"{scheme}://{key.rpartition('@')[2]}"  # without a password
        self._name = unquote(self._shown.rpartition("/")[2])

    def __str__(self) -> str:
        return self._url

    def __format__(self, _: str) -> str:
        return self._shown  # in a sentence there is no room for a password and options

    def __repr__(self) -> str:
        return f"UrlPath({self._shown!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UrlPath) and self._url == other._url

    def __hash__(self) -> int:
        return hash(self._url)

    def __lt__(self, other: Any) -> bool:
        return str(self) < str(other)

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return self._name

    @property
    def suffix(self) -> str:
        """The end of the name, from its last dot on."""
        return Path(self._name).suffix

    def stat(self, *, follow_symlinks: bool = True) -> Any:  # noqa: ARG002 - the signature of Path
        """Return size and time of the last change; raise `FileNotFoundError` if there is no such
        object.
        """
        found = self._info()
        if found.type.name == "NotFound":
            raise FileNotFoundError(2, "No such file or directory", self._shown)
        return Status(0, found.size or 0, found.mtime_ns or 0)

    def exists(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002
        """Tell whether there is such an object or folder."""
        return bool(self._info().type.name != "NotFound")

    def is_file(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002
        """Tell whether there is such an object."""
        return bool(self._info().type.name == "File")

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002
        """Tell whether there are objects below."""
        return bool(self._info().type.name == "Directory")

    def iterdir(self) -> Any:
        """Yield what is in the folder."""
        _, key = self.opened()
        for below in self._list(key, recursive=False):
            yield self._child(self._base, below)

    def rglob(self, pattern: str, *_: Any, **__: Any) -> Any:
        """Yield the objects in the folder and the folders below whose names match."""
        _, key = self.opened()
        for below in self._list(key):
            if fnmatchcase(below.rpartition("/")[2], pattern):
                yield self._child(self._base, below)

    def matching(self) -> Iterator[UrlPath]:
        """Yield the objects that match the URL as a pattern, in which * stands for part of a name;
        none without *.
        """
        _, key = self.opened()
        parts = key.split("/")
        fixed = next((place for place, part in enumerate(parts) if "*" in part), len(parts))
        if fixed == len(parts):
            return
        base = self._base.rsplit("/", len(parts) - fixed)[0]
        for below in self._list("/".join(parts[:fixed])):
            own = below.split("/")
            if len(own) == len(parts) - fixed and all(map(fnmatchcase, own, parts[fixed:])):
                yield self._child(base, below)

    def relative_to(self, *other: Any, **_: Any) -> Any:
        """Return the path below a folder."""
        return Path(unquote(self._base.removeprefix(other[0]._base + "/")))

    def open(self, mode: str = "r", buffering: int = -1, **text: Any) -> Any:  # type: ignore[override]
        """Open the object for reading, as bytes or as text."""
        if set(mode) - set("rbt"):
            raise ValueError(
                f"{self._shown} is only read. Got the mode {mode!r}. Write to a local file."
            )
        file: Any = self.open_native()
        raw: Any = io.BufferedReader(file, _REQUEST_BYTES) if buffering else file
        return raw if "b" in mode else io.TextIOWrapper(raw, **text)

    def read_text(
        self, encoding: str | None = None, errors: str | None = None, newline: str | None = None
    ) -> str:
        """Return the object as text."""
        with self.open(encoding=encoding, errors=errors, newline=newline) as file:
            return str(file.read())

    def open_native(self) -> Any:
        """Open the object as a file of pyarrow, every read of which is one request."""
        self.stat()  # so that a missing object is not reported as a damaged one
        filesystem, key = self.opened()
        with self._reaching():
            return filesystem.open_input_file(key)

    def opened(self) -> tuple[Any, str]:
        """Return the file system of pyarrow, and the name of the object in it."""
        with self._reaching():
            return _filesystem(self._url)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Turn what reading raises when the store goes away into an error that says what to
        check.
        """
        try:
            yield
        except OSError as error:
            raise self.unreachable(error) from error

    def unreachable(self, error: Exception) -> SourceError:
        """Return the error for a store that does not give the object."""
        reason = (
            str(error).strip().rstrip(".").replace(self._url, self._shown) or type(error).__name__
        )
        return SourceError(
            f"{self._shown} must be reachable, with credentials that may read it. It is not: "
            f"{reason}. Check the URL, the credentials of the environment and the network.",
        )

    def _info(self) -> Any:
        filesystem, key = self.opened()
        with self._reaching():
            return filesystem.get_file_info(key)

    def _list(self, key: str, *, recursive: bool = True) -> list[str]:
        """Return the names of what is in a folder, relative to it and in alphabetical order."""
        filesystem, _ = self.opened()
        selector = import_module("pyarrow.fs").FileSelector(
            key, recursive=recursive, allow_not_found=True
        )
        with self._reaching():
            return sorted(
                found.path[len(key) :].strip("/") for found in filesystem.get_file_info(selector)
            )

    def _child(self, base: str, below: str) -> UrlPath:
        return UrlPath(f"{base}/{quote(below, safe=_PLAIN.replace('%', ''))}{self._query}")

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Turn what a store raises into an error that says what to check; a missing object is a
        missing file.
        """
        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(2, "No such file or directory", self._shown) from error
        except (OSError, ValueError) as error:
            if isinstance(error, SourceError):
                raise
            raise self.unreachable(error) from error


@lru_cache(maxsize=32)
def _filesystem(url: str) -> tuple[Any, str]:
    scheme = f"{urlsplit(url).scheme}://"
    arrow = import_arrow(scheme)
    fs = import_arrow(scheme, ".fs")
    try:
        found: tuple[Any, str] = fs.FileSystem.from_uri(url)
    except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError, ImportError) as error:
        try:
            other, key = import_module("fsspec").core.url_to_fs(url)
        except (ImportError, ValueError) as missing:
            if isinstance(error, arrow.ArrowInvalid) and "Unrecognized filesystem" not in str(
                error
            ):
                text = (
                    f"{UrlPath(url)} must be a complete URL. It is not: {error}. Write the bucket "
                    "and the key."
                )
                raise SourceError(text) from error
            raise ModuleNotFoundError(
                f"URLs must have a scheme that pyarrow or fsspec can read. Got {scheme} "
                f"({error or missing}). Install the package that reads it: huggingface_hub for "
                "hf://, aiohttp and fsspec for https://.",
                name="fsspec",
            ) from missing
        return fs.PyFileSystem(fs.FSSpecHandler(other)), key
    return found


def as_path(path: str | os.PathLike[str]) -> Path:
    """Return a path, or a `UrlPath` for a text such as ``s3://bucket/rows.parquet``."""
    if isinstance(path, UrlPath):
        return path
    text = os.fspath(path)
    if "://" not in text:
        return Path(path)
    return Path(unquote(urlsplit(text).path)) if text.startswith("file://") else UrlPath(text)
