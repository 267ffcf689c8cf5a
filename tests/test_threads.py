"""How many threads work, and that two users of the linear algebra library do not leave it
limited.
"""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import threading

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from odeco._util import threads as _threads
from odeco._util.threads import map_blocks, one_blas_thread, one_thread


def blas_threads():
    return {
        library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"
    }


def names_of_threads(monkeypatch, cores):
    """Return the names of the threads that twenty blocks ran in, on a machine with this number of
    cores.
    """
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)), raising=False)
    return set(map_blocks(lambda _: threading.current_thread().name, range(20), parallel=True))


def test_threadpoolctl_and_the_environment_limit_the_threads(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    here = threading.current_thread().name
    with threadpool_limits(limits=2):
        assert all(name.startswith("odeco") for name in names_of_threads(monkeypatch, 2))
    with threadpool_limits(limits=1):
        assert names_of_threads(monkeypatch, 2) == {here}
    with threadpool_limits(limits=2):
        assert names_of_threads(monkeypatch, 1) == {here}
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        assert names_of_threads(monkeypatch, 2) == {here}


def test_the_library_runs_on_one_thread_inside_and_as_before_outside():
    before = blas_threads()
    with one_blas_thread():
        assert blas_threads() == {1}
        with one_blas_thread():
            assert blas_threads() == {1}
        assert blas_threads() == {1}
    assert blas_threads() == before


def test_two_that_overlap_do_not_leave_the_library_limited():
    # A holds from 1 to 3 and B from 2 to 4: each lifting its own limit would leave B's, which is
    # that of A.
    with threadpool_limits(limits=2):
        before = blas_threads()
        turn = [threading.Event() for _ in range(3)]

        def other():
            turn[0].wait()
            with one_blas_thread():
                turn[1].set()
                turn[2].wait()

        thread = threading.Thread(target=other)
        thread.start()
        with one_blas_thread():
            turn[0].set()
            turn[1].wait()
        assert blas_threads() == {1}
        turn[2].set()
        thread.join()
        assert blas_threads() == before


def test_a_limit_set_elsewhere_does_not_keep_the_library_from_one_thread():
    inside = []

    def work():
        with one_blas_thread():
            inside.append(blas_threads())

    with threadpool_limits(limits=2):  # this thread is the one that threadpoolctl obeys
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert inside == [{1}]
        assert blas_threads() == {2}


def test_results_come_in_the_order_of_the_blocks():
    assert list(map_blocks(lambda x: x * x, range(100), parallel=True)) == [
        x * x for x in range(100)
    ]
    assert not _threads._LIMIT.holds


def use_the_library():
    with one_blas_thread():
        pass
    with one_thread():
        list(map_blocks(abs, range(2), parallel=False))


def assert_free(before):
    """Assert that the library has its threads again, and that another thread can hold it: the lock
    is free.
    """
    assert blas_threads() == before
    assert not _threads._ALONE.blocks
    thread = threading.Thread(target=use_the_library, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert blas_threads() == before


@pytest.mark.slow
def test_a_trace_function_that_raises_at_any_line_leaves_nothing_limited_or_locked():
    with threadpool_limits(limits=2):
        before, lines = blas_threads(), 0

        def trace(frame, event, _):
            nonlocal lines
            if frame.f_code.co_filename not in (__file__, _threads.__file__):
                return None
            lines += event in ("line", "return")
            if lines == stop_at and event in ("line", "return"):
                raise KeyboardInterrupt
            return trace

        stop_at, interrupted = 1, True
        while interrupted:
            interrupted, lines = False, 0
            try:
                sys.settrace(trace)
                use_the_library()
            except KeyboardInterrupt:
                interrupted = True
            finally:
                sys.settrace(None)
            assert_free(before)
            stop_at += 1
        assert stop_at > 50  # lines of both functions were entered


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs an interval timer")
def test_an_interrupt_at_any_moment_leaves_nothing_limited_or_locked():
    # In code that lifts the limit in __exit__ alone, one interrupt in twenty left it.
    def interrupt(*_):
        raise KeyboardInterrupt

    generator = random.Random(0)
    with threadpool_limits(limits=2):
        before, handler = blas_threads(), signal.signal(signal.SIGALRM, interrupt)
        try:
            for _ in range(400):
                with contextlib.suppress(KeyboardInterrupt):
                    signal.setitimer(signal.ITIMER_REAL, generator.uniform(1e-5, 3e-4))
                    while True:
                        use_the_library()
                assert not _threads._LIMIT.holds
                assert not _threads._LIMIT.before
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, handler)
        assert_free(before)


NESTED = """
from odeco._util.threads import map_blocks
outer = lambda number: sum(map_blocks(lambda inner: number * inner, range(50), parallel=True))
assert list(map_blocks(outer, range(50), parallel=True)) == [number * 1225 for number in range(50)]
"""


def test_work_on_blocks_that_is_cut_into_blocks_itself_ends():
    # Threads that wait for each other wait for ever: so in a process that can be ended.
    subprocess.run([sys.executable, "-c", NESTED], check=True, timeout=60)
