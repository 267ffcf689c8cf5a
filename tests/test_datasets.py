"""Planted problems and noise are what the paper writes."""

from __future__ import annotations

import numpy as np
import pytest

import odeco
from odeco.datasets import AdversarialNoise, WeaklyCorrelatedNoise, appendix_a
from odeco.tensors import DenseTensor


def test_the_noise_models_of_appendix_a_are_what_the_paper_writes():
    d = 6
    unit = np.eye(d)
    v = unit[1]
    adversarial = sum(
        np.einsum("a,b,c->abc", v, e, e)
        + np.einsum("a,b,c->abc", e, v, e)
        + np.einsum("a,b,c->abc", e, e, v)
        for e in unit
    )
    weak = sum(np.einsum("a,b,c->abc", e, e, e) for e in unit[3:])
    block = np.random.default_rng(0).standard_normal((d, 4))
    for noise, entries in [(AdversarialNoise(v), adversarial), (WeaklyCorrelatedNoise(d, 3), weak)]:
        np.testing.assert_allclose(
            noise.image(block), DenseTensor(entries).image(block), atol=1e-12
        )
        assert noise.squared_norm() == pytest.approx(np.sum(entries**2))
    assert odeco.operator_norm(AdversarialNoise(v), rng=0) == pytest.approx(3)
    assert odeco.operator_norm(WeaklyCorrelatedNoise(d, 3), rng=0) == pytest.approx(1)


@pytest.mark.parametrize("noise", ["gaussian", "adversarial", "weakly correlated"])
def test_appendix_a_scales_the_noise_to_its_operator_norm(noise):
    tensor, truth = appendix_a(12, noise, 0.05, rng=0)
    assert odeco.operator_norm(tensor - truth, rng=1) == pytest.approx(0.05, rel=1e-6)
    assert odeco.match(odeco.decompose(tensor, 3, tol=1e-6, rng=0), truth).cosines.min() > 0.9
