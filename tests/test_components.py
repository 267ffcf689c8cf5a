"""Components: unit vectors with weights, kept in files."""

from __future__ import annotations

import numpy as np
import pytest

from odeco import Components
from odeco.datasets import planted_orthogonal


def test_components_survive_a_file_bit_for_bit_and_cannot_be_changed(tmp_path):
    truth = planted_orthogonal(6, 3, order=4, rng=0)
    truth.save(tmp_path / "truth.npz")
    again = Components.load(tmp_path / "truth.npz")
    assert np.array_equal(again.weights, truth.weights)
    assert np.array_equal(again.vectors, truth.vectors)
    assert again.order == 4
    with pytest.raises(ValueError, match="read-only"):
        truth.weights[0] = 5


def test_a_vector_that_is_not_of_unit_length_moves_its_length_into_the_weight():
    tensor = Components([1.0], [[0.0], [2.0]], order=4)
    np.testing.assert_allclose(tensor.weights, [16.0])
    np.testing.assert_allclose(tensor.vectors.ravel(), [0.0, 1.0])
