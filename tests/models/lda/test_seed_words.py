"""Seed words: topics that are asked for come first, hold their words, and are not moved towards
them.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from odeco.datasets import planted_topics
from odeco.errors import VocabularyError
from odeco.models import TensorLDA

pytestmark = pytest.mark.filterwarnings("ignore::odeco.errors.UnreliableTopicsWarning")


@pytest.fixture(scope="module")
def corpus():
    return planted_topics(1500, 60, [0.4, 0.3, 0.2, 0.1], document_length=40, sparsity=0.1, rng=0)


def words(n_words=60):
    return [f"w{place}" for place in range(n_words)]


def leading(topic, n_words=2):
    """Return the words that the topic has most of."""
    return [f"w{place}" for place in np.argsort(-topic)[:n_words]]


@pytest.mark.parametrize("order", [[3, 0], [1, 2, 0], [0, 1, 2, 3]])
def test_topics_come_in_the_order_of_their_seed_words_and_the_others_by_size(corpus, order):
    # Words that only one planted topic has: its share of their uses is above nine tenths.
    expected = np.array([0.4, 0.3, 0.2, 0.1])[:, None] * corpus.topics
    alone = np.where(expected / expected.sum(axis=0) > 0.9, corpus.topics, 0)
    seeds = {f"planted {topic}": leading(alone[topic]) for topic in order}
    model = TensorLDA(4, seed_words=seeds, max_iter=20, random_state=0).fit(
        corpus.counts, words=words()
    )
    plain = TensorLDA(4, max_iter=20, random_state=0).fit(corpus.counts).topic_word_
    for place, topic in enumerate(
        order
    ):  # the prior may cost accuracy, but no more than sampling does
        error, of_nearest = (
            np.abs(found - corpus.topics[topic]).sum(axis=-1)
            for found in (model.topic_word_[place], plain)
        )
        assert error < 2 * of_nearest.min()
    assert model.topic_labels()[: len(order)] == list(seeds)
    rest = model.shares_[len(order) :]
    assert np.all(np.diff(rest) <= 0)
    assert f"planted {order[0]}: " in model.summary()


def test_seed_words_bring_together_what_the_documents_alone_keep_apart():
    # Two pairs of words: a and b never occur together, and neither do c and d. Without seeds no
    # topic has both.
    rng = np.random.default_rng(0)
    topics = np.zeros((4, 24))
    for topic in range(4):
        topics[topic, 6 * topic : 6 * topic + 6] = [0.3, 0.2, 0.2, 0.1, 0.1, 0.1]
    counts = sparse.csr_array(rng.multinomial(30, topics[rng.integers(4, size=800)]))
    plain, seeded = (
        TensorLDA(2, seed_words=seeds, max_iter=30, random_state=0).fit(counts, words=words(24))
        for seeds in (None, {"first": ["w0", "w12"], "second": ["w6", "w18"]})
    )
    together = seeded.topic_word_[0, [0, 12]].min(), seeded.topic_word_[1, [6, 18]].min()
    assert (
        min(together) > 0.08
    )  # each word is 0.3 of a quarter of all words: 0.15 of one of two topics
    assert plain.topic_labels() != seeded.topic_labels()


def test_seeded_topics_are_those_of_the_documents_and_not_of_the_prior(corpus):
    # Prior counts of a quarter of the uses of a word would raise its probability by a quarter if
    # they were kept.
    expected = np.array([0.4, 0.3, 0.2, 0.1])[:, None] * corpus.topics
    word = int(np.argmax(np.where(expected / expected.sum(axis=0) > 0.9, corpus.topics, 0)[1]))
    model = TensorLDA(4, seed_words=[[f"w{word}"]], max_iter=20, random_state=0).fit(
        corpus.counts, words=words()
    )
    assert model.topic_word_[0, word] < 1.1 * corpus.topics[1, word]
    frequencies = np.asarray(corpus.counts.sum(axis=0)).ravel() / corpus.counts.sum()
    assert (
        np.abs(model.shares_ @ model.topic_word_ - frequencies).sum() < 0.02
    )  # all words of the documents, once


def test_a_model_with_seed_words_is_saved_cloned_and_merged(corpus, tmp_path):
    seeds = {"one": ["w1", "w2"]}
    model = clone(TensorLDA(3, seed_words=seeds, max_iter=2, random_state=0)).fit(
        corpus.counts, words=words()
    )
    model.save(tmp_path / "model.npz")
    again = TensorLDA.load(tmp_path / "model.npz")
    assert again.topic_labels()[0] == "one"
    assert again.seed_words is None  # the labels are kept, and the words have done their work
    assert "one" not in model.merge_topics([[0, 1]]).topic_labels()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_iter": 0}, "max_iter=0"),
        ({"epsilon": 1.0, "delta": 1e-6}, "a private model"),
        ({"n_components": 1}, "at least the number of topics with seed words, 2"),
        ({"seed_words": {"a": "w1"}}, "a list of words for each"),
        ({"seed_words": "w1"}, "a list of words for each"),
        ({"seed_words": {}}, "a list of words for each"),
        ({"seed_words": {"a": ["w1"], "b": ["w1"]}}, "each word once"),
    ],
)
def test_seed_words_that_cannot_steer_anything_are_refused(corpus, settings, message):
    model = TensorLDA(**{"n_components": 3, "seed_words": {"a": ["w1"], "b": ["w2"]}, **settings})
    with pytest.raises(ValueError, match=message):
        model.fit(corpus.counts, words=words())


def test_seed_words_that_are_not_counted_are_named(corpus):
    model = TensorLDA(3, seed_words={"a": ["w1", "missing"]})
    with pytest.raises(VocabularyError, match="'missing', which is not"):
        model.fit(corpus.counts, words=words())
    with pytest.raises(VocabularyError, match="counts without words"):
        model.fit(corpus.counts)
    with pytest.raises(ValueError, match="partial_fit"):
        model.partial_fit(corpus.counts, words=words())
