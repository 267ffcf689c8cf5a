"""Cores of streams whose components are taken to be orthogonal: Algorithm 1 finds all of them."""

from __future__ import annotations

import numpy as np
import pytest

import odeco
from odeco import Components, RankError
from odeco.cp.small import decompose_core
from odeco.datasets import gaussian_noise
from odeco.online.methods.private import PrivateSpan
from odeco.online.solver import Reply, Where
from odeco.tensors.dense import DenseTensor, symmetrize

#: Noiseless components come out to rounding: sums of some hundred products, each with an error of
#: 1e-16.
EXACT = 1e-12


def planted(dimension, weights, order=3, seed=0):
    vectors = np.linalg.qr(np.random.default_rng(seed).standard_normal((dimension, len(weights))))[
        0
    ]
    return Components(weights, vectors, order)


def noisy(truth, sigma, seed=0):
    return truth.to_dense() + sigma * gaussian_noise(truth.dimension, rng=seed).entries


def found_in(core, n_components, seed=0):
    return decompose_core(DenseTensor(symmetrize(core)), n_components, np.random.default_rng(seed))


def errors(found, truth):
    """Return the largest error of a weight and of a vector, once components are matched."""
    pairs = odeco.match(found, truth)
    vectors = found.vectors[:, pairs.found_index]
    vectors = vectors * np.sign(np.sum(vectors * truth.vectors, axis=0))
    return np.abs(pairs.weight_errors).max(), np.linalg.norm(vectors - truth.vectors, axis=0).max()


@pytest.mark.parametrize(
    ("dimension", "weights", "order"),
    [
        (30, np.linspace(2, 1, 15), 3),
        (20, np.linspace(2, 1, 20), 3),
        (30, np.ones(15), 3),
        (30, np.geomspace(1e4, 1, 15), 3),
        (30, [1.0] * 14 + [1e-6], 3),
        (12, np.linspace(2, 1, 8), 4),
        (12, np.linspace(-2, 1, 12), 4),
        (12, -np.ones(8), 4),
        (8, np.linspace(2, 1, 8), 5),
    ],
)
def test_components_without_noise_are_exact(dimension, weights, order):
    truth = planted(dimension, np.asarray(weights), order)
    weight_error, vector_error = errors(found_in(truth.to_dense(), len(weights)), truth)
    largest = np.abs(truth.weights).max()
    assert weight_error <= EXACT * largest
    assert vector_error <= EXACT * largest / np.abs(truth.weights).min()


@pytest.mark.parametrize("sigma", [1e-3, 1e-2, 5e-2])
def test_noise_that_the_components_bear_loses_none(sigma):
    truth = planted(45, np.linspace(2, 1, 20), seed=3)
    found = found_in(noisy(truth, sigma, seed=4), 20)
    assert np.all(odeco.match(found, truth).cosines > 0.9)


@pytest.mark.slow
def test_twenty_components_in_noise_of_a_tenth():
    """Noise, of standard deviation s before it is symmetrised, turns a vector of weight λ by s
    √(d/3)/λ.

    So cosines are 0.93 to 0.98 here.

    A component that was lost and replaced by one of the noise would have a cosine far below 0.8.
    """
    for seed in range(2):
        truth = planted(45, np.linspace(2, 1, 20), seed=seed)
        cosines = odeco.match(found_in(noisy(truth, 0.1, seed=seed), 20), truth).cosines
        assert cosines.min() > 0.8
        assert cosines.mean() > 0.95


def test_the_largest_of_more_components_are_found():
    weights = np.linspace(5, 1, 25)
    found = found_in(planted(30, weights, seed=5).to_dense(), 10, seed=1)
    np.testing.assert_allclose(np.sort(found.weights)[::-1], weights[:10], rtol=EXACT)


@pytest.mark.parametrize("rank", [1, 7])
def test_a_core_of_lower_rank_raises_with_what_was_found(rank):
    truth = planted(20, np.linspace(2, 1, rank))
    with pytest.raises(
        RankError, match=rf"the tensor has rank {rank}, but n_components=8"
    ) as caught:
        found_in(truth.to_dense(), 8)
    assert max(errors(caught.value.found, truth)) <= EXACT


def stream_search(truth, n_components):
    guarantee = {"batch_size": 1, "epsilon": 1.0, "delta": 1e-6, "norm_bound": 1.0}
    search = (
        PrivateSpan(n_components=n_components, **guarantee).bound(Where(truth.dimension, 0)).start()
    )
    for ask in (truth.image, truth.image, truth.image, truth.inside):
        search = search.advance(Reply(ask(search.query.block), 1))
    return search.estimate(None).components


def test_a_stream_of_orthogonal_components_lifts_what_its_core_holds():
    truth = planted(40, np.linspace(2, 1, 3))
    assert (
        max(errors(stream_search(truth, 3), truth)) <= 1e-10
    )  # the span is as good as three rounds of images make it
    with pytest.raises(RankError, match="rank 3") as caught:
        stream_search(truth, 5)
    assert max(errors(caught.value.found, truth)) <= 1e-10
