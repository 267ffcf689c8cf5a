"""A private run on a cluster: workers clip and add, the client adds noise once, and what is released is the same."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sealing import record

import odeco
from odeco.privacy.noise import SeededNoiseForTests

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

import odeco.online.dask  # noqa: E402

N, D = 500, 5


@pytest.fixture(scope="module", autouse=True)
def cluster():
    settings = {"n_workers": 1, "threads_per_worker": 2, "processes": False, "dashboard_address": ":0"}
    with distributed.LocalCluster(**settings) as made, distributed.Client(made):
        yield


def wild():
    """Rows of which some are beyond the bound, and some no numbers."""
    rows = np.random.default_rng(0).standard_normal((N, D)) * np.geomspace(1e-3, 1e3, N)[:, None]
    rows[7], rows[450, 2] = np.nan, np.inf
    return rows


def run(rows):
    settings = {"epsilon": 1.0, "delta": 1e-6, "norm_bound": 1.0, "batch_size": 60, "rng": 0}
    online = odeco.OnlineDecomposer(2, **settings, noise=SeededNoiseForTests(0))
    return record(lambda: online.partial_fit(rows).result(), SeededNoiseForTests(1))


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_every_exact_answer_and_every_scale_is_that_of_one_machine(kind):
    rows = kind(wild())
    blocks = [dask.delayed(rows[start : start + 130], pure=False) for start in range(0, N, 130)]
    counts = [min(130, N - start) for start in range(0, N, 130)]
    found, there = run(odeco.online.dask.from_delayed(blocks, n_features=D, n_rows=counts))
    expected, here = run(rows)
    assert len(there.exact) == len(here.exact) == N // 60  # noise is drawn once for every batch
    assert there.scales == here.scales
    for one, other in zip(there.exact, here.exact, strict=True):
        assert np.array_equal(one, other)
        assert np.linalg.norm(one, axis=0).max() <= 1.0  # of clipped rows, asked about unit vectors
    assert np.array_equal(found.vectors, expected.vectors)


def test_an_error_of_a_worker_says_nothing_about_a_row():
    broken = sparse.csr_array(wild())
    broken.indices = np.where(broken.indices == 2, 10**6, broken.indices)
    rows = odeco.online.dask.from_delayed([dask.delayed(broken, pure=False)], n_features=D, n_rows=[N])
    with pytest.raises(RuntimeError) as caught:
        run(rows)
    assert str(caught.value) == "Rows of a private run could not be added up on a worker. Nothing was released."
    assert caught.value.__cause__ is None
