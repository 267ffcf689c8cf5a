"""How many threads work, and that two users of the linear algebra library do not leave it limited."""

from __future__ import annotations

import subprocess
import sys
import threading

from threadpoolctl import threadpool_info, threadpool_limits

from odeco._util import threads as _threads
from odeco._util.threads import map_blocks, one_blas_thread


def blas_threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def names_of_threads(monkeypatch, cores):
    """Return the names of the threads that twenty blocks ran in, on a machine of so many cores."""
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
    # A holds from 1 to 3 and B from 2 to 4: each lifting its own limit would leave B's, which is that of A.
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
    assert list(map_blocks(lambda x: x * x, range(100), parallel=True)) == [x * x for x in range(100)]
    assert _threads._HOLD._holders == 0


NESTED = """
from odeco._util.threads import map_blocks
outer = lambda number: sum(map_blocks(lambda inner: number * inner, range(50), parallel=True))
assert list(map_blocks(outer, range(50), parallel=True)) == [number * 1225 for number in range(50)]
"""


def test_work_on_blocks_that_is_cut_into_blocks_itself_ends():
    # Threads that wait for each other wait for ever: so in a process that can be ended.
    subprocess.run([sys.executable, "-c", NESTED], check=True, timeout=60)
