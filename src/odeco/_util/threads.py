"""Work on blocks in threads, with a result that does not depend on the number of threads.

NumPy and SciPy release the interpreter lock inside their products, so plain threads over blocks
keep every core busy. The linear algebra library underneath must then stay at one thread, or its
threads and ours compete for the cores. Results come back in the order of the blocks. Adding them up
in that order gives the same sum for any number of threads.

The number of threads is the smallest of three: the cores that the process may use,
``OMP_NUM_THREADS``, and the limit of the linear algebra library, which
`threadpoolctl.threadpool_limits` sets for a stretch of code.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

Block = TypeVar("Block")

Result = TypeVar("Result")


def map_blocks(
    work: Callable[[Block], Result], blocks: Iterable[Block], *, parallel: bool
) -> Iterator[Result]:
    """Yield ``work(block)`` for every block, in order; on all cores if `parallel`.

    The linear algebra library runs on one thread either way, so that both ways give bit-identical
    results.
    """
    with one_blas_thread():
        n_threads = count_threads() if parallel else 1
        if n_threads > 1:
            yield from _pool(os.getpid(), n_threads).map(work, blocks)
        else:
            yield from map(work, blocks)


def one_thread() -> AbstractContextManager[None]:
    """Keep the work of this thread to itself inside a ``with`` block: others have theirs, as in a
    worker of a cluster.

    The linear algebra library is held to one thread as well.
    """
    return _Hold(_ALONE.blocks)


def on_threads(n_jobs: int | None) -> AbstractContextManager[None]:
    """Let `map_blocks` use all cores inside a ``with`` block, or with 1 this thread only.

    The linear algebra library is held to one thread either way, so that both are bit-identical.
    """
    return one_thread() if n_jobs == 1 else one_blas_thread()


def count_threads() -> int:
    """Return the number of threads that `map_blocks` would use here. The linear algebra library
    must be held by the caller.
    """
    return 1 if _ALONE.blocks else _n_threads()


def one_blas_thread() -> AbstractContextManager[None]:
    """Limit the linear algebra library to one thread inside a ``with`` block."""
    return _Hold(set())


class _Alone(threading.local):
    """The ``with`` blocks in which the current thread works by itself."""

    def __init__(self) -> None:
        self.blocks: set[int] = set()


class _Hold(AbstractContextManager[None]):
    """One ``with`` block that holds the linear algebra library to one thread, and is listed in
    `blocks`.

    An interrupt, or an exception of a trace function, may come while a block is entered or left, so
    that ``__exit__`` is not called or not completed. The hold then ends when this object is
    deleted, which is when the traceback is.
    """

    def __init__(self, blocks: set[int]) -> None:
        self._blocks = blocks

    def __enter__(self) -> None:
        key = id(self)
        blocks = self._blocks
        # Not __del__, which would run after every block, and in which an interrupt is lost.
        _LIMIT.unfinished[key] = weakref.ref(self, lambda _: _LIMIT.release(key, blocks))
        blocks.add(key)
        _LIMIT.holds.add(key)
        with _LIMIT.lock: _LIMIT.update()  # noqa: E701  # fmt: skip

    def __exit__(self, *_: object) -> None:
        _LIMIT.release(id(self), self._blocks)


class _Limit:
    """The limit of the linear algebra library to one thread. There is one for the whole process.

    The first block that is entered sets the limit, and the last that is left lifts it. If each
    block set and lifted a limit of its own, two threads that overlap could leave the library with
    one thread for ever.
    """

    def __init__(self) -> None:
        # A block that the garbage collector deletes may end its hold in the middle of an update in
        # the same thread.
        self.lock = threading.RLock()
        self.holds: set[int] = set()
        self.unfinished: dict[int, weakref.ref[_Hold]] = {}
        self.before: list[int | None] = []

    @property
    def outside(self) -> int | None:
        """The number of threads that the library had before it was held, or None if that is not
        known.
        """
        return max((number for number in self.before if number is not None), default=None)

    def release(self, key: int, blocks: set[int]) -> None:
        """End the hold of a block. It stays unfinished until this is done, so that it is done again
        if interrupted.
        """
        blocks.discard(key)
        self.holds.discard(key)
        with self.lock: self.update()  # noqa: E701  # fmt: skip
        self.unfinished.pop(key, None)

    def update(self) -> None:
        """Set the limit if a block holds the library, and lift it if none does.

        It is called with the lock, in one line: a trace function is called where the line changes.
        If it raised between the end of the work and the release of the lock, no other thread would
        ever get the lock. (Signals are not handled there.)
        """
        if self.holds and not self.before:
            self.before = list(map(attrgetter("num_threads"), _blas()))
            _set_threads([1] * len(self.before))
        elif self.before and not self.holds:
            _set_threads(self.before)
            self.before = []  # only now, so that an update that was interrupted is done again


_LIMIT = _Limit()

_ALONE = _Alone()

# A child forked while another thread held the limit would wait for ever for it to be released.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_LIMIT.__init__)  # type: ignore[misc]


@cache
def _blas() -> tuple[Any, ...]:
    # Looking for the loaded libraries takes milliseconds, so it is done once for the process.
    return tuple(ThreadpoolController().select(user_api="blas").lib_controllers)


def _set_threads(numbers: Sequence[int | None]) -> None:
    for library, number in zip(_blas(), numbers, strict=True):
        # From 3.8 on threadpoolctl obeys only the thread that was first to set a limit, until it
        # clears it.
        clear = getattr(library, "clear_controlling_thread", None)
        if clear is not None:
            clear(force=True)
        if number is not None:
            library.set_num_threads(number)
        if clear is not None:
            clear(force=True)


@cache
def _pool(process: int, n_threads: int) -> ThreadPoolExecutor:  # noqa: ARG001 - a child must not inherit dead threads
    return ThreadPoolExecutor(n_threads, thread_name_prefix="odeco", initializer=_work_alone)


def _work_alone() -> None:
    """Let a thread of the pool do by itself what its work cuts into blocks: all others may be
    waiting for it.
    """
    _ALONE.blocks.add(0)


def n_cores() -> int:
    """Return the number of cores that the process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _n_threads() -> int:
    """Return how many threads may work. The linear algebra library must be held by the caller."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    cores = min(n_cores(), int(wanted)) if wanted.isdigit() and int(wanted) > 0 else n_cores()
    return cores if _LIMIT.outside is None else min(cores, _LIMIT.outside)
