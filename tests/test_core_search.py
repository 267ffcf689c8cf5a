"""The core search finds every component, also where the images of an orthonormal basis would not."""

from __future__ import annotations

import numpy as np
import pytest

import odeco
from odeco import Components
from odeco.datasets import gaussian_noise
from odeco.online.entries import CoreSolver
from odeco.tensors import DenseTensor

DIMENSION = 60
#: The noise is far below the weights, which are 1: no component is lost because of it.
NOISE = 1e-6


def finished(search, tensor):
    """Return the search after all its questions were answered by the tensor."""
    while not search.done:
        u = search.probes
        if search.query == "image":
            search = search.advance(tensor.image(u))
        else:
            search = search.advance(np.einsum("abc,ai,bj,ck->ijk", tensor.entries, u, u, u, optimize=True))
    return search


@pytest.mark.parametrize("seed", range(5))
def test_two_equal_components_are_found_although_the_images_of_their_sum_and_difference_coincide(seed):
    """The first answer's strongest directions are (v₁ + v₂)/√2 and (v₁ − v₂)/√2, and both have the image (v₁ + v₂)/2.

    The components lie in the plane of the first two questions q₁ and q₂: v₁ = 0.8 q₁ + 0.6 q₂ and v₂ = 0.8 q₂ − 0.6 q₁.
    So the images of q₁ and q₂ are 0.64 v₁ + 0.36 v₂ and 0.36 v₁ + 0.64 v₂, whose left singular vectors are
    (v₁ ± v₂)/√2, and the other questions have images of nothing but noise. Whoever asks about these singular
    vectors next gets the same direction twice and loses v₁ − v₂: all that is left of it is what it has in common with
    the other 8 directions, which are noise, in 59 dimensions. No vector in the span of v₁ + v₂ and these has a cosine
    with v₁ above √((1 + 8/59)/2) = 0.75 on average. Random mixtures of the two directions have images that differ.
    """
    search = CoreSolver.start(DIMENSION, 2, seed=seed)
    q = search.probes[:, :2]
    truth = Components([1.0, 1.0], q @ np.array([[0.8, -0.6], [0.6, 0.8]]))
    tensor = DenseTensor(truth.to_dense() + NOISE * gaussian_noise(DIMENSION, rng=seed).entries)
    found = finished(search, tensor).found
    assert found is not None
    assert np.all(odeco.match(found, truth).cosines > 0.99)
