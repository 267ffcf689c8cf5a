"""The proportions and the likelihood of documents, each against the formula written out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("numba")

from odeco._util.threads import on_threads
from odeco.models.lda import inference as infer
from odeco.models.lda.inference import document_topics, log_likelihood


def corpus(n_documents=40, n_words=30, n_topics=4, seed=0):
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(n_words, 0.3), size=n_topics)
    alpha = rng.uniform(0.1, 1, size=n_topics)
    shares = rng.dirichlet(alpha, size=n_documents)
    counts = np.array([rng.multinomial(25, share @ topics) for share in shares])
    return sparse.csr_array(counts), topics, alpha


def fixed_point(row, topics, alpha, n_rounds):
    """Zero-order collapsed variational inference, in turn over distinct words, as its definition
    says.
    """
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
    monkeypatch.setattr(infer, "TOLERANCE", 0.0)
    found = document_topics(counts, topics, alpha, n_iterations=n_rounds)
    wanted = [fixed_point(row, topics, alpha, n_rounds) for row in counts.toarray()]
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_a_document_is_left_when_it_no_longer_moves():
    counts, topics, alpha = corpus()
    found = document_topics(counts, topics, alpha, n_iterations=10_000)
    # In its last round it moved by at most the tolerance, a share of its length, and its
    # proportions by no more.
    dense = counts.toarray()
    rounds = [
        next(
            n
            for n in range(1, 10_000)
            if np.allclose(fixed_point(row, topics, alpha, n), share, rtol=1e-9)
        )
        for row, share in zip(dense, found, strict=True)
    ]
    for row, share, n in zip(dense, found, rounds, strict=True):
        assert np.abs(fixed_point(row, topics, alpha, n - 1) - share).sum() < infer.TOLERANCE


def test_proportions_do_not_depend_on_the_number_of_threads_or_on_other_documents():
    counts, topics, alpha = corpus(n_documents=1_300)
    together = document_topics(counts, topics, alpha)
    with on_threads(1):
        np.testing.assert_array_equal(together, document_topics(counts, topics, alpha))
    np.testing.assert_array_equal(
        together[700:703], document_topics(counts[700:703], topics, alpha)
    )
    np.testing.assert_allclose(together.sum(axis=1), 1)


def test_an_empty_document_has_the_mean_of_the_prior():
    _, topics, alpha = corpus()
    empty = sparse.csr_array((2, 30), dtype=np.int64)
    np.testing.assert_allclose(
        document_topics(empty, topics, alpha), np.tile(alpha / alpha.sum(), (2, 1))
    )
    assert document_topics(empty[:0], topics, alpha).shape == (0, 4)
    np.testing.assert_array_equal(
        log_likelihood(empty, topics, document_topics(empty, topics, alpha)), 0
    )


def test_a_word_that_no_topic_knows_is_left_out():
    counts, topics, alpha = corpus()
    unknown = topics.copy()
    unknown[:, 5] = 0
    without = counts.toarray()
    without[:, 5] = 0
    np.testing.assert_allclose(
        document_topics(counts, unknown, alpha),
        document_topics(sparse.csr_array(without), unknown, alpha),
        atol=1e-12,
    )


def test_likelihood_is_the_sum_over_tokens():
    counts, topics, alpha = corpus()
    shares = document_topics(counts, topics, alpha)
    wanted = np.sum(counts.toarray() * np.log(shares @ topics), axis=1)
    np.testing.assert_allclose(log_likelihood(counts, topics, shares), wanted, rtol=1e-12)


def test_proportions_do_not_depend_on_where_arrays_lie_in_memory():
    # A vectorised loop runs one by one if what it writes lies close to what it reads, and then
    # rounds differently.
    rng = np.random.default_rng(0)
    counts, topics = sparse.csr_array(rng.poisson(0.3, (300, 50))), rng.dirichlet(np.ones(50), 4)
    found, kept = set(), []
    for _ in range(100):
        kept.append(np.empty(int(rng.integers(1, 400))))  # moves what is allocated next
        found.add(document_topics(counts.copy(), topics.copy(), np.full(4, 0.3)).tobytes())
    assert len(found) == 1
