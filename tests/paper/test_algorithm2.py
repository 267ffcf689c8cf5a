"""``method="power"`` is the paper's Algorithm 2, pulled or pushed."""

from __future__ import annotations

import numpy as np
import pytest
from paper.algorithm2 import online_robust_tensor_power_method
from scipy import sparse

import odeco
from odeco.online import StreamMoment
from odeco.power import PowerSolver, Schedule, run

D, K, L, R, N = 7, 3, 4, 6, 50


def skewed_rows(n, seed):
    generator = np.random.default_rng(seed)
    basis = np.linalg.qr(generator.standard_normal((D, K)))[0]
    return (generator.standard_gamma(1.0, size=(n, K)) - 1) @ (basis * [2, 1.5, 1]).T


def starts_of(seed):
    """Return the starts that the library draws for each component."""
    plan = Schedule(K, L, 1, weight_from="last_image")
    search, starts = PowerSolver.start(plan, parts=(D,), rng=seed), []
    while not search.done:
        starts.append(search.probes)
        search = search.advance(search.probes)
    return starts


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_pulled_and_pushed_agree_with_the_paper(seed, kind):
    rows = skewed_rows(K * R * N + 123, seed)
    starts = starts_of(seed)
    pairs, n_read = online_robust_tensor_power_method(
        rows, K, L, R, N, lambda i, tau: starts[i][:, tau]
    )
    assert n_read == K * R * N

    settings = {"batch_size": N, "n_restarts": L, "n_iterations": R, "rng": seed}
    blocks = (kind(rows[start : start + 37]) for start in range(0, len(rows), 37))
    pulled = odeco.decompose_stream(blocks, K, method="power", **settings)
    online = odeco.OnlineDecomposer(K, method="power", **settings)
    online.partial_fit(kind(rows[: K * R * N]))
    pushed = online.result()

    # The results of streams have positive weights: −λ v⊗³ is λ (−v)⊗³.
    first = np.argsort([-abs(weight) for weight, _ in pairs])
    for found in (pulled, pushed):
        assert found.n_rows == n_read
        weights = np.array([pairs[i][0] for i in first])
        vectors = np.array([pairs[i][1] for i in first]) * np.sign(weights)[:, None]
        np.testing.assert_allclose(found.weights, abs(weights), atol=1e-12)
        np.testing.assert_allclose(found.vectors.T, vectors, atol=1e-12)
    assert np.array_equal(pulled.vectors, pushed.vectors)


def test_a_stream_moment_in_the_loop_is_the_same_algorithm():
    rows = skewed_rows(K * R * N, 0)
    moment = StreamMoment(iter([rows]), D, batch_size=N)
    search = run(moment, Schedule(K, L, R, weight_from="last_image"), rng=0)
    online = odeco.OnlineDecomposer(
        K, method="power", batch_size=N, n_restarts=L, n_iterations=R, rng=0
    ).partial_fit(rows)
    assert np.array_equal(
        search.components.vectors[:, search.components.largest_first()], online.result().vectors
    )
    assert moment.n_rows_read == len(rows)
    with pytest.raises(
        odeco.StreamEndedError, match=r"A query needs 50 rows\. The stream ended after 900 in all\."
    ):
        moment.image(np.ones((D, 1)))
