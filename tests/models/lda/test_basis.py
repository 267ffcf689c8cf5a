"""The basis of the moments is orthonormal, whatever it is made of."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from odeco.models.lda.spectral import orthonormalise


@given(seed=st.integers(0, 2**32 - 1), rank=st.integers(0, 5))
def test_orthonormal_columns_are_made_whatever_the_rank(seed, rank):
    generator = np.random.default_rng(seed)
    block = generator.standard_normal((40, rank)) @ generator.standard_normal((rank, 5))
    span = block.copy()
    orthonormalise(block, 0)
    np.testing.assert_allclose(block.T @ block, np.eye(5), atol=1e-10)
    np.testing.assert_allclose(block @ (block.T @ span), span, atol=1e-9)
