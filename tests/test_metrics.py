"""What is found is compared with what is true."""

from __future__ import annotations

import numpy as np

import odeco
from odeco import Components
from odeco.datasets import planted_orthogonal


def test_match_pairs_up_to_order_and_sign_and_tolerates_missing_ones():
    truth = planted_orthogonal(6, 3, rng=0)
    shuffled = Components(-truth.weights[[2, 0]], -truth.vectors[:, [2, 0]])
    matched = odeco.match(shuffled, truth)
    assert list(matched.found_index) == [1, -1, 0]
    np.testing.assert_allclose(matched.cosines, [1, 0, 1], atol=1e-12)
    np.testing.assert_allclose(matched.weight_errors, [0, -truth.weights[1], 0], atol=1e-12)
    even = Components(truth.weights, truth.vectors, 4)
    flipped = Components(truth.weights, -truth.vectors, 4)
    np.testing.assert_allclose(odeco.match(flipped, even).weight_errors, 0, atol=1e-12)
