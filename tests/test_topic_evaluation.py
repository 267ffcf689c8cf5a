"""Inference on documents, perplexity and coherence, each against the formula written out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("numba")

from odeco.topics import inference as _inference
from odeco.topics.evaluation import coherence, completion_perplexity, split_documents
from odeco.topics.inference import document_topics, log_likelihood


def corpus(n_documents=40, n_words=30, n_topics=4, seed=0):
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(n_words, 0.3), size=n_topics)
    alpha = rng.uniform(0.1, 1, size=n_topics)
    shares = rng.dirichlet(alpha, size=n_documents)
    counts = np.array([rng.multinomial(25, share @ topics) for share in shares])
    return sparse.csr_array(counts), topics, alpha


def fixed_point(row, topics, alpha, n_rounds):
    """Zero-order collapsed variational inference, in turn over distinct words, as its definition says."""
    words = np.flatnonzero(row)
    token_topics = topics[:, words] * alpha[:, None]
    token_topics = token_topics / token_topics.sum(axis=0)
    for _ in range(n_rounds):
        for place, word in enumerate(words):
            others = token_topics @ row[words] - token_topics[:, place]
            weight = topics[:, word] * (alpha + others)
            token_topics[:, place] = weight / weight.sum()
    expected = token_topics @ row[words] + alpha
    return expected / expected.sum()


@pytest.mark.parametrize("n_rounds", [1, 7])
def test_each_round_is_that_of_collapsed_variational_inference(monkeypatch, n_rounds):
    counts, topics, alpha = corpus()
    monkeypatch.setattr(_inference, "TOLERANCE", 0.0)
    found = document_topics(counts, topics, alpha, n_iterations=n_rounds)
    wanted = [fixed_point(row, topics, alpha, n_rounds) for row in counts.toarray()]
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_a_document_is_left_when_it_no_longer_moves():
    counts, topics, alpha = corpus()
    found = document_topics(counts, topics, alpha, n_iterations=10_000)
    # In its last round it moved by at most the tolerance, a share of its length, and its proportions by no more.
    dense = counts.toarray()
    rounds = [
        next(n for n in range(1, 10_000) if np.allclose(fixed_point(row, topics, alpha, n), share, rtol=1e-9))
        for row, share in zip(dense, found, strict=True)
    ]
    for row, share, n in zip(dense, found, rounds, strict=True):
        assert np.abs(fixed_point(row, topics, alpha, n - 1) - share).sum() < _inference.TOLERANCE


def test_proportions_do_not_depend_on_the_number_of_threads_or_on_other_documents():
    counts, topics, alpha = corpus(n_documents=1_300)
    together = document_topics(counts, topics, alpha)
    for n_jobs in (2, -1):
        np.testing.assert_array_equal(together, document_topics(counts, topics, alpha, n_jobs=n_jobs))
    np.testing.assert_array_equal(together[700:703], document_topics(counts[700:703], topics, alpha))
    np.testing.assert_allclose(together.sum(axis=1), 1)


def test_an_empty_document_has_the_mean_of_the_prior():
    _, topics, alpha = corpus()
    empty = sparse.csr_array((2, 30), dtype=np.int64)
    np.testing.assert_allclose(document_topics(empty, topics, alpha), np.tile(alpha / alpha.sum(), (2, 1)))
    assert document_topics(empty[:0], topics, alpha).shape == (0, 4)
    np.testing.assert_array_equal(log_likelihood(empty, topics, document_topics(empty, topics, alpha)), 0)


def test_a_word_that_no_topic_knows_is_left_out():
    counts, topics, alpha = corpus()
    unknown = topics.copy()
    unknown[:, 5] = 0
    without = counts.toarray()
    without[:, 5] = 0
    np.testing.assert_allclose(
        document_topics(counts, unknown, alpha), document_topics(sparse.csr_array(without), unknown, alpha), atol=1e-12
    )


def test_likelihood_is_the_sum_over_tokens():
    counts, topics, alpha = corpus()
    shares = document_topics(counts, topics, alpha)
    wanted = np.sum(counts.toarray() * np.log(shares @ topics), axis=1)
    np.testing.assert_allclose(log_likelihood(counts, topics, shares, n_jobs=2), wanted, rtol=1e-12)


def test_perplexity_of_a_case_done_by_hand():
    topics = np.array([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.25, 0.75]])
    observed = sparse.csr_array(np.array([[2, 0, 0, 0], [0, 0, 0, 0]]))
    held_out = sparse.csr_array(np.array([[0, 1, 0, 1], [1, 0, 0, 0]]))
    # Document 1: both tokens are of topic 1, proportions (2 + 1, 0 + 1) / 4. Held out: 0.75 x 0.5 and 0.25 x 0.75.
    # Document 2 has nothing observed: proportions (1, 1) / 2, and 0.5 x 0.5.
    wanted = np.exp(-(np.log(0.375) + np.log(0.1875) + np.log(0.25)) / 3)
    assert completion_perplexity(observed, held_out, topics, np.ones(2)) == pytest.approx(wanted, rel=1e-12)
    # Topics need not be scaled.
    assert completion_perplexity(observed, held_out, 7 * topics, np.ones(2)) == pytest.approx(wanted, rel=1e-12)


def test_perplexity_is_infinite_where_a_held_out_word_has_no_chance():
    topics = np.array([[1.0, 0.0]])
    row = sparse.csr_array(np.array([[1, 1]]))
    assert completion_perplexity(row, row, topics, np.ones(1)) == np.inf


def test_uniform_topics_have_the_perplexity_of_the_vocabulary():
    counts, _, _ = corpus()
    observed, held_out = split_documents(counts, np.random.default_rng(0))
    assert completion_perplexity(observed, held_out, np.ones((3, 30)), np.ones(3)) == pytest.approx(30, rel=1e-12)


def test_a_split_shares_out_every_token_by_a_fair_coin():
    counts, _, _ = corpus(n_documents=400)
    observed, held_out = split_documents(counts, np.random.default_rng(0))
    np.testing.assert_array_equal((observed + held_out).toarray(), counts.toarray())
    assert observed.data.min() > 0
    assert held_out.data.min() > 0
    # 10,000 tokens: six standard errors of a fair coin are 6 x 50.
    assert abs(int(observed.sum()) - 5_000) < 300
    again, _ = split_documents(counts, np.random.default_rng(0))
    np.testing.assert_array_equal(again.toarray(), observed.toarray())


def test_coherence_is_the_mean_over_pairs_of_leading_words():
    counts, topics, _ = corpus(n_documents=120)
    found = coherence(topics, counts, top=5)
    present = counts.toarray() > 0
    for topic in range(4):
        npmi, umass = [], []
        for one, other in itertools.combinations(np.argsort(-topics[topic])[:5], 2):
            both = np.mean(present[:, one] & present[:, other])
            p_one, p_other = present[:, one].mean(), present[:, other].mean()
            npmi.append(-1 if both == 0 else np.log(both / (p_one * p_other)) / -np.log(both))
            umass.append(np.log((both * 120 + 1) / (p_one * 120)))
        assert found.npmi[topic] == pytest.approx(np.mean(npmi), rel=1e-10)
        assert found.umass[topic] == pytest.approx(np.mean(umass), rel=1e-10)


def test_coherence_at_its_ends():
    # Words 0 and 1 are in every document; 2 and 3 never in the same one.
    counts = sparse.csr_array(np.array([[1, 2, 1, 0], [3, 1, 0, 1]]))
    topics = np.array([[0.5, 0.4, 0.06, 0.04], [0.04, 0.06, 0.4, 0.5]])
    np.testing.assert_array_equal(coherence(topics, counts, top=2).npmi, [1, -1])
