"""Private components are no worse than nothing: weights of noise alone are 0, and the verdict says
so.
"""

from __future__ import annotations

import numpy as np
import pytest

import odeco
from odeco.privacy.noise import SeededNoiseForTests
from odeco.private.mechanisms import MECHANISMS

BUDGET = {"epsilon": 1.0, "delta": 1e-6, "unit": "record", "norm_bound": 1.0}
D, K = 10, 3


def planted(n_rows, seed):
    """Return rows that are orthonormal vectors, some more often than others, and their third
    moment.
    """
    rng = np.random.default_rng(seed)
    vectors = np.linalg.qr(rng.standard_normal((D, D)))[0][:, :K]
    counts = np.bincount(rng.choice(K, n_rows, p=[0.5, 0.3, 0.2]), minlength=K)
    return np.repeat(vectors, counts, axis=1).T, odeco.Components(counts / n_rows, vectors)


def run(rows, mechanism, seed):
    return odeco.decompose_privately(
        rows, K, **BUDGET, mechanism=mechanism, rng=seed, noise=SeededNoiseForTests(seed)
    )


def error(components, truth):
    """Return the squared distance of two tensors, relative to the squared norm of the second."""
    return np.sum((components.to_dense() - truth.to_dense()) ** 2) / np.sum(truth.weights**2)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("n_rows", [40, 200, 1_000, 5_000])
def test_an_estimate_is_no_worse_than_nothing_however_few_rows_there_are(mechanism, n_rows):
    errors = []
    for seed in range(4):
        rows, truth = planted(n_rows, seed)
        result = run(rows, mechanism, seed)
        errors.append(error(result.estimate, truth))
        if not result.clear.any():
            assert not result.weights.any()
            assert error(result.components, truth) == pytest.approx(1)
    # Nothing has the error 1. Components are at right angles but for noise, and floors hold but for
    # 1 in 1,000.
    assert max(errors) < 1.001
    if n_rows == 5_000 and mechanism in ("input", "core", "subspace"):
        assert max(errors) < 0.05


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_where_no_component_stands_clear_the_verdict_says_so_and_vectors_are_kept(mechanism):
    rows, _ = planted(20, 0)
    result = run(rows, mechanism, 0)
    assert not result.clear.any()
    assert result.verdict.startswith("no component stands clear of the noise (ε = ")
    assert result.weights.tolist() == [0.0] * K
    assert np.allclose(np.linalg.norm(result.vectors, axis=0), 1)
    assert result.noise_floors.all()
    assert "no component stands clear" in result.summary()


def test_a_clear_component_keeps_its_weight_and_one_at_the_floor_counts_little():
    rows, _ = planted(5_000, 1)
    result = run(rows, "input", 1)
    assert np.array_equal(result.estimate.weights, result.weights)  # far above twice the floor
    assert result.verdict.startswith("3 of 3 components stand clear")
    sizes = np.array([3.0, 1.5, 1.1, 0.9])
    components = odeco.Components(sizes, np.eye(4))
    zeros = np.zeros(4)
    borderline = odeco.PrivateDecomposition(components, zeros, zeros, np.ones(4), result.privacy)
    assert borderline.estimate.weights == pytest.approx([3.0, 1.0, 0.2, 0.0])
    assert borderline.clear.tolist() == [True, True, True, False]
