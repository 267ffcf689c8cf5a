"""The cluster: its client, its number of threads, its faults, and the versions that all machines
must share.
"""

from __future__ import annotations

import platform
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from functools import cache, cached_property
from importlib import import_module
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np
import scipy
from threadpoolctl import threadpool_info

from odeco._util import __version__
from odeco._util.threads import one_blas_thread
from odeco.errors import ClusterError

Answer = TypeVar("Answer")


#: Attempts at a task that the scheduler gives up because several workers died under it.
MAX_TRIES = 5

#: The name of the kernels among versions, and how workers get the same.
_KERNELS = "kernels of linear algebra"
_SAME_KERNELS = "Take machines of one kind, or start all workers with OPENBLAS_CORETYPE=Haswell."

#: Seconds between two looks at the state of tasks.
_LOOK_SECONDS = 0.1


class Cluster:
    """A Dask client, and what odeco needs of it."""

    def __init__(self, client: Any) -> None:
        self.client = client

    @property
    def n_threads(self) -> int:
        """The number of tasks that can run at a time; at least 1, since workers may still be
        starting.
        """
        return max(1, sum(int(number) for number in self.client.nthreads().values()))

    @cached_property
    def versions(self) -> tuple[tuple[str, str], ...]:
        """What all workers must share with the client, and which kernels with each other; raise if
        those differ.
        """
        found = self.client.run(blas_kernels, on_error="ignore")
        if len(set(found.values())) > 1:
            raise ClusterError(
                "Workers must use the same kernels of linear algebra, or results would depend on "
                f"who computes what. Got {' and '.join(sorted(set(found.values())))}. "
                f"{_SAME_KERNELS}"
            )
        return (*versions(), *((_KERNELS, kernels) for kernels in set(found.values())))

    def hold(self, value: Any) -> Any:
        """Return a value as the result of a task: workers get it from each other, and it can be
        computed again.
        """
        config = import_module("dask.config")
        with config.set(
            {"distributed.admin.large-graph-warning-threshold": "1TB"}
        ):  # it is sent once
            return self.submit(_itself, value, name="block")

    def submit(
        self, function: Callable[..., Any], *arguments: Any, name: str, priority: int = 0
    ) -> Any:
        """Return the future of a call, with a key of its own."""
        key = f"odeco-{name}-{uuid4().hex}"
        return self.client.submit(function, *arguments, key=key, pure=False, priority=priority)

    def compute(
        self, calls: list[tuple[Callable[..., Any], tuple[Any, ...]]], *, name: str
    ) -> list[Any]:
        """Return the futures of calls whose arguments may be parts of Dask collections, from one
        graph for all.
        """
        delayed = import_module("dask").delayed
        lazy = [
            delayed(function, pure=False)(*arguments, dask_key_name=f"odeco-{name}-{uuid4().hex}")
            for function, arguments in calls
        ]
        futures: list[Any] = self.client.compute(lazy)
        return futures


def find_cluster(client: Any = None) -> Cluster:
    """Return the cluster of a client; by default of the current client of the process."""
    distributed = import_distributed()
    if client is None:
        try:
            client = distributed.get_client()
        except ValueError:
            raise ValueError(
                "A client of a Dask cluster must be running to read a Dask collection. There is "
                "none. Make one with dask.distributed.Client(), or pass `client`."
            ) from None
    if isinstance(client, Cluster):
        return client
    if not isinstance(client, distributed.Client) or client.asynchronous:
        raise TypeError(
            "`client` must be a dask.distributed.Client that is not asynchronous. Got "
            f"{type(client).__name__}."
        )
    return Cluster(client)


def wait_for(future: Any) -> bool:
    """Wait a moment, and tell whether a future is done, with a result or an error."""
    with future.client.as_current():  # the client of the process may be another one
        try:
            import_distributed().wait(future, timeout=_LOOK_SECONDS)
        except TimeoutError:
            return False
    return True


