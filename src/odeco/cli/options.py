"""The cluster that a command works on: ``--scheduler``.

Options that several sub-commands share.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import click
from threadpoolctl import threadpool_limits

from odeco.cli.output import note

option = click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Work on a Dask cluster: the address of its scheduler, such as tcp://host:8786, or its scheduler file. Its "
    "workers must see the FILEs under the same paths.",
)


#: Seconds to wait for the scheduler of a cluster.
_CONNECT_SECONDS = 10


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Connect to a cluster, and yield its client; None if there is no address."""
    if address is None:
        yield None
        return
    distributed: Any = import_module("distributed")  # it takes a second, and may be missing

    where = {"scheduler_file": address} if os.path.isfile(address) else {"address": address}  # noqa: PTH113 - or an URL
    try:
        made = distributed.Client(**where, set_as_default=False, timeout=_CONNECT_SECONDS)
    except (OSError, ValueError, AssertionError) as error:  # AssertionError: an address without a port
        raise click.ClickException(
            f"The scheduler of a Dask cluster must be reachable. There is none at {address} "
            f"({str(error).rstrip('.') or 'no port'}). Pass its address as --scheduler, such as tcp://host:8786, or "
            "its scheduler file."
        ) from error
    with made as client:
        n_threads = sum(client.nthreads().values())
        link = f"; it shows what it does at {client.dashboard_link}" if client.dashboard_link else ""
        note(f"cluster at {client.scheduler.address}: {len(client.nthreads()):,} workers, {n_threads:,} threads{link}")
        yield client


Function = TypeVar("Function", bound=Callable[..., Any])

FILE = click.Path(path_type=Path)


class OutputFile(click.Path):
    """A file that will be written: its folder must be there now, not when an hour's work is done.

    Parameters
    ----------
    replaces : bool
        Whether the file is written anew, whatever it holds; a checkpoint is read first.
    """

    def __init__(self, *, replaces: bool = True) -> None:
        super().__init__(path_type=Path, dir_okay=False)
        self.replaces = replaces

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a path in a folder that exists."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if not path.parent.is_dir():
            self.fail(f"{str(path.parent)!r} is no folder. Make it first.", param, ctx)
        return path


class ResultFile(OutputFile):
    """A file for a result. Its name says what it will hold, which is looked at with its place."""

    suffixes = (".npz", ".csv")


OUTPUT = OutputFile()

CHECKPOINT = OutputFile(replaces=False)


def listed(context: click.Context, parameter: click.Parameter, value: str | None) -> list[str] | None:
    """Return the names in a text, which are parted by commas, as in a line of CSV."""
    if value is None:
        return None
    names = [name.strip() for name in next(csv.reader([value], skipinitialspace=True), [])]
    if not names or not all(names):
        raise click.BadParameter(f"{value!r} must be names with commas between them.", context, parameter)
    return names


def number_or_auto(context: click.Context, parameter: click.Parameter, value: str) -> int | str:
    """Return an int, or the text ``auto``."""
    if value == "auto":
        return "auto"
    try:
        return int(value)
    except ValueError:
        text = f"{value!r} is neither a whole number nor 'auto'."
        raise click.BadParameter(text, context, parameter) from None


n_components = click.option("-k", "--n-components", type=int, required=True, metavar="K", help="Number of components.")

n_components_or_auto = click.option(
    "-k",
    "--n-components",
    metavar="K",
    callback=number_or_auto,
    required=True,
    help="Number of components, or 'auto' for those that stand clear of the noise.",
)

n_restarts = click.option("--n-restarts", type=int, metavar="L", help="Candidates for each component (the paper's L).")

n_iterations = click.option("--n-iterations", type=int, metavar="R", help="Images for each candidate (the paper's R).")

seed = click.option(
    "--seed", type=int, default=0, show_default=True, help="Draws the starts. The same seed gives the same bits."
)

threads = click.option("--threads", type=click.IntRange(1), metavar="N", help="At most so many threads.")

json_output = click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")

out = click.option(
    "--out", type=ResultFile(), metavar="FILE", help="Write the result there: .npz, without pickle, or a table as .csv."
)

report = click.option("--report", type=OUTPUT, metavar="FILE", help="Write an HTML page there.")

names = click.option(
    "--names", type=FILE, metavar="FILE", help="A text file with the name of each coordinate, one a line."
)

columns = click.option(
    "--columns", metavar="A,B,C", callback=listed, help="Columns of a table to read, by their names, in this order."
)

drop = click.option("--drop", metavar="A,B", callback=listed, help="Columns of a table to leave out, such as an id.")

top = click.option("--top", type=click.IntRange(0), default=5, show_default=True, help="Largest coordinates to show.")


def outputs(function: Function) -> Function:
    """Add the options about what comes out."""
    for option in (threads, top, names, report, out, json_output):
        function = option(function)
    return function


def limited(n_threads: int | None) -> AbstractContextManager[Any]:
    """Hold everything inside a ``with`` block to so many threads."""
    return nullcontext() if n_threads is None else threadpool_limits(limits=n_threads)
