"""The core search finds every component, also where the images of an orthonormal basis would
not.
"""

from __future__ import annotations

import numpy as np
import pytest

import odeco
from odeco import Components
from odeco.datasets import gaussian_noise
from odeco.online.methods.private import PrivateSpan
from odeco.online.solver import Reply, Where
from odeco.tensors import DenseTensor

DIMENSION = 60
#: The noise is far below the weights, which are 1: no component is lost because of it.
NOISE = 1e-6


def begun(seed):
    """Return a search for two components before the first question."""
    guarantee = {"batch_size": 1, "epsilon": 1.0, "delta": 1e-6, "norm_bound": 1.0}
    return PrivateSpan(n_components=2, **guarantee).bound(Where(DIMENSION, seed)).start()


def finished(search, tensor):
    """Return the search after all its questions were answered by the tensor."""
    for _ in range(search.plan.n_batches - 1):
        search = search.advance(Reply(tensor.image(search.query.block), 1))
    u = search.query.block
    return search.advance(
        Reply(np.einsum("abc,ai,bj,ck->ijk", tensor.entries, u, u, u, optimize=True), 1)
    )


@pytest.mark.parametrize("seed", range(5))
def test_two_equal_components_are_found_although_the_images_of_their_sum_and_difference_coincide(
    seed,
):
    """The first answer's strongest directions are (v₁ + v₂)/√2 and (v₁ − v₂)/√2, and both have the
    image (v₁ + v₂)/2.

    The components lie in the plane of the first two questions q₁ and q₂: v₁ = 0.8 q₁ + 0.6 q₂ and
    v₂ = 0.8 q₂ − 0.6 q₁. So the images of q₁ and q₂ are 0.64 v₁ + 0.36 v₂ and 0.36 v₁ + 0.64 v₂,
    whose left singular vectors are (v₁ ± v₂)/√2, and the other questions have images of nothing but
    noise. Whoever asks about these singular vectors next gets the same direction twice and loses v₁
    − v₂: all that is left of it is what it has in common with the other 8 directions, which are
    noise, in 59 dimensions. No vector in the span of v₁ + v₂ and these has a cosine with v₁ above
    √((1 + 8/59)/2) = 0.75 on average. Random mixtures of the two directions have images that
    differ.
    """
    search = begun(seed)
    q = search.query.block[:, :2]
    truth = Components([1.0, 1.0], q @ np.array([[0.8, -0.6], [0.6, 0.8]]))
    tensor = DenseTensor(truth.to_dense() + NOISE * gaussian_noise(DIMENSION, rng=seed).entries)
    found = finished(search, tensor).estimate(None).components
    assert np.all(odeco.match(found, truth).cosines > 0.99)