@contextmanager
def cluster_faults(cluster: Cluster) -> Iterator[None]:
    """Turn the faults of a cluster into a `ClusterError` that says what happened; errors of a task
    pass unchanged.
    """
    try:
        yield
    except ClusterError:
        raise
    except MemoryError as error:
        raise ClusterError(
            f"Workers must have memory for their tasks. One has too little ({_clause(error)}). "
            "Make the blocks smaller, or give the workers more memory."
        ) from error
    except Exception as error:
        if isinstance(error, import_distributed().scheduler.KilledWorker):
            raise ClusterError(
                f"Workers must stay alive during a task. {MAX_TRIES} times one died "
                f"({_clause(error)}). Too little memory is the usual reason: make the blocks "
                "smaller, or give the workers more memory; their logs say more."
            ) from error
        lost = (CancelledError, import_distributed().comm.CommClosedError)
        if (
            isinstance(error, lost)
            or cluster.client.status != "running"
            or "trying to connect" in str(error)
        ):
            raise ClusterError(
                "The scheduler of the cluster must be reachable during a run. It is not "
                f"reachable any more ({_clause(error)}). Start it again, and make a new client."
            ) from error
        raise


def _clause(error: BaseException) -> str:
    text = str(error).strip().rstrip(".").splitlines()
    if text:
        return f"{type(error).__name__}: {text[0][:200]}"
    return type(error).__name__


def tried_again(run: Callable[[], Answer]) -> Answer:
    """Return the result of `run`, which is repeated if Dask has given up a task because several
    workers died.
    """
    killed = import_distributed().scheduler.KilledWorker
    for _ in range(MAX_TRIES - 1):
        try:
            return run()
        except killed:
            continue
    return run()


def result_of(future: Any, *, fetch: bool = True) -> Any:
    """Return the result of a future that is done, or None if it stays on its worker; raise the
    error of its task.
    """
    try:
        if fetch or future.status != "finished":
            return future.result()
        return None
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None:
            if (
                isinstance(cause, ModuleNotFoundError)
                and (cause.name or "").partition(".")[0] == "odeco"
            ):
                raise ModuleNotFoundError(
                    f"odeco {__version__} must be installed on the scheduler and on all workers. "
                    "On one of them it is not found. Install it there.",
                    name="odeco",
                ) from error
            cause = cause.__cause__
        raise


def import_distributed() -> Any:
    """Import dask.distributed; the error says what it is needed for."""
    try:
        return import_module("distributed")
    except ImportError as error:
        raise ModuleNotFoundError(
            "Rows on a cluster need Dask, which is not installed: pip install 'odeco[dask]'.",
            name="distributed",
        ) from error


@cache
def versions() -> tuple[tuple[str, str], ...]:
    """Return the versions that must be the same on the client and on all workers."""
    return (
        ("Python", ".".join(platform.python_version_tuple()[:2])),
        ("odeco", __version__),
        ("NumPy", np.__version__),
        ("SciPy", scipy.__version__),
    )


@cache
def blas_kernels() -> str:
    """Return the kernels that the linear algebra library has chosen for this processor, and a
    checksum of their bits.

    With other kernels, the sums of a product have another order, and so other last bits. Which
    libraries are loaded depends on what else a worker has done. So SciPy's is loaded first, and
    those of other packages do not count.
    """
    import_module("scipy.linalg")
    loaded = [each for each in threadpool_info() if each["user_api"] == "blas"]
    own = [each for each in loaded if "numpy" in each["filepath"] or "scipy" in each["filepath"]]
    libraries = own or loaded[:1]
    chosen = sorted(
        {f"{each['internal_api']} {each.get('architecture', '')}".strip() for each in libraries}
    )
    rng = np.random.default_rng(0)
    left = rng.standard_normal((61, 531))
    right = rng.standard_normal((531, 53))
    with one_blas_thread():
        products = [
            (left.astype(kind) @ right.astype(kind)).tobytes() for kind in (np.float64, np.float32)
        ]
    return f"{', '.join(chosen)} ({zlib.crc32(b''.join(products)):08x})"


def check_versions(expected: Iterable[tuple[str, str]]) -> None:
    """Raise, on a worker, if its versions are not those of the client, or its kernels not those of
    other workers.
    """
    own = dict(versions()) | {_KERNELS: blas_kernels()}
    for name, wanted in expected:
        found = own[name]
        if found != wanted and name == _KERNELS:
            raise RuntimeError(
                f"Workers must use the same kernels of linear algebra. Others use {wanted}, the "
                f"worker on {platform.node()} uses {found}. {_SAME_KERNELS}"
            )
        if found != wanted:
            raise RuntimeError(
                f"{name} must have the same version on the client and on all workers. The client "
                f"has {wanted}, the worker on {platform.node()} has {found}. Install {name} "
                f"{wanted} there."
            )


def _itself(value: Any) -> Any:
    return value
