"""One flow for all commands that compute: read, agree on the budget, compute; an interrupt is heard
at each step.

What was computed is delivered by `odeco.cli.output.deliver`, whatever happens to the terminal.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
from threadpoolctl import threadpool_limits

from odeco._util.stages import LOG
from odeco.cli.app import Interrupts, LastingInterrupt
from odeco.cli.output import note
from odeco.display.progress import progress_bar

#: Receives the stage of the work, how much of it is done, of how much, and a text such as "3 of
#: 10".
Show = Callable[..., object]

#: Seconds to wait for the scheduler of a cluster.
_CONNECT_SECONDS = 10

#: How addresses of schedulers begin.
_SCHEMES = ("tcp", "tls", "ws", "wss", "ucx", "inproc")


@contextmanager
def stages(*, at_once: bool = True) -> Iterator[tuple[Show, Interrupts]]:
    """Yield a function that shows the stage of the work, and raises after an interrupt; and the
    interrupt.

    Parameters
    ----------
    at_once : bool
        Whether an interrupt ends the work where it is. A run with a checkpoint ends at its next
        stage instead, when the checkpoint is whole.
    """
    heard = LastingInterrupt() if at_once else Interrupts()
    with heard as interrupts, progress_bar(only_on_terminal=True) as show_progress:
        current = ""

        def show(stage: str, done: float = 0, total: float | None = None, count: str = "") -> None:
            nonlocal current
            current = stage
            interrupts.check()
            show_progress(stage, done, total, count)

        def show_step(step: str) -> None:
            interrupts.check()
            show_progress(f"{current}: {step}")

        with _followed(show_step):
            yield show, interrupts


class _Messages(logging.Handler):
    """Passes messages on."""

    def __init__(self, show: Callable[[str], object]) -> None:
        super().__init__()
        self.show = show

    def emit(self, record: logging.LogRecord) -> None:
        """Show a message; an interrupt may be raised, and ends the work."""
        self.show(record.getMessage())


@contextmanager
def _followed(show: Callable[[str], object]) -> Iterator[None]:
    """Show the messages of the library's logger inside a ``with`` block."""
    handler = _Messages(show)
    level = LOG.level
    LOG.addHandler(handler)
    LOG.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        LOG.setLevel(level)
        LOG.removeHandler(handler)


@contextmanager
def with_standard_input(
    files: tuple[Path, ...], *, private: bool = False
) -> Iterator[tuple[Path, ...]]:
    """Yield files, with a copy of the standard input as a CSV file in place of ``-``."""
    if not any(str(file) == "-" for file in files):
        yield files
        return
    if private:
        raise click.UsageError("A private run reads a FILE, not the standard input. Pass a path.")
    with tempfile.TemporaryDirectory(prefix="odeco-") as folder:
        copy = Path(folder) / "standard-input.csv"
        with copy.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield tuple(copy if str(file) == "-" else file for file in files)


def limited(n_threads: int | None) -> AbstractContextManager[Any]:
    """Limit the number of threads inside a ``with`` block."""
    return nullcontext() if n_threads is None else threadpool_limits(limits=n_threads)


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Connect to a cluster, and yield its client; None if there is no address."""
    if address is None:
        yield None
        return
    distributed: Any = import_module("distributed")  # it takes a second, and may be missing
    try:
        where = _address_in(address)
        made = distributed.Client(where, set_as_default=False, timeout=_CONNECT_SECONDS)
    except Exception as error:  # what listens there may be anything
        raise click.ClickException(
            f"The scheduler of a Dask cluster must be reachable. There is none at {address!r}: "
            f"{str(error).rstrip('.')}. Pass its address as --scheduler, such as tcp://host:8786, "
            "or its scheduler file."
        ) from error
    with made as client:
        n_threads = sum(client.nthreads().values())
        link = f"; dashboard at {client.dashboard_link}" if client.dashboard_link else ""
        note(
            f"cluster at {client.scheduler.address}: {len(client.nthreads()):,} workers, "
            f"{n_threads:,} threads{link}"
        )
        yield client


def _address_in(text: str) -> str:
    """Return the address of a scheduler, from a scheduler file if it names one; raise unless
    something listens there.

    The client of Dask would wait for addresses that lead nowhere, and end with a traceback.
    """
    address = text
    if os.path.isfile(text):  # noqa: PTH113 - or an URL
        try:
            address = str(json.loads(Path(text).read_bytes())["address"])
        except (ValueError, KeyError, TypeError):
            raise ValueError("it is a file, but no scheduler file") from None
    place = urlsplit(address if "://" in address else f"tcp://{address}")
    if place.scheme not in _SCHEMES:
        raise ValueError(f"an address begins with one of {', '.join(_SCHEMES)}")
    if place.scheme == "inproc":  # a cluster of this process, which listens at no port
        return address
    if place.hostname is None or place.port is None:
        raise ValueError("an address has a host and a port")
    with socket.create_connection((place.hostname, place.port), timeout=_CONNECT_SECONDS):
        return address
