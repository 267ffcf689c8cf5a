"""While one thread learns, others read: results, copies and files are those of some moment between
two calls.
"""

from __future__ import annotations

import json
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import odeco
from odeco import Components
from odeco.models import TensorMixture

N_BATCHES, BATCH = 150, 37


@contextmanager
def frequent_switches() -> Iterator[None]:
    """Let threads take turns often, so that a few hundred reads meet every line of a writer."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def reads_during(work: Callable[[], object], read: Callable[[], object]) -> list[object]:
    """Return what `read` returned, again and again, while another thread worked."""
    found = []
    with frequent_switches():
        thread = threading.Thread(target=work)
        thread.start()
        while thread.is_alive():
            found.append(read())
        thread.join()
    return found


def batches() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    vectors = np.diag([3.0, 2.5, 2.0, 1.5])
    return [
        vectors[rng.integers(4, size=BATCH)] + 0.1 * rng.standard_normal((BATCH, 4))
        for _ in range(N_BATCHES)
    ]


@pytest.fixture(scope="module")
def weights_by_rows() -> dict[int, np.ndarray]:
    """The weights after every batch, of one thread."""
    online, found = odeco.OnlineDecomposer(2, method="entries", rng=0), {}
    for rows in batches():
        result = online.partial_fit(rows).result()
        found[result.n_rows] = result.weights
    return found


def pushing(online: odeco.OnlineDecomposer) -> Callable[[], None]:
    given = batches()
    online.partial_fit(given[0])

    def push() -> None:
        for rows in given[1:]:
            online.partial_fit(rows)

    return push


@pytest.mark.slow
def test_a_result_read_while_rows_are_pushed_is_that_of_its_rows(weights_by_rows):
    online = odeco.OnlineDecomposer(2, method="entries", rng=0)
    for result in reads_during(pushing(online), online.result):
        np.testing.assert_array_equal(result.weights, weights_by_rows[result.n_rows])


@pytest.mark.slow
def test_a_copy_made_while_rows_are_pushed_is_whole(weights_by_rows):
    online = odeco.OnlineDecomposer(2, method="entries", rng=0)
    for copied in reads_during(pushing(online), lambda: pickle.dumps(online)):
        result = pickle.loads(copied).result()
        np.testing.assert_array_equal(result.weights, weights_by_rows[result.n_rows])


def test_a_model_is_not_copied_in_the_middle_of_its_first_batch(monkeypatch):
    rows, model, begun, may_end = (
        np.eye(3).repeat(50, axis=0),
        TensorMixture(1),
        threading.Event(),
        threading.Event(),
    )
    encode = TensorMixture._encode

    def stop_after(self, *given, **further):
        found = encode(self, *given, **further)
        begun.set()
        may_end.wait(30)
        return found

    monkeypatch.setattr(TensorMixture, "_encode", stop_after)
    learning = threading.Thread(target=model.partial_fit, args=(rows,))
    learning.start()
    assert begun.wait(30)
    copies: list[bytes] = []
    copying = threading.Thread(target=lambda: copies.append(pickle.dumps(model)))
    copying.start()
    copying.join(0.2)
    may_end.set()
    learning.join()
    copying.join()
    copied = pickle.loads(copies[0])
    assert copied.n_features_in_ == 3
    assert copied.n_samples_seen_ == len(rows)


def test_a_file_that_is_replaced_while_it_is_loaded_is_read_as_it_was(tmp_path, monkeypatch):
    path, small, large = (
        tmp_path / "c.npz",
        Components([1.0], np.eye(4)[:, :1]),
        Components(np.ones(4), np.eye(4)),
    )
    small.save(path)
    read_header = json.loads

    def read_and_replace(text):
        large.save(path)
        return read_header(text)

    monkeypatch.setattr(json, "loads", read_and_replace)
    assert Components.load(path).n_components == 1
    monkeypatch.undo()
    assert Components.load(path).n_components == 4
