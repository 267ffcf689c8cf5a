"""Topics are read off exact moments to rounding, and an estimate becomes the nearest
distribution.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_lda import distances

from odeco.models.lda.moments import contract, corrected_core
from odeco.models.lda.spectral import ReducedMoments, _whitened, onto_simplex, topics_for
from odeco.tensors.dense import symmetrize


@given(
    seed=st.integers(0, 2**32 - 1),
    k=st.integers(1, 6),
    concentration=st.floats(0.1, 20),
    n_words=st.integers(6, 30),
)
def test_topics_are_read_off_exact_moments_to_rounding(seed, k, concentration, n_words):
    generator = np.random.default_rng(seed)
    alpha = generator.uniform(1, 3, k)
    alpha *= concentration / alpha.sum()
    topics = generator.dirichlet(np.full(n_words, 0.3), size=k)
    a0, mean = alpha.sum(), alpha @ topics / alpha.sum()
    # Moments of words of the model, by undoing the correction of the theorem.
    second = (topics.T * (alpha / (a0 * (a0 + 1)))) @ topics
    pairs = second + a0 / (a0 + 1) * np.outer(mean, mean)
    third = np.einsum(
        "j,ja,jb,jc->abc", 2 * alpha / (a0 * (a0 + 1) * (a0 + 2)), topics, topics, topics
    )
    mixed = np.einsum("ab,c->abc", pairs, mean)
    mixed = mixed + mixed.transpose(0, 2, 1) + mixed.transpose(2, 0, 1)
    triples = (
        third
        + a0 / (a0 + 2) * mixed
        - 2 * a0**2 / ((a0 + 1) * (a0 + 2)) * np.einsum("a,b,c", mean, mean, mean)
    )
    basis = np.linalg.qr(topics.T)[0]
    reduced = ReducedMoments(
        directions=np.eye(k),
        eigenvalues=np.ones(k),
        eigenvalue_errors=np.zeros(k),
        noise_level=0.0,
        clear=np.ones(k, dtype=bool),
        first=basis.T @ mean,
        pairs=basis.T @ pairs @ basis,
        triples=np.einsum("abc,ai,bj,ck->ijk", triples, basis, basis, basis),
    )

    class Exact:
        def first_moment(self):
            return mean

        def pair_image_of(self, coordinates):
            return (pairs @ basis @ coordinates).T

    found = topics_for(a0, reduced, Exact(), seed=0)
    # Whitening divides by eigenvalues of M₂, and M₃ was made by subtracting terms that are up to
    # (α₀+1)/αⱼ times it.
    condition = np.linalg.cond(basis.T @ second @ basis)
    accuracy = 1e-10 * condition**1.5 * (1 + a0)
    if accuracy < 1e-2:
        assert distances(found.topic_word, topics).max() < accuracy
        np.testing.assert_allclose(np.sort(found.alpha), np.sort(alpha), rtol=10 * accuracy)
        assert found.explained == pytest.approx(1, abs=accuracy)
        assert np.all(np.diff(found.alpha) <= accuracy * a0)


@pytest.mark.parametrize("concentration", [0.01, 1.0, 50.0])
@pytest.mark.parametrize("strength", [0.0, 0.5, 0.99, 3.0])
def test_moments_are_whitened_without_a_direction_that_they_lack(concentration, strength):
    # Any symmetric triples will do. With a mean of norm 3 in whitened coordinates M₂ is indefinite,
    # and what whitens the rest leaves that direction out.
    generator = np.random.default_rng(0)
    root = generator.standard_normal((6, 6))
    pairs, triples = root @ root.T, symmetrize(generator.standard_normal((6, 6, 6)))
    direction = generator.standard_normal(6)
    mean = strength * root @ direction / np.linalg.norm(direction)
    ones = np.ones(6)
    reduced = ReducedMoments(np.eye(6), ones, ones, 0.0, ones > 0, mean, pairs, triples)
    second, whiten, core = _whitened(concentration, reduced)
    expected, third = corrected_core(triples, pairs, mean, concentration)
    np.testing.assert_allclose(second, expected)
    np.testing.assert_allclose(core, contract(third, whiten), atol=1e-9 * np.abs(core).max())
    lost = concentration / (concentration + 1) * strength**2 >= 1
    np.testing.assert_allclose(whiten.T @ second @ whiten, np.eye(5 if lost else 6), atol=1e-9)


@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 30))
def test_the_projection_is_the_nearest_distribution(seed, size):
    generator = np.random.default_rng(seed)
    row, variances = generator.standard_normal(size) + 0.5, generator.uniform(0.1, 1, size)
    projected, share = onto_simplex(row[None].copy(), variances)
    point = projected[0]
    assert point.min() >= 0
    assert point.sum() == pytest.approx(1)
    assert 0 <= share[0] <= 0.5
    positive, total = row[row > 0].sum(), row.sum()
    if total > positive / 2:  # otherwise it is scaled otherwise
        # The nearest point of a convex set: no other point lies on the far side of the hyperplane
        # through it.
        gradient = (point - row / total) / variances
        assert gradient @ point <= gradient.min() + 1e-8 * np.abs(gradient).max()


def test_a_distribution_stays_as_it_is():
    topics = np.random.default_rng(0).dirichlet(np.ones(10), size=3)
    projected, share = onto_simplex(topics.copy(), np.ones(10))
    np.testing.assert_allclose(projected, topics, atol=1e-12)
    np.testing.assert_array_equal(share, 0)
