"""An interrupt at any line leaves a run as it was before the call, or as it is after it, and it
says which.
"""

from __future__ import annotations

import copy
import threading
from pathlib import Path

import numpy as np
import pytest
from interrupts import PLACES, moments_of, run_traced
from scipy import sparse

import odeco
from odeco.online import RowSum
from odeco.online import tree as _chunks
from odeco.online.methods import core, doubling
from odeco.privacy.noise import SeededNoiseForTests

ROWS = np.random.default_rng(0).gamma(1.0, size=(48, 5)) - 1


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Chunks of a few rows, so that a short push completes some and leaves some rows waiting."""
    monkeypatch.setattr(_chunks, "_DENSE_SIZE", 10)
    monkeypatch.setattr(_chunks, "_ENOUGH_ROWS", 4)
    monkeypatch.setattr(_chunks, "_SPARSE_ROWS", 4)


#: The state is compared after every interrupt; that the run goes on from it to the same end, after
#: one in so many.
GOES_ON_EVERY = 9


def state_of(online):
    """Return all that a run would write to a file, or None before its first rows."""
    if online._run is None:
        return None
    run = online._run
    arrays = run.to_arrays("run") | run.solver.to_arrays(type(run.solver).__name__)
    return {name: (array.dtype, array.shape, array.tobytes()) for name, array in arrays.items()}


def decomposer(method, **more):
    loop = {"n_restarts": 2, "n_iterations": 2} if method == "power" else {}
    loop |= {"batch_size": 7} if method == "power" or more else {}
    return odeco.OnlineDecomposer(1, method=method, rng=0, **loop, **more)


@pytest.fixture(autouse=True)
def _searches_of_few_rows(monkeypatch):
    """Let a run find components within a few rows, so that a push passes all that it does."""
    monkeypatch.setattr(core, "_LOOK", 6)
    for name, value in {
        "_FEWEST_ROWS": 12,
        "_ROWS_PER_COLUMN": 1,
        "_ROWS_PER_COMPONENT": 1,
    }.items():
        monkeypatch.setattr(doubling, name, value)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "kind"), [("core", np.asarray), ("power", sparse.csr_array)])
def test_an_open_run_is_as_before_or_as_after_and_goes_on_to_the_same_bits(method, kind):
    # The push goes from the middle of a batch over the end of the search into the batches that
    # refine.
    expected = decomposer(method).partial_fit(kind(ROWS)).result()

    def begun():
        return decomposer(method).partial_fit(kind(ROWS[:4]))

    def push(online):
        return lambda: online.partial_fit(kind(ROWS[4:40]))

    moments = moments_of(push(begun()))
    assert len(moments) > 200
    whole = begun()
    push(whole)()
    states = {4: state_of(begun()), 40: state_of(whole)}
    for number, moment in enumerate(moments):
        online = begun()
        run_traced(push(online), moment)
        assert online.n_rows in (4, 40), moment
        assert state_of(online) == states[online.n_rows], moment
        if number % GOES_ON_EVERY:
            continue
        result = online.partial_fit(kind(ROWS[online.n_rows :])).result()
        assert result.n_rows == 48
        assert np.array_equal(result.vectors, expected.vectors), moment
        assert np.array_equal(result.angle_errors, expected.angle_errors), moment


@pytest.mark.slow
def test_the_very_first_push_can_be_interrupted_too():
    expected = decomposer("core").partial_fit(ROWS).result()
    whole = state_of(decomposer("core").partial_fit(ROWS[:20]))
    for number, moment in enumerate(moments_of(lambda: decomposer("core").partial_fit(ROWS[:20]))):
        online = decomposer("core")
        run_traced(lambda online=online: online.partial_fit(ROWS[:20]), moment)
        assert online.n_rows in (0, 20)
        assert state_of(online) == (whole if online.n_rows else None), moment
        if number % GOES_ON_EVERY:
            continue
        assert np.array_equal(
            online.partial_fit(ROWS[online.n_rows :]).result().vectors, expected.vectors
        )


@pytest.mark.slow
def test_a_private_run_uses_no_row_in_two_releases_wherever_it_is_interrupted():
    guarantee = {"epsilon": 2.0, "delta": 1e-6, "norm_bound": 1.0}

    def begun():
        return decomposer("core", **guarantee, noise=SeededNoiseForTests(0)).partial_fit(ROWS[:4])

    # Over the core, which is asked of the fourth batch, into the batches that refine.
    def push(online):
        return lambda: online.partial_fit(ROWS[4:30])

    for number, moment in enumerate(moments_of(push(begun()), (*PLACES, "privacy"))):
        online = begun()
        run_traced(push(online), moment, (*PLACES, "privacy"))
        n_paid = 7 * len(online._account.ledger.charges)
        # As before the call if nothing was released, after it, or behind the last batch that was
        # paid for.
        assert online.n_rows in (
            (30, n_paid) if n_paid == 28 else (4,) if n_paid == 0 else (n_paid,)
        ), moment
        if number % GOES_ON_EVERY == 0:
            online.partial_fit(ROWS[:21])
        names = [charge.data[0] for charge in online._account.ledger.charges]
        assert len(set(names)) == len(names), moment
        assert online._account.ledger.mu <= online._noisy.guarantee.mu * (1 + 2**-31)


@pytest.mark.slow
def test_a_private_run_that_is_interrupted_while_it_is_saved_writes_every_later_charge(tmp_path):
    guarantee = {"epsilon": 2.0, "delta": 1e-6, "norm_bound": 1.0}
    places = ("online", "privacy/ledger_file.py", "privacy/ledger.py", "_util/files.py")

    def begun():
        return decomposer("core", **guarantee, noise=SeededNoiseForTests(0)).partial_fit(ROWS[:10])

    def save(online, path):
        return lambda: online.save(path)

    for number in moments_of(save(begun(), tmp_path / "first.ckpt"), places):
        online, path = begun(), tmp_path / f"{number}.ckpt"
        run_traced(save(online, path), number, places)
        try:
            online.save(path)
        except (
            FileExistsError
        ):  # the ledger was begun, and the run does not know: it must be saved elsewhere
            path = tmp_path / f"{number}-again.ckpt"
            online.save(path)
        online.partial_fit(ROWS[10:])
        lines = Path(f"{path}.ledger").read_text().splitlines()
        assert len(lines) - 1 == len(online._account.ledger.charges), number


def test_an_update_of_a_sum_is_all_or_nothing():
    block = np.eye(5)[:, :2]
    whole = RowSum("image", block, 3)
    whole.update(ROWS)

    def begun():
        total = RowSum("image", block, 3)
        total.update(ROWS[:10])
        total.update(ROWS[10:19])
        return total

    def update(total):
        return lambda: total.update(ROWS[19:34])

    for moment in moments_of(update(begun())):
        total = begun()
        run_traced(update(total), moment)
        assert total.n_rows in (19, 34)
        total.update(ROWS[total.n_rows : 40])
        total.update(ROWS[40:])
        assert np.array_equal(total.total(), whole.total()), moment


def test_a_search_that_fails_at_the_end_of_a_batch_leaves_the_run_as_it_was(monkeypatch):
    online = decomposer("core").partial_fit(ROWS[:5])
    twin = decomposer("core").partial_fit(ROWS[:5])

    def fail(self, reply):
        raise odeco.RankError("made to fail", self.plan.nothing.components)

    with monkeypatch.context() as patch:
        patch.setattr(type(online._run.solver), "advance", fail)
        with pytest.raises(odeco.RankError):
            online.partial_fit(ROWS[5:7])  # exactly to the end of the batch
    assert online.n_rows == 5
    assert np.array_equal(
        online.partial_fit(ROWS[5:]).result().vectors, twin.partial_fit(ROWS[5:]).result().vectors
    )


def test_threads_that_push_to_one_decomposer_wait_for_each_other():
    # Equal rows in every push, so that the order of the pushes does not matter and any loss would
    # show.
    pushes = [np.tile(ROWS[:1], (7, 1))] * 40
    expected = decomposer("core")
    for rows in pushes:
        expected.partial_fit(rows)
    online = decomposer("core")

    def push():
        for rows in pushes[:10]:
            online.partial_fit(rows)

    threads = [threading.Thread(target=push) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert online.n_rows == 280
    assert np.array_equal(online.result().vectors, expected.result().vectors)


def test_a_copy_goes_on_by_itself():
    online = decomposer("core").partial_fit(ROWS[:20])
    twin = copy.deepcopy(online)
    online.partial_fit(ROWS[20:])
    assert twin.n_rows == 20
    assert np.array_equal(twin.partial_fit(ROWS[20:]).result().vectors, online.result().vectors)
