"""Public documents beside private topics: they cost no budget, help where noise is large, and never decide alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import sparse

from odeco.datasets import planted_topics
from odeco.models.engine.private import SimulatedSums
from odeco.models.lda.pairs import NoisyPairs
from odeco.models.lda.private_estimate import estimate_private_topics
from odeco.models.lda.private_plan import plan_releases, signal_of, similarity
from odeco.models.lda.private_public import PublicDocuments, likeness, spread_of
from odeco.privacy.holders.documents import BoundedCounts
from odeco.privacy.ledger_file import Guarantee

K, V, N = 4, 120, 3_000


@pytest.fixture(scope="module")
def corpus():
    return planted_topics(N + 400, V, np.full(K, 0.2), document_length=40, rng=7)


def run(corpus, public, epsilon, seed):
    """Return how similar topics are to the true ones, the topics, and what was released."""
    held, guarantee, rng = BoundedCounts(corpus.counts[400:]), Guarantee(epsilon, 1e-8), np.random.default_rng(seed)
    plan = plan_releases(V, K, signal_of(N, guarantee.mu, "replace"))
    sums = SimulatedSums(guarantee, N, N, record="document", neighbour_relation="replace", rng=rng)
    found = estimate_private_topics(held, sums, plan, K, concentration=1.0, rng=rng, public=public).evidence.topics
    return similarity(corpus.topics, found, corpus.topics.mean(axis=0)).mean(), found, sums.log


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_public_documents_help_and_the_releases_are_the_same(corpus, epsilon):
    documents, gains = sparse.csr_array(corpus.counts[:400]), []
    for seed in range(3):
        alone, _, log = run(corpus, None, epsilon, seed)
        helped, _, same = run(corpus, PublicDocuments(documents), epsilon, seed)
        gains.append(helped - alone)
        assert same == log
    # With little noise they hardly count: 400 documents beside 3,000. Topics of other starts differ by a hundredth.
    assert np.mean(gains) > (0.05 if epsilon < 1 else -0.01)


def test_other_text_does_not_count_at_all(corpus):
    shuffled = corpus.counts[:400][:, np.random.default_rng(0).permutation(V)]
    public = PublicDocuments(sparse.csr_array(shuffled))
    alone, helped = run(corpus, None, 1.0, 0)[1], run(corpus, public, 1.0, 0)[1]
    assert public.spread == math.inf
    assert np.array_equal(alone, helped)


def test_documents_without_words_are_none():
    assert PublicDocuments.of(None) is None
    assert PublicDocuments.of(sparse.csr_array((3, 5))) is None


def test_the_spread_is_that_of_sampling_for_documents_like_the_private_ones_and_larger_for_others():
    rng, expected = np.random.default_rng(0), 1_000 / np.arange(1, 501)
    released, deviations = 20 * expected + 5 * rng.standard_normal(500), np.full(500, 5.0)
    spreads = [spread_of(rng.poisson(expected), expected, released, deviations) for _ in range(20)]
    # A weighted mean of 500 squares, χ² with one degree of freedom each, of which the most frequent words count most.
    assert np.mean(spreads) < 1.2
    twice = [spread_of(expected + 2 * np.sqrt(expected) * rng.standard_normal(500), expected, released, deviations)]
    assert 2.5 < np.mean(twice) < 6  # deviations twice as large: a variance of 4 times that of sampling


def test_likeness_is_the_slope_of_frequencies():
    frequencies = 1 / np.arange(1, 101) / np.sum(1 / np.arange(1, 101))
    none = np.zeros(100)
    assert likeness(1_000 * frequencies, none, frequencies) == pytest.approx(1.0)
    assert likeness(np.full(100, 10.0), none, frequencies) == 0.0
    # Three quarters of the way from equal frequencies: the slope is 3/4.
    assert likeness(0.25 / 100 + 0.75 * frequencies, none, frequencies) == pytest.approx(0.5)
    assert likeness(np.ones(100), none, np.full(100, 0.01)) == 1.0  # nothing to compare
    # Few words could be those of any text: sums of 0 or 1 with a variance of 1 each say nothing.
    assert likeness(np.arange(100) % 20 == 0, np.ones(100), frequencies) == 1.0


def test_public_pairs_count_the_more_the_larger_the_noise_is(corpus):
    public, words = PublicDocuments(sparse.csr_array(corpus.counts[:400])), np.arange(30)
    zero = np.zeros((30, 30))
    sizes = [np.abs(public.added(NoisyPairs(words, zero, noise), N)).sum() for noise in (1e-9, 10.0, 100.0)]
    exact = np.abs(BoundedCounts(corpus.counts[:400]).pairs(words).answer()).sum() * 2
    assert sizes[0] == pytest.approx(exact)  # each as often as a private one
    assert sizes[0] < sizes[1] < sizes[2]
