"""Perplexity and coherence, each against the formula written out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import sparse
from test_infer import corpus

pytest.importorskip("numba")

from odeco.models.lda.inference import coherence, completion_perplexity, split_documents


def test_perplexity_of_a_case_done_by_hand():
    topics = np.array([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.25, 0.75]])
    observed = sparse.csr_array(np.array([[2, 0, 0, 0], [0, 0, 0, 0]]))
    held_out = sparse.csr_array(np.array([[0, 1, 0, 1], [1, 0, 0, 0]]))
    # Document 1: both tokens are of topic 1, proportions (2 + 1, 0 + 1) / 4. Held out: 0.75 x 0.5
    # and 0.25 x 0.75. Document 2 has nothing observed: proportions (1, 1) / 2, and 0.5 x 0.5.
    wanted = np.exp(-(np.log(0.375) + np.log(0.1875) + np.log(0.25)) / 3)
    assert completion_perplexity(observed, held_out, topics, np.ones(2)) == pytest.approx(
        wanted, rel=1e-12
    )
    # Topics need not be scaled.
    assert completion_perplexity(observed, held_out, 7 * topics, np.ones(2)) == pytest.approx(
        wanted, rel=1e-12
    )


def test_perplexity_is_infinite_where_a_held_out_word_has_no_chance():
    topics = np.array([[1.0, 0.0]])
    row = sparse.csr_array(np.array([[1, 1]]))
    assert completion_perplexity(row, row, topics, np.ones(1)) == np.inf


def test_uniform_topics_have_the_perplexity_of_the_vocabulary():
    counts, _, _ = corpus()
    observed, held_out = split_documents(counts, np.random.default_rng(0))
    assert completion_perplexity(observed, held_out, np.ones((3, 30)), np.ones(3)) == pytest.approx(
        30, rel=1e-12
    )


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
        npmi = []
        for one, other in itertools.combinations(np.argsort(-topics[topic])[:5], 2):
            both = np.mean(present[:, one] & present[:, other])
            p_one, p_other = present[:, one].mean(), present[:, other].mean()
            npmi.append(-1 if both == 0 else np.log(both / (p_one * p_other)) / -np.log(both))
        assert found[topic] == pytest.approx(np.mean(npmi), rel=1e-10)


def test_coherence_at_its_ends():
    # Words 0 and 1 are in every document; 2 and 3 never in the same one.
    counts = sparse.csr_array(np.array([[1, 2, 1, 0], [3, 1, 0, 1]]))
    topics = np.array([[0.5, 0.4, 0.06, 0.04], [0.04, 0.06, 0.4, 0.5]])
    np.testing.assert_array_equal(coherence(topics, counts, top=2), [1, -1])
