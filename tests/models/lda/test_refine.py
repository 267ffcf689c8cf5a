"""The sampler that refines topics: its law, its counts, its priors, and the topics it finds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import sparse
from scipy.special import digamma, gammaln
from scipy.stats import chi2

pytest.importorskip("numba")

from odeco._util.threads import on_threads
from odeco.models.lda.corpus import LocalCorpus
from odeco.models.lda.gibbs import (
    GibbsState,
    Sweep,
    ThreadLanes,
    Tokens,
    choose_lanes,
    exceedances,
    lane_spans,
    learn_alpha,
    learn_eta,
    words_that_occur,
)
from odeco.models.lda.gibbs_kernels import LARGEST_COUNT, sweep_documents
from odeco.models.lda.params import TopicParams

# Two documents over three words, two topics: 2^5 states, so that every law below can be written
# out.
TINY = sparse.csr_array(np.array([[2, 1, 0], [0, 1, 1]]))
TINY_ALPHA = np.array([0.7, 0.4])
TINY_ETA = 0.3
STATES = list(itertools.product(range(2), repeat=5))


def tiny_tokens():
    tokens = Tokens.from_counts(TINY, np.arange(3))
    documents = np.repeat(np.arange(2), np.diff(tokens.starts))
    return tokens, documents


def log_joint(state):
    """Return log P(words, topics), topics and proportions integrated out, up to a constant."""
    tokens, documents = tiny_tokens()
    in_document, in_topic = np.zeros((2, 2)), np.zeros((2, 3))
    np.add.at(in_document, (documents, state), 1)
    np.add.at(in_topic, (state, tokens.words), 1)
    priors = gammaln(in_document + TINY_ALPHA).sum() + gammaln(in_topic + TINY_ETA).sum()
    return priors - gammaln(in_topic.sum(axis=1) + 3 * TINY_ETA).sum()


def sweep_law():
    """Return P(state after a sweep | state before): each token in turn, given all others, from the
    joint law alone.
    """
    weight = {state: np.exp(log_joint(state)) for state in STATES}
    places = {state: place for place, state in enumerate(STATES)}
    law = np.eye(len(STATES))
    for token in range(5):
        step = np.zeros_like(law)
        for state in STATES:
            twins = [(*state[:token], topic, *state[token + 1 :]) for topic in range(2)]
            for twin in twins:
                step[places[state], places[twin]] = weight[twin] / sum(weight[t] for t in twins)
        law = law @ step
    posterior = np.array([weight[state] for state in STATES])
    return law, posterior / posterior.sum()


def run_tiny_sweeps(start, n_draws):
    """Return the states after one sweep from the same start, drawn many times, and the mean of the
    expected counts.
    """
    tokens, _ = tiny_tokens()
    alpha = np.zeros(8, dtype=np.float32)
    alpha[:2] = TINY_ALPHA
    first_table = np.zeros((3, 8), dtype=np.float32)
    np.add.at(first_table, (tokens.words, np.array(start)), 1)
    histogram = np.zeros((2, 4), dtype=np.int64)
    expected = np.zeros((3, 8), dtype=np.float32)
    drawn = np.empty((n_draws, 5), dtype=np.uint16)
    seeds = np.random.default_rng(0).integers(2**63, size=n_draws, dtype=np.uint64)
    for draw in range(n_draws):
        topics, table = np.array(start, dtype=np.uint16), first_table.copy()
        totals = table.sum(axis=0, dtype=np.float64)
        sweep_documents(
            tokens.starts, tokens.words, topics, table, totals, alpha, np.float32(TINY_ETA), 3 * TINY_ETA, 2,
            seeds[draw], expected, histogram,
        )  # fmt: skip
        drawn[draw] = topics
    return drawn, expected / n_draws, histogram


def block_corpus(n_topics, words_each, n_documents, length, seed):
    """Documents of one topic each; topics do not share a word."""
    rng = np.random.default_rng(seed)
    topics = np.kron(np.eye(n_topics), rng.dirichlet(np.ones(words_each)))
    of_document = rng.integers(n_topics, size=n_documents)
    counts = sparse.csr_array(
        np.array([rng.multinomial(length, topics[topic]) for topic in of_document])
    )
    return counts, topics


def mixed_corpus(seed=0, n_documents=400, length=60):
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(50, 0.2), size=4)
    shares = rng.dirichlet(np.full(4, 0.3), size=n_documents)
    counts = sparse.csr_array(
        np.array([rng.multinomial(length, share @ topics) for share in shares])
    )
    return counts, topics


def topics_of(refined):
    """Return the topics as distributions over words."""
    return TopicParams.from_counts(
        refined.topic_counts, refined.alpha, refined.eta, None
    ).topic_word


def begun(counts, topics, n_lanes, alpha):
    """Return tokens, their lanes, and the state after the first draw from topics."""
    lengths = np.asarray(counts.sum(axis=1))
    spans = lane_spans(np.concatenate([[0], np.cumsum(lengths)]), n_lanes)
    words = np.unique(counts.indices)
    tokens = [Tokens.from_counts(counts[first:last], words) for first, last in spans]
    lanes = ThreadLanes(tokens)
    state = GibbsState.begin(alpha, 0.1, 1, counts.shape[1], np.bincount(lengths), len(words))
    state = lanes.draw(state, state.pad(topics[:, words]))
    return Tokens.from_counts(counts, words), lanes, state


def test_the_posterior_is_stationary_under_the_law_of_a_sweep():
    # Pure algebra on the 32 states: what the next test compares the sampler with is the right law.
    law, posterior = sweep_law()
    np.testing.assert_allclose(posterior @ law, posterior, atol=1e-14)


@pytest.mark.parametrize("start", [(0, 0, 0, 0, 0), (0, 1, 0, 1, 1)])
def test_one_sweep_follows_the_law_of_collapsed_gibbs_sampling(start):
    n_draws = 20_000
    drawn, _, _ = run_tiny_sweeps(start, n_draws)
    observed = np.bincount(drawn @ (2 ** np.arange(4, -1, -1)), minlength=32)
    law, _ = sweep_law()
    wanted = law[STATES.index(start)] * n_draws
    # Draws are independent, so Pearson's statistic is chi-square with 31 degrees of freedom where
    # cells are not tiny.
    assert wanted.min() > 5
    assert np.sum((observed - wanted) ** 2 / wanted) < chi2.ppf(1 - 1e-6, 31)


def test_expected_counts_are_the_mean_of_the_draws():
    n_draws = 20_000
    drawn, expected, histogram = run_tiny_sweeps((0, 1, 0, 1, 1), n_draws)
    tokens, documents = tiny_tokens()
    shares = np.zeros((3, 2))
    for token in range(5):
        np.add.at(shares, (tokens.words[token], drawn[:, token]), 1 / n_draws)
    # A token's draw given its probabilities is a coin: the difference of the two means has a
    # standard error of at most sqrt(tokens of the word / (4 draws)), that is 0.005 for two tokens;
    # six of them happen once in 5e8.
    np.testing.assert_allclose(expected[:, :2], shares, atol=6 * np.sqrt(2 / (4 * n_draws)))
    # Each token adds probabilities that sum to one, in single precision: 20,000 additions lose at
    # most 1e-3 of it.
    np.testing.assert_allclose(expected.sum(axis=1), [2, 2, 1], rtol=2e-3)
    present = np.stack(
        [(drawn[:, documents == d] == k).sum(axis=1) for d in range(2) for k in range(2)]
    )
    for topic in range(2):
        counted = np.bincount(present[topic::2].ravel(), minlength=4)
        np.testing.assert_array_equal(histogram[topic, 1:], counted[1:])


@pytest.mark.parametrize("n_lanes", [1, 4])
def test_counts_follow_from_the_topics_after_every_sweep(n_lanes):
    tokens, lanes, state = begun(*mixed_corpus(), n_lanes, np.full(4, 0.3))
    for _ in range(3):
        state = lanes.sweep(state, Sweep(average=True))
        drawn = np.concatenate(lanes.topics)
        again = np.zeros_like(state.table)
        np.add.at(again, (tokens.words, drawn), 1)
        np.testing.assert_array_equal(state.table, again)
        np.testing.assert_array_equal(state.totals, again.sum(axis=0))
        assert drawn.max() < 4
    # Expected counts add up to the tokens of each word, up to the rounding of single precision.
    np.testing.assert_allclose(
        state.mean_counts().sum(axis=0), np.bincount(tokens.words), rtol=1e-4
    )


def test_the_result_does_not_depend_on_the_number_of_threads():
    counts, topics = mixed_corpus()
    start = topics + 0.01
    several = []
    for n_jobs in (1, None):
        with on_threads(n_jobs):
            several.append(LocalCorpus(counts).refine(start, n_sweeps=6, seed=3))
    starts = np.arange(0, 24_001, 60)
    assert len(lane_spans(starts, choose_lanes(24_000, 50 * 8))) == 16
    for other in several[1:]:
        np.testing.assert_array_equal(topics_of(several[0]), topics_of(other))
        np.testing.assert_array_equal(several[0].alpha, other.alpha)
        assert several[0].eta == other.eta
    assert not np.array_equal(
        topics_of(several[0]), topics_of(LocalCorpus(counts).refine(start, n_sweeps=6, seed=4))
    )


def test_topics_without_common_words_are_found_to_sampling_error():
    words_each, n_documents, length = 20, 600, 40
    counts, topics = block_corpus(3, words_each, n_documents, length, seed=0)
    rough = 0.7 * topics + 0.3 * np.random.default_rng(1).dirichlet(np.ones(60), size=3)
    refined = LocalCorpus(counts).refine(rough, n_sweeps=30, seed=0, eta=0.01)
    per_topic = refined.topic_counts.sum(axis=1)
    assert per_topic.sum() == pytest.approx(n_documents * length, rel=1e-4)
    errors = np.abs(topics_of(refined) - topics).sum(axis=1)
    # With every token in its topic, the L1 error of m draws over S words has mean at most sqrt(S /
    # m), and passes it by t with chance exp(-m t^2 / 2) (McDiarmid); t = 6 / sqrt(m) is once in
    # 7e7. Smoothing moves at most 2 V eta / m. Tokens astray: at the posterior a token of a pure
    # document of 40 is out of its topic with chance at most (alpha + eta) / 39 for each other
    # topic, where alpha is learnt below 0.1: 2 x 0.11 / 39 < 0.006, twice in L1.
    bound = (np.sqrt(words_each) + 6) / np.sqrt(per_topic) + 2 * 60 * 0.01 / per_topic + 2 * 0.006
    assert np.all(refined.alpha < 0.1)
    assert np.all(errors < bound)


def test_a_word_that_never_occurs_keeps_the_prior():
    counts, topics = block_corpus(2, 5, 50, 20, seed=0)
    wider = sparse.csr_array(sparse.hstack([counts, sparse.csr_array((50, 3))])).astype(np.int64)
    start = np.hstack([topics, np.zeros((2, 3))])
    refined = LocalCorpus(wider).refine(start, n_sweeps=3, seed=0, eta=0.5)
    np.testing.assert_allclose(
        topics_of(refined)[:, 10:],
        0.5 / (refined.topic_counts.sum(axis=1) + 13 * 0.5)[:, None] * np.ones(3),
        rtol=1e-5,
    )
    np.testing.assert_allclose(topics_of(refined).sum(axis=1), 1)


def test_empty_documents_change_nothing_but_the_prior():
    counts, topics = block_corpus(2, 5, 50, 20, seed=0)
    with_empty = sparse.csr_array(sparse.vstack([counts, sparse.csr_array((7, 10))])).astype(
        np.int64
    )
    plain = LocalCorpus(counts).refine(topics, n_sweeps=4, seed=0)
    padded = LocalCorpus(with_empty).refine(topics, n_sweeps=4, seed=0)
    # An empty document tells nothing of the prior either: its terms vanish from both sums of the
    # fixed point.
    np.testing.assert_array_equal(topics_of(plain), topics_of(padded))
    np.testing.assert_allclose(plain.alpha, padded.alpha, rtol=1e-12)


def test_a_batch_joins_the_topics_that_are_known():
    counts, topics = block_corpus(3, 10, 60, 30, seed=2)
    known = (1e6 * topics).astype(np.float32)
    kept = known.copy()
    corpus = LocalCorpus(counts)
    batch = corpus.refine_beside(known, np.full(3, 0.1), 0.01, n_sweeps=4, seed=0)
    np.testing.assert_array_equal(known, kept)
    np.testing.assert_array_equal(batch.words, np.unique(counts.indices))
    frequencies = np.asarray(counts.sum(axis=0)).ravel()[batch.words]
    np.testing.assert_allclose(batch.counts.sum(axis=0), frequencies, rtol=1e-4)
    # A word has eta = 0.01 of 10^6 counts in a foreign topic and 10^6 p in its own, so a token goes
    # astray with odds of at most 10^-8 / p times the ratio of proportions, below 310 for 30 tokens
    # and alpha = 0.1. Summed over the tokens, p cancels: at most 2 foreign topics x 10 words x
    # 3.1e-6 of all tokens are astray, far below 1/1,000.
    own = topics[:, batch.words] > 0
    assert batch.counts[own].sum() > 0.999 * frequencies.sum()


def test_the_callback_sees_every_sweep_and_changes_nothing():
    counts, topics = mixed_corpus()
    seen = []
    watched = LocalCorpus(counts).refine(topics, n_sweeps=5, seed=0, callback=seen.append)
    assert seen == [1, 2, 3, 4, 5]
    np.testing.assert_array_equal(
        topics_of(watched), topics_of(LocalCorpus(counts).refine(topics, n_sweeps=5, seed=0))
    )


def test_the_prior_that_a_sampler_is_given_is_the_start():
    answers = []
    for total in (0.1, 50.0):
        _, lanes, state = begun(*mixed_corpus(), 1, np.full(4, total))
        answers.append(lanes.sweep(state, Sweep(average=True)).alpha)
    assert answers[0].sum() < answers[1].sum()


def test_lanes_cover_every_document_once():
    for n_lanes in (1, 2, 16, 64):
        lanes = lane_spans(np.arange(0, 60 * 37 + 1, 60), n_lanes)
        assert [document for first, last in lanes for document in range(first, last)] == list(
            range(37)
        )
        assert len(lanes) <= n_lanes


def test_a_word_too_frequent_for_exact_counts_is_refused():
    with pytest.raises(ValueError, match="at most") as error:
        words_that_occur(np.array([1, LARGEST_COUNT]))
    assert str(error.value) == (
        "A word may occur at most 16,777,215 times in documents refined at once. Word 1 occurs "
        "16,777,216 times. Drop it, or call partial_fit on parts of the corpus."
    )


def test_alpha_is_learnt_to_the_most_likely_one():
    rng = np.random.default_rng(0)
    truth = np.array([0.9, 0.4, 0.2])
    groups = np.array([rng.multinomial(25, share) for share in rng.dirichlet(truth, size=2_000)])
    histogram = np.array([np.bincount(column, minlength=26) for column in groups.T])
    lengths = np.bincount(groups.sum(axis=1))
    alpha = learn_alpha(np.ones(3), exceedances(histogram), exceedances(lengths), 2_000)
    # The gradient of the Dirichlet-multinomial likelihood, written with digamma, vanishes there.
    total = alpha.sum()
    gradient = np.sum(digamma(groups + alpha) - digamma(alpha), axis=0) - 2_000 * (
        digamma(25 + total) - digamma(total)
    )
    scale = np.sum(digamma(groups + alpha) - digamma(alpha), axis=0)
    np.testing.assert_allclose(gradient / scale, 0, atol=1e-6)


def test_eta_is_learnt_to_the_most_likely_one():
    rng = np.random.default_rng(0)
    # Counts well above the cap of the histogram are among them: 100,000 tokens over 40 words.
    counts = np.array(
        [rng.multinomial(100_000, topic) for topic in rng.dirichlet(np.full(40, 0.3), size=3)]
    ).T
    assert counts.max() > 4_096
    n_features = 50  # ten words that never occur
    eta = learn_eta(0.05, counts.astype(np.float32), n_features, 3_000)
    gain = np.sum(digamma(counts + eta) - digamma(eta))
    loss = n_features * np.sum(
        digamma(counts.sum(axis=0) + n_features * eta) - digamma(n_features * eta)
    )
    assert gain / loss == pytest.approx(1, abs=1e-6)
    assert learn_eta(0.05, np.zeros((2, 3), dtype=np.float32), 2, 5) == 0.05
