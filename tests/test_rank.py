"""The rank that is found when none is given, and how sure it is."""

from __future__ import annotations

import math

import numpy as np
import pytest

import odeco
from odeco.cp.rank import evidence_from_deflation, ground_state
from odeco.datasets import gaussian_noise, planted_orthogonal
from odeco.tensors import DenseTensor


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("dimension", "k", "order"), [(30, 4, 3), (40, 1, 3), (5, 5, 3), (10, 10, 3), (12, 3, 4)]
)
def test_auto_finds_the_rank_of_an_exact_tensor(seed, dimension, k, order):
    truth = planted_orthogonal(dimension, k, order=order, weights=np.ones(k), rng=seed)
    result = odeco.decompose(truth.to_dense(), "auto", rng=seed)
    assert result.weights.size == k
    assert result.rank_evidence.confidence > 0.999


@pytest.mark.parametrize("seed", range(5))
def test_auto_finds_the_rank_in_noise_and_says_how_sure_it_is(seed):
    d, k = 30, 4
    noise = gaussian_noise(d, rng=seed)
    truth = planted_orthogonal(d, k, rng=seed)
    # Noise with a standard deviation of s at each unit vector reaches 1.657 √d s: here 0.5, half
    # the smallest weight.
    deviation = 0.5 / (ground_state(3) * math.sqrt(d))
    scale = deviation / math.sqrt(noise.squared_norm() / math.comb(d + 2, 3))
    for tensor in (DenseTensor(truth.to_dense() + scale * noise.entries), truth + scale * noise):
        result = odeco.decompose(tensor, "auto", n_restarts=20, tol=1e-5, rng=seed)
        assert result.weights.size == k
        evidence = result.rank_evidence
        assert evidence.confidence > 0.999
        assert np.all(evidence.chances[k:] > 1e-3)
        np.testing.assert_allclose(evidence.noise_levels[k - 1], 0.5, rtol=0.1)


def test_pure_noise_has_no_component():
    """A false alarm has a chance of at most 1e-3 a tensor, so one among ten would be a mistake in
    the theory.
    """
    for seed in range(10):
        with pytest.raises(
            odeco.RankError, match="At least one component must stand clear of the noise"
        ):
            odeco.decompose(gaussian_noise(25, rng=seed), "auto", n_restarts=20, tol=1e-4, rng=seed)


def test_the_ground_state_is_the_published_one():
    # Auffinger, Ben Arous and Černý 2013: E0(3) = 1.657; at order 2 it would be √2, the edge of the
    # semicircle.
    assert ground_state(3) == pytest.approx(1.657, abs=5e-4)
    assert evidence_from_deflation(np.array([1.0]), np.array([0.0]), 10, 3).rank == 1


def test_auto_refuses_an_oracle_that_cannot_be_asked_again():
    tensor = planted_orthogonal(5, 2, rng=0)
    object.__setattr__(tensor, "exact", False)
    with pytest.raises(
        ValueError, match=r"Components is not exact\. Pass n_components as an int\."
    ):
        odeco.decompose(tensor, "auto")
