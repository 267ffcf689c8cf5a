"""Standard streams that cost no result: what a closed terminal, a full disk or a lost pipe does not
take is dropped.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: The signal that the terminal has closed; some systems have none.
_HANGUP = getattr(signal, "SIGHUP", None)


class SafeStream:
    """A standard output or error that never raises.

    Attributes
    ----------
    failure : str
        Why something could not be written; empty if all was.
    is_silent : bool
        Whether texts are dropped.
    """

    def __init__(self, stream: Any) -> None:
        self.is_silent = False
        self.failure = "it is closed" if stream is None else ""
        self.stream = _nowhere("w") if stream is None else stream

    def write(self, text: str | bytes) -> int:
        """Write a text; what the encoding does not have becomes an escape. Bytes are a text in
        UTF-8.
        """
        if isinstance(text, bytes):
            if not text:
                raise TypeError(
                    "this is a stream of texts"
                )  # click asks so what kind of stream it is
            text = text.decode()
        if self.is_silent:
            return len(text)
        try:
            self.stream.write(text)
        except UnicodeEncodeError:
            encoding = self.stream.encoding
            return self.write(text.encode(encoding, "backslashreplace").decode(encoding))
        except TypeError:  # bytes: click tries what kind of stream this is
            raise
        except Exception as error:  # noqa: BLE001 - whatever happens to a terminal
            self._give_up(error)
        return len(text)

    def flush(self) -> None:
        """Write what waits in the buffer."""
        try:
            self.stream.flush()
        except Exception as error:  # noqa: BLE001 - whatever happens to a terminal
            self._give_up(error)

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":  # through which click would write around this object
            raise AttributeError(name)
        return getattr(self.stream, name)

    def _give_up(self, error: Exception) -> None:
        self.failure = reason_of(error)
        self.stream = _nowhere("w")  # Python would try again to write the buffer when it ends


@contextmanager
def safe_streams() -> Iterator[None]:
    """Make the standard streams safe inside a ``with`` block; sizes of a terminal that are no
    numbers are forgotten.
    """
    for name in ("COLUMNS", "LINES"):
        size = os.environ.get(name, "")
        if not size.isdecimal() or int(size) == 0:
            os.environ.pop(name, None)
    # In this order, so that each takes the number of the descriptor that is closed, and no other
    # file ever does.
    if sys.stdin is None:
        sys.stdin = _nowhere("r")
    made = {name: SafeStream(getattr(sys, name)) for name in ("stdout", "stderr")}
    for name, stream in made.items():
        setattr(sys, name, stream)
    before = None if _HANGUP is None else signal.getsignal(_HANGUP)
    try:
        yield
    finally:
        if _HANGUP is not None and signal.getsignal(_HANGUP) is not before:
            signal.signal(_HANGUP, before)
        for name, stream in made.items():
            stream.flush()
            setattr(sys, name, stream.stream)


def silence_notes() -> None:
    """Drop what goes to the standard error, but for what is written inside `speak`."""
    if isinstance(sys.stderr, SafeStream):
        sys.stderr.is_silent = True


@contextmanager
def speak() -> Iterator[None]:
    """Write errors, warnings and questions, whether notes are dropped or not."""
    stream: Any = sys.stderr
    before = getattr(stream, "is_silent", False)
    stream.is_silent = False
    try:
        yield
    finally:
        stream.is_silent = before


def outlive_terminal() -> None:
    """Go on if the terminal closes, until the end of `safe_streams`: what is paid for must be
    delivered.
    """
    if _HANGUP is not None:
        signal.signal(_HANGUP, signal.SIG_IGN)


def output_failure() -> str:
    """Return why the standard output could not be written; empty if it was."""
    sys.stdout.flush()
    failure = getattr(sys.stdout, "failure", "")
    return f"The standard output could not be written: {failure}." if failure else ""


def reason_of(error: Exception) -> str:
    """Return the reason of an error in a few words, without a full stop."""
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return str(error).rstrip(".") or type(error).__name__


def _nowhere(mode: str) -> Any:
    return Path(os.devnull).open(mode)
