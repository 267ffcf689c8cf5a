"""The cluster that a command works on: ``--scheduler``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from odeco.cli._output import note

option = click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Work on a Dask cluster: the address of its scheduler, such as tcp://host:8786, or its scheduler file. Its "
    "workers must see the FILEs under the same paths.",
)


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Connect to a cluster, and yield its client; None if there is no address."""
    if address is None:
        yield None
        return
    distributed: Any = import_module("distributed")  # it takes a second, and may be missing

    where = {"scheduler_file": address} if os.path.isfile(address) else {"address": address}  # noqa: PTH113 - or an URL
    with distributed.Client(**where, set_as_default=False) as client:
        n_threads = sum(client.nthreads().values())
        link = f"; it shows what it does at {client.dashboard_link}" if client.dashboard_link else ""
        note(f"cluster at {client.scheduler.address}: {len(client.nthreads()):,} workers, {n_threads:,} threads{link}")
        yield client
