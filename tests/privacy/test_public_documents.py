"""Public documents beside private topics: they cost no budget, help where noise is large, and never decide alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import sparse

from odeco.datasets import planted_topics
from odeco.models.engine.private import SimulatedSums
from odeco.models.lda.pairs import NoisyPairs, matrix_of_pairs
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


def test_a_public_document_counts_as_a_private_one_where_noise_is_small():
    # One word is in public documents only. By inverse variances, the private sums would say that there is none of it.
    rng, words = np.random.default_rng(0), 1 / np.arange(1, V + 1)
    counts = rng.poisson(40 * words / words.sum(), size=(N + 400, V)).astype(float)
    counts[:400:10, 60], counts[400:, 60] = 1.0, 0.0
    held, guarantee = BoundedCounts(counts[400:]), Guarantee(1_000.0, 1e-8)
    plan, settings = plan_releases(V, 2, signal_of(N, guarantee.mu, "replace")), {"concentration": 1.0, "rng": rng}
    sums = SimulatedSums(guarantee, N, N, record="document", neighbour_relation="replace", rng=rng)
    public = PublicDocuments(sparse.csr_array(counts[:400]))
    found = estimate_private_topics(held, sums, plan, 2, public=public, **settings).evidence.words.values
    assert public.alike > 0.9
    exact = held.words().answer() + public.alike * public.held.words().answer()
    assert exact[60] > 10
    np.testing.assert_allclose(found / found.sum(), exact / exact.sum(), rtol=0.1)


def test_what_is_among_the_private_documents_counts_by_how_alike_it_is(corpus):
    public = PublicDocuments(sparse.csr_array(corpus.counts[:400]))
    query, words = public.held.words(), np.arange(30)
    public.alike = 0.25
    assert np.array_equal(public.among(np.ones(V), query), 1 + 0.25 * query.answer())
    pairs = public.added(NoisyPairs(words, np.zeros((30, 30)), 1e-9), N)
    exact = matrix_of_pairs(public.held.pairs(words).answer(), 30)
    np.testing.assert_allclose(pairs, 0.25 * exact, rtol=1e-12)


def test_public_words_start_topics_beside_a_prior_of_some_words(corpus):
    public, frequencies = PublicDocuments(sparse.csr_array(corpus.counts[:400])), np.full(V, 1 / V)
    topics = np.random.default_rng(0).dirichlet(np.ones(V), K)
    known, shares = np.arange(30), topics.T / topics.sum(axis=0)[:, None]
    divided, certainty = public.by_topic(topics, 0.25), public.certainty()[:, None]
    for n_prior in (1.0, 10.0):
        start = V * public.start(topics, frequencies, known, 0.25, n_prior).T
        np.testing.assert_allclose(start[30:], (shares + certainty / (n_prior + certainty) * (divided - shares))[30:])
        np.testing.assert_allclose(start[known], shares[known])


@pytest.mark.slow
def test_documents_of_few_topics_help_more_in_public_than_in_private():
    # Of six topics, those in public are mostly about two: they are not drawn like the others, and count accordingly.
    n_topics, n_words = 6, 1_500
    drawn = planted_topics(6_800, n_words, np.full(n_topics, 0.1), document_length=60, rng=3)
    likeliest = np.argmax(drawn.counts @ np.log(drawn.topics.T + 1e-6), axis=1)
    public, guarantee, found = np.flatnonzero(likeliest < 2)[:400], Guarantee(2.0, 1e-8), []
    rest = np.setdiff1d(np.arange(6_800), public)
    for documents, given in ((np.arange(6_800), None), (rest, sparse.csr_array(drawn.counts[public]))):
        held, n, each = BoundedCounts(drawn.counts[documents]), len(documents), []
        plan = plan_releases(n_words, n_topics, signal_of(n, guarantee.mu, "add_remove"))
        for seed in range(2):
            rng = np.random.default_rng(seed)
            sums = SimulatedSums(guarantee, n, n, record="document", neighbour_relation="add_remove", rng=rng)
            beside = PublicDocuments.of(given)
            run = estimate_private_topics(held, sums, plan, n_topics, concentration=1.0, rng=rng, public=beside)
            each.append(similarity(drawn.topics, run.evidence.topics, drawn.topics.mean(axis=0)).mean())
        found.append(np.mean(each))
    assert found[1] > found[0]
