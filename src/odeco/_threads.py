"""Work on blocks in threads, with a result that does not depend on how many there are.

NumPy and SciPy release the interpreter lock inside their products, so plain threads over blocks keep every
core busy. The linear algebra library underneath must then stay at one thread, or the two pools fight
for the cores. Results come back in the order of the blocks: adding them up in that order gives the same
sum for any number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

Block = TypeVar("Block")
Answer = TypeVar("Answer")


def map_blocks(work: Callable[[Block], Answer], blocks: Iterable[Block], *, parallel: bool) -> Iterator[Answer]:
    """Yield ``work(block)`` for every block, in order; on all cores if `parallel`.

    The linear algebra library runs on one thread either way, so that both ways give the same bits.
    """
    with one_blas_thread():
        if parallel and _n_cores() > 1:
            yield from _pool(os.getpid()).map(work, blocks)
        else:
            yield from map(work, blocks)


def one_blas_thread() -> AbstractContextManager[Any]:
    """Hold the linear algebra library to one thread inside a ``with`` block."""
    limit: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limit


@cache
def _controller() -> ThreadpoolController:
    # Looking for the loaded libraries takes milliseconds, so it is done once for the process.
    return ThreadpoolController()


@cache
def _pool(process: int) -> ThreadPoolExecutor:  # noqa: ARG001 - a forked child must not inherit dead threads
    return ThreadPoolExecutor(_n_cores(), thread_name_prefix="odeco")


def _n_cores() -> int:
    """Count the cores this process may use, or fewer if ``OMP_NUM_THREADS`` says so."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return min(available, int(wanted)) if wanted.isdigit() and int(wanted) > 0 else available
