"""Components that go on learning say truly how far off they are."""

from __future__ import annotations

import math

import numpy as np
import pytest

import odeco
from odeco.datasets import planted_orthogonal
from odeco.power.tracking import Tracker


@pytest.mark.slow
def test_standard_errors_under_forgetting_are_the_spread_over_independent_streams():
    """The reported standard errors of 100 simulated streams of four components are compared with the actual errors.

    A mean that forgets with the factor f gives the batch j steps back the weight fʲ, so its variance is
    Σ f²ʲ / (Σ fʲ)² = (1 − f)/(1 + f) of that of one batch. With fʲ instead of f²ʲ in the numerator, the standard errors
    would be larger by √(1 + f), which is 1.40 here.
    """
    forgetting, n_batches, n_streams, k = 0.95, 120, 100, 4
    truth = planted_orthogonal(5, k, rng=0)
    generator = np.random.default_rng(1)
    deviation = 1e-3  # of each coordinate of a batch's image; what is of second order is smaller by this factor
    errors, reported = [], []
    for _ in range(n_streams):
        tracking = Tracker.start(truth, forgetting=forgetting)
        for _ in range(n_batches):
            noise = deviation * generator.standard_normal(truth.vectors.shape)
            tracking = tracking.advance(truth.image(tracking.probes) + noise, n_rows=100)
        matched = odeco.match(tracking.components, truth)
        errors.append([matched.weight_errors, matched.angles])
        reported.append(tracking.standard_errors())
    of_weights, of_angles = np.sqrt(np.mean(np.square(reported), axis=0) / np.mean(np.square(errors), axis=0))
    # The variance of a batch is estimated from its deviations from a mean that forgets, too. Their mean square is
    # 2f/(1 + f) of that variance, so the standard errors are 1.3 % too small.
    bias = 1 - math.sqrt(2 * forgetting / (1 + forgetting))
    # The root of a mean of n squares of normal errors has a relative standard error of at most 1/√(2n).
    allowed = bias + 4 / math.sqrt(2 * n_streams * k)
    assert abs(np.mean(of_weights) - 1) < allowed
    assert abs(np.mean(of_angles) - 1) < allowed
