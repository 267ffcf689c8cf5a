"""The number of topics, and what is said about it: planted numbers are found; what one half lacks
does not count.
"""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linear_sum_assignment

from odeco.datasets import planted_topics
from odeco.errors import UnreliableTopicsWarning
from odeco.models import TensorLDA
from odeco.models.lda.counts import divide_documents
from odeco.models.lda.spectral import ReducedMoments, misfit_for


@pytest.mark.slow
@pytest.mark.parametrize(
    ("k", "n_documents", "length", "n_words", "alpha"),
    [
        (1, 500, 30, 50, 1.0),
        (3, 300, 30, 100, 0.3),
        (10, 1000, 30, 300, 0.1),
        (5, 3000, 100, 200, 2.0),
    ],
)
def test_planted_numbers_are_found_and_all_topics_are_found_again(
    k, n_documents, length, n_words, alpha
):
    corpus = planted_topics(n_documents, n_words, [alpha] * k, document_length=length, rng=0)
    model = TensorLDA("auto", max_iter=0, random_state=0).fit(corpus.counts)
    found = model.diagnostics_
    assert model.n_components_ == found.n_components == found.n_clear == k
    assert found.n_replicated == k
    assert found.selection_scores.tolist() == [
        [k, k]
    ]  # no smaller number can do better, so none is tried


def with_families(rng):
    """Return documents of three topics, and twelve families: 60 versions of one text, each with
    other words besides.
    """
    counts = np.zeros((6000, 132), dtype=np.int64)
    counts[:, :120] = planted_topics(
        6000, 120, [0.2] * 3, document_length=60, rng=rng
    ).counts.toarray()
    generator = np.random.default_rng(rng)
    for family, topic in enumerate(generator.dirichlet(np.full(120, 0.05), size=12)):
        versions = slice(60 * family, 60 * (family + 1))
        counts[versions, :120] = generator.multinomial(90, topic) + (counts[versions, :120] > 1)
        counts[versions, 120 + family] = 1
    return sparse.csr_array(counts[generator.permutation(6000)])


@pytest.mark.slow
def test_topics_of_texts_that_repeat_each_other_do_not_count():
    # Fifteen directions stand clear of noise, but no other text shows what is in twelve of them. If
    # documents were divided at random, both halves would have all fifteen. Where a half has fewer
    # topics than it is asked for, it divides some, and the halves may agree on that.
    model = TensorLDA("auto", max_iter=0, random_state=0).fit(with_families(1))
    found = model.diagnostics_
    assert found.n_clear == 15
    again = dict(found.selection_scores.tolist())
    assert again[3] == again[11] == 3
    assert again[15] < 15 / 2
    assert model.n_components_ < 15


def test_texts_that_repeat_each_other_are_in_one_part_whatever_the_order_of_documents():
    counts = with_families(2)
    parts = divide_documents(counts)
    for family in range(120, 132):
        own = parts[np.flatnonzero(counts[:, [family]].toarray().ravel())]
        assert (
            np.bincount(own).max() >= 0.9 * own.size
        )  # but for versions with another word that is rarer still
    order = np.random.default_rng(0).permutation(counts.shape[0])
    assert np.array_equal(divide_documents(counts[order]), parts[order])
    # The other 5,280 documents are divided evenly, by hashes. At most √n = 77 of them stay
    # together, so the standard deviation is at most √77 times that of a fair die.
    others = np.bincount(parts[counts[:, list(range(120, 132))].sum(axis=1) == 0], minlength=4)
    assert np.all(np.abs(others - 1320) < 4 * math.sqrt(77 * 5280 * 3 / 16))


def test_documents_without_a_word_have_a_part_too():
    counts = sparse.csr_array(np.array([[0, 0], [1, 2], [0, 0], [1, 2], [0, 0]]))
    parts = divide_documents(counts)
    assert parts[1] == parts[3]
    assert np.all(parts[[0, 2, 4]] == 0)


@pytest.mark.filterwarnings("ignore::odeco.errors.UnreliableTopicsWarning")
def test_what_was_tried_is_saved_and_a_given_number_has_tried_nothing(tmp_path):
    corpus = planted_topics(400, 40, [0.3] * 3, document_length=30, rng=2)
    model = TensorLDA("auto", max_iter=0, random_state=0).fit(corpus.counts)
    model.save(tmp_path / "model.npz")
    again = TensorLDA.load(tmp_path / "model.npz").diagnostics_
    assert np.array_equal(again.selection_scores, model.diagnostics_.selection_scores)
    given = TensorLDA(3, max_iter=0, random_state=0).fit(corpus.counts).diagnostics_
    assert given.n_replicated is None
    assert given.selection_scores.shape == (0, 2)


# ---- the warning ---------------------------------------------------------------------------------


