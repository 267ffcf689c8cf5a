"""The cluster: its client, how many threads it has, and what must be the same on all of its machines."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np
import scipy

from odeco._util.version import __version__

Answer = TypeVar("Answer")


#: A scheduler that loses several workers under one task gives the task up; it is asked so many times.
MOST_TRIES = 5

#: How often the client looks how far workers are.
_LOOK_SECONDS = 0.1


class Cluster:
    """A client of Dask, and what is asked of it."""

    def __init__(self, client: Any) -> None:
        self.client = client

    @property
    def n_threads(self) -> int:
        """How many tasks can run at a time; 1 at least, since workers may still be on their way."""
        return max(1, sum(int(number) for number in self.client.nthreads().values()))

    def hold(self, value: Any) -> Any:
        """Return a value as the result of a task: workers fetch it from each other, and it can be made again."""
        config = import_module("dask.config")
        with config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):  # one copy, and meant to be
            return self.submit(_itself, value, name="block")

    def submit(self, function: Callable[..., Any], *arguments: Any, name: str, priority: int = 0) -> Any:
        """Return the future of a call, which is never mistaken for an earlier one."""
        key = f"odeco-{name}-{uuid4().hex}"
        return self.client.submit(function, *arguments, key=key, pure=False, priority=priority)

    def compute(self, calls: list[tuple[Callable[..., Any], tuple[Any, ...]]], *, name: str) -> list[Any]:
        """Return the futures of calls whose arguments may be parts of Dask collections, from one graph for all."""
        delayed = import_module("dask").delayed
        lazy = [
            delayed(function, pure=False)(*arguments, dask_key_name=f"odeco-{name}-{uuid4().hex}")
            for function, arguments in calls
        ]
        futures: list[Any] = self.client.compute(lazy)
        return futures


def find_cluster(client: Any = None) -> Cluster:
    """Return the cluster of a client; by default of the one that the process uses now."""
    distributed = import_distributed()
    if client is None:
        try:
            client = distributed.get_client()
        except ValueError:
            raise ValueError(
                "A client of a Dask cluster must be running to read a Dask collection. There is none. Make one with "
                "dask.distributed.Client(), or pass `client`."
            ) from None
    if isinstance(client, Cluster):
        return client
    if not isinstance(client, distributed.Client) or client.asynchronous:
        raise TypeError(
            f"`client` must be a dask.distributed.Client that is not asynchronous. Got {type(client).__name__}."
        )
    return Cluster(client)


def wait_for(future: Any) -> bool:
    """Wait a moment, and tell whether a future is done, well or not."""
    with future.client.as_current():  # otherwise that of the process, which may be another one
        try:
            import_distributed().wait(future, timeout=_LOOK_SECONDS)
        except TimeoutError:
            return False
    return True


def tried_again(run: Callable[[], Answer]) -> Answer:
    """Return what `run` returns. A task that lost several workers in turn is given up by Dask: then it is run again."""
    killed = import_distributed().scheduler.KilledWorker
    for _ in range(MOST_TRIES - 1):
        try:
            return run()
        except killed:
            continue
    return run()


def result_of(future: Any, *, fetch: bool = True) -> Any:
    """Return the result of a future that is done, unless it is to stay where it is; or raise what its task raised."""
    try:
        return future.result() if fetch or future.status != "finished" else None
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, ModuleNotFoundError) and (cause.name or "").partition(".")[0] == "odeco":
                raise ModuleNotFoundError(
                    f"odeco {__version__} must be installed on the scheduler and on all workers. On one of them it is "
                    "not found. Install it there.",
                    name="odeco",
                ) from error
            cause = cause.__cause__
        raise


def import_distributed() -> Any:
    """Import dask.distributed, or say what it is needed for."""
    try:
        return import_module("distributed")
    except ImportError as error:
        raise ModuleNotFoundError(
            "Rows on a cluster need Dask, which is not installed: pip install 'odeco[dask]'.", name="distributed"
        ) from error


@cache
def versions() -> tuple[tuple[str, str], ...]:
    """Return what must be the same on all machines, for the same bits."""
    return (
        ("Python", ".".join(platform.python_version_tuple()[:2])),
        ("odeco", __version__),
        ("NumPy", np.__version__),
        ("SciPy", scipy.__version__),
    )


def check_versions(expected: Iterable[tuple[str, str]]) -> None:
    """Raise, on a worker, if its versions are not those of the client."""
    for (name, wanted), (_, found) in zip(expected, versions(), strict=True):
        if found != wanted:
            raise RuntimeError(
                f"{name} must have the same version on the client and on all workers. The client has {wanted}, the "
                f"worker on {platform.node()} has {found}. Install {name} {wanted} there."
            )


def _itself(value: Any) -> Any:
    return value