def test_a_strong_direction_of_few_documents_is_named_and_no_smaller_number_is_advised():
    # One document of 20,000 words that no other holds is a strong direction, but in one group of
    # documents only. With it four directions are looked at; the three of the planted topics are
    # clear.
    corpus = planted_topics(2000, 60, [0.3] * 3, document_length=50, rng=3).counts.toarray()
    counts = np.zeros((2001, 62))
    counts[:2000, :60] = corpus
    counts[2000, 60:] = 10_000
    with pytest.warns(UnreliableTopicsWarning) as caught:
        model = TensorLDA(3, max_iter=0, random_state=0).fit(sparse.csr_array(counts))
    found = model.diagnostics_
    (bad,) = np.flatnonzero(~found.reliable)
    assert found.n_clear >= 3
    message = str(caught[0].message)
    assert "Of the 3 directions of word pairs that they rest on, 1 is not clear of noise" in message
    assert f"Direction {bad} is strong, but in few documents only" in message
    assert "lower n_components" not in message


def test_the_advice_names_a_number_below_the_one_that_was_asked_for():
    corpus = planted_topics(400, 60, [0.3] * 3, document_length=20, rng=4)
    with pytest.warns(UnreliableTopicsWarning) as caught:
        model = TensorLDA(9, max_iter=0, random_state=0).fit(corpus.counts)
    n_clear = model.diagnostics_.n_clear
    assert 0 < n_clear < 9
    assert str(caught[0].message).endswith(
        f"or prune rare words, or lower n_components to {n_clear}."
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TensorLDA(n_clear, max_iter=0, random_state=0).fit(corpus.counts)


# ---- the concentration ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_the_concentration_of_documents_that_mix_all_topics_is_not_biased_low(seed):
    # Candidates are a factor of two apart: the choice is off by less than one of them on either
    # side.
    corpus = planted_topics(10_000, 100, [8.0, 4.0, 4.0, 2.0, 2.0], document_length=60, rng=seed)
    model = TensorLDA(5, max_iter=0, random_state=0).fit(corpus.counts)
    assert 10 < model.diagnostics_.concentration < 40


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_documents", "n_words", "alpha", "length"),
    [(10_000, 200, [3.0] * 8, 80), (10_000, 300, [1.0] * 10, 60), (5_000, 100, [1.0] * 5, 100)],
)
def test_topics_are_as_near_as_if_the_concentration_were_known(n_documents, n_words, alpha, length):
    # The bar: at most 1.1 times the error with α₀ given, here for the mean of three corpora.
    chosen, given = [], []
    for seed in range(3):
        corpus = planted_topics(n_documents, n_words, alpha, document_length=length, rng=seed)
        for errors, concentration in ((chosen, "auto"), (given, sum(alpha))):
            model = TensorLDA(
                len(alpha), doc_topic_concentration=concentration, max_iter=0, random_state=0
            )
            distances = np.abs(
                model.fit(corpus.counts).topic_word_[:, None] - corpus.topics[None]
            ).sum(axis=2)
            errors.append(distances[linear_sum_assignment(distances)].mean())
    assert np.mean(chosen) <= 1.1 * np.mean(given)


@pytest.mark.parametrize("concentration", [0.5, 30.0])
def test_what_is_left_of_the_third_moment_is_nothing_at_the_true_concentration_only(concentration):
    # Exact moments: at the true α₀ the components are all of the third moment, up to rounding.
    rng = np.random.default_rng(0)
    topics, alpha = rng.dirichlet(np.full(8, 0.3), 3), concentration * np.array([0.5, 0.3, 0.2])
    mean, triples = alpha / concentration, np.zeros((3, 3, 3))
    rising = concentration * (concentration + 1)
    pairs = (np.outer(alpha, alpha) + np.diag(alpha)) / rising
    for index in np.ndindex(3, 3, 3):
        powers = np.bincount(index, minlength=3)
        moments = [math.prod(alpha[j] + step for step in range(powers[j])) for j in range(3)]
        triples[index] = math.prod(moments) / (rising * (concentration + 2))
    basis = np.linalg.qr(topics.T)[0]
    places = topics @ basis
    reduced = ReducedMoments(
        directions=np.eye(3),
        eigenvalues=np.ones(3),
        eigenvalue_errors=np.array([1.0, 2.0, 0.5]),
        noise_level=0.0,
        clear=np.ones(3, dtype=bool),
        first=places.T @ mean,
        pairs=places.T @ pairs @ places,
        triples=np.einsum("abc,ai,bj,cl->ijl", triples, places, places, places),
    )
    near = places.T * np.sqrt(alpha / rising)
    left = {
        factor: misfit_for(factor * concentration, reduced, seed=0, near=near)
        for factor in (0.5, 1.0, 2.0)
    }
    assert left[1.0] < 1e-12 * np.sum(reduced.triples**2)
    assert min(left[0.5], left[2.0]) > 1e6 * left[1.0]


def test_a_word_that_only_short_documents_have_leaves_the_concentration_to_the_others():
    """Documents of fewer than three words do not count; their words had a probability of zero."""
    counts = planted_topics(600, 30, [0.3, 0.3, 0.3], document_length=30, rng=0).counts.toarray()
    short = np.zeros((40, 31), dtype=np.int64)
    short[:, 30] = 2
    wide = np.vstack([np.pad(counts, ((0, 0), (0, 1))), short])
    with_short = TensorLDA(3, random_state=0).partial_fit(wide[::-1])
    without = TensorLDA(3, random_state=0).partial_fit(counts[::-1])
    assert with_short.topic_word_[:, :30] == pytest.approx(without.topic_word_, abs=0.05)
